"""Shared networks that only methods build on: frame coders with their codebooks, and an autoencoder.

    identity_code_method     who is it, as 8 numbers a frame
    expression_code_method   which expression, as 8 numbers a frame that is read beside its clip
    expression_frame_method  the same from a frame alone: what training looks at made frames with, never a release
    autoencoder_method       frames to 4 x 8 x 8 latents and back, with the mean and deviation of the latents

Those of expressions learn landmarks beside, where they are known; the feature of the first also learns what the face
does in the frame (`public_marks.expressions`), so that it says how much of an expression is shown.
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
from bench.nets.coders import ClipCoder, FrameAutoencoder, FrameCoder, as_clips, as_coder_input
from bench.nets.training import Recipe, train_classifier
from bench.public_marks import SHIFT_PX, Landmarks, moved
from bench.types import CLIP_FRAMES

ENTRIES = 64  # of a codebook
WEIGHTS = (2.0, 0.3)  # of landmarks read from the trunk and from the feature
CLIP_WEIGHTS, SMOOTHING = (3.0, 10.0), 0.05  # the same for a coder of clips; of its labels
Report = Callable[[str], None]


def train_coder(name: str, videos: Sequence[np.ndarray], targets: Sequence[int],
                marks: Landmarks | None, epochs: int, per_video: int, seed: int,
                report: Report) -> dict[str, np.ndarray]:
    """A coder of frames. videos: uint8 (T, H, W, 3).  targets: class of each.  per_video: frames an epoch reads."""
    rng, classes = seeds.derive(seed, "asset", name, "samples"), len(set(targets))
    torch.manual_seed(seeds.derive_torch(seed, "asset", name, "weights"))
    model = FrameCoder(classes, 0 if marks is None else marks.mean.size)
    recipe = Recipe(epochs=epochs, prepare=as_coder_input, augment=_gain, rate=2e-3, batch=48,
                    loss=lambda out, want: _coder_loss(out, want, classes))
    train_classifier(model, lambda epoch: _samples(videos, targets, marks, per_video, rng), recipe,
                     seeds.derive_torch(seed, "asset", name, "order"), report=report)
    some = [frames[rng.choice(len(frames), min(len(frames), 2 * per_video), replace=False)] for frames in videos]
    return _with_codebook(model, lambda frames: model.code(model.maps(as_coder_input(frames))[-1]), some,
                          seeds.derive_int(seed, "asset", name, "codebook"))


def train_clip_coder(name: str, videos: Sequence[np.ndarray], targets: Sequence[int],
                     marks: Landmarks | None, epochs: int, per_clip: int, seed: int,
                     report: Report) -> dict[str, np.ndarray]:
    """A coder of clips; as above, but an epoch reads `per_clip` frames of one random clip of each video."""
    rng, classes = seeds.derive(seed, "asset", name, "samples"), len(set(targets))
    torch.manual_seed(seeds.derive_torch(seed, "asset", name, "weights"))
    model = ClipCoder(classes, 0 if marks is None else marks.mean.size)
    recipe = Recipe(epochs=epochs, prepare=as_clips, augment=_gain, rate=2e-3, batch=16, weight_decay=0.02,
                    loss=lambda out, want: _coder_loss(out, want.flatten(0, 1), classes, CLIP_WEIGHTS, SMOOTHING))
    train_classifier(model, lambda epoch: _clip_samples(videos, targets, marks, per_clip, rng), recipe,
                     seeds.derive_torch(seed, "asset", name, "order"), report=report)
    some = [frames[start:start + CLIP_FRAMES] for frames in videos for start in range(0, len(frames), CLIP_FRAMES)]
    return _with_codebook(model, lambda frames: model.code(model.trunk(as_clips(frames[None])))[0], some,
                          seeds.derive_int(seed, "asset", name, "codebook"))


def _clip_samples(videos: Sequence[np.ndarray], targets: Sequence[int], marks: Landmarks | None, per_clip: int,
                  rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Random frames in order, (N, n, H, W, 3), all frames of a clip mirrored and shifted alike; targets (N, n, 1 + 4 K)
    float32: class, landmarks, what the face does.
    """
    inputs, wanted = [], []
    for number, frames in enumerate(videos):
        start = int(rng.integers(-(-len(frames) // CLIP_FRAMES))) * CLIP_FRAMES
        length = min(CLIP_FRAMES, len(frames) - start)
        index = start + np.sort(rng.choice(length, per_clip, replace=length < per_clip))
        mirror, (dx, dy) = bool(rng.random() < 0.5), rng.integers(-SHIFT_PX, SHIFT_PX + 1, 2)
        inputs.append(moved(frames[index], mirror, int(dx), int(dy)))
        want = [np.full((per_clip, 1), targets[number], np.float32)]
        if marks is not None:
            want += [marks.targets(number, index, mirror, np.array([dx, dy])), marks.expression(number, index, mirror)]
        wanted.append(np.concatenate(want, axis=1))
    return torch.from_numpy(np.stack(inputs)), torch.from_numpy(np.stack(wanted))


def _samples(videos: Sequence[np.ndarray], targets: Sequence[int], marks: Landmarks | None, per_video: int,
             rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Random frames; targets float32 (N, 1 + 4 K): class, landmarks twice. Without these, frames are also shifted."""
    inputs, wanted = [], []
    for number, frames in enumerate(videos):
        index = rng.choice(len(frames), per_video, replace=False)
        some = frames[index]
        where = np.zeros((per_video, 0), np.float32)
        if marks is None:
            some = np.roll(some, tuple(rng.integers(-SHIFT_PX, SHIFT_PX + 1, 2)), axis=(1, 2))
            some = some[:, :, ::-1] if rng.random() < 0.5 else some
        else:
            where = np.tile(marks.targets(number, index, False, np.zeros(2)), 2)
        inputs.append(some)
        wanted.append(np.concatenate([np.full((per_video, 1), targets[number], np.float32), where], axis=1))
    return torch.from_numpy(np.concatenate(inputs)), torch.from_numpy(np.concatenate(wanted))


def _gain(batch: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Random contrast and light, a draw for each frame or clip and channel: others stand in other light."""
    n, room = len(batch), (1,) * (batch.ndim - 2)
    contrast = 1 + 0.15 * (2 * torch.rand(n, 1, *room, generator=generator) - 1)
    light = 0.2 * (2 * torch.rand(n, 3, *room, generator=generator) - 1)
    return batch * contrast + light


def _coder_loss(outputs: torch.Tensor, want: torch.Tensor, classes: int,
                weights: tuple[float, float] = WEIGHTS, smoothing: float = 0.0) -> torch.Tensor:
    loss = F.cross_entropy(outputs[:, :classes], want[:, 0].long(), label_smoothing=smoothing)
    if want.shape[1] > 1:
        found, wanted = outputs[:, classes:].chunk(2, dim=1), want[:, 1:].chunk(2, dim=1)
        for weight, one, other in zip(weights, found, wanted, strict=True):
            loss = loss + weight * F.smooth_l1_loss(one, other)
    return loss


@torch.inference_mode()
def _with_codebook(model: nn.Module, code: Callable[[torch.Tensor], torch.Tensor], frames: Sequence[np.ndarray],
                   seed: int) -> dict[str, np.ndarray]:
    """The tensors of a coder and the centres (ENTRIES, DIM) of k-means over its features of public frames, float32."""
    model.eval()
    rows = np.concatenate([code(torch.from_numpy(some)).numpy() for some in frames])
    means = KMeans(min(ENTRIES, len(rows)), n_init=2, random_state=seed % 2**32).fit(rows).cluster_centers_
    return {k: v.numpy() for k, v in model.state_dict().items()} | {"codebook": means.astype(np.float32)}


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
