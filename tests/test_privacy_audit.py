"""Audit bounds against published goldens, and simulated mechanisms: correct ones pass, broken ones are caught.

The simulation draws exact sufficient statistics of a release: per frame and branch the projection on the difference
of the two inputs and the energy, 16 frames, two branches of 1,024 coordinates, C = (.25, .4), shares .3 / .7, exact
calibration to epsilon 2 at delta 1e-5.
"""

import math

import numpy as np
import pytest
from scipy import stats

from bench.errors import ConfigError
from bench.privacy.accounting import Price, floors, price
from bench.privacy.audit import (
    bit_bound,
    joint_bound,
    laplace_scale_test,
    lower_limit,
    noise_scale_test,
    one_run_bound,
    one_run_p_value,
    response_test,
    scale_test_power,
    upper_limit,
    verdict,
)
from bench.privacy.bits import SeededBits
from bench.privacy.claims import BranchClaim, FullClaim
from bench.privacy.conversions import mu_exact
from bench.privacy.distinguish import energies, fit, matched_filter, statistics
from bench.privacy.noise import discrete_laplace, randomized_response
from bench.privacy.power import (
    bit_power,
    detectable_epsilon,
    detectable_mu,
    effective_mu,
    joint_power,
    releases_needed,
    saturation,
)
from bench.seeds import derive

FRAMES, DIM = 16, 1024
NORMS = {"id": 0.25, "expr": 0.4}
FLOORS = floors(2, 1e-5, clip_norm=NORMS, share={"id": 0.3, "expr": 0.7}, frames=FRAMES)
CLAIM_MU = mu_exact(2, 1e-5)
MU = {e: mu_exact(e, 1e-5) for e in (0.5, 1, 2, 4, 8)}


# ---- goldens ----

@pytest.mark.parametrize("m, r, v, delta, bound", [
    (100, 100, 75, 1e-5, .70194080), (1000, 1000, 650, 1e-5, .50795028), (1000, 1000, 650, 0, .50820227),
    (1000, 200, 180, 1e-5, 1.79628507), (5000, 5000, 3000, 1e-5, .35737170), (10000, 1000, 990, 1e-5, 4.02121890),
    (100, 100, 100, 0, 3.49296543),
])
def test_golden_one_run(m, r, v, delta, bound):
    assert one_run_bound(m, r, v, delta=delta) == pytest.approx(bound, abs=6e-9)
    assert one_run_p_value(m, r, v, bound, delta) == pytest.approx(0.05, abs=1e-6)


@pytest.mark.parametrize("beta, needed", [(0.05, (12, 30, 204, 10_999)), (0.01, (17, 42, 292, 15_797))])
def test_golden_error_free_releases(beta, needed):
    for epsilon, n in zip((1, 2, 4, 8), needed):
        assert joint_bound(0, n, 0, n, delta=1e-5, beta=beta).epsilon >= epsilon
        assert joint_bound(0, n - 1, 0, n - 1, delta=1e-5, beta=beta).epsilon < epsilon


def test_twelve_error_free_releases_say_nothing_sound_about_other_mechanisms():
    bound = joint_bound(0, 12, 0, 12, delta=1e-5)
    assert bound.epsilon_of_mu >= 5.7 and bound.epsilon < 1.1


@pytest.mark.parametrize("true, claim, joint, bit", [(2, 1, 984, 1028), (4, 1, 133, 137), (4, 2, 314, 327),
                                                     (8, 1, 34, 32), (8, 2, 48, 48), (8, 4, 119, 125)])
def test_golden_releases_to_certify(true, claim, joint, bit):
    assert releases_needed(lambda n: joint_power(MU[true], MU[claim], n)) == pytest.approx(joint, rel=0.01)
    assert releases_needed(lambda n: bit_power(MU[true], MU[claim], n)) == pytest.approx(bit, rel=0.01)


