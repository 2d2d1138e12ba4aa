"""Distances of two sets of features, and what a person more or less changes about them. numpy and scipy only.

    Fréchet distance   of the Gaussians that have the sets' means and covariances; biased upward, the more so the
                       fewer rows and the more dimensions there are: compare only values of one N and one d
    MMD^2              squared maximum mean discrepancy; the unbiased one is 0 on average for sets of one law, may be
                       negative, and is neither clipped nor rooted

Goldens and traps: Heusel et al. 2017 (FID), Gretton et al. 2012 (MMD), Binkowski et al. 2018 (KID), Chong and Forsyth
2020 (the bias). Rows of one person are alike, so intervals leave out people, never rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np
from scipy import linalg
from scipy import stats as distributions
from scipy.spatial.distance import pdist

from bench.errors import Undefined
from bench.stats import MIN_PEOPLE, Interval

ROWS_AT_ONCE = 1024  # of a kernel matrix: 8,000 x 8,000 float64 would need half a gigabyte
Kernel = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (m, d), (n, d) -> (m, n)


# ---- Fréchet -------------------------------------------------------------------------------------------------------

def frechet_distance(mu1: np.ndarray, s1: np.ndarray, mu2: np.ndarray, s2: np.ndarray) -> float:
    """|mu1 - mu2|^2 + tr(S1 + S2 - 2 (S1 S2)^1/2) of two Gaussians, >= 0, lower = more alike.

    mu (d,), S (d, d) symmetric positive semidefinite. The trace of the root is the sum of the roots of the
    eigenvalues of S1^1/2 S2 S1^1/2: symmetric, so nothing turns complex, also where S1 or S2 is singular.
    Raises ValueError when the shapes do not fit.
    """
    mu1, s1, mu2, s2 = (np.asarray(a, dtype=np.float64) for a in (mu1, s1, mu2, s2))
    if mu1.ndim != 1 or mu1.shape != mu2.shape or {s1.shape, s2.shape} != {(len(mu1), len(mu1))}:
        raise ValueError(f"means (d,) and covariances (d, d) of one d, got {mu1.shape}, {s1.shape}, {mu2.shape}, "
                         f"{s2.shape}")
    root = _root(s1)  # (d, r) with root root^T = S1
    values = np.linalg.eigvalsh(root.T @ s2 @ root)  # those of S1^1/2 S2 S1^1/2 but for zeros
    return _sum(mu1 - mu2, np.trace(s1) + np.trace(s2), np.sqrt(np.clip(values, 0, None)).sum())


def _root(s: np.ndarray) -> np.ndarray:
    """(d, r) with root root^T = S, r its rank: eigenvalues that are zero but for rounding are left out."""
    values, vectors = np.linalg.eigh(s)
    kept = values > max(values.max(initial=0.0), 0.0) * len(s) * np.finfo(float).eps
    return vectors[:, kept] * np.sqrt(values[kept])


def _sum(shift: np.ndarray, traces: float, root_trace: float) -> float:
    return float(max(shift @ shift + traces - 2 * root_trace, 0.0))  # below 0 by rounding only


def frechet_of(first: np.ndarray, second: np.ndarray) -> float:
    """Fréchet distance of two feature sets (N, d) and (M, d), covariance with N - 1, in float64.

    With A, B the centred rows over sqrt(N - 1), sqrt(M - 1), S1 = A^T A and S2 = B^T B, and the eigenvalues of
    S1 S2 are the squared singular values of A B^T, an (N, M) matrix: exact for N < d, and quick for N << d. With more
    rows than dimensions the rows are first reduced to d by a QR decomposition.
    Raises Undefined with fewer than 2 rows or values that are not finite, ValueError for two different d.
    """
    first, second = _checked(first, second)
    a, b = _scaled_deviations(first), _scaled_deviations(second)
    singular = np.linalg.svd(_reduced(a) @ _reduced(b).T, compute_uv=False)
    return _sum(first.mean(axis=0) - second.mean(axis=0), np.square(a).sum() + np.square(b).sum(), singular.sum())


def check_equal_size(first: np.ndarray, second: np.ndarray) -> None:
    """Raise ValueError unless both sets have as many rows: the bias of a Fréchet distance depends on both numbers."""
    if len(first) != len(second):
        raise ValueError(f"both sets need the same clips, got {len(first)} and {len(second)}")


def _checked(*sets: np.ndarray) -> list[np.ndarray]:
    """Float64 copies (N, d). Raises ValueError for shapes that do not fit, Undefined for data that cannot serve."""
    arrays = [np.asarray(rows, dtype=np.float64) for rows in sets]
    if any(a.ndim != 2 for a in arrays) or len({a.shape[1] for a in arrays}) != 1:
        raise ValueError(f"feature sets are (N, d) with one d, got {', '.join(str(a.shape) for a in arrays)}")
    if min(len(a) for a in arrays) < 2:
        raise Undefined(f"a distance of sets needs 2 clips in each, here are {[len(a) for a in arrays]}")
    if not all(np.isfinite(a).all() for a in arrays):
        raise Undefined("some features are not finite")
    return arrays


def _scaled_deviations(rows: np.ndarray) -> np.ndarray:
    return (rows - rows.mean(axis=0)) / math.sqrt(len(rows) - 1)


def _reduced(rows: np.ndarray) -> np.ndarray:
    """At most d rows with the same rows^T rows: they change a product from the left by a rotation alone."""
    if len(rows) <= rows.shape[1]:
        return rows
    return linalg.qr(rows, mode="r", check_finite=False)[0][:rows.shape[1]]


# ---- MMD -----------------------------------------------------------------------------------------------------------

def gaussian(sigma: float) -> Kernel:
    """exp(-|x - y|^2 / (2 sigma^2)), in (0, 1]. Raises Undefined unless sigma is positive."""
    if not sigma > 0:
        raise Undefined(f"the bandwidth is {sigma}: half of the pairs of features are the same")

    def kernel(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        middle = y.mean(axis=0)  # distances stay, rounding shrinks
        x, y = x - middle, y - middle
        squares = np.square(x).sum(axis=1)[:, None] + np.square(y).sum(axis=1) - 2 * x @ y.T  # (m, n)
        return np.exp(np.maximum(squares, 0) / (-2 * sigma**2))
    return kernel


def cubic(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(x y / d + 1)^3, the kernel of KID (Binkowski et al. 2018)."""
    return (x @ y.T / x.shape[1] + 1) ** 3


