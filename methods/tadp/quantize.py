"""Soft quantization: released rows become mixtures of the entries of a frozen, public codebook."""

from __future__ import annotations

import torch
from torch import nn


class SoftQuantizer(nn.Module):
    """softmax(-|r - c|^2 / tau) over codebook entries c, where r is the released row times a fixed factor.

    entries: (K, d) in the coordinates of the features.  rescale: a_b = 1 / median training norm; it acts on rows and
    entries alike.  temperature: tau_b. Nothing here is trained.
    """

    def __init__(self, entries: torch.Tensor, rescale: float, temperature: float):
        super().__init__()
        self.rescale, self.temperature = rescale, temperature
        self.register_buffer("entries", entries * rescale)

    def assignment(self, rows: torch.Tensor) -> torch.Tensor:
        """Weights (..., K) of the entries for released rows (..., d); they add up to 1."""
        entries: torch.Tensor = self.entries  # type: ignore[assignment]
        scaled = rows * self.rescale
        squared = scaled.square().sum(-1, keepdim=True) - 2 * scaled @ entries.T + entries.square().sum(-1)
        return torch.softmax(-squared / self.temperature, dim=-1)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Quantized rows (..., d), in rescaled coordinates."""
        return self.assignment(rows) @ self.entries


class Rescale(nn.Module):
    """Variant a3: the rescaled released rows as they are."""

    def __init__(self, rescale: float):
        super().__init__()
        self.rescale = rescale

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows * self.rescale
