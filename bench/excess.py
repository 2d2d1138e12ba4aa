"""What a change of a clip's inputs takes away: of what a network read above chance, how much, over the same people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from bench import seeds
from bench.display import DASH, Cell, drawn, finite, method_name, number
from bench.paired import difference
from bench.ranking import board_key
from bench.stats import Interval, paired_differences, sign_flip_p

CHANGED = "intervention"


class Loss(NamedTuple):
    """lost: before - after.  share: of what lay above chance, 1 = all of it.  p_half: two-sided, of a share of 1/2."""

    lost: Interval
    share: float
    p_half: float


def loss(before: Cell, after: Cell) -> Loss | None:
    """The loss from the ordinary release to the changed one; None unless the first lies above chance as a whole.

    p_half is the exact sign-flip test over people of what each lost less half of what they were read above chance.
    """
    numbers: list[Any] = [before.get("chance"), before.get("lo"), before.get("value"), after.get("value")]
    if not all(map(finite, numbers)) or numbers[1] <= numbers[0]:
        return None
    chance = numbers[0]
    was, now = before["person_values"], after["person_values"]
    lost = difference(before["value"], after["value"], was, now)
    half = {person: (value + chance) / 2 for person, value in was.items()}  # where half of it would be gone
    apart = paired_differences(half, now)
    if not len(apart) or not finite(lost.value):
        return None
    p_half = sign_flip_p(apart.tolist(), seeds.derive(0, "half of an excess"))
    return Loss(lost, lost.value / (before["value"] - chance), p_half)


def with_losses(cells: Iterable[Cell]) -> list[Cell]:
    """The same cells; those of changed inputs say in `loss` what became of the ordinary number beside them."""
    known = list(cells)
    return [{**cell, "loss": words} if (words := loss_words(cell, known)) else cell for cell in known]


def before_of(after: Cell, cells: Iterable[Cell]) -> Cell | None:
    """The cell of the ordinary release that the same network read: `fer@x3d`, or `top1` of the attack of that name."""
    name, evaluator = after["metric"], after.get("evaluator")
    for cell in cells:
        same = (cell["metric"], cell.get("evaluator"), cell.get("attack")) == (name, evaluator, None) or \
            (cell["metric"], cell.get("attack")) == ("top1", name)
        if same and not cell.get("params") and (cell.get("via") or "direct") == "direct" and \
                cell.get("decoding") == after.get("decoding") and method_name(cell) == method_name(after) and \
                board_key(cell) == board_key(after):
            return cell
    return None


def loss_words(after: Cell, cells: Iterable[Cell]) -> str:
    """`lost 13.4 [8.5, 18.4] points, 82 % of what was above chance; more than half of it: p = 0.003`.

    Empty for cells of ordinary inputs, and without the ordinary number.
    """
    if CHANGED not in (after.get("params") or {}) or not finite(after.get("value")):
        return ""
    if (before := before_of(after, cells)) is None:
        return ""
    if (found := loss(before, after)) is None:
        return "before: not above chance"
    of = drawn({**after, "value": found.lost.value, "lo": found.lost.lo, "hi": found.lost.hi})
    side = "more" if found.share > 0.5 else "less"
    p = f"p = {found.p_half:.2g}" if finite(found.p_half) else f"p {DASH}"
    return f"lost {of['value']} {of['interval']} points, {number(found.share, 0, 100)} % of what was above chance; " \
           f"{side} than half of it: {p}"
