"""A U-Net that turns feature maps into feature maps of the same shape, without normalisation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F


class FeatureUNet(nn.Module):
    """(N, channels, h, w) -> the same shape. Two 3 x 3 convolutions a level, ReLU, halving by maximum.

    The way up is a transposed convolution (3 x 3, stride 2) beside what the way down left. widths: channels of each
    level, finest first; (64, 128, 256, 512, 1024) on 192 channels is the generator of MinusFace: 34,634,624 numbers.
    """

    def __init__(self, channels: int, widths: Sequence[int]):
        super().__init__()
        self.first = _pair(channels, widths[0])
        self.down = nn.ModuleList(_pair(fine, coarse) for fine, coarse in zip(widths, widths[1:]))
        pairs = list(zip(widths, widths[1:]))[::-1]
        self.grow = nn.ModuleList(nn.ConvTranspose2d(coarse, fine, 3, stride=2, padding=1, output_padding=1)
                                  for fine, coarse in pairs)
        self.up = nn.ModuleList(_pair(2 * fine, fine) for fine, _ in pairs)
        for module in self.modules():  # levels stay as large as they come, which no normalisation sees to
            if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
                nn.init.kaiming_normal_(module.weight)
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]
        self.last = nn.Conv2d(widths[0], channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        height, width = x.shape[2:]
        step = 2 ** len(self.down)
        if height % step or width % step:
            x = F.pad(x, (0, -width % step, 0, -height % step), mode="replicate")
        levels = [self.first(x)]
        for down in self.down:
            levels.append(down(F.max_pool2d(levels[-1], 2)))
        x = levels.pop()
        for grow, up in zip(self.grow, self.up):
            x = up(torch.cat([levels.pop(), grow(x)], 1))
        return self.last(x)[:, :, :height, :width]


def _pair(given: int, made: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(given, made, 3, padding=1), nn.ReLU(inplace=True),
                         nn.Conv2d(made, made, 3, padding=1), nn.ReLU(inplace=True))
