"""A method that learns, to test what `fit` is given and what its state may be."""

import numpy as np

from bench import Anonymizer, Diverged, Video, method


@method("learner")
class Learner(Anonymizer):
    """Paints every frame with the mean colour of the development videos of label 0."""

    fits = True
    needs = frozenset({"expression"})
    variants = {what: {"what": what} for what in ("undeclared", "nan", "words", "unknown", "diverges")}

    def __init__(self, *, what: str = "honest"):
        self.what = what

    def fit(self, data, assets, ctx):
        if self.what == "diverges":
            raise Diverged("the loss became nan in epoch 1, step 2")
        chosen = [sample for sample in data.train if sample.expression == 0]
        if self.what == "undeclared":
            chosen = [sample for sample in data.train if sample.identity == 0]
        if self.what == "unknown":
            chosen = [sample for sample in data.train if sample.name]
        self.colour = np.mean([s.video.frames.mean((0, 1, 2)) for s in chosen], axis=0)  # (3,)
        self.draw = ctx.rng("draw").random(4)

    def state(self):
        if self.what == "words":
            return {"colour": np.array(["red"])}
        bad = np.array([1.0, np.nan])
        return {"colour": self.colour, "draw": self.draw, **({"bad": bad} if self.what == "nan" else {})}

    def load(self, state):
        self.colour = state["colour"]

    def release(self, video, rng):
        return Video(np.broadcast_to(self.colour.astype(np.uint8), video.frames.shape).copy(), video.fps)
