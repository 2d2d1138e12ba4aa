"""A linear classifier in closed form: Fisher's discriminant of features, as the start of a network's last layer."""

from __future__ import annotations

import torch


def fisher_head(features: torch.Tensor, targets: torch.Tensor, classes: int, ridge: float = 0.1,
                floor: float = 1e-3) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights (classes, d) and biases (classes,) of the linear discriminant of equally likely classes, float32.

    features: (N, d).  targets: int64 (N,) in 0 .. classes - 1, every class at least once.
    With class means m_k, the mean m of these and the pooled covariance S inside classes, the logit of class k is
    (x - (m_k + m) / 2)' S^-1 (m_k - m): the log-posterior of normal classes of one covariance, up to what all classes
    share. `ridge` times the mean variance, and `floor`, are added to the diagonal of S; the floor keeps features that
    are the same for everybody from being told apart by rounding. Source: Fisher (1936); Hastie, Tibshirani and
    Friedman, The Elements of Statistical Learning, 4.3.
    """
    features = features.double()
    means = torch.stack([features[targets == k].mean(0) for k in range(classes)])  # (classes, d)
    inside = features - means[targets]
    covariance = inside.T @ inside / len(features)
    diagonal = ridge * covariance.diagonal().mean() + floor
    covariance = covariance + diagonal * torch.eye(features.shape[1], dtype=torch.float64)
    middle = means.mean(0)
    weights = torch.linalg.solve(covariance, (means - middle).T).T
    biases = -(weights * (means + middle)).sum(1) / 2
    return weights.float(), biases.float()
