"""An attacker that needs no network: the nearest mean colour of `blocks`."""

import numpy as np

from bench import Column, Identify, ThreatModel, attack


@attack("colours")
class Colours(Identify):
    """Names the person with the nearest mean colour in the released enrolment videos."""

    threat = ThreatModel(knows="released enrolment videos of every test person", reads="video",
                         trained_on="released enrolment")
    columns = (Column(id="top1", unit="rate", better="lower", low=0, high=1, role="privacy", title="Named",
                      source="ours"),)

    def fit(self, enrolment, people, assets, ctx):
        self.means = np.stack([np.mean([_colour(s.video) for s in enrolment if s.person == p], axis=0)
                               for p in range(people)])

    def score(self, video):
        return -np.linalg.norm(self.means - _colour(video), axis=1)[None]

    def state(self):
        return {"means": self.means}

    def load(self, state, people, ctx):
        self.means = state["means"]


def _colour(video):
    return np.median(video.frames.reshape(-1, 3), axis=0)  # (3,)
