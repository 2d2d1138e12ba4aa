"""The simulated crossing: committed counts and tracks, demand, state chains, pictures, simulating again."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from bench import DataError, registry
from bench.data.crossing import committed, render, simulate
from bench.data.crossing.demand import ARMS, PEOPLE_PER_HOUR, VEHICLES_PER_HOUR, routes
from bench.data.crossing.labels import DWELL, chain, one_hot
from bench.errors import EnvironmentFault
from bench.traffic import CHUNK_FRAMES, COMPONENTS, columns, windows

SOME = (0, 400, 419)


@pytest.fixture(scope="module")
def table():
    return registry.build("datasets", "sumo_crossing").table(None, print)


def test_the_table_holds_600_episodes_of_300_chunks(table):
    assert table.steps.shape == (600, 300, len(COMPONENTS)) and table.public.sum() == 400 == committed.PUBLIC
    assert table.public[:400].all() and not table.public[400:].any() and len(set(table.ids)) == 600
    for name in ("signs", "environment"):
        states = table.steps[..., columns(name)]
        assert (states.sum(axis=2) == CHUNK_FRAMES).all() and set(np.unique(states)) == {0, CHUNK_FRAMES}
    assert windows(table.steps).shape == (600, 10, 12)


def test_public_and_test_episodes_come_from_one_demand(table):
    """The means of 400 and of 200 episodes differ by no more than chance: four standard errors."""
    means = windows(table.steps)[..., :4].mean(axis=1)  # (600, 4)
    public, test = means[:400], means[400:]
    error = np.sqrt(public.var(axis=0) / 400 + test.var(axis=0) / 200)
    assert (np.abs(public.mean(axis=0) - test.mean(axis=0)) < 4 * error).all()
    assert (means.mean(axis=0) > 0.1).all() and (means.std(axis=0) > 0.1).all()


@pytest.mark.parametrize("episode", SOME)
def test_tracks_count_to_the_committed_counts(episode):
    track = committed.tracks(episode)
    again = np.zeros((simulate.FRAMES, 4), np.uint8)
    np.add.at(again, (track[:, 0], 2 * track[:, 2] + 1 - track[:, 3]), 1)
    np.testing.assert_array_equal(again, committed.counts()[episode])
    assert np.abs(track[:, 4:6]).max() <= 10 * simulate.HALF_M and track[:, 6].min() >= 0 and track[:, 6].max() < 360


@pytest.mark.parametrize("episode", SOME)
def test_nothing_jumps(episode):
    """Between two frames nobody moves further than a car at its limit: 13.9 m/s, some faster by their nature."""
    track = committed.tracks(episode)
    same = (track[1:, 1] == track[:-1, 1]) & (track[1:, 0] == track[:-1, 0] + 1)
    moved = np.hypot(*(track[1:, 4:6] - track[:-1, 4:6])[same].T) / 10
    assert same.mean() > 0.9 and moved.max() < 0.5 * 13.9 * 1.5


@pytest.mark.parametrize("name", ["counts.npz", "tracks.npz"])
def test_a_changed_file_is_noticed(tmp_path, monkeypatch, name):
    for file in ("counts.npz", "tracks.npz", "digests.json"):
        shutil.copy(committed.FOLDER / file, tmp_path / file)
    read = committed.counts if name == "counts.npz" else (lambda: committed.tracks(400))
    with np.load(tmp_path / name) as found:
        arrays = {k: found[k].copy() for k in found}
    first = arrays["delta" if name == "counts.npz" else "e400"]
    first.flat[0] += 1
    np.savez_compressed(tmp_path / name, **arrays)
    monkeypatch.setattr(committed, "FOLDER", tmp_path)
    committed.counts.cache_clear()
    committed.tracks.cache_clear()
    try:
        with pytest.raises(DataError, match=f"{name} is not the committed one"):
            read()
    finally:
        committed.counts.cache_clear()
        committed.tracks.cache_clear()


def test_packing_gives_back_what_went_in(tmp_path):
    counts, tracks = committed.counts()[:2], {0: committed.tracks(0)}
    committed.write(tmp_path, counts, tracks, "x")
    with np.load(tmp_path / "counts.npz") as found:
        np.testing.assert_array_equal(np.cumsum(found["delta"], axis=1, dtype=np.uint8), counts)
    first = (tmp_path / "counts.npz").read_bytes()
    committed.write(tmp_path, counts, tracks, "x")
    assert (tmp_path / "counts.npz").read_bytes() == first
    assert sum(p.stat().st_size for p in committed.FOLDER.glob("*.npz")) < 6e6


def test_an_episode_without_tracks_says_which_have_them():
    with pytest.raises(DataError, match="Choose one of 0, 1, 2, 3, 400"):
        committed.tracks(7)


# ---- demand and states ----

def test_demand_follows_its_rates_and_its_seed():
    assert routes(5) == routes(5) != routes(6)
    cars = np.array([routes(e).count("<vehicle ") for e in range(60)])
    people = np.array([routes(e).count("<person ") for e in range(60)])
    for found, rate in ((cars, VEHICLES_PER_HOUR), (people, PEOPLE_PER_HOUR)):
        assert 0.75 < np.median(found) / (len(ARMS) * rate * 0.2) < 1.45  # 12 minutes; the drift has mean above one


@pytest.mark.parametrize("name", sorted(DWELL))
def test_states_change_as_often_as_they_should(name):
    states = np.stack([chain(name, e) for e in range(300)])
    changes, n = (states[:, 1:] != states[:, :-1]).mean(), 300 * 299
    p = 1 / DWELL[name]
    assert abs(changes - p) < 4 * np.sqrt(p / n)
    assert np.allclose(np.bincount(states[:, 0], minlength=4) / 300, 0.25, atol=0.1)
    assert one_hot(states)[3, 7].tolist() == [int(states[3, 7] == k) for k in range(4)]


# ---- pictures ----

def test_a_chunk_is_four_frames_and_the_same_by_itself():
    first = render.chunk(400, 17)
    render.chunk(400, 3)
    np.testing.assert_array_equal(render.chunk(400, 17), first)
    assert first.shape == (4, 240, 320, 3) and first.dtype == np.uint8


def test_what_is_drawn_stands_where_it_is():
    """Without noise a frame differs from the empty crossing only near what is in view, and there it does."""
    track = committed.tracks(400)
    rows = track[track[:, 0] == 600]
    rng = np.random.Generator(np.random.PCG64(1))
    drawn = render.draw(rows, "no_sign", "clear", rng, noise=False)
    empty = render.background()
    changed = (drawn != empty).any(axis=2)
    y, x = np.nonzero(changed)
    px = np.array([render._place(*place) for place in rows[:, 4:6] / 10])  # (n, 2)
    far = np.hypot(x[:, None] - px[:, 0], y[:, None] - px[:, 1]).min(axis=1)
    assert len(rows) > 3 and far.max() < 6 * render.PX_PER_M  # a car is 5 m long
    for right, down in px.round().astype(int):
        assert changed[max(down - 4, 0):down + 5, max(right - 4, 0):right + 5].any()


@pytest.mark.parametrize("weather, test", [
    ("rain", lambda a, b: a.mean() < b.mean()), ("fog", lambda a, b: a.std() < 0.7 * b.std()),
    ("other_weather", lambda a, b: a.mean() < 0.6 * b.mean())])
def test_weather_changes_the_picture(weather, test):
    assert test(render.empty_frames(1, weather)[0].astype(float), render.empty_frames(1)[0].astype(float))


def test_each_sign_looks_its_own():
    rng = np.random.Generator(np.random.PCG64(1))
    seen = [render.draw(np.zeros((0, 7), int), s, "clear", rng, noise=False).tobytes()
            for s in ("stop", "speed_limit", "other_sign", "no_sign")]
    assert len(set(seen)) == 4 and seen[3] == render.background().tobytes()


# ---- again ----

def test_without_sumo_the_remedy_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "libsumo", None)
    with pytest.raises(EnvironmentFault, match="pip install 'veilbench\\[traffic\\]'"):
        simulate.library()


def test_a_root_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="There is no folder"):
        registry.build("datasets", "sumo_crossing").table(tmp_path / "no", print)


@pytest.mark.real
def test_simulated_again_it_is_the_same_bit_for_bit():
    pytest.importorskip("libsumo", reason="needs the extra `traffic`")
    sumo = simulate.library()
    for episode in (401, 0):  # in another order than they were made
        counts, track = simulate.run_episode(sumo, episode)
        np.testing.assert_array_equal(counts, committed.counts()[episode])
        np.testing.assert_array_equal(track, committed.tracks(episode))
