"""The clip-level identity attacker that cplr and vplr share: a joint space-time transformer over 16-frame clips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from bench.errors import ConfigError, nearest
from bench.measures import Identify
from bench.nets.clip_vit import SIZES, ClipViT, ViTSize, as_vit_input, clips_of
from bench.nets.published import load_published
from bench.nets.training import Data, Recipe, load_matching, predict, train_classifier
from bench.nets.video import jitter_clips
from bench.types import Context, Sample, Video


class ClipAttacker(Identify):
    """Learns people from clips. Its start is an evaluation asset of its architecture, the same for all methods.

    An attack derives from it and says what it knows (`threat`) and what it publishes (`columns`).
    size: "small", "base" or "1B" of InternVideo2; `weights`, `sha256`: its published checkpoint, a file on this
    machine. All three are read in the `paper` profile only.
    """

    assets = ("clip_identity_eval",)

    def __init__(self, *, epochs: int = 4, size: str = "base", weights: str = "", sha256: str = ""):
        if size not in SIZES:
            raise ConfigError(f"There is no clip transformer of size {size!r}.", nearest(size, SIZES))
        self.epochs, self.published_size, self.weights, self.sha256 = epochs, size, weights, sha256
        self.model: Any = None  # a ClipViT, after fit or load

    def fit(self, enrolment: Sequence[Sample], people: int, assets: Mapping[str, Any], ctx: Context) -> None:
        """Raises DataError when the `paper` profile has no published weights."""
        torch.manual_seed(ctx.torch_seed("weights"))
        if ctx.profile == "tiny":
            self.model = ClipViT(SIZES["tiny"], people)
            load_matching(self.model, dict(assets["clip_identity_eval"]))
        else:
            self.model = ClipViT(SIZES[self.published_size], people)
            load_published(self.weights, self.sha256, self.model)
        train_classifier(self.model, lambda epoch: self._draw(enrolment, epoch), self._recipe(),
                         ctx.torch_seed("order"), report=ctx.report)

    def _recipe(self) -> Recipe:
        return clip_recipe(self.model.size, self.epochs)

    def _draw(self, enrolment: Sequence[Sample], epoch: int) -> Data:
        """All clips of the release that this epoch reads, and who is seen in each."""
        clips = [clips_of(sample.draw(epoch), self.model.size.frames) for sample in enrolment]
        return torch.cat(clips), torch.tensor([s.person for s, c in zip(enrolment, clips, strict=True) for _ in c])

    def score(self, video: Video) -> np.ndarray:
        """(1, P) log-probabilities of one clip; (K, P), a row a clip, of a longer video."""
        return predict(self.model, clips_of(video, self.model.size.frames), self._recipe()).numpy()

    def state(self) -> dict[str, np.ndarray]:
        return {name: tensor.numpy() for name, tensor in self.model.state_dict().items()}

    def load(self, state: Mapping[str, np.ndarray], people: int, ctx: Context) -> None:
        width = state["cls_token"].shape[-1]
        self.model = ClipViT(next(size for size in SIZES.values() if size.width == width), people)
        self.model.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in state.items()})


def clip_recipe(size: ViTSize, epochs: int) -> Recipe:
    """How a clip transformer is trained: mirrored, shifted by up to 2 px and brightened, one draw a clip."""
    return Recipe(epochs=epochs, prepare=lambda clips: as_vit_input(clips, size.side_px), augment=jitter_clips,
                  batch=8, rate=1e-3)
