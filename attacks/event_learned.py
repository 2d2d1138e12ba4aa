"""Did the event happen? A classifier that learned on public streams, and knows nothing else of this one."""

from __future__ import annotations

import numpy as np

from bench import Column, ThreatModel, attack
from bench.distinguishers import Distinguisher, Matched
from bench.traffic import CHUNK_FRAMES, EXPERTS, WINDOW_CHUNKS

COUNTED = 4  # leading components that are counts
_TITLES = {"flip": "all vehicles of K chunks stop", "vehicle": "one moving vehicle, K chunks",
           "experts": "K chunks change in every expert"}


@attack("event_learned")
class EventLearned(Distinguisher):
    """A realistic observer: has public episodes of the same camera with and without the event, releases them under the
    method's noise, and learns to tell them apart by logistic regression. It reads the noisy values of the window in
    which the event may lie, of its neighbours, the mean of the others, the time, and products of these; it does not
    know what the stream was without the event, which `event_llr` does. So it bounds nothing: read `event_llr` for the
    worst case, and this for what is learned without inside knowledge. An adaptive method's later spends are kept as
    they were. Control: on exact counts of every expert, cut to the caps, which here stand in for what `vtpm_style`
    prints, the stopping of all vehicles must be seen with an AUC of .95. Source: BR-MoE's event attack; features and
    classifier are ours.
    """

    threat = ThreatModel(knows="public episodes with and without the event, the window in question, every scale",
                         reads="transcript", trained_on="released development")
    events = tuple(_TITLES)
    columns = tuple(Column("auc", "rate", "lower" if e == "flip" else "none", 0, 1, f"Learned event AUC: {title}",
                           params={"event": e}, role="privacy" if e == "flip" else "descriptive")
                    for e, title in _TITLES.items())

    def fit(self, public: Matched) -> None:
        from sklearn.linear_model import LogisticRegression

        raw = np.concatenate([_values(public, side) for side in (0, 1)])  # (2N, F)
        known = ~np.isnan(raw)
        count = np.maximum(known.sum(axis=0), 1)
        self.mean = np.where(known, raw, 0).sum(axis=0) / count
        spread = np.sqrt(np.where(known, (raw - self.mean) ** 2, 0).sum(axis=0) / count)
        self.spread = np.where(spread > 0, spread, 1.0)
        truth = np.repeat([0, 1], len(raw) // 2)
        self.model = LogisticRegression(C=1.0, solver="newton-cholesky", max_iter=100).fit(
            self._features(public, raw), truth)

    def score(self, streams: Matched) -> np.ndarray:
        raw = np.concatenate([_values(streams, side) for side in (0, 1)])
        scores: np.ndarray = np.round(self.model.decision_function(self._features(streams, raw)), 9)
        return scores.reshape(2, -1)

    def _features(self, streams: Matched, raw: np.ndarray) -> np.ndarray:
        """Standardised values (2N, F), missing ones at their mean, and products of the window's counts with all."""
        z = np.clip(np.nan_to_num((raw - self.mean) / self.spread), -4, 4)
        sure = np.tile(_certainty(streams), (2, 1))  # (2N, experts)
        slots = np.tile(np.eye(next(iter(streams.scale.values())).shape[1])[streams.window], (2, 1))
        every = np.concatenate([z, sure, slots], axis=1)
        return np.concatenate([every, (z[:, :COUNTED, None] * every[:, None]).reshape(len(z), -1)], axis=1)


def _certainty(streams: Matched) -> np.ndarray:
    """(N, experts) in 0 .. 1: how exact the window's release of each expert is, 0 where there is none."""
    every = np.arange(len(streams.window))
    found = [1 / (1 + streams.scale[e.name][every, streams.window] / (WINDOW_CHUNKS * CHUNK_FRAMES))
             if e.name in streams.scale else np.zeros(len(every)) for e in EXPERTS]
    return np.nan_to_num(np.stack(found, axis=1))


def _values(streams: Matched, side: int) -> np.ndarray:
    """(N, F): the window's means, then counts of the two windows before and after it and the mean of all others."""
    size, slots = next(iter(streams.scale.values())).shape
    every, window = np.arange(size), streams.window
    means = np.concatenate([streams.sums[e.name][side] / (WINDOW_CHUNKS * CHUNK_FRAMES) if e.name in streams.sums
                            else np.full((size, slots, e.dim), np.nan) for e in EXPERTS], axis=2)  # (N, T, 12)
    counts = means[..., :COUNTED]
    around = [np.where(((0 <= window + step) & (window + step < slots))[:, None],
                       counts[every, np.clip(window + step, 0, slots - 1)], np.nan) for step in (-2, -1, 1, 2)]
    other = (np.arange(slots) != window[:, None])[..., None] & ~np.isnan(counts)
    number = other.sum(axis=1)
    rest = np.where(number > 0, np.where(other, counts, 0).sum(axis=1) / np.maximum(number, 1), np.nan)
    return np.concatenate([means[every, window], *around, rest], axis=1)
