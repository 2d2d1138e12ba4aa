"""The whole road on blocks, and the border of a release: what the world gets to see."""

from __future__ import annotations

import json
import os
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import SUITE

import bench.video as video_io
from bench import registry, store
from bench.data.clips import Clips, write_clips
from bench.errors import DataError, Diverged, Undefined
from bench.publish import _counts
from bench.registry import Spec
from bench.releasing import release_video
from bench.run import frame_release, stage_attack
from bench.run.cache import WorkFolder, write_json
from bench.run.released import open_release, people_of
from bench.run.stage_metric import run_metric
from bench.run.stage_release import run_release
from bench.run.stages import Job
from bench.run.trials import read_trials
from bench.run.views import save_tensors
from bench.run.workers import MethodWorker
from bench.types import Video

SEED = 918273645


def named(cells, method, variant, metric, attack=None):
    return next(c for c in cells if (c["method"], c["variant"], c["metric"], c["attack"]) == (method, variant, metric,
                                                                                              attack))


def test_the_numbers_are_what_they_must_be(road):
    cells = store.read_cells(road / "veilbench.duckdb")
    assert {c["status"] for c in cells} == {"ok"} and len(cells) == 3 * 5
    assert len({c["id"] for c in cells}) == len(cells)
    for attack in ("plr", "plr_static"):
        assert named(cells, "original", None, "top1", attack)["value"] >= 0.9
        blackout = named(cells, "blackout", None, "top1", attack)
        assert blackout["value"] == pytest.approx(1 / 3) == blackout["chance"]  # one picture, one guess for all
    assert named(cells, "original", None, "psnr_released")["value"] == 100
    assert named(cells, "original", None, "psnr_released")["details"]["capped_frames"] > 0
    assert 8 < named(cells, "blur", "2", "psnr_released")["value"] < 100
    assert named(cells, "blur", "2", "psnr_released")["details"] is None
    for cell in cells:
        assert cell["people"] == 3 and cell["split"] and cell["seeds"] == [42] and cell["suite"] == "blocks"
        assert set(cell["person_values"]) <= set(range(1, 13)) and len(cell["person_values"]) == 3
    assert {c["control"] for c in cells if c["method"] == "original"} == {"positive"}
    assert named(cells, "blackout", None, "uar")["value"] == 0.5


def test_every_stage_says_what_made_it(road):
    work = WorkFolder(road)
    kinds = ("clips", "asset", "release", "train", "attack", "metric", "score")
    records = [r for kind in kinds for r in work.finished(kind)]
    assert {r["kind"] for r in records} == set(kinds) and len(records) == 2 + 2 + 3 + 4 + 6 + 6 + 12
    for record in records:
        assert record["seconds"] >= 0 and 10 < record["peak_mb"] < 4000
        assert record["environment"]["packages"]["torch"] and len(record["identity"]["code"]) == 64
        assert record["folder"].name == record["digest"][:20]
    assert not list((road / "tmp").iterdir()) and not list((road / "failed").iterdir())


def test_all_methods_share_one_static_attacker_and_one_set_of_assets(road):
    titles = sorted(r["title"] for r in WorkFolder(road).finished("train"))
    assert titles == ["train plr on blackout", "train plr on blur@2", "train plr on original",
                      "train plr_static on originals"]


def test_explain_names_the_stages_and_the_command(road, cli):
    answer = cli("explain", "blur@2/plr/top1", "--workdir", road)
    assert answer.code == 0
    for title in ("prepare blocks", "prepare blocks_public", "asset identity_eval", "release blur@2",
                  "train plr on blur@2", "attack plr on blur@2", "score plr on blur@2"):
        assert title in answer.out
    assert "expression_eval" not in answer.out and "torch " in answer.out
    identity = re.search(r"veilbench reproduce (\w+)", answer.out).group(1)
    as_json = json.loads(cli("explain", identity, "--workdir", road, "--format", "json").out)
    assert as_json["cell"]["id"] == identity and as_json["stages"][-1]["kind"] == "score"


def test_the_table_and_the_site_are_built(road, cli, tmp_path):
    rows = json.loads(cli("table", "summary", "--workdir", road, "--format", "json").out)
    assert len(rows) == 15 and {r["epsilon"] for r in rows} == {"inf"}
    built = cli("site", "build", "--workdir", road, "--out", tmp_path / "site")
    assert built.code == 0
    index = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "blackout" in index and "blur@2" in index
    pictures = list((tmp_path / "site").rglob("*.png"))
    assert len(pictures) == 6  # an original and a released strip of each method: blocks may be shown
    for path in (tmp_path / "site").rglob("*"):
        assert not path.is_file() or str(road).encode() not in path.read_bytes(), path


