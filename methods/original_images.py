"""The pictures go out as they are: what any detector reads in them."""

from __future__ import annotations

import numpy as np

from bench import Branch, FullClaim, PluginError, method
from bench.reports import ReportMethod, View
from bench.traffic import CHUNK_STEPS, EXPERTS, WINDOW_CHUNKS

EXACT = 2.0**20  # a box so large that nothing is clipped; its step is one


@method("original_images")
class OriginalImages(ReportMethod):
    """Nothing is hidden: the frames themselves are published, and whoever has them runs a detector. Its reports are
    what the vision experts read in every chunk of the rendered video, averaged over the window, without clipping and
    without noise; their errors are the detector's alone. No formal claim. It is measured on rendered video only
    (`crossing_video`, 20 test episodes, not 200) or on videos of your own, and refuses exact fields, which would be
    another row. The event attacks judge the readings; a picture shows more than these, so that their AUC is a lower
    bound. Source: BR-MoE, row original images; the detector is ours (frozen MOG2 and components).
    """

    lane = "none"
    control = "positive"
    fits = False

    def __init__(self):
        super().__init__()
        self.branches = tuple(Branch(e.name, dim=e.dim, norm="box", clip=EXACT, noise=None) for e in EXPERTS)
        self.terms = FullClaim(unit="none")

    def load(self, state):
        """Nothing is fitted."""

    def spends(self, view: View) -> np.ndarray:
        return np.zeros((len(view.asked), 4), dtype=np.int64)

    def render(self, transcripts, public, decoding) -> np.ndarray:
        """(B, T, 12). Raises PluginError where the fields were not read in pictures."""
        if not public.get("from_video"):
            raise PluginError("original_images publishes pictures, and this dataset holds exact fields.",
                              "Its numbers would be another row, without any detector's errors.",
                              "Run it on crossing_video or trafficfolder: `veilbench run traffic-video`.")
        steps = np.stack([np.concatenate([part[e.name] for e in EXPERTS], axis=1) for part in transcripts])
        return steps / (WINDOW_CHUNKS * CHUNK_STEPS)
