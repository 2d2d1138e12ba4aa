"""FER: facial expression recognition on released video."""

import numpy as np
import torch

from bench import CLIP_FRAMES, Column, Evaluator, metric
from bench.nets.evaluators import NETWORKS
from bench.nets.given import given
from bench.nets.training import Recipe, load_matching, predict, train_classifier
from bench.nets.video import as_clip_input, jitter_clips
from bench.sampling import spread


@metric("fer")
class FER(Evaluator):
    """Retrains a video network on a method's released development videos and reads the expression of released videos of
    test people, whom it has never seen. One decision a source video: log-probabilities summed over its 16-frame
    clips, each read as equally spaced frames, padding never read. The epoch is chosen on calibration people; recipe
    and budget are the same for every network. `fer` is the weighted average recall (WAR, plain accuracy), `uar` the
    unweighted one over the declared label set. `@x3d` (the headline): pytorchvideo's X3D, 4 frames of 64 px in
    `tiny`, started from the evaluation expression asset. `@r3d`: torchvision's VideoResNet. `@timesformer`: divided
    space-time attention. `@videomae`: tubelets of 2 frames, mean pooling. Those read 8 frames of 64 px in `tiny` and
    start from random numbers. In `paper` each has its published size and weights. Higher is more useful; chance is
    1 / classes.
    Source: TADP 4.1.4; WAR and UAR as in DFEW (Jiang et al. 2020); X3D: Feichtenhofer 2020; R3D: Tran et al. 2018;
    TimeSformer: Bertasius et al. 2021; VideoMAE: Tong et al. 2022.
    """

    columns = (
        Column(id="fer", unit="rate", better="higher", low=0, high=1, role="utility",
               title="Expression recognised (WAR)", source="TADP 4.1.4"),
        Column(id="uar", unit="rate", better="higher", low=0, high=1, role="utility", statistic="uar",
               title="Expression recognised (UAR)", source="DFEW, Jiang et al. 2020"),
    )
    assets = ("expression_eval",)
    variants = {"x3d": {}, "r3d": {"network": "r3d"}, "timesformer": {"network": "timesformer"},
                "videomae": {"network": "videomae"}}
    headline = "x3d"

    def __init__(self, *, network: str = "x3d", epochs: int = 8, clips_per_video: int = 1):
        self.network, self.epochs, self.clips_per_video = network, epochs, clips_per_video

    @classmethod
    def assets_of(cls, variant):
        """Names of the assets that a variant starts from in `tiny`; () means random numbers."""
        return cls.assets if variant in (None, "x3d") else ()

    def fit(self, train, calibration, classes, assets, ctx):
        network = NETWORKS[self.network]
        names = (network.published,) if ctx.profile == "paper" else self.assets_of(self.network)
        starts = [given(n, "the published weights") if ctx.profile == "paper" else assets[n] for n in names]
        self._build(classes, ctx)
        for start in starts:
            load_matching(self.model, start)
        rng = ctx.rng("clips")
        every = [(self._clips(s.video), s.label) for s in calibration]
        held_out = (torch.cat([c for c, _ in every]), torch.tensor([y for c, y in every for _ in range(len(c))]))
        train_classifier(self.model, lambda epoch: self._draw(train, epoch, rng), self.recipe,
                         ctx.torch_seed("order"), calibration=held_out, report=ctx.report)

    def _build(self, classes, ctx):
        self.size = NETWORKS[self.network].sizes[ctx.profile]
        torch.manual_seed(ctx.torch_seed("weights"))
        self.model = NETWORKS[self.network].build(classes, self.size)
        self.recipe = Recipe(epochs=self.epochs, batch=16, prepare=lambda c: as_clip_input(c, self.size.side_px),
                             augment=jitter_clips)

    def _draw(self, samples, epoch, rng):
        """Random clips of every video, with that epoch's noise where the suite asked for several releases."""
        clips, targets = [], []
        for sample in samples:
            video = sample.draw(epoch)
            count = -(-len(video) // CLIP_FRAMES)
            for k in rng.choice(count, min(self.clips_per_video, count), replace=False):
                clips.append(self._clip(video, int(k)))
                targets.append(sample.label)
        return torch.from_numpy(np.stack(clips)), torch.tensor(targets)

    def _clip(self, video, k):
        return video.frames[spread(len(video), k * CLIP_FRAMES, CLIP_FRAMES, self.size.frames)]  # (T, H, W, 3)

    def _clips(self, video):
        count = -(-len(video) // CLIP_FRAMES)
        return torch.from_numpy(np.stack([self._clip(video, k) for k in range(count)]))

    def predict(self, video):
        return predict(self.model, self._clips(video), self.recipe).sum(0).numpy()  # (classes,)

    def state(self):
        return {name: tensor.numpy() for name, tensor in self.model.state_dict().items()}

    def load(self, state, classes, ctx):
        self._build(classes, ctx)
        self.model.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in state.items()})
