"""Prices against closed forms, published goldens, dp-accounting (when installed), and invariants."""

import json
import math
from pathlib import Path

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.errors import ConfigError
from bench.privacy.accounting import claimed, floors, price, total_rho
from bench.privacy.claims import BranchClaim, EventClaim, FullClaim, LabelClaim
from bench.privacy.conversions import (
    delta_exact,
    epsilon_cks,
    epsilon_exact,
    epsilon_mironov,
    mu_exact,
    mu_of_pure,
    order_cks,
    order_mironov,
    rho_cks,
    rho_mironov,
)
from bench.privacy.units import Facts, Guarantee, convert

GOLDEN = json.loads((Path(__file__).parent / "golden" / "golden_tadp.json").read_text())
relaxed = settings(deadline=None, derandomize=True, max_examples=100)  # busy machines are slow, not wrong
close = {"rel": 1e-9, "abs": 1e-9}


def gaussian_claim(g, **changes):
    branches = tuple(BranchClaim(b, "gaussian", g[f"C_{b}"], g[f"s_{b}"]) for b in ("id", "expr"))
    return FullClaim(**{"unit": "clip", "frames": g["T"], "clips": g["K"], "delta": g["delta"], "branches": branches,
                        **changes})


# ---- goldens ----

@pytest.mark.parametrize("g", GOLDEN, ids=lambda g: g["name"])
def test_golden_prices(g):
    p = price(gaussian_claim(g))
    assert (p.rho, p.mu) == pytest.approx((g["rho"], g["mu"]), **close)
    assert p.epsilon_mironov == pytest.approx(g["eps_mironov"], **close)
    assert p.epsilon_cks == pytest.approx(g["eps_cks"], **close)
    assert p.epsilon_exact == p.epsilon == pytest.approx(g["eps_exact"], **close)
    assert order_mironov(p.rho, g["delta"]) == pytest.approx(g["alpha_mironov"], **close)
    assert order_cks(p.rho, g["delta"]) == pytest.approx(g["alpha_cks"], **close)
    assert p.epsilon_exact == pytest.approx(g["dpacc_get_eps_gaussian"], abs=1e-8)
    assert p.epsilon_exact <= g["dpacc_pld"] <= p.epsilon_exact + 1e-5
    assert p.epsilon_exact < p.epsilon_cks <= g["dpacc_rdp"] < g["mironov_on_default_grid"]
    assert p.epsilon_mironov <= g["mironov_on_default_grid"]
    assert p.epsilon_pure is p.epsilon_sum is p.epsilon_max is None


TABLE2 = {  # clip epsilon (Mironov): rho, then K: Mironov, CKS, exact
    1: (0.02081994, {4: (2.04164, 1.73058, 1.59001), 10: (3.30464, 2.87765, 2.65386)}),
    2: (0.08004538, {5: (4.69338, 4.16288, 3.84986), 7: (5.64004, 5.04871, 4.67612)}),
    4: (0.29765199, {4: (8.59530, 7.84762, 7.29491), 10: (14.68437, 13.70705, 12.80706)}),
    8: (1.04913620, {7: (25.73421, 24.48719, 23.01962), 10: (32.47192, 31.10688, 29.32323)}),
}


@pytest.mark.parametrize("epsilon", TABLE2)
def test_golden_composition_of_clips(epsilon):
    rho, rows = TABLE2[epsilon]
    assert rho_mironov(epsilon, 1e-5) == pytest.approx(rho, abs=5e-9)
    for k, expected in rows.items():
        total = k * rho_mironov(epsilon, 1e-5)
        got = (epsilon_mironov(total, 1e-5), epsilon_cks(total, 1e-5), epsilon_exact(math.sqrt(2 * total), 1e-5))
        assert got == pytest.approx(expected, abs=5e-6)


@pytest.mark.parametrize("epsilon, delta, mironov, cks, mu", [
    (2, 1e-5, 0.08004537535, 0.1082563638, 0.5015516892), (1, 1e-5, 0.02081993834, 0.0305565952, 0.2680511232),
    (4, 1e-5, 0.2976519916, 0.3731439828, 0.9249308977), (8, 1e-5, 1.049136201, 1.229714526, 1.666030598),
    (0.5, 1e-5, 0.005313904231, 0.008505530591, 0.1422105587), (2, 1e-6, 0.06757388167, 0.08815268838, 0.4483347404),
])
def test_golden_inverses(epsilon, delta, mironov, cks, mu):
    assert rho_mironov(epsilon, delta) == pytest.approx(mironov, rel=1e-9)
    assert rho_cks(epsilon, delta) == pytest.approx(cks, rel=1e-9)
    assert mu_exact(epsilon, delta) == pytest.approx(mu, rel=1e-9)


