"""PLR: private-to-private identification from single frames."""

from bench import Column, Identify, ThreatModel, attack
from bench.nets.attackers import FrameAttacker


@attack("plr")
class PLR(Identify):
    """Trains an identity classifier on a method's released enrolment videos and names the person in single frames of
    released probe videos: an attacker who has adapted to the method. ResNet-50 in the `paper` profile, a smaller
    ResNet (timm `resnet10t`) in `tiny`, started from the evaluation identity asset. A trial is one of 8 equally
    spaced unpadded frames of a probe video; a tie counts as the chance of guessing among the tied. Lower is more
    private; chance is 1 / people. Source: TADP, section 4.1.7; the frames, budget and start are ours.
    """

    threat = ThreatModel(
        knows="released enrolment videos of every test person with their names", reads="frame",
        trained_on="released enrolment")
    columns = (Column(id="top1", unit="rate", better="lower", low=0, high=1, role="privacy",
                      title="Identified from a frame (adapted attacker)", source="TADP 4.1.7"),)
    assets = ("identity_eval",)

    def __init__(self, *, trial_frames: int = 8, epochs: int = 8, frames_per_video: int = 8):
        self.net = FrameAttacker(trial_frames=trial_frames, epochs=epochs, frames_per_video=frames_per_video)

    def fit(self, enrolment, people, assets, ctx):
        self.net.fit(enrolment, people, assets["identity_eval"], ctx)

    def score(self, video):
        return self.net.score(video)

    def state(self):
        return self.net.state()

    def load(self, state, people, ctx):
        self.net.load(state, people, ctx.profile)
