"""Which rows may be compared, and how they rank (DESIGN 4, PROTOCOL 6 and 8).

A cell is a dict: method, variant, dataset, profile, lane, unit, adjacency, horizon, epsilon, delta, attack, metric,
evaluator, via, decoding, value, lo, hi, better, role, chance, n, people, draws, status, digest, split, control,
person_values (person id -> float), ... Only cells with status "ok", a finite value and the same key rank.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bench import seeds
from bench.display import Cell, column_name, diagnostic, exceeds, finite, method_name, status_text
from bench.stats import Rank, competition_ranks, rank_table

BANDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, math.inf)
KEY_FIELDS = ("track", "dataset", "split", "profile", "lane", "unit", "adjacency", "horizon", "delta", "band",
              "attack", "metric", "digest", "evaluator", "evaluator_digest", "via", "decoding", "draws", "params")
SECTION_FIELDS = ("lane", "unit", "adjacency", "horizon", "delta", "band")
FLOORS = {"top1": ("higher", 0.9, 0.8), "eer": ("lower", 0.05, 0.10), "auc": ("higher", 0.99, 0.99),
          "psnr_recovered": ("higher", 35.0, 35.0)}
LEARNED = {"event_learned": ("higher", 0.95, 0.95)}  # of an attack that knows less than the worst case
NO_CHANCE = ("tar", "dir")  # the false accept rate that was realised says what chance is, not the one aimed at
FRAME_WISE = "recover_unet"  # whose recovery of the original has a floor of its own
MADE_DATA = "synthfaces"  # made data: the stricter floor of an attack's control
CHANCE = {"eer": 0.5}  # where the column's cells do not carry it
CONTROL_NAMES = {("face", "positive"): "original", ("face", "negative"): "blackout",
                 ("traffic", "positive"): "vtpm_style", ("traffic", "negative"): "public_median"}
FEWEST_PEOPLE = 5
NEEDS_FACES, FEWEST_FACES = ("t_id", "tg"), 0.5


@dataclass(frozen=True)
class Row:
    """One row of one column. `reason` says why it does not rank; empty when it does.

    rank: competition rank, 1 = best, None when unranked. rank_lo, rank_hi: from resampling people, None when so few
    people cannot tell. tied: shares its rank. best: not separable from the best row; meaningless unless decidable.
    """

    cell: Cell
    rank: int | None = None
    rank_lo: int | None = None
    rank_hi: int | None = None
    tied: bool = False
    best: bool = False
    decidable: bool = True
    reason: str = ""


def epsilon_band(epsilon: float | None) -> float:
    """The smallest of 1, 2, 4, 8, 16, 32, infinity with epsilon <= band (1 + 1e-6). No claim: infinity."""
    if epsilon is None or math.isnan(epsilon):
        return math.inf
    return next(band for band in BANDS if epsilon <= band * (1 + 1e-6))


def _field(cell: Cell, name: str) -> object:
    if name == "band":
        return epsilon_band(cell.get("epsilon"))
    if name == "params":
        return tuple(sorted((str(k), str(v)) for k, v in (cell.get("params") or {}).items()))
    if name == "track":
        return cell.get("track") or "face"
    if name == "via":
        return cell.get("via") or "direct"
    return cell.get(name)


def cell_key(cell: Cell) -> tuple:
    """The comparison key of DESIGN 4, fields in the order of KEY_FIELDS. Rows rank only where it agrees."""
    return tuple(_field(cell, name) for name in KEY_FIELDS)


def section_key(cell: Cell) -> tuple:
    """What a section of a board shares: lane, privacy unit, adjacency, horizon, delta, epsilon band."""
    return tuple(_field(cell, name) for name in SECTION_FIELDS)


def board_key(cell: Cell) -> tuple[str, str, str]:
    """(track, dataset, profile): one board each."""
    return str(_field(cell, "track")), str(cell["dataset"]), str(cell["profile"])


def unranked_reason(cell: Cell) -> str:
    """Why this cell can never rank, in either direction; empty when it can."""
    if cell.get("control"):
        return f"{cell['control']} control: a reference line"
    if diagnostic(cell):
        return "diagnostic: never ranked"
    if (status := status_text(cell)):
        return status
    if exceeds(cell):  # said of descriptive columns too: the worst-case reader of a transcript is one
        return f"exceeds its own claim: the interval lies beyond the ceiling {cell['ceiling']:.3f}"
    if cell.get("better") not in ("higher", "lower") or cell.get("role") == "descriptive":
        return "descriptive: never ranked"
    if cell.get("unfit"):
        return str(cell["unfit"])
    if (source := cell.get("source") or "measured") != "measured":
        return f"{source}, not measured here"
    return ""


def with_faces(cells: Iterable[Cell]) -> list[Cell]:
    """The cells, those about a shown identity marked unfit to rank where a face is found in fewer than half the frames.

    A frame without a face has no identity: steady nonsense would look like a steady face (PROTOCOL 7).
    """
    cells = list(cells)
    found = {_row(c): c["value"] for c in cells if c["metric"] == "detection_rate" and finite(c.get("value"))}
    return [{**c, "unfit": f"a face is found in {100 * found[_row(c)]:.0f} % of the frames only"}
            if c["metric"] in NEEDS_FACES and found.get(_row(c), 1.0) < FEWEST_FACES else c for c in cells]


def _row(cell: Cell) -> tuple:
    return tuple(cell.get(name) for name in ("dataset", "profile", "method", "variant"))


# ---- controls ------------------------------------------------------------------------------------------------------

def attack_state(cells: Iterable[Cell]) -> str:
    """"ok", or "attack too weak: reason", from the controls among the cells of one column.

    The attack must succeed on the positive control (top-1 >= .9 on made data, .8 on real video) and the interval of
    the negative control must hold chance. Columns that are no attack, or never rank, need no control.
    """
    cells = list(cells)
    if not any((cell.get("attack") or (cell.get("via") or "direct") != "direct") and not diagnostic(cell)
               and cell.get("role") != "descriptive"
               for cell in cells):
        return "ok"
    for sign, check in (("positive", _succeeds), ("negative", _at_chance)):
        controls = [cell for cell in cells if cell.get("control") == sign]
        name = CONTROL_NAMES[str(_field(cells[0], "track")), sign]
        if not controls:
            return f"attack too weak: its {sign} control {name} was not run"
        for cell in controls:
            fault = status_text(cell) or check(cell)
            if fault:
                return f"attack too weak: {method_name(cell)} {fault}"
    return "ok"


def _succeeds(cell: Cell) -> str:
    if cell["metric"] not in FLOORS or cell["metric"] == "psnr_recovered" and cell.get("via") != FRAME_WISE:
        return ""
    direction, made, real = LEARNED.get(str(cell.get("attack")).partition("@")[0], FLOORS[cell["metric"]])
    bound = made if str(cell["dataset"]).startswith(MADE_DATA) else real
    held = cell["value"] >= bound if direction == "higher" else cell["value"] <= bound
    return "" if held else f"reaches {cell['value']:.3f}, needed {'≥' if direction == 'higher' else '≤'} {bound:g}"


def _at_chance(cell: Cell) -> str:
    chance = CHANCE.get(cell["metric"], cell.get("chance"))
    if chance is None or cell["metric"] in NO_CHANCE:
        return ""
    if not (finite(cell.get("lo")) and finite(cell.get("hi"))):
        return "has no interval, so chance cannot be checked"
    if cell["lo"] <= chance <= cell["hi"]:
        return ""
    return f"lies at [{cell['lo']:.3f}, {cell['hi']:.3f}], away from chance {chance:.3f}"


# ---- ranks ---------------------------------------------------------------------------------------------------------

def split_by_key(cells: Iterable[Cell]) -> tuple[list[Cell], list[tuple[Cell, str]]]:
    """The largest group of rankable cells that share one key (with all unrankable ones), and the others with a reason.

    A board calls this before `rank_section`, which refuses cells of different keys.
    """
    cells = list(cells)
    counts = Counter(cell_key(cell) for cell in cells if not unranked_reason(cell))
    if len(counts) < 2:
        return cells, []
    main = max(counts, key=lambda key: (counts[key], repr(key)))
    kept, apart = [], []
    for cell in cells:
        if unranked_reason(cell) or cell_key(cell) == main:
            kept.append(cell)
        else:
            names = [f"{name} {mine!s:.12} instead of {theirs!s:.12}"
                     for name, mine, theirs in zip(KEY_FIELDS, cell_key(cell), main) if mine != theirs]
            apart.append((cell, f"not comparable: {', '.join(names)}"))
    return kept, apart


def rank_section(cells: Iterable[Cell], *, seed: int = 42) -> list[Row]:
    """Rows of one column of one section: ranked ones first, then the others, each with its reason.

    Raises AssertionError when two cells that would rank have different keys.
    """
    cells = list(cells)
    state = attack_state(cells)
    reasons = [unranked_reason(cell) or ("" if state == "ok" else state) for cell in cells]
    rankable = [cell for cell, reason in zip(cells, reasons) if not reason]
    keys = {cell_key(cell) for cell in rankable}
    if len(keys) > 1:
        differ = [name for name, values in zip(KEY_FIELDS, zip(*keys)) if len(set(values)) > 1]
        raise AssertionError(f"a rank across keys: {', '.join(map(method_name, rankable))} differ in {differ}")
    rows = _rank(rankable, seed) + [Row(cell, reason=reason) for cell, reason in zip(cells, reasons) if reason]
    return rows


def _rank(cells: Sequence[Cell], seed: int) -> list[Row]:
    """Competition ranks of unrounded values; intervals and the best group from resampling the people they share."""
    if not cells:
        return []
    values = np.array([cell["value"] for cell in cells], dtype=float)
    ranks = [int(rank) for rank in competition_ranks(values, cells[0]["better"])]
    spread = _resampled(cells, values, seed)
    rows = []
    for i, cell in enumerate(cells):
        tied = ranks.count(ranks[i]) > 1
        if spread is None:
            rows.append(Row(cell, ranks[i], tied=tied, decidable=False))
        else:
            best = spread[i].decidable and spread[i].tied_with_best
            rows.append(Row(cell, ranks[i], spread[i].lo, spread[i].hi, tied, best, spread[i].decidable))
    return sorted(rows, key=lambda row: (row.rank, method_name(row.cell)))


def _resampled(cells: Sequence[Cell], values: np.ndarray, seed: int) -> list[Rank] | None:
    """What resampling people says of each cell; None when the rows share too few people, or there is one row."""
    shared = set.intersection(*({p for p, v in (cell.get("person_values") or {}).items() if finite(v)}
                                for cell in cells))
    if len(shared) < FEWEST_PEOPLE or len(cells) < 2:
        return None
    matrix = np.array([[cell["person_values"][p] for p in sorted(shared)] for cell in cells], dtype=float)  # (M, G)
    rng = seeds.derive(seed, "rank", column_name(cells[0]), *map(method_name, cells))
    return rank_table(matrix, cells[0]["better"], rng, estimates=values)


def pareto_front(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Which (leakage, utility) points no other dominates: less leakage, more utility. Equal points both stay.

    NaN and infinite points are never on the front and dominate nothing.
    """
    def dominated(a: tuple[float, float]) -> bool:
        return any(finite(b[0]) and finite(b[1]) and b[0] <= a[0] and b[1] >= a[1] and tuple(b) != tuple(a)
                   for b in points)
    return [finite(p[0]) and finite(p[1]) and not dominated(p) for p in points]
