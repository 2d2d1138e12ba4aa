"""cPLR: private-to-private identification from 16-frame clips."""

from bench import Column, ThreatModel, attack
from bench.nets.clip_attackers import ClipAttacker


@attack("cplr")
class CPLR(ClipAttacker):
    """Trains a video transformer on a method's released enrolment clips and names the person in single released probe
    clips: an attacker who has adapted to the method and sees motion as well as single frames. In the `paper` profile
    InternVideo2 with its published weights; in `tiny` a small joint space-time transformer of the same build, every
    patch of every frame attending to every other, started from the evaluation clip-identity asset. Its last layer
    starts as Fisher's discriminant of the enrolled people, and it reads a clip and its mirror. Every clip was released
    for itself. A trial is one clip of 16 frames (read as 8 equally spaced ones in `tiny`); a shorter last clip is
    filled up with its last frame. Lower is more private; chance is 1 / people. Source: TADP, section 4.1.7, and Wang et
    al., InternVideo2 (2024); the size, budget and start are ours.
    """

    threat = ThreatModel(
        knows="released enrolment clips of every test person with their names", reads="clip",
        trained_on="released enrolment", decoding="isolated")
    columns = (Column(id="top1", unit="rate", better="lower", low=0, high=1, role="privacy",
                      title="Identified from a clip (adapted attacker)", source="TADP 4.1.7"),)
