"""Open-set rates: is it the same person, and is the person known at all? numpy alone; every function is pure.

A comparison is accepted when score >= threshold. A score that is NaN (no face could be embedded) is never accepted: it
counts as a genuine pair that was missed, an impostor that was refused.

    FAR, TAR    share of impostor, of genuine comparisons that are accepted
    EER         where FAR = 1 - TAR
    FPIR, DIR   the same per probe against a gallery: share of probes of unknown people whose best score is accepted;
                share of probes of known people whose best score is accepted and is their own

Sources: ISO/IEC 19795-1; Li and Jain, Handbook of Face Recognition, 14.1; thresholds and partitions: PROTOCOL 2, 7.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np

from bench import stats

ALL_BELOW = 200  # fewer partitions than this are all taken
SEEDED = 5  # else so many
REPLICATES_AT_ONCE = 250

# ---- thresholds and rates ------------------------------------------------------------------------------------------


def threshold_at_far(impostors: np.ndarray, far: float) -> float:
    """The smallest threshold that accepts at most a share `far` of the impostor scores (N,).

    Of ties at the border none is accepted. NaN scores are left out; without any score there is no threshold (NaN).

    >>> threshold_at_far(np.array([.1, .2, .3, .4]), .25) > .3, threshold_at_far(np.array([.5, .5]), .5) > .5
    (True, True)
    """
    scores = np.asarray(impostors, dtype=float)
    if np.isnan(scores).any():
        scores = scores[~np.isnan(scores)]
    accepted = math.floor(far * len(scores) + 1e-9)
    if not len(scores):
        return math.nan
    if accepted >= len(scores):
        return -math.inf
    place = len(scores) - 1 - accepted
    return float(np.nextafter(np.partition(scores, place)[place], math.inf))


def tar(genuine: np.ndarray, threshold: float) -> float:
    """True accept rate, 0 .. 1, lower = more private; NaN without scores or threshold."""
    return _accepted(genuine, threshold)


def far(impostors: np.ndarray, threshold: float) -> float:
    """False accept rate, 0 .. 1; NaN without scores or threshold."""
    return _accepted(impostors, threshold)


def _accepted(scores: np.ndarray, threshold: float) -> float:
    scores = np.asarray(scores, dtype=float)
    if not len(scores) or math.isnan(threshold):
        return math.nan
    return np.count_nonzero(scores >= threshold) / len(scores)


def identified(scores: np.ndarray, mates: np.ndarray, threshold: float) -> np.ndarray:
    """(N,) one value a mated probe: 1 when its best score is accepted and is its mate's alone, else 0.

    scores: (N, P) probes of enrolled people against the gallery.  mates: (N,) column of each probe's own template.
    A best score shared by k templates counts 1 / k, the expected value of guessing among them.
    """
    scores = _lowest(scores)
    best = scores.max(axis=1)
    first = scores == best[:, None]  # (N, P)
    own = first[np.arange(len(scores)), np.asarray(mates, dtype=int)] & (best >= threshold) & np.isfinite(best)
    return own / np.maximum(first.sum(axis=1), 1)


def dir_at_far(scores: np.ndarray, mates: np.ndarray, threshold: float) -> float:
    """Detection and identification rate at rank 1 over mated probes, see `identified`. 0 .. 1, lower = more private."""
    if not len(scores) or math.isnan(threshold):
        return math.nan
    return float(identified(scores, mates, threshold).mean())


def fpir(scores: np.ndarray, threshold: float) -> float:
    """False positive identification rate: share of non-mated probes (N, P) whose best score is accepted.

    Per probe, not per comparison: it grows with the gallery.
    """
    return _accepted(best_scores(scores), threshold)


def best_scores(scores: np.ndarray) -> np.ndarray:
    """(N,) best score of each probe (N, P) against a gallery, NaN where none is known."""
    best = _lowest(scores).max(axis=1)
    return np.where(np.isfinite(best), best, np.nan)


def _lowest(scores: np.ndarray) -> np.ndarray:
    """Scores with NaN as minus infinity."""
    scores = np.asarray(scores, dtype=float)
    return np.where(np.isnan(scores), -math.inf, scores)


# ---- equal error rate ----------------------------------------------------------------------------------------------

def eer(genuine: np.ndarray, impostors: np.ndarray) -> float:
    """Equal error rate of two sets of scores, 0 .. 1; .5 = cannot tell, higher = more private.

    The point where the straight-line ROC (ties as one slanted step) crosses FAR = 1 - TAR, so equal scores give .5
    exactly. Rules that take the nearest step (torchmetrics) differ by at most half a step. NaN without either kind.
    """
    if not len(genuine) or not len(impostors):
        return math.nan
    kinds = [np.sort(_lowest(genuine)), np.sort(_lowest(impostors))]

    def point(threshold: float) -> tuple[float, float]:
        rates = [1 - np.searchsorted(kind, threshold) / len(kind) for kind in kinds]
        return rates[1], rates[0]  # FAR, TAR

    def refused(scores: np.ndarray) -> int:
        """Index of the first score that, taken as the threshold, gives FAR + TAR < 1."""
        return bisect_left(range(len(scores)), True, key=lambda k: math.fsum(point(float(scores[k]))) < 1)

    first = [refused(kind) for kind in kinds]
    low = max(kind[k - 1] for kind, k in zip(kinds, first) if k > 0)  # accepts enough
    above = [kind[k] for kind, k in zip(kinds, first) if k < len(kind)]
    points = np.array([point(min(above)) if above else (0.0, 0.0), point(low)])  # (2, 2)
    return float(_crossing(points[None, :, 0], points[None, :, 1])[0])


def _crossing(false: np.ndarray, true: np.ndarray) -> np.ndarray:
    """FAR where ROC curves (R, K), from low to high, cross FAR + TAR = 1. The first point lies below it."""
    surplus = false + true - 1
    after = np.where((surplus >= 0).any(axis=1), (surplus >= 0).argmax(axis=1), surplus.shape[1] - 1).clip(1)
    row = np.arange(len(false))
    low, high = surplus[row, after - 1], surplus[row, after]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.clip(-low / (high - low), 0, 1)
    return false[row, after - 1] + share * (false[row, after] - false[row, after - 1])


def eer_interval(scores: np.ndarray, genuine: np.ndarray, template_person: np.ndarray, probe_person: np.ndarray,
                 rng: np.random.Generator, *, resamples: int = stats.RESAMPLES, level: float = 0.95) -> stats.Interval:
    """EER with the stretched cluster bootstrap over people; below 5 people kind "none".

    scores (N,), genuine (N,) bool, template_person and probe_person (N,): who stands in each comparison. People are
    drawn with replacement and the pairs built anew: a person drawn w times has each genuine pair w times, an impostor
    pair occurs w_p w_q times, and a person is never an impostor of a copy of itself.
    """
    scores, genuine = np.asarray(scores, dtype=float), np.asarray(genuine, dtype=bool)
    value = eer(scores[genuine], scores[~genuine])
    people, index = np.unique(np.concatenate([template_person, probe_person]), return_inverse=True)
    if len(people) < stats.MIN_PEOPLE or math.isnan(value):
        return stats.Interval(value, math.nan, math.nan, "none", len(scores), len(people))
    weights = rng.multinomial(len(people), np.full(len(people), 1 / len(people)), size=resamples)  # (R, G)
    replicates = eer_replicates(scores, genuine, index[:len(scores)], index[len(scores):], weights)
    return stats.stretched_interval(value, replicates, len(scores), len(people), level=level, low=0.0, high=1.0)


def eer_replicates(scores: np.ndarray, genuine: np.ndarray, template_person: np.ndarray, probe_person: np.ndarray,
                   weights: np.ndarray) -> np.ndarray:
    """(R,) EER when person g occurs weights[r, g] times; see `eer_interval`. NaN where one kind of pair is gone.

    People are 0 .. G - 1 and weights (R, G). Scores are sorted once and cut into blocks; the block that holds the
    crossing is found from counts per pair of people, and only that block is walked through.
    """
    order = np.argsort(-_lowest(scores), kind="stable")
    ranked = _lowest(scores)[order]
    ends = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True)) + 1  # where a group of equal scores ends
    people = weights.shape[1]
    codes = ((np.asarray(template_person) * people + np.asarray(probe_person)) * 2 + np.asarray(genuine))[order]
    pairs, pair = np.unique(codes, return_inverse=True)
    parts = [_block_eer(_pair_weights(pairs, chunk.astype(float)), pairs % 2 == 1, pair, ends)
             for chunk in np.array_split(weights, max(1, -(-len(weights) // REPLICATES_AT_ONCE)))]
    return np.concatenate(parts)


def _pair_weights(pairs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(R, U) how often each pair of people occurs: w for genuine pairs, w_p w_q for impostors."""
    template, probe = np.divmod(pairs // 2, weights.shape[1])
    return np.where(pairs % 2 == 1, weights[:, probe], weights[:, template] * weights[:, probe])


def _block_eer(weights: np.ndarray, genuine: np.ndarray, pair: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """EER per replicate. weights (R, U), genuine (U,), pair (N,) of each score in falling order, ends of ties."""
    blocks = max(1, math.isqrt(len(ends)))
    edges = ends[np.linspace(0, len(ends), blocks + 1).astype(int)[1:] - 1]  # the last one is N
    block = np.searchsorted(edges, np.arange(len(pair)), side="right")
    counts = np.bincount(pair * blocks + block, minlength=len(genuine) * blocks).reshape(-1, blocks).astype(float)
    sums = np.stack([(weights[:, kind] @ counts[kind]).cumsum(axis=1) for kind in (~genuine, genuine)])  # (2, R, B)
    total = sums[:, :, -1:]
    with np.errstate(invalid="ignore"):
        rates = np.concatenate([np.zeros_like(total), sums], axis=2) / total  # (2, R, B + 1) FAR, TAR
    reached = rates[0, :, 1:] + rates[1, :, 1:] >= 1
    where = np.where(reached.any(axis=1), reached.argmax(axis=1), blocks - 1)
    found = np.full(len(weights), np.nan)
    starts = np.concatenate([[0], edges])
    for one in np.unique(where):
        rows = np.flatnonzero((where == one) & (total > 0).all(axis=(0, 2)))
        inside = pair[starts[one]:starts[one + 1]]
        steps = ends[(ends > starts[one]) & (ends <= starts[one + 1])] - starts[one] - 1
        drawn = weights[rows][:, inside]  # (r, n)
        walk = np.stack([(drawn * kind[inside]).cumsum(axis=1)[:, steps] for kind in (~genuine, genuine)])
        base = rates[:, rows, one, None]
        curve = np.concatenate([base, base + walk / total[:, rows]], axis=2)  # (2, r, n + 1)
        found[rows] = _crossing(curve[0], curve[1])
    return found


# ---- who is enrolled, what can be measured -------------------------------------------------------------------------

def partitions(people: Sequence[Hashable], rng: np.random.Generator, *,
               enrolled: int | None = None) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(enrolled, unknown) halves as indices into `people`: all of them when fewer than 200, else five seeded ones.

    enrolled: how many are enrolled; the larger half unless given. Empty when one side would have nobody.
    """
    count = len(people)
    size = (count + 1) // 2 if enrolled is None else enrolled
    if not 0 < size < count:
        return []
    if math.comb(count, size) < ALL_BELOW:
        chosen = list(itertools.combinations(range(count), size))
    else:
        drawn: dict[tuple[int, ...], None] = {}
        while len(drawn) < SEEDED:
            drawn[tuple(sorted(rng.permutation(count)[:size].tolist()))] = None
        chosen = list(drawn)
    return [(half, tuple(i for i in range(count) if i not in half)) for half in chosen]


def measurability(trials: int, person_pairs: int, far: float) -> Literal["ok", "indicative", "not_measurable"]:
    """Can a rate at this false accept rate be measured? (PROTOCOL 7: rule of 30 on trials, of 3 on pairs of people.)

    trials: impostor comparisons (for DIR: non-mated probes).  person_pairs: distinct pairs of people among them.

    >>> measurability(36_000, 300, .01), measurability(36_000, 253, .01), measurability(36_000, 36, .01)
    ('ok', 'indicative', 'not_measurable')
    """
    expected, pairs = trials * far + 1e-9, person_pairs * far + 1e-9
    if expected >= 30 and pairs >= 3:
        return "ok"
    return "indicative" if expected >= 3 and pairs >= 1 else "not_measurable"
