"""What the board says of claims about events in a traffic stream: headings, both prices of a row, its comparisons."""

from __future__ import annotations

from collections.abc import Sequence

from bench.against import Against
from bench.display import Cell, drawn, epsilon_text, finite, method_name

PLACES = {"per_window": "in every window", "total": "in all"}  # where the K changed chunks of a claim may lie
PRICES = {"per_window": "The price is the sum over all windows.",
          "total": "The price is that of the dearest window: K chunks in all use up one window's share and no more."}


def event_heading(cell: Cell) -> tuple[str, str]:
    """Title and text of a section of claims about K changed chunks; K stands at the end of the horizon, `, K = 2`."""
    place = PLACES[cell["adjacency"]]
    windows, _, changed = str(cell.get("horizon") or "").partition(", K = ")
    short = f"An event of at most {2 * (int(changed) - 1)} s touches no more than {changed} chunks of 2 s. " \
        if changed.isdigit() else ""
    return (f"At most {f'K = {changed}' if changed else 'K'} changed chunks {place}",
            f"Two streams that differ in that many chunks of 2 s {place}, over {windows or 'an episode'}, give the "
            f"same reports about equally often. {PRICES[cell['adjacency']]} {short}Whoever is in view for longer is not "
            "covered: see whole_stay.")


def accountants(cells: Sequence[Cell], name: str) -> str:
    """What a row about events costs by both accountants; empty for any other row."""
    found = next((c["details"] for c in cells if method_name(c) == name
                  and finite((c.get("details") or {}).get("epsilon_sum"))), None)
    if found is None:
        return ""
    return f"ε = {epsilon_text(found['epsilon_sum'])} for K chunks of every window (sum), " \
           f"{epsilon_text(found['epsilon_max'])} for K in all (max)"


def beside(cell: Cell, one: Against) -> str:
    """`better than public_median by 0.51 [0.40, 0.62]`: a paired difference over the same episodes."""
    sign = -1 if one.verdict and one.found.value < 0 else 1
    lo, hi = sorted((sign * one.found.lo, sign * one.found.hi))
    view = drawn({**cell, "value": sign * one.found.value, "lo": lo, "hi": hi})
    words = f"{one.verdict} than {one.reference} by" if one.verdict else f"not told apart from {one.reference}:"
    return f"{words} {view['value']} {view['interval']}".strip()
