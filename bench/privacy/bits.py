"""Where random bits come from, and exact draws from them: whole numbers, coins of rational or exponential bias.

`OsBits` is for real releases. `SeededBits` can be computed again by whoever knows the seed: benchmark only.
"""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np

from bench.errors import ConfigError

MOST = 2**62  # largest range of one draw, so that sums stay in int64


class Bits(Protocol):
    """A source of independent fair bits."""

    benchmark_only: bool

    def words(self, n: int) -> np.ndarray:
        """(n,) uint64, all bits fair and independent."""


class OsBits:
    """Bits of the operating system's generator; nobody can compute them again."""

    benchmark_only = False

    def words(self, n: int) -> np.ndarray:
        return np.frombuffer(os.urandom(8 * n), dtype="<u8").astype(np.uint64)


class SeededBits:
    """Bits of a seeded generator, for tests and benchmark releases; such a release protects nobody."""

    benchmark_only = True

    def __init__(self, rng: np.random.Generator):
        self._rng = rng

    def words(self, n: int) -> np.ndarray:
        return self._rng.integers(0, 2**64, size=n, dtype=np.uint64)


def uniform_below(n: int, size: int, bits: Bits) -> np.ndarray:
    """(size,) int64, uniform on 0 .. n - 1, exactly: random words cut to the width of n - 1, too large ones redrawn."""
    if not 1 <= n <= MOST:
        raise ConfigError(f"A draw from {n} equally likely values cannot be made.", "At most 2^62 fit.",
                          "Use a scale or epsilon with a smaller numerator and denominator.")
    out = np.zeros(size, dtype=np.int64)
    if n == 1:
        return out
    shift = np.uint64(64 - (n - 1).bit_length())
    open_ = np.arange(size)
    while open_.size:
        draw = (bits.words(open_.size) >> shift).astype(np.int64)
        good = draw < n
        out[open_[good]] = draw[good]
        open_ = open_[~good]
    return out


def coin(numerator: np.ndarray, denominator: int, bits: Bits) -> np.ndarray:
    """Bool array: each true with probability numerator / denominator, exactly."""
    return uniform_below(denominator, len(numerator), bits) < numerator


def exp_coin(numerator: np.ndarray, denominator: int, bits: Bits) -> np.ndarray:
    """Bool array: each true with probability exp(-numerator / denominator), a ratio in [0, 1], exactly.

    Canonne-Kamath-Steinke 2020, algorithm 1: flip coins of bias g/1, g/2, g/3 ... until one fails; true if the
    failing one has an odd number. Where g/k does not fit one draw, it is a coin g and an independent coin 1/k.
    """
    out = np.zeros(len(numerator), dtype=bool)
    running, k = np.arange(len(numerator)), 1
    while running.size:
        if denominator * k <= MOST:
            won = coin(numerator[running], denominator * k, bits)
        else:
            won = coin(numerator[running], denominator, bits) & (uniform_below(k, running.size, bits) == 0)
        out[running[~won]] = k % 2 == 1
        running, k = running[won], k + 1
    return out


def uniform53(size: int, bits: Bits) -> np.ndarray:
    """(size,) float64 in (0, 1]: (k + 1) / 2^53, k uniform on 53 bits."""
    return ((bits.words(size) >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53
