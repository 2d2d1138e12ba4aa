"""Faces made from their surroundings: a generator that sees what lies outside a mask, and its critic.

After Hukkelås, Mester and Lindseth, "DeepPrivacy", ISVC 2019, and Hukkelås and Lindseth, "DeepPrivacy2", WACV 2023:
a U-Net that reads the picture without the face, and the mask, and fills the hole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

SLOPE = 0.2  # of the leaky rectifiers, below zero


@dataclass(frozen=True)
class InpaintSize:
    """Channels from the finest level down, each level half as large; length of the latent vector."""

    widths: tuple[int, ...]
    latent: int


SIZES = {"tiny": InpaintSize((16, 32, 64, 96, 96), 32), "paper": InpaintSize((64, 128, 256, 512, 512, 512), 512)}


class Inpainter(nn.Module):
    """(N, 3, H, W) in 0 .. 1, masks (N, 1, H, W) of 0 and 1, latent (N, z) -> (N, 3, H, W) in 0 .. 1.

    Masked pixels are multiplied by zero before anything reads them, and the picture that comes back is the input
    outside the mask and made inside it. The latent is added at the coarsest level.
    """

    def __init__(self, size: InpaintSize):
        super().__init__()
        self.size, widths = size, size.widths
        self.first = _layer(4, widths[0], 1)
        self.down = nn.ModuleList(_layer(a, b, 2) for a, b in zip(widths, widths[1:], strict=False))
        self.latent = nn.Linear(size.latent, widths[-1])
        self.middle = _layer(widths[-1], widths[-1], 1)
        self.up = nn.ModuleList(_layer(a + b, b, 1) for a, b in zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.last = nn.Conv2d(widths[0], 3, 3, padding=1)

    def forward(self, pictures: torch.Tensor, masks: torch.Tensor, latent: torch.Tensor) -> torch.Tensor:
        height, width = pictures.shape[2:]
        step = 2 ** len(self.down)
        known = (2 * pictures - 1) * (1 - masks)
        given = F.pad(torch.cat([known, 2 * masks - 1], 1), (0, -width % step, 0, -height % step), mode="replicate")
        levels = [self.first(given)]
        for down in self.down:
            levels.append(down(levels[-1]))
        x = self.middle(levels.pop() + self.latent(latent)[:, :, None, None])
        for up in self.up:
            x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            x = up(torch.cat([x, levels.pop()], 1))
        made = (1 + torch.tanh(self.last(x)[:, :, :height, :width])) / 2
        return pictures * (1 - masks) + made * masks


class Critic(nn.Module):
    """(N, 3, H, W) and masks (N, 1, H, W) -> (N, h, w), higher for what looks filmed. Spectral normalisation."""

    def __init__(self, size: InpaintSize):
        super().__init__()
        layers: list[nn.Module] = []
        given = 4
        for made in size.widths[:4]:
            layers += [spectral_norm(nn.Conv2d(given, made, 4, stride=2, padding=1)), nn.LeakyReLU(SLOPE)]
            given = made
        self.body = nn.Sequential(*layers, spectral_norm(nn.Conv2d(given, 1, 3, padding=1)))

    def forward(self, pictures: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
        return self.body(torch.cat([2 * pictures - 1, 2 * masks - 1], 1))[:, 0]


def _layer(given: int, made: int, stride: int) -> nn.Sequential:
    convolution = nn.Conv2d(given, made, 3, stride=stride, padding=1)
    nn.init.kaiming_normal_(convolution.weight, a=SLOPE)
    nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
    return nn.Sequential(convolution, nn.LeakyReLU(SLOPE))


def box_masks(boxes: np.ndarray, side: int, enlarged: float = 1.0) -> np.ndarray:
    """float32 (N, 1, side, side): 1 on pixels whose square touches a box (N, 4) enlarged about its centre, else 0."""
    boxes = np.asarray(boxes, np.float64)
    middle, half = (boxes[:, :2] + boxes[:, 2:]) / 2, enlarged * (boxes[:, 2:] - boxes[:, :2]) / 2
    low, high = middle - half, middle + half  # (N, 2), x and y
    edge = np.arange(side)
    inside = [(edge + 1 > low[:, k, None]) & (edge < high[:, k, None]) for k in (0, 1)]  # (N, side) each
    return (inside[1][:, :, None] & inside[0][:, None, :])[:, None].astype(np.float32)
