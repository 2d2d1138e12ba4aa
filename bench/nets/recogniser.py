"""The IR face networks of bench/nets/iresnet.py on other inputs than a face: residues, blocks, many channels."""

from __future__ import annotations

import torch
from torch import nn

from bench.nets.arcface import ArcFaceHead
from bench.nets.iresnet import WIDTHS, IResNet, Unit

NARROW = (16, 32, 64, 128)  # channels of the small network: its stem, then its units
NARROW_GRID, NARROW_DIM = 4, 128


class NarrowIR(nn.Module):
    """Three IR units on a grid of any size: (N, 16, h, w) -> (N, 128), ended as the IR networks are."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(*(Unit(given, made, 2) for given, made in zip(NARROW, NARROW[1:])))
        self.output_layer = nn.Sequential(
            nn.AdaptiveAvgPool2d(NARROW_GRID), nn.BatchNorm2d(NARROW[-1]), nn.Flatten(),
            nn.Linear(NARROW[-1] * NARROW_GRID**2, NARROW_DIM), nn.BatchNorm1d(NARROW_DIM, affine=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.output_layer(self.body(x))


class Recogniser(nn.Module):
    """(N, channels, H, W) -> embeddings (N, d), with the ArcFace head that trains them.

    backbone: "narrow", or "ir18", which needs a grid of 112 x 112.  stride: of the first convolution; the network
    behind it is the same whether it reads a picture or, with stride 1, a grid of frequencies.
    """

    def __init__(self, channels: int, people: int, backbone: str = "narrow", stride: int = 1):
        super().__init__()
        narrow = backbone == "narrow"
        first = NARROW[0] if narrow else WIDTHS[0]
        self.stem = nn.Sequential(nn.Conv2d(channels, first, 3, stride, 1, bias=False), nn.BatchNorm2d(first),
                                  nn.PReLU(first))
        self.trunk: nn.Module = NarrowIR() if narrow else IResNet(backbone)
        if isinstance(self.trunk, IResNet):
            self.trunk.input_layer = nn.Sequential()
        self.head = ArcFaceHead(NARROW_DIM if narrow else 512, people)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.trunk(self.stem(x))

    def loss(self, x: torch.Tensor, people: torch.Tensor) -> torch.Tensor:
        """ArcFace's cross entropy."""
        return self.head.loss(self(x), people)
