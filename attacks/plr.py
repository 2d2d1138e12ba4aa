"""PLR: private-to-private identification from single frames."""

from bench import Column, ThreatModel, attack
from bench.nets.attackers import FrameAttacker


@attack("plr")
class PLR(FrameAttacker):
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
