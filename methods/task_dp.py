"""Everything on the expert that the slot asks for."""

from __future__ import annotations

import numpy as np

from bench import method
from bench.reports import ReportMethod, View


@method("task_dp")
class TaskDP(ReportMethod):
    """Spends a tenth of the episode's budget in every slot, all of it on the expert that the public request names: at
    a budget of 4, 0.4 a slot. The other experts show their last release. With `max` every window may spend the whole
    budget. Protected are events of at most K chunks of 2 s (K = 2: at most 2 s), never a whole stay. Source: BR-MoE,
    baseline Task-DP.
    """

    variants = {
        "max": {"accountant": "max"}, "box": {"box": True}, "max-box": {"accountant": "max", "box": True},
        "noreuse": {"reuse": False}, "eps2": {"budget": "2"}, "eps8": {"budget": "8"}, "k5": {"changed": 5},
        "k10": {"changed": 10}, "hmm": {"filtered": True}, "max-hmm": {"accountant": "max", "filtered": True},
    }

    def spends(self, view: View) -> np.ndarray:
        out = np.zeros((len(view.asked), 4), dtype=np.int64)
        out[np.arange(len(out)), view.asked] = self.allowance(view.t)
        return out
