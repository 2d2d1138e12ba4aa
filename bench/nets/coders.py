"""Small frame encoders whose features are few numbers of bounded length, and an autoencoder of frames. 64 px, tiny.

A feature is what a method puts noise on, so its length must be spent on what it is meant to say. The classifier reads
cosines at a low temperature: its loss keeps falling until the classes stand as far apart as the ball allows.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional as F

DIM = 8  # numbers of a feature
SHARPNESS = 6.0  # of the cosine classifier
SIDE_PX, LATENT = 64, (4, 8, 8)  # what the networks read; channels, rows, columns of a frame's latent
WIDTHS = (16, 32, 64, 96)
DECODER = (48, 32, 24)


class FrameCoder(nn.Module):
    """Frames (N, 3, 64, 64) -> features (N, DIM) inside the unit ball; the heads serve training and recognition.

    classes: of the cosine classifier.  marks: numbers of landmark coordinates that training learns beside, 0 = none.
    """

    def __init__(self, classes: int, marks: int = 0):
        super().__init__()
        self.stages = nn.ModuleList()
        before = 3
        for width in WIDTHS:
            self.stages.append(nn.Sequential(_conv(before, width, 2), _conv(width, width, 1)))
            before = width
        self.project = nn.Linear(before * 16, DIM)  # 64 px / 2^4 = 4 rows and columns
        self.head = nn.Linear(DIM, classes, bias=False)
        self.from_trunk = nn.Linear(before * 16, marks) if marks else None
        self.from_code = nn.Linear(DIM, marks) if marks else None

    def maps(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Feature maps of the four stages, (N, C, h, w)."""
        found = []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        return found

    def code(self, last: torch.Tensor) -> torch.Tensor:
        """Features (N, DIM) from the last map: a vector v becomes v / sqrt(1 + |v|^2), unsure ones stay short."""
        v = self.project(last.flatten(1))
        return v / (1 + v.square().sum(1, keepdim=True)).sqrt()

    def logits(self, code: torch.Tensor) -> torch.Tensor:
        """Class scores (N, classes) of features."""
        return SHARPNESS * code @ F.normalize(self.head.weight, dim=1).T

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What training reads: class scores, then landmarks twice (from the trunk, from the feature)."""
        last = self.maps(x)[-1]
        code = self.code(last)
        if self.from_trunk is None or self.from_code is None:
            return self.logits(code)
        return torch.cat([self.logits(code), self.from_trunk(last.flatten(1)), self.from_code(code)], dim=1)


def _conv(before: int, width: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())


def as_coder_input(frames: torch.Tensor) -> torch.Tensor:
    """uint8 (N, H, W, 3) -> float32 (N, 3, 64, 64), area-averaged where larger, about zero mean and unit variance."""
    return scaled(frames.permute(0, 3, 1, 2).float().div_(255.0))


def scaled(x: torch.Tensor) -> torch.Tensor:
    """The same from frames (N, 3, H, W) in [0, 1], with gradients."""
    x = x if x.shape[-2:] == (SIDE_PX, SIDE_PX) else F.adaptive_avg_pool2d(x, SIDE_PX)
    return (x - 0.5) * 4


def load_coder(state: Mapping[str, torch.Tensor]) -> FrameCoder:
    """A frozen coder in evaluation mode; heads for landmarks are left out. Raises RuntimeError when it does not fit."""
    model = FrameCoder(len(state["head.weight"]))
    model.load_state_dict({k: v for k, v in state.items() if not k.startswith(("from_", "codebook"))})
    return model.eval().requires_grad_(False)


class FrameAutoencoder(nn.Module):
    """A convolutional autoencoder: frames (N, 3, 64, 64) in [0, 1] <-> latents (N, 4, 8, 8)."""

    def __init__(self) -> None:
        super().__init__()
        a, b, c = WIDTHS[:3]
        self.encoder = nn.Sequential(_conv(3, a, 2), _conv(a, b, 2), _conv(b, c, 2), nn.Conv2d(c, LATENT[0], 3, 1, 1))
        self.decoder = FrameDecoder()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Reconstructions (N, 3, 64, 64) of network input, in [0, 1]."""
        return self.decoder(self.encoder(x))


class FrameDecoder(nn.Module):
    """Latents (N, 4, 8, 8) -> frames (N, 3, 64, 64) in [0, 1]."""

    def __init__(self) -> None:
        super().__init__()
        a, b, c = DECODER
        up = nn.Upsample(scale_factor=2.0)
        self.net = nn.Sequential(
            nn.Conv2d(LATENT[0], a, 3, 1, 1), nn.SiLU(), nn.Conv2d(a, a, 3, 1, 1), nn.SiLU(), up,
            nn.Conv2d(a, b, 3, 1, 1), nn.SiLU(), up, nn.Conv2d(b, c, 3, 1, 1), nn.SiLU(),
            nn.Conv2d(c, 12, 3, 1, 1), nn.PixelShuffle(2))  # four pixels of three colours at once

    def forward(self, latent: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.net(latent))
