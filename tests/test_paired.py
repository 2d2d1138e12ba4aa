"""Paired differences over the same people, against closed forms and the ready-made paired t test."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as peers

from bench import frechet, seeds
from bench.paired import difference, pseudo_values

G = 40
RNG = seeds.derive(1, "paired")
HITS, TRIES = RNG.uniform(0, 5, G), RNG.uniform(3, 8, G)  # of each person


def ratio(keep):
    return HITS[keep].sum() / TRIES[keep].sum()


def left_out(number):
    return {g: number(np.arange(G) != g) for g in range(G)}


def test_pseudo_values_of_a_mean_are_the_values():
    found = pseudo_values(HITS.mean(), left_out(lambda keep: HITS[keep].mean()))
    assert found == pytest.approx(dict(enumerate(HITS)))


def test_pseudo_values_of_a_ratio():
    """G r - (G - 1) r_g with r = A / B and r_g = (A - a) / (B - b) is r + (G - 1) (a - r b) / (B - b)."""
    whole = HITS.sum() / TRIES.sum()
    found = pseudo_values(whole, left_out(ratio))
    expected = whole + (G - 1) * (HITS - whole * TRIES) / (TRIES.sum() - TRIES)
    assert list(found.values()) == pytest.approx(list(expected))


def test_against_a_constant_the_interval_is_the_jackknife():
    whole, without = HITS.sum() / TRIES.sum(), left_out(ratio)
    found = difference(whole, 0.0, pseudo_values(whole, without), dict.fromkeys(range(G), 0.0))
    expected = frechet.jackknife_interval(whole, without, G)
    assert (found.value, found.lo, found.hi) == pytest.approx((expected.value, expected.lo, expected.hi))
    assert found.kind == "t" and found.people == G


def test_of_means_it_is_the_paired_t_test_and_what_is_shared_cancels():
    other = HITS + RNG.normal(0.2, 0.01, G)
    found = difference(other.mean(), HITS.mean(), dict(enumerate(other)), dict(enumerate(HITS)))
    low, high = peers.ttest_rel(other, HITS).confidence_interval(0.95)
    assert (found.lo, found.hi) == pytest.approx((low, high))
    assert found.hi - found.lo < 0.02 < peers.sem(HITS), "as apart as two samples these means are not told apart"


def test_only_common_people_count_and_nothing_is_made_of_what_is_undefined():
    found = difference(9.0, 0.0, {1: 1.0, 2: 2.0, 3: 3.0}, {2: 0.0, 3: 0.0, 4: 7.0})
    assert (found.value, found.people, found.dropped, found.kind) == (2.5, 2, 2, "none")
    assert pseudo_values(math.nan, {1: 1.0}) == {} and pseudo_values(1.0, {1: math.inf}) == {}
    nothing = difference(1.0, 2.0, {}, {})
    assert math.isnan(nothing.value) and nothing.kind == "none"
