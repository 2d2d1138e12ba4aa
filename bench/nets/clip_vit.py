"""A video transformer as InternVideo2's encoder is built: every patch of every frame attends to every other.

Patches of single frames (tubelet 1), a class token, position embeddings that start as 3-D sines and cosines, blocks
with RMSNorm, normalised queries and keys and LayerScale, attention pooling, a linear classifier. The names and shapes
of the tensors are those of the published checkpoints, so that one loads (`bench.nets.published`).
Source: Wang et al., InternVideo2 (2024) and its public configuration files.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from bench.sampling import spread
from bench.types import CLIP_FRAMES, Video

COLOUR_MEAN, COLOUR_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of the published preparation


@dataclass(frozen=True)
class ViTSize:
    """What a clip transformer reads, and how wide and deep it is.

    frames: equally spaced frames of a 16-frame clip.  scale: LayerScale at the start; small where weights are loaded.
    pool_heads, embedding: heads and output width of the attention pooling.
    """

    frames: int
    side_px: int
    patch_px: int
    width: int
    depth: int
    heads: int
    hidden: int
    pool_heads: int
    embedding: int
    scale: float = 1e-5

    @property
    def grid(self) -> int:
        """Patches along one side of a frame."""
        return self.side_px // self.patch_px

    @property
    def tokens(self) -> int:
        """Patches of a clip, without the class token."""
        return self.frames * self.grid**2


def _published(width: int, depth: int, heads: int, hidden: int) -> ViTSize:
    return ViTSize(16, 224, 14, width, depth, heads, hidden, pool_heads=16, embedding=768)


SIZES = {
    "tiny": ViTSize(8, 64, 16, width=96, depth=4, heads=4, hidden=192, pool_heads=4, embedding=96, scale=0.1),
    "small": _published(384, 12, 6, 1536),  # InternVideo2-S
    "base": _published(768, 12, 12, 3072),  # InternVideo2-B
    "1B": _published(1408, 40, 16, 6144),  # InternVideo2-1B
}


class Attention(nn.Module):
    """Self-attention over all tokens; queries and keys are RMS-normalised over the whole width before the heads."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.q_norm, self.k_norm = nn.RMSNorm(width, eps=1e-6), nn.RMSNorm(width, eps=1e-6)
        self.proj = nn.Linear(width, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(N, L, C) -> (N, L, C)."""
        query, key, value = self.qkv(tokens).chunk(3, dim=2)  # (N, L, C) each
        mixed = F.scaled_dot_product_attention(_heads(self.q_norm(query), self.heads),
                                               _heads(self.k_norm(key), self.heads), _heads(value, self.heads))
        return self.proj(mixed.transpose(1, 2).flatten(2))


def _heads(tokens: torch.Tensor, heads: int) -> torch.Tensor:
    """(N, L, C) -> (N, heads, L, C / heads)."""
    return tokens.unflatten(2, (heads, -1)).transpose(1, 2)


class Mlp(nn.Module):
    """Two layers with a GELU in between."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(N, L, C) -> (N, L, C)."""
        return self.fc2(F.gelu(self.fc1(tokens)))


class LayerScale(nn.Module):
    """One learned factor a channel."""

    def __init__(self, width: int, start: float):
        super().__init__()
        self.gamma = nn.Parameter(torch.full((width,), start))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(N, L, C) -> (N, L, C)."""
        return tokens * self.gamma


class Block(nn.Module):
    """Attention, then a two-layer network, each normalised before, scaled after and added to its input."""

    def __init__(self, size: ViTSize):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(size.width, eps=1e-6), nn.RMSNorm(size.width, eps=1e-6)
        self.attn, self.mlp = Attention(size.width, size.heads), Mlp(size.width, size.hidden)
        self.ls1, self.ls2 = LayerScale(size.width, size.scale), LayerScale(size.width, size.scale)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(N, L, C) -> (N, L, C)."""
        tokens = tokens + self.ls1(self.attn(self.norm1(tokens)))
        return tokens + self.ls2(self.mlp(self.norm2(tokens)))


class CrossAttention(nn.Module):
    """One query reads all tokens; the biases stand apart from the weights, as in the published files."""

    def __init__(self, width: int, heads: int, out: int):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.q_bias, self.k_bias, self.v_bias = (nn.Parameter(torch.zeros(width)) for _ in range(3))
        self.proj = nn.Linear(width, out)

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """(N, 1, C), (N, L, C), (N, L, C) -> (N, 1, out)."""
        mixed = F.scaled_dot_product_attention(_heads(self.q(query) + self.q_bias, self.heads),
                                               _heads(self.k(key) + self.k_bias, self.heads),
                                               _heads(self.v(value) + self.v_bias, self.heads))
        return self.proj(mixed.transpose(1, 2).flatten(2))


class AttentionPool(nn.Module):
    """The mean token asks all tokens; one vector a clip."""

    def __init__(self, size: ViTSize):
        super().__init__()
        self.norm1_q, self.norm1_k, self.norm1_v = (nn.LayerNorm(size.width) for _ in range(3))
        self.cross_attn = CrossAttention(size.width, size.pool_heads, size.embedding)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(N, L, C) -> (N, embedding)."""
        query = self.norm1_q(tokens.mean(1, keepdim=True))
        return self.cross_attn(query, self.norm1_k(tokens), self.norm1_v(tokens))[:, 0]


class PatchEmbed(nn.Module):
    """One token a patch of a frame; the kernel is one frame deep."""

    def __init__(self, size: ViTSize):
        super().__init__()
        kernel = (1, size.patch_px, size.patch_px)
        self.proj = nn.Conv3d(3, size.width, kernel, stride=kernel)

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """(N, 3, T, S, S) -> (N, T grid^2, C), frame by frame, row by row."""
        return self.proj(clips).flatten(2).transpose(1, 2)


class ClipViT(nn.Module):
    """Joint space-time transformer on (N, 3, T, S, S); `forward` gives logits (N, classes)."""

    def __init__(self, size: ViTSize, classes: int):
        super().__init__()
        self.size = size
        self.patch_embed = PatchEmbed(size)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, size.width))
        positions = sine_positions(size.width, size.frames, size.grid)
        self.pos_embed = nn.Parameter(F.pad(positions, (0, 0, 1, 0))[None])  # (1, 1 + T grid^2, C)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.depth))
        self.clip_projector = AttentionPool(size)
        self.fc_norm = nn.LayerNorm(size.embedding)
        self.head = nn.Linear(size.embedding, classes)
        self._start()

    def _start(self) -> None:
        """Normal weights of deviation 0.02, residual branches smaller the deeper they lie, a small head."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        with torch.no_grad():
            for depth, block in enumerate(self.blocks, start=1):
                for name, weight in block.named_parameters():
                    if name in ("attn.proj.weight", "mlp.fc2.weight"):
                        weight.div_(math.sqrt(2 * depth))
            self.head.weight.mul_(0.001)

    def features(self, clips: torch.Tensor) -> torch.Tensor:
        """(N, 3, T, S, S) -> (N, embedding), what the classifier reads."""
        patches = self.patch_embed(clips)
        tokens = torch.cat([self.cls_token.expand(len(patches), -1, -1), patches], dim=1) + self.pos_embed
        for block in self.blocks:
            tokens = block(tokens)
        return self.fc_norm(self.clip_projector(tokens))

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """(N, 3, T, S, S) -> logits (N, classes)."""
        return self.head(self.features(clips))


def sine_positions(width: int, frames: int, grid: int) -> torch.Tensor:
    """float32 (T grid^2, width): a quarter of the channels tells the frame, 3/8 the column, 3/8 the row.

    Each part holds sines and then cosines of position / 10000^(i / n), i = 0 .. n - 1. `width` divides by 16.
    """
    time, row, column = np.mgrid[:frames, :grid, :grid].reshape(3, -1)
    parts = [_sines(time, width // 4), _sines(column, width * 3 // 8), _sines(row, width * 3 // 8)]
    return torch.from_numpy(np.concatenate(parts, axis=1)).float()


def _sines(position: np.ndarray, channels: int) -> np.ndarray:
    """(L,) -> (L, channels)."""
    angle = position[:, None] / 10000 ** (np.arange(channels // 2) / (channels / 2))
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


# ---- how videos become input ---------------------------------------------------------------------------------------

def clips_of(video: Video, frames: int) -> torch.Tensor:
    """uint8 (K, T, H, W, 3): all 16-frame clips of a video, each as `frames` equally spaced ones."""
    count = max(1, -(-len(video) // CLIP_FRAMES))
    return torch.from_numpy(np.stack([video.frames[clip_frames(len(video), k, frames)] for k in range(count)]))


def clip_frames(unpadded: int, clip: int, frames: int) -> np.ndarray:
    """Indices of equally spaced frames of one 16-frame clip; past its end the last frame is repeated.

    >>> clip_frames(20, 1, 8).tolist()
    [17, 19, 19, 19, 19, 19, 19, 19]
    """
    start = clip * CLIP_FRAMES
    return np.minimum(spread(start + CLIP_FRAMES, start, CLIP_FRAMES, frames), unpadded - 1)


def as_vit_input(clips: torch.Tensor, side_px: int) -> torch.Tensor:
    """uint8 (N, T, H, W, 3) -> float32 (N, 3, T, side, side), colours about zero mean and unit variance."""
    n, t, height, width, _ = clips.shape
    flat = clips.reshape(n * t, height, width, 3).permute(0, 3, 1, 2).float().div_(255.0)  # (N T, 3, H, W)
    if (height, width) != (side_px, side_px):
        flat = F.interpolate(flat, (side_px, side_px), mode="bilinear", antialias=True, align_corners=False)
    mean, deviation = torch.tensor(COLOUR_MEAN), torch.tensor(COLOUR_DEVIATION)
    flat = (flat - mean[:, None, None]) / deviation[:, None, None]
    return flat.unflatten(0, (n, t)).transpose(1, 2).contiguous()  # (N, 3, T, S, S)
