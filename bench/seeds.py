"""Randomness, derived by name. Nothing else in the project makes a generator.

The same seed and the same names give the same stream on every machine; two different paths of names give
independent streams (SHA-256 of the path seeds a Philox / PCG64 generator, numpy NEP 19).
"""

from __future__ import annotations

import hashlib
import secrets

import numpy as np


def derive_int(seed: int, *names: str | int) -> int:
    """A 128-bit integer that depends on the seed and on every name in order."""
    path = "\x1f".join([str(int(seed)), *map(str, names)])
    return int.from_bytes(hashlib.sha256(path.encode()).digest()[:16], "big")


def derive(seed: int, *names: str | int) -> np.random.Generator:
    """An independent generator for this seed and path of names.

    >>> bool(derive(42, "a").random() == derive(42, "a").random())
    True
    """
    return np.random.Generator(np.random.PCG64(derive_int(seed, *names)))


def derive_torch(seed: int, *names: str | int) -> int:
    """A 63-bit seed for `torch.manual_seed` or `torch.Generator.manual_seed`."""
    return derive_int(seed, *names) >> 65


def fresh() -> int:
    """A seed from the operating system, for the release of a user's own video: nobody can compute it again."""
    return secrets.randbits(64)
