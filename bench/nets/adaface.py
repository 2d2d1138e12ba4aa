"""AdaFace: a margin head that adapts to the norm of the embedding (Kim, Jain, Liu, CVPR 2022, arXiv 2204.00964).

The head is configured as in the paper's runs: m .4, h .333, s 64, t_alpha .01. Norms and their statistics carry no
gradient. Eps and the range of norms are those of its public code
(mk-minchul/AdaFace, head.py).
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from bench.nets.image import frame_classifier

EMBEDDING = 512
EPS = 1e-3
NORMS = (0.001, 100.0)  # norms are clipped to this range


class AdaFaceHead(nn.Module):
    """Logits of embeddings (N, d), not yet of unit length, for P people; the true person's are made harder.

    With k the norm, mu and sigma its running mean and deviation: zhat = clip(h (k - mu) / (sigma + eps), -1, 1),
    own logit = s (cos(theta - m zhat) - m (1 + zhat)), other logits = s cos(theta). Low norms (zhat = -1) get ArcFace's
    margin, middling ones (0) CosFace's, high ones (1) a margin that spares hard cases.
    In training each call first moves mu and sigma by `t_alpha` towards the batch.
    """

    mean: torch.Tensor
    deviation: torch.Tensor

    def __init__(self, dim: int, people: int, *, m: float = 0.4, h: float = 0.333, s: float = 64.0,
                 t_alpha: float = 0.01):
        super().__init__()
        self.m, self.h, self.s, self.t_alpha = m, h, s, t_alpha
        self.kernel = nn.Parameter(F.normalize(nn.init.normal_(torch.empty(dim, people)), dim=0))
        self.register_buffer("mean", torch.tensor(20.0))
        self.register_buffer("deviation", torch.tensor(100.0))

    def forward(self, embeddings: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        norms = embeddings.detach().norm(dim=1, keepdim=True).clamp(*NORMS)  # (N, 1)
        if self.training:
            self._follow(norms)
        zhat = (self.h * (norms - self.mean) / (self.deviation + EPS)).clamp(-1, 1)
        cosine = F.normalize(embeddings, dim=1) @ F.normalize(self.kernel, dim=0)  # (N, P)
        theta = cosine.clamp(-1 + EPS, 1 - EPS).acos()
        own = F.one_hot(targets, self.kernel.shape[1]).to(theta)  # (N, P)
        moved = (theta - own * self.m * zhat).clamp(EPS, math.pi - EPS)
        return self.s * (moved.cos() - own * self.m * (1 + zhat))

    def _follow(self, norms: torch.Tensor) -> None:
        """Exponential moving averages of mean and deviation; a batch of one has no deviation."""
        self.mean.lerp_(norms.mean(), self.t_alpha)
        if len(norms) > 1:
            self.deviation.lerp_(norms.std(), self.t_alpha)


class Matcher(nn.Module):
    """A backbone that gives embeddings (N, d) and the head that trains it. `forward` gives embeddings as they are."""

    def __init__(self, backbone: nn.Module, people: int):
        super().__init__()
        self.backbone, self.head = backbone, AdaFaceHead(EMBEDDING, people)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.backbone(batch)

    def loss(self, embeddings: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Cross entropy of the head's logits."""
        return F.cross_entropy(self.head(embeddings, targets), targets)


class FrameEmbedder(nn.Module):
    """A timm network on (N, 3, H, W) and an embedding layer after it, ended as AdaFace's networks are."""

    def __init__(self, architecture: str):
        super().__init__()
        self.trunk = frame_classifier(architecture, 0)  # pooled features
        self.output_layer = nn.Sequential(nn.Linear(int(self.trunk.num_features), EMBEDDING),  # type: ignore[arg-type]
                                          nn.BatchNorm1d(EMBEDDING, affine=False))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.output_layer(self.trunk(batch))  # (N, EMBEDDING)


@torch.inference_mode()
def embed_frames(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Embeddings (N, d) of prepared frames in evaluation mode, not normalised: their norms tell the picture quality."""
    model.eval()
    return torch.cat([model(part) for part in batch.split(64)])


def mean_of_units(embeddings: torch.Tensor) -> torch.Tensor:
    """(d,) unit vector: the mean of the unit vectors of (N, d), each frame with the same weight (TADP 4.1.8)."""
    return F.normalize(F.normalize(embeddings, dim=1).mean(0), dim=0)
