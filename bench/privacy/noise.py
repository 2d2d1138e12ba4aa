"""Protective noise: exact samplers for releases, and a differentiable twin of the same law for training.

Discrete Laplace and randomised response use whole numbers only and follow their law exactly. The Gaussian is float64
Box-Muller on 53-bit uniforms, rounded to a fixed grid: it leaves no trace below the grid, but is not an exact
discrete Gaussian and ends at 8.57 standard deviations (each side has probability 5e-18).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.errors import ConfigError, nearest
from bench.privacy.bits import Bits, coin, exp_coin, uniform53, uniform_below
from bench.privacy.checks import LIMITS, count, exact, limited, number

if TYPE_CHECKING:
    import torch

GRID = 2.0**-20  # of a clip norm: the step to which clipped values and Gaussian noise are rounded
_LARGEST_PART = 2**50  # of the scale's numerator and denominator
_LONGEST_RUN = 4096  # of coins of bias 1/e; longer has probability e^-4096


def discrete_laplace(shape: int | Sequence[int], scale: Any, bits: Bits) -> np.ndarray:
    """int64 `shape`: P(x) proportional to exp(-|x| / scale), exactly; scale a positive rational, never a float sum.

    A sum of whole numbers that changes by at most D gives a release of exactly D / scale. Canonne-Kamath-Steinke
    2020, algorithm 2, on all draws at once.
    """
    b = exact("scale", scale, *LIMITS["scale"])
    top, bottom = b.numerator, b.denominator
    if max(top, bottom) > _LARGEST_PART:
        raise ConfigError(f"scale = {b} has too many digits.", "Exact draws need numerator and denominator below 2^50.",
                          "Round the scale up to a simpler fraction.")
    size = int(np.prod(shape, dtype=np.int64))
    out, open_ = np.zeros(size, dtype=np.int64), np.arange(size)
    while open_.size:
        value, good = _laplace_try(open_.size, top, bottom, bits)
        out[open_[good]] = value[good]
        open_ = open_[~good]
    return out.reshape(shape)


def _laplace_try(n: int, top: int, bottom: int, bits: Bits) -> tuple[np.ndarray, np.ndarray]:
    """(n,) candidates and which of them count."""
    low = uniform_below(top, n, bits)
    good = exp_coin(low, top, bits)
    run = np.zeros(n, dtype=np.int64)
    running = np.flatnonzero(good)
    one = np.ones(n, dtype=np.int64)
    for _ in range(_LONGEST_RUN):
        if not running.size:
            break
        running = running[exp_coin(one[: running.size], 1, bits)]
        run[running] += 1
    magnitude = (low + top * run) // bottom
    negative = coin(one, 2, bits)
    return np.where(negative, -magnitude, magnitude), good & ~(negative & (magnitude == 0))


@lru_cache(maxsize=256)
def response_weights(classes: int, epsilon: Fraction) -> tuple[int, int]:
    """(weight of the true label, weight of each other one), whole numbers whose ratio is at most e^epsilon.

    The ratio is a lower bound of the exponential series, so that the release costs epsilon at most; within 2^-38
    of it for epsilon up to 20.
    """
    count("classes", classes, 2, 10**6)
    number("epsilon", epsilon, 1e-9, 1e6)
    epsilon = min(epsilon, Fraction(41))  # beyond, a smaller ratio than e^epsilon: costs less than claimed
    width = max(0, min(40, 60 - math.ceil(float(epsilon) / math.log(2)), 60 - classes.bit_length()))
    term, total = Fraction(1), Fraction(1)
    for k in range(1, 240):  # every partial sum of the series is below e^epsilon
        term = Fraction(math.floor(term * epsilon / k * 2**120), 2**120)
        total += term
    return math.floor(total * 2**width), 2**width


def randomized_response(labels: np.ndarray, classes: int, epsilon: Any, bits: Bits) -> np.ndarray:
    """int64 of the shape of `labels` (0 .. classes - 1): the true label with odds e^epsilon : 1 to each other one."""
    keep, other = response_weights(classes, exact("epsilon", epsilon))
    true = np.asarray(labels, dtype=np.int64)
    if true.size and (true.min() < 0 or true.max() >= classes):
        raise ConfigError(f"A label lies outside 0 .. {classes - 1}.", "", "Give the number of classes of the claim.")
    flat = true.ravel()
    draw = uniform_below(keep + (classes - 1) * other, flat.size, bits) - keep
    wrong = draw // other
    wrong += wrong >= flat  # skips the true label
    return np.where(draw < 0, flat, wrong).reshape(true.shape)


def gaussian_steps(shape: int | Sequence[int], std: np.ndarray | float, grid: float, bits: Bits) -> np.ndarray:
    """int64 `shape`: normal noise of standard deviation `std` (broadcast to shape), in whole steps of `grid`."""
    spread = np.asarray(std, dtype=np.float64)
    number("grid", grid, 1e-30, 1e12)
    if not np.isfinite(spread).all() or (spread <= 0).any() or (spread / grid > 2.0**58).any():
        raise ConfigError("noise_std must be positive, finite and below 2^58 steps of the grid.", "",
                          "Check the floors and scales of the method.")
    size = int(np.prod(shape, dtype=np.int64))
    half = (size + 1) // 2
    radius = np.sqrt(-2.0 * np.log(uniform53(half, bits)))
    angle = 2.0 * np.pi * uniform53(half, bits)
    normal = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:size]
    return np.rint(normal.reshape(shape) * (spread / grid)).astype(np.int64)


def gaussian(shape: int | Sequence[int], std: np.ndarray | float, clip_norm: float, bits: Bits) -> np.ndarray:
    """float64 `shape`: normal noise on the grid clip_norm * 2^-20, the same that clipped values lie on."""
    grid = limited("clip_norm", clip_norm) * GRID
    return gaussian_steps(shape, std, grid, bits) * grid


# ---- the twin for training -----------------------------------------------------------------------------------------

def simulate_noise(values: torch.Tensor, noise: str, scale: torch.Tensor | float, *, generator: torch.Generator,
                   ) -> torch.Tensor:
    """`values` with noise of the law of the samplers above, differentiable; for training, never for a release.

    gaussian: scale is the standard deviation; gradients reach values and scale. discrete_laplace: scale is b; the
    forward value is a whole number apart, the gradient that of the Laplace draw it was rounded from.
    randomized_response: values (..., n) one-hot, scale is epsilon; returns a one-hot draw whose gradient is that of
    its mean. Randomness from `generator` alone.
    """
    import torch

    def uniform() -> torch.Tensor:  # (0, 1]
        draw = torch.rand(values.shape, dtype=torch.float64, device=values.device, generator=generator)
        return (1.0 - draw)

    if noise == "gaussian":
        normal = torch.randn(values.shape, dtype=values.dtype, device=values.device, generator=generator)
        return values + scale * normal
    if noise == "discrete_laplace":
        first, second = -scale * torch.log(uniform()), -scale * torch.log(uniform())
        smooth = first - second
        whole = torch.floor(first) - torch.floor(second)  # a difference of two geometric draws
        return values + (smooth + (whole - smooth).detach()).to(values.dtype)
    if noise == "randomized_response":
        others = values.shape[-1] - 1
        keep = 1 / (1 + others * torch.exp(-torch.as_tensor(scale, dtype=values.dtype)))
        mean = (1 - keep) / others + values * (keep - (1 - keep) / others)
        choice = torch.multinomial(mean.detach().reshape(-1, others + 1), 1, generator=generator)
        drawn = torch.nn.functional.one_hot(choice.reshape(mean.shape[:-1]), others + 1).to(mean.dtype)
        return mean + (drawn - mean).detach()
    kinds = ("gaussian", "discrete_laplace", "randomized_response")
    raise ConfigError(f"noise = {noise!r} cannot be simulated.", "", nearest(noise, kinds))
