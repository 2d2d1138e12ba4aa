"""Where every face of a video is, frame by frame, from detections on some of the frames: used by `veilbench release`.

Detection runs on key frames; the frames between two key frames that agree get interpolated boxes; where two disagree
the frame in the middle is looked at, and so on. Boxes are joined to tracks by overlap. A track's box is kept for
`reach` frames before its first and after its last detection and across gaps, so that a face that the detector loses
for a moment stays covered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.detect import iou

STRIDE = 8  # frames from one key frame to the next, at most
_MOVED = 0.15  # share of a face's size that it may move between two key frames that agree
_JOIN_IOU = 0.2  # a detection that overlaps less with every track begins a new one
_SURE_PROB, _SURE_HITS = 0.9, 3  # either makes a track count as a face; until then it is covered but proves nothing
_HELD_GROWTH = 1.25  # a box kept without a later or earlier one is enlarged by this

Detect = Callable[[np.ndarray], list[np.ndarray]]


class KeyframeDetector:
    """Boxes for every frame of a stream that arrives in segments, from detection on some."""

    def __init__(self, detect: Detect, stride: int = STRIDE):
        self._detect, self._stride = detect, stride
        self._last: np.ndarray | None = None

    def analyse(self, frames: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The next frames of the stream, each uint8 (H, W, 3) -> one float64 (n, 5) each."""
        count = len(frames)
        first = set() if self._last is not None else {0}
        keys = sorted(first | {*range(self._stride - 1, count, self._stride), count - 1})
        boxes = dict(zip(keys, self._look(frames, keys), strict=True))
        if self._last is not None:
            boxes[-1] = self._last
        spans = _spans(boxes)
        while doubtful := [(a + b) // 2 for a, b in spans if b - a > 1 and _match(boxes[a], boxes[b]) is None]:
            boxes.update(zip(doubtful, self._look(frames, doubtful), strict=True))
            spans = _spans(boxes)
        for a, b in spans:
            match = _match(boxes[a], boxes[b])
            for i in range(a + 1, b):
                share = (i - a) / (b - a)
                boxes[i] = (1 - share) * boxes[a] + share * boxes[b][match]
        self._last = boxes[count - 1]
        return [boxes[i] for i in range(count)]

    def _look(self, frames: Sequence[np.ndarray], indices: Sequence[int]) -> list[np.ndarray]:
        return self._detect(np.stack([frames[i] for i in indices])) if len(indices) else []


def _spans(boxes: dict[int, np.ndarray]) -> list[tuple[int, int]]:
    """Neighbouring frames that have been looked at."""
    looked = sorted(boxes)
    return list(zip(looked, looked[1:], strict=False))


def _match(before: np.ndarray, after: np.ndarray) -> np.ndarray | None:
    """Indices that put `after` (n, 5) in the order of `before`, or None when faces came, went or moved too far."""
    if len(before) != len(after):
        return None
    order: list[int] = []
    for box in before:
        best = int(np.argmax(iou(box, after)))
        size = max(box[2] - box[0], box[3] - box[1])
        if best in order or np.abs(after[best, :4] - box[:4]).max() > _MOVED * size:
            return None
        order.append(best)
    return np.asarray(order, int)


@dataclass
class Track:
    """One face through time. boxes: frame index -> (4,); only the recent ones are kept."""

    id: int
    boxes: dict[int, np.ndarray] = field(default_factory=dict)
    hits: int = 0
    best: float = 0.0

    @property
    def sure(self) -> bool:
        """Is it a face beyond doubt? A single weak detection may be a shadow."""
        return self.best >= _SURE_PROB or self.hits >= _SURE_HITS

    def at(self, index: int, reach: int) -> tuple[np.ndarray, bool] | None:
        """(box (4,), whether it was seen there) at a frame; None when it was not seen within `reach` frames."""
        if index in self.boxes:
            return self.boxes[index], True
        before = max((i for i in self.boxes if index - reach <= i < index), default=None)
        after = min((i for i in self.boxes if index < i <= index + reach), default=None)
        if before is None and after is None:
            return None
        if before is None or after is None:
            return _enlarge(self.boxes[after if before is None else before]), False  # type: ignore[index]
        one, two = self.boxes[before], self.boxes[after]
        return np.concatenate([np.minimum(one[:2], two[:2]), np.maximum(one[2:], two[2:])]), False  # hull of both


def _enlarge(box: np.ndarray) -> np.ndarray:
    middle, half = (box[:2] + box[2:]) / 2, _HELD_GROWTH * (box[2:] - box[:2]) / 2
    return np.concatenate([middle - half, middle + half])


class Tracker:
    """Joins boxes to tracks by greatest overlap. Frames come in order; `reach` is how long a lost face is kept."""

    def __init__(self, reach: int):
        self.reach, self.count = reach, 0
        self.tracks: list[Track] = []
        self._sure: set[int] = set()

    @property
    def sure(self) -> int:
        """Number of faces beyond doubt so far."""
        return len(self._sure)

    def add(self, index: int, boxes: np.ndarray) -> None:
        """The boxes (n, 5) of the next frame."""
        free = {track.id: track for track in self.tracks if index - max(track.boxes) <= self.reach}
        pairs = sorted(((float(overlap), track.id, k) for track in free.values() if len(boxes)
                        for k, overlap in enumerate(iou(track.boxes[max(track.boxes)], boxes))), reverse=True)
        taken: set[int] = set()
        for overlap, identifier, k in pairs:
            if overlap >= _JOIN_IOU and identifier in free and k not in taken:
                self._extend(free.pop(identifier), index, boxes[k])
                taken.add(k)
        for k in range(len(boxes)):
            if k not in taken:
                self.tracks.append(Track(self.count))
                self.count += 1
                self._extend(self.tracks[-1], index, boxes[k])

    def _extend(self, track: Track, index: int, box: np.ndarray) -> None:
        track.boxes[index] = box[:4].copy()
        track.hits += 1
        track.best = max(track.best, float(box[4]))
        if track.sure:
            self._sure.add(track.id)

    def at(self, index: int) -> list[tuple[Track, np.ndarray, bool]]:
        """(track, box, seen) of every track that is live at a frame."""
        found = [(track, track.at(index, self.reach)) for track in self.tracks]
        return [(track, *place) for track, place in found if place is not None]

    def forget(self, before: int) -> None:
        """Drop boxes that no frame from `before` on can need."""
        for track in self.tracks:
            newest = max(track.boxes)
            track.boxes = {i: box for i, box in track.boxes.items() if i >= before - self.reach or i == newest}
        self.tracks = [track for track in self.tracks if max(track.boxes) >= before - self.reach]
