"""A video file as isolated chunks: two frames a second, four to a chunk, each read by experts made for it alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from bench.data.camera.experts import Camera, drift_px, read_chunk
from bench.errors import DataError
from bench.traffic import CHUNK_FRAMES, CHUNK_S, EXPERTS, FPS, WINDOW_CHUNKS, WINDOW_S
from bench.video import VideoInfo, iter_frames, probe

MOVED_PX = 2.0  # further than this from the public view, the camera moves
_OFTEN = 0.5  # in more than this share of the chunks that are looked at
_LOOK = 5  # at every fifth chunk


@dataclass(frozen=True)
class Footage:
    """What the experts read in one video. steps: int16 (chunks, 12), whole chunks only.

    failed: {expert: chunks in which it gave the fixed vector}.  notes: sentences for whoever owns the video. Both tell
    of the protected video and never leave its owner's hands.
    """

    steps: np.ndarray
    failed: dict[str, int]
    notes: tuple[str, ...]


def usable(path: Path, camera: Camera) -> VideoInfo:
    """Facts of a file that can be read. Raises DataError for one that is no whole video, is shorter than a window, or
    has another size than the public pictures of its camera.
    """
    info = probe(path)
    if info.truncated:
        raise DataError(f"{path} is cut short: its header announces more than the file holds.", "",
                        "Copy or convert the file again.")
    if float(info.duration) < WINDOW_S - 0.5 / FPS:
        raise DataError(f"{path} lasts {float(info.duration):.1f} s.",
                        f"A report covers a window of {WINDOW_S:g} s, and a shorter one would have another noise.",
                        "Bring a longer video.")
    if camera.empty is not None and camera.empty.shape[1:3] != (info.height, info.width):
        high, wide = camera.empty.shape[1:3]
        raise DataError(f"{path} is {info.width} x {info.height} px, the public pictures are {wide} x {high}.",
                        "The background is compared pixel by pixel.", "Bring pictures of the very same view and size.")
    return info


def read_video(path: Path, camera: Camera, report: Callable[[str], None] = lambda text: None) -> Footage:
    """Read a file chunk by chunk; four frames are in memory. Raises DataError as `usable` does."""
    path = Path(path)
    info = usable(path, camera)
    steps, failed, looked = [], Counter[str](), []
    still = None if camera.empty is None else camera.plain.astype(np.uint8)
    for number, frames in enumerate(chunks(path)):
        still = frames[0] if still is None else still
        reading = read_chunk(frames, camera)
        steps.append(reading.steps)
        failed.update(reading.failed)
        if number % _LOOK == 0:
            looked.append(drift_px(frames[0], still) > MOVED_PX)
        if (number + 1) % WINDOW_CHUNKS == 0:
            report(f"{path.name}: {number + 1} chunks read")
    if len(steps) < WINDOW_CHUNKS:
        raise DataError(f"{path} has {len(steps)} whole chunks of {CHUNK_S:g} s.",
                        f"A report covers {WINDOW_CHUNKS}.", "Bring a longer video.")
    return Footage(np.stack(steps), dict(failed), tuple(_notes(path.name, info, camera, failed, len(steps), looked)))


def chunks(path: Path) -> Iterator[np.ndarray]:
    """Whole chunks of a file, uint8 (4, H, W, 3); what is left over is dropped."""
    frames = iter_frames(path, fps=FPS)
    while len(chunk := list(islice(frames, CHUNK_FRAMES))) == CHUNK_FRAMES:
        yield np.stack(chunk)


def _notes(name: str, info: VideoInfo, camera: Camera, failed: Counter[str], count: int,
           looked: list[bool]) -> Iterator[str]:
    if info.fps != FPS or info.variable_fps:
        repeated = ", so that frames repeat and what moves may seem to stand" if info.fps < FPS else ""
        yield f"{name} has {float(info.fps):.4g} frames a second and is read at {FPS:g}{repeated}."
    if count % WINDOW_CHUNKS:
        yield f"The last {count % WINDOW_CHUNKS} chunks of {name} fill no window and are dropped."
    if np.mean(looked) > _OFTEN:
        yield f"WARNING: the camera of {name} seems to move: more than {MOVED_PX:g} px in {sum(looked)} of " \
              f"{len(looked)} pictures. A frozen background then counts what is not there; use a fixed camera."
    for expert, chunks_ in sorted(failed.items()):
        yield f"The expert {expert} failed in {chunks_} of {count} chunks of {name}; they count as nothing seen."
    if missing := [e.name for e in EXPERTS if e.name not in camera.reads]:
        yield f"Not read, and missing in every report: {', '.join(missing)}."
