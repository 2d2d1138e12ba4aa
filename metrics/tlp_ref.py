"""tLPIPS, second reading: whether the released video changes as much as the original from frame to frame."""

from __future__ import annotations

import numpy as np

from bench import Column, Video, metric
from bench.nets.pairs import apart
from bench.nets.perceptual import PerceptualMetric

TIMES = 100.0  # as tLP is printed
HIGH = 10.0 * TIMES


@metric("tlp_ref")
class TLPReference(PerceptualMetric):
    """100 |d(b_t, b_t+1) - d(g_t, g_t+1)|: how far the perceptual change between adjacent released frames g is from
    that between the same frames b of the original. The distance d is that of `tlpips_adj`: `@synth` a ResNet trained
    on made public people, a stand-in; `@alex` LPIPS 0.1 on AlexNet with its published weights. A value is a pair
    inside a 16-frame clip; pairs across the border of two clips have their own column; no frame is cut off. Lower is
    better, 0 is the same amount of change: a frozen release of a moving face does not get it, and neither does
    flicker. Source: tLP of TecoGAN, Chu et al. 2020, arXiv 1811.09393 (evaluation code).
    """

    columns = (
        Column(id="tlp_ref", unit="1", better="lower", low=0, high=HIGH, role="utility",
               title="Perceptual change unlike the original's, x 100", source="TecoGAN, arXiv 1811.09393"),
        Column(id="tlp_ref_boundary", unit="1", better="none", low=0, high=HIGH,
               title="Perceptual change unlike the original's across clip borders, x 100",
               source="TecoGAN, arXiv 1811.09393"),
    )
    variants = {"synth": {}, "alex": {"network": "alex"}}
    headline = "synth"

    def values(self, original: Video, released: Video) -> dict[str, np.ndarray]:
        wanted = found = self.distance.adjacent(original.frames)
        if not np.array_equal(original.frames, released.frames):
            found = self.distance.adjacent(released.frames)
        inside, boundary = apart(TIMES * np.abs(wanted - found))
        return {"tlp_ref": inside, "tlp_ref_boundary": boundary}
