"""A user's own fixed-camera videos: layout faults, odd files, hand counts, missing truth, the road on them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from test_vision import CAMERA, scene, street

from bench import DataError, registry, video
from bench.data.camera.chunks import read_video
from bench.data.camera.folder import camera_of, truth_of
from bench.data.streams import Streams, check_streams, write_streams
from bench.data.trafficfolder import TrafficFolder
from bench.errors import Undefined
from bench.registry import Spec
from bench.report_measures import Reports
from bench.report_scores import mae, state_f1, utility
from bench.run.stage_fit import run_fit
from bench.run.stage_report_measures import run_report_metric
from bench.run.stage_reports import run_gather, run_prepare, run_report
from bench.run.stages import Job
from bench.run.workers import method_facts
from bench.traffic import EXPERTS, columns

SETTINGS = 'person_px = 36\nvehicle_px = 200\nsign = "no_sign"\n'
ONE = ((10, 40, 5, 8, 0),)  # somebody who waits


def write(path, chunks=31, things=ONE, fps=2, frames=None):
    """A video of some chunks in which the same things are seen."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shown = np.concatenate([scene(*things, seed=k % 3) for k in range(chunks)]) if frames is None else frames
    video.write_lossless(path, np.repeat(shown, max(1, round(fps / 2)), axis=0), fps)
    return path


@pytest.fixture
def root(tmp_path):
    """One camera with one recording to release and one that anybody may see, each of a window and a chunk."""
    yard = tmp_path / "cameras" / "yard"
    write(yard / "monday.mkv")
    write(yard / "public" / "sunday.mkv", things=())
    write(yard / "empty" / "street.mkv", frames=street(16))
    (yard / "camera.toml").write_text(SETTINGS)
    return tmp_path / "cameras"


def said(root):
    with pytest.raises(DataError) as caught:
        TrafficFolder().table(root, lambda text: None)
    return str(caught.value)


def test_a_good_folder_becomes_streams_with_what_is_missing_marked(root, tmp_path):
    (root / "yard" / "monday.csv").write_text("chunk,walking,waiting\n" + "".join(f"{k},0,1\n" for k in range(30)))
    told = []
    out = tmp_path / "streams"
    out.mkdir()
    write_streams(registry.build("datasets", "trafficfolder"), root, 42, out, told.append)
    streams = Streams(out)
    assert streams.info["ids"] == ["yard/monday.mkv#0", "yard/public/sunday.mkv#0"] and streams.info["slots"] == 1
    assert streams.public.tolist() == [False, True] and streams.steps.shape == (2, 30, 12)
    assert (streams.steps[0, :, 3] == 4).all() and not streams.steps[1, :, :4].any()
    truth = streams.truth(streams.test())[0, 0]
    np.testing.assert_array_equal(truth[columns("pedestrian")], [0, 1])
    assert np.isnan(truth[[0, 1, *range(4, 12)]]).all() and streams.reads.all()
    assert any("The last 1 chunks of monday.mkv fill no window" in t for t in told)
    assert json.loads((out / "notes.json").read_text()) and not check_streams(out)
    assert "monday.mkv has" not in (out / "dataset.json").read_text()


def test_changed_labels_are_noticed(root, tmp_path):
    out = tmp_path / "streams"
    out.mkdir()
    write_streams(TrafficFolder(), root, 42, out, lambda text: None)
    with np.load(out / "streams.npz") as found:
        arrays = {k: found[k].copy() for k in found}
    arrays["truth"].flat[3] = 8
    np.savez_compressed(out / "streams.npz", **arrays)
    assert check_streams(out)


def test_every_problem_is_listed_at_once(root):
    yard, gate = root / "yard", root / "gate"
    write(yard / "short.mkv", chunks=3)
    (yard / "bad.mp4").write_text("no video")
    (yard / "nothing.csv").write_text("chunk\n")
    write(gate / "monday.mkv")
    text = said(root)
    checked = " ".join(TrafficFolder().problems(root))
    for part in ("yard/short.mkv", "lasts 6.0 s", "bad.mp4 cannot be read as a video",
                 "yard/nothing.csv counts a video", "There is no public background", "gate/empty/*.png"):
        assert part in text and part in checked


