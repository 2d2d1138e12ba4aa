"""Exact pedestrian activity in words, no noise."""

from __future__ import annotations

import numpy as np

from bench import Branch, FullClaim, method
from bench.reports import ReportMethod, View
from bench.traffic import CHUNK_STEPS, COMPONENTS, EXPERTS, WINDOW_CHUNKS

EXACT = 2.0**20  # a box so large that nothing is clipped; its step is one
SPOKEN = EXPERTS[1:]  # all but the vehicles


@method("vtpm_style")
class VTPMStyle(ReportMethod):
    """Removes all pictures and reports, for every window, the exact mean numbers of people walking and waiting, the
    sign and the weather; vehicles are not spoken of. Nothing is noised, so whoever knows the rest of the window sees
    whether one person was there: no formal claim, and the positive control of the event attacks. In the manner of
    VTPM (text reports of pedestrian activity); its detector and language model are not rebuilt, the reports are made
    from exact fields by the template that all methods share. Source: VTPM, as BR-MoE cites it.
    """

    lane = "none"
    control = "positive"
    fits = False

    def __init__(self):
        super().__init__()
        self.branches = tuple(Branch(e.name, dim=e.dim, norm="box", clip=EXACT, noise=None) for e in SPOKEN)
        self.terms = FullClaim(unit="none")

    def load(self, state):
        """Nothing is fitted."""

    def spends(self, view: View) -> np.ndarray:
        return np.zeros((len(view.asked), 4), dtype=np.int64)

    def render(self, transcripts, public, decoding) -> np.ndarray:
        """(B, T, 12), vehicles missing."""
        steps = np.stack([np.concatenate([part[e.name] for e in SPOKEN], axis=1) for part in transcripts])
        missing = np.full((*steps.shape[:2], len(COMPONENTS) - steps.shape[2]), np.nan)
        return np.concatenate([missing, steps / (WINDOW_CHUNKS * CHUNK_STEPS)], axis=2)