def test_a_second_build_gives_the_same_bytes(road, cli, tmp_path):
    for name in ("a", "b"):
        cli("site", "build", "--workdir", road, "--out", tmp_path / name)
    files = [{p.relative_to(tmp_path / n): p.read_bytes() for p in (tmp_path / n).rglob("*") if p.is_file()}
             for n in ("a", "b")]
    assert files[0] == files[1] and len(files[0]) > 5


# ---- the border ----------------------------------------------------------------------------------------------------

def release(small, out, **more) -> Path:
    config = {"method": "original", "variant": None, "profile": "tiny", "seed": SEED,
              "parts": ["development", "calibration", "enrolment", "probe"], "draws": 1, "decoding": "assembled"}
    run_release(Job({**config, **more}, {"clips": small}, out, lambda text: None))
    return out


@pytest.fixture(scope="module")
def stage(small, tmp_path_factory):
    return release(small, tmp_path_factory.mktemp("stage") / "release-stage")


def visible(folder: Path) -> bytes:
    """Everything in a release folder but the pictures: names, bytes, and what the tables say."""
    parts = []
    for path in sorted((folder / "release").rglob("*")):
        parts.append(path.name.encode())
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            parts += [str(table.schema).encode(), str(table.schema.metadata).encode(), str(table.to_pylist()).encode()]
        if path.is_file():
            parts.append(path.read_bytes())
    return b"\n".join(parts)


def test_a_release_folder_names_nobody(stage, small):
    seen = visible(stage)
    rows = Clips(small).rows()
    for word in {w for r in rows for w in (r.video, r.person, r.label)} | {
            "enrolment", "probe", "calibration", "development", "parity", "native", str(SEED), str(small)}:
        assert word.encode() not in seen, word
    assert SEED.to_bytes(8, "little") not in seen
    assert set(json.loads((stage / "release" / "release.json").read_text())) == {
        "schema", "method", "variant", "profile", "dataset", "canvas_px", "decoding", "draws", "files", "lane", "claim",
        "isolation", "memory", "frames", "counts"}
    assert {p.name for p in stage.iterdir()} == {"release", "vault"}
    assert {p.name for p in (stage / "release").iterdir()} == {"release.json", "manifest.parquet", "media"}


def test_the_order_of_a_release_tells_nothing(stage, small):
    manifest = pq.read_table(stage / "release" / "manifest.parquet").to_pylist()
    known = {r["id"]: r["video"] for r in pq.read_table(stage / "vault" / "idmap.parquet").to_pylist()}
    source_order = {r.video: i for i, r in enumerate(Clips(small).rows())}
    assert [m["file"] for m in manifest] == sorted(m["file"] for m in manifest)
    position = np.array([source_order[known[m["id"]]] for m in manifest])
    assert len(set(position)) == len(manifest) == 72
    assert abs(np.corrcoef(position, np.arange(72))[0, 1]) < 0.5
    by_id = np.array([source_order[known[i]] for i in sorted(known)])
    assert abs(np.corrcoef(by_id, np.arange(72))[0, 1]) < 0.5
    assert all(re.fullmatch("[0-9a-f]{16}", m["id"]) for m in manifest)


def test_ids_differ_between_seeds_and_methods(small, stage, tmp_path):
    def ids(folder):
        return set(pq.read_table(folder / "release" / "manifest.parquet")["id"].to_pylist())

    probe = {"parts": ["probe"]}
    other_seed = release(small, tmp_path / "a", seed=SEED + 1, **probe)
    other_method = release(small, tmp_path / "b", method="blackout", **probe)
    assert not ids(stage) & ids(other_seed) and not ids(stage) & ids(other_method)
    assert len(ids(other_method)) == len(Clips(small).rows("test", role="probe"))
    again = release(small, tmp_path / "c", method="blackout", **probe)
    assert {p.name: p.read_bytes() for p in (again / "release" / "media").iterdir()} == {
        p.name: p.read_bytes() for p in (other_method / "release" / "media").iterdir()}


