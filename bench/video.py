"""Video files and images: the owner of PyAV (bench.video_out writes). Frames are uint8 (H, W, 3) RGB, upright.

Reading streams: memory does not grow with a file's length. Whatever the file holds (greyscale, 10 bits, alpha,
odd sizes, variable frame rate) comes out as 8-bit RGB; alpha is dropped, not blended. Writing goes to a file aside
that is renamed when whole, carries no sound and no metadata, and the same frames give the same bytes.

A file that cannot be used raises DataError (what, why, remedy); a disk that is full raises EnvironmentFault and
leaves nothing half-written.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.video.reformatter import VideoReformatter

from bench.errors import DataError
from bench.pictures import IDENTITY, Matrix, degrees, matrix_of, turn, write_png, write_strip
from bench.types import Video
from bench.video_out import FORMATS, Writer, write_lossless

__all__ = ["FORMATS", "VideoInfo", "Writer", "count_frames", "iter_frames", "iter_timed", "probe", "read",
           "write_lossless", "write_png", "write_strip"]

_DEMUXERS = "mov,mp4,matroska,webm,avi,flv,mpegts,mpeg,mpegvideo,asf,ogg,mxf,h264,hevc,ivf,y4m,yuv4mpegpipe,gif"
_HALF_FRAME = Fraction(1, 2)  # a header that announces less than this more than there is, is believed to be whole
_MAX_ROUNDING = Fraction(1, 1000)  # containers round time stamps to 1 ms at worst


@dataclass(frozen=True)
class VideoInfo:
    """What a file says about its video. Sizes in pixels, times in seconds.

    width, height: upright, as shown.  coded_width, coded_height: as stored.  fps: average rate.
    frames: number of frames; frames_from: "packets" (counted without decoding) or "decoded".
    header_frames: what the header says, 0 when it says nothing.  rotation: 0, 90, 180 or 270 degrees
    counter-clockwise that a player turns the stored picture by.  matrix: that turn and any mirroring, (a, b, c, d)
    of the display matrix.  truncated: the file ends before its header says.
    """

    width: int
    height: int
    coded_width: int
    coded_height: int
    fps: Fraction
    frames: int
    frames_from: str
    header_frames: int
    rotation: int
    matrix: Matrix
    pix_fmt: str
    codec: str
    variable_fps: bool
    has_audio: bool
    duration: Fraction
    truncated: bool


# ---- reading -------------------------------------------------------------------------------------------------------

def probe(path: Path, *, count: bool = False) -> VideoInfo:
    """Facts of a file: its packets are listed and one frame is decoded; `count` decodes all of them.

    Raises DataError when the file is missing, is no video, or holds no frame that decodes.
    """
    path = Path(path)
    with _open(path) as (container, stream):
        first = _first_frame(container, stream, path)
        codec = stream.codec_context
        pix_fmt, name = codec.pix_fmt or first.format.name, codec.name
        audio, rate = bool(container.streams.audio), _rate(stream)
    with _open(path) as (container, stream):
        times, end, packets = _packet_times(container, stream, rate)
        truncated = _is_short(path, container, stream, packets, end, rate)
        header = stream.frames
    frames = sum(1 for _ in iter_timed(path, allow_truncated=True)) if count else packets
    matrix = _matrix(first)
    width, height = (first.height, first.width) if matrix[0] == 0 else (first.width, first.height)
    return VideoInfo(width=width, height=height, coded_width=first.width, coded_height=first.height, fps=rate,
                     frames=frames, frames_from="decoded" if count else "packets", header_frames=header,
                     rotation=degrees(matrix), matrix=matrix, pix_fmt=pix_fmt, codec=name,
                     variable_fps=_varies(times, rate, stream.time_base), has_audio=audio, duration=end,
                     truncated=truncated)


def count_frames(path: Path) -> int:
    """Frames that really decode, whatever the header says."""
    return sum(1 for _ in iter_timed(path, allow_truncated=True))


def read(path: Path, *, allow_truncated: bool = False) -> Video:
    """A whole small file: Video with frames uint8 (T, H, W, 3) and the average rate. Raises DataError."""
    frames, rate = [], Fraction(25)
    with _open(Path(path)) as (container, stream):
        rate = _rate(stream)
        for _, frame in _decode(Path(path), container, stream, rate, allow_truncated):
            frames.append(frame)
    return Video(np.stack(frames), float(rate))  # (T, H, W, 3)


def iter_timed(path: Path, *, allow_truncated: bool = False, threads: int = 1) -> Iterator[tuple[Fraction, np.ndarray]]:
    """Every frame with its presentation time in seconds (the first is 0), one at a time.

    allow_truncated: end quietly where a damaged file ends, if at least one frame came; else DataError is raised at
    that point. Raises DataError when no frame decodes.
    """
    path = Path(path)
    with _open(path, threads) as (container, stream):
        yield from _decode(path, container, stream, _rate(stream), allow_truncated)


def iter_frames(path: Path, *, fps: float | Fraction | None = None, allow_truncated: bool = False,
                threads: int = 1) -> Iterator[np.ndarray]:
    """Every frame uint8 (H, W, 3), or frames at a constant rate when `fps` is given.

    At the constant rate, frame n is the latest one presented at or before n / fps, the last frame lasts as long as
    its neighbours, and a file of N frames at rate F gives ceil(N fps / F) frames.
    """
    if fps is None:
        yield from (frame for _, frame in iter_timed(path, allow_truncated=allow_truncated, threads=threads))
        return
    path, step = Path(path), 1 / Fraction(fps).limit_denominator(100_000)
    with _open(path, threads) as (container, stream):
        rate = _rate(stream)
        slack = min(stream.time_base or _MAX_ROUNDING, _MAX_ROUNDING)
        held, held_time, n = None, Fraction(0), 0
        for time, frame in _decode(path, container, stream, rate, allow_truncated):
            while held is not None and n * step + slack < time:
                yield held
                n += 1
            held, held_time = frame, time
        end = held_time + 1 / rate
        while held is not None and (n == 0 or n * step + slack < end):
            yield held
            n += 1


@contextmanager
def _open(path: Path, threads: int = 1) -> Iterator[tuple[Any, Any]]:
    if not path.exists():
        raise DataError(f"There is no video file {path}.", "", "Check the path.")
    if path.is_dir():
        raise DataError(f"{path} is a folder, not a video file.", "", "Give the path of one file.")
    try:
        container = av.open(str(path.absolute()), options={"format_whitelist": _DEMUXERS, "protocol_whitelist": "file"})
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    with container:
        if not container.streams.video or container.streams.video[0].codec_context is None:
            raise DataError(f"{path} holds no video that can be decoded.", "It may hold sound only.",
                            "Give a file with a video stream, or leave it out of the folder.")
        stream = container.streams.video[0]
        stream.codec_context.thread_count = threads
        if threads > 1:
            stream.thread_type = "AUTO"
        yield container, stream


def _unreadable(path: Path, error: Exception) -> DataError:
    head = b""
    if os.access(path, os.R_OK):
        with path.open("rb") as file:
            head = file.read(64)
    if not head:
        why = "It is empty." if os.access(path, os.R_OK) else "Reading it is not permitted."
    elif head[4:8] in (b"ftyp", b"mdat", b"free", b"wide"):
        why = "It looks like an MP4 whose index (moov atom) is missing: the recording or the copy was cut short."
    else:
        why = f"Its content is no video format we know ({getattr(error, 'strerror', None) or type(error).__name__})."
    return DataError(f"{path} cannot be read as a video.", why, "Copy or convert the file again, or leave it out.")


def _rate(stream: Any) -> Fraction:
    for rate in (stream.average_rate, stream.guessed_rate, stream.base_rate):
        if rate and 0 < rate <= 1000:
            return Fraction(rate)
    return Fraction(25)


def _first_frame(container: Any, stream: Any, path: Path) -> Any:
    try:
        for frame in container.decode(stream):
            return frame
    except av.error.FFmpegError:
        pass
    raise _no_frames(path)


def _no_frames(path: Path) -> DataError:
    return DataError(f"{path} holds no frame that can be decoded.", "It has zero frames, or is damaged from the start.",
                     "Copy or convert the file again, or leave it out.")


def _decode(path: Path, container: Any, stream: Any, rate: Fraction,
            allow_truncated: bool) -> Iterator[tuple[Fraction, np.ndarray]]:
    """(time, upright RGB frame) of every frame; a damaged end raises DataError unless it is allowed."""
    convert, start, last, end, frames, packets = _Converter(), None, Fraction(-1), Fraction(0), 0, 0
    fault = ""
    try:
        for packet in container.demux(stream):
            packets += bool(packet.size)
            for frame in packet.decode():
                time = frame.pts * frame.time_base if frame.pts is not None else last + 1 / rate
                start = time if start is None else start
                last = max(time - start, last)
                end = last + max(1 / rate, (frame.duration or 0) * (frame.time_base or 0))
                frames += 1
                yield last, convert(frame)
    except av.error.FFmpegError as error:
        fault = f"decoding stops with '{error.strerror}'"
    if frames == 0:
        raise _no_frames(path)
    if not fault and _is_short(path, container, stream, packets, end, rate):
        fault = "the file ends before its header says"
    if fault and not allow_truncated:
        raise DataError(f"{path} is damaged after {frames} frames: {fault}.", "A part of the recording is missing.",
                        "Copy or convert the file again, or leave it out.")


class _Converter:
    """Frames of one file to upright RGB uint8 (H, W, 3); all get the size of the first."""

    def __init__(self):
        self._scale, self._size, self._matrix = VideoReformatter(), (0, 0), IDENTITY

    def __call__(self, frame: Any) -> np.ndarray:
        if not self._size[0]:
            self._size, self._matrix = (frame.width, frame.height), _matrix(frame)
        width, height = self._size
        if frame.format.name == "bgr0" and (frame.width, frame.height) == self._size:
            image: Any = np.frombuffer(frame.planes[0], np.uint8).reshape(height, -1, 4)[:, :width, 2::-1]
        else:
            image = self._scale.reformat(frame, width, height, "rgb24", threads=1).to_ndarray()
        return np.ascontiguousarray(turn(image, self._matrix))  # (H, W, 3)


def _matrix(frame: Any) -> Matrix:
    data = frame.side_data.get("DISPLAYMATRIX")
    return matrix_of(None if data is None else bytes(data))


def _packet_times(container: Any, stream: Any, rate: Fraction) -> tuple[list[Fraction], Fraction, int]:
    """(presentation times, end of the last frame, number of packets); the first time is 0."""
    spans, packets = [], 0
    try:
        for packet in container.demux(stream):
            if packet.size:
                packets += 1
                if packet.pts is not None:
                    spans.append((packet.pts * packet.time_base, (packet.duration or 0) * packet.time_base))
    except av.error.FFmpegError:
        pass
    if not spans:
        return [], packets / rate, packets
    start = min(time for time, _ in spans)
    times = sorted(time - start for time, _ in spans)
    return times, max(time - start + max(length, 1 / rate) for time, length in spans), packets


def _varies(times: list[Fraction], rate: Fraction, tick: Fraction | None) -> bool:
    """Do the gaps between frames differ by more than the container's rounding and a tenth of a frame?"""
    gaps = np.diff(np.asarray(times, float))
    return bool(len(gaps) > 1 and gaps.max() - gaps.min() > 2 * float(tick or 0) + 0.1 / float(rate))


def _is_short(path: Path, container: Any, stream: Any, packets: int, end: Fraction, rate: Fraction) -> bool:
    """Does the file end before its own header says? Headers that are often wrong (AVI frame counts) are not asked."""
    kind = container.format.name
    if "mov" in kind:
        return packets < stream.frames
    if kind == "avi":
        with path.open("rb") as file:
            head = file.read(8)
        return 0 < struct.unpack("<I", head[4:8])[0] + 8 - path.stat().st_size
    said = _tag_seconds(stream.metadata.get("DURATION", ""))
    if said is None and container.duration:
        said = 0.9 * container.duration / av.time_base - 0.5
    return said is not None and float(end + _HALF_FRAME / rate) < said


def _tag_seconds(text: str) -> float | None:
    """Seconds of a Matroska DURATION tag such as 00:00:01.360000000; None when it is none."""
    parts = text.split(":")
    try:
        return sum(float(part) * 60 ** power for power, part in enumerate(reversed(parts))) if len(parts) == 3 else None
    except ValueError:
        return None
