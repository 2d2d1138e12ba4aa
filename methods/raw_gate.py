"""A controller that looks at the stream before it decides: shown to fail."""

from __future__ import annotations

import numpy as np

from bench import Claim, method
from bench.reports import ReportMethod, View
from bench.traffic import EXPERTS, columns

FAR = 0.1  # of the cap: then the shown value is out of date


@method("raw_gate")
class RawGate(ReportMethod):
    """Spends a fifth of the episode's budget on the requested expert whenever the exact window lies far from what is
    shown, and nothing else, so that no budget is lost on what has not changed. Useful and wrong: when something is
    released tells what the stream holds, and the noise that is added later does not undo that. Its claim is only
    declared; the harness replays its choices from released values alone, finds others, and marks the release
    `replayed = no`: valid = no. Never use it. Source: BR-MoE, ablation raw-feature gate (unsafe); the gate is ours.
    """

    lane = "declared"
    claim = Claim(unit="event", adjacency="per_window", horizon="600 s", epsilon=4.0)
    share = 2 * ReportMethod.share

    def __init__(self):
        super().__init__()
        self.raw: np.ndarray | None = None  # (B, 12), exact means of the window

    def plan(self, t, past, memory, public):
        raw = public.get("raw")
        self.raw = None if raw is None else np.asarray(raw, dtype=np.float64)[:, t]
        return super().plan(t, past, memory, public)

    def spends(self, view: View) -> np.ndarray:
        out = np.zeros((len(view.asked), 4), dtype=np.int64)
        if self.raw is not None:
            shown = np.where(np.isnan(view.last), self.prior, view.last)
            for m, expert in enumerate(EXPERTS):
                part = columns(expert.name)
                far = np.abs(shown[:, part] - self.raw[:, part]).max(axis=1) > FAR * expert.cap
                if expert.label:
                    far = shown[:, part].argmax(axis=1) != self.raw[:, part].argmax(axis=1)
                out[:, m] = np.where((view.asked == m) & far, self.allowance(view.t), 0)
        return out
