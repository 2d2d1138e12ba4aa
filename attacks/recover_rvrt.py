"""Undo the anonymization with a video restoration transformer that reads all frames of a clip."""

from bench import ThreatModel, attack
from bench.nets.recovery import NetworkRecover, RecoveryRecipe
from bench.nets.rvrt import RVRT, SIZES


@attack("recover_rvrt")
class RecoverRVRT(NetworkRecover):
    """Trains RVRT to turn each released clip into its original, on paired clips of development people, with
    Charbonnier loss, mirrored pairs and fresh noise in each epoch. It carries features from clip to clip of two frames,
    twice backward and twice forward, and lays them over each other by guided deformable attention along an optical
    flow that it learns with the rest; so it can gather what single frames do not hold, such as a mosaic whose grid
    moves. 192 channels in `paper`; `tiny` keeps every part at 32 channels and, for its short training, starts each of
    the four passes as a mean that runs over the clips (ours). Trained that briefly it averages frames more than it
    follows motion: half a decibel above `recover_unet` on a moving mosaic, shuffled frames or not. No better
    than a copy or the mean face: nothing is recovered. Lower is more private. Source: Liang et al., NeurIPS 2022,
    arXiv:2206.02146; TADP 4.2.1; the budget is ours.
    """

    threat = ThreatModel(knows="released clips of development people beside their originals", reads="clip",
                         trained_on="development pairs", decoding="isolated")
    published = "rvrt"

    def __init__(self, *, epochs: int = 3, clips: int = 240):
        super().__init__(epochs=epochs, clips=clips)

    def network(self, profile):
        return RVRT(SIZES[profile])

    def recipe(self, profile):
        frames = 8 if profile == "tiny" else None
        return RecoveryRecipe(epochs=self.epochs, batch=1, rate=1e-3, frames=frames, slow="flow.")