def test_golden_floors_and_adaptive_deltas():
    norms, shares = {"id": 0.25, "expr": 0.4}, {"id": 0.3, "expr": 0.7}
    exact = floors(2, 1e-5, clip_norm=norms, share=shares, frames=16)
    loose = floors(2, 1e-5, clip_norm=norms, share=shares, frames=16, conversion="mironov")
    assert (exact["id"], exact["expr"]) == pytest.approx((7.280374, 7.625797), abs=1e-6)
    assert (loose["id"], loose["expr"]) == pytest.approx((9.126, 9.559), abs=1e-3)
    static = [delta_exact(e, 0.35 * math.sqrt(4)) for e in (0, 0.5, 1, 2)]
    assert static == pytest.approx([0.274, 0.121, 0.0380, 0.00113], abs=5e-4)


@pytest.mark.parametrize("epsilon, mu", [(.1, .12530901), (.4, .49990345), (.8, .99155603), (1, 1.23203539),
                                         (4, 4.19447809)])
def test_golden_mu_of_pure(epsilon, mu):
    assert mu_of_pure(epsilon) == pytest.approx(mu, abs=5e-9)


# ---- the exact solve against 50 digits, from 1e-6 to 1e3 ----

@pytest.mark.parametrize("mu", [1e-6, 1e-5, 1e-3, 0.1, 1, 5, 37, 1e2, 1e3])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9, 1e-15])
def test_exact_epsilon_gives_back_delta(mu, delta):
    epsilon = epsilon_exact(mu, delta)
    with mpmath.workdps(50):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        back = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
        slope = mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
        if epsilon == 0:
            assert back <= delta
        else:
            error = abs(back - delta) / slope  # of epsilon
            assert float(error) <= 1e-9 * max(epsilon, 1e-6)


@pytest.mark.parametrize("rho", [1e-18, 1e-9, 1e-3, 1, 1e3, 1e9])
@pytest.mark.parametrize("delta", [0.1, 1e-5, 1e-300])
def test_cks_is_the_minimum_over_all_orders(rho, delta):
    with mpmath.workdps(30):
        a = mpmath.mpf(order_cks(rho, delta))

        def bound(a):
            return rho * a + mpmath.log(1 - 1 / a) + (-mpmath.log(delta) - mpmath.log(a)) / (a - 1)
        best = bound(a)
        assert all(bound(1 + (a - 1) * f) >= best * (1 - mpmath.mpf(10) ** -12) for f in (0.9, 0.999, 1.001, 1.1))
        assert epsilon_cks(rho, delta) == pytest.approx(max(0.0, float(best)), rel=1e-9, abs=1e-12)


# ---- properties ----

budgets = st.floats(0.01, 500)
deltas = st.sampled_from([1e-2, 1e-5, 1e-8, 1e-12])


@relaxed
@given(budgets, deltas, st.floats(0.05, 0.95), st.integers(1, 64), st.integers(1, 20),
       st.sampled_from(["exact", "cks", "mironov"]))
def test_budget_to_floors_and_back(epsilon, delta, share, frames, clips, conversion):
    s = floors(epsilon, delta, clip_norm={"id": 0.3, "expr": 2.0}, share={"id": share, "expr": 1 - share},
               frames=frames, clips=clips, conversion=conversion)
    branches = (BranchClaim("id", "gaussian", 0.3, s["id"]), BranchClaim("expr", "gaussian", 2.0, s["expr"]))
    p = price(FullClaim("clip", frames=frames, clips=clips, delta=delta, branches=branches))
    assert getattr(p, f"epsilon_{conversion}") == pytest.approx(epsilon, rel=1e-9)


@relaxed
@given(st.floats(-5, 2), deltas)
def test_exact_below_cks_below_mironov(log_mu, delta):
    mu = 10**log_mu
    rho = mu * mu / 2
    exact, cks, mironov = epsilon_exact(mu, delta), epsilon_cks(rho, delta), epsilon_mironov(rho, delta)
    assert exact <= cks * (1 + 1e-12) <= mironov * (1 + 1e-11)


