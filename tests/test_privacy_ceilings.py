"""Ceilings against published goldens, closed forms, mechanisms that attain them, and invariants."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.errors import ConfigError
from bench.privacy.accounting import price
from bench.privacy.ceilings import (
    Loss,
    auc,
    bit_accuracy,
    dir_at_far,
    eer,
    least_mass,
    most_mass,
    over_trials,
    roc,
    tar,
    top1,
    top1_simplex,
    uar,
)
from bench.privacy.claims import BranchClaim, FullClaim
from bench.privacy.conversions import delta_exact, mu_exact

GOLDEN = json.loads((Path(__file__).parent / "golden" / "golden_ceilings.json").read_text())
relaxed = settings(deadline=None, derandomize=True, max_examples=100)  # busy machines are slow, not wrong
close = {"rel": 1e-9, "abs": 1e-9}


def pure(epsilon):
    return Loss("pure", epsilon)


def approx(epsilon, delta=1e-5):
    return Loss("approx", epsilon, delta)


def gdp(mu, **more):
    return Loss("gaussian", mu=mu, **more)


@pytest.mark.parametrize("table, ceiling", [
    ("auc_eps", lambda e: auc(pure(e))), ("auc_epsd_1e-5", lambda e: auc(approx(e))),
    ("auc_gdp", lambda m: auc(gdp(m))), ("eer_gdp", lambda m: eer(gdp(m))),
])
def test_golden_two_cases(table, ceiling):
    assert len(GOLDEN[table]) >= 5
    for key, value in GOLDEN[table].items():
        assert ceiling(float(key)).bound == pytest.approx(value, **close), key


@pytest.mark.parametrize("table, loss", [
    ("top1_eps", pure), ("top1_epsd_1e-5", approx), ("top1_gdp", gdp),
    ("top1_ball", lambda m: gdp(m, norm_clipped=True)),
])
def test_golden_n_classes(table, loss):
    assert len(GOLDEN[table]) == 30
    for key, value in GOLDEN[table].items():
        n, x = key.split(",")
        assert top1(loss(float(x)), int(n)).bound == pytest.approx(value, **close), key
        assert uar(loss(float(x)), int(n)).bound == pytest.approx(value, **close), key


def test_golden_rates_simplex_and_mu():
    for key, value in GOLDEN["tpr_gdp_at"].items():
        far, mu = map(float, key.split(","))
        assert tar(gdp(mu), far).bound == pytest.approx(value, **close)
    for key, value in GOLDEN["top1_simplex"].items():
        n, mu = key.split(",")
        assert top1_simplex(float(mu), int(n)) == pytest.approx(value, **close)
    for key, value in GOLDEN["mu_gdp_of_eps_1e-5"].items():
        assert mu_exact(float(key), 1e-5) == pytest.approx(value, **close)


@pytest.mark.parametrize("epsilon, by_eps, by_mu", [
    (1, (.00227523, .00023652), (.00201420, .00023546)), (2, (.00616755, .00062575), (.00411569, .00055067)),
    (4, (.04550846, .00455985), (.01324168, .00225644)),
])
def test_golden_open_set(epsilon, by_eps, by_mu):
    got = [dir_at_far(approx(epsilon), f, 12).bound for f in (1e-2, 1e-3)]
    assert got == pytest.approx(by_eps, abs=1.1e-8)
    got = [dir_at_far(gdp(mu_exact(epsilon, 1e-5)), f, 12).bound for f in (1e-2, 1e-3)]
    assert got == pytest.approx(by_mu, abs=6e-9)


@pytest.mark.parametrize("epsilon, n, values", [  # (eps, 0), (eps, 1e-5), GDP, norm ball at mu(eps, 1e-5)
    (2, 6, (.59641800, .59642204, .28569600, .23679636)), (4, 91, (.37758540, .37759162, .08168187, .03375362)),
    (8, 23, (.99267389, .99267396, .39906343, .18979282)), (.5, 2, (.62245933, .62246311, .52834302, .52834302)),
])
def test_golden_rows_at_a_claim(epsilon, n, values):
    mu = mu_exact(epsilon, 1e-5)
    got = [top1(loss, n).bound for loss in (pure(epsilon), approx(epsilon), gdp(mu), gdp(mu, norm_clipped=True))]
    assert got == pytest.approx(values, abs=6e-9)


# ---- attained, and consistent ----

def test_randomized_response_attains_top1_and_auc():
    n, epsilon = 5, 1.3
    keep = math.exp(epsilon) / (math.exp(epsilon) + n - 1)
    assert top1(pure(epsilon), n).bound == pytest.approx(keep, rel=1e-12)
    p = 1 / (1 + math.exp(-epsilon))
    assert auc(pure(epsilon)).bound == pytest.approx(p, rel=1e-12)  # area of (0,0) (1-p, p) (1,1)
    assert bit_accuracy(pure(epsilon)).bound == pytest.approx(p, rel=1e-12)


def test_auc_is_the_area_under_the_roc():
    x = np.linspace(0, 1, 20001)
    for loss in (pure(1.0), approx(1.0, 0.05), gdp(1.3)):
        assert np.trapezoid(roc(loss, x), x) == pytest.approx(auc(loss).bound, abs=1e-4)


def test_gaussian_top1_is_the_best_of_its_points():
    """The curve's bound is the smallest of those of its (epsilon, delta) points."""
    mu, n = 0.9, 8
    points = [top1(Loss("approx", e, delta_exact(e, mu)), n).bound for e in np.linspace(0.01, 6, 1200)]
    assert top1(gdp(mu), n).bound == pytest.approx(min(points), abs=1e-5)
    assert top1(gdp(mu), n).bound <= min(points) + 1e-12


