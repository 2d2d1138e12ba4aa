"""Reading and writing video: every odd file a user can have, made here with PyAV."""

from __future__ import annotations

import errno
import struct
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import bench.video_out
from bench import ConfigError, DataError, UserError, video
from bench.errors import EnvironmentFault

COLOURS = np.array([[200, 40, 40], [40, 180, 60], [50, 60, 210], [230, 230, 230]], np.uint8)


def patches(width: int, height: int, k: int = 0) -> np.ndarray:
    """Four flat quarters, all different, brighter with k: chroma subsampling and turns both show."""
    image = np.zeros((height, width, 3), np.uint8)
    x, y = (width // 2) & ~1, (height // 2) & ~1
    image[:y, :x], image[:y, x:], image[y:, :x], image[y:, x:] = COLOURS
    return np.minimum(image.astype(int) + k, 255).astype(np.uint8)


def encode(path: Path, frames, *, codec="libx264", pix_fmt="yuv420p", rate=25, pts=None, turn=None,
           options=None) -> Path:
    settings = {"crf": "5", "preset": "ultrafast"} if codec == "libx264" else {}
    with av.open(str(path), "w", options=options or {}) as container:
        stream = container.add_stream(codec, rate=rate, options=settings)
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = pix_fmt
        if pts:
            stream.codec_context.time_base = Fraction(1, 1000)
        if turn is not None:
            stream.set_display_rotation(turn)
        for k, frame in enumerate(frames):
            picture = av.VideoFrame.from_ndarray(frame, format="rgb24")
            picture.pts = pts[k] if pts else k
            picture.time_base = Fraction(1, 1000) if pts else Fraction(1, rate)
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    return path


# ---- lossless ------------------------------------------------------------------------------------------------------

@settings(max_examples=15, deadline=None)
@given(t=st.integers(1, 5), h=st.integers(2, 40), w=st.integers(2, 40), seed=st.integers(0, 99))
def test_lossless_files_read_back_bit_for_bit(tmp_path_factory, t, h, w, seed):
    path = tmp_path_factory.mktemp("v") / "noise.mkv"
    frames = np.random.default_rng(seed).integers(0, 256, (t, h, w, 3), dtype=np.uint8)
    video.write_lossless(path, frames, 25)
    back = video.read(path)
    assert np.array_equal(back.frames, frames)
    assert back.fps == 25


def test_the_same_frames_give_the_same_bytes_without_metadata(tmp_path):
    frames = [patches(64, 64, k) for k in range(20)]
    video.write_lossless(tmp_path / "a.mkv", frames, 25)
    video.write_lossless(tmp_path / "b.mkv", iter(frames), 25)
    data = (tmp_path / "a.mkv").read_bytes()
    assert data == (tmp_path / "b.mkv").read_bytes()
    assert b"a.mkv" not in data
    with av.open(str(tmp_path / "a.mkv")) as container:
        assert not {"title", "creation_time", "comment"} & set(container.metadata)
        assert container.metadata.get("encoder", "Lavf") == "Lavf"  # a bare name: no version
        assert len(container.streams) == 1 and "ENCODER" not in container.streams[0].metadata


# ---- H.264 ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["a.mp4", "a.mov", "a.mkv"])
@pytest.mark.parametrize("size", [(64, 48), (65, 47)])
def test_h264_keeps_size_rate_count_and_colours(tmp_path, name, size):
    frames = [patches(*size, k) for k in range(7)]
    with video.Writer(tmp_path / name, Fraction(30000, 1001)) as writer:
        for frame in frames:
            writer.write(frame)
    info, back = video.probe(tmp_path / name), video.read(tmp_path / name).frames
    assert (info.width, info.height) == size
    assert (info.fps, info.frames, info.codec) == (Fraction(30000, 1001), 7, "h264")
    assert not info.variable_fps and not info.truncated
    error = np.abs(back.astype(int) - np.stack(frames))
    assert np.median(error) <= 2 and error.mean() < 4  # visually lossless on flat colours


@pytest.mark.parametrize("name, lossless", [("a.mkv", True), ("a.mp4", False), ("a.mov", False), ("b.mkv", False)])
@pytest.mark.parametrize("matrix", [(0, 1, -1, 0), (-1, 0, 0, -1), (0, -1, 1, 0), (-1, 0, 0, 1), (0, 1, 1, 0)])
def test_rotation_and_mirroring_survive_a_round_trip(tmp_path, name, lossless, matrix):
    frame = patches(64, 32)
    with video.Writer(tmp_path / name, 25, lossless=lossless, matrix=matrix) as writer:
        writer.write(frame)
    info, back = video.probe(tmp_path / name), video.read(tmp_path / name).frames[0]
    assert info.matrix == matrix
    assert (info.width, info.height) == (64, 32)
    assert ((info.coded_width, info.coded_height) == (32, 64)) == (matrix[0] == 0)
    assert np.median(np.abs(back.astype(int) - frame)) <= (0 if lossless else 3)


@pytest.mark.parametrize("turn, quarter", [(90, 1), (180, 2), (270, 3)])
def test_a_rotated_file_comes_out_upright(tmp_path, turn, quarter):
    stored = patches(64, 48)
    path = encode(tmp_path / "r.mp4", [stored] * 3, turn=turn)
    info, back = video.probe(path), video.read(path).frames
    upright = np.rot90(stored, quarter)  # np.rot90 turns counter-clockwise, as the display matrix's angle does
    assert info.rotation == turn
    assert back.shape[1:] == upright.shape
    assert np.median(np.abs(back[0].astype(int) - upright)) <= 3
    with av.open(str(path)) as container:
        assert next(container.decode(video=0)).rotation % 360 == turn  # PyAV's own reading


# ---- pixel formats -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("codec, pix_fmt, name", [
    ("libx264", "yuv420p10le", "ten.mp4"), ("libx264", "yuvj420p", "full.mp4"), ("libx264", "yuv444p", "s.mkv"),
    ("ffv1", "bgra", "alpha.mkv"), ("ffv1", "yuv422p10le", "ten.mkv"), ("mpeg4", "yuv420p", "m.avi"),
    ("libvpx-vp9", "yuv420p", "v.webm"), ("flv", "yuv420p", "f.flv")])
