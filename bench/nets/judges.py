"""Frozen frame networks that a method learns against: their feature maps and unit embeddings, with gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from bench.errors import DataError
from bench.nets.image import frame_classifier
from bench.nets.states import fill


class Judge:
    """A frozen classifier of frames (timm), seen as what it says before it decides."""

    def __init__(self, network: Any):
        self.network = network.eval().requires_grad_(False)
        self.width = int(self.network.num_features)  # d of its embeddings

    def maps(self, batch: torch.Tensor) -> list[torch.Tensor]:
        """Feature maps of (N, 3, H, W) in 0 .. 1, finest first: five of a timm ResNet, (N, C, h, w) each."""
        return self.network.forward_intermediates(scaled(batch), intermediates_only=True)

    def vector(self, maps: list[torch.Tensor]) -> torch.Tensor:
        """(N, d) unit embeddings, from these maps."""
        return F.normalize(self.network.forward_head(maps[-1], pre_logits=True), dim=1)

    def embed(self, batch: torch.Tensor) -> torch.Tensor:
        """(N, d) unit embeddings of (N, 3, H, W) in 0 .. 1."""
        return self.vector(self.maps(batch))


def trunk(architecture: str, tensors: Mapping[str, Any], what: str) -> nn.Module:
    """The timm network that an asset holds, in evaluation mode. Raises DataError for another architecture."""
    if "fc.bias" not in tensors:
        raise DataError(f"The weights of {what} have no classifier.", "They are of another architecture.",
                        f"Give the weights of a {architecture}.")
    return fill(frame_classifier(architecture, len(tensors["fc.bias"])), tensors, what)


def scaled(batch: torch.Tensor) -> torch.Tensor:
    """As bench.nets.image.as_input does it, from (N, 3, H, W) in 0 .. 1."""
    return (batch - 0.5) / 0.25


def unlike(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Mean squared distance of two maps (N, C, h, w) whose positions are scaled to unit length; 0 .. 4."""
    return (F.normalize(first, dim=1) - F.normalize(second, dim=1)).square().sum(1).mean()