losses = st.one_of(st.floats(0.01, 8).map(pure), st.tuples(st.floats(0.01, 8), st.floats(0, 0.2)).map(
    lambda t: approx(*t)), st.floats(0.01, 5).map(gdp))


@relaxed
@given(losses, st.floats(0.001, 0.999))
def test_masses_are_inverse_and_frame_the_diagonal(loss, q):
    up = most_mass(loss, q)
    assert least_mass(loss, q) <= q <= up <= 1
    if up < 1 - 1e-6:
        assert least_mass(loss, up) <= q + 1e-9
        assert 1 - most_mass(loss, 1 - q) == pytest.approx(least_mass(loss, q), abs=1e-9)


@relaxed
@given(losses, st.lists(st.floats(0.01, 1), min_size=2, max_size=9))
def test_priors_obey_the_master_bound(loss, raw):
    priors = [p / sum(raw) for p in raw]
    a, best = top1(loss, priors).bound, max(priors)
    assert best <= a + 1e-12 <= 1 + 1e-9
    if a < 1 - 1e-9 and best <= 0.5:  # above, Theorem 7 leaves out the second line of the pure curve: valid, looser
        assert a + (1 - best) / best * least_mass(loss, a) == pytest.approx(1, abs=1e-9)
    if loss.kind == "pure":
        e = math.exp(loss.epsilon)
        assert a == pytest.approx(e * best / (e * best + 1 - best), rel=1e-12)
    if loss.kind == "gaussian":  # Theorem 8 is never above 6
        assert top1(gdp(loss.mu, norm_clipped=True), len(raw)).bound <= top1(loss, len(raw)).bound + 1e-12


@relaxed
@given(losses, st.integers(2, 50))
def test_more_read_more_reached(loss, k):
    if not loss.over(k).finite:
        assert top1(loss.over(k), 7).bound is None
        return
    for ceiling in (lambda x: top1(x, 7), auc, lambda x: tar(x, 0.01), lambda x: dir_at_far(x, 0.1, 12)):
        assert ceiling(loss).bound <= ceiling(loss.over(k)).bound + 1e-12
    assert eer(loss).bound >= eer(loss.over(k)).bound


def test_composition_follows_what_is_read():
    assert gdp(0.5).over(4).mu == 1.0
    assert (approx(0.5, 1e-5).over(4).epsilon, approx(0.5, 1e-5).over(4).delta) == (2.0, 4e-5)
    mixed = over_trials(gdp(0.5), [1, 1, 1, 4], lambda x: top1(x, 25))
    expected = (3 * top1(gdp(0.5), 25).bound + top1(gdp(1.0), 25).bound) / 4
    assert mixed.bound == pytest.approx(expected, rel=1e-12)
    assert "4 trials" in mixed.conditions[-1]


def test_infinite_epsilon_sets_no_limit():
    for loss in (pure(math.inf), gdp(math.inf), Loss.of(price(FullClaim("none")))):
        for ceiling in (top1(loss, 9), auc(loss), eer(loss), tar(loss, .01), dir_at_far(loss, .01, 9), uar(loss, 6),
                        over_trials(loss, [1, 2], lambda x: top1(x, 9))):
            assert ceiling.bound is None and ceiling.vacuous and ceiling.theorem == "no limit"
        assert roc(loss, np.array([0.1])) is None
    assert auc(pure(4)).vacuous and not auc(pure(1)).vacuous
    assert eer(pure(4)).vacuous and not eer(pure(1)).vacuous


def test_loss_of_a_price_uses_the_exact_profile():
    p = price(FullClaim("clip", branches=(BranchClaim("id", "gaussian", 1.0, 40.0),)))
    assert Loss.of(p).mu == p.mu
    q = price(FullClaim("clip", branches=(BranchClaim("l", "randomized_response", epsilon=2),)))
    assert Loss.of(q) == pure(2.0)


@pytest.mark.parametrize("call, word", [
    (lambda: top1(pure(1), 1), "classes"), (lambda: top1(pure(1), [0.5, 0.6]), "add up"),
    (lambda: tar(pure(1), 1.5), "far"), (lambda: tar(pure(1), math.nan), "far"), (lambda: pure(-1), "epsilon"),
    (lambda: gdp(math.nan), "mu"), (lambda: pure(1).over(0), "k"), (lambda: dir_at_far(pure(1), .1, 0), "enrolled"),
    (lambda: over_trials(pure(1), [], auc), "trial"), (lambda: Loss("approx", 1, 2), "delta"),
])
def test_wrong_input_names_its_field(call, word):
    with pytest.raises(ConfigError, match=word):
        call()
