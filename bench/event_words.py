"""What the board says of claims about events in a traffic stream: headings, both prices of a row, its comparisons."""

from __future__ import annotations

from collections.abc import Sequence

from bench.against import Against
from bench.display import Cell, drawn, epsilon_text, finite, method_name

PLACES = {"per_window": "in every window", "total": "in all"}  # where the K changed chunks of a claim may lie
PRICES = {"per_window": "The price is the sum over all windows; beside it stands max, that of K chunks in all.",
          "total": "The price is max, that of the dearest window, since K chunks in all use up the share of one window "
                   "and no more; beside it stands sum, that of K chunks in every window."}


def event_heading(cell: Cell) -> tuple[str, str]:
    """Title and text of a section of claims about K changed chunks; K stands at the end of the horizon, `, K = 2`."""
    place = PLACES[cell["adjacency"]]
    windows, _, changed = str(cell.get("horizon") or "").partition(", K = ")
    said = [f"Two streams that differ in that many chunks of 2 s {place}, over {windows or 'an episode'}, give the "
            "same reports about equally often.", PRICES[cell["adjacency"]]]
    if changed.isdigit():
        said.append(f"An event of at most {2 * (int(changed) - 1)} s touches no more than {changed} chunks of 2 s.")
    said.append("Whoever is in view for longer is not covered: see whole_stay.")
    return f"At most {f'K = {changed}' if changed else 'K'} changed chunks {place}", " ".join(said)


def accountants(cells: Sequence[Cell], name: str) -> str:
    """What a row about events costs by both accountants; empty for any other row."""
    found = next((c["details"] for c in cells if method_name(c) == name
                  and finite((c.get("details") or {}).get("epsilon_sum"))), None)
    if found is None:
        return ""
    return f"ε: sum {epsilon_text(found['epsilon_sum'])}, max {epsilon_text(found['epsilon_max'])}"


def beside(cell: Cell, one: Against) -> str:
    """`better than public_median by 0.51 [0.40, 0.62]`: a paired difference over the same episodes."""
    sign = -1 if one.verdict and one.found.value < 0 else 1
    lo, hi = sorted((sign * one.found.lo, sign * one.found.hi))
    view = drawn({**cell, "value": sign * one.found.value, "lo": lo, "hi": hi})
    words = f"{one.verdict} than {one.reference} by" if one.verdict else f"not told apart from {one.reference}:"
    return f"{words} {view['value']} {view['interval']}".strip()
