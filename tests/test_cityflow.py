"""The dataset cityflow on folders made here: streams counted by hand, the split, every wrong input, the road."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import PLUGINS

from bench import DataError, registry, video
from bench.data.cityflow import _clock, read_boxes, split
from bench.data.recordings import sampled
from bench.data.streams import Streams, check_streams, said_of, write_streams
from bench.errors import Undefined
from bench.event_auc import auc_of
from bench.privacy.claim_table import claim_to
from bench.privacy.contract import full_claim
from bench.privacy.mechanism import Transcript
from bench.run.stage_report_measures import run_event, run_report_metric
from bench.run.stage_reports import _write, event_of, fresh_of
from bench.run.stages import Job, function
from bench.traffic import COMPONENTS, EXPERTS


def line(frame, vehicle, left=0.0, width=90, height=40):
    """A row of gt.txt; frame counts from 1."""
    return f"{frame},{vehicle},{left:.2f},100,{width},{height},1,-1,-1,-1\n"


def camera(root, name, text, fps="10", calibration=None):
    folder = root / "train" / name
    (folder / "gt").mkdir(parents=True)
    (folder / "gt" / "gt.txt").write_text(text)
    if fps:
        (folder / "fps.txt").write_text(fps)
    if calibration:
        (folder / "calibration.txt").write_text(calibration)
    return folder


def street(first=1, last=600):
    """Ten frames a second. Frames from 0: one moves in chunk 0; `first + 1` stands until frame 29; one is slow in
    chunk 2; one stands in chunk 3 and moves in chunk 4; the last box is in no sampled frame and ends the recording.
    """
    rows = [line(f + 1, first, 9.0 * f) for f in range(20)] + [line(f + 1, first + 1) for f in range(30)]
    rows += [line(f + 1, first + 2, 0.5 * f) for f in range(39, 45)]
    rows += [line(f + 1, first + 3, 9.0 * max(0, f - 79)) for f in range(60, 100)]
    return "".join([*rows, line(last, first + 4)])


@pytest.fixture
def root(tmp_path):
    for number, name in enumerate(("S01/c001", "S02/c002", "S03/c003")):
        camera(tmp_path / "root", name, street(10 * number + 1))
    return tmp_path / "root"


def table(root):
    return registry.build("datasets", "cityflow").table(root, print)


def test_streams_are_those_counted_by_hand(root):
    found = table(root)
    assert found.ids == ("train/S01/c001/00", "train/S02/c002/00", "train/S03/c003/00")
    wanted = np.zeros((30, 12), int)
    wanted[:5, :2] = [(4, 4), (0, 2), (0, 1), (0, 4), (4, 0)]  # chunk 1: frames 20 and 25 of the standing one
    for steps in found.steps:
        np.testing.assert_array_equal(steps, wanted)
    assert found.known[..., :2].all() and not found.known[..., 2:].any()
    own = found.objects[found.objects[:, 0] == 1]
    assert own[:, 1:].tolist() == [[11, 0, 0, 4], [12, 0, 1, 4], [12, 1, 1, 2], [13, 2, 1, 1], [14, 3, 1, 4],
                                   [14, 4, 0, 4]]


def test_the_calibration_decides_and_not_the_size_of_the_box(root):
    """One pixel is a millionth of a degree, 0.11 m: 30 px a second are 3.3 m/s, 2 px are 0.22 m/s."""
    ground = np.array([[0, -1e-6, 42.5], [1e-6, 0, -90.7], [0, 0, 1]])  # pixel -> latitude, longitude
    rows = ";".join(" ".join(repr(float(v)) for v in row) for row in np.linalg.inv(ground))
    text = "".join([line(f + 1, 41, 3.0 * f, 900) + line(f + 1, 42, 0.2 * f, 9, 9) for f in range(20)]) + line(600, 43)
    camera(root, "S03/c009", text, calibration=f"Homography matrix: {rows}\nReprojection error: 1.5\n")
    steps = dict(zip(table(root).ids, table(root).steps, strict=True))["train/S03/c009/00"]
    assert steps[0, :2].tolist() == [4, 4] and not steps[1:].any()
    (root / "train/S03/c009/calibration.txt").unlink()  # now a car's length: 0.15 m/s and 1 m/s
    own = {tuple(o[1:]) for o in table(root).objects.tolist() if o[1] in (41, 42)}
    assert own == {(41, 0, 1, 4), (42, 0, 0, 4)}, "their roles are exchanged"


def test_other_rates_are_sampled_at_two_frames_a_second():
    assert sampled(40, 8).tolist() == [0, 4, 8, 12, 16, 20, 24, 28]  # 40 frames are 5 s: two chunks
    assert sampled(19, 10).tolist() == [] and sampled(20, 10).tolist() == [0, 5, 10, 15]
    assert sampled(120, 29.97).tolist() == [0, 15, 30, 45, 60, 75, 90, 105]


def test_rate_and_length_come_from_the_video_where_there_is_one(root):
    folder = root / "train" / "S01" / "c001"
    video.write_lossless(folder / "vdo.mkv", [np.zeros((16, 16, 3), np.uint8)] * 12, 8)
    assert _clock(folder) == (8.0, 12, [])
    with pytest.raises(DataError, match="has frame 600, its video has 12"):
        table(root)
    (folder / "vdo.mkv").write_bytes(b"no video")
    with pytest.raises(DataError, match="S01/c001 has a video that cannot be read"):
        table(root)


def test_a_quarter_of_the_scenarios_is_tested_and_shared_vehicles_bind_them():
    names = [f"S{n:02d}" for n in range(1, 7)]
    order = sorted(names, key=lambda n: hashlib.sha256(f"veilbench-v1:42:{n}".encode()).hexdigest())
    alone = {n: {k} for k, n in enumerate(names)}
    assert split(alone, {n: n for n in names}, []) == {n: n not in order[:2] for n in names}  # 6 / 4, half up
    bound = {"a": {1, 2}, "b": {2, 3}, "c": {3}, "d": {9}}
    parts = split(bound, {"a": "S01", "b": "S02", "c": "S03", "d": "S04"}, [])
    assert parts["S01"] == parts["S02"] == parts["S03"] != parts["S04"]
    problems: list[str] = []
    split({"a": {1}, "b": {1}}, {"a": "S01", "b": "S02"}, problems)
    assert problems == ["its scenarios (S01, S02) fall into one group of shared vehicles, and a split needs two"]


def test_no_vehicle_and_no_scenario_crosses(root):
    camera(root, "S03/c004", street(1))  # the vehicles of S01
    found = table(root)
    parts = {"S0" + i.split("/S0")[1][0]: bool(p) for i, p in zip(found.ids, found.public, strict=True)}
    assert parts["S01"] == parts["S03"] != parts["S02"]
    seen = [{int(o[1]) for o in found.objects if found.public[o[0]] == part} for part in (True, False)]
    assert all(seen) and not seen[0] & seen[1]


def test_longer_cameras_give_more_episodes_and_shorter_ones_none(root):
    for scenario, first in (("S01", 1), ("S02", 11), ("S03", 21)):
        camera(root, f"{scenario}/c005", street(first, last=2500))  # 250 s: four windows, one episode of three
    camera(root, "S03/c007", street(21, last=590))  # 58 s
    found = table(root)
    assert found.ids == tuple(f"train/S0{k}/c005/00" for k in (1, 2, 3)) and found.steps.shape == (3, 90, 12)
    assert found.steps[0, 4, :2].tolist() == [4, 0] and len(found.objects) == 18
    left = 3 * (125 - 90) + 3 * 30 + 29  # chunks: ends of the long ones, all of the four short ones
    assert any(note.startswith(f"{2 * left} s at the ends of recordings were dropped: an episode has 180 s, and 4 of 7")
               for note in found.says)


def test_one_long_camera_does_not_throw_the_others_away(root):
    camera(root, "S01/c005", street(1, last=1200))
    assert table(root).ids == ("train/S01/c001/00", "train/S01/c005/00", "train/S01/c005/01", "train/S02/c002/00",
                               "train/S03/c003/00")


# ---- wrong input ----

def test_every_problem_of_a_folder_is_named_at_once(root, cli):
    for name, text in {"a": "", "b": "1,1,0,0,90\n", "c": "1,1,0,0,x,40\n1,1,0,0,90,40\n",
                       "d": "1.5,1,0,0,90,40\n-3,1,0,0,90,40\n2,2.5,0,0,90,40\n", "e": "1,1,0,0,0,40\n",
                       "f": "1,1,0,0,90,40\n" * 2, "g": "1,1,nan,0,90,40\n"}.items():
        camera(root, f"S03/{name}", text)
    camera(root, "S03/h", street(90), fps=None)
    camera(root, "S03/i", street(90), fps="one")
    camera(root, "S03/j", street(90), fps="1")
    camera(root, "S03/k", street(90), calibration="1 2 3;4 5 6")
    (camera(root, "S03/l", "x") / "gt" / "gt.txt").unlink()
    wanted = ["a/gt/gt.txt is empty", "b/gt/gt.txt line 1 ('1,1,0,0,90') has fewer values than",
              "c/gt/gt.txt line 1 ('1,1,0,0,x,40') holds what is no number",
              "d/gt/gt.txt line 1 ('1.5,1,0,0,90,40') has a frame or ID that is no whole number from 1 on, and 2 more",
              "e/gt/gt.txt line 1 ('1,1,0,0,0,40') has a box without area",
              "f/gt/gt.txt vehicle 1 in frame 1 is there twice", "g/gt/gt.txt line 1 ('1,1,nan,0,90,40') holds a value",
              "h has no frame rate: neither vdo.avi nor fps.txt", "i has a fps.txt that is no number",
              "j has 1 frames a second in fps.txt, not 2 or more", "k/calibration.txt holds no homography",
              "l has no gt/gt.txt"]
    with pytest.raises(DataError) as caught:
        table(root)
    checked = cli("data", "check", "cityflow", "--root", root)
    assert checked.code == 1 and len(checked.out.splitlines()) == len(wanted)
    for part in wanted:
        assert f"train/S03/{part}" in caught.value.what and f"train/S03/{part}" in checked.out
    assert "ROOT/[SPLIT/]SCENARIO/CAMERA/gt/gt.txt" in caught.value.why
    assert read_boxes("\n1,1,0,0,90,40\n\n")[1] == []


def test_folders_that_hold_nothing_for_it(tmp_path, cli):
    assert "needs a folder" in cli("data", "prepare", "cityflow", "--workdir", tmp_path / "w").err
    (tmp_path / "empty").mkdir()
    found = cli("data", "check", "cityflow", "--root", tmp_path / "empty")
    assert found.code == 1 and found.out.strip() == "it has no camera with a gt folder"
    assert "There is no folder" in cli("data", "check", "cityflow", "--root", tmp_path / "no").out
    assert cli("data", "check", "sumo_crossing", "--root", tmp_path).code == 2
    camera(tmp_path / "one", "S01/c001", street(1))
    assert "(S01) fall into one group" in cli("data", "check", "cityflow", "--root", tmp_path / "one").out


# ---- the road ----

@pytest.fixture
def prepared(root, tmp_path):
    folder = tmp_path / "streams"
    folder.mkdir()
    write_streams(registry.build("datasets", "cityflow"), root, 42, folder, print)
    return folder


def test_prepare_says_what_is_missing(root, tmp_path, cli, monkeypatch):
    """The stage runs in this process here; tests/test_report_road.py has the whole command."""
    def run(work, plan, jobs, display):
        out = work.stage(plan.stages[0].kind, plan.stages[0].digest)
        out.mkdir(parents=True)
        function("streams")(Job(plan.stages[0].config, {}, out, print))
        return SimpleNamespace(failed=[])

    monkeypatch.setattr("bench.commands.execute", run)
    made = cli("data", "prepare", "cityflow", "--root", root, "--workdir", tmp_path / "w")
    assert made.code == 0 and "cityflow has no labels of walking, waiting, stop, speed limit, other sign" in made.out
    assert "only vehicles that pass two cameras" in made.out and "3 of 3 cameras have no calibration.txt" in made.out


def test_what_is_not_known_is_missing_and_is_not_asked_for(prepared):
    streams = Streams(prepared)
    assert not streams.requests.expert.any()  # vehicles in every slot
    assert streams.absent.tolist() == [c not in ("moving", "stopped") for c in COMPONENTS]
    truth = streams.truth(np.arange(3))
    assert truth[..., :2].tolist() == [[[8 / 120, 11 / 120]]] * 3 and np.isnan(truth[..., 2:]).all()


def test_what_was_changed_or_crosses_is_found(prepared):
    assert check_streams(prepared) == []
    with np.load(prepared / "streams.npz") as found:
        arrays = {name: found[name] for name in found}
    arrays["objects"][:, 1] = 7
    np.savez_compressed(prepared / "streams.npz", **arrays)
    assert check_streams(prepared) == ["object 7 stands in both parts"]
    arrays["known"] = np.ones((3, 30, 12), bool)
    np.savez_compressed(prepared / "streams.npz", **arrays)
    assert check_streams(prepared) == [f"{prepared / 'streams.npz'} is not what was prepared."]
    (prepared / "streams.npz").write_bytes(b"")
    assert check_streams(prepared) == ["streams.npz cannot be read (EOFError)"]


def test_a_full_dataset_stores_no_gaps(tmp_path, monkeypatch):
    monkeypatch.setenv(registry.EXTRA, str(PLUGINS / "few_streams.py"))
    registry._locations.cache_clear()
    write_streams(registry.build("datasets", "few_streams"), None, 42, tmp_path, print)
    streams = Streams(tmp_path)
    with np.load(tmp_path / "streams.npz") as found:
        assert not {"known", "truth", "reads"} & set(found)
    assert streams.known.all() and not streams.absent.any() and not list(said_of(streams.info))
    assert not np.isnan(streams.truth(streams.test())).any()
    monkeypatch.undo()
    registry._locations.cache_clear()


@pytest.fixture
def released(prepared, tmp_path):
    """A release of `task_dp` made by hand on the one test camera, two draws: noise of scale 10 where it released."""
    streams, release = prepared, tmp_path / "report"
    release.mkdir()
    method = registry.build("methods", "task_dp")
    facts = {"branches": [b.as_dict() for b in method.branches], "full_claim": claim_to(full_claim(method)),
             "encodes": "fields"}
    job = Job({"method": "task_dp", "variant": None, "profile": "tiny", "seed": 42, "draws": 2, "lane": "enforced",
               "facts": facts}, {}, release, print)
    shape = {e.name: (2, 1, e.dim) for e in EXPERTS}
    made = Transcript({n: np.zeros(s) for n, s in shape.items()}, {n: np.full(s[:2], 10.0) for n, s in shape.items()},
                      {n: np.zeros(s, int) for n, s in shape.items()})
    reports = np.full((2, 1, 12), 1.0)
    reports[1, 0, 0] = 2.0
    _write(job, Streams(streams), np.array([[0, 0], [0, 1]]), made, reports, fresh_of(made.released),
           {"isolation": {"level": 3}})
    return {"release": release, "streams": streams}, facts


def measured(released, tmp_path, kind, name):
    """Values of a measurement by column, in the order of the draws."""
    inputs, facts = released
    out = tmp_path / name
    out.mkdir()
    word, function = ("metric", run_report_metric) if kind == "metrics" else ("attack", run_event)
    function(Job({word: name, "variant": None, "profile": "tiny", "seed": 42, "numbers_seed": 42, "lane": "enforced",
                  "facts": facts}, inputs, out, print))
    rows = pq.read_table(out / "trials.parquet").to_pylist()
    return {c: [r["value"] for r in rows if r["column"] == c] for c in {r["column"] for r in rows}}


def test_a_report_leaves_out_what_the_dataset_does_not_have(released):
    table = pq.read_table(released[0]["release"] / "release" / "reports.parquet").to_pylist()
    assert [r["moving"] for r in table] == [1, 2] and all(np.isnan(r[c]) for r in table for c in COMPONENTS[2:])
    assert all(r["fresh_traffic"] and not r["fresh_signs"] for r in table)
    assert table[0]["text"] == ("About 1 vehicles moving and 1 standing. People: not reported. Sign: not reported. "
                                "Weather: not reported.")


def test_what_has_labels_is_measured_and_the_rest_says_why_not(released, tmp_path):
    """The truth is 8/120 moving and 11/120 standing."""
    wanted = [(112 / 120 + 109 / 120) / 2, (232 / 120 + 109 / 120) / 2]
    assert measured(released, tmp_path, "metrics", "mae_vehicle")["mae_vehicle[slots=all]"] == pytest.approx(wanted)
    found = measured(released, tmp_path, "metrics", "utility")
    assert found["utility[slots=equal]"][0] == pytest.approx(1 - np.mean(wanted) / 20)
    for name in ("mae_pedestrian", "f1_sign", "f1_environment"):
        with pytest.raises(Undefined, match=f"cityflow has no labels of what {name} measures"):
            measured(released, tmp_path, "metrics", name)


def test_the_audit_of_real_vehicles(released, tmp_path):
    """A visit adds whole steps to one or two sums of the window; the reports are those of noise of scale 10."""
    found = measured(released, tmp_path, "attacks", "whole_stay")
    assert set(found) == {f"auc[event=vehicle_stay,of={of}]" for of in ("mean", "worst")}  # nobody on foot
    noise = Fraction(10)
    visits = [auc_of(p) for p in ({(4, noise): 1}, {(6, noise): 1}, {(1, noise): 1}, {(4, noise): 2})]
    assert found["auc[event=vehicle_stay,of=mean]"] == pytest.approx([np.mean(visits)] * 2)
    assert found["auc[event=vehicle_stay,of=worst]"] == pytest.approx([max(visits)] * 2)


def test_a_stream_shorter_than_the_claim_releases_a_part_of_it(released):
    assert len(event_of(released[1]).spends) == 10 and len(event_of(released[1], 3).spends) == 3
    assert event_of(released[1], 3).budget == 4
