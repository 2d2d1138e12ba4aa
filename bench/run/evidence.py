"""What stands behind a claim on the board: the isolation in force, where the noise came from, the newest audit."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from bench.run.audit_plan import refuted_methods
from bench.run.cache import WorkFolder, canonical

CLAIM_FIELDS = ("method", "variant", "lane", "unit", "adjacency", "horizon", "delta", "epsilon")


def name_of(row: Mapping[str, Any]) -> str:
    return f"{row['method']}@{row['variant']}" if row["variant"] else str(row["method"])


def behind(work: WorkFolder) -> dict[str, dict[str, Any]]:
    """{method spec: {isolation, noise, audit}} of the newest release, and its audit if one was made of that source."""
    found: dict[str, dict[str, Any]] = {}
    for record in sorted([*work.finished("enforced"), *work.finished("report")], key=lambda r: r["finished"]):
        facts = _release_of(record)
        found[name_of(facts)] = {"isolation": facts["isolation"], "noise": facts["noise"], "audit": None,
                                 "source": record["identity"]["plugins"].get(f"methods/{facts['method']}")}
    for record in sorted(work.finished("release"), key=lambda r: r["finished"]):
        if (facts := _release_of(record))["lane"] == "declared":
            found[name_of(facts)] = {"isolation": None, "noise": "seeded", "audit": None, "source": None}
    for name, audit in refuted_methods(work).items():
        if name in found and found[name]["source"] == audit.pop("source"):
            found[name]["audit"] = audit
    return found


def _release_of(record: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads((record["folder"] / "release" / "release.json").read_text(encoding="utf-8"))


def claim_rows(cells: Iterable[Mapping[str, Any]], known: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per distinct claim, with what stands behind it as JSON text."""
    rows = {}
    for cell in cells:
        more = known.get(name_of(cell), {})
        row = {k: cell[k] for k in CLAIM_FIELDS} | {
            k: canonical(more[k]) if more.get(k) is not None else None for k in ("isolation", "noise", "audit")}
        rows[tuple(str(row[k]) for k in CLAIM_FIELDS)] = row
    return [rows[key] for key in sorted(rows)]


def withdrawn(cell: dict[str, Any], known: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The cell outside the formal section when an audit refuted the claim of its method; else as it is."""
    audit = known.get(name_of(cell), {}).get("audit")
    if not audit or not audit["refuted"] or cell["lane"] == "none":
        return cell
    return {**cell, "lane": "none", "unit": "none", "adjacency": "none", "horizon": "none", "delta": 0.0,
            "epsilon": math.inf, "ceiling": None,
            "text": f"claim withdrawn: {audit['n']} releases show epsilon above {audit['bound']:.3g}, claimed "
                    f"{audit['claim']:.3g}"}
