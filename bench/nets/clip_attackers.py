"""The clip-level identity attacker that cplr and vplr share: a joint space-time transformer over 16-frame clips."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from bench.errors import ConfigError, nearest
from bench.measures import Identify
from bench.nets.clip_recipe import clip_recipe
from bench.nets.clip_vit import SIZES, ClipViT, clips_of
from bench.nets.discriminant import fisher_head
from bench.nets.published import load_published
from bench.nets.training import Data, Recipe, load_matching, predict, train_classifier
from bench.types import Context, Sample, Video

RATE = 5e-4  # half the rate of a network that starts with a random layer
SOFTER = tuple(2 ** (-k / 2) for k in range(49))  # factors of the first head, 1 to 2^-24


class ClipAttacker(Identify):
    """Learns people from clips. Its start is an evaluation asset of its architecture, the same for all methods; its
    last layer starts as Fisher's discriminant of the enrolled people, not at random.

    On development people of synthfaces, four epochs, half the rate and the mirrored reading named .88 of clips where a
    random last layer named .72. The discriminant is computed from the first draw of the released enrolment clips, each
    as it is and mirrored, then made softer until the training loss of these clips is least; from there the whole
    network is trained. A clip is read as it is and mirrored, and the two probabilities are averaged.

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
        """Raises DataError when the `paper` profile has no published weights, Diverged on a loss that is not finite."""
        torch.manual_seed(ctx.torch_seed("weights"))
        if ctx.profile == "tiny":
            self.model = ClipViT(SIZES["tiny"], people)
            load_matching(self.model, dict(assets["clip_identity_eval"]))
        else:
            self.model = ClipViT(SIZES[self.published_size], people)
            load_published(self.weights, self.sha256, self.model)
        self._adapt(enrolment, people)
        train_classifier(self.model, lambda epoch: self._draw(enrolment, epoch), self._recipe(),
                         ctx.torch_seed("order"), report=ctx.report)

    def _recipe(self) -> Recipe:
        return replace(clip_recipe(self.model.size, self.epochs), rate=RATE)

    def _draw(self, enrolment: Sequence[Sample], epoch: int) -> Data:
        """All clips of the release that this epoch reads, and who is seen in each."""
        clips = [clips_of(sample.draw(epoch), self.model.size.frames) for sample in enrolment]
        return torch.cat(clips), torch.tensor([s.person for s, c in zip(enrolment, clips, strict=True) for _ in c])

    def score(self, video: Video) -> np.ndarray:
        """(1, P) log-probabilities of one clip; (K, P), a row a clip, of a longer video."""
        clips = clips_of(video, self.model.size.frames)
        both = torch.stack([predict(self.model, view, self._recipe()) for view in (clips, clips.flip(3))])
        return (both.logsumexp(0) - math.log(2)).numpy()

    def state(self) -> dict[str, np.ndarray]:
        return {name: tensor.numpy() for name, tensor in self.model.state_dict().items()}

    def load(self, state: Mapping[str, np.ndarray], people: int, ctx: Context) -> None:
        width = state["cls_token"].shape[-1]
        self.model = ClipViT(next(size for size in SIZES.values() if size.width == width), people)
        self.model.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in state.items()})

    def _adapt(self, enrolment: Sequence[Sample], people: int) -> None:
        """Set the last layer of `self.model`."""
        clips, targets = self._draw(enrolment, 0)
        features = self._features(torch.cat([clips, clips.flip(3)]))
        targets = targets.repeat(2)
        weight, bias = fisher_head(features, targets, people)
        logits, smoothing = features @ weight.T + bias, self._recipe().label_smoothing
        softer = min(SOFTER, key=lambda s: F.cross_entropy(logits * s, targets, label_smoothing=smoothing).item())
        with torch.no_grad():
            self.model.head.weight.copy_(weight * softer)
            self.model.head.bias.copy_(bias * softer)

    @torch.inference_mode()
    def _features(self, clips: torch.Tensor) -> torch.Tensor:
        """uint8 (N, T, H, W, 3) -> (N, embedding)."""
        self.model.eval()
        return torch.cat([self.model.features(self._recipe().prepare(part)) for part in clips.split(64)])
