"""vPLR: the attacker of cPLR, who adds up what all clips of a video tell."""

from bench import Column, ThreatModel, attack
from bench.nets.clip_attackers import ClipAttacker


@attack("vplr")
class VPLR(ClipAttacker):
    """Names the person in a whole released probe video: the attacker of `cplr`, trained as there on clips that were
    released each for itself, reads every 16-frame clip of the video as it was published and adds up the
    log-probabilities. A trial is one video. What protects a clip protects a video of several clips less; the number
    stands beside the composed budget. Lower is more private; chance is 1 / people. Source: TADP, which recommends the
    aggregated attacker; the sum of log-probabilities is ours.
    """

    trains_like = "cplr"
    threat = ThreatModel(
        knows="released enrolment clips of every test person with their names", reads="video",
        trained_on="released enrolment", decoding="assembled")
    columns = (Column(id="top1", unit="rate", better="lower", low=0, high=1, role="privacy",
                      title="Identified from a whole video (adapted attacker)", source="TADP 4.1.7"),)

    def score(self, video):
        """(1, P) log-probabilities, summed over the non-overlapping clips of the video."""
        return super().score(video).sum(0, keepdims=True)
