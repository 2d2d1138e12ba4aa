"""The stages of open-set matching on hand-made release folders, with matchers whose answers are known."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bench.video as video_io
from bench import open_set, registry
from bench.data.clips import Clips
from bench.data.splits import hashed
from bench.errors import DataError, Diverged, PluginError
from bench.run import stage_match
from bench.run.cache import write_json
from bench.run.stages import Job
from bench.run.trials import public_numbers, read_trials
from bench.run.views import load_tensors, save_tensors

SEED = 11
KEYS = [column.key for column in registry.get("attacks", "open_set").columns]


def write_release(folder: Path, small: Path, change=lambda frames, row, draw: frames, *, draws=1, isolated=False,
                  keep=lambda row: True) -> Path:
    """A release folder of the prepared clips under changed frames."""
    (folder / "release" / "media").mkdir(parents=True)
    (folder / "vault").mkdir()
    clips, manifest, known = Clips(small), [], []
    for number, row in enumerate(r for r in clips.rows() if keep(r)):
        known.append({"id": f"{number:04d}", **{f: getattr(row, f) for f in ("video", "person", "label", "part",
                                                                             "role")}})
        for draw, clip in itertools.product(range(draws), range(row.clips) if isolated else (-1,)):
            frames = change(clips.video(row).frames, row, draw)
            frames = frames[clip * 16:clip * 16 + 16] if isolated else frames
            file = f"{len(manifest):05d}.mkv"
            video_io.write_lossless(folder / "release" / "media" / file, frames, 25.0)
            manifest.append({"id": f"{number:04d}", "draw": draw, "clip": clip, "frames": len(frames), "fps": 25.0,
                             "file": file})
    pq.write_table(pa.Table.from_pylist(manifest), folder / "release" / "manifest.parquet")
    pq.write_table(pa.Table.from_pylist(known), folder / "vault" / "idmap.parquet")
    write_json(folder / "release" / "release.json", {"isolation": None, "memory": False})
    return folder


class Colour:
    """A matcher of the mean colour, which names the people of this dataset."""

    columns = registry.get("attacks", "open_set").columns

    def fit(self, development, people, assets, ctx):
        self.seen, self.people = development, people

    def embed(self, video):
        colour = video.frames.mean(axis=(0, 1, 2)) - 120.0
        return colour / np.linalg.norm(colour)

    def state(self):
        return {"a": np.zeros(1)}

    def load(self, state, people, ctx):
        assert people == 7


class Constant(Colour):
    """Sees the same face everywhere."""

    def embed(self, video):
        return np.array([0.6, 0.8])


def config():
    return {"attack": "open_set", "variant": None, "budget": {}, "profile": "tiny", "seed": SEED, "numbers_seed": 5}


def matched(monkeypatch, small, folder, out, matcher, **more):
    """Run `match`; its trials and its result."""
    monkeypatch.setattr(stage_match, "_build", lambda job: matcher)
    (out / "train").mkdir(parents=True)
    save_tensors(out / "train" / "state.safetensors", {})
    write_json(out / "train" / "people.json", [f"p{i}" for i in range(7)])
    stage_match.run_match(Job(config(), {"train": out / "train", "release": folder, "clips": small, **more}, out,
                              lambda text: None))
    return read_trials(out / "trials.parquet"), json.loads((out / "result.json").read_text())


@pytest.fixture(scope="module")
def clear(small, tmp_path_factory):
    return write_release(tmp_path_factory.mktemp("clear") / "release", small)


def of(trials, key):
    return {name: column[trials["column"] == key] for name, column in trials.items()}


def probe_clips(small) -> int:
    return sum(row.clips for row in Clips(small).rows("test", role="probe"))


# ---- what comes out ------------------------------------------------------------------------------------------------

def test_a_matcher_that_knows_everybody_is_right_everywhere(small, clear, tmp_path, monkeypatch):
    trials, result = matched(monkeypatch, small, clear, tmp_path, Colour())
    count = probe_clips(small)
    eer = of(trials, "eer")
    genuine = eer["truth"] == eer["person"]
    assert len(genuine) == 3 * count and genuine.sum() == count
    assert open_set.eer(eer["value"][genuine], eer["value"][~genuine]) == 0
    for far in (0.1, 0.01, 0.001):
        row = of(trials, f"tar[far={far}]")
        assert len(row["value"]) == count and set(row["value"]) <= {0.0, 1.0}
        np.testing.assert_array_equal(row["truth"], row["person"])
    assert len(of(trials, "realised_far[far=0.1]")["value"]) == 2 * count
    found = of(trials, "dir[far=0.1]")["value"]
    assert len(found) == count and ((found >= 0) & (found <= 1)).all()
    assert set(trials["column"]) == set(KEYS) and set(trials["seed"]) == {SEED} and set(trials["draw"]) == {0}
    names = public_numbers([r.person for r in Clips(small).rows("test")], 5, "people")
    assert set(trials["person"]) == set(names.values())
    assert result["undetected"] == 0 and result["people"] == result["classes"] == 3
    assert result["clips_read"] == {"1": count} and result["isolation"] is None


def test_the_values_are_those_of_the_definitions(small, clear, tmp_path, monkeypatch):
    """TAR, realised FAR and DIR from the written scores and thresholds alone; three people have three partitions."""
    trials, result = matched(monkeypatch, small, clear, tmp_path, Colour())
    eer, threshold = of(trials, "eer"), result["thresholds"]
    for key in ("tar[far=0.1]", "realised_far[far=0.01]"):
        rows, same = of(trials, key), key.startswith("tar")
        scores = {(p, v, t, c): s for p, v, t, c, s in zip(*(eer[k] for k in ("person", "video", "truth", "trial",
                                                                             "value")))}
        for p, v, t, c, value in zip(*(rows[k] for k in ("person", "video", "truth", "trial", "value"))):
            assert (t == p) == same and value == float(scores[p, v, t, c] >= threshold[key])
    rows, people = of(trials, "dir[far=0.01]"), sorted(set(eer["person"]))
    for p, v, c, value in zip(*(rows[k] for k in ("person", "video", "trial", "value"))):
        mine = {t: scores[p, v, t, c] for t in people}
        pairs = [half for half in itertools.combinations(people, 2) if p in half]  # two of three are enrolled
        hits = [mine[p] == max(mine[q] for q in half) and mine[p] >= threshold["dir[far=0.01]"] for half in pairs]
        assert value == pytest.approx(np.mean(hits))
    other = eer["value"][eer["truth"] != eer["person"]]
    assert result["realised"]["tar[far=0.1]"] == np.mean(other >= threshold["tar[far=0.1]"])


def test_chance_status_and_what_few_people_can_show(small, clear, tmp_path, monkeypatch):
    _, result = matched(monkeypatch, small, clear, tmp_path, Colour())
    assert set(result["chance"]) == set(KEYS) == set(result["status"]) == set(result["excluding_undetected"])
    assert result["chance"]["eer"] == 0.5 and result["chance"]["tar[far=0.01]"] == 0.01
    assert result["chance"]["dir[far=0.1]"] is None
    assert result["status"]["eer"] == "ok"
    assert {result["status"][key] for key in KEYS if "far" in key} == {"not_measurable"}  # three pairs of people
    assert result["partitions"] == 3


def test_equal_scores_are_chance(small, clear, tmp_path, monkeypatch):
    trials, result = matched(monkeypatch, small, clear, tmp_path, Constant())
    eer = of(trials, "eer")
    genuine = eer["truth"] == eer["person"]
    assert open_set.eer(eer["value"][genuine], eer["value"][~genuine]) == 0.5
    assert result["excluding_undetected"]["eer"] == 0.5
    for far in (0.1, 0.01):  # the border is a tie: nobody is accepted
        assert set(of(trials, f"tar[far={far}]")["value"]) == {0.0} == set(of(trials, f"dir[far={far}]")["value"])


# ---- who serves for what -------------------------------------------------------------------------------------------

def test_thresholds_come_from_development_people_alone(small, clear, tmp_path, monkeypatch):
    """Changing test people's releases moves their numbers, not the thresholds; changing development's does."""
    darker = {part: write_release(tmp_path / part / "release", small, lambda f, row, draw, part=part:
                                  f[:, ::-1] // 3 if (row.part == "test") == (part == "test") else f)
              for part in ("test", "development")}
    base = matched(monkeypatch, small, clear, tmp_path / "base", Colour())[1]
    test = matched(monkeypatch, small, darker["test"], tmp_path / "a", Colour())[1]
    development = matched(monkeypatch, small, darker["development"], tmp_path / "b", Colour())[1]
    assert test["thresholds"] == base["thresholds"] != development["thresholds"]
    derived = matched(monkeypatch, small, clear, tmp_path / "c", Colour(), probes=darker["test"])
    assert derived[1]["thresholds"] == base["thresholds"]
    again = read_trials(tmp_path / "a" / "trials.parquet")
    for name, column in derived[0].items():
        np.testing.assert_array_equal(column, again[name])


def test_development_halves_share_no_video(small, clear, tmp_path, monkeypatch):
    seen: dict[str, set] = {"original": set(), "released": set()}

    class Watcher(Colour):
        def embed(self, video):
            return super().embed(video)

    templates, probes = stage_match._templates, stage_match._probes
    monkeypatch.setattr(stage_match, "_templates", lambda attack, clips, rows: templates(
        attack, clips, [seen["original"].add(r.video) or r for r in rows]))
    monkeypatch.setattr(stage_match, "_probes", lambda attack, items: probes(
        attack, [seen["released"].add(i.video) or i for i in items]))
    matched(monkeypatch, small, clear, tmp_path, Watcher())
    rows = Clips(small).rows()
    assert not seen["original"] & seen["released"]
    learned = {r.person for r in rows if r.part == "train"} - stage_match.for_thresholds(
        [r.person for r in rows if r.part == "train"])
    assert seen["original"] | seen["released"] == {r.video for r in rows if r.person not in learned}
    for person, label in {(r.person, r.label) for r in rows if r.part != "test" and r.person not in learned}:
        videos = sorted((r.video for r in rows if (r.person, r.label) == (person, label)), key=hashed)
        assert set(videos[::2]) <= seen["original"] and set(videos[1::2]) <= seen["released"]


def test_isolated_files_give_the_same_as_whole_videos(small, clear, tmp_path, monkeypatch):
    folder = write_release(tmp_path / "isolated" / "release", small, isolated=True)
    first = matched(monkeypatch, small, clear, tmp_path / "a", Colour())
    second = matched(monkeypatch, small, folder, tmp_path / "b", Colour())
    for name in first[0]:
        np.testing.assert_array_equal(first[0][name], second[0][name])
    assert first[1] == second[1]


def test_training_reads_released_clips_of_people_to_train_on(small, tmp_path, monkeypatch):
    folder = write_release(tmp_path / "release", small, lambda f, row, draw: np.clip(f, draw, 250), draws=2)
    matcher = Colour()
    monkeypatch.setattr(stage_match, "_build", lambda job: matcher)
    (tmp_path / "out").mkdir()
    stage_match.run_train_match(Job(config(), {"release": folder}, tmp_path / "out", lambda text: None))
    rows = Clips(small).rows("train")
    held_out = stage_match.for_thresholds([r.person for r in rows])  # a third, whom the matcher never sees
    rows = [r for r in rows if r.person not in held_out]
    assert len(matcher.seen) == sum(r.clips for r in rows) and matcher.people == len({r.person for r in rows}) == 4
    assert len(held_out) == 3
    assert all(len(s.redraws) == 1 and len(s.video) <= 16 and len(s.video) == len(s.redraws[0]) for s in matcher.seen)
    assert sum(len(s.video) for s in matcher.seen) == sum(r.frames for r in rows)  # no padding
    assert json.loads((tmp_path / "out" / "people.json").read_text()) == sorted({r.person for r in rows})
    assert "a" in load_tensors(tmp_path / "out" / "state.safetensors")


# ---- wrong input ---------------------------------------------------------------------------------------------------

class Blind(Colour):
    """Finds no face in dark clips."""

    def embed(self, video):
        return np.full(3, np.nan) if video.frames.mean() < 4 else super().embed(video)


def test_undetected_probes_are_counted_both_ways(small, tmp_path, monkeypatch):
    """One probe video of each test person is black: its clips match nobody, and are left out beside."""
    black = {min(r.video for r in Clips(small).rows("test", role="probe") if r.person == p): p
             for p in {r.person for r in Clips(small).rows("test")}}
    folder = write_release(tmp_path / "release", small,
                           lambda f, row, draw: np.zeros_like(f) if row.video in black else f)
    trials, result = matched(monkeypatch, small, folder, tmp_path, Blind())
    lost = sum(r.clips for r in Clips(small).rows("test") if r.video in black)
    assert result["undetected"] == lost > 0
    assert np.isnan(of(trials, "eer")["value"]).sum() == 3 * lost
    tar = of(trials, "tar[far=0.1]")
    assert len(tar["value"]) == probe_clips(small) and not np.isnan(tar["value"]).any()
    assert np.mean(tar["value"] == 0) >= lost / len(tar["value"])
    assert result["excluding_undetected"]["tar[far=0.1]"] > np.mean(tar["value"])
    assert result["excluding_undetected"]["eer"] == 0
    genuine = of(trials, "eer")["truth"] == of(trials, "eer")["person"]
    assert open_set.eer(of(trials, "eer")["value"][genuine], of(trials, "eer")["value"][~genuine]) > 0


def test_nothing_detected_at_all_is_chance_not_privacy_unproved(small, tmp_path, monkeypatch):
    folder = write_release(tmp_path / "release", small, lambda f, row, draw: np.zeros_like(f))
    trials, result = matched(monkeypatch, small, folder, tmp_path, Blind())
    eer = of(trials, "eer")
    assert np.isnan(eer["value"]).all() and result["undetected"] == probe_clips(small)
    genuine = eer["truth"] == eer["person"]
    assert open_set.eer(eer["value"][genuine], eer["value"][~genuine]) == 0.5
    assert set(result["excluding_undetected"].values()) == {None}
    assert set(result["thresholds"].values()) == {None}  # development people gave none
    assert np.isnan(of(trials, "tar[far=0.1]")["value"]).all()


def test_a_person_without_probes_or_without_development_release(small, tmp_path, monkeypatch):
    absent = sorted({r.person for r in Clips(small).rows("test")})[0]
    folder = write_release(tmp_path / "release", small, keep=lambda row: (row.person, row.role) != (absent, "probe"))
    trials, result = matched(monkeypatch, small, folder, tmp_path / "a", Colour())
    assert len(set(trials["person"])) == 2 and len(set(of(trials, "eer")["truth"])) == 3
    assert result["people"] == 3 and result["partitions"] == 3
    bare = write_release(tmp_path / "bare", small, keep=lambda row: row.part == "test")
    trials, result = matched(monkeypatch, small, bare, tmp_path / "b", Colour())
    assert set(result["thresholds"].values()) == {None} and np.isnan(of(trials, "tar[far=0.01]")["value"]).all()
    assert result["excluding_undetected"]["eer"] == 0
    with pytest.raises(DataError, match="no development videos"):
        stage_match.run_train_match(Job(config(), {"release": bare}, tmp_path, lambda text: None))


@pytest.mark.parametrize("vector, error, match", [
    (np.array([np.inf, 0.0]), Diverged, "infinite: True"), (np.zeros((2, 2)), Diverged, "shape"),
    (np.array([3.0, 4.0]), PluginError, "length 5")])
def test_embeddings_that_are_no_unit_vectors(small, clear, tmp_path, monkeypatch, vector, error, match):
    matcher = Colour()
    matcher.embed = lambda video: vector
    with pytest.raises(error, match=match):
        matched(monkeypatch, small, clear, tmp_path, matcher)
    assert not (tmp_path / "trials.parquet").exists()


def test_the_same_bytes_again(small, clear, tmp_path, monkeypatch):
    for name in ("a", "b"):
        matched(monkeypatch, small, clear, tmp_path / name, Colour())
    for file in ("trials.parquet", "result.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
