"""What a row of the traffic board is worth beside another row over the same episodes: paired differences of cells.

Counts are compared with `public_median`, which releases nothing: the line to beat. Utility is compared with the fixed
schedules that spend the same budget, inside one section only, since more epsilon buys more utility.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.display import Cell, finite, method_name, status_text
from bench.paired import difference
from bench.ranking import section_key
from bench.stats import Interval

LINE = "public_median"
REFERENCES = {"mae_vehicle": (LINE,), "mae_pedestrian": (LINE,), "utility": ("task_dp", "hand_rule")}
SLOTS = {"mae_vehicle": "all", "mae_pedestrian": "all", "utility": "weighted"}  # of which number


@dataclass(frozen=True)
class Against:
    """A number minus that of `reference`, paired over episodes. better: the direction of the column."""

    reference: str
    found: Interval
    better: str

    @property
    def verdict(self) -> str:
        """"better", "worse", or "" where the interval holds 0."""
        if self.found.lo <= 0 <= self.found.hi or self.found.kind == "none":
            return ""
        return "better" if (self.found.lo > 0) == (self.better == "higher") else "worse"


def against(cell: Cell, others: Iterable[Cell]) -> list[Against]:
    """The differences of one cell from its references among the cells of its board; empty for any other column."""
    if not _comparable(cell):
        return []
    found = []
    for name in REFERENCES[cell["metric"]]:
        other = next((o for o in others if method_name(o) == name and _same_column(cell, o) and _comparable(o)), None)
        if other is None or method_name(cell) == name or (name != LINE and section_key(cell) != section_key(other)):
            continue
        made = difference(cell["value"], other["value"], cell["person_values"], other["person_values"])
        found.append(Against(name, made, cell["better"]))
    return found


def _comparable(cell: Cell) -> bool:
    return cell["metric"] in REFERENCES and (cell.get("params") or {}).get("slots") == SLOTS[cell["metric"]] \
        and finite(cell.get("value")) and bool(cell.get("person_values")) and status_text(cell) in ("", "stale")


def _same_column(a: Cell, b: Cell) -> bool:
    return all(a.get(k) == b.get(k) for k in ("track", "dataset", "split", "profile", "metric", "params", "draws"))


def with_differences(cells: Iterable[Cell]) -> list[Cell]:
    """The cells; those of the traffic track that can be compared carry `against`, a list of Against."""
    cells = list(cells)
    others = [c for c in cells if c.get("track") == "traffic" and c.get("metric") in REFERENCES]
    return [{**c, "against": against(c, others)} if c.get("track") == "traffic" else c for c in cells]


def difference_cells(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Each difference as a cell of its own, metric `utility_difference` and so on; descriptive, never ranked."""
    made = []
    for cell in with_differences(cells):
        for one in cell.get("against") or ():
            lo, hi = (x if finite(x) else None for x in (one.found.lo, one.found.hi))
            made.append({**cell, "metric": f"{cell['metric']}_difference", "value": one.found.value, "lo": lo, "hi": hi,
                         "params": {"against": one.reference}, "role": "descriptive", "n": one.found.people,
                         "people": one.found.people, "chance": None, "ceiling": None, "person_values": {},
                         "title": f"{cell['title']}: minus that of {one.reference}, same episodes"})
    return made
