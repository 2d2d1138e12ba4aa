"""ArcFace: a head that asks for an angle between people (Deng et al., CVPR 2019, arXiv 1801.07698)."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F


class ArcFaceHead(nn.Module):
    """Logits (N, P) of embeddings (N, d) for P people; the true person's angle theta is widened by m.

    Own logit s cos(theta + m); where theta > pi - m, s (cos(theta) - m sin(m)), which still falls with theta. Other
    logits s cos(theta). Without targets there is no margin. s 64 and m .5 are the paper's.
    """

    def __init__(self, dim: int, people: int, *, s: float = 64.0, m: float = 0.5):
        super().__init__()
        self.s, self.m = s, m
        self.kernel = nn.Parameter(nn.init.normal_(torch.empty(people, dim), std=0.01))

    def forward(self, embeddings: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        cosine = F.linear(F.normalize(embeddings, dim=1), F.normalize(self.kernel, dim=1)).clamp(-1, 1)  # (N, P)
        if targets is None:
            return self.s * cosine
        own = cosine.gather(1, targets[:, None])  # (N, 1)
        sine = (1 - own**2).clamp_min(1e-9).sqrt()
        wider = torch.where(own > math.cos(math.pi - self.m), own * math.cos(self.m) - sine * math.sin(self.m),
                            own - self.m * math.sin(math.pi - self.m))
        return self.s * cosine.scatter(1, targets[:, None], wider)

    def loss(self, embeddings: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Cross entropy of the logits with margin."""
        return F.cross_entropy(self(embeddings, targets), targets)
