"""What the distances of sets in identity space share: how a clip becomes one embedding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bench.measures import SetMetric
from bench.nets.features import Embedder
from bench.nets.identity import identity_embedder
from bench.sampling import spread
from bench.types import CLIP_FRAMES, Context, Video


class IdentitySpace(SetMetric):
    """A SetMetric that sees a clip as the mean of the unit embeddings of its frames, brought back to unit norm.

    network: "synth" (asset identity_eval), "arcface" (a TorchScript file, by path and sha256) or "faceid".
    frames: equally spaced frames that are read of a clip, all of them by default.
    """

    assets = ("identity_eval",)

    def __init__(self, *, network: str = "synth", path: str = "", sha256: str = "", frames: int = CLIP_FRAMES):
        self.frames = frames
        self.network, self.path, self.sha256 = network, path, sha256
        self._frames: Embedder

    def load(self, assets: Mapping[str, Any], ctx: Context) -> None:
        """Raises as bench.nets.identity.identity_embedder when the weights of the network are not here."""
        self._frames = identity_embedder(self.network, assets, self.path, self.sha256)

    def embed(self, clip: Video) -> np.ndarray:
        """(d,) float of unit norm, from the frames of the clip as they lie on the canvas."""
        chosen = np.unique(spread(len(clip), 0, len(clip), self.frames))
        mean = self._frames(clip.frames[chosen]).mean(axis=0)  # (d,)
        return mean / np.linalg.norm(mean)
