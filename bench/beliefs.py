"""What released values tell about a stream, by public statistics alone: a filter over windows (post-processing).

Every count is a Markov chain over bins of public windows, every sign and weather one over its four states; a noisy
release weighs the bins by its Laplace law. Nothing private enters but values that are already released.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bench.traffic import EXPERTS, columns

BINS = 32
_FLAT = 0.5  # a count's transitions start from this much, spread over near bins
_NEAR = 2.0  # bins
COUNTED = tuple(e for e in EXPERTS if not e.label)
NAMED = tuple(e for e in EXPERTS if e.label)
COUNTS = [c for e in COUNTED for c in range(columns(e.name).start, columns(e.name).stop)]


@dataclass(frozen=True)
class Belief:
    """Probabilities of B streams: counts (B, 4, BINS) over the bins of each count, states (B, 2, 4)."""

    counts: np.ndarray
    states: np.ndarray


class Beliefs:
    """Fitted on public windows; then start, and for each window `seen` and `ahead`."""

    def __init__(self, arrays: Mapping[str, np.ndarray] | None = None):
        self.arrays: dict[str, np.ndarray] = dict(arrays or {})

    def fit(self, truth: np.ndarray, clipped: np.ndarray) -> None:
        """truth, clipped: (N, T, 12) window means of public episodes, as they are and as a release would clip them."""
        of_counts = [_chain(truth[..., c], clipped[..., c]) for c in COUNTS]
        of_states = [_states(truth[..., columns(e.name)], clipped[..., columns(e.name)]) for e in NAMED]
        for found in (of_counts, of_states):
            for key in found[0]:
                self.arrays[key] = np.stack([one[key] for one in found])

    def start(self, streams: int) -> Belief:
        """Before anything is released."""
        a = self.arrays
        return Belief(np.repeat(a["first"][None], streams, 0), np.repeat(a["state_first"][None], streams, 0))

    def ahead(self, belief: Belief) -> Belief:
        """One window later."""
        return Belief(np.einsum("bcg,cgh->bch", belief.counts, self.arrays["move"]),
                      np.einsum("bcg,cgh->bch", belief.states, self.arrays["state_move"]))

    def seen(self, belief: Belief, values: np.ndarray, scale: np.ndarray) -> Belief:
        """After a release. values (B, 12): noisy means, NaN where nothing was released; scale (B, 4): of each
        expert's Laplace noise, in the units of the means.
        """
        a, of_count = self.arrays, np.repeat(scale[:, :len(COUNTED)], 2, axis=1)  # (B, 4)
        far = np.abs(values[:, COUNTS, None] - a["shown"])  # (B, 4, BINS)
        counts = _weighed(belief.counts, far / (of_count[..., None] + a["spread"]))
        named = values[:, COUNTS[-1] + 1:].reshape(len(values), len(NAMED), 1, -1)
        far = np.abs(named - a["state_shown"]).sum(axis=3)  # (B, 2, 4)
        return Belief(counts, _weighed(belief.states, far / scale[:, len(COUNTED):, None]))

    def medians(self, belief: Belief) -> np.ndarray:
        """(B, 12): the posterior median of each count, the probability of each state."""
        total = np.cumsum(belief.counts, axis=2)
        bin_ = np.minimum((total < 0.5).sum(axis=2), BINS - 1)[..., None]  # (B, 4, 1)
        own = np.take_along_axis(belief.counts, bin_, 2)[..., 0]
        under = np.take_along_axis(total, bin_, 2)[..., 0] - own
        part = np.clip((0.5 - under) / np.maximum(own, 1e-12), 0, 1)
        low, high = (np.take_along_axis(np.broadcast_to(e, belief.counts.shape), bin_, 2)[..., 0]
                     for e in (self.arrays["edges"][:, :-1], self.arrays["edges"][:, 1:]))
        return np.concatenate([low + part * (high - low), belief.states.reshape(len(low), -1)], axis=1)

    def moments(self, belief: Belief) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation (B, 4) of the counts."""
        middle = self.arrays["middle"]
        mean = (belief.counts * middle).sum(axis=2)
        return mean, np.sqrt(np.maximum((belief.counts * middle**2).sum(axis=2) - mean**2, 0))


def _weighed(prior: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Posterior of the last axis, proportional to prior exp(-cost); unchanged where a cost is NaN."""
    known = ~np.isnan(cost).any(axis=-1, keepdims=True)
    cost = np.where(known, cost, 0.0)
    weight = prior * np.exp(cost.min(axis=-1, keepdims=True) - cost) + 1e-300
    return np.where(known, weight / weight.sum(axis=-1, keepdims=True), prior)


def _chain(truth: np.ndarray, clipped: np.ndarray) -> dict[str, np.ndarray]:
    """Bins of one count (N, T), as many public windows in each; what a release would show of each."""
    edges = np.quantile(truth, np.linspace(0, 1, BINS + 1))
    at = np.clip(np.searchsorted(edges[1:-1], truth, side="right"), 0, BINS - 1)  # (N, T)
    middle, shown, spread = (edges[1:] + edges[:-1]) / 2, np.empty(BINS), np.empty(BINS)
    for g in range(BINS):
        own, out = truth[at == g], clipped[at == g]
        if own.size:
            middle[g] = own.mean()
        shown[g] = out.mean() if own.size else middle[g]
        spread[g] = np.abs(out - shown[g]).mean() if own.size else 0.0
    near = np.exp(-np.abs(np.subtract.outer(np.arange(BINS), np.arange(BINS))) / _NEAR)
    return {"edges": edges, "middle": middle, "shown": shown, "spread": spread,
            "first": _shares(np.bincount(at[:, 0], minlength=BINS) + 1.0), "move": _moves(at, _FLAT * near)}


def _states(truth: np.ndarray, clipped: np.ndarray) -> dict[str, np.ndarray]:
    """The chain of leading states (N, T, d), and the mean vector that a release would show of each."""
    at, dim = truth.argmax(axis=2), truth.shape[2]
    shown = np.stack([clipped[at == s].mean(axis=0) if (at == s).any() else np.eye(dim)[s] for s in range(dim)])
    return {"state_shown": shown, "state_first": _shares(np.bincount(at[:, 0], minlength=dim) + 1.0),
            "state_move": _moves(at, np.ones((dim, dim)))}


def _moves(at: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Transition probabilities of chains (N, T), counted on top of `start`."""
    count = start.copy()
    np.add.at(count, (at[:, :-1].ravel(), at[:, 1:].ravel()), 1.0)
    return _shares(count)


def _shares(count: np.ndarray) -> np.ndarray:
    return count / count.sum(axis=-1, keepdims=True)
