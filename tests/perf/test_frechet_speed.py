"""Speed of the Fréchet distance at d = 512 against the formulas one would otherwise call, in one run."""

from __future__ import annotations

import numpy as np
import pytest
from clock import seconds
from scipy import linalg

from bench import frechet
from bench.seeds import derive

pytestmark = pytest.mark.perf
D = 512


def by_root(mu1, s1, mu2, s2) -> float:
    """The form that most published code has: a general matrix root of the product, imaginary part dropped."""
    return float(np.square(mu1 - mu2).sum() + np.trace(s1) + np.trace(s2)
                 - 2 * np.trace(np.real(linalg.sqrtm(s1 @ s2))))


def by_torchmetrics(mu1, s1, mu2, s2) -> float:
    torch = pytest.importorskip("torch")
    peer = pytest.importorskip("torchmetrics.image.fid")
    return float(peer._compute_fid(*(torch.from_numpy(a) for a in (mu1, s1, mu2, s2))))


def compare(what: str, ours, peers: dict) -> None:
    """Print the times and ratios; fail when a peer is faster or says something else."""
    ours_s, value = seconds(ours), ours()
    theirs_s = {name: seconds(peer, repeats=2) for name, peer in peers.items()}
    print(f"\n{what}: ours {ours_s * 1e3:.1f} ms; "
          + "; ".join(f"{name} {s * 1e3:.0f} ms, {s / ours_s:.1f} times as long" for name, s in theirs_s.items()))
    assert ours_s < min(theirs_s.values())
    for peer in peers.values():
        assert peer() == pytest.approx(value, rel=1e-3)


def test_moments_at_512_dimensions():
    first, second = derive(4, "perf").normal(size=(2, 2000, D)) * [[[1.0]], [[1.2]]]
    known = (first.mean(0), np.cov(first.T), second.mean(0), np.cov(second.T))
    compare(f"Fréchet distance of moments, d = {D}", lambda: frechet.frechet_distance(*known),
            {"scipy.linalg.sqrtm": lambda: by_root(*known), "torchmetrics": lambda: by_torchmetrics(*known)})


@pytest.mark.parametrize("n", [300, 2000])
def test_features_at_512_dimensions(n):
    """300 clips, a small test split: fewer than dimensions. 2,000: more."""
    first, second = derive(5, "perf", n).normal(size=(2, n, D)) * [[[1.0]], [[1.2]]]

    def with_moments(distance):
        return distance(first.mean(0), np.cov(first.T), second.mean(0), np.cov(second.T))

    compare(f"Fréchet distance of 2 x {n} features, d = {D}", lambda: frechet.frechet_of(first, second),
            {"numpy.cov and scipy.linalg.sqrtm": lambda: with_moments(by_root),
             "numpy.cov and torchmetrics": lambda: with_moments(by_torchmetrics)})
