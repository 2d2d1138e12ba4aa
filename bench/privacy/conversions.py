"""Conversions between rho (zero-concentrated, RDP slope), mu (Gaussian DP), epsilon at delta: closed forms, no grid.

A Gaussian release of total shift mu (in units of its noise) has rho = mu^2 / 2. Three ways to say it at one delta:
Mironov 2017 Prop. 3 (loose), Canonne-Kamath-Steinke 2020 Prop. 12 = Balle et al. 2020 Thm 21, and exactly
(Balle-Wang 2018; Dong-Roth-Su 2022). All directions are increasing in each other, so that the inverse is one root.
"""

from __future__ import annotations

import math
from fractions import Fraction

from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr, ndtri

from bench.privacy.checks import limited

LARGEST_RHO = 1e60  # what the smallest floor and the largest clip, frames and clips can add up to
_ROOT_HALF = math.sqrt(0.5)
_ROOT_HALF_PI = math.sqrt(math.pi / 2)
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


# ---- from rho or mu to epsilon ------------------------------------------------------------------------------------

def epsilon_mironov(rho: float, delta: float) -> float:
    """rho + 2 sqrt(rho ln(1/delta)), the minimum over all orders of rho a + ln(1/delta) / (a - 1)."""
    return rho + 2 * math.sqrt(rho * -math.log(delta)) if rho < math.inf else math.inf


def order_mironov(rho: float, delta: float) -> float:
    """The order at which `epsilon_mironov` is attained."""
    return 1 + math.sqrt(-math.log(delta) / rho)


def order_cks(rho: float, delta: float) -> float:
    """The order a > 1 with rho (a - 1)^2 + ln a = ln(1/delta): the only stationary point of the CKS bound."""
    return 1 + math.exp(_log_order(rho, delta))


def _log_order(rho: float, delta: float) -> float:
    """y = ln(a - 1). The left side is convex and increasing in y, so Newton from above never overshoots."""
    target = -math.log(delta)
    y = min(0.5 * math.log(target / rho), math.log(math.expm1(target)))
    for _ in range(100):
        u = math.exp(y)
        step = (rho * u * u + math.log1p(u) - target) / (2 * rho * u * u + u / (1 + u))
        y -= step
        if step < 1e-9:  # the error after a step is of the order of its square
            break
    return y


def epsilon_cks(rho: float, delta: float) -> float:
    """min over a of rho a + ln(1 - 1/a) + (ln(1/delta) - ln a) / (a - 1), at its one stationary point; at least 0."""
    if rho == math.inf:
        return math.inf
    if rho == 0:
        return 0.0
    u = math.exp(_log_order(rho, delta))
    return max(0.0, rho * (2 * u + 1) - math.log1p(1 / u))


def delta_exact(epsilon: float, mu: float) -> float:
    """The smallest delta at which a mu-GDP release is (epsilon, delta)-DP."""
    if mu == 0:
        return 0.0
    return math.exp(_log_delta(mu / 2 - epsilon / mu, mu)[0])


def _ratio(x: float) -> float:
    """R(x) = Phi(x) / phi(x), to 1e-14 relative; the plain product is four times faster where it is as good."""
    if -8 < x:
        return _ROOT_HALF_PI * math.erfc(-x * _ROOT_HALF) * math.exp(0.5 * x * x)
    return _ROOT_HALF_PI * float(erfcx(-x * _ROOT_HALF))


def _log_delta(t: float, mu: float) -> tuple[float, float]:
    """(ln delta, its slope in t) at epsilon = mu (mu/2 - t).

    delta = Phi(t) - e^epsilon Phi(t - mu) = phi(t) [R(t) - R(t - mu)], R = Phi/phi, free of overflow.
    """
    tail = _ratio(t - mu)  # t - mu <= -mu/2 < 0
    if t < 1:
        if mu < 1e-5:  # R(t) - R(t - mu) = mu R'(middle) + O(mu^3), R'(x) = 1 + x R(x)
            middle = t - mu / 2
            gap = mu * (1 + middle * _ROOT_HALF_PI * float(erfcx(-middle * _ROOT_HALF)))
        elif mu < 0.01:
            gap = _ROOT_HALF_PI * float(erfcx(-t * _ROOT_HALF) - erfcx((mu - t) * _ROOT_HALF))
        else:
            gap = _ratio(t) - tail
        return -0.5 * t * t - _HALF_LOG_2PI + math.log(gap), mu * tail / gap
    density = math.exp(-0.5 * t * t - _HALF_LOG_2PI)
    value = 0.5 * math.erfc(-t * _ROOT_HALF) - density * tail
    return math.log(value), mu * density * tail / value


