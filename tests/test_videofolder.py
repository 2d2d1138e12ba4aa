"""The videofolder dataset on folders made here: layout faults, odd files, crops, independence of clips."""

from __future__ import annotations

import numpy as np
import pytest
from skimage import data

from bench import CLIP_FRAMES, DataError, Source, registry, video
from bench.data.videofolder import VideoFolder


def portrait(size: int = 120) -> np.ndarray:
    return np.ascontiguousarray(data.astronaut()[:240, 100:340][:: 240 // size, :: 240 // size])


def write(path, frames, fps=25):
    path.parent.mkdir(parents=True, exist_ok=True)
    video.write_lossless(path, frames, fps)
    return path


@pytest.fixture
def root(tmp_path):
    plain = [np.full((32, 48, 3), 90, np.uint8)] * 3
    for person in "abcdef":
        for label in ("happy", "sad"):
            for take in (1, 2):
                write(tmp_path / person / label / f"{take}.mkv", plain)
    return tmp_path


def test_a_good_folder_lists_its_videos_in_a_stable_order(root):
    write(root / "a" / "happy" / "-été 3.MKV".lower(), [np.zeros((32, 32, 3), np.uint8)])
    (root / "notes.txt").write_text("not a video")
    (root / "a" / "happy" / ".hidden.mkv").write_bytes(b"")
    found = VideoFolder().sources(root, 1)
    assert len(found) == 25 and [s.id for s in found] == sorted(s.id for s in found)
    assert found == VideoFolder().sources(str(root), 2)
    assert {(s.person, s.label) for s in found} == {(p, lab) for p in "abcdef" for lab in ("happy", "sad")}
    assert "a/happy/-été 3.mkv" in {s.id for s in found}
    assert registry.get("datasets", "videofolder") is VideoFolder
    assert VideoFolder.needs_root and not VideoFolder.publishable


def test_every_problem_is_listed_at_once(root):
    (root / "a" / "happy" / "bad.mp4").write_text("no video at all")
    whole = (root / "a" / "sad" / "1.mkv").read_bytes()
    (root / "b" / "sad" / "1.mkv").write_bytes(whole[:len(whole) * 3 // 4])
    write(root / "c" / "loose.mkv", [np.zeros((16, 16, 3), np.uint8)])
    write(root / "g" / "happy" / "1.mkv", [np.zeros((16, 16, 3), np.uint8)])
    for label in ("happy", "sad"):
        write(root / "h" / label / "1.mkv", [np.zeros((16, 16, 3), np.uint8)])
    (root / "i").mkdir()
    with pytest.raises(DataError) as caught:
        VideoFolder().sources(root, 42)
    text = str(caught.value)
    for part in ("a/happy/bad.mp4 cannot be read", "b/sad/1.mkv", "c/loose.mkv does not lie", "g has one video",
                 "h has no two videos of one label", "i has no video"):
        assert part in text
    assert caught.value.remedy


def test_missing_empty_and_too_small_roots(tmp_path):
    folder = VideoFolder()
    for root, match in ((None, "--root"), (tmp_path / "none", "There is no folder"), (tmp_path, "is empty")):
        with pytest.raises(DataError, match=match):
            folder.sources(root, 42)
    for take in (1, 2):
        write(tmp_path / "only" / "x" / f"{take}.mkv", [np.zeros((16, 16, 3), np.uint8)])
    with pytest.raises(DataError, match="of 1 person, not 6"):
        folder.sources(tmp_path, 42)


def test_load_puts_the_face_on_the_canvas_at_25_frames_a_second(tmp_path):
    frames = [np.full((200, 300, 3), 60, np.uint8) for _ in range(48)]
    for frame in frames:
        frame[20:140, 150:270] = portrait()
    path = write(tmp_path / "p" / "x" / "1.mkv", frames, fps=30)
    prepared = VideoFolder().load(Source("1", "p", "x", path=path), 64)
    assert prepared.frames.shape == (40, 64, 64, 3) and prepared.frames.dtype == np.uint8  # 48 frames at 30 -> 40 at 25
    assert prepared.fps == 25 and prepared.centre_boxes == 0
    assert prepared.native == {"fps": 30.0, "width": 300, "height": 200, "rotation": 0, "frames": 48,
                               "variable_fps": False}
    assert np.array_equal(prepared.frames[0], prepared.frames[1])  # a still face gives a still crop
    flat = (prepared.frames[0] == 60).all(-1).mean()
    assert flat < 0.1  # the crop shows the portrait, not the grey around it


def test_a_clip_is_cropped_by_itself_and_faceless_clips_are_counted(tmp_path):
    face = np.full((120, 200, 3), 60, np.uint8)
    face[:, 40:160] = portrait()
    moved = np.roll(face, 30, axis=1)
    empty = np.full_like(face, 60)
    loads = []
    for k, second in enumerate((moved, empty)):
        path = write(tmp_path / f"{k}.mkv", [face] * CLIP_FRAMES + [second] * CLIP_FRAMES)
        loads.append(VideoFolder().load(Source(str(k), "p", "x", path=path), 48))
    assert [load.centre_boxes for load in loads] == [0, 1]
    assert np.array_equal(loads[0].frames[:CLIP_FRAMES], loads[1].frames[:CLIP_FRAMES])
    assert not np.array_equal(loads[0].frames[CLIP_FRAMES:], loads[1].frames[CLIP_FRAMES:])
    assert (loads[1].frames[CLIP_FRAMES:] == 60).all()