def test_pixel_formats_become_8_bit_rgb(tmp_path, codec, pix_fmt, name):
    frames = [patches(64, 48)] * 4
    back = video.read(encode(tmp_path / name, frames, codec=codec, pix_fmt=pix_fmt)).frames
    assert back.shape == (4, 48, 64, 3) and back.dtype == np.uint8
    assert np.median(np.abs(back.astype(int) - np.stack(frames))) <= 12


@pytest.mark.parametrize("pix_fmt", ["gray", "gray10le"])
def test_greyscale_becomes_grey_rgb(tmp_path, pix_fmt):
    back = video.read(encode(tmp_path / "g.mkv", [patches(64, 48)] * 2, codec="ffv1", pix_fmt=pix_fmt)).frames
    luma = patches(64, 48) @ np.array([0.299, 0.587, 0.114])
    assert np.array_equal(back[..., 0], back[..., 1]) and np.array_equal(back[..., 1], back[..., 2])
    assert np.abs(back[0, ..., 0] - luma).max() <= 3


# ---- time ----------------------------------------------------------------------------------------------------------

def stamped(count: int) -> list[np.ndarray]:
    return [np.full((16, 16, 3), k, np.uint8) for k in range(count)]


def shown(path: Path, fps) -> list[int]:
    return [int(frame[0, 0, 0]) for frame in video.iter_frames(path, fps=fps)]


