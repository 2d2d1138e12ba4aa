"""Vision experts of one isolated chunk (PROTOCOL 5); the owner of OpenCV's background model and people detector.

A chunk is four frames, two a second. For each chunk all experts are made anew from what is public about the camera, so
nothing of one chunk can reach another: that is what makes "K changed chunks" true of the readings. The background is
learnt on public pictures and frozen; a model that goes on learning would carry the stream with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import cv2
import numpy as np

from bench.errors import DataError
from bench.traffic import CHUNK_FRAMES, COMPONENTS, EXPERTS, columns

PEOPLE = ("parts", "hog")
EMPTY_FRAMES = 8  # public pictures that a background is learnt on, at most
HOG_HEIGHT_PX = 576  # higher pictures are made smaller before people are looked for
_HOG_LEAST, _HOG_STEP = 0.5, 1.1  # weight of a detection, step of the scales
_FAR = 30.0  # grey levels by which a pixel must differ from the background, or from itself a second away
_MOVED = 0.15  # share of an object's pixels that must differ a second away for it to count as moving
_GAIN, _HAZE, _STREAKS, _SURE = 0.7, 40.0, 0.0025, 0.05  # see weather(); of a phase correlation
_SIGNS, _WEATHER = EXPERTS[2].components, EXPERTS[3].components


@dataclass(frozen=True)
class Camera:
    """What is public about a fixed camera; everything that an expert knows beside its chunk.

    empty: uint8 (n, H, W, 3), pictures of the same view that anybody may see; without them nothing but people by HOG
    can be counted.  people: "parts" = small components, "hog" = OpenCV's detector, for people some 100 px high.
    person_px: area of a person in pixels, of one whose feet stand at the top of the picture and at its bottom (between
    them height grows evenly).  vehicle_px: the same of a vehicle; None where no vehicle comes.  sign: the state of the
    sign where it never changes.  boards: {state: uint8 (h, w, 3)}, public pictures of the sign; board_px: (left, top)
    where it stands.  view_px: (left, top, width, height) of the part that is counted; None: the whole picture.
    """

    empty: np.ndarray | None = None
    people: str = "parts"
    person_px: tuple[float, float] = (400.0, 400.0)
    vehicle_px: tuple[float, float] | None = (1600.0, 1600.0)
    sign: str | None = None
    boards: Mapping[str, np.ndarray] = field(default_factory=dict)
    board_px: tuple[int, int] = (0, 0)
    view_px: tuple[int, int, int, int] | None = None

    def __post_init__(self):
        if self.people not in PEOPLE or self.sign not in (None, *_SIGNS):
            raise DataError(f"people = {self.people!r}, sign = {self.sign!r} is not known of a camera.", "",
                            f"Use one of {', '.join(PEOPLE)} and one of {', '.join(_SIGNS)}.")
        big, small = self.vehicle_px or (np.inf, np.inf), self.person_px
        if not all(0 < s < b for s, b in zip(small, big, strict=True)):
            raise DataError(f"vehicle_px = {self.vehicle_px}, person_px = {self.person_px}.",
                            "They are the areas of one vehicle and one person in the picture, at its top and bottom.",
                            "Give positive areas, those of a vehicle larger.")
        left, top, wide, high = self.view_px or (0, 0, 1, 1)
        if min(wide, high) < 1 or self.empty is not None and (
                left + wide > self.empty.shape[2] or top + high > self.empty.shape[1]):
            raise DataError(f"view_px = {self.view_px} does not lie in the picture.", "Nothing would be counted.",
                            "Give left, top, width and height in pixels of the video.")

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the experts that this camera has; the other components are missing, not 0."""
        known = {"traffic": self.empty is not None and self.vehicle_px is not None,
                 "pedestrian": self.empty is not None or self.people == "hog",
                 "signs": bool(self.boards) or self.sign is not None, "environment": self.empty is not None}
        return tuple(name for name, there in known.items() if there)

    @cached_property
    def plain(self) -> np.ndarray:
        """The median empty picture, float32 (H, W, 3)."""
        assert self.empty is not None
        return np.median(self.empty[:EMPTY_FRAMES], axis=0).astype(np.float32)


@dataclass(frozen=True)
class Reading:
    """One chunk: steps int16 (12,), quarters of a value; the experts that failed gave the fixed vector, zeros."""

    steps: np.ndarray
    failed: tuple[str, ...]


def read_chunk(frames: np.ndarray, camera: Camera) -> Reading:
    """Read one chunk, uint8 (4, H, W, 3), with experts that are made for it and forgotten after it.

    Never raises: whatever an expert raises or gives that is no count makes its part the fixed vector and is told.
    """
    experts = ChunkExperts(camera, frames)
    steps, failed = np.zeros(len(COMPONENTS), np.int16), []
    for name in camera.reads:
        try:
            found = np.asarray(experts.by_name[name](), dtype=np.int16)
            if found.shape != steps[columns(name)].shape or (found < 0).any():
                raise ValueError(f"{name} gave {found}")
            steps[columns(name)] = found
        except Exception:  # an expert is a black box: the denominator is public, so a chunk is never dropped
            failed.append(name)
    return Reading(steps, tuple(failed))


