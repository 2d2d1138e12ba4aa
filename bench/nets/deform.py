"""Guided deformable attention (Liang et al., RVRT, NeurIPS 2022): align the clip before with the clip at hand.

It runs on any device: sampled positions are looked up with grid_sample.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from bench.nets.spynet import lookup_grid, warp

CENTRE = 4.0  # added to the score of the place the flow points to, at the start: 87 % of an even attention of 3 x 3


class GuidedDeformableAttention(nn.Module):
    """Every pixel of the clip at hand attends to sampled positions of both frames of the clip before.

    The positions are a `window` x `window` neighbourhood of where the flow points, each moved by an offset that a
    small network reads off the features, the warped features and the flows, per head and at most `reach` px. The
    attention runs over the positions of both frames together; a two-layer network follows.

    It starts as a plain warp along the flow: offsets are zero, values pass unchanged, and a learned leaning of each
    head to each position (ours) starts high at the centre. So what is carried survives many clips from the first
    step on, which a short training needs.
    """

    def __init__(self, width: int, heads: int, *, window: int = 3, reach: float = 10.0, hidden: int = 64):
        super().__init__()
        self.heads, self.window, self.reach = heads, window, reach
        self.offsets = nn.Sequential(
            nn.Conv2d(3 * width + 4, hidden, 1), nn.LeakyReLU(0.1),
            nn.Conv2d(hidden, hidden, 3, padding=1), nn.LeakyReLU(0.1),
            nn.Conv2d(hidden, hidden, 3, padding=1), nn.LeakyReLU(0.1),
            nn.Conv2d(hidden, 2 * heads * window**2 * 2, 3, padding=1))
        leaning = torch.zeros(heads, window**2)
        leaning[:, window**2 // 2] = CENTRE
        self.leaning = nn.Parameter(leaning)
        self.query, self.key = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.value, self.project = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.mix = nn.Sequential(nn.Conv2d(width, 2 * width, 1), nn.GELU(), nn.Conv2d(2 * width, width, 1))
        for layer in (self.offsets[-1], self.mix[-1]):
            nn.init.zeros_(layer.weight)  # type: ignore[arg-type]
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
        for layer in (self.value, self.project):
            nn.init.dirac_(layer.weight)
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def forward(self, here: torch.Tensor, before: torch.Tensor, carried: torch.Tensor,
                flows: torch.Tensor) -> torch.Tensor:
        """What is carried, laid over the clip at hand: (N, 2, C, H, W).

        here, before: (N, 2, C, H, W) features of one kind of this clip and of the clip before, for the matching.
        carried: (N, 2, C, H, W) what the recurrence carries from the clip before, the values.
        flows: (N, 2, 2, 2, H, W) px, [n, q, k] from frame q of this clip to frame k of the clip before.
        """
        n, _, c, height, width = here.shape
        grid = lookup_grid(self.positions(here, carried, flows).flatten(0, 5)).view(n, 2, 2, self.heads, -1, height,
                                                                                    width, 2)  # [n, q, k, head, p]
        keys, values = self._sample(self.key(before.flatten(0, 1)), self.value(carried.flatten(0, 1)), grid)
        query = self.query(here.flatten(0, 1)).view(n, 2, self.heads, -1, 1, height, width)
        scores = (query * keys).sum(3) * (c // self.heads) ** -0.5  # (N, q, head, 2 P, H, W)
        scores = scores + self.leaning.repeat(1, 2)[:, :, None, None]
        attended = (scores.softmax(3)[:, :, :, None] * values).sum(4)  # (N, q, head, C / head, H, W)
        aligned = self.project(attended.reshape(2 * n, c, height, width))
        return (aligned + self.mix(aligned)).view_as(here)

    def positions(self, here: torch.Tensor, carried: torch.Tensor, flows: torch.Tensor) -> torch.Tensor:
        """Displacements (N, q, k, head, P, 1, 2, H, W) px at which frame k is read: flow + neighbourhood + offset."""
        n, _, c, height, width = here.shape
        pairs = carried[:, None].expand(n, 2, 2, c, height, width).reshape(-1, c, height, width)
        warped = warp(pairs, flows.flatten(0, 2)).view(n, 2, 2 * c, height, width)
        seen = torch.cat([here, warped, flows.flatten(2, 3)], dim=2).flatten(0, 1)  # (2 N, 3 C + 4, H, W)
        moved = self.reach * torch.tanh(self.offsets(seen))
        steps = torch.arange(self.window, dtype=here.dtype, device=here.device) - (self.window - 1) / 2
        around = torch.stack([steps.repeat(self.window), steps.repeat_interleave(self.window)], 1)  # (P, 2), x first
        return (moved.view(n, 2, 2, self.heads, self.window**2, 1, 2, height, width)
                + flows[:, :, :, None, None, None] + around[:, None, :, None, None])

    def _sample(self, keys: torch.Tensor, values: torch.Tensor,
                grid: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Two (2 N, C, H, W) read at the grid -> two (N, q, head, C / head, 2 P, H, W)."""
        n, _, _, heads, points, height, width, _ = grid.shape
        both = torch.cat([keys.view(n, 2, heads, -1, height, width), values.view(n, 2, heads, -1, height, width)], 3)
        where = grid.permute(0, 2, 3, 1, 4, 5, 6, 7).reshape(n * 2 * heads, 2 * points * height, width, 2)
        read = F.grid_sample(both.flatten(0, 2), where, mode="bilinear", padding_mode="border", align_corners=True)
        read = read.view(n, 2, heads, -1, 2, points, height, width)  # [n, k, head, c, q, p]
        read = read.permute(0, 4, 2, 3, 1, 5, 6, 7).flatten(4, 5)  # (N, q, head, 2 C / head, 2 P, H, W)
        return tuple(read.chunk(2, dim=3))  # type: ignore[return-value]
