"""Intervals, tests and ranks against closed forms, second libraries and simulated coverage."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats as scipy_stats
from sklearn.metrics import recall_score

from bench import stats
from bench.seeds import derive


def rng(*names):
    return derive(42, "test_stats", *names)


# ---- means ---------------------------------------------------------------------------------------------------------

def test_person_means_drop_what_is_undefined():
    means = stats.person_means([1.0, math.nan, 3.0, 5.0, math.nan], ["b", "b", "a", "a", "c"])
    assert means == {"a": 4.0, "b": 1.0}
    interval = stats.mean_interval([1.0, math.nan, 3.0, 5.0, math.nan], ["b", "b", "a", "a", "c"])
    assert (interval.value, interval.n, interval.people, interval.dropped) == (2.5, 3, 2, 1)


def test_a_person_with_many_trials_weighs_as_much_as_one_with_few():
    assert stats.mean_interval([1.0] * 99 + [0.0], [0] * 99 + [1]).value == 0.5


def test_mean_interval_is_the_t_interval_of_person_means():
    values = np.array([50, 48, 55, 40, 52, 58]) / 60
    found = stats.mean_interval(values, range(6), low=0, high=1)
    theirs = scipy_stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.lo, found.hi) == pytest.approx((theirs.low, theirs.high))
    assert (found.kind, found.people) == ("t", 6)


@pytest.mark.parametrize("people, kind", [(1, "none"), (4, "none"), (5, "t")])
def test_no_interval_below_five_people(people, kind):
    found = stats.mean_interval(np.arange(people) / 10, range(people))
    assert found.kind == kind
    assert math.isnan(found.lo) == math.isnan(found.hi) == (kind == "none")


def test_intervals_stay_inside_the_range_of_the_column():
    found = stats.mean_interval([1, 1, 1, 1, 0.4, 0.9], range(6), low=0, high=1)
    assert found.hi == 1.0 and found.lo > 0
    free = stats.mean_interval([1, 1, 1, 1, 0.4, 0.9], range(6))
    assert free.hi > 1.0 and free.lo == found.lo


@pytest.mark.parametrize("values", [[], [math.nan] * 7, [math.inf, 1, 1, 1, 1, 1, 1]])
def test_nothing_to_average_gives_no_interval(values):
    found = stats.mean_interval(values, range(len(values)))
    assert not math.isfinite(found.value) and found.kind == "none"


def test_the_order_of_trials_changes_no_bit():
    draw = rng("order")
    people, values = draw.integers(0, 9, 200), draw.random(200)
    truth, predicted = draw.integers(0, 4, (2, 200))
    order = draw.permutation(200)
    assert stats.mean_interval(values, people) == stats.mean_interval(values[order], people[order])
    first = stats.uar_interval(truth, predicted, people, 4, rng("b"))
    assert first == stats.uar_interval(truth[order], predicted[order], people[order], 4, rng("b"))


# ---- unweighted average recall -------------------------------------------------------------------------------------

def test_uar_golden_values():
    confusion = np.array([[8, 2], [1, 1]])
    assert stats.uar_of_confusion(confusion) == pytest.approx(0.65)
    assert stats.uar([0, 1, 2, 0], [0, 1, 2, 0], 3) == 1.0
    assert stats.uar(list(range(6)) * 2, [0] * 12, 6) == pytest.approx(1 / 6)


def test_uar_leaves_out_absent_classes_as_scikit_learn_does():
    assert stats.uar([1, 1], [1, 2], 3) == 0.5
    truth, predicted = rng("uar").integers(0, 5, (2, 300))
    theirs = recall_score(truth, predicted, average="macro", labels=range(7), zero_division=np.nan)
    assert stats.uar(truth, predicted, 7) == pytest.approx(theirs)
    assert math.isnan(stats.uar([], [], 3))


def test_classes_outside_the_label_set_are_refused():
    with pytest.raises(ValueError, match="0 .. 2"):
        stats.uar([0, 1], [0, 3], 3)
    with pytest.raises(ValueError, match="0 .. 2"):
        stats.uar([-1, 1], [0, 1], 3)


def test_confusions_are_one_table_a_person():
    tables = stats.confusions([0, 1, 1, 0], [0, 1, 0, 1], ["b", "a", "a", "b"], 2)
    assert tables.tolist() == [[[0, 0], [1, 1]], [[1, 1], [0, 0]]]


def test_uar_interval_survives_classes_that_vanish_in_a_replicate():
    truth, people = [0] * 20 + [1], [i // 4 for i in range(20)] + [5]  # class 1 exists for one person of six
    found = stats.uar_interval(truth, [0] * 21, people, 2, rng("vanish"))
    assert (found.value, found.lo) == (0.5, 0.5)  # without class 1 a replicate is 1.0, with it 0.5
    assert found.hi == 1.0 and found.kind == "bootstrap" and (found.n, found.people) == (21, 6)
    assert stats.uar_interval(truth[:16], [0] * 16, people[:16], 2, rng("few")).kind == "none"


def test_cluster_bootstrap_of_a_mean_has_the_enumerated_distribution():
    """All 6^6 resamples of six people, and scipy's percentile bootstrap; the means lie on a grid of 1 / 360."""
    hits = np.array([50, 48, 55, 40, 52, 58]) / 60
    replicates = stats.cluster_bootstrap(lambda sums: sums / 6, hits, rng("boot"), 40_000)
    every = np.array(list(itertools.product(hits, repeat=6))).mean(axis=1)
    assert replicates.std() == pytest.approx(every.std(), rel=0.02)
    for level in (0.1, 0.25, 0.5, 0.75, 0.9):
        assert np.mean(replicates <= np.quantile(every, level) + 1e-9) == pytest.approx(
            np.mean(every <= np.quantile(every, level) + 1e-9), abs=0.01)
    theirs = scipy_stats.bootstrap((hits,), np.mean, method="percentile", n_resamples=40_000, rng=rng("peer"))
    expected = [theirs.confidence_interval.low, theirs.confidence_interval.high]
    assert np.quantile(replicates, [0.025, 0.975]) == pytest.approx(expected, abs=1 / 360 + 1e-9)


