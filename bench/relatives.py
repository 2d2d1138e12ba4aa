"""What a method of the face track changes: its numbers minus those of the original and of its own other settings.

Outcomes are stated so: paired over the same people, with an interval. A difference says what was measured, whatever the
two rows claim; it ranks nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bench.display import Cell, column_name, diagnostic, drawn, finite, method_name, status_text
from bench.paired import difference
from bench.ranking import board_key

SAME = ("split", "attack", "metric", "evaluator", "via", "decoding", "params", "digest", "seeds")
ROLES = ("privacy", "utility", "descriptive")  # in the order of a board


def relatives(cells: Iterable[Cell], name: str) -> list[dict[str, Any]]:
    """A table a board for the page of one method: {dataset, profile, against, rows}.

    against: names of the original (the positive control) and of the method's other settings.  rows: (column name,
    title, direction, a text for each of `against`), only of numbers that both have, and of the original none that says
    how far a release lies from it. No table without such a pair.
    """
    shown, groups = [], dict[tuple[str, str, str], list[Cell]]()
    for cell in cells:
        if not diagnostic(cell):
            groups.setdefault(board_key(cell), []).append(cell)
    for (track, dataset, profile), group in groups.items():
        own = sorted((c for c in group if method_name(c) == name and _counts(c)), key=lambda c: ROLES.index(c["role"]))
        if track == "traffic" or not own or own[0].get("control"):
            continue
        others: dict[str, list[Cell]] = {}
        for cell in filter(_counts, group):
            if cell.get("control") == "positive" or (cell["method"] == own[0]["method"] and method_name(cell) != name):
                others.setdefault(method_name(cell), []).append(cell)
        names = sorted(others, key=lambda other: (others[other][0].get("control") != "positive", other))
        lines = [(cell, [_apart(cell, others[other]) for other in names]) for cell in own]
        kept = [i for i in range(len(names)) if any(texts[i] for _, texts in lines)]
        rows = [(column_name(cell), cell["title"], cell["better"], [texts[i] for i in kept]) for cell, texts in lines
                if any(texts)]
        if rows:
            shown.append({"dataset": dataset, "profile": profile, "against": [names[i] for i in kept], "rows": rows})
    return shown


def _counts(cell: Cell) -> bool:
    return finite(cell.get("value")) and bool(cell.get("person_values")) and cell.get("role") in ROLES and \
        status_text(cell) in ("", "stale")


def _apart(cell: Cell, others: Sequence[Cell]) -> str:
    """`−15.2 % [−21.0, −9.3]`: this minus the other; empty where the other has no such number."""
    other = next((o for o in others if all(o.get(k) == cell.get(k) for k in SAME)), None)
    if other is None or (other.get("control") and cell["role"] == "descriptive"):  # how far it lies from itself
        return ""
    found = difference(cell["value"], other["value"], cell["person_values"], other["person_values"])
    if not finite(found.value):
        return ""
    text = drawn({**cell, "value": found.value, "lo": found.lo, "hi": found.hi})
    unit = text["suffix"].replace("%", "points")
    return f"{'+' if found.value > 0 else ''}{text['value']}{unit} {text['interval']}".strip()