def epsilon_exact(mu: float, delta: float) -> float:
    """The smallest epsilon at which a mu-GDP release is (epsilon, delta)-DP; 0 when delta alone covers it.

    delta as a function of t is a convolution of a normal density with the log-concave 1 - exp(-mu y), hence
    log-concave, and delta(t) <= Phi(t): Newton on ln delta from t = Phi^-1(delta) climbs to the root and stays below.
    """
    if mu == math.inf:
        return math.inf
    target = math.log(delta)
    if math.erf(mu / 2 * _ROOT_HALF) <= delta:  # delta at epsilon = 0
        return 0.0
    t = min(float(ndtri(delta)), mu / 2)
    for _ in range(200):
        value, slope = _log_delta(t, mu)
        step = (target - value) / slope
        t += step
        if step < 1e-9:  # the error after a step is of the order of its square
            break
    return max(0.0, mu * (mu / 2 - t))


# ---- from epsilon at delta to rho or mu ---------------------------------------------------------------------------

def rho_mironov(epsilon: float, delta: float) -> float:
    """The rho whose Mironov epsilon at delta is `epsilon`: (sqrt(epsilon + L) - sqrt(L))^2, L = ln(1/delta)."""
    epsilon, length = limited("epsilon", epsilon), -math.log(limited("delta", delta))
    return (epsilon / (math.sqrt(epsilon + length) + math.sqrt(length))) ** 2


def rho_cks(epsilon: float, delta: float) -> float:
    """The rho whose CKS epsilon at delta is `epsilon`; a root in ln(a - 1), of which rho is a decreasing function."""
    epsilon, length = limited("epsilon", epsilon), -math.log(limited("delta", delta))

    def rho(y: float) -> float:
        return (length - math.log1p(math.exp(y))) * math.exp(-2 * y)

    def excess(y: float) -> float:
        return rho(y) * (2 * math.exp(y) + 1) - math.log1p(math.exp(-y)) - epsilon

    high = math.log(math.expm1(length))
    low = min(high, 0.0) - 1
    while excess(low) <= 0:
        low -= 2
    return rho(float(brentq(excess, low, high, xtol=1e-14, rtol=1e-15)))


def mu_exact(epsilon: float, delta: float) -> float:
    """The mu of the weakest Gaussian release that is exactly (epsilon, delta)-DP."""
    epsilon, delta = limited("epsilon", epsilon), limited("delta", delta)
    target = math.log(delta)

    def mu(t: float) -> float:  # the root of epsilon = mu (mu/2 - t), without cancellation
        root = math.sqrt(t * t + 2 * epsilon)
        return t + root if t > 0 else 2 * epsilon / (root - t)

    low = float(ndtri(delta))
    high = low + 1
    while _log_delta(high, mu(high))[0] < target:
        high += max(1.0, high - low)
    if _log_delta(low, mu(low))[0] >= target:  # equal up to rounding: epsilon is huge
        return mu(low)
    return mu(float(brentq(lambda t: _log_delta(t, mu(t))[0] - target, low, high, xtol=1e-15, rtol=1e-15)))


# ---- pure epsilon ------------------------------------------------------------------------------------------------

def rho_of_pure(epsilon: float | Fraction) -> float:
    """A pure epsilon-DP release is (epsilon^2 / 2)-zCDP (Bun-Steinke 2016)."""
    return float(epsilon) ** 2 / 2


def mu_of_pure(epsilon: float | Fraction) -> float:
    """A pure epsilon-DP release is mu-GDP with Phi(-mu/2) = 1 / (1 + e^epsilon).

    Both trade-off curves pass through (0, 1), (p, p), (1, 0); one is straight between them and the other convex.
    """
    return 2 * _quantile_of_log(float(epsilon))


def _quantile_of_log(epsilon: float) -> float:
    """-Phi^-1(1 / (1 + e^epsilon)), also where the probability is too small for a float."""
    log_p = -(epsilon + math.log1p(math.exp(-epsilon)))
    if log_p > -600:
        return -float(ndtri(math.exp(log_p)))
    return float(brentq(lambda x: float(log_ndtr(-x)) - log_p, 0.0, math.sqrt(-2 * log_p) + 1, xtol=1e-13))
