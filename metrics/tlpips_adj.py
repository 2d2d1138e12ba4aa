"""tLPIPS, first reading: how different adjacent released frames look."""

from __future__ import annotations

import numpy as np

from bench import Column, Video, metric
from bench.nets.pairs import apart
from bench.nets.perceptual import PerceptualMetric

HIGH = 10.0  # five stages of at most 2


@metric("tlpips_adj")
class TLPIPSAdjacent(PerceptualMetric):
    """Perceptual distance d(g_t, g_t+1) of adjacent released frames: unit-normalised feature maps of five stages,
    squared differences added over channels and stages, averaged over positions. `@synth`: a ResNet trained on made
    public people, all channels alike, a stand-in; `@alex`: LPIPS 0.1 on AlexNet with its published weights. A value
    is a pair inside a 16-frame clip; pairs across the border of two clips have their own column. Lower is smoother,
    but a frozen video gets 0: `tlp_ref` and `motion` see that. The row `original` is the floor of a real video.
    Values of two networks or canvas sizes do not compare. Source: TADP 4.1.6; LPIPS: Zhang et al. 2018.
    """

    columns = (
        Column(id="tlpips_adj", unit="1", better="lower", low=0, high=HIGH, role="utility",
               title="Perceptual change between adjacent frames", source="TADP 4.1.6"),
        Column(id="tlpips_adj_boundary", unit="1", better="none", low=0, high=HIGH,
               title="Perceptual change across clip borders", source="TADP 4.1.6"),
    )
    variants = {"synth": {}, "alex": {"network": "alex"}}
    headline = "synth"

    def values(self, original: Video, released: Video) -> dict[str, np.ndarray]:
        inside, boundary = apart(self.distance.adjacent(released.frames))
        return {"tlpips_adj": inside, "tlpips_adj_boundary": boundary}