def test_a_folder_is_checked_without_being_read(root, monkeypatch):
    monkeypatch.setattr("bench.data.trafficfolder.read_video", lambda *args: pytest.fail("it reads the video"))
    assert TrafficFolder().problems(root) == []
    (root / "yard" / "monday.csv").write_text("chunk,moving\n2,-3\n")
    assert "monday.csv, line 2" in TrafficFolder().problems(root)[0]
    assert "There is no folder" in TrafficFolder().problems(root / "no")[0]


def test_roots_that_are_no_folder_of_cameras(tmp_path, root):
    assert "--root DIR" in said(None) and "There is no folder" in said(tmp_path / "no")
    (tmp_path / "bare").mkdir()
    assert "no folder of a camera" in said(tmp_path / "bare")
    write(tmp_path / "loose" / "a.mkv", chunks=1)
    assert "lies in no camera's folder" in said(tmp_path / "loose")


def test_a_public_recording_and_one_to_release_are_needed(root):
    (root / "yard" / "monday.mkv").rename(root / "monday.mkv")
    (root / "monday.mkv").rename(root / "yard" / "public" / "monday.mkv")
    assert "none to release" in said(root)
    for path in (root / "yard" / "public").iterdir():
        path.rename(root / "yard" / path.name)
    assert "recording in public/" in said(root)


@pytest.mark.parametrize("text, message", [
    ("people = [", "is no TOML"), ("person = 3", "Did you mean person_px"), ('sign = "yield"', "is not known"),
    ("person_px = [1, 2, 3]", "an area in pixels"), ("view_px = [1, 2]", "4 whole numbers"),
    ('people = "yolo"', "is not known"), ("person_px = 3000", "positive areas"),
    ("vehicle_px = true", "area in pixels")])
def test_wrong_settings_are_named(root, text, message):
    (root / "yard" / "camera.toml").write_text(text)
    with pytest.raises(DataError, match=message):
        camera_of(root / "yard")


def test_without_vehicles_or_background_their_components_are_missing(root):
    yard = root / "yard"
    (yard / "camera.toml").write_text("vehicle_px = false\nperson_px = [20, 40]\n")
    assert camera_of(yard).reads == ("pedestrian", "environment")
    for path in (yard / "empty").iterdir():
        path.unlink()
    (yard / "camera.toml").write_text('people = "hog"\n')
    assert camera_of(yard).reads == ("pedestrian",)


# ---- videos ----

def test_another_rate_is_resampled_and_told(tmp_path):
    slow = read_video(write(tmp_path / "two.mkv", chunks=30), CAMERA)
    fast = read_video(write(tmp_path / "six.mkv", chunks=30, fps=6), CAMERA)
    np.testing.assert_array_equal(slow.steps, fast.steps)
    assert not slow.notes and fast.notes == ("six.mkv has 6 frames a second and is read at 2.",)


