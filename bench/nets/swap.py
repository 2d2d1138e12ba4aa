"""MobileFaceSwap's networks: a small U-Net, and what predicts its kernels from the source identity.

After Xu et al., "MobileFaceSwap: A Lightweight Framework for Video Face Swapping", AAAI 2022, and its public inference
code (Seanseattle/MobileFaceSwap, Apache-2.0; written anew). Per source: depthwise kernels come from the identity
network's feature map through convolutions, and the 1 x 1 kernels between them from the identity vector by weight
modulation: W' = W (1 + A e) along the inputs, then W' / |W'| per output.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

SLOPE = 0.1  # of the leaky rectifiers, below zero
MAP_PX = 7  # side of the identity feature map that the predictor reads
TINY = 1e-16


@dataclass(frozen=True)
class SwapSize:
    """Channels. encoder: after each of five halvings.  style: of the predictor.  final: of the two last layers."""

    side_px: int
    encoder: tuple[int, int, int, int, int]
    style: int
    final: tuple[int, int]
    mask: tuple[int, int, int, int]

    @property
    def down(self) -> list[tuple[int, int]]:
        """(in, out) of the encoder's stages."""
        return list(zip((3, *self.encoder), self.encoder, strict=False))

    @property
    def up(self) -> list[tuple[int, int]]:
        """(in, out) of the decoder's four stages; all but the first also read the encoder's stage of their size."""
        *skips, last = self.encoder
        made = skips[::-1]
        given = [last, *(2 * channels for channels in made[:-1])]
        return list(zip(given, made, strict=True))


SIZES = {"tiny": SwapSize(64, (16, 32, 64, 96, 128), 64, (16, 8), (32, 16, 16, 8)),
         "paper": SwapSize(224, (32, 64, 128, 256, 512), 512, (8, 3), (128, 64, 32, 8))}
IDENTITY = 512  # width of the published identity vector and of its feature map


class Kernels(NamedTuple):
    """Kernels of N sources, by stage, encoder first. depth: (N, C, k, k).  point: (N, out, in)."""

    depth: list[torch.Tensor]
    point: list[torch.Tensor]

    def repeated(self, times: int) -> Kernels:
        """Every source's kernels `times` times in a row."""
        return Kernels([k.repeat_interleave(times, 0) for k in self.depth],
                       [k.repeat_interleave(times, 0) for k in self.point])


class _Emit(nn.Module):
    """One step of the predictor: features (N, in, k, k) -> (N, out, k, k), and kernels of `out` channels from them."""

    def __init__(self, given: int, made: int, kernel_px: int):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(given, made, 3, padding=1), nn.BatchNorm2d(made)
        self.weight = nn.Conv2d(made, made, 3, padding=1)
        _start(self.conv)
        _start(self.weight, 0.1 / kernel_px)  # at first nearly the same kernels for everybody
        nn.init.normal_(self.weight.bias, 0, 0.5 / kernel_px)  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = F.leaky_relu(self.norm(self.conv(x)), SLOPE)
        return x, self.weight(x)


class _Modulated(nn.Module):
    """1 x 1 kernels from an identity vector (N, d): (N, out, in), every output's row of unit length."""

    def __init__(self, identity: int, given: int, made: int):
        super().__init__()
        self.style = nn.Linear(identity, given)
        self.weight = nn.Parameter(nn.init.kaiming_normal_(torch.empty(made, given), a=SLOPE))

    def forward(self, identity: torch.Tensor) -> torch.Tensor:
        weight = self.weight * (1 + self.style(identity))[:, None]  # (N, out, in)
        return weight * torch.rsqrt(weight.square().sum(2, keepdim=True) + TINY)


class KernelPredictor(nn.Module):
    """identity (N, d) of unit norm and its feature map (N, d, h, w) -> Kernels of these N sources; published d: 512."""

    def __init__(self, size: SwapSize, identity: int = IDENTITY):
        super().__init__()
        style = size.style
        self.narrow = nn.Identity() if style == identity else nn.Conv2d(identity, style, 1)
        self.first, self.first_norm = nn.Conv2d(style, style, 4), nn.BatchNorm2d(style)  # 7 px -> 4 px
        self.second, self.second_norm = nn.Conv2d(style, style, 2), nn.BatchNorm2d(style)  # 4 px -> 3 px
        down, up = [given for given, _ in reversed(size.down)], [given for given, _ in size.up]
        self.encoder = nn.ModuleList(_Emit(a, b, 4) for a, b in zip([style, *down], down, strict=False))
        self.decoder = nn.ModuleList(_Emit(a, b, 3) for a, b in zip([style, *up], up, strict=False))
        self.point = nn.ModuleList(_Modulated(identity, a, b) for a, b in [*size.down, *size.up])
        _start(self.first)
        _start(self.second)

    def forward(self, identity: torch.Tensor, features: torch.Tensor) -> Kernels:
        x = F.interpolate(features, (MAP_PX, MAP_PX), mode="bilinear", align_corners=False)
        x = F.leaky_relu(self.first_norm(self.first(self.narrow(x))), SLOPE)  # (N, style, 4, 4)
        y = F.leaky_relu(self.second_norm(self.second(x)), SLOPE)  # (N, style, 3, 3)
        down, up = [], []
        for step in self.encoder:
            x, kernels = step(x)
            down.append(kernels)
        for step in self.decoder:
            y, kernels = step(y)
            up.append(kernels)
        return Kernels([*reversed(down), *up], [modulated(identity) for modulated in self.point])