def test_stretching_undoes_the_bootstraps_small_variance():
    """On normal data the stretched percentile interval is the t interval."""
    values = scipy_stats.norm.ppf((np.arange(12) + 0.5) / 12)
    replicates = stats.cluster_bootstrap(lambda sums: sums / 12, values, rng("stretch"), 40_000)
    found = stats.stretched_interval(values.mean(), replicates, 12, 12)
    t = stats.mean_interval(values, range(12))
    assert (found.lo, found.hi) == pytest.approx((t.lo, t.hi), rel=0.03)


# ---- coverage ------------------------------------------------------------------------------------------------------

SIMS = 1500
MEAN, SD, CLIPS = 0.8, 0.12, 60


def simulated_hits(people: int) -> np.ndarray:
    """Hits of 60 clips (SIMS, people); a person's own rate is beta with mean .8 and deviation .12."""
    draw, size = rng("coverage", people), MEAN * (1 - MEAN) / SD**2 - 1
    return draw.binomial(CLIPS, draw.beta(MEAN * size, (1 - MEAN) * size, (SIMS, people)))


def share_holding(intervals, truth: float) -> float:
    return float(np.mean([found.lo <= truth <= found.hi for found in intervals]))


@pytest.mark.parametrize("people", [6, 11, 22])
def test_t_intervals_cover(people):
    rates = simulated_hits(people) / CLIPS
    coverage = share_holding((stats.mean_interval(row, range(people), low=0, high=1) for row in rates), MEAN)
    assert 0.92 <= coverage <= 0.97


