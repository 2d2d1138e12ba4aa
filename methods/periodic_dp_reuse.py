"""A larger spend every second slot, the last report between."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from bench import method
from bench.reports import ReportMethod, View


@method("periodic_dp_reuse")
class PeriodicDPReuse(ReportMethod):
    """Spends a fifth of the episode's budget in every second slot, a quarter of it on each expert (at a budget of 4:
    0.8 and 0.2), and shows the last report between. `turn`: one expert after the other, so that each has all of it
    every eighth slot. With `max` every window may spend the whole budget. Protected are events of at most K chunks of
    2 s (K = 2: at most 2 s), never a whole stay. Source: BR-MoE, baseline Periodic-DP + reuse; which slots come first
    and how the experts share are ours.
    """

    share = Fraction(1, 5)
    variants = {"max": {"accountant": "max"}, "turn": {"turn": True}, "max-turn": {"accountant": "max", "turn": True}}

    def __init__(self, *, accountant: str = "sum", budget: str = "4", changed: int = 2, turn: bool = False):
        super().__init__(accountant=accountant, budget=budget, changed=changed)
        self.turn = turn

    def limits(self):
        return tuple(most if t % 2 == 0 else 0 * most for t, most in enumerate(super().limits()))

    def spends(self, view: View) -> np.ndarray:
        whole = self.allowance(view.t)
        out = np.full((len(view.asked), 4), 0 if self.turn else whole // 4)
        if self.turn:
            out[:, view.t // 2 % 4] = whole
        return out
