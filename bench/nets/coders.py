"""Small encoders whose features are few numbers of bounded length, and an autoencoder of frames. 64 px, tiny.

A feature is what a method puts noise on, so its length must be spent on what it is meant to say. The classifier reads
cosines at a low temperature: its loss keeps falling until the classes stand as far apart as the ball allows.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional as F

from bench.nets.clip_expression import WIDTH, frame_trunk

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
        return bounded(self.project(last.flatten(1)))

    def logits(self, code: torch.Tensor) -> torch.Tensor:
        """Class scores (N, classes) of features."""
        return cosine_scores(code, self.head)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What training reads: class scores, then landmarks twice (from the trunk, from the feature)."""
        last = self.maps(x)[-1]
        code = self.code(last)
        if self.from_trunk is None or self.from_code is None:
            return self.logits(code)
        return torch.cat([self.logits(code), self.from_trunk(last.flatten(1)), self.from_code(code)], dim=1)


def bounded(v: torch.Tensor) -> torch.Tensor:
    """v / sqrt(1 + |v|^2): vectors (..., d) drawn into the unit ball."""
    return v / (1 + v.square().sum(-1, keepdim=True)).sqrt()


def cosine_scores(code: torch.Tensor, head: nn.Linear) -> torch.Tensor:
    """Scores (..., classes) of features: their products with unit vectors, one a class, at a low temperature."""
    return SHARPNESS * code @ F.normalize(head.weight, dim=1).T


def _conv(before: int, width: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())


def as_coder_input(frames: torch.Tensor) -> torch.Tensor:
    """uint8 (N, H, W, 3) -> float32 (N, 3, 64, 64), area-averaged where larger, about zero mean and unit variance."""
    return scaled(frames.permute(0, 3, 1, 2).float().div_(255.0))


def scaled(x: torch.Tensor) -> torch.Tensor:
    """The same from frames (N, 3, H, W) in [0, 1], with gradients."""
    x = x if x.shape[-2:] == (SIDE_PX, SIDE_PX) else F.adaptive_avg_pool2d(x, SIDE_PX)
    return (x - 0.5) * 4


def load_coder(state: Mapping[str, torch.Tensor]) -> FrameCoder | ClipCoder:
    """A frozen coder in evaluation mode; heads for landmarks are left out. Raises RuntimeError when it does not fit."""
    model = (ClipCoder if "context.0.weight" in state else FrameCoder)(len(state["head.weight"]))
    model.load_state_dict({k: v for k, v in state.items() if not k.startswith(("from_", "codebook"))})
    return model.eval().requires_grad_(False)


class ClipCoder(nn.Module):
    """Clips (N, 3, T, 64, 64) -> features (N, T, DIM) inside the unit ball, one a frame.

    A frame is read beside the mean, the largest and the smallest features of its clip. What a face looks like at rest
    and what it does are not to be told apart in one frame by a network that has met a few faces; against the rest of
    the clip they are. Classes and marks as in `FrameCoder`.
    """

    def __init__(self, classes: int, marks: int = 0):
        super().__init__()
        self.frame = frame_trunk()
        self.context = nn.Sequential(nn.Linear(4 * WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU())
        self.project = nn.Linear(WIDTH, DIM)
        self.head = nn.Linear(DIM, classes, bias=False)
        self.from_trunk = nn.Linear(WIDTH, marks) if marks else None
        self.from_code = nn.Linear(DIM, marks) if marks else None

    def trunk(self, clips: torch.Tensor) -> torch.Tensor:
        """Features (N, T, WIDTH) of every frame by itself."""
        return self.frame(clips.transpose(1, 2).flatten(0, 1)).unflatten(0, (len(clips), clips.shape[2]))

    def code(self, trunk: torch.Tensor) -> torch.Tensor:
        """Features (N, T, DIM) from those of the trunk."""
        whole = torch.cat([trunk.mean(1), trunk.amax(1), trunk.amin(1)], dim=1)  # (N, 3 WIDTH)
        beside = torch.cat([trunk, whole[:, None].expand(-1, trunk.shape[1], -1)], dim=2)
        return bounded(self.project(self.context(beside.flatten(0, 1)))).unflatten(0, trunk.shape[:2])

    def logits(self, code: torch.Tensor) -> torch.Tensor:
        """Class scores (N, T, classes) of features."""
        return cosine_scores(code, self.head)

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """What training reads, (N T, ...): class scores, landmarks from the trunk, landmarks from the feature."""
        trunk = self.trunk(clips)
        code = self.code(trunk)
        marks = [] if self.from_trunk is None or self.from_code is None else [self.from_trunk(trunk),
                                                                              self.from_code(code)]
        return torch.cat([self.logits(code), *marks], dim=2).flatten(0, 1)


def as_clips(clips: torch.Tensor) -> torch.Tensor:
    """uint8 (N, T, H, W, 3) -> network input (N, 3, T, 64, 64)."""
    return as_coder_input(clips.flatten(0, 1)).unflatten(0, clips.shape[:2]).transpose(1, 2)


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