class ChunkExperts:
    """All experts of one chunk. Each function gives whole steps: sums over the chunk's four frames."""

    def __init__(self, camera: Camera, frames: np.ndarray):
        self.camera, self.frames = camera, frames
        self.by_name: dict[str, Callable[[], np.ndarray]] = {
            "traffic": self.traffic, "pedestrian": self.pedestrian, "signs": self.signs, "environment": self.weather}

    # ---- counts ----

    @cached_property
    def lights(self) -> list[tuple[float, float]]:
        """(gain, haze) of each frame: its grey levels are about gain * empty + haze."""
        return [_light(frame, self.camera.plain) for frame in self.frames]

    @cached_property
    def cleared(self) -> np.ndarray:
        """The frames as they would look in the light of the empty pictures, thin streaks removed; uint8."""
        out = []
        for frame, (gain, haze) in zip(self.frames, self.lights, strict=True):
            levels = (frame.astype(np.float32) - haze) / gain
            out.append(cv2.medianBlur(np.clip(levels, 0, 255).astype(np.uint8), 3))
        return np.stack(out)

    @cached_property
    def inside(self) -> np.ndarray:
        """bool (H, W): what is counted."""
        high, wide = self.frames.shape[1:3]
        inside = np.zeros((high, wide), dtype=bool)
        left, top, wide, high = self.camera.view_px or (0, 0, wide, high)
        inside[top:top + high, left:left + wide] = True
        return inside

    @cached_property
    def foreground(self) -> np.ndarray:
        """bool (4, H, W): far from a background that was learnt on public pictures just now and stays as it is."""
        model, masks = cv2.createBackgroundSubtractorMOG2(EMPTY_FRAMES, _FAR, detectShadows=False), []
        assert self.camera.empty is not None
        for picture in self.camera.empty[:EMPTY_FRAMES]:
            model.apply(cv2.medianBlur(picture, 3))
        for frame in self.cleared:
            mask = model.apply(frame, learningRate=0)
            masks.append(cv2.morphologyEx(mask, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8)) > 0)
        return np.stack(masks) & self.inside

    @cached_property
    def changed(self) -> np.ndarray:
        """bool (4, H, W): pixels that look different a second later, or earlier in the second half."""
        return _differ(self.cleared)

    @cached_property
    def parts(self) -> list[list[tuple[int, float, bool, np.ndarray]]]:
        """Of each frame its components: (0 = vehicle, 1 = person; how many; does it move?; left, top, width, height).

        A component is a person where its area is nearer to that of one, as a factor; noise, under half of that, is not
        there.
        """
        out = []
        for mask, changed in zip(self.foreground, self.changed, strict=True):
            count, labels, boxes, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
            moved = np.bincount(labels[changed], minlength=count)
            found = []
            for number, (*box, area) in enumerate(boxes.tolist()):
                feet = (box[1] + box[3]) / len(mask)
                small, big = (_area(pair, feet) for pair in (self.camera.person_px, self.camera.vehicle_px))
                kind = int(area <= (small * big) ** 0.5)
                if number and area > small / 2:
                    many = max(1, round(area / (small if kind else big)))
                    found.append((kind, many, bool(moved[number] > _MOVED * area), np.array(box)))
            out.append(found)
        return out

    def traffic(self) -> np.ndarray:
        """(2,) moving and stopped vehicles: large components by their area, those that hold a found person apart."""
        total = np.zeros(2, np.int64)
        for number, parts in enumerate(self.parts):
            for kind, many, moves, box in parts:
                if kind == 0 and not (self.camera.people == "hog" and self._holds_person(number, box)):
                    total[0 if moves else 1] += many
        return total

    def pedestrian(self) -> np.ndarray:
        """(2,) people walking and waiting."""
        total = np.zeros(2, np.int64)
        if self.camera.people == "hog":
            for number, found in enumerate(self.people):
                for left, top, wide, high in found:
                    moved = self.changed_grey[number, max(top, 0):top + high, max(left, 0):left + wide].mean()
                    total[0 if moved > _MOVED / 2 else 1] += 1
            return total
        for parts in self.parts:
            for kind, many, moves, _ in parts:
                if kind == 1:
                    total[0 if moves else 1] += many
        return total

    @cached_property
    def people(self) -> list[np.ndarray]:
        """Of each frame the boxes (n, 4) of people, left, top, width, height in pixels of the frame."""
        finder, out = cv2.HOGDescriptor(), []
        finder.setSVMDetector(np.asarray(cv2.HOGDescriptor.getDefaultPeopleDetector()))
        shrink = min(1.0, HOG_HEIGHT_PX / self.frames.shape[1])
        for frame in self.frames:
            image = cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)
            if shrink < 1:
                image = cv2.resize(image, None, fx=shrink, fy=shrink, interpolation=cv2.INTER_AREA)
            boxes, weights = finder.detectMultiScale(image, winStride=(8, 8), scale=_HOG_STEP)
            kept = np.asarray(boxes, dtype=float).reshape(-1, 4)[np.ravel(weights) > _HOG_LEAST] / shrink
            across, down = np.clip(kept[:, :2] + kept[:, 2:] / 2, 0, np.array(self.inside.T.shape) - 1).astype(int).T
            out.append(np.round(kept).astype(int)[self.inside[down, across]])
        return out

    @cached_property
    def changed_grey(self) -> np.ndarray:
        """bool (4, H, W): as `changed`, of the frames as they came."""
        return _differ(self.frames)

    def _holds_person(self, number: int, box: np.ndarray) -> bool:
        middles = self.people[number][:, :2] + self.people[number][:, 2:] / 2  # (n, 2)
        return bool(((middles >= box[:2]) & (middles < box[:2] + box[2:])).all(axis=1).any())

    # ---- states ----

    def signs(self) -> np.ndarray:
        """(4,) the state of the sign: the one that never changes, or whose public picture is nearest."""
        if self.camera.sign is not None:
            return _one_hot(_SIGNS.index(self.camera.sign))
        left, top = self.camera.board_px
        far = {}
        for state, picture in self.camera.boards.items():
            seen = self.frames[:, top:top + picture.shape[0], left:left + picture.shape[1]].mean(axis=0)
            far[state] = np.abs(_contrast(seen) - _contrast(picture.astype(np.float64))).mean()
        return _one_hot(_SIGNS.index(min(far, key=lambda state: far[state])))

    def weather(self) -> np.ndarray:
        """(4,) by simple statistics of the picture beside the empty one: thin bright streaks are rain, less contrast
        with more haze is fog, less of both another light; else clear.
        """
        gain, haze = np.median(np.array(self.lights), axis=0)
        streaks = np.mean([_streaks(frame) for frame in self.frames])
        name = "fog" if haze > _HAZE else "rain" if streaks > _STREAKS else "other_weather" if gain < _GAIN else "clear"
        return _one_hot(_WEATHER.index(name))