def median_bandwidth(originals: np.ndarray) -> float:
    """Median distance of two different rows (N, d). Of the originals alone: one bandwidth for all methods.

    A median taken anew for each method would make their columns incomparable. Raises Undefined below 2 rows.
    """
    return float(np.median(pdist(_checked(originals)[0])))


def mmd2_unbiased(x: np.ndarray, y: np.ndarray, kernel: Kernel) -> float:
    """The U statistic of MMD^2: pairs of one row with itself do not count. Rows (m, d), (n, d), m and n as they are.

    torchmetrics' helper `maximum_mean_discrepancy` divides everything by the m of the first set: right for m = n only.
    Raises Undefined with fewer than 2 rows.
    """
    x, y = _checked(x, y)
    inside = [(_total(kernel, rows, rows) - _diagonal(kernel, rows)) / (len(rows) * (len(rows) - 1)) for rows in (x, y)]
    return inside[0] + inside[1] - 2 * _total(kernel, x, y) / (len(x) * len(y))


def mmd2_biased(x: np.ndarray, y: np.ndarray, kernel: Kernel) -> float:
    """The V statistic of MMD^2: every pair counts; >= 0, and above 0 on average for sets of one law."""
    x, y = _checked(x, y)
    inside = [_total(kernel, rows, rows) / len(rows) ** 2 for rows in (x, y)]
    return inside[0] + inside[1] - 2 * _total(kernel, x, y) / (len(x) * len(y))


def _total(kernel: Kernel, x: np.ndarray, y: np.ndarray) -> float:
    return float(sum(kernel(x[i:i + ROWS_AT_ONCE], y).sum() for i in range(0, len(x), ROWS_AT_ONCE)))


def _diagonal(kernel: Kernel, rows: np.ndarray) -> float:
    return float(sum(kernel(row[None], row[None])[0, 0] for row in rows))


# ---- people --------------------------------------------------------------------------------------------------------

Statistic = Callable[..., float]  # one feature set (N, d) an argument


def delete_one_people(features: Sequence[np.ndarray], people: Sequence[Sequence[Hashable]],
                      statistic: Statistic) -> tuple[float, dict[Hashable, float]]:
    """The statistic of all rows, and of all rows but one person's, for each person.

    features: one (N, d) array a set; people: whose each row is, a sequence (N,) a set; a person leaves every set.
    statistic(*sets). Where it is Undefined without a person that value is NaN; if it is so for everyone it raises.
    """
    owners = [np.array([str(p) for p in rows]) for rows in people]
    if [len(f) for f in features] != [len(o) for o in owners]:
        raise ValueError(f"{[len(f) for f in features]} rows belong to {[len(o) for o in owners]} people")
    full, without = statistic(*features), {}
    for person in sorted({p for rows in people for p in rows}, key=str):
        try:
            without[person] = statistic(*(f[o != str(person)] for f, o in zip(features, owners)))
        except Undefined:
            without[person] = math.nan
    return full, without


def jackknife_interval(full: float, leave_one_out: Mapping[Hashable, float], n: int, *, level: float = 0.95,
                       low: float = -math.inf, high: float = math.inf) -> Interval:
    """Delete-one-person jackknife about `full`: t(G - 1) times sqrt((G - 1) / G sum (v_g - mean v)^2), cut to range.

    A bootstrap would draw a person twice, and copies shrink a covariance; leaving out makes no copies. The interval
    speaks of a set of this size: the bias of a Fréchet distance is in it. n: clips counted. Kind "t"; "none" below
    5 people or where a value is not finite.
    """
    values = np.array([leave_one_out[person] for person in sorted(leave_one_out, key=str)], dtype=float)
    people = len(values)
    if people < MIN_PEOPLE or not np.isfinite(values).all() or not math.isfinite(full):
        return Interval(full, math.nan, math.nan, "none", n, people)
    error = math.sqrt((people - 1) / people * np.square(values - values.mean()).sum())
    half = distributions.t.ppf((1 + level) / 2, people - 1) * error
    return Interval(full, float(max(full - half, low)), float(min(full + half, high)), "t", n, people)


def same_data_floor(features: np.ndarray, people: Sequence[Hashable], statistic: Statistic, rng: np.random.Generator,
                    *, splits: int = 10) -> float:
    """What the statistic gives for two halves of the people of one set (N, d): the mean over random splits.

    The larger half is thinned to as many rows as the smaller. Halves are smaller than the whole, so the floor of a
    Fréchet distance is that of N / 2 rows, a high one.
    Raises Undefined with fewer than 2 people.
    """
    owners = np.array([str(p) for p in people])
    everyone = np.unique(owners)
    if len(everyone) < 2:
        raise Undefined("one person cannot be split into two halves of people")
    values = []
    for _ in range(splits):
        half = np.isin(owners, rng.permutation(everyone)[: len(everyone) // 2])
        rows = [np.flatnonzero(half), np.flatnonzero(~half)]
        count = min(map(len, rows))
        values.append(statistic(*(features[np.sort(rng.choice(r, count, replace=False))] for r in rows)))
    return float(np.mean(values))
