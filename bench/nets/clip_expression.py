"""A small reader of expressions from clips: six convolutions on every frame, one over time, pooling over the clip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn

from bench.nets.training import Recipe, load_matching, predict, train_classifier
from bench.nets.video import as_clip_input, jitter_clips
from bench.types import CLIP_FRAMES, Context

FRAMES, SIDE_PX, WIDTH = 8, 64, 128  # frames read of a clip, their side, features of a frame
_CONVOLUTIONS = ((3, 16, 2), (16, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 96, 2))  # in, out, stride


def frame_trunk() -> nn.Sequential:
    """Frames (N, 3, 64, 64) -> (N, WIDTH), never negative; a feature knows where in the frame something is."""
    layers: list[nn.Module] = []
    for inward, outward, stride in _CONVOLUTIONS:
        layers += [nn.Conv2d(inward, outward, 3, stride, 1, bias=False), nn.BatchNorm2d(outward), nn.ReLU()]
    cells = (SIDE_PX // 16) ** 2
    return nn.Sequential(*layers, nn.Conv2d(96, 32, 1), nn.Flatten(), nn.Linear(32 * cells, WIDTH),
                         nn.BatchNorm1d(WIDTH), nn.ReLU())


class ClipExpressionNet(nn.Module):
    """(N, 3, T, 64, 64) -> logits (N, classes). Place is kept up to the feature of a frame, time to the last pool."""

    def __init__(self, classes: int):
        super().__init__()
        self.frame = frame_trunk()
        self.time = nn.Sequential(nn.Conv1d(WIDTH, WIDTH, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(2 * WIDTH, classes)

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        n, _, t = clips.shape[:3]
        frames = self.frame(clips.transpose(1, 2).flatten(0, 1))  # (N T, WIDTH)
        steps = self.time(frames.reshape(n, t, WIDTH).transpose(1, 2))  # (N, WIDTH, T)
        return self.head(torch.cat([steps.mean(2), steps.amax(2)], dim=1))


def unpadded(clip: np.ndarray) -> int:
    """Frames of a clip, uint8 (16, H, W, 3), before its last one is repeated."""
    same = (clip == clip[-1]).all(axis=(1, 2, 3))
    return len(clip) - int(same[::-1].argmin() if not same.all() else len(clip)) + 1


def chosen_frames(length: int, phase: float = 0.5) -> np.ndarray:
    """FRAMES equally spaced places among `length` frames; phase in [0, 1) shifts them."""
    return ((np.arange(FRAMES) + phase) * length / FRAMES).astype(int)


def recipe(epochs: int) -> Recipe:
    """How the reader learns, on public and on development people."""
    return Recipe(epochs=epochs, batch=16, rate=2e-3, weight_decay=0.02, augment=jitter_clips,
                  prepare=lambda clips: as_clip_input(clips, SIDE_PX))


def train_reader(videos: Sequence[np.ndarray], labels: Sequence[int], classes: int, start: Mapping[str, np.ndarray],
                 epochs: int, ctx: Context) -> ClipExpressionNet:
    """Fine-tune the reader on these videos, uint8 (T, H, W, 3); every epoch reads one random clip of each.

    start: tensors of a reader of the same shape; its head is kept where the number of classes fits. Raises Diverged.
    """
    torch.manual_seed(ctx.torch_seed("reader"))
    model, rng = ClipExpressionNet(classes), ctx.rng("reader")
    load_matching(model, {k: torch.from_numpy(np.array(v)) for k, v in start.items()})

    def draw(epoch: int) -> tuple[torch.Tensor, torch.Tensor]:
        clips = []
        for frames in videos:
            first = int(rng.integers(-(-len(frames) // CLIP_FRAMES))) * CLIP_FRAMES
            length = min(CLIP_FRAMES, len(frames) - first)
            clips.append(frames[first + chosen_frames(length, float(rng.random()))])
        return torch.from_numpy(np.stack(clips)), torch.tensor(labels)

    train_classifier(model, draw, recipe(epochs), ctx.torch_seed("reader order"), report=ctx.report)
    return model


def read_clip(model: ClipExpressionNet, clip: np.ndarray) -> np.ndarray:
    """Probabilities (classes,) of one clip, uint8 (16, H, W, 3), padding left out: mean of the clip and its mirror."""
    frames = clip[chosen_frames(unpadded(clip))]
    both = torch.from_numpy(np.stack([frames, frames[:, :, ::-1]]))  # (2, T, H, W, 3)
    return predict(model, both, recipe(1)).exp().mean(0).double().numpy()
