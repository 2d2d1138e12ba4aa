"""Open-set rates against closed forms, hand cases, second libraries and pairs that were built anew by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_curve

from bench import open_set, stats
from bench.seeds import derive

GRID = norm.ppf((np.arange(100_000) + 0.5) / 100_000)  # a standard normal law, without chance


def rng(*names):
    return derive(7, "test_open_set", *names)


def tied(n, m, step=0.1, shift=1.0, name="tied"):
    """Genuine and impostor scores with many ties."""
    draw = rng(name)
    return np.round(draw.normal(shift, 1, n) / step) * step, np.round(draw.normal(0, 1, m) / step) * step


# ---- thresholds ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("far", [0.5, 0.1, 0.01, 0.001, 0.29, 0.07])
@pytest.mark.parametrize("count", [1, 60, 100, 1000])
def test_the_threshold_is_the_smallest_that_keeps_the_far(far, count):
    scores = tied(1, count, name=f"{far}-{count}")[1]
    threshold = open_set.threshold_at_far(scores, far)
    assert open_set.far(scores, threshold) <= far + 1e-12
    assert open_set.far(scores, np.nextafter(threshold, -math.inf)) > far
    order = rng("order").permutation(count)
    assert open_set.threshold_at_far(scores[order], far) == threshold


def test_sixty_impostors_have_no_far_of_one_percent():
    """The nearest false positive rate, 1 / 60, lies above the target; the threshold must be above all of them."""
    scores = np.arange(60) / 60
    assert open_set.threshold_at_far(scores, 0.01) == np.nextafter(59 / 60, 1)
    assert open_set.far(scores, open_set.threshold_at_far(scores, 0.01)) == 0


def test_ties_at_the_border_are_all_refused():
    scores = np.array([0.9] * 3 + [0.5] * 97)
    assert open_set.far(scores, open_set.threshold_at_far(scores, 0.02)) == 0
    assert open_set.far(scores, open_set.threshold_at_far(scores, 0.03)) == 0.03


def test_a_threshold_without_scores_is_none_and_so_are_its_rates():
    assert math.isnan(open_set.threshold_at_far(np.array([]), 0.1))
    assert math.isnan(open_set.threshold_at_far(np.array([math.nan]), 0.1))
    assert math.isnan(open_set.tar(np.array([0.3]), math.nan)) and math.isnan(open_set.tar(np.array([]), 0.3))
    assert math.isnan(open_set.dir_at_far(np.zeros((2, 2)), np.array([0, 1]), math.nan))


def test_missing_scores_are_left_out_of_thresholds_and_never_accepted():
    scores = np.array([0.1, 0.2, 0.3, 0.4])
    with_gaps = np.append(scores, [math.nan] * 4)
    assert open_set.threshold_at_far(with_gaps, 0.25) == open_set.threshold_at_far(scores, 0.25)
    assert open_set.tar(with_gaps, 0.05) == 0.5 and open_set.tar(scores, 0.05) == 1


# ---- closed forms and second libraries -----------------------------------------------------------------------------

@pytest.mark.parametrize("distance", [0.0, 0.5, 1.0, 2.0, 4.0])
def test_two_normal_laws(distance):
    """EER = Phi(-d / 2), TAR = Phi(d - z) with z the 1 - FAR quantile."""
    assert open_set.eer(GRID + distance, GRID) == pytest.approx(norm.cdf(-distance / 2), abs=2e-5)
    for far in (0.1, 0.01, 0.001):
        threshold = open_set.threshold_at_far(GRID, far)
        assert open_set.tar(GRID + distance, threshold) == pytest.approx(norm.cdf(distance - norm.isf(far)), abs=5e-4)


@pytest.mark.parametrize("genuine, impostors, want", [
    ([0.9], [0.1], 0.0), ([0.1], [0.9], 1.0), ([0.5], [0.5], 0.5), ([0.8, 0.6], [0.7, 0.1], 0.5),
    ([0.9, 0.8, 0.3, 0.2], [0.7, 0.1, 0.05, 0.01], 0.25), ([1, 1, 1, 0], [0, 0, 0, 0], 0.2)])
def test_hand_cases(genuine, impostors, want):
    """The last one: (0, 0), (0, 3/4), (1, 1); the slanted step meets FAR = 1 - TAR where x = (1 - x) / 4."""
    assert open_set.eer(np.array(genuine), np.array(impostors)) == pytest.approx(want, abs=1e-15)


@pytest.mark.parametrize("n, m, step", [(200, 3000, 0.1), (37, 1001, 1e-6), (1000, 1000, 0.5), (3, 1, 0.1)])
def test_the_rates_agree_with_sklearn(n, m, step):
    genuine, impostors = tied(n, m, step, name=f"{n}-{m}-{step}")
    truth = np.r_[np.ones(n), np.zeros(m)]
    false, true, cuts = roc_curve(truth, np.r_[genuine, impostors], drop_intermediate=False)
    for x, y, cut in list(zip(false, true, cuts))[1::7]:
        assert open_set.far(impostors, cut) == pytest.approx(x, abs=1e-12)
        assert open_set.tar(genuine, cut) == pytest.approx(y, abs=1e-12)
    surplus = false + true - 1
    k = int(np.argmax(surplus >= 0))
    crossing = false[k - 1] - surplus[k - 1] * (false[k] - false[k - 1]) / (surplus[k] - surplus[k - 1])
    assert open_set.eer(genuine, impostors) == pytest.approx(crossing, abs=1e-12)


@pytest.mark.parametrize("n, m", [(200, 3000), (37, 1001), (25, 600)])
def test_the_eer_is_within_half_a_step_of_torchmetrics(n, m):
    """It averages both rates at the nearest point of the curve instead of going along the straight line."""
    torch = pytest.importorskip("torch")
    peer = pytest.importorskip("torchmetrics.functional.classification")
    genuine, impostors = tied(n, m, 1e-9, name=f"peer-{n}")
    scores = norm.cdf(np.r_[genuine, impostors])  # in [0, 1]: their sigmoid stays away
    truth = torch.from_numpy(np.r_[np.ones(n), np.zeros(m)]).long()
    theirs = float(peer.binary_eer(torch.from_numpy(scores), truth))
    assert open_set.eer(genuine, impostors) == pytest.approx(theirs, abs=0.5 / min(n, m) + 1e-6)


@pytest.mark.parametrize("change", [lambda s: 3 * s - 1, np.tanh, lambda s: s**3])
def test_rising_maps_of_the_scores_change_nothing(change):
    genuine, impostors = tied(100, 400, 0.2)
    assert open_set.eer(change(genuine), change(impostors)) == open_set.eer(genuine, impostors)
    assert open_set.eer(-impostors, -genuine) == pytest.approx(open_set.eer(genuine, impostors))  # roles turned round


def test_equal_scores_missing_scores_and_missing_kinds():
    assert open_set.eer(np.full(5, 0.3), np.full(9, 0.3)) == 0.5
    assert open_set.eer(np.full(5, math.nan), np.full(9, math.nan)) == 0.5  # nothing was ever detected
    assert open_set.eer(np.array([0.9, 0.8, math.nan]), np.array([0.1, 0.2])) == pytest.approx(1 / 3)
    assert math.isnan(open_set.eer(np.array([]), np.array([0.1])))
    assert math.isnan(open_set.eer(np.array([0.1]), np.array([])))


# ---- identification ------------------------------------------------------------------------------------------------

SCORES = np.array([[0.9, 0.1, 0.2], [0.3, 0.4, 0.8], [0.2, 0.2, 0.5], [0.6, 0.6, 0.1]])


def test_dir_and_fpir_by_hand():
    """Mates 0, 1, 2, 0: found; second place only; found if .5 is accepted; shares the first place."""
    mates = np.array([0, 1, 2, 0])
    np.testing.assert_array_equal(open_set.identified(SCORES, mates, 0.5), [1, 0, 1, 0.5])
    assert open_set.dir_at_far(SCORES, mates, 0.55) == 1.5 / 4
    assert open_set.fpir(SCORES, 0.55) == 3 / 4 and open_set.fpir(SCORES, 0.85) == 1 / 4
    np.testing.assert_array_equal(open_set.best_scores(SCORES), [0.9, 0.8, 0.5, 0.6])


def test_a_gallery_of_one_makes_dir_the_tar():
    scores = rng("one").random((50, 1))
    assert open_set.dir_at_far(scores, np.zeros(50, int), 0.6) == open_set.tar(scores[:, 0], 0.6)


def test_undetected_probes_are_never_found():
    scores = np.array([[math.nan, math.nan], [0.7, math.nan]])
    np.testing.assert_array_equal(open_set.identified(scores, np.array([0, 0]), -math.inf), [0, 1])
    assert open_set.fpir(scores, 0.5) == 0.5 and math.isnan(open_set.best_scores(scores)[0])


def test_equal_scores_identify_by_guessing():
    assert open_set.dir_at_far(np.full((40, 4), 0.3), np.arange(40) % 4, 0.2) == 0.25


# ---- the bootstrap over people -------------------------------------------------------------------------------------

def comparisons(people, each, step=0.1, name="people"):
    """Scores of `each` probes of every person against all templates."""
    probe, template = np.repeat(np.arange(people), each * people), np.tile(np.arange(people), people * each)
    genuine = probe == template
    draw = rng(name)
    person = draw.normal(0, 0.5, people)[probe] * genuine  # some people are easier
    return np.round((draw.normal(size=len(probe)) + 1.5 * genuine + person) / step) * step, genuine, template, probe


@pytest.mark.parametrize("people, each, step", [(5, 3, 0.5), (9, 12, 0.1), (12, 4, 1e-9)])
def test_replicates_are_the_eer_of_pairs_built_anew(people, each, step):
    scores, genuine, template, probe = comparisons(people, each, step)
    weights = rng("weights").multinomial(people, np.full(people, 1 / people), size=40)
    weights[0] = 1
    found = open_set.eer_replicates(scores, genuine, template, probe, weights)
    for w, value in zip(weights, found):
        copies = [p for p in range(people) for _ in range(w[p])]  # each copy is a person of its own
        own = np.concatenate([scores[genuine & (probe == p)] for p in copies])
        other = [scores[(probe == p) & (template == q)] for p in copies for q in copies if p != q]
        assert value == pytest.approx(open_set.eer(own, np.concatenate(other)), abs=1e-12)
    assert found[0] == pytest.approx(open_set.eer(scores[genuine], scores[~genuine]), abs=1e-12)


def test_the_order_of_trials_changes_no_bit():
    scores, genuine, template, probe = comparisons(8, 5)
    order = rng("shuffle").permutation(len(scores))
    first = open_set.eer_interval(scores, genuine, template, probe, rng("b"), resamples=300)
    again = open_set.eer_interval(scores[order], genuine[order], template[order], probe[order], rng("b"), resamples=300)
    assert first == again and first.kind == "bootstrap" and first.lo < first.value < first.hi and first.people == 8


def test_one_person_drawn_alone_has_no_impostors():
    scores, genuine, template, probe = comparisons(5, 2)
    weights = np.array([[5, 0, 0, 0, 0], [4, 1, 0, 0, 0]])
    found = open_set.eer_replicates(scores, genuine, template, probe, weights)
    assert math.isnan(found[0]) and not math.isnan(found[1])


@pytest.mark.parametrize("people, kind", [(4, "none"), (5, "bootstrap")])
def test_no_interval_below_five_people(people, kind):
    found = open_set.eer_interval(*comparisons(people, 3), rng("few"), resamples=100)
    assert found.kind == kind and math.isfinite(found.value)


def test_one_impostor_pair_equal_scores_and_a_person_without_probes():
    people = np.arange(6)
    template, probe = np.append(people, 0), np.append(people, 1)  # six genuine scores and one impostor
    found = open_set.eer_interval(np.append(people / 10 + 0.3, 0.35), template == probe, template, probe, rng("one"))
    assert found.value == pytest.approx(1 / 6) and 0 <= found.lo <= found.value <= found.hi <= 1
    scores, genuine, template, probe = comparisons(6, 3)
    flat = open_set.eer_interval(np.full(len(scores), 0.2), genuine, template, probe, rng("flat"), resamples=200)
    assert (flat.value, flat.lo, flat.hi) == (0.5, 0.5, 0.5)
    kept = probe != 5  # enrolled, but never seen again
    absent = open_set.eer_interval(*(x[kept] for x in (scores, genuine, template, probe)), rng("absent"))
    assert absent.people == 6 and math.isfinite(absent.lo)
    nobody = open_set.eer_interval(scores[genuine], genuine[genuine], template[genuine], probe[genuine], rng("none"))
    assert math.isnan(nobody.value) and nobody.kind == "none"


def test_the_interval_holds_the_truth_when_people_differ():
    """Nominal 95 % over 9 people who differ: at least .92, less two deviations of so few repetitions.

    Genuine scores are normal with mean 1.5 and deviation s = sqrt(1 + .25) over all people, impostors standard normal:
    EER = Phi(-1.5 / (1 + s)).
    """
    people, each, inside, repeats = 9, 6, 0, 150
    draw = rng("coverage")
    probe, template = np.repeat(np.arange(people), each * people), np.tile(np.arange(people), people * each)
    genuine = probe == template
    truth = norm.cdf(-1.5 / (1 + math.sqrt(1.25)))
    for _ in range(repeats):
        shift = 0.5 * draw.normal(size=people)
        scores = draw.normal(size=len(probe)) + (1.5 + shift[probe]) * genuine
        found = open_set.eer_interval(scores, genuine, template, probe, draw, resamples=300)
        inside += found.lo <= truth <= found.hi
    assert inside / repeats >= 0.92 - 2 * math.sqrt(0.92 * 0.08 / repeats)


# ---- partitions and measurability ----------------------------------------------------------------------------------

@pytest.mark.parametrize("count, partitions, enrolled", [(2, 2, 1), (6, 20, 3), (9, 126, 5), (10, 5, 5), (22, 5, 11)])
def test_few_people_are_divided_in_all_ways_many_in_five(count, partitions, enrolled):
    people = [f"p{i}" for i in range(count)]
    found = open_set.partitions(people, rng("halves"))
    assert len(found) == partitions == len({half for half, _ in found})
    for half, rest in found:
        assert len(half) == enrolled and sorted(half + rest) == list(range(count))
    assert found == open_set.partitions(people, rng("halves"))


def test_partitions_of_a_given_size_and_of_too_few_people():
    assert {len(half) for half, _ in open_set.partitions(range(30), rng("size"), enrolled=4)} == {4}
    assert open_set.partitions(["a"], rng("a")) == [] == open_set.partitions(["a", "b"], rng("a"), enrolled=2)


@pytest.mark.parametrize("trials, people, far, want", [
    (3000, 25, 0.01, "ok"), (2999, 25, 0.01, "indicative"), (3000, 24, 0.01, "indicative"),
    (300, 25, 0.01, "indicative"), (299, 25, 0.01, "not_measurable"), (36_000, 14, 0.01, "not_measurable"),
    (36_000, 15, 0.01, "indicative"), (30_000, 78, 0.001, "ok"), (30_000, 77, 0.001, "indicative"),
    (300, 9, 0.1, "ok"), (300, 6, 0.1, "indicative"), (29, 9, 0.1, "not_measurable"), (30, 9, 0.1, "indicative")])
def test_what_can_be_measured(trials, people, far, want):
    """ok: trials f >= 30 and pairs f >= 3; indicative: >= 3 and >= 1; pairs of G people: G (G - 1) / 2."""
    assert open_set.measurability(trials, people * (people - 1) // 2, far) == want


def test_an_interval_is_one_of_stats():
    assert isinstance(open_set.eer_interval(*comparisons(5, 2), rng("type"), resamples=50), stats.Interval)
