"""T-ID: how alike the identity of adjacent released frames is."""

from __future__ import annotations

import numpy as np

from bench import Column, Video, metric
from bench.nets.identity import IdentityMetric, adjacent_cosines
from bench.nets.pairs import apart, without_repeats


@metric("t_id")
class TemporalIdentity(IdentityMetric):
    """Cosine of the identity embeddings of adjacent released frames. Every unpadded frame is embedded as it lies on
    the canvas; a value is a pair inside a 16-frame clip, and pairs across the border of two clips have their own
    column. `@synth`: a ResNet trained on made public people, a stand-in; `@arcface`: ArcFace with its published
    weights; `@faceid`: dlib's face network from an optional package. Higher is steadier, 1 at most.

    It is no privacy: it says that the shown identity holds still, whoever that is. It is blind to slow drift and to
    one switch (`tg` sees both), and any frozen or flat video gets 1: read it beside the detection rate.
    Source: TADP 4.1.6, which gives no formula; TL-ID of STIT, arXiv 2201.08361, without the ratio to the source.
    """

    columns = (
        Column(id="t_id", unit="", better="higher", low=-1, high=1, role="utility",
               title="Identity kept between adjacent frames", source="TADP 4.1.6"),
        Column(id="t_id_boundary", unit="", better="none", low=-1, high=1,
               title="Identity kept across clip borders", source="TADP 4.1.6"),
    )
    variants = {"synth": {}, "arcface": {"network": "arcface"}, "faceid": {"network": "faceid"}}
    headline = "synth"

    def values(self, original: Video, released: Video) -> dict[str, np.ndarray]:
        distinct, which = without_repeats(released.frames)
        inside, boundary = apart(adjacent_cosines(self.embed(distinct)[which]))
        return {"t_id": inside, "t_id_boundary": boundary}
