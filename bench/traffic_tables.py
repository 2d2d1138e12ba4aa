"""The tables of the BR-MoE paper: over measured cells, of words, and some that follow from schema and formula alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from bench.against import REFERENCES, difference_cells
from bench.blocks import Block
from bench.display import Cell
from bench.paper_tables import PaperTable, of
from bench.traffic import CHUNK_S, EXPERTS, FPS, SLOTS, WINDOW_CHUNKS, WINDOW_S
from bench.word_tables import data_use, positions

EVENT = of("auc", "event_llr", params={"event": "experts"})
WEIGHTED = of("utility", params={"slots": "weighted"})


def _counted(name: str) -> Any:
    return of(name, params={"slots": "all"})


def schema(cells: Sequence[Cell]) -> list[Block]:
    """The semantic schema: components and cap of each expert (PROTOCOL 5)"""
    rows = tuple((f"{e.name}: {', '.join(e.components).replace('_', ' ')}",
                  (_fixed("components", e.dim, "d"), _fixed("cap", e.cap, "C, l1 of a chunk"))) for e in EXPERTS)
    return [Block(str(schema.__doc__), rows[0][1], rows, ("Design choices of the paper, not tuned.",))]


def configuration(cells: Sequence[Cell]) -> list[Block]:
    """The starting configuration of the benchmark; budgets 2 and 8, K = 5 and 10 are variants"""
    values = (("chunk, s", CHUNK_S), ("frames a second", FPS), ("window and cadence, s", WINDOW_S),
              ("report slots of an episode", SLOTS), ("K, changed chunks", 2), ("budget of an episode, epsilon", 4),
              *((f"spend of a window, {n} of 4", e) for n, e in enumerate((0.1, 0.2, 0.4, 0.8), 1)))
    rows = tuple((label, (_fixed("setting", float(value), "Starting value"),)) for label, value in values)
    return [Block(str(configuration.__doc__), rows[0][1], rows, ("Under \"max\" the spends are 0.4, 0.8, 2 and 4.",))]


def noise_scales(cells: Sequence[Cell]) -> list[Block]:
    """Analytic noise scales of the pedestrian mean: 2 K C / J, its spend, and the quotient (J = 30, C = 6, e = 0.4)"""
    cap, rows = next(e.cap for e in EXPERTS if e.name == "pedestrian"), []
    for changed in (2, 5):
        for label, experts in (("four experts share", 4), ("pedestrian alone", 1)):
            reach, spend = Fraction(2 * changed * cap, WINDOW_CHUNKS), Fraction(2, 5) / experts
            rows.append((f"{label}, K = {changed}", (
                _fixed("sensitivity", float(reach), "Largest change of the mean"),
                _fixed("epsilon", float(spend), "Spend of the expert"),
                _fixed("scale", float(reach / spend), "Laplace scale of the mean"))))
    return [Block(str(noise_scales.__doc__), rows[0][1], tuple(rows),
                  ("Follows from the formula; nothing is measured.",))]


def _fixed(metric: str, value: float, title: str) -> dict[str, Any]:
    """A cell that is no measurement."""
    nothing = dict.fromkeys(("attack", "evaluator", "decoding", "params", "chance", "ceiling", "lo", "hi", "n",
                             "people", "draws", "text", "details", "digest", "split", "variant"))
    return {**nothing, "method": "br_moe", "metric": metric, "value": value, "metric_unit": "1", "better": "none",
            "role": "descriptive", "title": title, "status": "ok", "via": "direct", "seeds": [], "profile": "tiny",
            "dataset": "sumo_crossing", "lane": "enforced", "unit": "event", "epsilon": 4.0, "delta": 0.0,
            "track": "traffic", "control": None}


_MAIN = tuple((name, None) for name in ("vtpm_style", "public_median", "rl_moe", "rl_moe_field_removal", "privid_style",
                                        "uniform_dp", "task_dp", "periodic_dp_reuse", "hand_rule", "br_moe"))
_OTHERS = tuple((method, variant) for method, variant in (
    ("br_moe", "seed2"), ("br_moe", "max"), ("br_moe", "max-counts-box"), ("task_dp", "max"), ("task_dp", "max-hmm"),
    ("uniform_dp", "max"), ("uniform_dp", "max-counts-box-hmm")))
_ABLATED: tuple[tuple[str, str | None], ...] = (
    ("br_moe", None), ("br_moe", "seed2"), ("task_dp", None), ("br_moe", "noreuse"), ("br_moe", "notask"),
    ("raw_gate", None), ("br_moe", "box"), ("br_moe", "counts"), ("br_moe", "hmm"))
_SWEEP: tuple[tuple[str, str | None], ...] = tuple(("br_moe", v) for v in ("eps2", None, "eps8", "k5", "k10"))

_PLAIN = PaperTable("Ablation", (WEIGHTED, of("age")), _ABLATED, suite="br-moe")


def ablation(cells: Sequence[Cell]) -> list[Block]:
    """Ablation, and whether the design keeps its claim (valid: 1 = yes); the fixed task schedule is task_dp"""
    return [replace(block, columns=(*block.columns, *[line[-1] for _, line in rows[:1]]), rows=tuple(rows))
            for block in _PLAIN(cells) for rows in [[(label, (*line, _valid(line[0]))) for label, line in block.rows]]]


def _valid(cell: Cell) -> dict[str, Any]:
    """1 where the harness executed the claim and the replay from released values gave the same release."""
    kept = {k: cell[k] for k in ("method", "variant", "lane", "unit", "epsilon", "dataset", "profile")}
    return {**_fixed("valid", float(cell["lane"] == "enforced"), "Keeps its claim"), **kept}


_RESULTS = PaperTable("Report streams, budget 4 over ten minutes, K = 2", (
    _counted("mae_vehicle"), _counted("mae_pedestrian"), of("f1_sign"), EVENT, of("coverage"), WEIGHTED),
    _MAIN, suite="br-moe")
_PAIRED = PaperTable("Each row minus a reference, paired over the same episodes", tuple(
    of(f"{metric}_difference", params={"against": name}) for metric, names in REFERENCES.items() for name in names),
    (*_MAIN, *_OTHERS), suite="br-moe")


def main(cells: Sequence[Cell]) -> list[Block]:
    """Report streams, budget 4 over ten minutes, K = 2; and each row minus its references over the same episodes

    Utility is compared with schedules that make the same claim; a row without such a reference has no difference.
    """
    paired = [block for block in _PAIRED(difference_cells(cells)) if block.rows]
    return [*_RESULTS(cells), *(replace(block, rows=tuple((label, tuple(map(_unpaired, line)))
                                                          for label, line in block.rows)) for block in paired)]


def _unpaired(cell: Cell) -> Cell:
    """A gap among differences: no run would fill it, unless the reference itself is missing."""
    return {**cell, "status": "undefined: not paired"} if cell["status"] == "missing" else cell


TRAFFIC_TABLES: dict[str, Callable[[Sequence[Cell]], list[Block]]] = {
    "brmoe-1": positions,
    "brmoe-2": schema,
    "brmoe-3": data_use,
    "brmoe-4": configuration,
    "brmoe-5": main,
    "brmoe-6": ablation,
    "brmoe-7": PaperTable("Budgets and bounds on the event: epsilon 2, 4, 8 at K = 2, then K = 5 and 10 at 4",
                          (WEIGHTED, EVENT, of("coverage")), _SWEEP, suite="br-moe"),
    "brmoe-8": noise_scales,
}
