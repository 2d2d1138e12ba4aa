"""TG: how alike the identity of all released frames of a video is."""

from __future__ import annotations

import numpy as np

from bench import Column, Video, metric
from bench.nets.identity import IdentityMetric, all_cosines
from bench.nets.pairs import without_repeats


@metric("tg")
class GlobalIdentity(IdentityMetric):
    """Cosine of the identity embeddings of all pairs of released frames of a video, near and far, clip borders
    included. Every unpadded frame is embedded as it lies on the canvas. `@synth`: a ResNet trained on made public
    people, a stand-in; `@arcface`: ArcFace with its published weights; `@faceid`: dlib's face network from an
    optional package. Higher is steadier, 1 at most. Unlike `t_id` it sees slow drift and a switch of identity; like
    it, it gives 1 to any frozen or flat video, and a steady false face can be linked from clip to clip.
    Source: TG-ID of STIT, Tzaban et al. 2022, arXiv 2201.08361, without the ratio to the source.
    """

    columns = (
        Column(id="tg", unit="", better="higher", low=-1, high=1, role="utility",
               title="Identity kept over the whole video", source="STIT, arXiv 2201.08361"),
    )
    variants = {"synth": {}, "arcface": {"network": "arcface"}, "faceid": {"network": "faceid"}}
    headline = "synth"

    def values(self, original: Video, released: Video) -> dict[str, np.ndarray]:
        distinct, which = without_repeats(released.frames)
        cosines = all_cosines(self.embed(distinct)[which])
        return {"tg": cosines if len(cosines) else np.full(1, np.nan)}
