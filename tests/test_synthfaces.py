"""The made faces: the same everywhere, split as the protocol says, with true flow, landmarks and timing."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pytest

from bench import DataError, Source
from bench.data.faces import EXPRESSIONS, FaceMaker
from bench.data.faces.expression import AU, UNITS, perform
from bench.data.faces.person import draw_style
from bench.registry import get

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("synthfaces", "synthfaces_demo", "synthfaces_public")
SEED = 42


@pytest.fixture(scope="module")
def listed() -> dict[str, list[Source]]:
    return {name: get("datasets", name)().sources(None, SEED) for name in NAMES}


@pytest.fixture(scope="module")
def maker() -> FaceMaker:
    return FaceMaker(SEED)


def _split_file(name: str) -> dict:
    return json.loads((ROOT / "bench" / "data" / "splits" / f"{name}.json").read_text())


# ---- who is where --------------------------------------------------------------------------------------------------

def test_counts_of_people_and_videos(listed):
    assert [len({s.person for s in listed[n]}) for n in NAMES] == [100, 36, 24]
    assert len(listed["synthfaces"]) == 6 * (25 * 4 + 75 * 2)
    assert len(listed["synthfaces_demo"]) == 6 * (9 * 4 + 27 * 2)
    assert len(listed["synthfaces_public"]) == 6 * 24 * 2


def test_no_person_in_two_datasets(listed):
    people = [{s.person for s in listed[n]} for n in NAMES]
    assert sum(map(len, people)) == len(set.union(*people))


def test_ids_are_unique_and_say_what_they_hold(listed):
    for sources in listed.values():
        assert len({s.id for s in sources}) == len(sources)
        assert all(s.id.rsplit("_", 1)[0] == f"{s.person}_{s.label}" for s in sources)


@pytest.mark.parametrize("name, sizes", [("synthfaces", (25, 8, 67)), ("synthfaces_demo", (9, 3, 24))])
def test_split_follows_the_rule(name, sizes, listed):
    data = _split_file(name)
    order = sorted(data["parts"], key=lambda i: hashlib.sha256(f"veilbench-v1:42:{i}".encode()).hexdigest())
    assert [data["parts"][p] for p in order] == [
        part for part, n in zip(("test", "calibration", "train"), sizes) for _ in range(n)]
    body = json.dumps({"parts": data["parts"], "public": data["public"]}, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(body.encode()).hexdigest() == data["sha256"]
    assert data["dataset"] == name and set(data["parts"]) == {s.person for s in listed[name]}
    assert data["public"] == sorted({s.person for s in listed["synthfaces_public"]})


def test_test_people_have_four_takes_and_the_others_two(listed):
    parts = _split_file("synthfaces")["parts"]
    takes = Counter((s.person, s.label) for s in listed["synthfaces"])
    assert all(n == (4 if parts[person] == "test" else 2) for (person, _), n in takes.items())


def test_labels_and_attributes_are_balanced(listed):
    for sources in listed.values():
        assert len(set(Counter(s.label for s in sources).values())) == 1
        assert {s.label for s in sources} == set(EXPRESSIONS)
        people = {s.person: s.attributes for s in sources}
        for key in ("glasses", "beard", "older", "dark_hair"):
            assert {a[key] for a in people.values()} <= {0, 1}
            assert np.mean([a[key] for a in people.values()]) == pytest.approx(0.5, abs=0.1)


# ---- made the same everywhere --------------------------------------------------------------------------------------

_DIGEST = """
import hashlib
from bench.data.faces import FaceMaker
print(hashlib.sha256(FaceMaker(7).canvas(("p031", "fear", 2), 64).tobytes()).hexdigest())
"""


def test_bit_identical_in_another_process():
    here = FaceMaker(7)
    here.canvas(("p005", "sad", 1), 64)  # what was made before must not matter
    own = hashlib.sha256(here.canvas(("p031", "fear", 2), 64).tobytes()).hexdigest()
    other = subprocess.run([sys.executable, "-c", _DIGEST], cwd=ROOT, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == own


def test_seed_person_label_and_take_all_matter(maker):
    base = maker.canvas(("p031", "fear", 1), 32)[:32]
    others = [FaceMaker(43).canvas(("p031", "fear", 1), 32), maker.canvas(("p032", "fear", 1), 32),
              maker.canvas(("p031", "sad", 1), 32), maker.canvas(("p031", "fear", 2), 32)]
    assert all(np.abs(base.astype(int) - o[:32].astype(int)).mean() > 3 for o in others)


def test_identity_and_style_do_not_depend_on_label_or_take(maker):
    first, second = maker._clip(("p031", "fear", 1), 64, 2.7), maker._clip(("p031", "happy", 2), 64, 2.7)
    assert repr(first.person) == repr(second.person)
    assert np.array_equal(first.tables.albedo, second.tables.albedo)
    assert not np.array_equal(first.scene.key, second.scene.key)
    assert repr(maker.person("p032")) != repr(first.person)


def test_a_dataset_without_seed_says_what_to_do():
    data = get("datasets", "synthfaces_public")()
    with pytest.raises(DataError, match="sources"):
        data.load(Source("p001_sad_1", "p001", "sad"), 32)
    with pytest.raises(DataError, match="person_label_take"):
        get("datasets", "synthfaces_public")(seed=1).load(Source("p001_bored_1", "p001", "bored"), 32)


# ---- what a video holds --------------------------------------------------------------------------------------------

def test_thirty_two_frames_and_forty_in_a_quarter(listed, maker):
    counts = Counter(maker.frames_of((s.person, s.label, int(s.id[-1]))) for s in listed["synthfaces"])
    assert set(counts) == {32, 40}
    assert counts[40] / 1500 == pytest.approx(0.25, abs=0.04)  # 3.6 standard deviations


def test_load_gives_the_canvas_and_full_frame_the_camera():
    data = get("datasets", "synthfaces")(seed=SEED)
    source = next(s for s in data.sources(None, SEED) if s.person == "p024")
    small, full = data.load(source, 48), data.full_frame(source, 96)
    assert small.frames.dtype == full.frames.dtype == np.uint8 and small.fps == full.fps == 25.0
    assert small.frames.shape[1:] == (48, 48, 3) and full.frames.shape[1:] == (96, 96, 3)
    assert len(small.frames) == len(full.frames) in (32, 40)


@pytest.mark.parametrize("label", [e for e in EXPRESSIONS if e != "neutral"])
@pytest.mark.parametrize("frames", [32, 40])
def test_onset_ends_by_frame_six_and_apex_holds_to_the_last_four(label, frames):
    for take in range(1, 9):
        act = perform(SEED, ("p050", label, take), draw_style(SEED, "p050", len(UNITS)), frames)
        assert (act.apex[6:frames - 4] > 0.99).all() and act.apex[0] < 0.75 and act.apex[-1] < 0.75


def test_expression_shows_in_its_own_units():
    key = {"anger": "brow_down", "disgust": "nose", "fear": "lid_up", "happy": "smile", "sad": "frown"}
    for label, unit in key.items():
        on, off = [], []
        for person in (f"p{n:03d}" for n in range(60, 80)):
            style = draw_style(SEED, person, len(UNITS))
            on.append(perform(SEED, (person, label, 1), style, 32).units[6:28, AU[unit]].mean())
            off.append(perform(SEED, (person, "neutral", 1), style, 32).units[6:28, AU[unit]].mean())
        assert np.mean(on) > np.mean(off) + 0.4


# ---- truth ---------------------------------------------------------------------------------------------------------

TRUTH_CLIPS = [("p024", "happy", 1), ("p033", "fear", 1), ("p047", "disgust", 2), ("p058", "sad", 1)]


@pytest.mark.parametrize("names", TRUTH_CLIPS)
def test_landmarks_lie_in_the_crop_and_match_the_box(names, maker):
    marks = maker.truth(names, 64).landmarks
    assert marks.shape == (maker.frames_of(names), 57, 2) and marks.dtype == np.float32
    marks = np.delete(marks, slice(17, 20), axis=1)  # the forehead reaches out of a detector's box
    assert marks.min() > 0 and marks.max() < 64
    extent = (marks.max(1) - marks.min(1)).max(1)  # (T,) the larger side of the landmarks' box
    assert np.allclose(extent[:16].mean() * 1.3, 64, rtol=1e-3)
    assert np.allclose(((marks.max(1) + marks.min(1)) / 2)[:16].mean(0), 32, atol=0.05)


def test_inverse_map_returns_to_the_pixel(maker):
    clip = maker._clip(("p033", "fear", 1), 64, 2.7)
    view = maker._crop(clip)
    x, y = clip.motion.head_units(view, 64)
    u, v, _, _ = clip.motion.material(x, y)
    to_x, to_y = clip.motion.place(u, v)
    column = (np.arange(64, dtype=np.float32) + 0.5) / 64
    error = np.hypot((to_x - view.x0[:, None, None]) / view.side[:, None, None] - column,
                     (to_y - view.y0[:, None, None]) / view.side[:, None, None] - column[:, None]) * 64
    inside = clip.tables.face.sample(clip.tables.level, u.reshape(-1, 64), v.reshape(-1, 64)).reshape(u.shape) < 0.9
    assert np.percentile(error[inside], 99) < 0.5 and np.median(error[inside]) < 0.02  # pixels


@pytest.mark.parametrize("names", TRUTH_CLIPS)
def test_warping_by_the_true_flow_beats_no_warp(names, maker):
    frames, truth = maker.canvas(names, 64), maker.truth(names, 64)
    assert truth.flow.shape == (len(frames) - 1, 64, 64, 2) and truth.valid.dtype == np.bool_
    assert truth.valid.mean() > 0.5
    grid = np.stack(np.meshgrid(np.arange(64), np.arange(64)), -1).astype(np.float32)
    still, warped = [], []
    for t in range(len(frames) - 1):
        now, then = (cv2.GaussianBlur(f.astype(np.float32), (0, 0), 0.8) for f in frames[t:t + 2])
        back = cv2.remap(then, *np.moveaxis(grid + truth.flow[t], -1, 0), cv2.INTER_LINEAR)
        moving = truth.valid[t] & (np.hypot(*np.moveaxis(truth.flow[t], -1, 0)) > 0.25)
        if moving.sum() > 50:
            still.append(np.abs(then - now)[moving].mean())
            warped.append(np.abs(back - now)[moving].mean())
    assert len(still) > 3 and np.mean(warped) < 0.75 * np.mean(still)
