"""The frame-level identity attacker that plr and plr_static share: a timm ResNet over equally spaced frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from bench.measures import Identify
from bench.nets.given import given
from bench.nets.image import as_input, frame_classifier, jitter
from bench.nets.training import Data, Recipe, load_matching, predict, train_classifier
from bench.sampling import spread
from bench.types import Context, Sample, Video

ARCHITECTURE = {"tiny": "resnet10t", "paper": "resnet50"}
PUBLISHED, WHAT = "resnet50", "a ResNet-50 under timm's names"  # the weights that `paper` starts from


class FrameAttacker(Identify):
    """Learns people from frames. Its start is an evaluation asset of its architecture, the same for all methods; in the
    `paper` profile published weights, and WeightsMissing without them.

    An attack derives from it and says what it knows (`threat`) and what it publishes (`columns`).
    """

    assets = ("identity_eval",)

    def __init__(self, *, trial_frames: int = 8, epochs: int = 8, frames_per_video: int = 8):
        self.trial_frames, self.epochs, self.frames_per_video = trial_frames, epochs, frames_per_video
        self.model: Any = None  # a torch Module, after fit or load
        self.recipe = Recipe(epochs=epochs, prepare=as_input, augment=jitter, rate=1e-3)

    def fit(self, enrolment: Sequence[Sample], people: int, assets: Mapping[str, Any], ctx: Context) -> None:
        torch.manual_seed(ctx.torch_seed("weights"))
        self.model = frame_classifier(ARCHITECTURE[ctx.profile], people)
        load_matching(self.model, dict(assets["identity_eval"]) if ctx.profile == "tiny" else given(PUBLISHED, WHAT))
        rng = ctx.rng("frames")
        train_classifier(self.model, lambda epoch: self._draw(enrolment, epoch, rng), self.recipe,
                         ctx.torch_seed("order"), report=ctx.report)

    def _draw(self, enrolment: Sequence[Sample], epoch: int, rng: np.random.Generator) -> Data:
        frames, targets = [], []
        for sample in enrolment:
            video = sample.draw(epoch)
            chosen = rng.choice(len(video), min(self.frames_per_video, len(video)), replace=False)
            frames.append(video.frames[np.sort(chosen)])
            targets += [sample.person] * len(chosen)
        return torch.from_numpy(np.concatenate(frames)), torch.tensor(targets)

    def score(self, video: Video) -> np.ndarray:
        """(trial_frames, P) log-probabilities of equally spaced frames."""
        index = spread(len(video), 0, len(video), self.trial_frames)
        return predict(self.model, torch.from_numpy(video.frames[index]), self.recipe).numpy()

    def state(self) -> dict[str, np.ndarray]:
        return {name: tensor.numpy() for name, tensor in self.model.state_dict().items()}

    def load(self, state: Mapping[str, np.ndarray], people: int, ctx: Context) -> None:
        self.model = frame_classifier(ARCHITECTURE[ctx.profile], people)
        self.model.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in state.items()})
