"""The pictures go out as they are: what any detector reads in them."""

from __future__ import annotations

import numpy as np

from bench import PluginError, method
from bench.reports import ClearMethod


@method("original_images")
class OriginalImages(ClearMethod):
    """Nothing is hidden: the frames themselves are published, and whoever has them runs a detector. Its reports are
    what the vision experts read in every chunk of the rendered video, averaged over the window, without clipping and
    without noise; their errors are the detector's alone. No formal claim. It is measured on rendered video only
    (`crossing_video`, 20 test episodes, not 200) or on videos of your own, and refuses exact fields, which would be
    another row. The event attacks judge the readings; a picture shows more than these, so that their AUC is a lower
    bound. Source: BR-MoE, row original images; the detector is ours (frozen MOG2 and components).
    """

    control = "positive"

    def __init__(self):
        super().__init__()

    def render(self, transcripts, public, decoding) -> np.ndarray:
        """(B, T, 12). Raises PluginError where the fields were not read in pictures."""
        if not public.get("from_video"):
            raise PluginError("original_images publishes pictures, and this dataset holds exact fields.",
                              "Its numbers would be another row, without any detector's errors.",
                              "Run it on crossing_video or trafficfolder: `veilbench run traffic-video`.")
        return np.stack([self.exact(one) for one in transcripts])
