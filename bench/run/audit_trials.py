"""The audit itself: a secret bit chooses the input of every release, a distinguisher guesses it, guesses are counted.

Whoever releases is an argument, so that the same code that passes a right mechanism catches a broken one. The first
half of the releases fits the distinguisher; only the second half, whose bits are secret, is counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.privacy.accounting import Price
from bench.privacy.audit import (
    BETA,
    SCALE_ALARM,
    Bound,
    ScaleTest,
    bit_bound,
    joint_bound,
    laplace_scale_test,
    noise_scale_test,
    response_test,
    verdict,
)
from bench.privacy.contract import Branch
from bench.privacy.conversions import epsilon_exact
from bench.privacy.distinguish import fit, statistics
from bench.privacy.noise import response_weights
from bench.privacy.power import detectable_epsilon, detectable_mu
from bench.run.enforced import BLOCK

Rows = Mapping[str, np.ndarray]
Release = Callable[[np.ndarray], Rows]  # bits (B,), true = second input -> released values {branch: (B, rows, dim)}
FAR = 3.0  # norm of a clipping canary, in clip norms
ENOUGH = 16_384  # coordinates of noise from which a scale test sees a shortfall of 1.7 %


@dataclass(frozen=True)
class Trials:
    """What n releases of one pair showed. trials: held-out guesses, `right` of them right. joint: None without both
    inputs among them. refuted: by the bit bound, the one that counts; `joint` has less power and is for reference.
    """

    n: int
    trials: int
    right: int
    bit: Bound
    joint: Bound | None
    refuted: bool


def audit_releases(release: Release, first: Rows, second: Rows, cost: Price, n: int, rng: np.random.Generator, *,
                   spread: Mapping[str, float], beta: float = BETA) -> Trials:
    """Release n times, each time one of two inputs, and bound the loss from below at confidence 1 - beta.

    first, second: the clipped inputs that the auditor expects, {branch: (rows, dim)}.  cost: the claim's price.
    spread: standard deviation of the noise of each branch.  rng: chooses the bits; never seen by `release`.
    Raises ConfigError with fewer than four releases to fit on.
    """
    half = n // 2
    bits = np.concatenate([rng.permutation(np.arange(half) % 2 == 1), rng.random(n - half) < 0.5])  # (n,) bool
    features = np.concatenate([_features(release, bits[i:i + BLOCK], first, second, spread)
                               for i in range(0, n, BLOCK)])  # (n, 1 + branches)
    judge = fit(features[:half][~bits[:half]], features[:half][bits[:half]])
    held, truth = features[half:], bits[half:]
    right, positive = judge.right(held, truth), int(truth.sum())
    fp, fn = judge.errors(held[~truth], held[truth])
    bit = bit_bound(right, len(held), delta=cost.delta, beta=beta)
    both = 0 < positive < len(held)
    joint = joint_bound(fp, len(held) - positive, fn, positive, delta=cost.delta, beta=beta) if both else None
    return Trials(n, len(held), right, bit, joint, verdict(bit, cost) or bit.refutes_epsilon(cost.epsilon))


def _features(release: Release, bits: np.ndarray, first: Rows, second: Rows,
              spread: Mapping[str, float]) -> np.ndarray:
    """(B, 1 + branches). A block is always full: what a method does with a batch may depend on its size."""
    full = np.concatenate([bits, np.zeros(BLOCK - len(bits), dtype=bool)])
    return statistics(release(full), first, second, spread)[:len(bits)]


def proven(bound: Bound, cost: Price) -> float:
    """The epsilon (at the claim's delta) that a bound shows: by mu for a Gaussian claim, directly for a pure one."""
    return bound.epsilon if cost.mu is None else max(bound.epsilon, bound.epsilon_of_mu)


def allowed(cost: Price) -> float:
    """The largest share of right guesses that the claim allows, in 0.5 .. 1."""
    return 0.5 * (1 + math.erf(cost.mu / 2 / math.sqrt(2))) if cost.mu is not None \
        else 1 / (1 + math.exp(-cost.epsilon))


def detectable(cost: Price, trials: int, beta: float = BETA) -> float:
    """The smallest true epsilon that `trials` guesses refute nine times in ten; infinite where nothing would be."""
    if cost.mu is None:
        return detectable_epsilon(cost.epsilon, trials, beta=beta)
    mu = detectable_mu(cost.mu, trials, beta=beta)
    return epsilon_exact(mu, cost.delta) if math.isfinite(mu) else math.inf


def distance(first: Rows, second: Rows, spread: Mapping[str, float]) -> float:
    """How far apart two clipped inputs are, in standard deviations of the noise: the mu of telling them apart."""
    return math.sqrt(sum(float(np.sum(((second[b] - first[b]) / spread[b]) ** 2)) for b in first))


def canary(rows: Any, branch: Branch, sign: int) -> np.ndarray:
    """Raw rows far outside the clip, {-1, +1} for the two ends; clipped they are as far apart as the claim allows.

    rows: (rows, dim) of a real clip, which give the direction in an l2 ball; one coordinate in an l1 ball, all
    coordinates of a box, the first and the last class of a label.
    """
    count = len(rows)
    if branch.norm in ("box", "label"):
        return np.full((count, branch.dim), FAR * branch.clip if sign > 0 else -1.0)
    way = np.zeros((count, branch.dim))
    way[:, 0] = 1.0
    given = np.asarray(rows, dtype=np.float64)
    if branch.norm == "l2" and np.isfinite(given).all():
        norm = np.linalg.norm(given, axis=1, keepdims=True)
        way = np.where(norm > 0, given / np.maximum(norm, 1e-300), way)
    return sign * FAR * branch.clip * way


# ---- the noise, seen directly --------------------------------------------------------------------------------------

def releases_for_scale(branches: Sequence[Branch], rows: int) -> int:
    """Releases that give every branch ENOUGH coordinates, at most one block."""
    return min(BLOCK, max(-(-ENOUGH // (rows * k.dim)) for k in branches))


def scale_row(branch: Branch, released: np.ndarray, given: np.ndarray, scale: np.ndarray) -> dict[str, Any]:
    """Is the noise as large as stated? released minus given (k, rows, dim); scale (k, rows) as the mechanism states it.

    The noise is what the auditor computes, not what the mechanism says it drew. ratio: found over stated size;
    p: of noise this small under the claim; resolves: the shortfall that is always seen at this n.
    """
    noise = released - given
    if branch.noise == "randomized_response":
        return _response_row(branch, noise)
    low = branch.noise == "gaussian" and bool((scale < float(branch.floor or 0.0) * (1 - 1e-12)).any())
    test: ScaleTest = noise_scale_test(noise, scale[:, :, None]) if branch.noise == "gaussian" else \
        laplace_scale_test(np.rint(noise), float(scale.min()))
    return {"branch": branch.name, "test": "chi-square" if branch.noise == "gaussian" else "mean size",
            "ratio": test.ratio, "p": test.p_too_small, "n": test.n, "resolves": test.resolves,
            "under_floor": low, "refuted": test.refuted() or low}


def _response_row(branch: Branch, noise: np.ndarray) -> dict[str, Any]:
    """Randomised response: the true label may be kept this often and no more."""
    kept, n, classes = int((noise == 0).sum()), noise.size, int(branch.clip)
    keep, other = response_weights(classes, branch.epsilon)  # type: ignore[arg-type]
    change = 1 - keep / (keep + (classes - 1) * other)  # of the label, as claimed
    p = response_test(kept, n, classes, float(branch.epsilon or 0))
    return {"branch": branch.name, "test": "labels kept", "ratio": (1 - kept / n) / change, "p": p, "n": n,
            "resolves": min(1.0, 3 * math.sqrt((1 - change) / (change * n))), "under_floor": False,
            "refuted": p < SCALE_ALARM}
