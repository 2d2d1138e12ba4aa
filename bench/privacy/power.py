"""What an audit of n held-out releases can see, worked out before it is run: its power, and the releases it needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import beta as beta_law
from scipy.stats import binom

from bench.privacy.audit import BETA
from bench.privacy.checks import count, number, probability


def bit_critical(trials: int, claim_accuracy: float, beta: float = BETA) -> int:
    """Right guesses from which the random-bit audit refutes a claim that allows `claim_accuracy`."""
    return int(binom.isf(beta, trials, claim_accuracy)) + 1


def bit_power(true_mu: float, claim_mu: float, trials: int, beta: float = BETA) -> float:
    """Probability that `trials` random-bit trials against a Gaussian mechanism of `true_mu` refute `claim_mu`."""
    accuracy = float(ndtr(claim_mu / 2))
    return float(binom.sf(bit_critical(trials, accuracy, beta) - 1, trials, ndtr(true_mu / 2)))


@lru_cache(maxsize=64)
def _quantiles(n: int, beta: float) -> np.ndarray:
    """(n + 1,) Phi^-1(1 - u) for the Clopper-Pearson upper limit u after 0 .. n errors; falls from left to right."""
    k = np.arange(n)
    return np.append(ndtri(1 - beta_law.ppf(1 - beta, k + 1, n - k)), -np.inf)


def joint_power(true_mu: float, claim_mu: float, n: int, beta: float = BETA) -> float:
    """The same for the joint bound with n held-out releases a side, threshold halfway, errors Bin(n, Phi(-mu/2))."""
    value = _quantiles(n, beta / 2)
    chance = binom.pmf(np.arange(n + 1), n, ndtr(-true_mu / 2))
    most = np.searchsorted(-value, value - claim_mu, side="left") - 1  # largest FN with value[FP] + value[FN] > claim
    return float(np.sum(chance * np.where(most >= 0, binom.cdf(most, n, ndtr(-true_mu / 2)), 0.0)))


def releases_needed(power_at: Callable[[int], float], power: float = 0.9, most: int = 10**7) -> int | None:
    """The smallest n with power_at(n) >= power, up to the jitter of whole counts; None above `most`."""
    high = 2
    while power_at(high) < power:
        if high >= most:
            return None
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power_at(middle) >= power else (middle, high)
    return high


def detectable_mu(claim_mu: float, trials: int, *, beta: float = BETA, power: float = 0.9) -> float:
    """The smallest true mu that a random-bit audit of `trials` refutes with this power: what this n can see.

    Infinite where even a mechanism without noise would not be caught.
    """
    number("claim_mu", claim_mu, 0.0, 1e6)
    return 2 * _detectable(float(ndtr(claim_mu / 2)), trials, beta, power, lambda p: float(ndtri(p)))


def detectable_epsilon(claim_epsilon: float, trials: int, *, beta: float = BETA, power: float = 0.9) -> float:
    """The same for a pure claim: the smallest true epsilon, attained by randomised response."""
    number("claim_epsilon", claim_epsilon, 0.0, 1e6)
    allowed = 1 / (1 + math.exp(-claim_epsilon))
    return _detectable(allowed, trials, beta, power, lambda p: math.log(p / (1 - p)))


def _detectable(allowed: float, trials: int, beta: float, power: float, to_loss: Callable[[float], float]) -> float:
    count("trials", trials, 1, 10**9)
    probability("beta", beta, open_ends=True)
    critical = bit_critical(trials, allowed, beta) if allowed < 1 else trials + 1
    if critical > trials:
        return math.inf
    p = float(beta_law.ppf(probability("power", power, open_ends=True), critical, trials - critical + 1))
    return to_loss(p) if p < 1 else math.inf


def saturation(true_mu: float, delta: float, n: int, beta: float = BETA) -> float:
    """The epsilon that the joint Clopper-Pearson bound reaches on expected counts at its best threshold.

    n held-out releases a side of a Gaussian mechanism, expected counts rounded; shows how little the
    (epsilon, delta) bound can ever see.
    """
    thresholds = np.linspace(true_mu / 2, true_mu / 2 + 8, 4000)
    fp, fn = np.round(n * ndtr(-thresholds)), np.round(n * ndtr(thresholds - true_mu))
    u = beta_law.ppf(1 - beta / 2, fp + 1, np.maximum(n - fp, 1e-9))
    v = beta_law.ppf(1 - beta / 2, fn + 1, np.maximum(n - fn, 1e-9))
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.log(np.maximum(1 - delta - v, 1e-300) / u)
    return max(0.0, float(np.nanmax(bound)))


def effective_mu(mu: float, dimensions: int, n: int) -> float:
    """mu that a filter learnt from n releases a side still sees: mu / sqrt(1 + 2 D / (n mu^2)). A heuristic.

    It is why an audit that learns the direction from decoded video and finds nothing says nothing.
    """
    number("mu", mu, 1e-9, 1e6)
    return mu / math.sqrt(1 + 2 * count("dimensions", dimensions) / (count("n", n) * mu * mu))