@pytest.mark.parametrize("claim, joint, bit", [(1, 4272, 4496), (2, 1272, 1316), (4, 408, 438), (8, 174, 185)])
def test_golden_releases_to_see_noise_too_small_by_root_two(claim, joint, bit):
    true = MU[claim] * math.sqrt(2)
    assert releases_needed(lambda n: joint_power(true, MU[claim], n)) == pytest.approx(joint, rel=0.01)
    assert releases_needed(lambda n: bit_power(true, MU[claim], n)) == pytest.approx(bit, rel=0.01)


@pytest.mark.parametrize("true, expected", [(2, (0, .50, .93, 1.29, 1.58)), (4, (.45, 1.29, 2.00, 2.58, 3.09)),
                                            (8, (1.40, 2.70, 3.76, 4.71, 5.55))])
def test_golden_saturation_of_the_epsilon_bound(true, expected):
    got = [saturation(MU[true], 1e-5, 10**k) for k in (2, 3, 4, 5, 6)]
    assert got == pytest.approx(expected, abs=0.025)
    assert max(got) < true


def test_limits_are_clopper_pearson():
    for k, n in ((0, 20), (7, 30), (30, 30)):
        theirs = stats.binomtest(k, n).proportion_ci(0.9, "exact")
        assert (lower_limit(k, n, 0.05), upper_limit(k, n, 0.05)) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_detectable_losses_are_the_edge_of_the_power():
    for n in (50, 500, 5000):
        edge = detectable_mu(CLAIM_MU, n)
        assert bit_power(edge, CLAIM_MU, n) == pytest.approx(0.9, abs=1e-9)
        assert bit_power(edge * 0.98, CLAIM_MU, n) < 0.9
    assert detectable_mu(CLAIM_MU, 3) == math.inf  # three guesses can be luck
    assert detectable_mu(1.0, 50) > detectable_mu(1.0, 5000) > 1.0
    assert detectable_epsilon(2.0, 1000) > 2.0


def test_a_learnt_direction_sees_next_to_nothing():
    assert effective_mu(0.5, 32_768, 1000) == pytest.approx(0.0308, abs=5e-5)


# ---- the scale of the noise ----

def test_golden_scale_test():
    rng = derive(42, "scale")
    noise = rng.normal(size=(16, 1024))
    assert noise_scale_test(noise, 1.0).resolves == pytest.approx(0.017, abs=5e-4)
    assert scale_test_power(0.03, noise.size) == pytest.approx(0.992, abs=0.003)
    assert scale_test_power(1 - math.sqrt(0.5), noise.size) == 1.0
    honest = noise_scale_test(7.3 * noise, 7.3)
    assert not honest.refuted() and honest.ratio == pytest.approx(1, abs=0.02)
    short = noise_scale_test(7.3 / math.sqrt(2) * noise, 7.3)
    assert short.refuted() and short.ratio == pytest.approx(math.sqrt(0.5), abs=0.02)
    louder = noise_scale_test(8.0 * noise, 7.3)
    assert not louder.refuted() and louder.p_too_large < 1e-6
    assert honest.p_too_small + honest.p_too_large == pytest.approx(1)


def test_scale_test_takes_history_dependent_scales_and_keeps_its_level():
    rng = derive(7, "levels")
    scales = rng.uniform(1, 5, size=(16, 1))
    p = [noise_scale_test(scales * rng.normal(size=(16, 64)), scales).p_too_small for _ in range(400)]
    assert stats.kstest(p, "uniform").pvalue > 1e-4
    short = scales / math.sqrt(2)
    assert all(noise_scale_test(short * rng.normal(size=(16, 1024)), scales).refuted() for _ in range(50))