def test_every_file_is_released_bit_by_bit(stage, small):
    import hashlib

    clips = Clips(small)
    rows = {r.video: r for r in clips.rows()}
    for record in pq.read_table(stage / "release" / "manifest.parquet").to_pylist():
        path = stage / "release" / "media" / record["file"]
        assert hashlib.sha256(path.read_bytes()).hexdigest() == record["sha256"]
    for item in open_release(stage)[::7]:
        np.testing.assert_array_equal(item.read().frames, clips.video(rows[item.video]).frames)
        assert item.person == rows[item.video].person


def test_isolated_decoding_gives_one_file_per_clip(small, tmp_path):
    folder = release(small, tmp_path / "isolated", decoding="isolated", parts=["probe"])
    clips = Clips(small)
    for row in clips.rows("test", role="probe"):
        items = [i for i in open_release(folder) if i.video == row.video]
        assert [i.clip for i in items] == list(range(row.clips)) and sum(i.frames for i in items) == row.frames
        whole = np.concatenate([i.read().frames for i in items])
        np.testing.assert_array_equal(whole, clips.video(row).frames)


def test_draws_are_independent_releases(small, tmp_path):
    folder = release(small, tmp_path / "draws", method="pixelate", variant="jitter", draws=3, parts=["probe"])
    video = open_release(folder)[0].video
    items = [i for i in open_release(folder) if i.video == video]
    assert [i.draw for i in items] == [0, 1, 2] and len(open_release(folder, draw=1)) == len(open_release(folder)) / 3
    frames = [i.read().frames.tobytes() for i in items]
    assert len(set(frames)) == 3
    assert len({m["id"] for m in pq.read_table(folder / "release" / "manifest.parquet").to_pylist()}) == len(
        open_release(folder, draw=0))


COUNTER = '''from bench import Anonymizer, Video, method


@method("counter")
class Counter(Anonymizer):
    """Counts every second frame."""

    counts = {"frames skipped": 0}

    def release(self, video, rng):
        self.counts["frames skipped"] += len(video) // 2
        return Video(video.frames.copy(), video.fps)
'''


@pytest.fixture
def counter(tmp_path, monkeypatch):
    """The plug-in file COUNTER, known beside the others while a test runs; may be written anew."""
    path = tmp_path / "counter.py"
    path.write_text(COUNTER, encoding="utf-8")
    monkeypatch.setenv(registry.EXTRA, os.pathsep.join([os.environ[registry.EXTRA], str(path)]))
    registry._locations.cache_clear()
    yield path
    registry._locations.cache_clear()


