"""The Haar wavelet of one level: a picture as one coarse band and three fine ones, exactly and back.

Orthonormal, as the wavelet `db1` of one level is: it keeps lengths, and the same sums with signs turned undo it.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F


def split_bands(pictures: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(N, C, H, W) -> low (N, C, h, w) and high (N, 3, C, h, w), h = ceil(H / 2); edges are repeated once if odd.

    Of pictures in 0 .. 1, low lies in 0 .. 2 and high in -1 .. 1. High: differences between columns, between rows,
    along the diagonal.
    """
    height, width = pictures.shape[2:]
    if height % 2 or width % 2:
        pictures = F.pad(pictures, (0, width % 2, 0, height % 2), mode="replicate")
    a, b = pictures[:, :, 0::2, 0::2], pictures[:, :, 0::2, 1::2]
    c, d = pictures[:, :, 1::2, 0::2], pictures[:, :, 1::2, 1::2]
    return (a + b + c + d) / 2, torch.stack([a - b + c - d, a + b - c - d, a - b - c + d], 1) / 2


def join_bands(low: torch.Tensor, high: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """(N, C, height, width): what `split_bands` was given."""
    columns, rows, diagonal = high.unbind(1)
    top = torch.stack([low + columns + rows + diagonal, low - columns + rows - diagonal], 4)  # (N, C, h, w, 2)
    bottom = torch.stack([low + columns - rows - diagonal, low - columns - rows + diagonal], 4)
    n, c, h, w = low.shape
    joined = torch.stack([top.reshape(n, c, h, 2 * w), bottom.reshape(n, c, h, 2 * w)], 3) / 2  # (N, C, h, 2, 2 w)
    return joined.reshape(n, c, 2 * h, 2 * w)[:, :, :height, :width]
