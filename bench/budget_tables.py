"""Tables that compute: what a video costs whose clips are all released (tadp-2), what a release costs (tadp-16), and
what the fitted state of a row says (tadp-1).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench.blocks import Block, by_board, footer
from bench.display import Cell, epsilon_text, method_name, missing
from bench.errors import DataError
from bench.privacy.conversions import epsilon_cks, epsilon_exact, epsilon_mironov, mu_exact
from bench.registry import Spec

METHOD, SUITE = "tadp", "tadp"
COUNTS = ("least", "near mean", "most")
CONVERSIONS = {"exact": lambda mu, delta: epsilon_exact(mu, delta),
               "mironov": lambda mu, delta: epsilon_mironov(mu * mu / 2, delta),
               "cks": lambda mu, delta: epsilon_cks(mu * mu / 2, delta)}


def composed_budgets(cells: Sequence[Cell]) -> list[Block]:
    """What a whole video costs: clips per test video, and epsilon of all of them by three conversions"""
    made = []
    for (_, dataset, profile), group in by_board(cells).items():
        rows = [(f"{method_name(cell)} (epsilon {epsilon_text(cell['epsilon'])} a clip)", tuple(_composed(cell)))
                for cell in _one_a_row(group)]
        if rows:
            caption = f"{composed_budgets.__doc__}: {dataset}, {profile} profile"
            made.append(Block(caption, rows[0][1], tuple(rows), (
                "K clips of one video cost mu sqrt(K); K is the least, the whole number nearest the mean and the most "
                "clips of a test video.", *footer([c for _, line in rows for c in line]))))
    return made or [Block(str(composed_budgets.__doc__), (), (), (f"nothing measured yet: veilbench run {SUITE}",))]


def _one_a_row(cells: Sequence[Cell]) -> list[Cell]:
    """Of each variant with a claim about a clip, one cell that knows how many clips its videos have."""
    found: dict[Any, Cell] = {}
    for cell in cells:
        known = (cell.get("details") or {}).get("clips_read")
        if cell["method"] == METHOD and cell["unit"] == "clip" and known and cell.get("metric") == "fer" \
                and cell["delta"] > 0 and cell["epsilon"] < float("inf") and not cell.get("attack"):
            found.setdefault(cell.get("variant"), cell)
    return list(found.values())


def _composed(cell: Cell) -> Iterator[Cell]:
    """Cells of one row: the three counts, then epsilon of each count by each conversion."""
    videos = {int(k): int(n) for k, n in cell["details"]["clips_read"].items()}
    mean = sum(k * n for k, n in videos.items()) / sum(videos.values())
    counts = dict(zip(COUNTS, (min(videos), round(mean), max(videos)), strict=True))
    base = {**cell, "attack": None, "evaluator": None, "metric_unit": "1", "better": "none", "role": "descriptive",
            "chance": None, "ceiling": None, "lo": None, "hi": None, "n": sum(videos.values()), "status": "ok",
            "text": None, "details": None, "seeds": [], "draws": None, "params": None}
    for name, count in counts.items():
        yield {**base, "metric": "clips", "value": count, "params": {"K": name}, "title": f"Clips of a video, {name}"}
    mu = mu_exact(float(cell["epsilon"]), float(cell["delta"]))
    for name, count in counts.items():
        for conversion, epsilon in CONVERSIONS.items():
            yield {**base, "metric": "epsilon", "value": epsilon(mu * count**0.5, float(cell["delta"])),
                   "params": {"K": name, "conversion": conversion}, "title": f"Epsilon of {count} clips, {conversion}"}


def release_costs(artifacts: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str | None], tuple[float, float]]:
    """{(method, variant): (seconds, MB)} of encoding and releasing all parts, from stages that ran here."""
    found: dict[tuple[str, str | None], dict[str, Mapping[str, Any]]] = {}
    for row in sorted(artifacts, key=lambda r: r["finished"]):
        if row["kind"] not in ("encode", "enforced", "release"):
            continue
        try:
            config = json.loads(row["identity"])["config"]
        except (ValueError, KeyError) as error:
            raise DataError("A stage of the index has no configuration.", str(error), "Run `veilbench db rebuild`."
                            ) from error
        if len(config.get("parts", ())) == 4 and config.get("decoding", "assembled") == "assembled":
            found.setdefault((config["method"], config.get("variant")), {})[row["kind"]] = row
            lead = Spec.parse(config.get("encoded_by") or "")
            if encoded := found.get((lead.name, lead.variant), {}).get("encode"):
                found[config["method"], config.get("variant")]["encode"] = encoded
    return {key: (sum(float(r["seconds"]) for r in rows.values()), max(float(r["peak_mb"]) for r in rows.values()))
            for key, rows in found.items()}


def with_costs(blocks: Sequence[Block], artifacts: Sequence[Mapping[str, Any]]) -> list[Block]:
    """Each block with two more columns: seconds and memory of each row's release, where it ran in this work folder."""
    costs, made = release_costs(artifacts), []
    for block in blocks:
        rows = tuple((label, (*line, *_cost_cells(line[0], costs))) for label, line in block.rows)
        sample = rows[0][1][-2:] if rows else ()
        made.append(replace(block, columns=(*block.columns, *sample), rows=rows))
    return made


