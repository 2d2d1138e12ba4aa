"""What an attacker can reach at most, whatever it knows and however it was trained, as long as the claim holds.

A bound starts from the loss of everything that the attacker reads: `Loss.over(k)` composes k clips or k draws.
Theorem numbers: 5 ROC, AUC, EER; 6 top-1 of n equally likely classes; 7 any prior; 8 norm-clipped Gaussian; 9 open
set. 6 and 7 are one statement: with priors pi and c = (1 - pi_max) / pi_max, accuracy a obeys a + c g(a) <= 1, where
g(a) is the least mass another input can give to a set that has mass a.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from bench.errors import ConfigError
from bench.privacy.accounting import Price
from bench.privacy.checks import count, number, probability

INF = math.inf
NO_LIMIT = 0.95  # a ceiling above says nothing that a reader could use


@dataclass(frozen=True)
class Loss:
    """What the released values cost: pure (epsilon), approx (epsilon, delta) or gaussian (mu); infinity = no claim.

    norm_clipped: every row is clipped to a norm ball around zero and has Gaussian noise (needed for Theorem 8).
    """

    kind: Literal["pure", "approx", "gaussian"]
    epsilon: float = INF
    delta: float = 0.0
    mu: float = INF
    norm_clipped: bool = False

    def __post_init__(self):
        value = self.mu if self.kind == "gaussian" else self.epsilon
        if value != INF:
            number("mu" if self.kind == "gaussian" else "epsilon", value, 0.0, 1e9)
        probability("delta", self.delta)

    @property
    def finite(self) -> bool:
        return (self.mu if self.kind == "gaussian" else self.epsilon) < INF and self.delta < 1

    def over(self, k: int) -> Loss:
        """k independent clips or draws: mu sqrt(k); for epsilon (and delta) k times."""
        count("k", k)
        return replace(self, mu=self.mu * math.sqrt(k), epsilon=self.epsilon * k, delta=min(1.0, self.delta * k))

    @classmethod
    def of(cls, cost: Price, *, norm_clipped: bool = False) -> Loss:
        """The loss of a priced claim; the exact profile where it is Gaussian, which is tighter than one point of it."""
        if cost.mu is not None:
            return cls("gaussian", mu=cost.mu, norm_clipped=norm_clipped)
        return cls("pure", epsilon=cost.epsilon)


@dataclass(frozen=True)
class Ceiling:
    """bound: None = no limit. direction: "at most", or "at least" for an error rate. conditions: what must hold."""

    bound: float | None
    theorem: str
    conditions: tuple[str, ...] = ()
    direction: Literal["at most", "at least"] = "at most"

    @property
    def vacuous(self) -> bool:
        """True where the claim sets no limit worth printing."""
        return self.bound is None or \
            (self.bound > NO_LIMIT if self.direction == "at most" else self.bound < 1 - NO_LIMIT)


_ALL = ("The claim covers everything the attacker reads, and its noise is independent of all else it knows.",)
_MATCHED = ("The two cases are the same stream with and without the event; unrelated windows are not bounded.",)
_PRIOR = ("Classes are as likely as stated.",)
_BALL = ("Every row is clipped to a ball around zero; the comparison is with a release of zeros.",)


def _none(direction: Literal["at most", "at least"] = "at most") -> Ceiling:
    return Ceiling(None, "no limit", ("epsilon is infinite",), direction)


def _phi(x: float) -> float:
    return float(ndtr(x))


def most_mass(loss: Loss, q: float) -> float:
    """The largest probability that an input can give to a set to which another input gives q (Theorem 5)."""
    if loss.kind == "gaussian":
        return _phi(float(ndtri(q)) + loss.mu)
    e, d = math.exp(min(loss.epsilon, 700)), loss.delta
    return max(0.0, min(1.0, e * q + d, 1 - (1 - d - q) / e))


def least_mass(loss: Loss, a: float) -> float:
    """The smallest probability that an input can give to a set to which another input gives a."""
    if loss.kind == "gaussian":
        return _phi(float(ndtri(a)) - loss.mu)
    e, d = math.exp(min(loss.epsilon, 700)), loss.delta
    return max(0.0, (a - d) / e, 1 - d - e * (1 - a))


# ---- two cases -----------------------------------------------------------------------------------------------------

def roc(loss: Loss, fpr: np.ndarray) -> np.ndarray | None:
    """Largest true positive rate at each false positive rate, an array; None without a limit."""
    if not loss.finite:
        return None
    return np.array([most_mass(loss, probability("fpr", float(x))) for x in np.asarray(fpr, dtype=float).ravel()])


def tar(loss: Loss, far: float, *, event: bool = False) -> Ceiling:
    """True accept (or detection) rate at a false accept rate."""
    probability("far", far)
    if not loss.finite:
        return _none()
    return Ceiling(most_mass(loss, far), "Theorem 5 (ROC)", _ALL + (_MATCHED if event else ()))


def auc(loss: Loss, *, event: bool = False) -> Ceiling:
    """Area under the ROC curve: e^eps / (1 + e^eps); 1 - (1 - delta)^2 / (1 + e^eps); Phi(mu / sqrt 2)."""
    if not loss.finite:
        return _none()
    if loss.kind == "gaussian":
        bound = _phi(loss.mu / math.sqrt(2))
    else:
        bound = 1 - (1 - loss.delta) ** 2 * _logistic(-loss.epsilon)
    return Ceiling(bound, "Theorem 5 (AUC)", _ALL + (_MATCHED if event else ()))


def eer(loss: Loss) -> Ceiling:
    """Equal error rate, a bound from below: (1 - delta) / (1 + e^eps); Phi(-mu / 2)."""
    if not loss.finite:
        return _none("at least")
    bound = _phi(-loss.mu / 2) if loss.kind == "gaussian" else (1 - loss.delta) * _logistic(-loss.epsilon)
    return Ceiling(bound, "Theorem 5 (EER)", _ALL, "at least")


def bit_accuracy(loss: Loss) -> Ceiling:
    """Guessing which of two equally likely inputs was released: the complement of the equal error rate."""
    bound = eer(loss).bound
    return _none() if bound is None else Ceiling(1 - bound, "Theorem 5 (one bit)", _ALL)


# ---- n classes -----------------------------------------------------------------------------------------------------

def top1(loss: Loss, priors: int | Sequence[float]) -> Ceiling:
    """Accuracy over classes with these priors (or that many equally likely ones)."""
    largest, uniform = _largest_prior(priors)
    if not loss.finite:
        return _none()
    if loss.kind == "gaussian" and loss.norm_clipped:
        bound = _phi(float(ndtri(largest)) + loss.mu / 2)
        return Ceiling(bound, "Theorem 8 (norm-clipped Gaussian)", _ALL + _PRIOR + _BALL)
    name = "Theorem 6 (n equally likely classes)" if uniform else "Theorem 7 (any prior)"
    return Ceiling(_master(loss, (1 - largest) / largest), name, _ALL + _PRIOR)


def uar(loss: Loss, classes: int) -> Ceiling:
    """Unweighted average recall: every class counts alike, whatever its prior."""
    found = top1(loss, count("classes", classes, 2, 10**7))
    return found if found.bound is None else replace(found, conditions=tuple(c for c in found.conditions
                                                                              if c not in _PRIOR))


def _master(loss: Loss, c: float) -> float:
    """The largest a with a + c g(a) <= 1; closed where g is a line."""
    if loss.kind != "gaussian":
        scale = math.exp(-min(loss.epsilon, 700))
        return min(1.0, (1 + c * scale * loss.delta) / (1 + c * scale))
    if c == 0 or loss.mu == 0:
        return 1 / (1 + c)
    # with x = Phi^-1(a): Phi(-x) = c Phi(x - mu); both sides are small where a is close to 1, nothing cancels
    x = float(brentq(lambda x: ndtr(-x) - c * ndtr(x - loss.mu), -40.0, 40.0 + loss.mu, xtol=1e-14, rtol=1e-15))
    return _phi(x)


def _largest_prior(priors: int | Sequence[float]) -> tuple[float, bool]:
    if isinstance(priors, (int, np.integer)):
        return 1 / count("classes", priors, 2, 10**7), True
    values = [probability(f"prior {i}", float(p)) for i, p in enumerate(priors)]
    if len(values) < 2 or abs(math.fsum(values) - 1) > 1e-6:
        raise ConfigError(f"The priors of {len(values)} classes add up to {math.fsum(values):g}.",
                          "A ceiling needs the share of trials of every class.", "Give two or more that add up to 1.")
    return min(1.0, max(values)), max(values) - min(values) < 1e-12


def dir_at_far(loss: Loss, far: float, enrolled: int) -> Ceiling:
    """Detection and identification rate: far = chance that a stranger is accepted as any of `enrolled` people."""
    probability("far", far)
    count("enrolled", enrolled, 1, 10**7)
    if not loss.finite:
        return _none()
    return Ceiling(most_mass(loss, far / enrolled), "Theorem 9 (open set)", _ALL)


def over_trials(loss: Loss, clips: Iterable[int], ceiling: Callable[[Loss], Ceiling]) -> Ceiling:
    """The ceiling of a mean over trials that read different numbers of clips: the mean of theirs.

    `clips`: one k for each trial; `ceiling`: for instance `lambda loss: top1(loss, 25)`.
    """
    ks, times = np.unique(np.asarray(list(clips), dtype=np.int64), return_counts=True)
    if not ks.size:
        raise ConfigError("No trial was given.", "A ceiling over trials needs the clips that each one reads.", "")
    each = [ceiling(loss.over(int(k))) for k in ks]
    if any(c.bound is None for c in each):
        return _none(each[0].direction)
    bound = float(np.average([c.bound for c in each], weights=times))
    note = f"Mean over {int(times.sum())} trials that read {int(ks[0])} to {int(ks[-1])} clips."
    return replace(each[0], bound=bound, conditions=each[0].conditions + (note,))


def top1_simplex(mu: float, classes: int) -> float:
    """Accuracy that n equidistant Gaussians (pairwise distance mu) do reach; a comparison, not a ceiling."""
    number("mu", mu, 0.0, 1e3)
    shift = mu / math.sqrt(2)
    value, _ = quad(lambda z: math.exp(-0.5 * (z - shift) ** 2) / math.sqrt(2 * math.pi) * ndtr(z) ** (classes - 1),
                    shift - 12, shift + 12, epsabs=1e-13, epsrel=1e-12, limit=200)
    return float(value)


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else math.exp(x)
