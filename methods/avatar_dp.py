"""A public avatar acts the expression; one noisy simplex vector leaves each clip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bench import Branch, FullClaim, method
from bench.nets.avatar import AvatarMethod, unpadded_shares
from bench.privacy.accounting import floors

DELTA = 1e-5
INSIDE = 1 - 1e-9  # of the ball, so that no rounding counts as clipped


@method("avatar_dp")
class AvatarDP(AvatarMethod):
    """Never encodes who somebody is. A small network reads the expression of each clip; what leaves the clip is one
    vector: the corner of a regular simplex that stands for the expression, or, where the network wavers, the point
    of the same sphere that leans to several corners as it does. One row a clip takes the whole budget, an exact
    epsilon of 8 at delta 1e-5, as Gaussian noise. The largest of the noisy coordinates names the expression, and a
    made public person acts it: nothing else of the face, the light or the motion reaches the release. The clips of
    one video are added up before they are decoded, each weighed by how much of it is not padding; a clip released
    for itself is decoded alone. Labels of expressions are read in `fit`. The row marks how much utility the claim of
    `tadp` and `dp_latent` allows: with a reader that never errs, equidistant points reach .94 of the ceiling at
    epsilon 8 and six expressions. It is no anonymised video of the person: what the face said beyond six words is gone.
    Source: the Gaussian mechanism at its exact profile, Balle and Wang 2018; the method is ours.
    """

    fits = True
    variants = {"eps1": {"epsilon": 1.0}, "eps2": {"epsilon": 2.0}, "eps4": {"epsilon": 4.0},
                "eps16": {"epsilon": 16.0}}

    def __init__(self, *, epsilon: float = 8.0, classes: int = 6, epochs: int = 12):
        super().__init__(classes=classes, epochs=epochs)
        floor = floors(epsilon, DELTA, clip_norm={"expression": 1.0}, share={"expression": 1.0}, frames=1)["expression"]
        self.branches = (Branch("expression", dim=classes, norm="l2", clip=1.0, noise="gaussian", floor=floor, rows=1),)
        self.terms = FullClaim(unit="clip", delta=DELTA)

    def encode(self, atom: np.ndarray) -> Mapping[str, np.ndarray]:
        return {"expression": on_sphere(self.probabilities(atom))[None]}  # (1, classes)

    def render(self, transcripts: Sequence[Mapping[str, np.ndarray]], public, decoding) -> np.ndarray:
        rows = np.concatenate([released["expression"] for released in transcripts])  # (clips, classes)
        total = unpadded_shares(len(rows), public["frames"]) @ rows  # (classes,)
        return self.act([int(total.argmax())] * len(rows), public["canvas_px"])


def on_sphere(probabilities: np.ndarray) -> np.ndarray:
    """Corners of the centred simplex weighed by probabilities (n,), scaled to unit length; zeros where all are equal.

    Of all vectors in the ball it has the largest expected inner product with the true corner. A certain reading
    gives that corner: e_i - 1/n, over its length.
    """
    lean = probabilities - probabilities.mean()
    length = float(np.linalg.norm(lean))
    return lean * (INSIDE / length) if length > 0 else lean