def _cost_cells(row: Cell, costs: Mapping[tuple[str, str | None], tuple[float, float]]) -> tuple[Cell, ...]:
    seconds, peak_mb = costs.get((row["method"], row.get("variant")), (None, None))
    base = {**missing(row, row), "attack": None, "evaluator": None, "via": "direct", "params": None, "better": "lower",
            "role": "descriptive", "chance": None, "suite": SUITE, "status": "missing" if seconds is None else "ok"}
    return ({**base, "metric": "release_s", "metric_unit": "s", "value": seconds, "title": "Encode and release it all"},
            {**base, "metric": "release_mb", "metric_unit": "MB", "value": peak_mb, "title": "Peak memory of it"})


# ---- configuration -------------------------------------------------------------------------------------------------

def with_configuration(blocks: Sequence[Block], known: Mapping[Any, Any]) -> list[Block]:
    """Each block with clip norms, floors in the units of the features, T, temperature and epsilon of each row.

    known: as `bench.fitted.configurations` gives it: {(dataset, profile, method, variant): its configuration}.
    """
    made = []
    for block in blocks:
        branches = sorted({b for line in _lines(block) if (c := known.get(_fitted_row(line))) for b in c.clip_norm})
        rows = tuple((label, (*line, *_configured(line, known.get(_fitted_row(line)), branches)))
                     for label, line in block.rows)
        sample = rows[0][1][len(block.columns):] if rows else ()
        notes = ("clip_norm (C_b) and s_min are in the units of the encoder's features; floor, scale_min and scale_max "
                 "in units of C_b. Realised scales and temperatures are outside the accountant.",) if rows else ()
        made.append(replace(block, columns=(*block.columns, *sample), rows=rows, footer=(*notes, *block.footer)))
    return made


def _lines(block: Block) -> list[tuple[Cell, ...]]:
    return [line for _, line in block.rows]


def _fitted_row(line: Sequence[Cell]) -> tuple:
    return tuple(line[0].get(k) for k in ("dataset", "profile", "method", "variant"))


def _configured(line: Sequence[Cell], known: Any, branches: Sequence[str]) -> Iterator[Cell]:
    clip, least = (known.clip_norm, known.s_min) if known else ({}, {})
    for b in branches or ("expr", "id"):
        yield _known(line[0], "clip_norm", clip.get(b), "Clip norm C_b, from calibration people", {"branch": b})
    for b in branches or ("expr", "id"):
        yield _known(line[0], "s_min", least.get(b), "Smallest noise scale, in units of the features", {"branch": b})
    yield _known(line[0], "frames", known and known.frames, "T: frames of a clip")
    yield _known(line[0], "temperature", known and known.temperature, "Temperature of the soft quantization")
    delta = f"at delta {line[0]['delta']:g}" if line[0].get("delta") is not None else ""
    yield _known(line[0], "epsilon", line[0].get("epsilon"), f"Epsilon of one clip {delta}".strip())


def _known(row: Cell, metric: str, value: float | None, title: str, params: Mapping[str, Any] | None = None) -> Cell:
    return {**missing(row, row), "attack": None, "evaluator": None, "via": "direct", "better": "none", "chance": None,
            "role": "descriptive", "suite": SUITE, "metric": metric, "metric_unit": "1", "value": value, "title": title,
            "params": dict(params) if params else None, "status": "missing" if value is None else "ok"}
