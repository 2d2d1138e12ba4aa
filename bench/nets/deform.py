"""Guided deformable attention (Liang et al., RVRT, NeurIPS 2022): align the clip before with the clip at hand.

It runs on any device: sampled positions are looked up with grid_sample.
"""

from __future__ import annotations

import torch
from torch import nn

from bench.nets.spynet import look_up, lookup_grid, warp

CENTRE = 4.0  # added to the score of the place the flow points to, at the start: 87 % of an even attention of 3 x 3


class GuidedDeformableAttention(nn.Module):
    """Every pixel of the clip at hand attends to sampled positions of both frames of the clip before.

    The positions are a `window` x `window` neighbourhood of where the flow points, each moved by an offset that a
    small network reads off the features, the warped features and the flows, per head and at most `reach` px. The
    attention runs over the positions of both frames together; a two-layer network follows. Offsets and matching read
    the known features of the clip before and not what is carried from it (ours), so that `match` can run for all clips
    of a pass at once and only `lay` clip by clip. matching: channels of queries and keys together, default all.

    It starts as a plain warp along the flow: offsets are zero, values pass unchanged, and a learned leaning of each
    head to each position (ours) starts high at the centre. So what is carried survives many clips from the first
    step on, which a short training needs.
    """

    def __init__(self, width: int, heads: int, *, window: int = 3, reach: float = 10.0, hidden: int = 64,
                 matching: int | None = None):
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
        self.query, self.key = nn.Conv2d(width, matching or width, 1), nn.Conv2d(width, matching or width, 1)
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
        return self.lay(carried, *self.match(here, before, flows))

    def match(self, here: torch.Tensor, before: torch.Tensor,
              flows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Where to read, positions (N, k, head, q, P, H, W, 2), and the weights of what is read, (N, k, head, q, P,
        H, W), which sum to one over k and P. Inputs as in `forward`; what is carried is not read.
        """
        n, _, _, height, width = here.shape
        heads, points = self.heads, self.window**2
        grid = lookup_grid(self.positions(here, before, flows))
        keys = self.key(before.flatten(0, 1)).reshape(n * 2 * heads, -1, height, width)
        read = look_up(keys, grid.view(n * 2 * heads, 2 * points * height, width, 2))
        query = self.query(here.flatten(0, 1))
        query = (query * (query.shape[1] // heads) ** -0.5).reshape(n, 1, 2, heads, -1, 1, height, width)
        query = query.permute(0, 1, 3, 4, 2, 5, 6, 7)  # [n, k, head, c, q, p], one for all k and p
        scores = (read.view(n, 2, heads, -1, 2, points, height, width) * query).sum(3)
        scores = scores + self.leaning.view(heads, 1, points, 1, 1)
        weights = scores.permute(0, 2, 3, 1, 4, 5, 6).flatten(3, 4).softmax(3)  # (N, head, q, 2 P, H, W)
        return grid, weights.view(n, heads, 2, 2, points, height, width).permute(0, 3, 1, 2, 4, 5, 6).contiguous()

    def lay(self, carried: torch.Tensor, grid: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """What is carried (N, 2, C, H, W), read at the positions and summed with the weights of `match`; same shape."""
        n, _, c, height, width = carried.shape
        values = self.value(carried.flatten(0, 1)).reshape(n * 2 * self.heads, -1, height, width)
        read = look_up(values, grid.reshape(len(values), -1, width, 2))
        read = read.view(n, 2, self.heads, -1, 2, self.window**2, height, width)  # [n, k, head, c, q, p]
        summed = (read * weights[:, :, :, None]).sum(5).sum(1)  # (N, head, C / head, q, H, W)
        aligned = self.project(summed.permute(0, 3, 1, 2, 4, 5).reshape(2 * n, c, height, width))
        return (aligned + self.mix(aligned)).view_as(carried)

    def positions(self, here: torch.Tensor, before: torch.Tensor, flows: torch.Tensor) -> torch.Tensor:
        """Shifts (N, k, head, q, P, H, W, 2) px at which frame k is read: flow + neighbourhood + offset."""
        n, _, c, height, width = here.shape
        pairs = before[:, None].expand(n, 2, 2, c, height, width).reshape(-1, c, height, width)
        warped = warp(pairs, flows.flatten(0, 2)).view(n, 2, 2 * c, height, width)
        seen = torch.cat([here, warped, flows.flatten(2, 3)], dim=2).flatten(0, 1)  # (2 N, 3 C + 4, H, W)
        moved = self.reach * torch.tanh(self.offsets(seen))
        moved = moved.reshape(n, 2, 2, self.heads, self.window**2, 2, height, width)
        steps = torch.arange(self.window, dtype=here.dtype, device=here.device) - (self.window - 1) / 2
        around = torch.stack([steps.repeat(self.window), steps.repeat_interleave(self.window)], 1)  # (P, 2), x first
        shifts = moved + (flows[:, :, :, None, None] + around[:, :, None, None])
        return shifts.permute(0, 2, 3, 1, 4, 6, 7, 5).contiguous()
