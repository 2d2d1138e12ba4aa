"""Block DCT: pictures as the 64 frequencies of their 8 x 8 px blocks, exactly and back.

The transform is orthonormal (type II on both axes, as in JPEG), so it keeps lengths and its transpose undoes it.
`FrequencyCodec` puts an enlargement and a turn of the colours before it, as MinusFace does.
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from bench.errors import DataError

BLOCK_PX = 8
GREY = 128 / 255  # the picture that has no frequencies, in 0 .. 1
# Rows: Y, Cb, Cr of R, G, B (ITU-T T.871); a grey has no chroma, so the rows sum to 1, 0, 0.
YCBCR = torch.tensor([[0.299, 0.587, 0.114], [-0.299 / 1.772, -0.587 / 1.772, 0.886 / 1.772],
                      [0.701 / 1.402, -0.587 / 1.402, -0.114 / 1.402]], dtype=torch.float64)


def dct_basis() -> torch.Tensor:
    """(64, 1, 8, 8) float32 pictures of unit length, any two at right angles; number 8 u + v has frequency (u, v)."""
    k = torch.arange(BLOCK_PX, dtype=torch.float64)
    lines = math.sqrt(2 / BLOCK_PX) * torch.cos(math.pi * (2 * k + 1) * k[:, None] / (2 * BLOCK_PX))  # (8, 8)
    lines[0] /= math.sqrt(2)
    return torch.einsum("uy,vx->uvyx", lines, lines).reshape(-1, 1, BLOCK_PX, BLOCK_PX).float()


def to_blocks(planes: torch.Tensor) -> torch.Tensor:
    """(N, C, H, W) -> (N, 64 C, H / 8, W / 8): frequency k of colour c is channel 64 c + k. H, W multiples of 8."""
    n, c, height, width = planes.shape
    if height % BLOCK_PX or width % BLOCK_PX or not height or not width:
        raise ValueError(f"{height} x {width} px are not whole blocks of {BLOCK_PX} px")
    found = F.conv2d(planes.reshape(n * c, 1, height, width), dct_basis().to(planes), stride=BLOCK_PX)
    return found.reshape(n, -1, height // BLOCK_PX, width // BLOCK_PX)


def from_blocks(blocks: torch.Tensor) -> torch.Tensor:
    """What `to_blocks` was given: (N, 64 C, h, w) -> (N, C, 8 h, 8 w)."""
    n, channels, height, width = blocks.shape
    planes = F.conv_transpose2d(blocks.reshape(-1, BLOCK_PX**2, height, width), dct_basis().to(blocks),
                                stride=BLOCK_PX)
    return planes.reshape(n, channels // BLOCK_PX**2, height * BLOCK_PX, width * BLOCK_PX)


class FrequencyCodec:
    """Pictures (N, 3, H, W) in 0 .. 1 <-> frequencies (N, 192, h, w) of the picture enlarged `factor` times.

    encode(x) = DCT(YCbCr(up(x) - grey)), up bilinear; h = ceil(factor H / 8), edges repeated to whole blocks.
    picture(c) = down(RGB(DCT^-1(c))) is linear: picture(a + b) = picture(a) + picture(b). With grey added and cut
    to 0 .. 1 it is what one sees. Enlarging and shrinking are bilinear, so together they blur a little.
    Both are local and linear: each is one convolution, whose kernel is read off `enlarged` and `shrunk`.
    """

    channels = 3 * BLOCK_PX**2

    def __init__(self, factor: int):
        if factor not in (2, 4, 8):
            raise ValueError(f"pictures are enlarged 2, 4 or 8 times, not {factor}")
        self.factor, self.step = factor, BLOCK_PX // factor  # a block stands on step x step px of the picture
        reach = self.step + 2  # and on one more px on each side
        near = slice(self.step - 1, self.step - 1 + reach)
        points = torch.zeros(3 * reach**2, 3, 3 * self.step, 3 * self.step)  # around the middle one of 3 x 3 blocks
        points[:, :, near, near] = torch.eye(3 * reach**2).reshape(-1, 3, reach, reach)
        self._encode = self.enlarged(points)[:, :, 1, 1].T.reshape(self.channels, 3, reach, reach)
        waves = torch.eye(self.channels)[:, :, None, None]
        self._picture = self.shrunk(waves).flatten(1).T[:, :, None, None]  # (3 step^2, 192, 1, 1)

    def enlarged(self, pictures: torch.Tensor) -> torch.Tensor:
        """The definition of `encode`, for whole blocks and without grey: slow."""
        large = F.interpolate(pictures, scale_factor=self.factor, mode="bilinear", align_corners=False)
        return to_blocks(torch.einsum("yr,nrhw->nyhw", YCBCR.to(large), large))

    def shrunk(self, frequencies: torch.Tensor) -> torch.Tensor:
        """The definition of `picture`: slow."""
        colours = torch.einsum("ry,nyhw->nrhw", torch.linalg.inv(YCBCR).to(frequencies), from_blocks(frequencies))
        return F.interpolate(colours, scale_factor=1 / self.factor, mode="bilinear", align_corners=False)

    def encode(self, pictures: torch.Tensor) -> torch.Tensor:
        """Raises DataError when a picture is smaller than one block."""
        height, width = pictures.shape[2:]
        if min(height, width) < BLOCK_PX:
            raise DataError(f"Frames of {height} x {width} px are smaller than a block of {BLOCK_PX} x {BLOCK_PX} px.",
                            "The method works on the frequencies of such blocks.", "Use a larger canvas.")
        edges = (1, 1 + -width % self.step, 1, 1 + -height % self.step)
        return F.conv2d(F.pad(pictures - GREY, edges, mode="replicate"), self._encode, stride=self.step)

    def picture(self, frequencies: torch.Tensor, height: int, width: int) -> torch.Tensor:
        """(N, 3, height, width), 0 where the picture is grey."""
        return F.pixel_shuffle(F.conv2d(frequencies, self._picture), self.step)[:, :, :height, :width]
