"""Attention inside space-time windows: the blocks of RVRT, after Swin (Liu et al., ICCV 2021) and VRT."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import nn
from torch.nn import functional as F

Sizes = tuple[int, int, int]  # frames, rows, columns
START = 0.2  # of the last norm of a direct backbone: what attention adds is small at first


class Backbone(nn.Module):
    """(N, T, C_in, H, W) -> (N, T, C, H, W): a spatial convolution, then residual groups of window attention.

    groups: of the input convolution. turn: 1 = the first layer has the shifted windows. direct (ours): the result of
    the convolution is added to the output, around the two norms, which alone would forget how strong it was.
    T, H and W must be multiples of the window.
    """

    def __init__(self, given: int, width: int, *, blocks: int, depth: int, heads: int, window: Sizes, groups: int = 1,
                 turn: int = 0, direct: bool = False):
        super().__init__()
        self.direct = direct
        self.inside = nn.Conv2d(given, width, 3, padding=1, groups=groups)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.Sequential(*(ResidualGroup(width, depth, heads, window, turn) for _ in range(blocks)))
        self.end = nn.LayerNorm(width)
        if direct:
            nn.init.constant_(self.end.weight, START)

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        return self.work(self.read(clips))

    def read(self, clips: torch.Tensor, first: int = 0) -> torch.Tensor:
        """The input convolution of the channels from `first` on, as if all others were zero: (N, T, C, H, W).

        So what is known beforehand can be read for all frames at once. The bias belongs to channel 0.
        """
        convolution, flat = self.inside, clips.flatten(0, 1)
        bias = None if first else convolution.bias
        weight, last = convolution.weight, convolution.in_channels - first - flat.shape[1]
        if convolution.groups == 1:
            weight = weight[:, first:first + flat.shape[1]]
        else:
            flat = F.pad(flat, (0, 0, 0, 0, first, last))
        made = F.conv2d(flat, weight, bias, padding=1, groups=convolution.groups)
        return made.view(*clips.shape[:2], *made.shape[1:])

    def work(self, read: torch.Tensor) -> torch.Tensor:
        """What follows the input convolution; same shape."""
        x = read.permute(0, 1, 3, 4, 2)  # (N, T, H, W, C)
        made = self.end(self.blocks(self.norm(x)))
        return (x + made if self.direct else made).permute(0, 1, 4, 2, 3)


class ResidualGroup(nn.Module):
    """x + linear(layers(x)) on (N, T, H, W, C); every second layer has its windows shifted by half."""

    def __init__(self, width: int, depth: int, heads: int, window: Sizes, turn: int = 0):
        super().__init__()
        self.layers = nn.Sequential(*(Layer(width, heads, window, shifted=bool((i + turn) % 2)) for i in range(depth)))
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.linear(self.layers(x))


class Layer(nn.Module):
    """One transformer layer on (N, T, H, W, C): window attention, then a two-layer network, both residual."""

    def __init__(self, width: int, heads: int, window: Sizes, shifted: bool):
        super().__init__()
        self.window, self.shifted = window, shifted
        self.norm, self.attention = nn.LayerNorm(width), WindowAttention(width, heads, window)
        self.mix = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(),
                                 nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sizes: Sizes = (x.shape[1], x.shape[2], x.shape[3])
        shift = tuple(w // 2 if self.shifted and s > w else 0 for s, w in zip(sizes, self.window))
        y = torch.roll(self.norm(x), [-s for s in shift], (1, 2, 3)) if any(shift) else self.norm(x)
        mask = shift_mask(sizes, self.window, shift).to(y) if any(shift) else None  # type: ignore[arg-type]
        y = self.attention(cut(y, self.window), mask)
        y = join(y, sizes, self.window)
        x = x + (torch.roll(y, shift, (1, 2, 3)) if any(shift) else y)
        return x + self.mix(x)


class WindowAttention(nn.Module):
    """Multi-head attention among the L pixels of a window, with a learned bias of their relative position."""

    def __init__(self, width: int, heads: int, window: Sizes):
        super().__init__()
        self.heads = heads
        self.queries_keys_values, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        spans = [2 * w - 1 for w in window]
        self.bias = nn.Parameter(torch.empty(spans[0] * spans[1] * spans[2], heads))
        nn.init.normal_(self.bias, std=0.02)
        self.relative: torch.Tensor
        self.register_buffer("relative", relative_index(window), persistent=False)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """(windows, L, C); mask (windows of one video, L, L) is added to the scores."""
        count, length, width = x.shape
        q, k, v = self.queries_keys_values(x).view(count, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(2, 3)  # (windows, heads, L, L)
        scores = scores + self.bias[self.relative].permute(2, 0, 1)
        if mask is not None:
            scores = (scores.view(-1, len(mask), self.heads, length, length) + mask[:, None]).view_as(scores)
        return self.project((scores.softmax(3) @ v).transpose(1, 2).reshape(count, length, width))


def relative_index(window: Sizes) -> torch.Tensor:
    """(L, L) whole numbers: which entry of the bias table two pixels of a window share."""
    axes = torch.meshgrid(*(torch.arange(w) for w in window), indexing="ij")
    places = torch.stack([a.flatten() for a in axes])  # (3, L)
    apart = places[:, :, None] - places[:, None] + torch.tensor(window)[:, None, None] - 1  # (3, L, L), from 0 on
    return (apart[0] * (2 * window[1] - 1) + apart[1]) * (2 * window[2] - 1) + apart[2]


def cut(x: torch.Tensor, window: Sizes) -> torch.Tensor:
    """(N, T, H, W, C) -> (windows, L, C), the windows of one video in a row."""
    n, t, height, width, c = x.shape
    a, b, d = window
    x = x.view(n, t // a, a, height // b, b, width // d, d, c).permute(0, 1, 3, 5, 2, 4, 6, 7)
    return x.reshape(-1, a * b * d, c)


def join(windows: torch.Tensor, sizes: Sizes, window: Sizes) -> torch.Tensor:
    """What `cut` took apart, (N, T, H, W, C) again."""
    (t, height, width), (a, b, d) = sizes, window
    x = windows.view(-1, t // a, height // b, width // d, a, b, d, windows.shape[-1])
    return x.permute(0, 1, 4, 2, 5, 3, 6, 7).reshape(-1, t, height, width, windows.shape[-1])


@lru_cache(maxsize=32)
def shift_mask(sizes: Sizes, window: Sizes, shift: Sizes) -> torch.Tensor:
    """(windows, L, L): -100 between pixels that only the roll brought into one window, else 0."""
    places = [_region(size, w, s) for size, w, s in zip(sizes, window, shift)]
    regions = places[0][:, None, None] * 9 + places[1][:, None] * 3 + places[2]  # (T, H, W)
    inside = cut(regions[None, ..., None].float(), window)[..., 0]  # (windows, L)
    return (inside[:, :, None] != inside[:, None]).float() * -100.0


def _region(size: int, window: int, shift: int) -> torch.Tensor:
    """(size,) 0, 1 or 2: before the last window, in it, or rolled in from the other end."""
    places = torch.arange(size)
    return (places >= size - window).long() + (places >= size - shift).long() if shift else torch.zeros_like(places)
