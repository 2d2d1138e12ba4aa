"""A plain latent release: principal components, a norm clip, Gaussian noise, the linear decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bench import Branch, FullClaim, PrivateMethod, method
from bench.privacy.accounting import floors

DELTA = 1e-5
FRAMES_PER_VIDEO = 4


@method("dp_latent")
class DPLatent(PrivateMethod):
    """Projects each frame on the first principal components of development faces, clips the coefficients to an l2
    ball and lets the harness add Gaussian noise of one fixed scale, so that replacing a whole clip of 16 frames costs
    an exact epsilon of 8 at delta 1e-5. The decoder averages the 16 noisy rows of a clip, shrinks them by the share
    of signal that development people lead one to expect, and maps them back to one still face for the clip. It is
    the reference of what such a claim costs a method that takes no care: no temporal model, no split budget. Source:
    the Gaussian mechanism at its exact profile, Balle and Wang 2018; the method is ours.
    """

    fits = True
    variants = {"eps2": {"epsilon": 2.0}, "eps4": {"epsilon": 4.0}, "eps16": {"epsilon": 16.0}}

    def __init__(self, *, epsilon: float = 8.0, dim: int = 8):
        floor = floors(epsilon, DELTA, clip_norm={"latent": 1.0}, share={"latent": 1.0}, frames=16)["latent"]
        self.branches = (Branch("latent", dim=dim, norm="l2", clip=1.0, noise="gaussian", floor=floor),)
        self.terms = FullClaim(unit="clip", delta=DELTA)
        self._state: Mapping[str, np.ndarray] = {}

    def fit(self, data, assets, ctx) -> None:
        """Components of development frames; the ball holds 95 % of their coefficients."""
        rng, frames = ctx.rng("frames"), []
        for item in data.train:
            every = item.video.frames
            frames.append(every[rng.choice(len(every), min(FRAMES_PER_VIDEO, len(every)), replace=False)])
        flat = np.concatenate(frames).astype(np.float32)
        flat = flat.reshape(len(flat), -1) / 255.0  # (N, H * W * 3)
        mean = flat.mean(axis=0)
        flat -= mean
        size, vectors = np.linalg.eigh(flat @ flat.T)  # of the small Gram matrix (N, N), smallest first
        best = slice(-1, -1 - self.branches[0].dim, -1)
        components = vectors[:, best].T @ flat / np.sqrt(size[best])[:, None]  # (dim, H * W * 3), orthonormal
        rows = flat @ components.T  # (N, dim)
        radius = np.quantile(np.linalg.norm(rows, axis=1), 0.95)
        self._state = {"mean": mean, "components": components, "radius": np.float32([radius]),
                       "variance": (rows / radius).var(axis=0)}

    def state(self) -> Mapping[str, np.ndarray]:
        return self._state

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        self._state = dict(state)

    def encode(self, atom: np.ndarray) -> Mapping[str, np.ndarray]:
        flat = atom.reshape(len(atom), -1).astype(np.float32) / 255.0  # (16, H * W * 3)
        return {"latent": (flat - self._state["mean"]) @ self._state["components"].T / self._state["radius"]}

    def render(self, transcripts: Sequence[Mapping[str, np.ndarray]], public, decoding) -> np.ndarray:
        variance, side = self._state["variance"], public["canvas_px"]
        clips = []
        for released in transcripts:
            rows = released["latent"]  # (16, dim)
            noise = self.branches[0].floor ** 2 / len(rows)
            mean = rows.mean(axis=0) * variance / (variance + noise)  # (dim,)
            face = self._state["mean"] + (mean * self._state["radius"]) @ self._state["components"]
            still = np.rint(np.clip(face, 0, 1) * 255).astype(np.uint8).reshape(side, side, 3)
            clips.append(np.broadcast_to(still, (len(rows), side, side, 3)))
        return np.concatenate(clips)  # (16 * clips, S, S, 3)
