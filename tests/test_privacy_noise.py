"""Samplers against their laws (chi-square, Kolmogorov-Smirnov, exact enumeration), seeded; the twin against both."""

import math
import time
from fractions import Fraction as F

import numpy as np
import pytest
from scipy import stats

from bench.errors import ConfigError
from bench.privacy.bits import OsBits, SeededBits, exp_coin, uniform_below
from bench.privacy.noise import (
    GRID,
    discrete_laplace,
    gaussian,
    gaussian_steps,
    randomized_response,
    response_weights,
    simulate_noise,
)
from bench.seeds import derive, derive_torch

ALPHA = 1e-4  # of each seeded law test


def seeded(*names):
    return SeededBits(derive(42, "noise", *names))


def laplace_fit(values, scale):
    """p-value of a chi-square test against P(x) ~ exp(-|x| / scale), cells of at least 20 expected draws."""
    q = math.exp(-1 / scale)
    edge = next(k for k in range(10**6) if len(values) * q ** (k + 1) / (1 + q) < 20)
    x = np.arange(-edge, edge + 1)
    inner = (1 - q) / (1 + q) * q ** np.abs(x)
    tail = q ** (edge + 1) / (1 + q)
    expected = len(values) * np.array([tail, *inner, tail])
    counts = np.bincount(np.clip(values, -edge - 1, edge + 1) + edge + 1, minlength=2 * edge + 3)
    return stats.chisquare(counts, expected, sum_check=False).pvalue


@pytest.mark.parametrize("scale", ["1/3", "5/7", "1", "7/2", "60"])
def test_discrete_laplace_follows_its_law(scale):
    values = discrete_laplace(40_000, scale, seeded(scale))
    assert values.dtype == np.int64 and laplace_fit(values, float(F(scale))) > ALPHA
    assert laplace_fit(values, float(F(scale)) * 1.15) < ALPHA  # the test can fail


def test_os_bits_follow_the_law_too():
    values = discrete_laplace((200, 100), F(60), OsBits())
    q = math.exp(-1 / 60)
    mean, var = 2 * q / (1 - q * q), 2 * q / (1 - q) ** 2
    assert values.shape == (200, 100)
    assert abs(np.abs(values).mean() - mean) < 6 * math.sqrt((var - mean**2) / values.size)
    assert not np.array_equal(values, discrete_laplace((200, 100), F(60), OsBits()))
    assert OsBits.benchmark_only is False and SeededBits.benchmark_only is True


def test_fifty_thousand_draws_take_well_under_a_second():
    took = []
    for _ in range(3):
        start = time.process_time()
        discrete_laplace(50_000, F(60), OsBits())
        took.append(time.process_time() - start)
    assert min(took) < 0.5


def test_laplace_of_window_sums_is_the_claim_exactly():
    """Neighbouring sums D apart: the ratio of the law is exp(D / scale) and nothing else."""
    k, cap, e = 2, 6, F(2, 5)
    scale = F(2 * k * cap) / e
    assert scale == 60 and F(2 * k * cap) / scale == e


class Script:
    """Bits that follow a list of words: shows how draws use them."""

    benchmark_only = True

    def __init__(self, words):
        self.left = list(words)

    def words(self, n):
        taken, self.left = self.left[:n], self.left[n:]
        return np.array(taken, dtype=np.uint64)


def test_uniform_below_rejects_instead_of_wrapping():
    top = 2**61  # n = 5 uses three leading bits
    script = Script([7 * top, 5 * top, 4 * top, 6 * top, 2 * top])
    assert uniform_below(5, 2, script).tolist() == [4, 2]  # 7 and 5 are redrawn: 4, and 6 again, then 2
    assert not script.left
    assert uniform_below(1, 3, Script([])).tolist() == [0, 0, 0]
    big = uniform_below(2**62 - 1, 1000, seeded("big"))
    assert big.min() >= 0 and big.max() > 2**61


@pytest.mark.parametrize("top, bottom", [(0, 1), (1, 1), (1, 3), (2**50 - 1, 2**50)])
def test_exp_coin_has_bias_exp_minus_gamma(top, bottom):
    n = 40_000
    heads = int(exp_coin(np.full(n, top), bottom, seeded("coin", top)).sum())
    assert stats.binomtest(heads, n, math.exp(-top / bottom)).pvalue > ALPHA


# ---- randomised response ----

@pytest.mark.parametrize("epsilon", ["1e-9", "0.1", "1", "8", "20", "41", "60", "100000"])
@pytest.mark.parametrize("classes", [2, 6, 1000])
def test_response_weights_never_cost_more_than_epsilon(epsilon, classes):
    import mpmath
    keep, other = response_weights(classes, F(epsilon))
    with mpmath.workdps(60):
        loss = mpmath.log(mpmath.mpf(keep) / other)
        asked = mpmath.mpf(F(epsilon).numerator) / F(epsilon).denominator
        assert 0 <= loss <= asked
        if asked <= 20:
            assert float(asked - loss) < 2.0**-29
    assert keep + (classes - 1) * other <= 2**62