@pytest.mark.parametrize("people", [6, 11, 22])
def test_stretched_bootstraps_cover_and_plain_ones_do_not(people):
    hits = simulated_hits(people)
    tables = np.stack([hits.T, np.full_like(hits.T, CLIPS)], axis=-1)  # (G, SIMS, 2)
    replicates = stats.cluster_bootstrap(lambda sums: sums[..., 0] / sums[..., 1], tables, rng("cover", people), 1000)
    rates = hits.mean(axis=1) / CLIPS
    coverage = share_holding((stats.stretched_interval(rate, own, people * CLIPS, people, low=0, high=1)
                              for rate, own in zip(rates, replicates.T)), MEAN)
    lo, hi = np.quantile(replicates, [0.025, 0.975], axis=0)
    plain = np.mean((lo <= MEAN) & (MEAN <= hi))
    assert 0.92 <= coverage <= 0.97
    assert plain < coverage


# ---- paired comparison ---------------------------------------------------------------------------------------------

GOLDEN = (0.03, 0.01, 0.05, 0.02, 0.04, 0.06)


def test_sign_flip_golden_value():
    assert stats.sign_flip_p(GOLDEN) == 0.03125 == stats.min_p(6)
    assert stats.sign_flip_p([-d for d in GOLDEN]) == 0.03125
    assert scipy_stats.ttest_1samp(GOLDEN, 0).pvalue == pytest.approx(0.0059, abs=5e-5)  # as published for t


@pytest.mark.parametrize("people", [1, 2, 5, 8, 12])
def test_sign_flip_counts_all_sign_patterns(people):
    d = np.round(rng("flip", people).normal(0.3, 1, people), 1)  # rounded: ties do occur
    patterns = np.array(list(itertools.product([-1, 1], repeat=people)))
    expected = np.mean(np.abs(patterns @ d) >= abs(d.sum()) - 1e-9)
    assert stats.sign_flip_p(d) == pytest.approx(expected)


def test_sign_flip_agrees_with_scipys_permutation_test():
    d = rng("permutation").normal(0.4, 1, 10)
    theirs = scipy_stats.permutation_test((d,), np.sum, permutation_type="samples", n_resamples=np.inf)
    assert stats.sign_flip_p(d) == pytest.approx(theirs.pvalue)


def test_sign_flip_above_the_exact_range_draws_and_needs_a_generator():
    d = rng("many").normal(0.35, 1, 40)
    with pytest.raises(ValueError, match="rng"):
        stats.sign_flip_p(d)
    normal = 2 * scipy_stats.norm.sf(abs(d.sum()) / np.sqrt((d**2).sum()))
    assert stats.sign_flip_p(d, rng("draw")) == pytest.approx(normal, rel=0.15)
    assert stats.sign_flip_p(d, rng("draw")) == stats.sign_flip_p(d, rng("draw"))
    assert stats.sign_flip_p(np.ones(40), rng("draw")) == pytest.approx(1 / 20_001)


def test_sign_flip_of_nothing():
    assert stats.sign_flip_p([0] * 6) == 1.0
    assert math.isnan(stats.sign_flip_p([])) and math.isnan(stats.sign_flip_p([1.0, math.nan]))


def test_sign_flip_keeps_its_level():
    """P(p <= .05) <= .05 under symmetry, and not far below it with 10 people."""
    rejected = np.mean([stats.sign_flip_p(d) <= 0.05 for d in rng("level").normal(0, 1, (2000, 10))])
    assert 0.035 <= rejected <= 0.06


@pytest.mark.parametrize("people, expected", [(5, 0.0625), (6, 0.03125), (22, 4.76837158203125e-07)])
def test_min_p(people, expected):
    assert stats.min_p(people) == expected == stats.sign_flip_p([1.0] * people)


def test_paired_differences_use_common_people_only():
    a, b = {"x": 1.0, "y": 2.0, "z": math.nan, "w": 5.0}, {"y": 0.5, "x": 0.75, "z": 1.0, "v": 2.0}
    assert stats.paired_differences(a, b).tolist() == [0.25, 1.5]
    found = stats.paired_interval(a, b)
    assert (found.value, found.people, found.dropped, found.kind) == (0.875, 2, 3, "none")


