"""An evaluator that needs no network: the direction of the bar of `blocks`, straight from the picture."""

import numpy as np

from bench import Column, Evaluator, metric


@metric("stripes")
class Stripes(Evaluator):
    """Which way do neighbouring lines differ most?"""

    columns = (Column(id="stripes", unit="rate", better="higher", low=0, high=1, role="utility", title="Read",
                      source="ours"),)

    def fit(self, train, calibration, classes, assets, ctx):
        self.classes = classes

    def predict(self, video):
        grey = video.frames.astype(float).mean(3)  # (T, H, W)
        flat, tall = (np.abs(np.diff(grey.mean(axis), axis=1)).max(1).sum() for axis in (2, 1))
        return np.array([flat, tall])[:self.classes]

    def state(self):
        return {"classes": np.array([self.classes])}

    def load(self, state, classes, ctx):
        self.classes = int(state["classes"][0])