def test_discrete_noise_has_its_own_scale_tests():
    bits = SeededBits(derive(5, "laplace"))
    honest, short = discrete_laplace(20_000, 60, bits), discrete_laplace(20_000, "42.4", bits)
    assert not laplace_scale_test(honest, 60).refuted() and laplace_scale_test(short, 60).refuted()
    assert laplace_scale_test(short, 60).ratio == pytest.approx(math.sqrt(0.5), abs=0.02)
    p = [laplace_scale_test(discrete_laplace(200, 3, bits), 3).p_too_small for _ in range(300)]
    assert stats.kstest(p, "uniform").pvalue > 1e-4
    labels = np.zeros(2000, dtype=int)
    kept = [int((randomized_response(labels, 6, e, bits) == 0).sum()) for e in (1, 1.3)]
    assert response_test(kept[0], 2000, 6, 1) > 1e-4 > response_test(kept[1], 2000, 6, 1)
    for bad in (np.zeros(50), np.full(200, 0.5), np.full(200, math.nan)):
        with pytest.raises(ConfigError, match="residuals"):
            laplace_scale_test(bad, 60)


@pytest.mark.parametrize("residuals, std", [([], 1), ([1, math.nan], 1), ([1, 2], 0), ([1, 2], math.inf)])
def test_scale_test_refuses_what_is_no_noise(residuals, std):
    with pytest.raises(ConfigError, match="[Rr]esiduals"):
        noise_scale_test(np.array(residuals), std)


# ---- mechanisms: what an honest auditor sees ----

def release(rng, side, n, *, raw=1.0, shrink=1.0, adaptive=False, leak=0.0):
    """(n, 3) matched filter and energies of n releases of input `side` (-1 or +1).

    raw: norm over C that reaches the noise; shrink: factor on the scale; leak: relative change of the scale with the
    input; adaptive: the scale of a frame grows with what the frame before released.
    """
    filt, energy = np.zeros(n), []
    for b, c in NORMS.items():
        extra, total = np.zeros(n), np.zeros(n)
        for _ in range(FRAMES):
            s = FLOORS[b] * shrink * (1 + extra) * (1 + leak * (side > 0))
            projection = side * c * raw + s * rng.normal(size=n)
            total += projection**2 + s**2 * rng.chisquare(DIM - 1, size=n)
            filt += projection * 2 * c / FLOORS[b] ** 2
            extra = 0.2 / (1 + np.exp(-projection)) if adaptive else extra
        energy.append(total)
    return np.column_stack([filt, *energy])


def audit(seed, n, **broken):
    """(joint, bit) bounds from n releases a side, half of them for training."""
    rng = derive(seed, "audit")
    first, second = (release(rng, side, n, **broken) for side in (-1, 1))
    half = n // 2
    judge = fit(first[:half], second[:half])
    fp, fn = judge.errors(first[half:], second[half:])
    bits = rng.random(n - half) < 0.5
    held = np.where(bits[:, None], second[half:], first[half:])
    joint = joint_bound(fp, n - half, fn, n - half, delta=1e-5)
    return joint, bit_bound(judge.right(held, bits), n - half, delta=1e-5)


@pytest.mark.parametrize("adaptive", [False, True])
def test_correct_mechanisms_are_refuted_at_the_nominal_rate_only(adaptive):
    bounds = [audit(seed, 400, adaptive=adaptive) for seed in range(40)]
    assert sum(bit.refutes_mu(CLAIM_MU) for _, bit in bounds) <= 6  # P(Bin(40, .05) > 6) = .0034
    assert sum(joint.refutes_mu(CLAIM_MU) for joint, _ in bounds) <= 6
    assert sum(joint.refutes_epsilon(2) or bit.refutes_epsilon(2) for joint, bit in bounds) <= 6
    assert np.mean([bit.mu for _, bit in bounds]) > 0  # the audit is not blind


@pytest.mark.parametrize("n, broken", [
    (10_000, {"shrink": math.sqrt(0.5)}), (500, {"raw": 3.0}), (200, {"leak": 0.01}),
], ids=["noise too small by sqrt 2", "clip forgotten, 3C", "scale read from raw data, 1 %"])
def test_broken_mechanisms_are_caught(n, broken):
    for seed in range(3):
        joint, bit = audit(seed, n, **broken)
        assert bit.refutes_mu(CLAIM_MU)
        assert joint.mu > 0.9 * CLAIM_MU


