"""Uncertainty with the person as the unit: intervals, paired tests, ranks (PROTOCOL 8). numpy and scipy only;
scipy, slow to import, is imported where it is used, so that listing plug-ins does not wait for it.

Clips of one person are alike, so an interval over clips is far too narrow (60 clips a person: a nominal 95 % covers
some 56 %). Everything here first reduces to one number, or one table, a person, then lets people vary.
Every function is pure; the ones that draw take a numpy Generator and read nothing else that is random.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

MIN_PEOPLE = 5  # no interval below
EXACT_PEOPLE = 32  # sign-flip p is exact up to here, Monte Carlo above
RESAMPLES = 2000
ALPHA = 0.05


@dataclass(frozen=True)
class Interval:
    """A number and what is known about it. `lo`, `hi` are NaN when kind is "none".

    n: values (trials) counted.  people: people counted.  dropped: people without a single defined value.
    """

    value: float
    lo: float
    hi: float
    kind: Literal["t", "bootstrap", "none"]
    n: int
    people: int
    dropped: int = 0


@dataclass(frozen=True)
class Rank:
    """Place of one row. A row without a place has rank None, no rank interval, and is never tied with the best.

    rank: competition rank, 1 = best; equals share it.  lo, hi: 95 % rank interval, None below 5 people.
    tied_with_best: not shown to differ from the best row at .05 (paired sign-flip, Holm); True for the best itself.
    decidable: could so few people separate anything at all? When False `tied_with_best` says nothing.
    p: Holm-adjusted p against the best row; NaN for the best row, for rows without a place and when not decidable.
    """

    rank: int | None
    lo: int | None
    hi: int | None
    tied_with_best: bool
    decidable: bool
    p: float = math.nan


NO_RANK = Rank(None, None, None, tied_with_best=False, decidable=False)


# ---- one number ----------------------------------------------------------------------------------------------------

def person_means(values: Sequence[float], people: Sequence[Hashable]) -> dict[Hashable, float]:
    """Mean of each person's defined values; a person without any is left out. `values` (N,), `people` (N,).

    Sums and people are sorted, here and below, so that no result depends on the order of the trials.
    """
    sums: dict[Hashable, list[float]] = {}
    for person, value in zip(people, np.asarray(values, dtype=float).tolist(), strict=True):
        if not math.isnan(value):
            sums.setdefault(person, []).append(value)
    return {person: sum(sorted(sums[person])) / len(sums[person]) for person in sorted(sums, key=str)}


def mean_interval(values: Sequence[float], people: Sequence[Hashable], *, level: float = 0.95,
                  low: float = -math.inf, high: float = math.inf) -> Interval:
    """Mean of person means with the t interval on G - 1 degrees of freedom, cut to [low, high].

    `values` (N,), NaN = undefined; `people` (N,). Fewer than 5 people: kind "none". People who all agree give an
    interval of zero width: it says that this sample does not vary, not that the number is exact.
    """
    means = person_means(values, people)
    n = int(np.sum(~np.isnan(np.asarray(values, dtype=float))))
    return _t_interval(np.array(list(means.values())), n, len(set(people)) - len(means), level, low, high)


def _t_interval(means: np.ndarray, n: int, dropped: int, level: float, low: float, high: float) -> Interval:
    count = len(means)
    value = float(means.mean()) if count else math.nan
    if count < MIN_PEOPLE or not np.isfinite(means).all():
        return Interval(value, math.nan, math.nan, "none", n, count, dropped)
    from scipy.special import stdtrit

    half = stdtrit(count - 1, (1 + level) / 2) * means.std(ddof=1) / math.sqrt(count)
    return Interval(value, float(max(value - half, low)), float(min(value + half, high)), "t", n, count, dropped)


def confusions(truth: Sequence[int], predicted: Sequence[int], people: Sequence[Hashable],
               classes: int) -> np.ndarray:
    """One confusion matrix a person, int (G, C, C): [person, truth, predicted], people sorted as text.

    Raises ValueError when a class index is outside 0 .. classes - 1.
    """
    pairs = np.array([truth, predicted], dtype=np.int64)  # (2, N)
    if pairs.size and not (0 <= pairs.min() and pairs.max() < classes):
        raise ValueError(f"classes are 0 .. {classes - 1}, got {pairs.min()} .. {pairs.max()}")
    index = {person: i for i, person in enumerate(sorted(set(people), key=str))}
    row = np.array([index[person] for person in people], dtype=np.int64)
    cells = (row * classes + pairs[0]) * classes + pairs[1]
    return np.bincount(cells, minlength=len(index) * classes**2).reshape(len(index), classes, classes)


def uar_of_confusion(confusion: np.ndarray) -> np.ndarray:
    """Unweighted average recall of confusion matrices (..., C, C) -> (...), 0 .. 1, higher = more recognised.

    A class without a single true case has no recall and is left out; NaN when no class has one.
    """
    cases = confusion.sum(axis=-1)  # (..., C)
    recall = np.diagonal(confusion, axis1=-2, axis2=-1) / np.maximum(cases, 1)  # 0 where there is no case
    present = (cases > 0).sum(axis=-1)
    return np.where(present > 0, recall.sum(axis=-1) / np.maximum(present, 1), np.nan)


def uar(truth: Sequence[int], predicted: Sequence[int], classes: int) -> float:
    """Unweighted average recall over the declared classes, see `uar_of_confusion`."""
    return float(uar_of_confusion(confusions(truth, predicted, [0] * len(truth), classes).sum(axis=0)))


def uar_interval(truth: Sequence[int], predicted: Sequence[int], people: Sequence[Hashable], classes: int,
                 rng: np.random.Generator, *, resamples: int = RESAMPLES, level: float = 0.95) -> Interval:
    """UAR of all trials with the stretched cluster bootstrap over people; below 5 people kind "none"."""
    tables = confusions(truth, predicted, people, classes)
    value = float(uar_of_confusion(tables.sum(axis=0)))
    if len(tables) < MIN_PEOPLE:
        return Interval(value, math.nan, math.nan, "none", len(truth), len(tables))
    replicates = cluster_bootstrap(uar_of_confusion, tables, rng, resamples)
    return stretched_interval(value, replicates, len(truth), len(tables), level=level, low=0.0, high=1.0)


def cluster_bootstrap(statistic: Callable[[np.ndarray], np.ndarray], tables: np.ndarray, rng: np.random.Generator,
                      resamples: int = RESAMPLES) -> np.ndarray:
    """Replicates of a statistic under resampling of people.

    tables (G, ...): additive tables (sums, counts, confusion matrices), one a person. G people are drawn with
    replacement, their tables added, and statistic((R, ...)) -> (R, ...) is evaluated for all R replicates at once.
    """
    people = len(tables)
    drawn = rng.multinomial(people, np.full(people, 1 / people), size=resamples)  # (R, G) times each is drawn
    sums = drawn.astype(float) @ tables.reshape(people, -1)
    return statistic(sums.reshape(resamples, *tables.shape[1:]))


def stretched_interval(value: float, replicates: np.ndarray, n: int, people: int, *, level: float = 0.95,
                       low: float = -math.inf, high: float = math.inf) -> Interval:
    """Percentile interval of bootstrap replicates (R,), stretched about the estimate for few people.

    Factor sqrt(G / (G - 1)) t(G - 1) / z: it undoes the bootstrap's too small variance and the normal quantile.
    Replicates that are NaN are left out. Below 5 people: kind "none".
    """
    replicates = replicates[np.isfinite(replicates)]
    if people < MIN_PEOPLE or not len(replicates) or not math.isfinite(value):
        return Interval(value, math.nan, math.nan, "none", n, people)
    from scipy.special import ndtri, stdtrit

    tail = (1 - level) / 2
    factor = math.sqrt(people / (people - 1)) * stdtrit(people - 1, tail) / ndtri(tail)
    lo, hi = value + factor * (np.quantile(replicates, [tail, 1 - tail]) - value)
    return Interval(value, float(max(min(lo, value), low)), float(min(max(hi, value), high)), "bootstrap", n, people)


# ---- two rows ------------------------------------------------------------------------------------------------------

def paired_differences(a: Mapping[Hashable, float], b: Mapping[Hashable, float]) -> np.ndarray:
    """Differences a - b for the people that both have with finite values, (G,), people sorted as text."""
    pairs = [(a[person], b[person]) for person in sorted(set(a) & set(b), key=str)]
    return np.array([x - y for x, y in pairs if math.isfinite(x) and math.isfinite(y)], dtype=float)


def paired_interval(a: Mapping[Hashable, float], b: Mapping[Hashable, float], *, level: float = 0.95,
                    low: float = -math.inf, high: float = math.inf) -> Interval:
    """Mean of a - b over common people with its t interval; people found in one of them only count as dropped."""
    differences = paired_differences(a, b)
    dropped = len(set(a) | set(b)) - len(differences)
    return _t_interval(differences, len(differences), dropped, level, low, high)


def min_p(people: int) -> float:
    """The smallest two-sided p that the sign-flip test can give with so many people: 2 / 2^G."""
    return 2.0 ** (1 - max(people, 1))


def sign_flip_p(differences: Sequence[float], rng: np.random.Generator | None = None, *,
                resamples: int = 20_000) -> float:
    """Two-sided p of "the differences are symmetric about 0" by flipping signs, from |sum|. NaN without people.

    Exact up to 32 people: the 2^G sums are those of two halves, counted against each other. Above, Monte Carlo
    with (1 + count) / (1 + resamples); then `rng` is needed (ValueError).
    """
    d = np.asarray(differences, dtype=float)
    if not len(d) or not np.isfinite(d).all():
        return math.nan
    scale = np.abs(d).sum()
    bar = abs(d.sum()) - 1e-9 * scale  # sums that are equal but for rounding count as equal
    if len(d) <= EXACT_PEOPLE:
        first, second = _signed_sums(d[: len(d) // 2]), np.sort(_signed_sums(d[len(d) // 2:]))
        above = len(second) - np.searchsorted(second, bar - first, side="left")
        below = np.searchsorted(second, -bar - first, side="right")
        return min(1.0, float(above.sum() + below.sum()) / 2.0 ** len(d))
    if rng is None:
        raise ValueError(f"{len(d)} people are too many for the exact test: pass rng")
    signs = rng.integers(0, 2, (resamples, len(d)), dtype=np.int8) * 2.0 - 1.0
    return float((1 + np.sum(np.abs(signs @ d) >= bar)) / (1 + resamples))


def _signed_sums(d: np.ndarray) -> np.ndarray:
    sums = np.zeros(1)
    for value in d:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def holm(ps: Sequence[float]) -> np.ndarray:
    """Holm-adjusted p values in the order given, (M,). NaN stays NaN and does not count as a test."""
    p = np.asarray(ps, dtype=float)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    adjusted = np.full(len(p), np.nan)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)))
    return adjusted


# ---- many rows -----------------------------------------------------------------------------------------------------

def competition_ranks(values: np.ndarray, better: str, *, decimals: int = 6) -> np.ndarray:
    """Ranks along the last axis, 1 = best, equals (after rounding to `decimals`) share the smaller: 1, 2, 2, 4."""
    from scipy.stats import rankdata

    sign = {"higher": -1.0, "lower": 1.0}[better]
    return rankdata(np.round(sign * values, decimals), method="min", axis=-1).astype(int)


def rank_table(person_values: np.ndarray, better: Literal["higher", "lower", "none"], rng: np.random.Generator, *,
               estimates: np.ndarray | None = None, replicates: np.ndarray | None = None, decimals: int = 6,
               resamples: int = RESAMPLES, alpha: float = ALPHA) -> list[Rank]:
    """One Rank a row, for the same people (columns) in every row.

    person_values (M, G): one number a method and person; paired tests read them, and their row means are ranked
    unless `estimates` (M,) and `replicates` (R, M) from one joint resampling of people are given (UAR).
    A row with a single NaN, None or infinity in it never gets a rank, whatever is better; nor does any row of a
    column that is only descriptive (better = "none"). Leave a person out of all rows before, never out of one.
    """
    values = np.atleast_2d(np.asarray(person_values, dtype=float))
    with np.errstate(invalid="ignore"):  # infinity minus infinity: the row gets no rank below
        shown = values.mean(axis=1) if estimates is None else np.asarray(estimates, dtype=float)
    ranked = np.flatnonzero(np.isfinite(values).all(axis=1) & np.isfinite(shown))
    table = [NO_RANK] * len(values)
    if better not in ("higher", "lower", "none"):
        raise ValueError(f'better is "higher", "lower" or "none", got {better!r}')
    if better == "none" or not len(ranked) or not values.shape[1]:
        return table
    if replicates is None:
        replicates = cluster_bootstrap(lambda sums: sums / values.shape[1], values[ranked].T, rng, resamples)
    else:
        replicates = np.asarray(replicates, dtype=float)[:, ranked]
        replicates = replicates[np.isfinite(replicates).all(axis=1)]
    ranks = competition_ranks(shown[ranked], better, decimals=decimals)
    spread = _rank_spread(competition_ranks(replicates, better, decimals=decimals), ranks, values.shape[1])
    ps, decidable = _against_best(values[ranked], int(np.argmin(ranks)), alpha, rng)
    for row, rank, (lo, hi), p in zip(ranked, ranks, spread, ps):
        tied = bool(rank == 1 or not p <= alpha)
        table[row] = Rank(int(rank), lo, hi, tied, decidable, float(p))
    return table


def _rank_spread(drawn: np.ndarray, ranks: np.ndarray, people: int) -> list[tuple[int | None, int | None]]:
    """The 2.5 % and 97.5 % ranks of (R, M) drawn ranks, widened to hold the rank itself."""
    if people < MIN_PEOPLE:
        return [(None, None)] * len(ranks)
    lo, hi = np.quantile(drawn, [0.025, 0.975], axis=0, method="inverted_cdf")
    return [(min(int(a), int(r)), max(int(b), int(r))) for a, b, r in zip(lo, hi, ranks)]


def _against_best(values: np.ndarray, best: int, alpha: float,
                  rng: np.random.Generator) -> tuple[np.ndarray, bool]:
    """Holm-adjusted p of each row against row `best` (NaN there), and whether so few people can separate any."""
    rivals = len(values) - 1
    if min_p(values.shape[1]) * rivals > alpha:
        return np.full(len(values), np.nan), False
    ps = [math.nan if i == best else sign_flip_p(values[best] - row, rng) for i, row in enumerate(values)]
    return holm(ps), True
