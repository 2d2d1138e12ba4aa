"""The exact event attack against enumeration, closed forms, the numbers of a simulation, and its ceilings."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction as F
from itertools import product

import numpy as np
import pytest

from attacks.event_llr import EventLLR
from bench import EventClaim, Noise, PluginError, registry, seeds
from bench.data.streams import Streams, write_streams
from bench.event_auc import auc_of
from bench.privacy.contract import full_claim
from bench.run.stage_report_measures import event_ceilings, shift_of, stay_of
from bench.run.stage_reports import CLEAR
from bench.traffic import EXPERTS, SLOTS


def enumerated(parts, reach=90):
    """AUC of the likelihood ratio by trying every output; parts: [(d, b)]."""
    def law(shift, d, b):
        r = math.exp(-1 / b)
        return {y: (1 - r) / (1 + r) * r ** abs(y - shift * d) for y in range(-reach, reach + d)}

    tables = []
    for sign in (0, 1):
        total = {F(0): 1.0}
        for d, b in parts:
            step = defaultdict(float)
            for (value, p), (y, q) in product(total.items(), law(sign, d, b).items()):
                step[value + F(abs(y) - abs(y - d)) / b] += p * q  # ln p1 - ln p0
            total = step
        tables.append(total)
    return sum(p * q * (1.0 if v1 > v0 else 0.5 if v1 == v0 else 0.0)
               for (v0, p), (v1, q) in product(tables[0].items(), tables[1].items()))


@pytest.mark.parametrize("parts", [[(1, F(2))], [(3, F(2))], [(2, F(3)), (2, F(3))], [(2, F(5, 2)), (1, F(4))]])
def test_the_convolution_is_the_enumeration(parts):
    counted = defaultdict(int)
    for part in parts:
        counted[part] += 1
    assert auc_of(counted) == pytest.approx(enumerated(parts), abs=1e-9)


@pytest.mark.parametrize("epsilon", [.1, .4, 1, 4])
def test_many_small_steps_are_the_continuous_laplace(epsilon):
    """AUC of one Laplace coordinate that moves by epsilon scales: 1 - e^-eps (1 + eps / 2) / 2."""
    d = 4000
    found = auc_of({(d, F(d) / F(str(epsilon))): 1})
    assert found == pytest.approx(1 - math.exp(-epsilon) * (1 + epsilon / 2) / 2, abs=2e-6)


def scales(spend, k=2):
    """{expert: Laplace scale on the window sum} when each spends `spend`."""
    return {e.name: 2 * k * e.cap * 4 / spend for e in EXPERTS}


def auc(event, spends, k=2):
    """AUC of an event under one window with these spends {expert: e}."""
    branches = registry.build("methods", "uniform_dp").branches
    claim = EventClaim(30, k, (20,), (F(4),))
    noise = {e.name: Noise("discrete_laplace", np.array([scales(spends[e.name], k)[e.name] if spends.get(e.name)
                                                         else np.nan])) for e in EXPERTS}
    spent = {n: np.nan_to_num(1 / v.scale) for n, v in noise.items()}
    return EventLLR().auc(shift_of(event, branches, claim, spent), noise)


EACH = dict.fromkeys((e.name for e in EXPERTS), 0.1)
ONE = dict.fromkeys((e.name for e in EXPERTS), 1.0)


@pytest.mark.parametrize("event, spends, expected", [
    ("vehicle", EACH, .502), ("flip", EACH, .520), ("experts", EACH, .5395), ("vehicle", ONE, .508),
    ("pedestrian", ONE, .525), ("flip", ONE, .682), ("experts", ONE, .824), ("flip", {"traffic": .4}, .578),
    ("flip", {"traffic": .8}, .648), ("flip", {"traffic": 2.0}, .809), ("flip", {"traffic": 4.0}, .944)])
def test_numbers_of_a_simulation(event, spends, expected):
    """From 200,000 draws a side of a continuous Laplace. Draws that tie but for rounding were counted as won, which
    adds up to .006; the next test counts them as ties.
    """
    assert auc(event, spends) == pytest.approx(expected, abs=.007)


@pytest.mark.parametrize("spend", [.4, 1.0, 4.0])
def test_draws_with_honest_ties_agree(spend):
    rng, n = seeds.derive(1, "event", str(spend)), 60_000
    d, b = 160.0, scales(spend)["traffic"]

    def ratios(moved):
        y = rng.laplace(0, b, (n, 2)) + moved
        return np.round(((np.abs(y) - np.abs(y - d)) / b).sum(axis=1), 9)

    without, with_it = ratios(0.0), ratios(d)
    order = np.sort(without)
    won = (np.searchsorted(order, with_it, "left") + np.searchsorted(order, with_it, "right")) / (2 * n)
    assert auc("flip", {"traffic": spend}) == pytest.approx(won.mean(), abs=5 * .29 * np.sqrt(2 / n))


@pytest.mark.parametrize("k", [2, 5, 10])
@pytest.mark.parametrize("epsilon", [.4, .8, 4.0])
def test_no_event_is_above_the_ceiling_of_its_window(k, epsilon):
    ceiling = math.exp(epsilon) / (1 + math.exp(epsilon))
    for spends in ({"traffic": epsilon}, {"signs": epsilon}, {e.name: epsilon / 4 for e in EXPERTS}):
        for event in ("vehicle", "pedestrian", "flip", "experts"):
            assert .5 <= auc(event, spends, k) <= ceiling + 1e-12


def test_what_passes_in_clear_is_seen_and_what_is_not_released_is_not():
    moved = {"pedestrian": np.array([[8, 0]])}
    assert EventLLR().auc(moved, {"pedestrian": Noise(None, np.array([0.0]))}) == 1
    assert EventLLR().auc(moved, {"pedestrian": Noise("discrete_laplace", np.array([np.nan]))}) == .5
    assert EventLLR().auc({"pedestrian": np.zeros((1, 2))}, {"pedestrian": Noise(None, np.array([0.0]))}) == .5


def test_the_event_lies_where_the_method_spends_most():
    branches = registry.build("methods", "task_dp").branches
    spent = {e.name: np.array([0, 1.0, 0]) * (e.name == "traffic") for e in EXPERTS}
    shift = shift_of("flip", branches, EventClaim(30, 2, (20,), (F(1),) * 3), spent)
    assert shift["traffic"].tolist() == [[0, 0], [-160, 160], [0, 0]] and not shift["signs"].any()
    everywhere = shift_of("every_window", branches, CLEAR, spent)
    assert (np.abs(everywhere["signs"]).sum(axis=1) == 16).all()
    with pytest.raises(PluginError, match="no event 'crash'"):
        shift_of("crash", branches, CLEAR, spent)


def test_ceilings_follow_the_two_accountants():
    from bench.privacy.claim_table import claim_to

    facts = {"full_claim": claim_to(full_claim(registry.build("methods", "uniform_dp")))}
    found = event_ceilings(facts, ("flip", "every_window"))
    assert found["auc[event=flip]"] == pytest.approx(math.exp(.4) / (1 + math.exp(.4)))
    assert found["auc[event=every_window]"] == pytest.approx(math.exp(4) / (1 + math.exp(4)))
    clear = {"full_claim": claim_to(full_claim(registry.build("methods", "vtpm_style")))}
    assert event_ceilings(clear, ("flip",)) == {"auc[event=flip]": None}


# ---- whole stays ----

@pytest.fixture(scope="module")
def crossing(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    write_streams(registry.build("datasets", "sumo_crossing"), None, 42, folder, print)
    return Streams(folder)


def test_all_objects_of_an_episode_add_up_to_its_counts(crossing):
    for episode in (400, 411):
        found = crossing.stays(episode)
        total = np.sum([one for kind in found.values() for one in kind], axis=0)
        np.testing.assert_array_equal(total[:, :4], crossing.steps[episode][:, :4])
        assert not total[:, 4:].any() and len(found["vehicle"]) > 20 and len(found["pedestrian"]) > 10
    assert crossing.stays(500) == {"vehicle": [], "pedestrian": []}, "only some episodes have tracks"


def test_a_stay_is_what_the_clipped_sums_lose(crossing):
    method = registry.build("methods", "task_dp")
    event, steps = full_claim(method).event, crossing.steps[400].astype(np.int64)
    added = crossing.stays(400)["pedestrian"][3]
    moved = stay_of(steps, added, method.branches, event)
    assert not moved["traffic"].any() and not moved["signs"].any() and moved["pedestrian"].any()
    quiet = steps * 0 + added  # alone in view: below every cap, so all of it is lost
    alone = stay_of(quiet, added, method.branches, event)["pedestrian"]
    np.testing.assert_array_equal(alone.sum(axis=0), added[:300, 2:4].sum(axis=0))


def test_a_whole_stay_shows_more_than_the_event_that_is_protected(crossing):
    """Someone in view for dozens of chunks, against one person in K = 2 chunks, under the same noise."""
    method = registry.build("methods", "uniform_dp@max")
    event, attack = full_claim(method).event, registry.build("attacks", "whole_stay")
    scale = np.full(SLOTS, float(2 * 2 * 24))  # a spend of 1 on the pedestrian sum
    noise = {b.name: Noise("discrete_laplace", scale) for b in method.branches}
    longest = max(crossing.stays(400)["pedestrian"], key=lambda one: one.sum())
    stay = attack.auc(stay_of(crossing.steps[400].astype(np.int64), longest, method.branches, event), noise)
    short = {"pedestrian": np.zeros((SLOTS, 2), dtype=np.int64)}
    short["pedestrian"][0, 0] = 2 * 4
    assert 0.5 < attack.auc(short, noise) < stay < 1
