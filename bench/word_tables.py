"""Tables of words, not of results: where BR-MoE stands beside other work, and what its data serve for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench import registry
from bench.blocks import Block
from bench.describe import describe
from bench.display import WORDS, Cell, epsilon_text, method_name
from bench.positions import ROLES, WORKS

_NOTHING = dict.fromkeys((
    "variant", "attack", "evaluator", "decoding", "params", "chance", "ceiling", "value", "lo", "hi", "n", "people",
    "draws", "details", "digest", "split", "adjacency", "epsilon", "delta", "control", "dataset"))


def word(column: str, title: str, text: str, **more: Any) -> dict[str, Any]:
    """A cell that says something; more: fields of the row."""
    return {**_NOTHING, "method": "br_moe", "metric": column, "title": title, "text": text, "metric_unit": WORDS,
            "better": "none", "role": "descriptive", "status": "ok", "via": "direct", "seeds": [], "profile": "tiny",
            "lane": "none", "unit": "none", "track": "traffic", **more}


def positions(cells: Sequence[Cell]) -> list[Block]:
    """Where BR-MoE places itself: what other work gives out and protects, and the row here that stands for it"""
    rows = []
    for work in WORKS:
        if work.traffic:
            own = {"method": work.method or work.name}
            rows.append((work.name, (
                word("output", "What it gives out", work.gives, **own),
                word("scope", "What its privacy is about", work.protects, **own),
                word("relation", "Why it shares no section", work.apart, **own),
                word("here", "Row of this benchmark", _row_here(work.method, cells), **own))))
    rows.append(("BR-MoE", (
        word("output", "What it gives out", "Reports on a window, as bounded numbers and text"),
        word("scope", "What its privacy is about", "Events of at most K changed chunks; never a whole stay"),
        word("relation", "Why it shares no section", "Shares one with every row about the same events"),
        word("here", "Row of this benchmark", _row_here("br_moe", cells)))))
    return [Block(str(positions.__doc__), rows[0][1], tuple(rows),
                  ("Different privacy units are not interchangeable: nothing is converted, nothing ranks here.",))]


def _row_here(method: str | None, cells: Sequence[Cell]) -> str:
    """`rl_moe: no formal claim`, from the newest cell of the method; its title where nothing was measured."""
    if method is None or method not in registry.names("methods"):
        return "none"
    cell = next((c for c in cells if method_name(c) == method), None)
    if cell is None:
        return f"{method}: {describe('methods', method).title}"
    if cell["lane"] == "none":
        return f"{method}: no formal claim"
    return f"{method}: {cell['lane']}, {cell['unit']} {cell['adjacency']}, {cell['horizon']}, " \
           f"epsilon {epsilon_text(cell['epsilon'])}"


def data_use(cells: Sequence[Cell]) -> list[Block]:
    """What the traffic datasets serve for: role, labels and split, what a user has to bring, test episodes measured"""
    rows = []
    known: dict[str, Any] = {name: registry.get("datasets", name) for name in registry.names("datasets")}
    names = [name for name, adapter in known.items() if getattr(adapter, "track", "face") == "traffic"]
    for name in dict.fromkeys([*ROLES, *names]):
        own, title = {"dataset": name}, "Intended role"
        if name not in names:
            rows.append((name, (word("role", title, ROLES[name], **own), word("labels", _LABELS, "no loader", **own),
                                word("bring", _BRING, "nothing", **own), word("episodes", _MEASURED, "none", **own))))
            continue
        adapter, about = known[name], describe("datasets", name)
        bring = "your own copy: --root DIR" if adapter.needs_root else "nothing"
        shown = "pictures may be shown" if adapter.publishable else "no picture is shown"
        rows.append((name, (word("role", title, ROLES.get(name, about.title), **own),
                            word("labels", _LABELS, " ".join(about.doc.split()), **own),
                            word("bring", _BRING, f"{bring}; {adapter.licence}; {shown}", **own),
                            _episodes(name, cells, adapter.needs_root))))
    return [Block(str(data_use.__doc__), tuple({**cell, "metric_unit": WORDS} for cell in rows[0][1]), tuple(rows),
                  ("Words of the loaders themselves. Components without a label are missing, never 0.",))]


_LABELS, _BRING, _MEASURED = "Labels and split", "What you bring, licence, pictures", "Test episodes measured"


def _episodes(dataset: str, cells: Sequence[Cell], needs_root: bool = False) -> dict[str, Any]:
    """How many test episodes of a dataset stand behind measured numbers; a gap with its command where none do."""
    found = [c["people"] for c in cells if c.get("dataset") == dataset and c.get("people")]
    cell = word("episodes", _MEASURED, str(max(found, default="")), dataset=dataset)
    if found:
        return cell
    return {**cell, "status": "missing", "text": None, "metric_unit": "1", "suite": "traffic-mini",
            "method": "public_median", "needs_root": needs_root}
