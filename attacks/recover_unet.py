"""Undo the anonymization frame by frame with a U-Net."""

from bench import ThreatModel, attack
from bench.nets.recovery import NetworkRecover, RecoveryRecipe
from bench.nets.unet import WIDTHS, UNet


@attack("recover_unet")
class RecoverUNet(NetworkRecover):
    """Trains a U-Net (five levels, 16 channels at the finest in `tiny`, 64 in `paper`) to turn each released frame into
    its original, on paired clips of development people, with Charbonnier loss, mirrored pairs and fresh noise in each
    epoch. It sees one frame at a time, and its output is added to its input, so that a copy is its start. What it
    makes of the released clips of test people is scored by PSNR and SSIM and attacked again by retrained identity
    attackers; a recovery that is no better than a copy or than the mean face has recovered nothing. Lower is more
    private. Source: Ronneberger, Fischer and Brox 2015; TADP 4.2.1; loss, budget and width are ours.
    """

    threat = ThreatModel(knows="released clips of development people beside their originals", reads="clip",
                         trained_on="development pairs", decoding="isolated")

    def __init__(self, *, epochs: int = 2, clips: int = 240):
        super().__init__(epochs=epochs, clips=clips)

    def network(self, profile):
        return UNet(WIDTHS[profile])

    def recipe(self, profile):
        return RecoveryRecipe(epochs=self.epochs, batch=1, rate=1e-3, frames=8)
