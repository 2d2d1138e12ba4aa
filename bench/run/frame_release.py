"""A user's own video with its faces replaced in place: the engine of `veilbench release METHOD INPUT -o OUTPUT`.

Streams: a window of about one second and one clip is in memory, whatever the length. Every face that is found is cut
out as a square 1.3 times its box, handed to the method clip by clip, and pasted back; pixels outside the squares stay
as they were. It fails closed: a frame whose face is lost is covered from its neighbours (up to a second away), and a
frame with no face near it is greyed whole and counted, never passed through. A video without any face is refused.

What it does not promise: a second face that the detector loses for more than a second while another stays in view, or
one smaller than 20 px when the frame is scaled to 360 px, is not covered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice
from pathlib import Path

import numpy as np

from bench.detect import FaceDetector, cut, resize, square
from bench.errors import ConfigError, DataError, PluginError
from bench.run.face_tracks import STRIDE, KeyframeDetector, Tracker
from bench.types import CLIP_FRAMES
from bench.video import VideoInfo, Writer, iter_timed, probe

ProcessClip = Callable[[np.ndarray, float, tuple[str | int, ...]], np.ndarray]
Timed = tuple[Fraction, np.ndarray]

SEGMENT = 32  # frames looked at together
CANVAS_PX = (32, 256)  # smallest and largest canvas that a face is resized to
GREY = 128
_REACH_S, _MAX_REACH = 1.0, 60  # how long a lost face is kept, in seconds and at most in frames
_STRIDE_S = 0.27  # from one key frame to the next
_SHORT_SIDE_PX, _FACE_SHARE = 360, 1 / 18  # detection looks at most at this size, for faces of this share of it


@dataclass
class FrameReleaseReport:
    """What happened to a video. fps is exact; sizes in pixels, upright.

    seen: frames in which a face was found.  covered: frames covered only from neighbours.  greyed: reason -> frames
    greyed whole.  unchanged: frames whose squares the method gave back bit-identical (only `original` does).
    faces: faces that were followed.
    """

    fps: Fraction
    width: int
    height: int
    rotation: int
    frames: int = 0
    seen: int = 0
    covered: int = 0
    unchanged: int = 0
    faces: int = 0
    greyed: Counter[str] = field(default_factory=Counter)


def release_file(source: Path, output: Path, process_clip: ProcessClip, *, lossless: bool = False,
                 on_progress: Callable[[int, int], None] = lambda done, total: None) -> FrameReleaseReport:
    """Replace the faces of `source` and write `output` with the same frame count, size, fps and rotation.

    process_clip(frames uint8 (t, S, S, 3), fps, names) -> the same shape; t <= 16; S varies from face to face between
    32 and 256; `names` name the clip's randomness ("face", track, "clip", number).  on_progress(done, total frames).
    Raises DataError (unreadable, truncated, no face at all), ConfigError (output is the input, or has the wrong
    suffix), PluginError (another shape or type comes back), EnvironmentFault (disk). On any error no output is left.
    """
    source, output = Path(source), Path(output)
    info = probe(source)
    if info.truncated:
        raise DataError(f"{source} is cut short: its header announces more than the file holds.", "",
                        "Copy or convert the file again; a converted copy holds what is left of it.")
    if output.exists() and output.samefile(source):
        raise ConfigError(f"The output {output} is the input.", "The original would be lost.",
                          "Give -o another path.")
    with Writer(output, info.fps, lossless=lossless, matrix=info.matrix, timed=info.variable_fps, threads=2) as writer:
        engine = _Engine(info, writer, process_clip, on_progress)
        engine.run(iter_timed(source, threads=2))
        if engine.report.seen == 0:
            raise DataError(f"No face was found in any of the {engine.report.frames} frames of {source}.",
                            "Nothing would be hidden where a face should be, so no output is written.",
                            "Check that the video shows a face of at least a fifteenth of the picture's height.")
    return engine.report


class _Engine:
    def __init__(self, info: VideoInfo, writer: Writer, process_clip: ProcessClip,
                 on_progress: Callable[[int, int], None]):
        self.report = FrameReleaseReport(info.fps, info.width, info.height, info.rotation)
        self._info, self._writer, self._process, self._progress = info, writer, process_clip, on_progress
        self._reach = min(max(CLIP_FRAMES, round(_REACH_S * info.fps)), _MAX_REACH)
        detector = FaceDetector(short_side_px=_SHORT_SIDE_PX, face_share=_FACE_SHARE, threads=1)
        stride = int(np.clip(round(_STRIDE_S * info.fps), 1, STRIDE))
        self._keys, self._tracker = KeyframeDetector(detector.detect, stride), Tracker(self._reach)
        self._analysed, self._pending = 0, list[Timed]()

    def run(self, frames: Iterator[Timed]) -> None:
        """Segment by segment: detection looks at the next one in a thread while this one is released and coded."""
        with ThreadPoolExecutor(1) as thread:
            segment: list[Timed] = []
            boxes: Future[list[np.ndarray]] | None = None
            while following := list(islice(frames, SEGMENT)):
                next_boxes = thread.submit(self._keys.analyse, [frame for _, frame in following])
                if boxes is not None:
                    self._advance(segment, boxes.result())
                segment, boxes = following, next_boxes
            if boxes is not None:
                self._advance(segment, boxes.result())
        for start in range(0, len(self._pending), CLIP_FRAMES):
            self._emit(self._pending[start:start + CLIP_FRAMES])
        self.report.faces = self._tracker.sure

    def _advance(self, segment: list[Timed], boxes: list[np.ndarray]) -> None:
        """Take in an analysed segment; a clip leaves once a second beyond it has been analysed."""
        for found in boxes:
            self._tracker.add(self._analysed, found)
            self._analysed += 1
        self._pending += segment
        while len(self._pending) >= CLIP_FRAMES + self._reach:
            self._emit(self._pending[:CLIP_FRAMES])
            del self._pending[:CLIP_FRAMES]

    def _emit(self, clip: list[Timed]) -> None:
        start = self.report.frames
        frames = [frame for _, frame in clip]
        live = [self._tracker.at(start + k) for k in range(len(clip))]
        changed = [False] * len(clip)
        places: dict[int, dict[int, tuple[int, int, int]]] = {}  # track -> frame of the clip -> square
        for k, tracks in enumerate(live):
            for track, box, _ in tracks:
                places.setdefault(track.id, {})[k] = square(box)
        for track_id in sorted(places):
            names = ("face", track_id, "clip", start // CLIP_FRAMES)
            for k in self._replace(frames, places[track_id], names):
                changed[k] = True
        for k, tracks in enumerate(live):
            sure = [seen for track, _, seen in tracks if track.sure]
            if not sure:
                frames[k] = np.full_like(frames[k], GREY)
                self.report.greyed[f"no face within {_REACH_S:g} s"] += 1
            elif any(sure):
                self.report.seen += 1
            else:
                self.report.covered += 1
            self.report.unchanged += bool(sure) and not changed[k]
        for (time, _), frame in zip(clip, frames, strict=True):
            self._writer.write(frame, time if self._info.variable_fps else None)
        self.report.frames += len(clip)
        self._tracker.forget(self.report.frames)
        self._progress(self.report.frames, max(self._info.frames, self.report.frames))

    def _replace(self, frames: list[np.ndarray], places: dict[int, tuple[int, int, int]],
                 names: tuple[str | int, ...]) -> Iterator[int]:
        """Run the method on one face of a clip and paste it back; yields the frames whose pixels changed.

        The square is cut from what earlier faces left, so that overlapping squares never bring a face back.
        """
        canvas = int(np.clip(max(side for _, _, side in places.values()), *CANVAS_PX))
        crops = np.stack([cut(frames[k], place, canvas) for k, place in places.items()])  # (t, S, S, 3)
        crops.flags.writeable = False
        released = np.asarray(self._process(crops, float(self._info.fps), names))
        if released.shape != crops.shape or released.dtype != np.uint8:
            raise PluginError(f"The method gave back {released.dtype} {released.shape} for uint8 {crops.shape}.",
                              "A face is pasted back where it was cut out.",
                              "Let `release` return as many frames of the same size as it is given.")
        for (k, place), before, after in zip(places.items(), crops, released, strict=True):
            if not np.array_equal(before, after):
                _paste(frames[k], place, after)
                yield k


def _paste(frame: np.ndarray, place: tuple[int, int, int], image: np.ndarray) -> None:
    """Put a square back into the frame (H, W, 3), in place; what lies beyond the frame's edge is dropped."""
    x0, y0, side = place
    full = resize(image, side, side)
    x1, y1 = min(x0 + side, frame.shape[1]), min(y0 + side, frame.shape[0])
    frame[max(y0, 0):y1, max(x0, 0):x1] = full[max(-y0, 0):y1 - y0, max(-x0, 0):x1 - x0]