@relaxed
@given(st.floats(-4, 3), st.floats(1.001, 10), deltas)
def test_more_loss_never_costs_less(log_mu, factor, delta):
    mu = 10**log_mu
    assert epsilon_exact(mu, delta) <= epsilon_exact(mu * factor, delta)
    assert epsilon_cks(mu, delta) <= epsilon_cks(mu * factor, delta)
    assert epsilon_exact(mu, delta) >= epsilon_exact(mu, delta * 5)


# ---- what prices to infinity ----

def test_clear_missing_and_unknown_branches_price_to_infinity():
    base = gaussian_claim(GOLDEN[0])
    clear = gaussian_claim(GOLDEN[0], branches=(*base.branches, BranchClaim("pose")))
    unknown = gaussian_claim(GOLDEN[0], branches=(*base.branches, BranchClaim("pose", "gausian", 1, 1)))
    missing = gaussian_claim(GOLDEN[0], branches=base.branches[:1], reads=("id", "expr"))
    for claim, word in ((clear, "in clear"), (unknown, "gausian"), (missing, "'expr'"),
                        (gaussian_claim(GOLDEN[0], branches=()), "no branch"), (FullClaim("none"), "no formal claim")):
        p = price(claim)
        assert p.epsilon == p.epsilon_exact == p.epsilon_cks == p.epsilon_mironov == p.mu == math.inf
        assert word in p.assumptions[0]
    assert price(base, released=["id", "expr"]).epsilon < math.inf
    assert price(base, released=["id", "expr", "gaze"]).epsilon == math.inf
    event = FullClaim("event", branches=(BranchClaim("text"),), event=EventClaim(30, 2, (6,), (0.4,)))
    assert price(event).epsilon_max == price(event).epsilon_sum == math.inf
    assert claimed(clear, price(clear)).epsilon == math.inf


def test_scales_above_the_floor_have_no_place_in_a_claim():
    assert not {"scale_realised", "mean_std"} & set(BranchClaim.__dataclass_fields__)
    assert price(gaussian_claim(GOLDEN[2])).mu == pytest.approx(GOLDEN[2]["mu"])  # priced from noise_std alone


# ---- pure noise, mixtures ----

def test_randomized_response_is_pure():
    branch = BranchClaim("label", "randomized_response", epsilon=8, norm="label")
    p = price(FullClaim("clip", clips=3, branches=(branch,)))
    assert (p.epsilon, p.epsilon_pure, p.delta) == (24, 24, 0)
    assert p.rho is p.mu is p.epsilon_exact is p.epsilon_mironov is None
    q = price(FullClaim("label", clips=2, label=LabelClaim(classes=6, epsilon="0.1", labels=3)))
    assert q.epsilon_pure == 0.6  # exact: floats would give 0.6000000000000001


def test_laplace_branch_counts_rows_frames_and_diameter():
    branch = BranchClaim("count", "discrete_laplace", clip_norm=6, scale=60, norm="l1")
    assert price(FullClaim("clip", frames=5, branches=(branch,))).epsilon == 1.0  # 5 * 12 / 60
    box = BranchClaim("count", "discrete_laplace", clip_norm=6, scale=60, norm="box", dim=3, rows=1)
    assert price(FullClaim("clip", frames=5, branches=(box,))).epsilon == 0.3  # 18 / 60


def test_one_row_per_clip():
    row = BranchClaim("v", "gaussian", 1.0, 10.0, rows=1)
    assert price(FullClaim("clip", branches=(row,))).mu == pytest.approx(0.2)


def test_mixture_takes_the_cheaper_valid_sum():
    for epsilon in (0.05, 8):
        noisy = BranchClaim("id", "gaussian", 1.0, 40.0)
        p = price(FullClaim("clip", branches=(noisy, BranchClaim("e", "randomized_response", epsilon=epsilon))))
        g = price(FullClaim("clip", branches=(noisy,)))
        by_mu = epsilon_exact(math.hypot(g.mu, mu_of_pure(epsilon)), 1e-5)
        assert p.epsilon == min(by_mu, g.epsilon + epsilon) > g.epsilon
        assert p.mu > g.mu


# ---- wrong input ----

