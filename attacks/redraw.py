"""Redraw: the attacker of PLR, who gets several releases of the same input and averages the noise away."""

import numpy as np

from bench import Column, ThreatModel, attack
from bench.nets.attackers import FrameAttacker


@attack("redraw")
class Redraw(FrameAttacker):
    """Names the person from several releases of one input with independent noise: the attacker of `plr`, trained as
    there, reads the same 8 equally spaced frames in all of them and averages the log-probabilities. It shows what is
    lost when a method is run again on the same video. A trial is one frame position. With a single release, as for a
    method without noise, it is `plr` on that release. Lower is more private; chance is 1 / people. Source: ours;
    R releases cost sqrt(R) of the Gaussian parameter.
    """

    trains_like = "plr"
    threat = ThreatModel(
        knows="released enrolment videos of every test person with their names", reads="draws",
        trained_on="released enrolment", decoding="isolated")
    columns = (Column(id="top1", unit="rate", better="lower", low=0, high=1, role="privacy",
                      title="Identified from several releases of one input", source="ours"),)

    def score_draws(self, videos):
        """(trial_frames, P): mean log-probabilities of the same frames over all releases, each uint8 (T, H, W, 3)."""
        return np.mean([self.score(video) for video in videos], axis=0)