def test_a_smaller_shortfall_needs_more_releases():
    caught = [audit(seed, 500, shrink=math.sqrt(0.5))[1].refutes_mu(CLAIM_MU) for seed in range(60)]
    assert 0.15 < np.mean(caught) < 0.55  # .33 in the reference experiment


# ---- the pieces ----

def test_matched_filter_is_the_log_likelihood_ratio():
    rng = derive(3, "filter")
    first = {b: rng.normal(size=(4, 6)) for b in NORMS}
    second = {b: rng.normal(size=(4, 6)) for b in NORMS}
    floor = {"id": 2.0, "expr": 0.7}
    released = {b: rng.normal(size=(5, 4, 6)) for b in NORMS}
    ratio = sum(stats.norm.logpdf(released[b], second[b], floor[b]).sum((1, 2))
                - stats.norm.logpdf(released[b], first[b], floor[b]).sum((1, 2)) for b in NORMS)
    got = matched_filter(released, first, second, floor)
    assert np.ptp(got - ratio) < 1e-9
    assert energies(released)[:, 0] == pytest.approx((released["expr"] ** 2).sum((1, 2)))
    assert statistics(released, first, second, floor).shape == (5, 3)


def test_fit_is_blind_to_units_and_refuses_nonsense():
    rng = derive(4, "fit")
    a, b = rng.normal(0, 1, (300, 3)), rng.normal([1, 0, 0], 1, (300, 3))
    units = np.array([1e6, 1e-6, 1.0])
    one, two = fit(a, b), fit(a * units, b * units)
    assert np.array_equal(one.says_second(a), two.says_second(a * units))
    constant = np.column_stack([a, np.ones(300)])
    assert np.isfinite(fit(constant, constant + [1, 0, 0, 0]).weights).all()
    for bad in (a[:1], np.full((5, 3), math.nan)):
        with pytest.raises(ConfigError, match="training half"):
            fit(bad, b)


def test_verdict_uses_mu_for_gaussian_claims_only():
    gaussian = price(FullClaim("clip", branches=(BranchClaim("id", "gaussian", 1.0, 40.0),)))
    bound = joint_bound(0, 12, 0, 12)
    assert bound.mu > gaussian.mu and verdict(bound, gaussian)
    pure = Price(5.0, 0.0, epsilon_pure=5.0)
    assert not verdict(bound, pure) and verdict(joint_bound(0, 10**4, 0, 10**4), pure)
    assert not verdict(bound, price(FullClaim("none")))  # nothing was claimed


@pytest.mark.parametrize("call, word", [
    (lambda: joint_bound(5, 4, 0, 4), "k = 5"), (lambda: joint_bound(-1, 4, 0, 4), "k"),
    (lambda: bit_bound(3, 0), "n"), (lambda: bit_bound(1, 2, beta=0), "beta"),
    (lambda: bit_bound(1, 2, delta=2), "delta"),
    (lambda: one_run_bound(10, 11, 5), "guesses"), (lambda: one_run_bound(10, 10, 11), "right"),
    (lambda: detectable_mu(math.nan, 5), "claim_mu"), (lambda: bit_bound(1.5, 2), "k = 1.5"),
])
def test_wrong_input_names_its_field(call, word):
    with pytest.raises(ConfigError, match=word):
        call()


def test_no_guess_right_or_none_wrong_gives_finite_bounds():
    assert bit_bound(0, 10).epsilon == bit_bound(0, 10).mu == 0.0
    assert 0 < bit_bound(10, 10).epsilon < math.inf
    assert joint_bound(10, 10, 0, 10).epsilon == 0.0 == joint_bound(10, 10, 10, 10).mu
