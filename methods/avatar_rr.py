"""A public avatar acts the expression; the label of each clip goes through randomised response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bench import Branch, FullClaim, method
from bench.nets.avatar import AvatarMethod, unpadded_shares


@method("avatar_rr")
class AvatarRR(AvatarMethod):
    """Never encodes who somebody is. A small network reads the expression of each clip; the one label it finds is kept
    with probability e^epsilon / (e^epsilon + n - 1) and otherwise replaced by one of the n - 1 others, all equally
    likely: n-ary randomised response, epsilon 8 for the whole clip and pure (delta 0). A made public person acts the
    label that came out; nothing else of the face, the light or the motion reaches the release. The clips of one video
    vote, each weighed by how much of it is not padding; on a tie the earlier clip decides. A clip released for
    itself acts its own label. Labels of expressions are read in `fit`. Of all mechanisms with a pure epsilon none names
    one of n equally likely labels more often, so what it loses is the reader's. It is no anonymised video of the
    person: what the face said beyond six words is gone. Source: Warner 1965, and Kairouz, Bonawitz and Ramage 2016 for
    n labels; the method is ours.
    """

    fits = True
    variants = {"eps1": {"epsilon": 1}, "eps2": {"epsilon": 2}, "eps4": {"epsilon": 4}, "eps16": {"epsilon": 16}}

    def __init__(self, *, epsilon: float = 8, classes: int = 6, epochs: int = 12):
        super().__init__(classes=classes, epochs=epochs)
        self.branches = (Branch("label", dim=1, norm="label", clip=classes, noise="randomized_response",
                                epsilon=epsilon, rows=1),)
        self.terms = FullClaim(unit="clip")

    def encode(self, atom: np.ndarray) -> Mapping[str, np.ndarray]:
        return {"label": np.array([[self.probabilities(atom).argmax()]])}  # (1, 1)

    def render(self, transcripts: Sequence[Mapping[str, np.ndarray]], public, decoding) -> np.ndarray:
        labels = np.array([int(released["label"][0, 0]) for released in transcripts])  # (clips,)
        votes = np.bincount(labels, unpadded_shares(len(labels), public["frames"]), minlength=self.classes)
        best = next(int(label) for label in labels if votes[label] == votes.max())
        return self.act([best] * len(labels), public["canvas_px"])
