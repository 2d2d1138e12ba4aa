"""Clip networks (owner of pytorchvideo) and how uint8 clips become their input.

`pytorchvideo.transforms` is never imported: it needs a module that torchvision removed.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the package scripts functions when imported
    from pytorchvideo.models.weight_init import init_net_weights
    from pytorchvideo.models.x3d import create_x3d


@dataclass(frozen=True)
class ClipSize:
    """What an X3D reads and how wide and deep it is. X3D-S has width 2 and depth 2.2."""

    frames: int
    side_px: int
    width: float
    depth: float


SIZES = {"tiny": ClipSize(frames=4, side_px=64, width=1.0, depth=1.0),
         "paper": ClipSize(frames=13, side_px=160, width=2.0, depth=2.2)}


def x3d(classes: int, size: ClipSize) -> nn.Module:
    """X3D (Feichtenhofer 2020, pytorchvideo's builder) on (N, 3, T, S, S); returns logits (N, classes)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the builder scripts an activation
        model = create_x3d(input_clip_length=size.frames, input_crop_size=size.side_px, model_num_class=classes,
                           width_factor=size.width, depth_factor=size.depth, dropout_rate=0.0, head_activation=None)
    init_net_weights(model, init_std=0.01)  # as the reference recipe; the default start learns far slower
    return model


def as_clip_input(clips: torch.Tensor, side_px: int) -> torch.Tensor:
    """uint8 (N, T, H, W, 3) -> float32 (N, 3, T, side, side): area-averaged, each clip and channel standardised.

    Standardising takes away most of a clip's light and colour, which say nothing about an expression.
    """
    n, t, height, width, _ = clips.shape
    flat = clips.reshape(n * t, height, width, 3).permute(0, 3, 1, 2).float().div_(255.0)  # (N T, 3, H, W)
    if (height, width) != (side_px, side_px):
        flat = F.adaptive_avg_pool2d(flat, side_px)
    batch = flat.reshape(n, t, 3, side_px, side_px).transpose(1, 2).contiguous()  # (N, 3, T, S, S)
    mean, deviation = batch.mean((2, 3, 4), keepdim=True), batch.std((2, 3, 4), keepdim=True)
    return (batch - mean) / (deviation + 0.0125)


def cut_head(state: dict[str, torch.Tensor], classes: int) -> dict[str, torch.Tensor]:
    """The same X3D or clip transformer with only its first `classes` outputs."""
    last = (".proj.weight", ".proj.bias") if "head.weight" not in state else ("head.weight", "head.bias")
    return {k: v[:classes] if k.endswith(last) else v for k, v in state.items()}


def gain_clips(batch: torch.Tensor, generator: torch.Generator, *, gain: float = 0.1) -> torch.Tensor:
    """Random contrast alone, one draw per clip: for targets that a mirror or shift would make wrong."""
    scale = 1 + gain * (2 * torch.rand(len(batch), generator=generator) - 1)
    return batch * scale[:, None, None, None, None]


def jitter_clips(batch: torch.Tensor, generator: torch.Generator, *, shift_px: int = 2,
                 gain: float = 0.1) -> torch.Tensor:
    """Random mirror, shift and brightness, one draw per clip and equal for its frames; same shape (N, 3, T, H, W)."""
    n, channels, t, height, width = batch.shape
    flip = torch.rand(n, generator=generator) < 0.5
    batch = torch.where(flip[:, None, None, None, None], batch.flip(4), batch)
    moves = torch.randint(-shift_px, shift_px + 1, (n, 2), generator=generator).tolist()
    padded = F.pad(batch.reshape(n, channels * t, height, width), (shift_px,) * 4, mode="replicate")
    rows = [padded[i, :, shift_px + dy: shift_px + dy + height, shift_px + dx: shift_px + dx + width]
            for i, (dy, dx) in enumerate(moves)]
    batch = torch.stack(rows).reshape(n, channels, t, height, width)
    scale = 1 + gain * (2 * torch.rand(n, generator=generator) - 1)
    return batch * scale[:, None, None, None, None]
