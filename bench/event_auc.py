"""AUC of the best possible guess whether an event happened, from the law of its likelihood ratio. Nothing is drawn."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

import numpy as np

from bench.measures import Noise

_LARGEST = 2**23  # points of the lattice


def best_auc(shift: Mapping[str, np.ndarray], noise: Mapping[str, Noise]) -> float:
    """shift: {branch: int64 (T, dim)}, what the event adds to the window sums; noise: law and scales (T,), NaN where
    nothing was released. 1 where it is seen without noise, 0.5 where nothing of it was released.
    """
    parts: Counter[tuple[int, Fraction]] = Counter()  # (size of a change, Laplace scale): how many coordinates
    for name, moved in shift.items():
        for t, row in enumerate(moved):
            scale = float(noise[name].scale[t])
            for d in np.abs(row[row != 0]):
                if noise[name].law is None or scale == 0:
                    return 1.0  # it is seen
                if math.isfinite(scale):
                    parts[int(d), Fraction(scale).limit_denominator(10**6)] += 1
    return _known(frozenset(parts.items())) if parts else 0.5


@lru_cache(maxsize=1 << 14)
def _known(parts: frozenset[tuple[tuple[int, Fraction], int]]) -> float:
    """Streams differ in when a scale occurs, seldom in which do, and only these matter."""
    return auc_of(dict(parts))


def auc_of(parts: Mapping[tuple[int, Fraction], int]) -> float:
    """AUC of the likelihood ratio of independent discrete Laplace coordinates, exact but for rounding.

    parts: {(d, b): how many coordinates move by d under noise of scale b}. With the event the ratio has the mirrored
    law, so the AUC is P(L + L' > 0) + P(L + L' = 0) / 2 of two independent copies without it. L = (|y - d| - |y|) / b
    lies on a lattice: d - 2 y for y = 0 .. d, in units of 1 / b. Raises ValueError when the common lattice is too fine.
    """
    common = math.lcm(*(b.numerator for _, b in parts))
    units = {key: key[1].denominator * common // key[1].numerator for key in parts}  # 1 / b in units of 1 / common
    shrink = math.gcd(*units.values())
    reach = 2 * sum(n * d * units[d, b] // shrink for (d, b), n in parts.items())
    size = 1 << (2 * reach).bit_length()
    if size > _LARGEST:
        raise ValueError(f"the likelihood ratio has {size} points; the spends have no common step")
    law = np.ones(size // 2 + 1, dtype=complex)
    for (d, b), count in parts.items():
        law *= np.fft.rfft(_one(d, b, units[d, b] // shrink, size)) ** (2 * count)
    both = np.fft.irfft(law, size)  # negative values wrap round to the upper half
    return float(both[1:reach + 1].sum() + both[0] / 2)


def _one(d: int, b: Fraction, unit: int, size: int) -> np.ndarray:
    """Law (size,) of one coordinate's ratio without the event; index k stands for k / lattice, negative ones wrap."""
    r, y = math.exp(-1 / b), np.arange(d + 1)
    mass = r**y * (1 - r) / (1 + r)
    mass[0], mass[d] = 1 / (1 + r), r**d / (1 + r)  # everything at or below 0, at or above d
    out = np.zeros(size)
    out[(unit * (d - 2 * y)) % size] = mass
    return out