def test_a_moving_camera_is_warned_of(tmp_path):
    rng = np.random.Generator(np.random.PCG64(0))
    wide = np.repeat(np.repeat(rng.integers(0, 255, (16, 44, 3), dtype=np.uint8), 4, axis=0), 4, axis=1)
    still = np.stack([wide[:, :96]] * 120)
    moves = np.stack([wide[:, k // 2:k // 2 + 96] for k in range(120)])
    from bench.data.camera.experts import Camera

    view = Camera(still[:4], person_px=(36, 36), vehicle_px=(200, 200))
    notes = read_video(write(tmp_path / "moves.mkv", frames=moves), view).notes
    assert "seems to move" in notes[0]
    assert not [n for n in read_video(write(tmp_path / "still.mkv", frames=still), view).notes if "move" in n]


def test_another_size_than_the_public_pictures_is_refused(tmp_path):
    path = write(tmp_path / "small.mkv", frames=np.zeros((120, 32, 48, 3), np.uint8))
    with pytest.raises(DataError, match="is 48 x 32 px, the public pictures are 96 x 64"):
        read_video(path, CAMERA)


# ---- counts by hand ----

@pytest.mark.parametrize("text, message", [
    ("chunk,walking\n0,-1\n", "line 2: walking = '-1'"), ("chunk,walking\n0,1\n1,2.5\n", "line 3: walking = '2.5'"),
    ("chunk,weather\n0,snow\n", "weather = 'snow', known: clear"), ("walking\n1\n", "no column 'chunk'"),
    ("chunk,cars\n0,1\n", "column 'cars'"), ("chunk,walking\n99,1\n", "chunk 99 lies behind"),
    ("chunk,walking\n0,1,7\n", "another number of columns"), ("chunk,walking\nx,1\n", "chunk = 'x'"),
    ("chunk,moving\n0,99999\n", "more than anybody counts")])
def test_counts_that_are_none_are_refused_with_their_line(tmp_path, text, message):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        truth_of(tmp_path / "a.csv", 30)


def test_counts_and_states_are_read(tmp_path):
    (tmp_path / "a.csv").write_text("chunk,moving,stopped,sign,weather\n2,3,,stop,fog\n")
    found = truth_of(tmp_path / "a.csv", 4)
    assert (found[[0, 1, 3]] == -1).all() and (truth_of(tmp_path / "b.csv", 4) == -1).all()
    assert found[2].tolist() == [12, -1, -1, -1, 4, 0, 0, 0, 0, 0, 4, 0]


def test_what_nobody_knows_is_not_scored():
    """Slots without truth neither help nor hurt; a missing report of a known slot still does."""
    truth = np.zeros((1, 3, 12))
    truth[0, :, 0], truth[0, :, 7] = 6, 1
    report = truth + 1
    seen = Reports(truth, report, np.ones((1, 3, 4), bool), np.array([[0, 0, 2]]), np.ones((1, 3)), np.zeros(1))
    part = Reports(truth.copy(), report, seen.fresh, seen.asked, seen.priority, seen.episode)
    part.truth[0, 1:] = np.nan
    assert mae(part, "traffic", "all") == 1 == mae(seen, "traffic", "all")
    assert utility(part, weighted=True) == pytest.approx(1 - 1 / 20)
    assert np.isnan(state_f1(replace(seen, truth=np.full_like(truth, np.nan)), "signs"))
    part.report[0, 0] = np.nan
    assert np.isnan(mae(part, "traffic", "all")) and utility(part, weighted=True) == 0
    part.truth[:] = np.nan
    assert np.isnan(mae(part, "traffic", "all")) and np.isnan(utility(part, weighted=True))


def test_a_method_fits_and_reports_on_one_window(root, tmp_path):
    """A stream of one window instead of ten: the claim's first window is spent, errors without labels are undefined."""
    folders = {name: tmp_path / name for name in ("streams", "gather", "fit", "report", "metric")}
    facts = method_facts(Spec("task_dp"))
    config = {"dataset": "trafficfolder", "root": str(root), "seed": 42, "method": "task_dp", "variant": None,
              "profile": "tiny", "needs": [], "draws": 2, "lane": "enforced", "facts": facts, "numbers_seed": 42}

    def run(stage, name, inputs, **more):
        folders[name].mkdir()
        stage(Job({**config, **more}, {k: folders[v] for k, v in inputs.items()}, folders[name], lambda text: None))

    run(run_prepare, "streams", {})
    run(run_gather, "gather", {"streams": "streams"})
    run(run_fit, "fit", {"streams": "streams"})
    run(run_report, "report", {"streams": "streams", "gather": "gather", "fit": "fit"})
    table = pq.read_table(folders["report"] / "release" / "reports.parquet").to_pylist()
    assert len(table) == 2 and sum(table[0][f"fresh_{e.name}"] for e in EXPERTS) == 1
    with pytest.raises(Undefined, match="write NAME.csv"):
        run(run_report_metric, "metric", {"release": "report", "streams": "streams"}, metric="mae_pedestrian")
    shutil.rmtree(folders["metric"])
    run(run_report_metric, "metric", {"release": "report", "streams": "streams"}, metric="freshness")
