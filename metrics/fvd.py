"""FVD: how unlike original video released video is, to a network that watches clips."""

import math

from bench import Column, SetMetric, metric
from bench.frechet import check_equal_size, frechet_of
from bench.nets.features import clip_embedder, i3d_embedder


@metric("fvd")
class FVD(SetMetric):
    """Fréchet video distance: the Fréchet distance (covariance with N - 1) of the features of original and released
    16-frame clips of the same moments. Lower is nearer to the original, 0 for equal clips; there is no upper end.
    `@i3d`: the I3D of Kinetics-400 (400 logits), 16 frames resized to 224 px (bilinear), as a TorchScript file given
    by path and SHA-256. `@synth`: the last convolution of the evaluation expression asset (X3D, 4 frames of a clip,
    216 channels), trained on made public people: a stand-in, on a scale of its own. Biased upward when clips are few:
    compare values of one evaluator and one number of clips only, beside the distance of two halves of
    the original people. It weighs the look of single frames more than their motion.
    Source: Unterthiner et al. 2018; TADP 4.1.6; the stand-in is ours.
    """

    columns = (Column(id="fvd", unit="1", better="lower", low=0, high=math.inf, statistic="jackknife", role="utility",
                      title="Fréchet video distance", source="Unterthiner et al. 2018; TADP 4.1.6"),)
    assets = ("expression_eval",)
    variants = {"synth": {}, "i3d": {"network": "i3d"}}
    headline = "synth"

    def __init__(self, *, network: str = "synth", path: str = "", sha256: str = ""):
        self.network, self.path, self.sha256 = network, path, sha256

    def load(self, assets, ctx):
        self._embed = (i3d_embedder(self.path, self.sha256) if self.network == "i3d"
                       else clip_embedder(assets["expression_eval"]))

    def embed(self, clip):
        return self._embed(clip.frames)

    def distance(self, first, second, originals):
        check_equal_size(first, second)
        return frechet_of(first, second)
