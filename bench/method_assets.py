"""Shared networks that only methods build on: frame coders with their codebooks, and an autoencoder.

    identity_code_method     who is it, as 8 numbers a frame
    expression_code_method   which expression, as 8 numbers a frame; learns landmarks beside, where they are known
    autoencoder_method       frames to 4 x 8 x 8 latents and back, with the mean and deviation of the latents

A coder's codebook are the centres of k-means over its features of public frames; it lies in the same file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from sklearn.cluster import KMeans
from torch import nn
from torch.nn import functional as F

from bench import seeds
from bench.nets.coders import FrameAutoencoder, FrameCoder, as_coder_input
from bench.nets.training import Recipe, train_classifier

ENTRIES = 64  # of a codebook
SHIFT_PX = 3
TRUNK_WEIGHT, CODE_WEIGHT = 2.0, 0.3  # of landmarks read from the trunk and from the feature
Report = Callable[[str], None]


def train_coder(name: str, videos: Sequence[np.ndarray], targets: Sequence[int],
                marks: Sequence[np.ndarray] | None, epochs: int, per_video: int, seed: int,
                report: Report) -> dict[str, np.ndarray]:
    """videos: uint8 (T, H, W, 3).  targets: class of each.  marks: landmarks (T, K, 2) px of each, or None."""
    rng, classes = seeds.derive(seed, "asset", name, "samples"), len(set(targets))
    count = 0 if marks is None else marks[0][0].size
    torch.manual_seed(seeds.derive_torch(seed, "asset", name, "weights"))
    model = FrameCoder(classes, count)
    known = None if marks is None else _standardised(marks)
    recipe = Recipe(epochs=epochs, prepare=as_coder_input, augment=_gain, rate=2e-3, batch=48,
                    loss=lambda out, want: _coder_loss(out, want, classes))
    train_classifier(model, lambda epoch: _samples(videos, targets, known, per_video, rng), recipe,
                     seeds.derive_torch(seed, "asset", name, "order"), report=report)
    book = _codebook(model, videos, per_video, rng, seeds.derive_int(seed, "asset", name, "codebook"))
    return {k: v.numpy() for k, v in model.state_dict().items()} | {"codebook": book}


def _standardised(marks: Sequence[np.ndarray]) -> list[np.ndarray]:
    every = np.concatenate(list(marks))
    mean, deviation = every.mean(0), every.std(0) + 1e-6
    return [((m - mean) / deviation).astype(np.float32) for m in marks]


def _samples(videos: Sequence[np.ndarray], targets: Sequence[int], marks: list[np.ndarray] | None, per_video: int,
             rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Random frames; targets float32 (N, 1 + 2 K): class, then landmarks. Without landmarks frames are also shifted."""
    inputs, wanted = [], []
    for number, frames in enumerate(videos):
        index = rng.choice(len(frames), per_video, replace=False)
        some = frames[index]
        where = np.zeros((per_video, 0), np.float32)
        if marks is None:
            some = np.roll(some, tuple(rng.integers(-SHIFT_PX, SHIFT_PX + 1, 2)), axis=(1, 2))
            some = some[:, :, ::-1] if rng.random() < 0.5 else some
        else:
            where = marks[number][index].reshape(per_video, -1)
        inputs.append(some)
        wanted.append(np.concatenate([np.full((per_video, 1), targets[number], np.float32), where], axis=1))
    return torch.from_numpy(np.concatenate(inputs)), torch.from_numpy(np.concatenate(wanted))


def _gain(batch: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Random contrast and light, one draw a frame and channel: people of another light and colour come later."""
    n = len(batch)
    contrast = 1 + 0.15 * (2 * torch.rand(n, 1, 1, 1, generator=generator) - 1)
    light = 0.2 * (2 * torch.rand(n, 3, 1, 1, generator=generator) - 1)
    return batch * contrast + light


def _coder_loss(outputs: torch.Tensor, want: torch.Tensor, classes: int) -> torch.Tensor:
    loss = F.cross_entropy(outputs[:, :classes], want[:, 0].long())
    marks = want[:, 1:]
    if marks.shape[1]:
        trunk, code = outputs[:, classes:].split(marks.shape[1], dim=1)
        loss = loss + TRUNK_WEIGHT * F.smooth_l1_loss(trunk, marks) + CODE_WEIGHT * F.smooth_l1_loss(code, marks)
    return loss


@torch.inference_mode()
def _codebook(model: FrameCoder, videos: Sequence[np.ndarray], per_video: int, rng: np.random.Generator,
              seed: int) -> np.ndarray:
    """Centres (ENTRIES, DIM) of k-means over features of public frames, float32."""
    model.eval()
    features = []
    for frames in videos:
        some = frames[rng.choice(len(frames), min(len(frames), 2 * per_video), replace=False)]
        features.append(model.code(model.maps(as_coder_input(torch.from_numpy(some)))[-1]).numpy())
    rows = np.concatenate(features)
    means = KMeans(min(ENTRIES, len(rows)), n_init=2, random_state=seed % 2**32).fit(rows)
    return means.cluster_centers_.astype(np.float32)


def train_autoencoder(name: str, videos: Sequence[np.ndarray], epochs: int, per_video: int, seed: int,
                      report: Report) -> dict[str, np.ndarray]:
    """The autoencoder under an L1 loss, and mean and deviation (4, 1, 1) of its latents."""
    rng = seeds.derive(seed, "asset", name, "samples")
    torch.manual_seed(seeds.derive_torch(seed, "asset", name, "weights"))
    model = FrameAutoencoder()

    def draw(epoch: int) -> tuple[torch.Tensor, torch.Tensor]:
        some = [frames[rng.choice(len(frames), per_video, replace=False)] for frames in videos]
        inputs = torch.from_numpy(np.concatenate(some))
        return inputs, inputs

    recipe = Recipe(epochs=epochs, prepare=as_coder_input, rate=3e-3, batch=24, weight_decay=1e-4, loss=_pixel_loss)
    train_classifier(model, draw, recipe, seeds.derive_torch(seed, "asset", name, "order"), report=report)
    return {k: v.numpy() for k, v in model.state_dict().items()} | _latent_scale(model, videos, rng)


def _pixel_loss(made: torch.Tensor, frames: torch.Tensor) -> torch.Tensor:
    return F.l1_loss(made, as_coder_input(frames) / 4 + 0.5)  # undo `as_input`: [0, 1]


@torch.inference_mode()
def _latent_scale(model: nn.Module, videos: Sequence[np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
    model.eval()
    some = np.concatenate([frames[rng.choice(len(frames), 2, replace=False)] for frames in videos])
    latents = model.encoder(as_coder_input(torch.from_numpy(some)))  # type: ignore[operator]
    return {"latent_mean": latents.mean((0, 2, 3)).numpy()[:, None, None],
            "latent_deviation": latents.std((0, 2, 3)).numpy()[:, None, None]}
