"""Noise by distance, for metric privacy: the same in every direction, falling off exponentially with its length.

float64 on 53-bit uniforms: the law is exact up to rounding, and nothing hides the low bits of what it is added to.
"""

from __future__ import annotations

import numpy as np

from bench.privacy.bits import Bits, uniform53
from bench.privacy.checks import count, number


def isotropic_exponential(rows: int, dim: int, epsilon: float, bits: Bits) -> np.ndarray:
    """float64 (rows, dim): each row has density proportional to exp(-epsilon * |z|), |z| its Euclidean length.

    epsilon: per unit of distance, so that adding a row to x or to x' costs epsilon * |x - x'| at most, by the triangle
    inequality. The length is Gamma(dim, 1 / epsilon), a sum of `dim` exponentials; the direction is that of a normal
    vector. Chatzikokolakis, Andres, Bordenabe, Palamidessi 2013 in two dimensions, Wu et al. 2017 in any number.
    """
    count("rows", rows, 1, 10**7)
    count("dim", dim, 1, 10**6)
    number("epsilon", epsilon, 1e-9, 1e9)
    length = -np.log(uniform53(rows * dim, bits)).reshape(rows, dim).sum(axis=1) / epsilon  # (rows,)
    half = (rows * dim + 1) // 2
    radius, angle = np.sqrt(-2.0 * np.log(uniform53(half, bits))), 2.0 * np.pi * uniform53(half, bits)
    normal = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:rows * dim].reshape(rows, dim)
    norm = np.maximum(np.linalg.norm(normal, axis=1), 1e-300)  # zero has probability 0 and no direction
    return normal * (length / norm)[:, None]