def test_randomized_response_follows_its_law():
    n, classes, epsilon = 60_000, 6, 1.5
    labels = np.full((n // 2, 2), 3)
    drawn = randomized_response(labels, classes, epsilon, seeded("rr"))
    assert drawn.shape == labels.shape
    expected = np.ones(classes)
    expected[3] = math.exp(epsilon)
    counts = np.bincount(drawn.ravel(), minlength=classes)
    assert stats.chisquare(counts, n * expected / expected.sum()).pvalue > ALPHA
    for bad in (-1, 6):
        with pytest.raises(ConfigError, match="label"):
            randomized_response(np.array([bad]), classes, epsilon, seeded("rr"))


def test_randomized_response_enumerated():
    """With all words of the draw run through, every label comes out exactly as often as its weight says."""
    keep, other = 5, 3
    total = keep + 2 * other
    counts = {0: 0, 1: 0, 2: 0}
    for draw in range(total):
        script = Script([draw << 60])  # 11 values need four bits
        import bench.privacy.noise as noise
        original = noise.response_weights
        noise.response_weights = lambda classes, epsilon: (keep, other)
        try:
            counts[int(randomized_response(np.array([1]), 3, 1, script)[0])] += 1
        finally:
            noise.response_weights = original
    assert counts == {0: other, 1: keep, 2: other}


# ---- Gaussian ----

@pytest.mark.parametrize("std", [0.3, 9.2])
def test_gaussian_follows_its_law_on_its_grid(std):
    values = gaussian(40_001, std, 0.25, seeded("gauss", std))
    assert stats.kstest(values / std, "norm").pvalue > ALPHA
    assert stats.kstest(values / std / 1.08, "norm").pvalue < ALPHA  # the test can fail
    steps = values / (0.25 * GRID)
    assert np.array_equal(steps, np.rint(steps)) and np.isfinite(values).all()
    pairs = values[: 2 * (len(values) // 2)]
    half = len(pairs) // 2
    assert abs(np.corrcoef(pairs[:half], pairs[half:])[0, 1]) < 5 / math.sqrt(half)  # sine and cosine


def test_gaussian_takes_a_scale_for_each_row():
    std = np.array([[1.0], [10.0], [100.0]])
    values = gaussian_steps((3, 20_000), std, 2.0**-20, seeded("rows")) * 2.0**-20
    assert values.std(axis=1) == pytest.approx(std[:, 0], rel=0.03)


@pytest.mark.parametrize("std", [0, -1, math.nan, math.inf, 1e300, [1.0, math.nan]])
def test_gaussian_refuses_absurd_scales(std):
    with pytest.raises(ConfigError, match="noise_std"):
        gaussian(2, std, 1.0, OsBits())


@pytest.mark.parametrize("scale", [0, -1, math.nan, math.inf, "x", None, F(2**51 + 1, 2**51)])
def test_laplace_refuses_absurd_scales(scale):
    with pytest.raises(ConfigError, match="scale"):
        discrete_laplace(2, scale, OsBits())


def test_empty_shapes():
    assert discrete_laplace((0, 3), 2, OsBits()).shape == (0, 3)
    assert gaussian((0,), 1.0, 1.0, OsBits()).shape == (0,)


# ---- the twin for training follows the same law ----

def generator(*names):
    import torch
    return torch.Generator().manual_seed(derive_torch(42, *names))


def test_twin_follows_the_law_of_the_samplers():
    import torch
    zeros = torch.zeros(40_000, dtype=torch.float64)
    twin = simulate_noise(zeros, "gaussian", 2.0, generator=generator("g")).numpy()
    real = gaussian(40_000, 2.0, 1.0, seeded("twin"))
    assert stats.kstest(twin / 2, "norm").pvalue > ALPHA and stats.ks_2samp(twin, real).pvalue > ALPHA
    whole = simulate_noise(zeros, "discrete_laplace", 3.5, generator=generator("l")).numpy()
    assert laplace_fit(whole.astype(np.int64), 3.5) > ALPHA and np.array_equal(whole, np.rint(whole))
    hot = torch.nn.functional.one_hot(torch.full((40_000,), 2), 5).double()
    drawn = simulate_noise(hot, "randomized_response", 1.0, generator=generator("r")).argmax(-1).numpy()
    weights = np.array([1, 1, math.e, 1, 1])
    assert stats.chisquare(np.bincount(drawn, minlength=5), 40_000 * weights / weights.sum()).pvalue > ALPHA


def test_twin_passes_gradients():
    import torch
    values, scale = torch.randn(64, 8, requires_grad=True), torch.tensor(2.0, requires_grad=True)
    for noise in ("gaussian", "discrete_laplace"):
        grads = torch.autograd.grad(simulate_noise(values, noise, scale, generator=generator(noise)).square().sum(),
                                    (values, scale))
        assert all(torch.isfinite(g).all() and g.abs().sum() > 0 for g in grads)
    odds = torch.softmax(torch.randn(5, 4), -1).requires_grad_()
    out = simulate_noise(odds, "randomized_response", 1.0, generator=generator("rr"))
    assert out.detach().sum(-1).numpy() == pytest.approx(torch.ones(5).numpy(), abs=1e-6)
    assert torch.autograd.grad(out[:, 0].sum(), odds)[0].abs().sum() > 0
    with pytest.raises(ConfigError, match="gausian"):
        simulate_noise(values, "gausian", 1.0, generator=generator("x"))


def test_agrees_with_opendp():
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    release = dp.m.make_laplace(dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int), scale=60.0)
    theirs = np.array(release([0] * 20_000))
    ours = discrete_laplace(20_000, 60, seeded("opendp"))
    assert release.map(24) == pytest.approx(0.4) and stats.ks_2samp(theirs, ours).pvalue > ALPHA