def test_paired_interval_is_the_paired_t_interval():
    a, b = rng("paired").random((2, 9))
    found = stats.paired_interval(dict(enumerate(a)), dict(enumerate(b)))
    theirs = scipy_stats.ttest_rel(a, b).confidence_interval()
    assert (found.lo, found.hi) == pytest.approx((theirs.low, theirs.high))


def test_holm_golden_values():
    adjusted = stats.holm((0.001, 0.008, 0.039, 0.041, 0.042, 0.06))
    assert adjusted == pytest.approx([0.006, 0.040, 0.156, 0.156, 0.156, 0.156])
    assert stats.holm([0.9, 0.8]).tolist() == [1.0, 1.0]
    assert stats.holm([0.02, math.nan, 0.01]) == pytest.approx([0.02, math.nan, 0.02], nan_ok=True)
    assert stats.holm([]).shape == (0,)


def test_holm_agrees_with_statsmodels():
    peer = pytest.importorskip("statsmodels.stats.multitest")
    ps = rng("holm").random(20) ** 3
    assert stats.holm(ps) == pytest.approx(peer.multipletests(ps, method="holm")[1])


# ---- ranks ---------------------------------------------------------------------------------------------------------

def steps(*levels: float, people: int = 12, noise: float = 0.01) -> np.ndarray:
    """Person values (M, people) about given levels, people in common."""
    draw = rng("steps", people)
    return np.array(levels)[:, None] + draw.normal(0, 0.1, people) + draw.normal(0, noise, (len(levels), people))


def test_competition_ranks():
    assert stats.competition_ranks(np.array([0.9, 0.8, 0.8, 0.7]), "higher").tolist() == [1, 2, 2, 4]
    assert stats.competition_ranks(np.array([0.9, 0.8, 0.8, 0.7]), "lower").tolist() == [4, 2, 2, 1]
    assert stats.competition_ranks(np.array([0.1 + 0.2, 0.3]), "higher").tolist() == [1, 1]
    assert stats.competition_ranks(np.array([0.904, 0.896, 0.8]), "higher", decimals=2).tolist() == [1, 1, 3]


def test_clear_steps_rank_without_doubt():
    table = stats.rank_table(steps(0.2, 0.8, 0.5), "higher", rng("clear"))
    assert [row.rank for row in table] == [3, 1, 2]
    assert [(row.lo, row.hi) for row in table] == [(3, 3), (1, 1), (2, 2)]
    assert [row.tied_with_best for row in table] == [False, True, False]
    assert all(row.decidable for row in table)
    flipped = stats.rank_table(steps(0.2, 0.8, 0.5), "lower", rng("clear"))
    assert [row.rank for row in flipped] == [1, 3, 2]


def test_rows_that_nothing_separates_are_tied_with_the_best():
    table = stats.rank_table(steps(0.5, 0.5, 0.1, noise=0.05), "higher", rng("tied"))
    assert [row.tied_with_best for row in table] == [True, True, False]
    assert {(row.lo, row.hi) for row in table[:2]} == {(1, 2)}
    same = stats.rank_table(np.array([[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]] * 2), "lower", rng("same"))
    assert [row.rank for row in same] == [1, 1] and all(row.tied_with_best for row in same)


def test_pairing_separates_what_overlapping_intervals_would_not():
    values = steps(0.50, 0.54, people=15)
    apart = [stats.mean_interval(row, range(15)) for row in values]
    assert apart[0].hi > apart[1].lo
    assert [row.tied_with_best for row in stats.rank_table(values, "higher", rng("pair"))] == [False, True]


