"""Lower bounds on the loss of a mechanism, from counts on held-out releases. Statistics only.

Two inputs are fixed before any release; half of the releases fit a statistic and its threshold, the other half is
counted. A bound above the claim refutes the claim at level beta. `mu` bounds refute Gaussian claims only: twelve
error-free releases of a pure mechanism would "prove" a mu that it does not have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import beta as beta_law
from scipy.stats import binom, chi2

from bench.errors import ConfigError
from bench.privacy.accounting import Price
from bench.privacy.checks import count, limited, number, probability
from bench.privacy.conversions import epsilon_exact

BETA = 0.05
SCALE_ALARM = 0.00135  # three standard deviations: the scale test looks at every release


def upper_limit(k: int, n: int, beta: float = BETA) -> float:
    """One-sided Clopper-Pearson upper limit of a probability after k of n."""
    _tally("k", k, n)
    return 1.0 if k == n else float(beta_law.ppf(1 - probability("beta", beta, open_ends=True), k + 1, n - k))


def lower_limit(k: int, n: int, beta: float = BETA) -> float:
    """One-sided Clopper-Pearson lower limit of a probability after k of n."""
    _tally("k", k, n)
    return 0.0 if k == 0 else float(beta_law.ppf(probability("beta", beta, open_ends=True), k, n - k + 1))


def _tally(field: str, k: int, n: int) -> None:
    count("n", n, 1, 10**9)
    if count(field, k, 0, 10**9) > n:
        raise ConfigError(f"{field} = {k} of n = {n} cannot be.", "More successes than trials.", "")


def _quantile(p: float) -> float:
    return float(ndtri(p))


@dataclass(frozen=True)
class Bound:
    """Lower bounds at confidence 1 - beta. epsilon holds for every mechanism; mu (and epsilon_of_mu) for Gaussian ones.

    n: held-out trials in all. trials with no bound give 0.
    """

    epsilon: float
    mu: float
    epsilon_of_mu: float
    n: int
    beta: float
    how: str

    def refutes_epsilon(self, claim: float) -> bool:
        """Is the pure or (epsilon, delta) claim refuted? Valid for every mechanism."""
        return self.epsilon > claim

    def refutes_mu(self, claim: float) -> bool:
        """Is the claim of mu-GDP refuted? Only for claims that a Gaussian mechanism backs."""
        return self.mu > claim


def joint_bound(fp: int, n_negative: int, fn: int, n_positive: int, *, delta: float = 0.0,
                beta: float = BETA) -> Bound:
    """From false positives and false negatives: Clopper-Pearson at beta / 2 each, both directions at once.

    epsilon = max(0, ln((1 - delta - u) / v), ln((1 - delta - v) / u)); mu = Phi^-1(1 - u) - Phi^-1(v).
    """
    probability("delta", delta)
    u, v = upper_limit(fp, n_negative, beta / 2), upper_limit(fn, n_positive, beta / 2)
    best = max([0.0, *(math.log((1 - delta - a) / b) for a, b in ((u, v), (v, u)) if a < 1 - delta)])
    mu = 0.0 if u >= 1 or v >= 1 else max(0.0, _quantile(1 - u) - _quantile(v))
    return Bound(best, mu, _epsilon_of(mu, delta), n_negative + n_positive, beta, "joint Clopper-Pearson")


def bit_bound(correct: int, trials: int, *, delta: float = 0.0, beta: float = BETA) -> Bound:
    """From a secret fair bit in each trial, guessed by a fixed rule: one interval at twice the power of two.

    epsilon = ln((p - delta) / (1 - p)), mu = 2 Phi^-1(p), p the lower limit of the share of right guesses. Trials of
    different pairs may be put together.
    """
    probability("delta", delta)
    p = lower_limit(correct, trials, beta)
    epsilon = math.log((p - delta) / (1 - p)) if p > (1 + delta) / 2 else 0.0
    mu = 2 * _quantile(p) if p > 0.5 else 0.0
    return Bound(epsilon, mu, _epsilon_of(mu, delta), trials, beta, "random bit")


def _epsilon_of(mu: float, delta: float) -> float:
    return epsilon_exact(mu, delta) if delta and mu else (math.inf if mu else 0.0)


# ---- one run with many canaries -------------------------------------------------------------------------------------

def one_run_p_value(m: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """p-value of (epsilon, delta)-DP after `right` of `guesses` guesses on m canaries with fair bits in one run.

    B(right) + 2 m delta max over i of (B(right - i) - B(right)) / i, B the upper tail of Bin(guesses, p),
    p = e^epsilon / (1 + e^epsilon) (Steinke-Nasr-Jagielski 2023).
    """
    p = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, p))
    if not delta or right < 1:
        return min(1.0, tail)
    steps = np.arange(1, right + 1)
    slope = float(np.max((binom.sf(right - steps - 1, guesses, p) - tail) / steps))
    return min(1.0, tail + 2 * m * delta * slope)


def one_run_bound(m: int, guesses: int, right: int, *, delta: float = 0.0, beta: float = BETA) -> float:
    """The largest epsilon whose p-value is at most beta; 0 when none is refuted. The p-value grows with epsilon."""
    count("m", m, 1, 10**7)
    _tally("guesses", guesses, m)
    _tally("right", right, guesses)
    probability("delta", delta)

    def excess(epsilon: float) -> float:
        return one_run_p_value(m, guesses, right, epsilon, delta) - beta

    if excess(0.0) >= 0:
        return 0.0
    high = 1.0
    while excess(high) < 0 and high < 64:
        high *= 2
    return high if excess(high) < 0 else float(brentq(excess, 0.0, high, xtol=1e-12, rtol=1e-13))


# ---- the scale of the noise, from the vault --------------------------------------------------------------------------

@dataclass(frozen=True)
class ScaleTest:
    """ratio: realised over claimed standard deviation. resolves: the shortfall that is always seen at this n."""

    ratio: float
    p_too_small: float
    p_too_large: float
    n: int
    resolves: float

    def refuted(self, alarm: float = SCALE_ALARM) -> bool:
        """Is the noise smaller than claimed? Larger noise only costs quality."""
        return self.p_too_small < alarm


def noise_scale_test(residuals: np.ndarray, std: np.ndarray | float) -> ScaleTest:
    """Chi-square test that residuals (any shape) are normal with at least the standard deviation `std` (broadcast).

    One release of one branch (16,384 coordinates) sees a shortfall of 1.7 %. Raises ConfigError on non-finite input.
    """
    values = np.asarray(residuals, dtype=np.float64)
    scale = np.broadcast_to(np.asarray(std, dtype=np.float64), values.shape)
    if not values.size or not np.isfinite(values).all() or not np.isfinite(scale).all() or (scale <= 0).any():
        raise ConfigError("Residuals or scales are missing, not finite or not positive.",
                          "A scale test needs the noise of a release.", "Run it on the vault of an enforced release.")
    total = float(np.sum((values / scale) ** 2))
    n = values.size
    return ScaleTest(math.sqrt(total / n), float(chi2.cdf(total, n)), float(chi2.sf(total, n)), n,
                     1 - math.sqrt(float(chi2.ppf(SCALE_ALARM, n)) / n))


def laplace_scale_test(residuals: np.ndarray, scale: float) -> ScaleTest:
    """The same for discrete Laplace noise (whole numbers, any shape) by the mean of |x|; normal law of the sum.

    Meant for 100 draws or more. ratio: mean of |x| over the expected one.
    """
    values = np.abs(np.asarray(residuals, dtype=np.float64))
    b = limited("scale", scale)
    if values.size < 100 or not np.isfinite(values).all() or (values != np.rint(values)).any():
        raise ConfigError(f"{values.size} residuals that are whole numbers do not make a test of discrete noise.",
                          "It needs 100 draws or more, all whole.", "Run it on the vault of an enforced release.")
    q = math.exp(-1 / b)
    mean, square = 2 * q / (1 - q * q), 2 * q / (1 - q) ** 2
    spread = math.sqrt((square - mean**2) / values.size)
    z = (float(values.mean()) - mean) / spread
    return ScaleTest(float(values.mean()) / mean, float(ndtr(z)), float(ndtr(-z)), values.size,
                     min(1.0, 3 * spread / mean))


def response_test(kept: int, n: int, classes: int, epsilon: float) -> float:
    """p-value of randomised response keeping the true label too often: `kept` of n, exact binomial law."""
    _tally("kept", kept, n)
    allowed = 1 / (1 + (count("classes", classes, 2, 10**6) - 1) * math.exp(-limited("epsilon", epsilon)))
    return float(binom.sf(kept - 1, n, allowed))


def scale_test_power(shortfall: float, n: int, alarm: float = SCALE_ALARM) -> float:
    """Probability that noise smaller by `shortfall` (0.03 = 3 %) is caught from n coordinates."""
    number("shortfall", shortfall, 0.0, 0.999999)
    return float(chi2.cdf(chi2.ppf(alarm, count("n", n)) / (1 - shortfall) ** 2, n))


def verdict(bound: Bound, cost: Price) -> bool:
    """True = the claim is refuted. By mu where the claim is one of Gaussian DP, by epsilon (at its delta) otherwise."""
    if not math.isfinite(cost.epsilon):
        return False
    return bound.refutes_mu(cost.mu) if cost.mu is not None else bound.refutes_epsilon(cost.epsilon)
