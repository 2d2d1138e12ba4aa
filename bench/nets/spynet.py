"""Optical flow by a spatial pyramid of small networks, in the manner of SpyNet (Ranjan and Black, CVPR 2017).

A flow (N, 2, H, W) is in px, x first: `warp(b, flow)` looks up b at x + flow(x) and so lies over the picture a that
the flow starts from.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

from bench.errors import Diverged


def lookup_grid(shifts: torch.Tensor) -> torch.Tensor:
    """Shifts (..., H, W, 2) px, x first -> the positions x + shift(x) as grid_sample counts them, same shape.

    Pixel centres lie at the corners; a side of one pixel has position 0. Raises Diverged when a position is not
    finite: looking one up gives ordinary numbers again, and its gradient reads outside the picture.
    """
    height, width = shifts.shape[-3:-1]
    rows = torch.arange(height, dtype=shifts.dtype, device=shifts.device)
    columns = torch.arange(width, dtype=shifts.dtype, device=shifts.device)
    pixels = torch.stack([columns.expand(height, width), rows[:, None].expand(height, width)], dim=2)
    grid = (shifts + pixels) * shifts.new_tensor([2 / max(1, width - 1), 2 / max(1, height - 1)]) - 1
    if not torch.isfinite(grid).all():
        raise Diverged("a position that the alignment looks up is not finite")
    return grid


def warp(pictures: torch.Tensor, flow: torch.Tensor) -> torch.Tensor:
    """(N, C, H, W) looked up bilinearly at x + flow(x); outside the picture its border is repeated."""
    return look_up(pictures, lookup_grid(flow.permute(0, 2, 3, 1)))


def look_up(pictures: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    """(N, C, H, W) read bilinearly at positions (N, h, w, 2) of `lookup_grid` -> (N, C, h, w); the border repeats."""
    return F.grid_sample(pictures, grid, mode="bilinear", padding_mode="border", align_corners=True)


def compose(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Flow a -> c of the flows a -> b and b -> c: first(x) + second(x + first(x))."""
    return first + warp(second, first)


class SpyNet(nn.Module):
    """Flow from pictures `a` to pictures `b`, both (N, 3, H, W) in about 0 .. 1 -> (N, 2, H, W) px.

    Each level doubles the flow of the coarser one, warps b by it and adds what its five 7 x 7 convolutions see is
    missing. Sides need not be powers of two. Last layers start at zero: the first flow is no motion.
    widths: of the four hidden layers; the published network has 32, 64, 32, 16 and six levels.
    """

    def __init__(self, levels: int = 6, widths: Sequence[int] = (32, 64, 32, 16)):
        super().__init__()
        self.levels = nn.ModuleList(_level(widths) for _ in range(levels))

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        pyramid = [((a - 0.45) / 0.225, (b - 0.45) / 0.225)]
        while len(pyramid) < len(self.levels) and min(pyramid[0][0].shape[2:]) >= 4:
            first, second = (F.avg_pool2d(p, 2, ceil_mode=True, count_include_pad=False) for p in pyramid[0])
            pyramid.insert(0, (first, second))
        flow = a.new_zeros(len(a), 2, *pyramid[0][0].shape[2:])
        for level, (first, second) in zip(self.levels[-len(pyramid):], pyramid):
            if flow.shape[2:] != first.shape[2:]:
                flow = 2 * F.interpolate(flow, size=first.shape[2:], mode="bilinear", align_corners=False)
            flow = flow + level(torch.cat([first, warp(second, flow), flow], 1))
        return flow


def _level(widths: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    given = 8  # two pictures and a flow
    for width in widths:
        layers += [nn.Conv2d(given, width, 7, padding=3), nn.ReLU()]
        given = width
    last = nn.Conv2d(given, 2, 7, padding=3)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)  # type: ignore[arg-type]
    return nn.Sequential(*layers, last)
