"""What an attack that learns to tell streams with an event from streams without it fills in, and what it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bench.measures import Noise
from bench.report_measures import Stream


@dataclass(frozen=True)
class Matched:
    """N streams of reports without [0] and with [1] one event, equal in everything else, noise included.

    sums: {branch: float64 (2, N, T, dim)}, noisy window sums in whole steps, NaN where nothing was released.
    scale: {branch: (N, T)}, Laplace scale of the sum, 0 in clear, NaN where nothing was released.
    window: int (N,), where the event lies, if there is one: that the attacker knows.
    """

    sums: Mapping[str, np.ndarray]
    scale: Mapping[str, np.ndarray]
    window: np.ndarray


class Distinguisher(Stream):
    """Learns on public streams of the harness, reads those of the release; knows nothing of what lies beneath."""

    def auc(self, shift: Mapping[str, np.ndarray], noise: Mapping[str, Noise]) -> float:
        raise NotImplementedError("a distinguisher learns; it has no law to compute with")

    def fit(self, public: Matched) -> None:
        """Learn from matched streams of public episodes. Called once for each event."""
        raise NotImplementedError

    def score(self, streams: Matched) -> np.ndarray:
        """(2, N) float, higher = more likely that the event happened; equal where nothing of it was released."""
        raise NotImplementedError
