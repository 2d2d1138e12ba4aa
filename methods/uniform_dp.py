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
    Uniform-DP; Laplace noise on whole numbers, drawn by the harness. `hmm`: shows posterior medians by public
    statistics; `counts`: only the two experts that count, half of the spend each.
    """

    variants = {
        "max": {"accountant": "max"}, "box": {"box": True}, "max-box": {"accountant": "max", "box": True},
        "eps2": {"budget": "2"}, "eps8": {"budget": "8"}, "k5": {"changed": 5}, "k10": {"changed": 10},
        "hmm": {"filtered": True}, "max-hmm": {"accountant": "max", "filtered": True},
        "max-counts-box-hmm": {"accountant": "max", "counts_only": True, "box": True, "filtered": True,
                               "caps": (15, 6)},
    }

    def __init__(self, *, accountant: str = "sum", budget: str = "4", changed: int = 2, box: bool = False,
                 filtered: bool = False, counts_only: bool = False, caps: tuple[int, int] = (20, 6)):
        super().__init__(accountant=accountant, budget=budget, changed=changed, box=box, filtered=filtered, caps=caps)
        self.shares = (2, 2, 0, 0) if counts_only else (1, 1, 1, 1)  # quarters

    def spends(self, view: View) -> np.ndarray:
        return np.repeat(np.multiply(self.shares, self.allowance(view.t) // 4)[None], len(view.asked), axis=0)
