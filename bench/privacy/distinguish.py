"""Statistics that tell which of two known inputs was released, with what a white-box auditor owns.

The auditor owns both clipped inputs, so that the best direction is known (matched filter); energies see a scale that
is wrong. Three weights and a threshold are fitted on the training half, nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bench.errors import ConfigError


def matched_filter(released: Mapping[str, np.ndarray], first: Mapping[str, np.ndarray],
                   second: Mapping[str, np.ndarray], floor: Mapping[str, float]) -> np.ndarray:
    """(n,) sum over branches of <released, second - first> / floor^2; released (n, rows, dim), inputs (rows, dim).

    Higher = more likely `second`. It is the log-likelihood ratio up to a constant when the scale is the floor.
    """
    parts = [np.einsum("nrd,rd->n", released[b], (second[b] - first[b]) / floor[b] ** 2) for b in sorted(released)]
    return np.sum(parts, axis=0)  # (n,)


def energies(released: Mapping[str, np.ndarray]) -> np.ndarray:
    """(n, branches) squared norm of each branch, branches in order of name."""
    return np.stack([np.einsum("nrd,nrd->n", released[b], released[b]) for b in sorted(released)], axis=1)


def statistics(released: Mapping[str, np.ndarray], first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray],
               floor: Mapping[str, float]) -> np.ndarray:
    """(n, 1 + branches): matched filter, then energies."""
    return np.column_stack([matched_filter(released, first, second, floor), energies(released)])


@dataclass(frozen=True)
class Distinguisher:
    """Says `second` where features @ weights exceeds the threshold. No abstention."""

    weights: np.ndarray
    threshold: float

    def says_second(self, features: np.ndarray) -> np.ndarray:
        """(n,) bool."""
        return features @ self.weights > self.threshold

    def errors(self, first: np.ndarray, second: np.ndarray) -> tuple[int, int]:
        """(false positives among `first`, false negatives among `second`) on held-out features (n, F)."""
        return int(self.says_second(first).sum()), int((~self.says_second(second)).sum())

    def right(self, features: np.ndarray, bits: np.ndarray) -> int:
        """Right guesses of secret bits (n,), true = `second`, on held-out features (n, F)."""
        return int((self.says_second(features) == np.asarray(bits, dtype=bool)).sum())


def fit(first: np.ndarray, second: np.ndarray) -> Distinguisher:
    """Fisher's discriminant of features (n, F) of the training half, threshold halfway between the means.

    Raises ConfigError on fewer than two releases a side or non-finite features.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if min(len(a), len(b)) < 2 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ConfigError("The training half of an audit has too few releases or values that are not finite.",
                          "Weights and threshold are fitted on it.", "Ask for more releases.")
    scale = np.concatenate([a - a.mean(0), b - b.mean(0)]).std(0)
    scale[scale == 0] = 1.0
    a, b = a / scale, b / scale
    within = np.atleast_2d(np.cov(a, rowvar=False) + np.cov(b, rowvar=False)) / 2
    weights = np.linalg.pinv(within, rcond=1e-10) @ (b.mean(0) - a.mean(0))
    middle = float((a.mean(0) + b.mean(0)) @ weights / 2)
    return Distinguisher(weights / scale, middle)