class SwapNet(nn.Module):
    """(N, 3, S, S) in 0 .. 1 and Kernels -> (swapped face, mask): (N, 3, S, S) and (N, 1, S, S), both in 0 .. 1.

    S is a multiple of 32. Only the biases, the last layers and the mask branch are the network's own; every other
    weight comes with `kernels`, one set for the whole batch or one for each picture. The mask branch reads the
    deepest features and passes no gradient to them.
    """

    def __init__(self, size: SwapSize):
        super().__init__()
        stages, own, last = [*size.down, *size.up], size.final, size.up[-1][1]
        self.depth_bias = nn.ParameterList(nn.Parameter(torch.zeros(given)) for given, _ in stages)
        self.point_bias = nn.ParameterList(nn.Parameter(torch.zeros(made)) for _, made in stages)
        self.final = nn.Sequential(
            nn.Conv2d(last, own[0], 1), nn.BatchNorm2d(own[0]), nn.LeakyReLU(SLOPE),
            nn.Conv2d(own[0], own[1], 3, padding=1), nn.BatchNorm2d(own[1]), nn.LeakyReLU(SLOPE),
            nn.Conv2d(own[1], 3, 3, padding=1))
        steps = [size.encoder[-1], *size.mask, 2]
        self.mask = nn.ModuleList(nn.Sequential(
            nn.Conv2d(a, a, 3, padding=1, groups=a), nn.Conv2d(a, b, 1), nn.BatchNorm2d(b), nn.LeakyReLU(SLOPE))
            for a, b in zip(steps, steps[1:], strict=False))
        self.mask_last = nn.Conv2d(2, 1, 3, padding=1)
        for layer in (*self.final, *self.mask.modules()):
            if isinstance(layer, nn.Conv2d):
                _start(layer)

    def forward(self, target: torch.Tensor, kernels: Kernels) -> tuple[torch.Tensor, torch.Tensor]:
        x, skips = 2 * target - 1, []
        for stage in range(5):
            x = self._stage(x, kernels, stage, stride=2)
            skips.append(x)
        mask = x.detach()
        for step in self.mask:
            mask = step(_doubled(mask))
        for stage in range(4):
            x = self._stage(_doubled(x), kernels, 5 + stage, stride=1)
            x = x if stage == 3 else torch.cat([x, skips[3 - stage]], 1)
        swapped = (1 + torch.tanh(self.final(_doubled(x)))) / 2
        return swapped, torch.sigmoid(self.mask_last(mask))

    def _stage(self, x: torch.Tensor, kernels: Kernels, stage: int, stride: int) -> torch.Tensor:
        n, depth, point = len(x), kernels.depth[stage], kernels.point[stage]
        if len(depth) == 1:
            depth, point = depth.expand(n, -1, -1, -1), point.expand(n, -1, -1)
        channels, side = x.shape[1], depth.shape[-1]
        x = F.conv2d(x.reshape(1, n * channels, *x.shape[2:]), depth.reshape(n * channels, 1, side, side),
                     stride=stride, padding=1, groups=n * channels)
        x = x.view(n, channels, *x.shape[2:]) + self.depth_bias[stage][:, None, None]
        made = torch.bmm(point, x.flatten(2)).view(n, -1, *x.shape[2:])
        return F.leaky_relu(made + self.point_bias[stage][:, None, None], SLOPE)


def blended(target: torch.Tensor, swapped: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """mask x swapped + (1 - mask) x target, all (N, c, S, S)."""
    return mask * swapped + (1 - mask) * target


def _start(convolution: nn.Conv2d, gain: float = 1.0) -> None:
    """He initialisation for leaky rectifiers, times `gain`; biases at zero."""
    nn.init.kaiming_normal_(convolution.weight, a=SLOPE)
    with torch.no_grad():
        convolution.weight.mul_(gain)
    nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]


def _doubled(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)


def sized(profile: str, side_px: int) -> SwapSize:
    """The network of a profile for a canvas; tiny nets read the canvas as it is, up to the next multiple of 32."""
    size = SIZES[profile]
    return replace(size, side_px=max(32, -(-side_px // 32) * 32)) if profile == "tiny" else size
