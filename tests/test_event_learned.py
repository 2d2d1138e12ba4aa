"""The attack that learns an event from public streams: matched streams, its control, and what it adds up."""

from __future__ import annotations

import numpy as np
import pytest

from bench import EventClaim, registry, seeds
from bench.data.streams import Streams, write_streams
from bench.distinguishers import Matched
from bench.paired import auc_values
from bench.run import matched as m
from bench.run.stage_report_measures import shift_of

EVENT = EventClaim(30, 2, (20,), (4,) * 10)


def test_values_of_pairs_are_the_auc_and_its_delong_variance():
    rng = seeds.derive(1, "auc")
    zero, one = np.round(rng.normal(0, 1, 60), 1), np.round(rng.normal(.5, 1, 60), 1)  # with ties
    won = (one[:, None] > zero) + (one[:, None] == zero) / 2  # (60, 60)
    found = auc_values(zero, one)
    assert found.mean() == pytest.approx(won.mean())
    assert found - won.mean() == pytest.approx(won.mean(axis=1) + won.mean(axis=0) - 2 * won.mean())


def test_an_event_replaces_what_k_chunks_hold_or_adds_to_it():
    """Ten chunks a window, K = 2: without the event the two hold (5, 0) each, with it (0, 5)."""
    event, chunks = EventClaim(10, 2, (5,), (1, 1)), np.arange(40).reshape(1, 20, 2)
    sums = chunks.reshape(1, 2, 10, 2).sum(axis=2).astype(float)
    sums[0, 0] = np.nan
    flip = np.array([[[0, 0], [-10, 10]]])
    args = (np.zeros(1, int), {"traffic": np.array([[np.nan, 2.0]])}, event, 10, seeds.derive(3, "place"))
    found = m.matched({"traffic": sums}, {"traffic": chunks}, args[0], {"traffic": flip}, *args[1:])
    without, with_it = found.sums["traffic"][:, 0]
    assert found.window.tolist() == [1] and np.isnan(without[0]).all() and np.isnan(with_it[0]).all()
    assert (with_it[1] - without[1]).tolist() == [-10, 10]
    gone = sums[0, 1] + [10, 0] - without[1]  # what two chunks in a row of the window held
    assert gone.tolist() in [(chunks[0, c] + chunks[0, c + 1]).tolist() for c in range(10, 19)]
    short = m.matched({"traffic": sums}, {"traffic": chunks}, args[0], {"traffic": flip}, *args[1:3], 2,
                      seeds.derive(4, "place"))  # only the first two chunks of a window were filmed
    assert (sums[0, 1] + [10, 0] - short.sums["traffic"][0, 0, 1]).tolist() == (chunks[0, 10] + chunks[0, 11]).tolist()
    added = m.matched({"traffic": sums}, {"traffic": chunks}, args[0], {"traffic": np.maximum(flip, 0)}, *args[1:])
    assert added.sums["traffic"][0, 0, 1].tolist() == sums[0, 1].tolist()


def test_simulated_noise_has_the_law_of_its_scale():
    scale = np.array([[0.0, 3.0, np.nan]])
    found = m._laplace(np.repeat(scale, 40_000, axis=0), (40_000, 3, 1), seeds.derive(2, "noise"))
    p = 1 - np.exp(-1 / 3)
    assert not found[:, 0].any() and np.isnan(found[:, 2]).all()
    assert np.abs(found[:, 1]).mean() == pytest.approx(2 * (1 - p) / (p * (2 - p)), rel=.03)
    assert (found[:, 1] == 0).mean() == pytest.approx(p / (2 - p), abs=.01)


@pytest.fixture(scope="module")
def crossing(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    write_streams(registry.build("datasets", "sumo_crossing"), None, 42, folder, print)
    return Streams(folder)


def auc(crossing, scale):
    """AUC of "all vehicles stop" in some window of every test episode, every expert under noise of one scale."""
    episode = crossing.test()
    sums, zeros = m.exact(crossing, episode, EVENT)
    shift = dict(m.each_window([shift_of("flip", m.EXACT, EVENT, {n: np.eye(10)[e % 10] for n in sums})
                                for e in episode]))
    scales = {n: v + scale for n, v in zeros.items()}
    rng = seeds.derive(9, "test")
    noisy = {n: v + m._laplace(scales[n], v.shape, rng) for n, v in sums.items()}
    attack = registry.build("attacks", "event_learned")
    return m.learned(attack, crossing, m.EXACT, noisy, episode, shift, scales, EVENT, (42, "flip")).mean()


def test_the_control_is_seen_and_heavy_noise_hides_it(crossing):
    assert auc(crossing, 0.0) >= .95
    assert auc(crossing, 1600.0) < .65  # ten times the change


def test_nothing_released_is_no_better_than_a_coin(crossing):
    assert auc(crossing, np.nan) == .5


def test_scores_depend_on_the_stream_alone():
    """The same stream, scored among others or by itself."""
    rng = seeds.derive(4, "scores")
    attack = registry.build("attacks", "event_learned")

    def streams(n):
        sums = {"traffic": rng.normal(500, 50, (2, n, 10, 2))}
        sums["traffic"][1, :, 3] += [-160, 160]
        return Matched(sums, {"traffic": np.full((n, 10), 40.0)}, np.full(n, 3))

    attack.fit(streams(300))
    many = streams(20)
    one = Matched({"traffic": many.sums["traffic"][:, 6:7]}, {"traffic": many.scale["traffic"][6:7]}, many.window[6:7])
    np.testing.assert_allclose(attack.score(one)[:, 0], attack.score(many)[:, 6])
