"""FER: facial expression recognition on released video."""

import numpy as np
import torch

from bench import CLIP_FRAMES, Column, Evaluator, metric
from bench.nets.training import Recipe, load_matching, predict, train_classifier
from bench.nets.video import SIZES, as_clip_input, jitter_clips, x3d
from bench.sampling import spread


@metric("fer")
class FER(Evaluator):
    """Retrains a video network on a method's released development videos and reads the expression of released videos of
    test people, whom it has never seen. One decision a source video: log-probabilities summed over its 16-frame
    clips, each read as equally spaced frames (4 frames of 64 px in `tiny`), padding never read. The epoch is chosen
    on calibration people. `fer` is the weighted average recall (WAR, plain accuracy), `uar` the unweighted one over
    the declared label set. `@x3d`: pytorchvideo's X3D, started from the evaluation expression asset, the same for
    every method. Higher is more useful; chance is 1 / classes.
    Source: TADP 4.1.4; WAR and UAR as in DFEW (Jiang et al. 2020); X3D: Feichtenhofer 2020.
    """

    columns = (
        Column(id="fer", unit="rate", better="higher", low=0, high=1, role="utility",
               title="Expression recognised (WAR)", source="TADP 4.1.4"),
        Column(id="uar", unit="rate", better="higher", low=0, high=1, role="utility", statistic="uar",
               title="Expression recognised (UAR)", source="DFEW, Jiang et al. 2020"),
    )
    assets = ("expression_eval",)
    variants = {"x3d": {}}
    headline = "x3d"

    def __init__(self, *, epochs: int = 8, clips_per_video: int = 1):
        self.epochs, self.clips_per_video = epochs, clips_per_video

    def fit(self, train, calibration, classes, assets, ctx):
        self.size = SIZES[ctx.profile]
        torch.manual_seed(ctx.torch_seed("weights"))
        self.model = x3d(classes, self.size)
        load_matching(self.model, assets["expression_eval"])
        self.recipe = Recipe(epochs=self.epochs, batch=16, prepare=lambda c: as_clip_input(c, self.size.side_px),
                             augment=jitter_clips)
        rng = ctx.rng("clips")
        every = [(self._clips(s.video), s.label) for s in calibration]
        held_out = (torch.cat([c for c, _ in every]), torch.tensor([y for c, y in every for _ in range(len(c))]))
        train_classifier(self.model, lambda epoch: self._draw(train, rng), self.recipe, ctx.torch_seed("order"),
                         calibration=held_out, report=ctx.report)

    def _draw(self, samples, rng):
        clips, targets = [], []
        for sample in samples:
            count = -(-len(sample.video) // CLIP_FRAMES)
            for k in rng.choice(count, min(self.clips_per_video, count), replace=False):
                clips.append(self._clip(sample.video, int(k)))
                targets.append(sample.label)
        return torch.from_numpy(np.stack(clips)), torch.tensor(targets)

    def _clip(self, video, k):
        return video.frames[spread(len(video), k * CLIP_FRAMES, CLIP_FRAMES, self.size.frames)]  # (T, H, W, 3)

    def _clips(self, video):
        count = -(-len(video) // CLIP_FRAMES)
        return torch.from_numpy(np.stack([self._clip(video, k) for k in range(count)]))

    def predict(self, video):
        return predict(self.model, self._clips(video), self.recipe).sum(0).numpy()  # (classes,)