def _one_hot(state: int) -> np.ndarray:
    return CHUNK_FRAMES * np.eye(len(_SIGNS), dtype=np.int64)[state]


def _area(pair: tuple[float, float] | None, feet: float) -> float:
    """Area in px of one whose feet stand at `feet` of the height, 0 = top; infinite where none comes."""
    return float("inf") if pair is None else float((pair[0]**0.5 + feet * (pair[1]**0.5 - pair[0]**0.5)) ** 2)


def _differ(frames: np.ndarray) -> np.ndarray:
    """Frames uint8 (4, H, W, 3) -> bool (4, H, W): far from the frame two before or after it, in any colour."""
    other = frames[[2, 3, 0, 1]]
    far = np.maximum(frames, other) - np.minimum(frames, other)
    return np.maximum.reduce([far[..., 0], far[..., 1], far[..., 2]]) > _FAR


def _light(frame: np.ndarray, plain: np.ndarray) -> tuple[float, float]:
    """Gain and haze that turn the empty picture into the frame: least squares over the pixels that fit best."""
    step = max(1, frame.shape[0] // 30)
    x, y = plain[::step, ::step].ravel().astype(np.float64), frame[::step, ::step].ravel().astype(np.float64)
    keep, gain, haze = np.ones(len(x), dtype=bool), 1.0, 0.0
    for _ in range(4):
        spread = x[keep] - x[keep].mean()
        gain = float(np.clip((spread * y[keep]).sum() / max((spread**2).sum(), 1e-6), 0.1, 4.0))
        haze = float(y[keep].mean() - gain * x[keep].mean())
        error = np.abs(y - gain * x - haze)
        keep = error <= np.quantile(error, 0.7)
    return gain, haze


def _streaks(frame: np.ndarray) -> float:
    """Share of pixels that are much brighter than their surroundings across, and not so along the vertical."""
    grey = cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY).astype(np.float32)
    across = grey - np.maximum(np.roll(grey, 3, axis=1), np.roll(grey, -3, axis=1))
    along = np.abs(grey - cv2.blur(grey, (1, 3)))
    return float(((across > _FAR) & (along < _FAR / 2)).mean())


def _contrast(picture: np.ndarray) -> np.ndarray:
    """A picture (h, w, 3) without its light."""
    return (picture - picture.mean()) / (picture.std() + 1e-6)


def drift_px(frame: np.ndarray, other: np.ndarray) -> float:
    """By how many pixels one picture, uint8 (H, W, 3), is shifted against another of its size, by phase correlation."""
    shrink = max(1, frame.shape[0] // 240)
    first, second = (cv2.cvtColor(f, cv2.COLOR_RGB2GRAY)[::shrink, ::shrink].astype(np.float32) for f in (frame, other))
    window = cv2.createHanningWindow(first.shape[::-1], cv2.CV_32F)
    (right, down), sure = cv2.phaseCorrelate(first, second, window)
    return float(np.hypot(right, down)) * shrink if sure > _SURE else 0.0
