"""Everything after quantization and before the frame decoder: fusion, clip Transformer, memory between clips."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import nn

from methods.tadp.sizes import BOUNDARY, Size


def positions(frames: int, width: int) -> torch.Tensor:
    """Fixed sinusoidal embedding (frames, width)."""
    rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))  # (width / 2,)
    angle = torch.arange(frames)[:, None] * rate
    return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)  # (frames, width)


class AttentionPool(nn.Module):
    """One vector (N, width) for a clip (N, T, width): a learned query weighs its frames, at first all alike."""

    def __init__(self, width: int):
        super().__init__()
        self.score = nn.Linear(width, 1)
        nn.init.zeros_(self.score.weight)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        return (torch.softmax(self.score(frames), dim=1) * frames).sum(1)


class VideoMemory(nn.Module):
    """m_k = GRU([c_k; b_{k-1}], m_{k-1}) over the clips of one video; m_0 and b_0 are zero, public constants.

    Both summaries are standardised over training clips: what is left of a clip after the noise is a small part of
    them, and most of the rest is the same for all clips.
    """

    def __init__(self, width: int):
        super().__init__()
        self.pool = AttentionPool(width)
        self.standard, self.standard_end = nn.BatchNorm1d(width), nn.BatchNorm1d(width)
        self.gru = nn.GRUCell(2 * width, width)

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """Context of all clips (N, K, T, width) of N videos, in order -> memories (N, K, width)."""
        n, count, _, width = clips.shape
        flat = clips.flatten(0, 1)  # (N K, T, width)
        pooled = self.standard(self.pool(flat)).unflatten(0, (n, count))
        ends = self.standard_end(flat[:, -BOUNDARY:].mean(1)).unflatten(0, (n, count))
        memory = boundary = clips.new_zeros(n, width)
        found = []
        for k in range(count):
            memory = self.gru(torch.cat([pooled[:, k], boundary], dim=1), memory)
            boundary = ends[:, k]
            found.append(memory)
        return torch.stack(found, dim=1)


class Contextualizer(nn.Module):
    """Quantized rows of all clips of a video -> latents of its frames.

    transformer, memory: False leaves that part out (variants a7, a8).
    """

    def __init__(self, size: Size, *, transformer: bool = True, memory: bool = True):
        super().__init__()
        width = size.width
        self.size = size
        self.fuse = nn.Sequential(nn.Linear(2 * size.dim, width), nn.GELU(), nn.Linear(width, width))
        layers = [nn.TransformerEncoderLayer(width, size.heads, 2 * width, dropout=0.0, activation="gelu",
                                             batch_first=True, norm_first=True)
                  for _ in range(size.layers if transformer else 0)]
        self.clip = nn.ModuleList(layers)
        self.memory = VideoMemory(width) if memory else None
        self.mix = nn.Sequential(nn.Linear(width * (2 if memory else 1), 2 * width), nn.GELU(),
                                 nn.Linear(2 * width, width))
        self.project = nn.Linear(width, math.prod(size.latent))
        nn.init.normal_(self.project.weight, std=0.01)
        nn.init.zeros_(self.project.bias)

    def context(self, quantized: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """{branch: (N, K, T, dim)} -> per-frame context h (N, K, T, width), each clip by itself."""
        u = self.fuse(torch.cat([quantized["id"], quantized["expr"]], dim=-1))  # (N, K, T, width)
        n, count, frames, width = u.shape
        h = u.flatten(0, 1)
        if len(self.clip):
            h = h + positions(frames, width).to(h)
        for layer in self.clip:
            h = layer(h)
        return h.unflatten(0, (n, count))

    def remembered(self, h: torch.Tensor) -> torch.Tensor:
        """Context with the memory of the clips up to each one mixed in, (N, K, T, width)."""
        if self.memory is not None:
            m = self.memory(h)[:, :, None].expand_as(h)
            return self.mix(torch.cat([h, m], dim=-1))
        return self.mix(h)

    def latents(self, mixed: torch.Tensor) -> torch.Tensor:
        """Mixed context (..., width) -> latents of frames (..., C, h, w), about zero mean and unit deviation."""
        return self.project(mixed).unflatten(-1, self.size.latent)
