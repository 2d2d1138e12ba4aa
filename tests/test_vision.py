"""Vision experts: what they count in drawn scenes, that a chunk is read by itself, that failure is never silent."""

from __future__ import annotations

import re
from pathlib import Path

import cv2
import numpy as np
import pytest
from conftest import ROOT

from bench import DataError, video
from bench.data.camera import experts
from bench.data.camera.experts import Camera, drift_px, read_chunk
from bench.data.crossing import render
from bench.data.crossing_video import camera, exact
from bench.traffic import COMPONENTS, EXPERTS, columns

SHAPE = (64, 96, 3)
VTEST = next((p for p in map(Path, ("/usr/share/doc/opencv-doc/examples/data/vtest.avi", "vtest.avi"))
              if p.is_file()), None)


def street(frames: int = 8, seed: int = 0) -> np.ndarray:
    """Pictures of an empty street: a grey gradient, a little sensor noise."""
    rng = np.random.Generator(np.random.PCG64(seed))
    plain = np.linspace(70, 130, 96)[None, None, :, None] + np.zeros((frames, *SHAPE))
    return np.clip(plain + rng.normal(0, 2, plain.shape), 0, 255).astype(np.uint8)


CAMERA = Camera(street(), person_px=(36, 36), vehicle_px=(200, 200), sign="no_sign")


def scene(*things: tuple[int, int, int, int, int], seed: int = 1) -> np.ndarray:
    """A chunk; each thing is (left, top, width, height, px it goes right in a frame)."""
    frames = street(4, seed)
    for k, frame in enumerate(frames):
        for left, top, wide, high, step in things:
            frame[top:top + high, left + k * step:left + k * step + wide] = (240, 40, 40)
    return frames


@pytest.mark.parametrize("things, counts", [
    ((), (0, 0, 0, 0)), (((4, 10, 20, 10, 12),), (1, 0, 0, 0)), (((40, 30, 20, 10, 0),), (0, 1, 0, 0)),
    (((10, 40, 5, 8, 6),), (0, 0, 1, 0)), (((10, 40, 5, 8, 0), (30, 40, 5, 8, 0)), (0, 0, 0, 2)),
    (((4, 10, 20, 10, 12), (40, 30, 20, 20, 0), (10, 52, 5, 8, 6)), (1, 2, 1, 0)), (((40, 20, 2, 2, 0),), (0,) * 4)])
def test_moving_and_standing_rectangles_are_counted(things, counts):
    found = read_chunk(scene(*things), CAMERA)
    assert not found.failed and (found.steps[:4] / 4).tolist() == list(counts)
    assert found.steps[columns("signs")].tolist() == [0, 0, 0, 4]


def test_what_lies_outside_the_view_is_not_counted():
    one = Camera(street(), person_px=(36, 36), vehicle_px=(200, 200), view_px=(48, 0, 48, 64))
    frames = scene((10, 40, 5, 8, 0), (60, 40, 5, 8, 0))
    assert read_chunk(frames, one).steps[3] == 4 and read_chunk(frames, CAMERA).steps[3] == 8


@pytest.mark.parametrize("state, change", [
    ("clear", lambda f: f), ("fog", lambda f: 0.45 * f + 110), ("other_weather", lambda f: 0.5 * f)])
def test_light_is_named_and_does_not_count_as_traffic(state, change):
    frames = change(scene((4, 10, 20, 10, 12), (10, 40, 5, 8, 0)).astype(float)).astype(np.uint8)
    found = read_chunk(frames, CAMERA).steps
    assert found[columns("environment")].argmax() == EXPERTS[3].components.index(state)
    assert (found[:4] / 4).tolist() == [1, 0, 0, 1]


def test_perspective_makes_the_same_area_one_person_near_and_several_far():
    deep = Camera(street(), person_px=(9, 144), vehicle_px=None)
    near, far = (read_chunk(scene((40, top, 12, 12, 0)), deep).steps[3] / 4 for top in (52, 6))
    assert near == 1 and far > 2 and deep.reads == ("pedestrian", "environment")


# ---- isolation ----

def test_a_chunk_is_read_alike_alone_and_after_any_others():
    """The structure behind K: two chunks are exchanged, and no other reading moves by a single step."""
    rng = np.random.Generator(np.random.PCG64(3))
    chunks = [scene(*((int(x), int(y), 5, 8, int(s)) for x, y, s in rng.integers((0, 0, 0), (60, 50, 9), (3, 3))),
                    seed=k) for k in range(6)]
    alone = [read_chunk(c, CAMERA).steps for c in chunks]
    order = rng.permutation(6)
    mixed = {int(k): read_chunk(chunks[k], CAMERA).steps for k in order}
    assert all(np.array_equal(alone[k], mixed[k]) for k in range(6))
    changed = [*chunks]
    changed[2], changed[3] = scene((0, 0, 96, 64, 0)), scene()
    again = [read_chunk(c, CAMERA).steps for c in changed]
    assert [k for k in range(6) if not np.array_equal(alone[k], again[k])] == [2, 3]


def test_every_chunk_gets_experts_and_a_background_of_its_own(monkeypatch):
    made, model = [], cv2.createBackgroundSubtractorMOG2
    monkeypatch.setattr(experts.cv2, "createBackgroundSubtractorMOG2",
                        lambda *a, **k: made.append(model(*a, **k)) or made[-1])
    for seed in range(3):
        read_chunk(scene(seed=seed), CAMERA)
    assert len({id(m) for m in made}) == 3
    assert not [k for k, v in vars(experts.ChunkExperts).items() if isinstance(v, (list, dict, set, np.ndarray))]


