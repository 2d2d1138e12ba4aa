"""An attack that fails in the way its variant says, or that guesses."""

import os
import signal

import numpy as np
import torch
from torch import nn

from bench import Column, Identify, ThreatModel, attack
from bench.nets.training import Recipe, train_classifier

WAYS = ("honest", "constant", "loss", "nan", "killed", "killed_later")


@attack("diverging")
class Diverging(Identify):
    """`honest` knows people by their mean colour and `constant` gives everybody the same score; the others fail.

    `loss`: training becomes NaN. `nan`: a fitted attacker scores NaN. `killed`: the kernel ends the training as it ends
    what takes too much memory; `killed_later`: the same while it scores.
    """

    threat = ThreatModel(knows="released enrolment videos with names", reads="frame",
                         trained_on="released enrolment")
    columns = (Column(id="top1", unit="rate", better="lower", low=0, high=1, role="privacy", title="Identified"),)
    variants = {way: {"way": way} for way in WAYS}

    def __init__(self, *, way: str = "honest"):
        self.way = way

    def fit(self, enrolment, people, assets, ctx):
        if self.way == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.way == "loss":
            self._train(enrolment, people, ctx)
        colours = np.array([s.video.frames.mean((0, 1, 2)) for s in enrolment])
        who = np.array([s.person for s in enrolment])
        self.means = np.array([colours[who == p].mean(0) for p in range(people)])  # (P, 3)

    def _train(self, enrolment, people, ctx):
        """A rate without bounds: the loss overflows after some steps."""
        torch.manual_seed(ctx.torch_seed("weights"))
        model = nn.Sequential(nn.Flatten(), nn.Linear(3, people))
        data = (torch.tensor(np.array([s.video.frames[0].mean((0, 1)) for s in enrolment]), dtype=torch.float32),
                torch.tensor([s.person for s in enrolment]))
        train_classifier(model, lambda epoch: data, Recipe(epochs=50, prepare=lambda x: x, rate=1e37),
                         ctx.torch_seed("order"))

    def state(self):
        return {"means": self.means}

    def load(self, state, people, ctx):
        self.means = state["means"]

    def score(self, video):
        if self.way == "killed_later":
            os.kill(os.getpid(), signal.SIGKILL)
        scores = -np.abs(video.frames.mean((0, 1, 2)) - self.means).sum(1)[None]  # (1, P)
        return {"constant": 0, "nan": np.nan}.get(self.way, 1) * scores
