"""The frame-wise U-Net that adversarial anonymizers train: batch norm, bilinear way up, a sigmoid at the end.

It is the U-Net of Ronneberger, Fischer and Brox 2015 in the form that SPAct uses: five levels of 64, 128, 256, 512 and
512 channels, pairs of 3 x 3 convolutions with bias, batch norm and ReLU, and bilinear upsampling with aligned corners.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

LEVELS = 4  # halvings


class SigmoidUNet(nn.Module):
    """(N, 3, H, W) in 0 .. 1 -> the same shape, in 0 .. 1 through a sigmoid; every frame for itself.

    width: channels of the finest level; 64 gives the network of the paper, of 17,267,523 parameters. A side that is
    no multiple of 16 is padded with its last row or column, and cut again.
    """

    def __init__(self, width: int = 64):
        super().__init__()
        widths = [width * min(2**level, 8) for level in range(LEVELS + 1)]  # 64, 128, 256, 512, 512
        self.first = _two_convolutions(3, widths[0], widths[0])
        self.down = nn.ModuleList(_two_convolutions(widths[i], widths[i + 1], widths[i + 1]) for i in range(LEVELS))
        self.up = nn.ModuleList(_two_convolutions(2 * widths[i], widths[i], widths[max(i - 1, 0)])
                                for i in reversed(range(LEVELS)))
        self.last = nn.Conv2d(widths[0], 3, 1)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        height, width = frames.shape[2:]
        step = 2**LEVELS
        levels = [self.first(F.pad(frames, (0, -width % step, 0, -height % step), mode="replicate"))]
        for down in self.down:
            levels.append(down(F.max_pool2d(levels[-1], 2)))
        x = levels.pop()
        for up in self.up:
            x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
            x = up(torch.cat([levels.pop(), x], 1))
        return torch.sigmoid(self.last(x))[:, :, :height, :width]


def _two_convolutions(given: int, inner: int, made: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in ((given, inner), (inner, made)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)
