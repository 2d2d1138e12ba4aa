"""Exact pedestrian activity in words, no noise."""

from __future__ import annotations

import numpy as np

from bench import method
from bench.reports import ClearMethod
from bench.traffic import EXPERTS


@method("vtpm_style")
class VTPMStyle(ClearMethod):
    """Removes all pictures and reports, for every window, the exact mean numbers of people walking and waiting, the
    sign and the weather; vehicles are not spoken of. Nothing is noised, so whoever knows the rest of the window sees
    whether one person was there: no formal claim, and the positive control of the event attacks. In the manner of
    VTPM (text reports of pedestrian activity); its detector and language model are not rebuilt, the reports are made
    from exact fields by the template that all methods share. Source: VTPM, as BR-MoE cites it.
    """

    control = "positive"

    def __init__(self):
        super().__init__(EXPERTS[1:])  # all but the vehicles

    def render(self, transcripts, public, decoding) -> np.ndarray:
        """(B, T, 12), vehicles missing."""
        return np.stack([self.exact(one) for one in transcripts])