def test_what_a_method_counts_stands_in_its_release_and_goes_to_its_page(small, tmp_path, counter):
    work = WorkFolder(tmp_path)
    folder = work.stage("release", "ab" * 32)
    folder.mkdir(parents=True)
    release(small, folder, method="counter", parts=["probe"])
    facts = json.loads((folder / "release" / "release.json").read_text(encoding="utf-8"))
    frames = [r.frames for r in Clips(small).rows("test", role="probe")]
    assert facts["counts"] == {"frames skipped": sum(n // 2 for n in frames)} and facts["frames"] == sum(frames)
    stages = [{"kind": kind, "digest": "ab" * 32, "title": "release counter"} for kind in ("fit", "release")]
    assert list(_counts(work, stages)) == [{"title": "release counter", "name": "frames skipped",
                                            "count": sum(n // 2 for n in frames), "frames": sum(frames)}]


def test_what_a_method_counts_in_a_users_own_video_is_said(tmp_path, counter, monkeypatch):
    def without_detector(source, output, process, lossless):
        for clip in range(2):
            process(np.zeros((4, 8, 8, 3), np.uint8), 25, ("face", 0, "clip", clip))
        return frame_release.FrameReleaseReport(Fraction(25), 8, 8, 0, frames=8, seen=8)
    monkeypatch.setattr(frame_release, "release_file", without_detector)
    said = list(release_video("counter", tmp_path / "a.mp4", tmp_path / "b.mp4", False, tmp_path))
    assert "The method says of the face crops: frames skipped: 4." in said


def test_a_method_with_a_claim_counts_nothing_outwards(counter):
    """A count is an answer about the videos, and no noise hides it."""
    counter.write_text(COUNTER.replace("    counts", '    lane = "declared"\n    counts'), encoding="utf-8")
    with MethodWorker(Spec("counter"), "tiny") as worker:
        worker.release(Video(np.zeros((4, 8, 8, 3), np.uint8)), 1)
        assert worker.call({"op": "counts"})[0] == {"counts": {}}


def measure(metric, folder, small, out):
    run_metric(Job({"metric": metric, "variant": None, "budget": {}, "profile": "tiny", "seed": 1, "numbers_seed": 1},
                   {"release": folder, "clips": small}, out, lambda text: None))
    return read_trials(out / "trials.parquet")


def test_a_pair_metric_meets_the_right_frames_in_both_decodings(small, tmp_path):
    for decoding in ("assembled", "isolated"):
        folder, out = release(small, tmp_path / decoding, decoding=decoding, parts=["probe"]), tmp_path / f"m{decoding}"
        out.mkdir()
        trials = measure("psnr_released", folder, small, out)
        assert set(trials["value"]) == {100.0} and len(trials["value"]) == len(open_release(folder))
        capped = json.loads((out / "result.json").read_text())["capped_frames"]
        assert capped == sum(i.frames for i in open_release(folder))


def test_what_was_recovered_is_measured_beside_the_clip_that_it_was_made_from(small, tmp_path):
    clips = release(small, tmp_path / "clips", decoding="isolated", parts=["probe"])
    whole = release(small, tmp_path / "whole", decoding="assembled", parts=["probe"])
    out = tmp_path / "m"
    out.mkdir()
    config = {"metric": "psnr_recovered", "variant": None, "budget": {}, "profile": "tiny", "seed": 1,
              "numbers_seed": 1}
    for direct in (clips, whole):  # as whole videos it holds the same clips
        run_metric(Job(config, {"release": clips, "clips": small, "direct": direct}, out, lambda text: None))
        copied = json.loads((out / "result.json").read_text())["guesses"]["copied"]
        assert copied["value"] == 100 and copied["apart"] == 0
    other = release(small, tmp_path / "other", decoding="isolated", parts=["enrolment"])
    with pytest.raises(DataError, match="no clip 0"):
        run_metric(Job(config, {"release": clips, "clips": small, "direct": other}, out, lambda text: None))


def test_an_evaluator_is_undefined_on_one_label(tmp_path):
    made = registry.build("datasets", "blocks")
    sources = [s for s in made.sources(None, 3) if s.label == "flat"]
    made.sources = lambda root, seed: sources
    write_clips(made, None, 3, 16, tmp_path / "clips", lambda text: None)
    folder = release(tmp_path / "clips", tmp_path / "release")
    (tmp_path / "m").mkdir()
    with pytest.raises(Undefined, match="one label only"):
        measure("fer", folder, tmp_path / "clips", tmp_path / "m")


class Scorer:
    """An attacker that gives every trial the same scores."""

    threat = registry.get("attacks", "plr").threat

    def __init__(self, value):
        self.value = value

    def load(self, state, people, context):
        self.people = people

    def score(self, video):
        return np.full((4, self.people), self.value)


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_constant_scores_are_chance_and_scores_that_are_no_numbers_diverge(stage, tmp_path, monkeypatch, value):
    monkeypatch.setattr(stage_attack, "_build", lambda job: Scorer(value))
    (tmp_path / "train").mkdir()
    save_tensors(tmp_path / "train" / "state.safetensors", {})
    write_json(tmp_path / "train" / "people.json", people_of(open_release(stage, role="enrolment")))
    config = {"attack": "plr", "variant": None, "budget": {}, "profile": "tiny", "seed": 1, "numbers_seed": 1}
    (tmp_path / "out").mkdir()
    job = Job(config, {"train": tmp_path / "train", "release": stage}, tmp_path / "out", lambda text: None)
    if not np.isfinite(value):
        with pytest.raises(Diverged, match="finite: False"):
            stage_attack.run_attack(job)
        assert not (tmp_path / "out" / "trials.parquet").exists()
        return
    stage_attack.run_attack(job)
    trials = read_trials(tmp_path / "out" / "trials.parquet")
    assert set(trials["value"]) == {1 / 3} and len(trials["value"]) == 4 * len(open_release(stage, role="probe"))


def test_a_file_that_lost_frames_is_noticed(small, tmp_path):
    folder = release(small, tmp_path / "short", parts=["probe"])
    item = open_release(folder)[0]
    video_io.write_lossless(item.path, item.read().frames[:-1], 25.0)
    with pytest.raises(DataError, match="its manifest says"):
        item.read()


def test_the_suite_is_the_one_of_this_file(road):
    assert json.loads((road / "suites" / "blocks.json").read_text())["title"] in SUITE.read_text(encoding="utf-8")
    assert "blocks" in registry.names("datasets")
