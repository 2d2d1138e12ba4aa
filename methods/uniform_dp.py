"""The same spend in every slot, shared by all experts."""

from __future__ import annotations

import numpy as np

from bench import method
from bench.reports import ReportMethod, View


@method("uniform_dp")
class UniformDP(ReportMethod):
    """Spends a tenth of the episode's budget in every slot, a quarter of it on each expert: at a budget of 4, 0.4 a
    slot and 0.1 an expert. With `max` the budget counts for each window by itself, since an event of K chunks in all
    cannot touch more than K chunks of it: 4 a slot, 1 an expert, ten times less noise for a narrower promise.
    Protected are events of at most K chunks of 2 s (K = 2: at most 2 s), never a whole stay. Source: BR-MoE, baseline
    Uniform-DP; Laplace noise on whole numbers, drawn by the harness.
    """

    variants = {
        "max": {"accountant": "max"}, "box": {"box": True}, "max-box": {"accountant": "max", "box": True},
        "eps2": {"budget": "2"}, "eps8": {"budget": "8"}, "k5": {"changed": 5}, "k10": {"changed": 10},
    }

    def spends(self, view: View) -> np.ndarray:
        return np.full((len(view.asked), 4), self.allowance(view.t) // 4)
