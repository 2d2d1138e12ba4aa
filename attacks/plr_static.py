"""PLR with an attacker who has only seen originals."""

from bench import Column, ThreatModel, attack
from bench.nets.attackers import FrameAttacker


@attack("plr_static")
class PLRStatic(FrameAttacker):
    """The network and trials of `plr`, but trained once on the original enrolment videos and never on a release: what
    an off-the-shelf recogniser sees. A method that lowers this number and not `plr` hides faces from those who do
    not try. Lower is more private; chance is 1 / people. Source: TADP, section 4.1.7; the static variant is ours.
    """

    threat = ThreatModel(
        knows="original enrolment videos of every test person with their names", reads="frame",
        trained_on="original enrolment")
    columns = (Column(id="top1", unit="rate", better="lower", low=0, high=1, role="privacy",
                      title="Identified from a frame (attacker trained on originals)", source="TADP 4.1.7"),)
