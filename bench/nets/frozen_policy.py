"""A trained policy as it is played: plain float64, the same on every machine, and nothing heavy to load."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def logits(weights: Mapping[str, np.ndarray], observed: np.ndarray) -> np.ndarray:
    """Scores (B, A) of the actions from observations (B, n): two hidden layers of tanh (see bench.nets.ppo)."""
    hidden = np.tanh(observed @ weights["0.weight"].T + weights["0.bias"])
    hidden = np.tanh(hidden @ weights["2.weight"].T + weights["2.bias"])
    return hidden @ weights["4.weight"].T + weights["4.bias"]
