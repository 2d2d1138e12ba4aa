"""A frame-wise U-Net (Ronneberger, Fischer and Brox 2015) that changes a picture: five levels, bilinear way up."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

WIDTHS = {"tiny": 16, "paper": 64}  # channels of the finest level
LEVELS = 4  # halvings
SLOPE = 0.1  # of the leaky rectifiers, below zero


class UNet(nn.Module):
    """(N, T, 3, H, W) in about 0 .. 1 -> the same shape; every frame for itself.

    The last layer starts at zero and its output is added to the input, so that training starts from a copy. There is no
    normalisation: absolute levels matter here, and batches of frames of one clip are too alike for it.
    """

    def __init__(self, width: int = 16):
        super().__init__()
        widths = [width * min(2**level, 8) for level in range(LEVELS + 1)]  # 16, 32, 64, 128, 128
        self.first = _two_convolutions(3, widths[0])
        self.down = nn.ModuleList(_two_convolutions(widths[i], widths[i + 1]) for i in range(LEVELS))
        self.up = nn.ModuleList(_two_convolutions(widths[i + 1] + widths[i], widths[i])
                                for i in reversed(range(LEVELS)))
        self.last = nn.Conv2d(widths[0], 3, 1)
        for tensor in self.last.parameters():
            nn.init.zeros_(tensor)

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        frames = clips.flatten(0, 1)  # (N T, 3, H, W)
        height, width = frames.shape[2:]
        step = 2**LEVELS
        padded = F.pad(frames, (0, -width % step, 0, -height % step), mode="replicate")
        levels = [self.first(padded - 0.5)]
        for down in self.down:
            levels.append(down(F.max_pool2d(levels[-1], 2)))
        x = levels.pop()
        for up in self.up:
            x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            x = up(torch.cat([levels.pop(), x], 1))
        return (frames + self.last(x)[:, :, :height, :width]).view_as(clips)


def _two_convolutions(given: int, made: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (given, made):
        convolution = nn.Conv2d(channels, made, 3, padding=1)
        nn.init.kaiming_normal_(convolution.weight, a=SLOPE)
        nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
        layers += [convolution, nn.LeakyReLU(SLOPE, inplace=True)]
    return nn.Sequential(*layers)
