"""Derived randomness: the same path gives the same stream, another path an independent one."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from conftest import environment
from scipy import stats as peers

from bench import seeds


def test_the_number_is_sha256_of_the_path():
    expected = int.from_bytes(hashlib.sha256(b"42\x1frelease\x1f7").digest()[:16], "big")
    assert seeds.derive_int(42, "release", 7) == expected
    assert seeds.derive_torch(42, "release", 7) == expected >> 65 < 2**63


def test_the_stream_is_numpys_pcg64_of_that_number():
    expected = np.random.Generator(np.random.PCG64(seeds.derive_int(1, "a"))).random(5)
    np.testing.assert_array_equal(seeds.derive(1, "a").random(5), expected)


@pytest.mark.parametrize("other", [(43, "a", "b"), (42, "b", "a"), (42, "ab"), (42, "a"), (42, "a", "b", ""),
                                   (42, "a", "b", "c")])
def test_another_path_is_another_stream(other):
    assert seeds.derive_int(42, "a", "b") != seeds.derive_int(*other)


def test_the_same_path_is_the_same_stream_in_another_process():
    code = "from bench import seeds; print(seeds.derive(5, 'x', 1).bytes(16).hex(), seeds.derive_torch(5, 'x', 1))"
    done = subprocess.run([sys.executable, "-c", code], env=environment(PYTHONHASHSEED="123"), text=True,
                          capture_output=True, check=True)
    assert done.stdout.split() == [seeds.derive(5, "x", 1).bytes(16).hex(), str(seeds.derive_torch(5, "x", 1))]


def test_streams_of_neighbouring_names_are_uncorrelated_and_uniform():
    draws = np.array([seeds.derive(42, "person", i).random(50) for i in range(100)])  # (paths, draws)
    assert peers.kstest(draws.ravel(), "uniform").pvalue > 1e-3
    assert peers.kstest(draws[:, 0], "uniform").pvalue > 1e-3  # first draws of neighbouring names
    off = np.corrcoef(draws)[~np.eye(100, dtype=bool)]
    assert abs(off.mean()) < 4 / np.sqrt(off.size / 2 * 49)


def test_fresh_seeds_differ():
    assert len({seeds.fresh() for _ in range(100)}) == 100
