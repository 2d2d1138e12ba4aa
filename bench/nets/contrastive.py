"""Learning without labels: two random views of one picture should be alike, views of different pictures should not."""

from __future__ import annotations

from typing import Any

import timm
import torch
from torch import nn
from torch.nn import functional as F

FEATURES = 128  # of the head, on the unit sphere
GREY = (0.299, 0.587, 0.114)
FAINT = 0.1  # half range of brightness, contrast and saturation
Stream = torch.Generator  # from which random views are drawn, seeded by the harness
ERASED = (0.08, 0.17)  # sides of the erased rectangle, in sides of the picture


class FaceNet(nn.Module):
    """A residual network on (N, 3, H, W) in 0 .. 1: `paper` is ResNet-50, `tiny` has ten layers of 16 to 128 channels.

    classes: logits (N, classes).  None: the projection head of SimCLR, two linear layers, unit vectors (N, 128).
    """

    def __init__(self, profile: str, classes: int | None = None):
        super().__init__()
        if profile == "paper":
            self.body = timm.create_model("resnet50", pretrained=False, num_classes=0)
        else:
            self.body = timm.create_model("resnet10t", pretrained=False, num_classes=0, stem_width=16,
                                          channels=(16, 32, 64, 128))
        body: Any = self.body  # timm's networks know their width
        inner, self.classes = int(body.num_features), classes
        projection = nn.Sequential(nn.Linear(inner, inner), nn.ReLU(inplace=True), nn.Linear(inner, FEATURES))
        self.head: nn.Module = projection if classes is None else nn.Linear(inner, classes)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        made = self.head(self.body((frames - 0.5) / 0.25))
        return F.normalize(made, dim=1) if self.classes is None else made


def nt_xent(first: torch.Tensor, second: torch.Tensor, temperature: float) -> torch.Tensor:
    """The normalised, temperature-scaled cross entropy of SimCLR (Chen et al. 2020, eq. 1), a mean over 2 N views.

    first, second: unit vectors (N, d), row i of both from one picture. Each view has 1 positive and 2 N - 2 negatives,
    so vectors that say nothing give log(2 N - 1).
    """
    n = len(first)
    views = torch.cat([first, second])  # (2 N, d)
    likeness = views @ views.T / temperature
    likeness = likeness.masked_fill(torch.eye(2 * n, dtype=torch.bool), float("-inf"))
    return F.cross_entropy(likeness, torch.arange(2 * n).roll(n))


def two_views(frames: torch.Tensor, generator: torch.Generator, side_px: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two independent random views of each frame: (N, 3, H, W) -> twice (N, 3, side, side)."""
    first, second = (seen(frames[:, None], generator, side_px)[:, 0] for _ in range(2))
    return first, second


def seen(clips: torch.Tensor, generator: torch.Generator, side_px: int, *, smallest: float = 0.6,
         erase: bool = True) -> torch.Tensor:
    """One random view of each clip, equal for its frames: (N, T, 3, H, W) in 0 .. 1 -> (N, T, 3, side, side).

    A square crop of `smallest` to 1 of the side at a random place, a mirror half of the time, brightness, contrast and
    saturation by up to 10 %, no colour in a tenth of the clips, a black rectangle in a quarter.
    """
    n, t = clips.shape[:2]
    draw = torch.rand(n, 8, generator=generator)
    frames = _cropped(clips.flatten(0, 1), draw[:, :4].repeat_interleave(t, 0), smallest, side_px)
    frames = _coloured(frames, draw[:, 4:8].repeat_interleave(t, 0))
    if erase:
        frames = _erased(frames, torch.rand(n, 5, generator=generator).repeat_interleave(t, 0))
    return frames.clamp(0, 1).view(n, t, *frames.shape[1:])


def _cropped(frames: torch.Tensor, draw: torch.Tensor, smallest: float, side_px: int) -> torch.Tensor:
    """Crop, mirror and resize, bilinear. draw: (N, 4) in 0 .. 1: size, x, y, mirror."""
    size = smallest + (1 - smallest) * draw[:, 0]
    theta = torch.zeros(len(frames), 2, 3)
    theta[:, 0, 0] = torch.where(draw[:, 3] < 0.5, -size, size)
    theta[:, 1, 1] = size
    theta[:, :, 2] = (1 - size)[:, None] * (2 * draw[:, 1:3] - 1)
    grid = F.affine_grid(theta, [len(frames), 3, side_px, side_px], align_corners=False)
    return F.grid_sample(frames, grid, padding_mode="border", align_corners=False)


def _coloured(frames: torch.Tensor, draw: torch.Tensor) -> torch.Tensor:
    """draw: (N, 4) in 0 .. 1: brightness, contrast, saturation, whether the colour goes."""
    gain = 1 + FAINT * (2 * draw[:, :3, None, None, None] - 1)  # (N, 3, 1, 1, 1)
    frames = frames * gain[:, 0]
    mean = frames.mean((1, 2, 3), keepdim=True)
    frames = mean + (frames - mean) * gain[:, 1]
    grey = (frames * frames.new_tensor(GREY)[:, None, None]).sum(1, keepdim=True)
    colour = torch.where(draw[:, 3, None, None, None] < 0.1, torch.zeros_like(gain[:, 2]), gain[:, 2])
    return grey + (frames - grey) * colour


def _erased(frames: torch.Tensor, draw: torch.Tensor) -> torch.Tensor:
    """draw: (N, 5) in 0 .. 1: whether, width, height, centre x, centre y."""
    height, width = frames.shape[2:]
    size = ERASED[0] + (ERASED[1] - ERASED[0]) * draw[:, 1:3]  # (N, 2)
    x = (torch.arange(width) + 0.5) / width
    y = (torch.arange(height) + 0.5) / height
    across = (x[None] - draw[:, 3:4]).abs() < size[:, :1] / 2  # (N, W)
    down = (y[None] - draw[:, 4:5]).abs() < size[:, 1:] / 2  # (N, H)
    hole = down[:, :, None] & across[:, None] & (draw[:, 0] < 0.25)[:, None, None]  # (N, H, W)
    return frames.masked_fill(hole[:, None], 0.0)
