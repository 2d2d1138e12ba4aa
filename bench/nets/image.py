"""Frame networks (owner of timm) and how uint8 frames become their input."""

from __future__ import annotations

import timm
import torch
from torch import nn


def frame_classifier(architecture: str, classes: int) -> nn.Module:
    """A timm network on (N, 3, H, W) with `classes` logits, random weights; nothing is downloaded."""
    return timm.create_model(architecture, pretrained=False, num_classes=classes)


def as_input(frames: torch.Tensor) -> torch.Tensor:
    """uint8 (N, H, W, 3) -> float32 (N, 3, H, W), about zero mean and unit variance."""
    return frames.permute(0, 3, 1, 2).float().div_(255.0).sub_(0.5).div_(0.25)  # (N, 3, H, W)


def jitter(batch: torch.Tensor, generator: torch.Generator, *, shift_px: int = 3, gain: float = 0.1) -> torch.Tensor:
    """Random mirror, shift (edges repeated) and brightness, one draw per sample; same shape (N, 3, H, W)."""
    n, _, height, width = batch.shape
    flip = torch.rand(n, generator=generator) < 0.5
    batch = torch.where(flip[:, None, None, None], batch.flip(3), batch)
    moves = torch.randint(-shift_px, shift_px + 1, (n, 2), generator=generator)
    rows = (torch.arange(height)[None] + moves[:, :1]).clamp(0, height - 1)  # (N, H)
    columns = (torch.arange(width)[None] + moves[:, 1:]).clamp(0, width - 1)  # (N, W)
    batch = batch.gather(2, rows[:, None, :, None].expand_as(batch))
    batch = batch.gather(3, columns[:, None, None, :].expand_as(batch))
    scale = 1 + gain * (2 * torch.rand(n, generator=generator) - 1)
    return batch * scale[:, None, None, None]