@pytest.mark.parametrize("rate, fps", [(25, 25), (30, 30), (24, 24), (50, 25), (25, 50), (30, 25), (24, 25), (10, 25)])
def test_constant_rate_shows_the_latest_frame_at_or_before_each_instant(tmp_path, rate, fps):
    video.write_lossless(tmp_path / "c.mkv", stamped(30), rate)  # Matroska rounds times to 1 ms
    expected = [min(n * rate // fps, 29) for n in range(-(-30 * fps // rate))]
    assert shown(tmp_path / "c.mkv", fps) == expected


def test_variable_rate_is_seen_and_resampled_by_presentation_time(tmp_path):
    pts = [0, 40, 80, 400, 440, 1000]
    path = encode(tmp_path / "vfr.mkv", stamped(6), codec="ffv1", pix_fmt="bgr0", pts=pts)
    info = video.probe(path)
    assert info.variable_fps and info.frames == 6
    times = [time for time, _ in video.iter_timed(path)]
    assert times == [Fraction(p, 1000) for p in pts]
    found = shown(path, 25)
    assert found[:27] == [max(k for k, p in enumerate(pts) if p <= n * 40) for n in range(26)] + found[26:27]
    with video.Writer(tmp_path / "again.mp4", info.fps, timed=True) as writer:
        for time, frame in video.iter_timed(path):
            writer.write(frame, time)
    again = [float(time) for time, _ in video.iter_timed(tmp_path / "again.mp4")]
    assert again == pytest.approx([p / 1000 for p in pts], abs=1e-3)


# ---- damaged files -------------------------------------------------------------------------------------------------

def test_truncated_files_raise_and_what_is_there_can_be_had(tmp_path):
    noise = np.random.default_rng(1).integers(0, 256, (30, 32, 32, 3), dtype=np.uint8)
    video.write_lossless(tmp_path / "whole.mkv", noise, 25)
    with video.Writer(tmp_path / "whole.mp4", 25) as writer:
        for frame in noise:
            writer.write(frame)
    data = (tmp_path / "whole.mp4").read_bytes()
    moov = data.index(b"moov") - 4
    encode(tmp_path / "whole.avi", list(noise), codec="mpeg4")
    for name in ("whole.mkv", "whole.avi"):
        whole = (tmp_path / name).read_bytes()
        cut = tmp_path / f"cut{Path(name).suffix}"
        cut.write_bytes(whole[: len(whole) * 6 // 10])
        with pytest.raises(DataError, match="damaged after|cannot be read"):
            video.read(cut)
        assert 1 <= len(video.read(cut, allow_truncated=True)) < 30
        assert video.probe(cut).truncated
    (tmp_path / "nomoov.mp4").write_bytes(data[:moov])
    with pytest.raises(DataError, match="moov"):
        video.probe(tmp_path / "nomoov.mp4")


def test_an_mp4_cut_behind_its_index_is_seen(tmp_path):
    noise = np.random.default_rng(1).integers(0, 256, (30, 64, 64, 3), dtype=np.uint8)
    path = encode(tmp_path / "whole.mp4", list(noise), options={"movflags": "faststart"})
    data = path.read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")  # else this tests nothing
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(data[: len(data) * 2 // 3])
    assert video.probe(cut).truncated and not video.probe(path).truncated
    with pytest.raises(DataError, match="damaged after"):
        list(video.iter_frames(cut, fps=25))
    assert 1 <= len(list(video.iter_frames(cut, fps=25, allow_truncated=True))) < 30


def test_a_wrong_frame_count_in_the_header_is_not_believed(tmp_path):
    path = encode(tmp_path / "w.avi", [patches(64, 48, k) for k in range(12)], codec="mpeg4")
    data = bytearray(path.read_bytes())
    for tag, offset in ((b"avih", 8 + 16), (b"strh", 8 + 32)):
        at = data.index(tag) + offset
        assert struct.unpack_from("<I", data, at)[0] == 12
        struct.pack_into("<I", data, at, 500)
    path.write_bytes(data)
    info = video.probe(path, count=True)
    assert (info.frames, info.frames_from) == (12, "decoded")
    assert len(video.read(path)) == 12 == video.count_frames(path)


def no_frames(path: Path) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width = stream.height = 32
        stream.pix_fmt = "yuv420p"
        container.start_encoding()


@pytest.mark.parametrize("make", [
    pytest.param(lambda p: None, id="missing"), pytest.param(lambda p: p.mkdir(), id="folder"),
    pytest.param(lambda p: p.write_bytes(b""), id="empty"), pytest.param(no_frames, id="zero frames"),
    pytest.param(lambda p: p.write_text("These are notes, not a video.\n" * 200), id="text"),
    pytest.param(lambda p: p.write_text("#EXTM3U\n#EXTINF:1,\nother.mp4\n"), id="playlist"),
    pytest.param(lambda p: Image.new("RGB", (64, 64)).save(p, "PNG"), id="picture")])
def test_what_is_no_video_gives_a_clear_error(tmp_path, make):
    path = tmp_path / "x.mp4"
    make(path)
    for call in (video.probe, video.read, video.count_frames):
        with pytest.raises(DataError) as caught:
            call(path)
        assert str(path) in caught.value.what and caught.value.remedy


def test_sound_alone_is_no_video(tmp_path):
    path = tmp_path / "sound.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    with pytest.raises(DataError, match="no video"):
        video.probe(path)


@pytest.mark.parametrize("name", ["-rf.mkv", "two words.mkv", "été à Łódź.mkv", "http:x.mkv", "%03d.mkv", "顔.mkv"])
def test_any_name_works(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    frames = [patches(16, 16)]
    video.write_lossless(Path(name), frames, 25)  # a relative path, so that the name really begins with its dash
    assert np.array_equal(video.read(Path(name)).frames[0], frames[0])
    assert video.probe(Path(name)).frames == 1


# ---- writing fails -------------------------------------------------------------------------------------------------

class FullDisk:
    def __init__(self, path):
        self._file = path.open("wb+")

    def write(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    def __getattr__(self, name):
        return getattr(self._file, name)


@pytest.mark.parametrize("name, lossless", [("a.mkv", True), ("a.mp4", False)])
def test_a_full_disk_is_a_user_error_and_leaves_nothing(tmp_path, monkeypatch, name, lossless):
    (tmp_path / name).write_bytes(b"older")
    monkeypatch.setattr(bench.video_out, "_open_part", FullDisk)
    noise = np.random.default_rng(0).integers(0, 256, (60, 64, 64, 3), dtype=np.uint8)
    with pytest.raises(EnvironmentFault, match="No space left") as caught:
        with video.Writer(tmp_path / name, 25, lossless=lossless) as writer:
            for frame in noise:
                writer.write(frame)
    assert isinstance(caught.value, UserError)
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == b"older"


def test_an_exception_in_the_block_leaves_no_file(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        with video.Writer(tmp_path / "a.mp4", 25) as writer:
            writer.write(patches(16, 16))
            raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_suffix_that_cannot_hold_the_video_is_refused(tmp_path):
    for name, lossless in (("a.gif", False), ("a", False), ("a.mp4", True)):
        with pytest.raises(ConfigError, match="suffix"):
            video.Writer(tmp_path / name, 25, lossless=lossless)
    with pytest.raises(ValueError, match="one size"):
        video.write_lossless(tmp_path / "a.mkv", [patches(16, 16), patches(18, 16)], 25)
    with pytest.raises(ValueError, match="no frame"):
        video.write_lossless(tmp_path / "a.mkv", [], 25)
    assert list(tmp_path.iterdir()) == []


# ---- pictures ------------------------------------------------------------------------------------------------------

def test_png_and_strip(tmp_path):
    frames = [patches(20, 10), patches(30, 10)]
    video.write_png(tmp_path / "new" / "a.png", frames[0])
    video.write_strip(tmp_path / "s.png", frames, gap_px=2)
    with Image.open(tmp_path / "new" / "a.png") as image:
        assert np.array_equal(np.asarray(image), frames[0]) and not image.info
    with Image.open(tmp_path / "s.png") as image:
        strip = np.asarray(image)
    assert strip.shape == (10, 52, 3)
    assert np.array_equal(strip[:, :20], frames[0]) and np.array_equal(strip[:, 22:], frames[1])
    assert (strip[:, 20:22] == 255).all()
