"""Writing video files with PyAV. Public names are taken from bench.video.

A file is written aside and renamed when whole. It carries no sound and no metadata (no title, no time of creation,
no encoder version), and the same frames give the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any

import av
import numpy as np
from av.codec.context import Flags
from av.video.reformatter import VideoReformatter

from bench.errors import ConfigError
from bench.pictures import IDENTITY, Matrix, cannot_write, full_matrix, turn_back

FORMATS = {".mp4": "mp4", ".m4v": "mp4", ".mov": "mov", ".mkv": "matroska"}  # what can be written, by suffix
CRF = "17"  # constant rate factor of H.264: 0 lossless .. 51; 17 is taken for visually lossless
_CLOCK = Fraction(1, 90_000)  # time base for frames that carry their own times


class Writer:
    """Writes upright frames uint8 (H, W, 3) one at a time; use it in a `with` block.

    fps: constant rate (kept as a Fraction).  lossless: FFV1 in .mkv, bit-exact on reading back; else H.264 in .mp4,
    .m4v, .mov or .mkv (4:2:0, or 4:4:4 when a side is odd, since 4:2:0 has only even sides).
    matrix: VideoInfo.matrix; frames are stored turned back by it and the file says so, as the input did.
    timed: each `write` gives the frame's presentation time in seconds (variable frame rate).

    Leaving the block by an exception leaves no file. Raises ConfigError for a suffix that cannot hold the video,
    EnvironmentFault for a full disk or a folder that cannot be written, ValueError for frames of another shape.
    """

    def __init__(self, path: Path, fps: float | Fraction, *, lossless: bool = False, matrix: Matrix = IDENTITY,
                 timed: bool = False, threads: int = 1):
        self.path, self.frames = Path(path), 0
        kind = FORMATS.get(self.path.suffix.lower())
        if kind is None or (lossless and kind != "matroska"):
            known = ".mkv" if lossless else ", ".join(FORMATS)
            raise ConfigError(f"{self.path} cannot hold {'FFV1' if lossless else 'H.264'} video.",
                              "The suffix of the output chooses its container.", f"End its name in {known}.")
        self._fps = Fraction(fps).limit_denominator(100_000)
        self._lossless, self._matrix, self._timed, self._threads = lossless, matrix, timed, threads
        self._scale, self._size, self._last = VideoReformatter(), (0, 0), -1
        self._stream: Any = None
        self._part = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")
        self._file: Any = None
        self._container: Any = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = _open_part(self._part)
            self._container = av.open(self._file, "w", format=kind, options={"fflags": "+bitexact"})
        except OSError as error:
            self._abandon()
            raise cannot_write(self.path, error) from error

    def write(self, frame: np.ndarray, time: Fraction | None = None) -> None:
        """Append one frame; `time` only when the writer is timed."""
        stored = np.ascontiguousarray(turn_back(frame, self._matrix))
        if stored.dtype != np.uint8 or stored.ndim != 3 or (self._stream and stored.shape[:2] != self._size):
            raise ValueError(f"expected uint8 (H, W, 3) of one size {self._size}, got {frame.dtype} {frame.shape}")
        try:
            if self._stream is None:
                self._begin(*stored.shape[:2])
            picture = self._picture(stored)
            picture.pts = self.frames if time is None else max(round(time / _CLOCK), self._last + 1)
            picture.time_base = self._stream.codec_context.time_base
            self._last = picture.pts
            self._container.mux(self._stream.encode(picture))
        except (OSError, av.error.FFmpegError) as error:
            self._abandon()
            raise cannot_write(self.path, error) from error  # type: ignore[arg-type]
        self.frames += 1

    def _begin(self, height: int, width: int) -> None:
        self._size = (height, width)
        options = {"level": "3", "slices": "4"} if self._lossless else {"crf": CRF, "preset": "veryfast"}
        stream = self._container.add_stream("ffv1" if self._lossless else "libx264", rate=self._fps, options=options)
        stream.width, stream.height = width, height
        stream.pix_fmt = "bgr0" if self._lossless else "yuv444p" if width % 2 or height % 2 else "yuv420p"
        stream.codec_context.time_base = _CLOCK if self._timed else 1 / self._fps
        stream.codec_context.thread_count = self._threads
        stream.codec_context.flags |= Flags.bitexact
        if not self._lossless:
            stream.codec_context.color_range = 1  # limited, as players expect
            stream.codec_context.colorspace = stream.codec_context.color_primaries = 6  # BT.601, as converted below
            stream.codec_context.color_trc = 6
        if self._matrix != IDENTITY:
            stream.set_display_matrix(full_matrix(self._matrix))
        self._stream = stream

    def _picture(self, image: np.ndarray) -> Any:
        height, width = self._size
        if self._lossless:
            picture: Any = av.VideoFrame(width, height, "bgr0")
            pixels = np.frombuffer(memoryview(picture.planes[0]), np.uint8).reshape(height, -1, 4)[:, :width]
            pixels[..., :3], pixels[..., 3] = image[..., ::-1], 0  # B, G, R, unused
            return picture
        return self._scale.reformat(av.VideoFrame.from_ndarray(image, format="rgb24"), width, height,
                                    self._stream.pix_fmt, dst_colorspace=5, dst_color_range=1, threads=1)

    def close(self) -> None:
        """Finish the file and give it its name. A writer without frames raises ValueError and leaves nothing."""
        if self._container is None:
            return
        try:
            if self._stream is None:
                raise ValueError(f"no frame was written to {self.path}")
            self._container.mux(self._stream.encode(None))
            self._container.close()
            self._file.close()
            self._part.replace(self.path)
            self._container = None
        except (OSError, av.error.FFmpegError) as error:
            raise cannot_write(self.path, error) from error  # type: ignore[arg-type]
        finally:
            self._abandon()

    def _abandon(self) -> None:
        container, self._container = self._container, None
        try:
            if container is not None:
                container.close()
            if self._file is not None:
                self._file.close()
        except (OSError, av.error.FFmpegError):
            pass
        self._part.unlink(missing_ok=True)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self._abandon()


def _open_part(path: Path) -> Any:
    return path.open("wb+")


def write_lossless(path: Path, frames: Iterable[np.ndarray] | np.ndarray, fps: float | Fraction) -> None:
    """FFV1 .mkv of uint8 (T, H, W, 3) or of an iterable of frames: bit-exact on reading back, same bytes each time."""
    with Writer(path, fps, lossless=True) as writer:
        for frame in frames:
            writer.write(frame)