def test_the_background_stays_as_it_was_learnt():
    """A thing that stands through the whole chunk, and all chunks, is never taken into the background."""
    for _ in range(5):
        assert read_chunk(scene((40, 30, 20, 10, 0)), CAMERA).steps[1] == 4


def test_opencvs_detectors_have_one_owner():
    words = re.compile(r"createBackgroundSubtractor|HOGDescriptor|phaseCorrelate")
    used = {p.relative_to(ROOT).as_posix() for top in ("bench", "methods", "attacks", "metrics")
            for p in (ROOT / top).rglob("*.py") if words.search(p.read_text(encoding="utf-8"))}
    assert used == {"bench/data/camera/experts.py"}


# ---- failure ----

@pytest.mark.parametrize("fault", [lambda self: 1 / 0, lambda self: np.array([-1, 0]), lambda self: np.zeros(3),
                                   lambda self: cv2.resize(np.zeros(0), (1, 1))])
def test_an_expert_that_fails_gives_the_fixed_vector_and_is_told(monkeypatch, fault):
    frames = scene((10, 40, 5, 8, 0))
    monkeypatch.setattr(experts.ChunkExperts, "traffic", fault)
    found = read_chunk(frames, CAMERA)
    assert found.failed == ("traffic",) and found.steps.shape == (len(COMPONENTS),)
    assert found.steps[:2].tolist() == [0, 0] and found.steps[3] == 4  # the others go on


@pytest.mark.parametrize("change, message", [
    ({"people": "yolo"}, "is not known of a camera"), ({"sign": "yield"}, "is not known of a camera"),
    ({"view_px": (50, 0, 48, 64)}, "not lie in the picture"), ({"view_px": (0, 0, 0, 9)}, "not lie in the picture"),
    ({"person_px": (0, 5)}, "positive areas"), ({"vehicle_px": (10, 10)}, "positive areas")])
def test_a_camera_that_cannot_be_is_refused(change, message):
    with pytest.raises(DataError, match=message):
        Camera(street(), **change)


def test_drift_is_measured_in_pixels():
    rng = np.random.Generator(np.random.PCG64(0))
    wide = cv2.GaussianBlur(rng.integers(0, 255, (80, 120, 3), dtype=np.uint8), (0, 0), 2)
    assert drift_px(wide[5:69, 8:104], wide[5:69, 8:104]) < 0.2
    assert drift_px(wide[5:69, 8:104], wide[5:69, 3:99]) == pytest.approx(5, abs=0.5)


# ---- the rendered crossing ----

@pytest.mark.parametrize("episode", [1, 410])
def test_the_rendered_crossing_is_read_better_than_any_constant(episode):
    """Exact counts are the truth; the best constant knows them."""
    chosen = range(7, 300, 60)
    seen = np.stack([read_chunk(render.chunk(episode, k), camera()).steps for k in chosen]) / 4
    true = exact(episode)[list(chosen)] / 4
    for part in (slice(0, 2), slice(2, 4)):
        told, was = seen[:, part].sum(axis=1), true[:, part].sum(axis=1)
        assert np.abs(told - was).mean() < 0.5 * np.abs(was - np.median(was)).mean() + 0.5
    for name in ("signs", "environment"):
        assert (seen[:, columns(name)] == true[:, columns(name)]).all()


# ---- a real clip ----

# People in the third frame of each of the last 20 whole chunks of OpenCV's walkway clip, counted by eye: those half
# hidden behind the sign, at the picture's edge and beside the cars included.
BY_EYE = (4, 2, 3, 3, 4, 4, 7, 6, 6, 7, 6, 7, 6, 6, 8, 9, 9, 9, 8, 8)
FIRST = 19  # the first half of the clip is taken for public: background, area of a person


@pytest.mark.real
@pytest.mark.skipif(VTEST is None, reason="needs vtest.avi of the package opencv-doc")
def test_people_on_a_real_walkway_are_counted_better_than_by_the_best_constant():
    frames = np.stack(list(video.iter_frames(VTEST, fps=2)))
    public = frames[np.linspace(0, FIRST * 4 - 1, experts.EMPTY_FRAMES).round().astype(int)]
    walkway = Camera(public, person_px=(24, 5400), vehicle_px=None)
    seen = [read_chunk(frames[4 * k:4 * k + 4], walkway).steps[columns("pedestrian")].sum() / 4
            for k in range(FIRST, FIRST + len(BY_EYE))]
    true = np.array(BY_EYE)
    error, constant = np.abs(seen - true).mean(), np.abs(true - np.median(true)).mean()
    assert error < 0.6 * constant  # measured: 0.65 against 1.7; OpenCV's people detector: 3


@pytest.mark.real
@pytest.mark.skipif(VTEST is None, reason="needs vtest.avi of the package opencv-doc")
def test_hog_sees_some_people_on_a_real_walkway():
    frames = np.stack(list(video.iter_frames(VTEST, fps=2))[4 * 25:4 * 26])
    found = read_chunk(frames, Camera(people="hog"))
    assert not found.failed and 2 <= found.steps[columns("pedestrian")].sum() / 4 <= BY_EYE[25 - FIRST]
    corner = Camera(people="hog", view_px=(0, 0, 60, 60))
    assert not read_chunk(frames, corner).steps[columns("pedestrian")].any()