def test_a_row_is_held_apart_from_the_best_by_the_adjusted_p_only():
    """Seven people, always worse: raw p is 2 / 2^7 = .0156; one test of three in a family, of one when alone."""
    best, worse = np.arange(7) / 10, np.arange(7) / 10 - 0.01 * np.arange(1, 8)
    mixed = best - 0.01 * np.array([-6, 1, 1, 1, 2, 2, 2])  # lower in the mean, but not reliably
    alone = stats.rank_table(np.stack([best, worse]), "higher", rng("alone"))
    assert alone[1].p == 0.015625 and not alone[1].tied_with_best
    family = stats.rank_table(np.stack([best, worse, worse - 0.01, mixed]), "higher", rng("family"))
    assert [row.p for row in family[1:3]] == pytest.approx([3 / 64] * 2) and family[3].p > 0.05
    assert [row.tied_with_best for row in family] == [True, False, False, True]


@pytest.mark.parametrize("bad", [math.nan, None, math.inf, -math.inf])
@pytest.mark.parametrize("better", ["higher", "lower"])
@pytest.mark.parametrize("whole", [True, False], ids=["whole row", "one person"])
def test_rows_without_finite_values_never_rank(bad, better, whole):
    values = steps(0.5, 0.6, 0.7).astype(object)
    values[1, slice(None) if whole else 3] = bad
    table = stats.rank_table(values, better, rng("bad"))
    assert table[1] == stats.NO_RANK and table[1].rank is None and not table[1].tied_with_best
    assert sorted(row.rank for row in (table[0], table[2])) == [1, 2]
    assert max(row.hi for row in (table[0], table[2])) == 2


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_opposite_infinities_in_a_row_never_rank(better):
    values = steps(0.5, 0.6)
    values[0, :2] = math.inf, -math.inf
    assert [row.rank for row in stats.rank_table(values, better, rng("inf"))] == [None, 1]


def test_descriptive_columns_never_rank_and_unknown_directions_are_refused():
    assert stats.rank_table(steps(0.5, 0.6), "none", rng()) == [stats.NO_RANK] * 2
    with pytest.raises(ValueError, match="up"):
        stats.rank_table(steps(0.5, 0.6), "up", rng())


@pytest.mark.parametrize("people, rows, decidable", [(6, 2, True), (6, 3, False), (5, 2, False), (9, 7, True)])
def test_too_few_people_decide_nothing(people, rows, decidable):
    table = stats.rank_table(steps(*np.linspace(0.1, 0.9, rows), people=people), "higher", rng("few"))
    assert {row.decidable for row in table} == {decidable}
    assert [row.tied_with_best for row in table] == [not decidable] * (rows - 1) + [True]
    assert [row.rank for row in table] == list(range(rows, 0, -1))


def test_rank_intervals_need_five_people():
    table = stats.rank_table(steps(0.1, 0.9, people=4), "higher", rng("four"))
    assert [(row.rank, row.lo, row.hi) for row in table] == [(2, None, None), (1, None, None)]


def test_ranks_of_a_non_linear_statistic_come_from_its_own_replicates():
    values = steps(0.5, 0.6)
    replicates = np.tile([0.9, 0.1], (100, 1))
    replicates[0] = math.nan
    table = stats.rank_table(values, "higher", rng("own"), estimates=np.array([0.9, 0.1]), replicates=replicates)
    assert [(row.rank, row.lo, row.hi) for row in table] == [(1, 1, 1), (2, 2, 2)]
    unknown = stats.rank_table(values, "higher", rng("own"), estimates=np.array([math.nan, 0.1]), replicates=replicates)
    assert [row.rank for row in unknown] == [None, 1]
    values[0, 3] = math.nan  # a finite estimate does not mend a missing person
    missing = stats.rank_table(values, "higher", rng("own"), estimates=np.array([0.9, 0.1]), replicates=replicates)
    assert [row.rank for row in missing] == [None, 1]


def test_rank_intervals_resample_people_jointly():
    """With people in common, a constant gap is certain; independent resampling would make it doubtful."""
    people = rng("joint").normal(0, 1, 10)
    table = stats.rank_table(np.stack([people, people + 0.01]), "higher", rng("joint", "draw"))
    assert [(row.lo, row.hi) for row in table] == [(2, 2), (1, 1)]
