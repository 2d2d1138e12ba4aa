"""Spend by the priority of the request; be silent about what is known."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from bench import method
from bench.reports import ReportMethod, View
from bench.traffic import EXPERTS, WINDOW_CHUNKS, columns, windows

SURE = 0.9  # of a state: then the expert is not asked again
_LEAST = 0.4  # epsilon of the smallest spend, by which a past release is judged


@method("hand_rule")
class HandRule(ReportMethod):
    """Five lines instead of a learned controller: nothing in idle slots, a tenth of the budget on the asked expert at
    priority 1, a fifth at priority 3 (at a budget of 4: 0.4 and 0.8), and nothing when sign or weather were released
    before and one state has a posterior above 0.9. The posterior takes the last noisy shares as Laplace around the
    states and lets them fade at the rate at which states change in public episodes. When the budget is spent, the
    filter keeps silent. Protected are events of at most K chunks of 2 s (K = 2: at most 2 s), never a whole stay.
    Source: ours, the line that a learned controller must reach.
    """

    share = Fraction(1, 5)
    variants = {"box": {"box": True}, "eps2": {"budget": "2"}, "eps8": {"budget": "8"}, "k5": {"changed": 5},
                "k10": {"changed": 10}, "hmm": {"filtered": True}}

    def __init__(self, *, budget: str = "4", changed: int = 2, box: bool = False, filtered: bool = False):
        super().__init__(budget=budget, changed=changed, box=box, filtered=filtered)
        self.scale = 2.0 * changed / WINDOW_CHUNKS / _LEAST  # Laplace scale of a share, at the smallest spend
        self.stay = np.zeros(len(EXPERTS))

    def fit(self, data, assets, ctx):
        super().fit(data, assets, ctx)
        shown = windows(data.steps)  # (N, T, 12)
        for m, expert in enumerate(EXPERTS):
            if expert.label:
                state = shown[..., columns(expert.name)].argmax(axis=2)  # (N, T)
                self.stay[m] = (state[:, 1:] == state[:, :-1]).mean()

    def state(self):
        return {**super().state(), "stay": self.stay}

    def load(self, state):
        super().load(state)
        self.stay = np.asarray(state["stay"], dtype=np.float64)

    def spends(self, view: View) -> np.ndarray:
        out = np.zeros((len(view.asked), 4), dtype=np.int64)
        most = self.allowance(view.t)
        spend = np.select([view.priority == 1, view.priority >= 3], [most // 2, most], 0)
        out[np.arange(len(out)), view.asked] = np.where(self._known(view), 0, spend)
        return out

    def _known(self, view: View) -> np.ndarray:
        """Is the state of the asked expert all but certain? bool (B,)."""
        sure = np.zeros((len(view.asked), len(EXPERTS)), dtype=bool)
        for m, expert in enumerate(EXPERTS):
            if expert.label:
                shares = view.last[:, columns(expert.name)]  # (B, 4)
                far = np.abs(shares[:, None] - np.eye(expert.dim)).sum(axis=2)  # (B, 4), l1 to each pure state
                weight = np.exp(-(far - far.min(axis=1, keepdims=True)) / self.scale)  # NaN where nothing was released
                best = np.nan_to_num(weight.max(axis=1) / weight.sum(axis=1))
                kept = self.stay[m] ** view.age[:, m]
                sure[:, m] = best * kept + (1 - kept) / expert.dim > SURE
        return sure[np.arange(len(sure)), view.asked]
