"""The release loop against a bare float32 loop that clips and adds noise, in one run; exact discrete Laplace draws."""

import time
from fractions import Fraction

import numpy as np
import pytest

from bench.privacy.bits import OsBits, SeededBits
from bench.privacy.contract import Branch
from bench.privacy.mechanism import clip_rows, run_streams
from bench.privacy.noise import discrete_laplace
from bench.seeds import derive

pytestmark = pytest.mark.perf
CLIPS, FRAMES, DIM = 64, 16, 1024  # one block
BRANCHES = (Branch("id", dim=DIM, clip=1.0, floor=9.2), Branch("expr", dim=DIM, clip=0.5, floor=4.0))


def seconds(work):
    """Of the processor, so that a busy machine does not count."""
    start = time.process_time()
    work()
    return time.process_time() - start


def rows():
    draws = derive(42, "speed")
    return {k.name: draws.standard_normal((CLIPS, FRAMES, DIM), dtype=np.float32) for k in BRANCHES}


def harness(raw, bits):
    """Clip by clip to whole steps, then all streams in lock-step, as a release does."""
    values = {k.name: np.stack([clip_rows(clip, k, FRAMES)[0] for clip in raw[k.name]]) for k in BRANCHES}
    return run_streams(values, BRANCHES, None, bits)


def bare(raw, draws):
    """What a method would write itself: no grid, no record, float32."""
    out = {k.name: np.empty((CLIPS, FRAMES, DIM), dtype=np.float32) for k in BRANCHES}
    for t in range(FRAMES):
        for k in BRANCHES:
            row = raw[k.name][:, t]
            row = row * np.minimum(1, k.clip / np.linalg.norm(row, axis=1, keepdims=True))
            out[k.name][:, t] = row + np.float32(k.floor) * draws.standard_normal(row.shape, dtype=np.float32)
    return out


@pytest.mark.parametrize("bits", [SeededBits(derive(42, "speed bits")), OsBits()], ids=["seeded", "system"])
def test_a_clip_costs_at_most_five_milliseconds_more_than_a_bare_loop(bits):
    raw, draws = rows(), derive(42, "bare")
    ours, plain = [], []
    for _ in range(6):  # in turn, so that a busy machine slows both
        ours.append(seconds(lambda: harness(raw, bits)))
        plain.append(seconds(lambda: bare(raw, draws)))
    more = (min(ours) - min(plain)) / CLIPS
    print(f"a clip: {min(ours) / CLIPS * 1e3:.2f} ms, bare {min(plain) / CLIPS * 1e3:.2f} ms: "
          f"{more * 1e3:.2f} ms more, {min(ours) / min(plain):.1f} times")
    assert more < 5e-3


@pytest.mark.parametrize("scale", [Fraction(60), Fraction(800, 3), Fraction(10200)])
def test_tens_of_thousands_of_discrete_laplace_draws(scale):
    took = min(seconds(lambda: discrete_laplace(72_000, scale, OsBits())) for _ in range(4))
    print(f"72,000 draws at scale {scale}: {took * 1e3:.0f} ms")
    assert took < 0.4
