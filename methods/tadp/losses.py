"""The six objectives of TADP's training. Means over frames and pairs, so that no weight depends on a clip's length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional as F

WEIGHT = 0.5  # every lambda of the paper; lambda_temp multiplies the sum of the inner three
NAMES = ("expression", "reconstruction", "perceptual", "intra", "inter", "boundary")
Maps = Sequence[torch.Tensor]


@dataclass
class Objective:
    """Values of the six losses of one batch; inter and boundary are None for single clips."""

    expression: torch.Tensor
    reconstruction: torch.Tensor
    perceptual: torch.Tensor
    intra: torch.Tensor
    inter: torch.Tensor | None = None
    boundary: torch.Tensor | None = None

    def total(self) -> torch.Tensor:
        """The weighted sum that training follows."""
        temporal = WEIGHT * self.intra
        for part in (self.inter, self.boundary):
            if part is not None:
                temporal = temporal + WEIGHT * part
        return WEIGHT * (self.expression + self.reconstruction + self.perceptual + temporal)


def weighted(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean of values (N, ...) over the frames where mask (N,) is 1."""
    per_frame = values.flatten(1).mean(1) if values.ndim > 1 else values
    return (per_frame * mask).sum() / mask.sum().clamp_min(1.0)


def expression_loss(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Cross entropy (N, classes) of a fixed recogniser on made frames, against the source's label (N,)."""
    return weighted(F.cross_entropy(logits, labels, reduction="none"), mask)


def reconstruction_loss(made: torch.Tensor, source: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """L1 of frames (N, 3, H, W) in [0, 1]."""
    return weighted((made - source).abs(), mask)


def perceptual_loss(made: Maps, source: Maps, mask: torch.Tensor) -> torch.Tensor:
    """Squared distance of the maps of a fixed network, one mean a stage, the stages averaged."""
    return torch.stack([weighted((a - b).square(), mask) for a, b in zip(made, source, strict=True)]).mean()


def intra_loss(quantized: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Squared steps between neighbouring quantized rows {branch: (N, K, T, d)} of a clip, branches added."""
    return torch.stack([(q[:, :, 1:] - q[:, :, :-1]).square().sum(-1).mean() for q in quantized.values()]).sum()


def inter_loss(quantized: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Squared step from the last row of a clip to the first of the next, branches added."""
    return torch.stack([(q[:, 1:, 0] - q[:, :-1, -1]).square().sum(-1).mean() for q in quantized.values()]).sum()


def boundary_loss(first: Maps, last: Maps) -> torch.Tensor:
    """L1 between maps of the first made frame of a clip and the last of the clip before, the stages averaged."""
    return torch.stack([(a - b).abs().mean() for a, b in zip(first, last, strict=True)]).mean()