ABSURD = (-1, 0, math.nan, math.inf, -math.inf, 1e30, 10**400, "ten", None, True)


@pytest.mark.parametrize("value", ABSURD)
@pytest.mark.parametrize("field", ["delta", "frames", "clips", "clip_norm", "noise_std", "epsilon"])
def test_absurd_numbers_name_their_field(field, value):
    if value is None and field in ("clip_norm", "noise_std"):
        expected = f"{field} is missing"
    else:
        expected = field
    with pytest.raises(ConfigError, match=expected):
        if field == "epsilon":
            mu_exact(value, 1e-5)
        elif field in ("clip_norm", "noise_std"):
            BranchClaim(**{"name": "id", "noise": "gaussian", "clip_norm": 1, "noise_std": 1, field: value})
        else:
            gaussian_claim(GOLDEN[0], **{field: value})


def test_floors_refuse_shares_that_are_no_division():
    good = {"clip_norm": {"id": 1.0, "expr": 1.0}, "frames": 16}
    with pytest.raises(ConfigError, match="add up to 0.9"):
        floors(2, 1e-5, share={"id": 0.3, "expr": 0.6}, **good)
    with pytest.raises(ConfigError, match="different branches"):
        floors(2, 1e-5, share={"id": 1.0}, **good)
    with pytest.raises(ConfigError, match="epsilon"):
        floors(1e9, 1e-5, share={"id": 0.3, "expr": 0.7}, **good)
    with pytest.raises(ConfigError, match="exact"):
        total_rho(1, 1e-5, "exakt")


@relaxed
@given(st.floats(-9, 9), st.floats(-9, 12), st.integers(1, 100_000), st.integers(1, 10**6),
       st.floats(-299, -1))
def test_every_accepted_claim_has_a_price(log_clip, log_std, frames, clips, log_delta):
    branch = BranchClaim("id", "gaussian", 10**log_clip, 10**log_std)
    p = price(FullClaim("clip", frames=frames, clips=clips, delta=10**log_delta, branches=(branch,)))
    assert 0 <= p.epsilon_exact <= p.epsilon_cks * (1 + 1e-9) + 1e-12
    assert p.epsilon_cks <= p.epsilon_mironov * (1 + 1e-9) < math.inf


# ---- an independent accountant ----

@pytest.mark.parametrize("g", GOLDEN[2:12:3], ids=lambda g: g["name"])
@pytest.mark.filterwarnings("ignore")
def test_agrees_with_dp_accounting(g):
    dpa = pytest.importorskip("dp_accounting")
    both = dpa.ComposedDpEvent([dpa.GaussianDpEvent(g[f"s_{b}"] / (2 * g[f"C_{b}"])) for b in ("id", "expr")])
    event = dpa.SelfComposedDpEvent(both, g["T"] * g["K"])
    p = price(gaussian_claim(g))
    assert dpa.get_epsilon_gaussian(1 / p.mu, g["delta"]) == pytest.approx(p.epsilon_exact, abs=1e-8)
    grid = dpa.rdp.RdpAccountant().compose(event).get_epsilon(g["delta"])
    assert p.epsilon_cks <= grid + 1e-12 <= p.epsilon_cks + 6e-4  # the error of its grid of orders at rho <= 1


@pytest.mark.parametrize("clip_norm", [0.25, 0.5, 3.0])
def test_an_image_metric_claim_is_priced_at_distance_one_and_replacement_at_the_diameter(clip_norm):
    """Noise exp(-e |z|) on 16 rows: 16 e where every row moves by 1, times the diameter where all are exchanged."""
    branch = BranchClaim("latent", "exponential", clip_norm=clip_norm, epsilon=0.25, dim=8)
    metric = price(FullClaim("image_metric", branches=(branch,)))
    replaced = price(FullClaim("clip", branches=(branch,)))
    assert metric.epsilon == 4.0 and replaced.epsilon == pytest.approx(4.0 * 2 * clip_norm)
    follows = convert(Guarantee("image_metric", "pure", epsilon=metric.epsilon), "replace",
                      Facts(diameter=branch.diameter(2)))
    assert follows.epsilon == pytest.approx(replaced.epsilon)
    gauss = BranchClaim("latent", "gaussian", clip_norm=clip_norm, noise_std=2.0)
    assert price(FullClaim("image_metric", branches=(gauss,))).mu == pytest.approx(4 / 2)
