"""Events, pixels and the filters: exact sums against brute force, small systems by enumeration, wrong input."""

import math
from fractions import Fraction as F
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.errors import ConfigError
from bench.privacy.accounting import event_noise, pixel_scale, price
from bench.privacy.claims import EventClaim, FullClaim, PixelsClaim
from bench.privacy.filters import ChunkLoadFilter, TotalFilter, top_k_mean_load

relaxed = settings(deadline=None, derandomize=True, max_examples=100)  # busy machines are slow, not wrong


# ---- events ----

def test_ten_releases_cost_four_or_two_fifths():
    event = EventClaim(30, 2, (6,), (0.4,) * 10)
    p = price(FullClaim("event", event=event))
    assert (p.epsilon_sum, p.epsilon_max, p.epsilon, p.epsilon_pure) == (4.0, 0.4, 0.4, 0.4)
    q = price(FullClaim("event", adjacency="per_window", event=event))
    assert (q.epsilon, q.epsilon_sum, q.epsilon_max) == (4.0, 4.0, 0.4)


@pytest.mark.parametrize("k, share, expected", [(2, "1/4", (.8, .1, 8)), (2, 1, (.8, .4, 2)), (5, "1/4", (2, .1, 20)),
                                                (5, 1, (2, .4, 5))])
def test_golden_noise_scales(k, share, expected):
    event = EventClaim(30, k, (6,), (0.4,), allocation=(share,))
    assert tuple(map(float, event_noise(event, event.spends[0])[0])) == expected


def test_overlapping_windows_of_the_reference():
    event = EventClaim(30, 2, (6,), (0.4,) * 28, cadence_chunks=10)
    p = price(FullClaim("event", event=event))
    assert (p.epsilon_sum, p.epsilon_max) == (11.2, 1.2)


def test_budgets_cap_what_spends_may_add_up_to():
    spends = (F(4, 5),) * 10
    total = price(FullClaim("event", event=EventClaim(30, 2, (6,), spends, budget=4)))
    assert (total.epsilon_sum, total.epsilon_max) == (4.0, 0.8)
    load = price(FullClaim("event", event=EventClaim(30, 2, (6,), spends, budget="0.5", accountant="max")))
    assert (load.epsilon_sum, load.epsilon_max) == (8.0, 0.5)


def test_loss_of_small_systems_by_enumeration():
    """Three windows of one signed number, discrete Laplace, a policy that reads past outputs: every output tried."""
    def spend(past):  # .8, then .4 or .1 by the sign of what came out
        return F(4, 5) if not past else (F(2, 5) if past[-1] > 0 else F(1, 10))

    k, cap, grid = 2, 1, range(-4, 5)
    worst, paths = {"total": F(0), "per_window": F(0)}, [(a, b, 0) for a in grid for b in grid]  # last: best at 0
    for outputs, changes in product(paths, product(range(k + 1), repeat=3)):
        spends = [spend(outputs[:t]) for t in range(3)]
        # the sums are 0 against 2 C changes; ln of the ratio of P(y) ~ exp(-|y| / scale), scale = 2 K C / spend
        loss = sum((F(abs(y - 2 * cap * c) - abs(y)) * e / (2 * k * cap) for y, c, e in
                    zip(outputs, changes, spends)), F(0))
        assert loss <= sum(spends)
        worst["per_window"] = max(worst["per_window"], loss)
        if sum(changes) <= k:
            assert loss <= max(spends)
            worst["total"] = max(worst["total"], loss)
    assert worst["total"] == F(4, 5)  # the largest spend, whatever the policy does
    assert worst["total"] < worst["per_window"] == F(5, 4)
    event = EventClaim(3, k, (cap,), (0.8, 0.4, 0.4))  # the most that each window may spend
    p = price(FullClaim("event", event=event))
    assert (p.epsilon_max, p.epsilon_sum) == (0.8, 1.6)


fractions = st.builds(F, st.integers(0, 8), st.sampled_from([1, 5, 10]))


@relaxed
@given(st.lists(fractions, min_size=1, max_size=5), st.integers(1, 4), st.integers(1, 5), st.integers(1, 3))
def test_top_k_mean_load_against_brute_force(spends, window, cadence, k):
    chunks = range((len(spends) - 1) * cadence + window)
    worst = F(0)
    for changed in combinations(chunks, min(k, len(chunks))):
        touched = [sum(t * cadence <= j < t * cadence + window for j in changed) for t in range(len(spends))]
        loss = sum((e * n for e, n in zip(spends, touched)), F(0))
        worst = max(worst, loss / k)
    assert top_k_mean_load(spends, window, cadence, k) == worst


@relaxed
@given(st.lists(fractions, min_size=1, max_size=12), st.integers(1, 6), st.integers(1, 6), fractions)
def test_chunk_load_filter_against_brute_force(wanted, window, cadence, budget):
    filt, total, load, spent = ChunkLoadFilter(budget, window, cadence), TotalFilter(budget), {}, F(0)
    for t, e in enumerate(wanted):
        covered = range(t * cadence, t * cadence + window)
        fits = all(load.get(j, F(0)) + e <= budget for j in covered)
        assert filt.admit(e) is fits
        for j in covered if fits else ():
            load[j] = load.get(j, F(0)) + e
        assert total.admit(e) is (spent + e <= budget)
        spent += e if spent + e <= budget else 0
    assert filt.peak == max(load.values(), default=F(0)) <= budget
    assert total.spent == spent <= budget


def test_filters_are_exact():
    f = TotalFilter("0.3")
    assert [f.admit(0.1) for _ in range(4)] == [True, True, True, False]  # in floats the third would be refused
    g = ChunkLoadFilter(0.4, 30)
    assert all(g.admit(0.4) for _ in range(1000)) and g.peak == F(2, 5)
    assert not g.admit("0.4000000001")
    for bad in (-1, math.nan, math.inf, "x", None, True):
        with pytest.raises(ConfigError, match="spend"):
            f.admit(bad)
    with pytest.raises(ConfigError, match="cadence_chunks"):
        ChunkLoadFilter(1, 30, 0)


# ---- pixels ----

def test_pixels_in_every_frame_or_in_all():
    scale = pixel_scale(16, 8, frames=16)
    assert scale == F(16 * 255 * 48, 8)
    p = price(FullClaim("pixels", pixels=PixelsClaim(m=16, b=8, scale=scale)))
    assert (p.epsilon, p.epsilon_sum, p.epsilon_max) == (8.0, 8.0, 0.5)  # 3 channels of one frame: 8 / 16
    q = price(FullClaim("pixels", adjacency="total", clips=9, pixels=PixelsClaim(m=16, b=8, scale=scale)))
    assert (q.epsilon, q.epsilon_sum) == (0.5, 72.0)
    assert pixel_scale(16, 8, frames=16, adjacency="total") == F(16 * 255 * 3, 8)


@pytest.mark.parametrize("field, value", [
    ("window_chunks", 0), ("changed_chunks", -2), ("cap", (0,)), ("cap", (math.nan,)), ("spends", ()),
    ("spends", (0.4, -0.1)), ("spends", (math.inf,)), ("allocation", (0.8, 0.4)), ("allocation", (0,)),
    ("cadence_chunks", 0), ("budget", 0), ("accountant", "mean"), ("cap", (1, 2, 3)),
])
def test_absurd_events_name_their_field(field, value):
    with pytest.raises(ConfigError, match=field):
        EventClaim(**{"window_chunks": 30, "changed_chunks": 2, "cap": (6,), "spends": (0.4,), field: value})
