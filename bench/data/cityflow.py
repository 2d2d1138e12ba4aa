"""CityFlow: multi-camera vehicle tracks of the AI City Challenge, from a copy of your own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np

from bench import DataError, dataset
from bench.data.recordings import Faults, Found, RecordedDataset, Recording, component, repeated, sampled
from bench.data.splits import half_up, hashed
from bench.traffic import CHUNK_FRAMES, CHUNK_S, COMPONENTS
from bench.video import probe

MOVING_MPS = 0.5  # as in sumo_crossing
CAR_M = 4.5  # length that the longer side of a box stands for, where a camera is not calibrated
_DEGREE_M = 111_320.0  # of latitude
_FIELDS = "frame, ID, left, top, width, height"


@dataset("cityflow")
class CityFlow(RecordedDataset):
    """Vehicles of fixed cameras in several scenarios (track 1: SCENARIO/CAMERA/gt/gt.txt). A vehicle counts in every
    sampled frame in which it has a box; in a chunk it is moving when its box moves faster than 0.5 m/s there, by the
    camera's calibration.txt, or else by a car's length of 4.5 m. Labelled are only vehicles that pass two cameras or
    more, so that the counts are lower bounds. Nothing is said of people, signs and weather: these are missing.
    Scenarios that share a vehicle stay together; a quarter of these groups, by hash, is the test part. Episodes have
    three minutes. Every vehicle's visit is known, so that `whole_stay` can be asked about real vehicles.
    """

    title: ClassVar[str] = "CityFlow (your own copy)"
    licence: ClassVar[str] = "as the data licence agreement of the AI City Challenge says"
    most: ClassVar[int] = 3
    layout: ClassVar[str] = ("ROOT/[SPLIT/]SCENARIO/CAMERA/gt/gt.txt, in the camera's folder also vdo.avi (or fps.txt: "
                             "one number) and calibration.txt")

    def read(self, root: Path, report: Callable[[str], None]) -> Found:
        """All cameras that have a gt folder."""
        found, cameras = Found(), []
        for folder in sorted(path.parent for path in root.rglob("gt") if path.is_dir()):
            cameras.append(_camera(folder, folder.relative_to(root).as_posix(), found.problems))
        if not cameras:
            found.problems.append("it has no camera with a gt folder")
        parts = split({c.name: set(c.boxes[:, 1].astype(int).tolist()) for c in cameras if len(c.boxes)},
                      {c.name: c.scenario for c in cameras}, found.problems)
        if not found.problems:
            found.recordings = [_recording(camera, parts[camera.scenario]) for camera in cameras]
            found.notes = list(_notes(cameras, parts))
        return found


@dataclass
class Camera:
    """boxes: float64 (n, 6), see _FIELDS; ground: pixels to degrees, None where the camera is not calibrated."""

    folder: Path
    name: str
    scenario: str
    boxes: np.ndarray = field(default_factory=lambda: np.zeros((0, 6)))
    fps: float = 0.0
    frames: int = 0
    ground: np.ndarray | None = None


# ---- files ---------------------------------------------------------------------------------------------------------

def _camera(folder: Path, name: str, problems: list[str]) -> Camera:
    """A camera's labels, rate, length and calibration; what is wrong goes into `problems`."""
    camera = Camera(folder, name, folder.parent.name)
    path = folder / "gt" / "gt.txt"
    if not path.is_file():
        problems.append(f"{name} has no gt/gt.txt")
    else:
        camera.boxes, wrong = read_boxes(path.read_text(encoding="utf-8", errors="replace"))
        problems += [f"{name}/gt/gt.txt {text}" for text in wrong]
    camera.fps, camera.frames, wrong = _clock(folder)
    problems += [f"{name} {text}" for text in wrong]
    last = int(camera.boxes[:, 0].max()) if len(camera.boxes) else 0
    if camera.frames and last > camera.frames:
        problems.append(f"{name}/gt/gt.txt has frame {last}, its video has {camera.frames}")
    camera.frames = camera.frames or last
    try:
        camera.ground = _ground(folder / "calibration.txt")
    except (ValueError, np.linalg.LinAlgError):
        problems.append(f"{name}/calibration.txt holds no homography (three rows of three numbers, apart by ';')")
    return camera


def read_boxes(text: str) -> tuple[np.ndarray, list[str]]:
    """Boxes float64 (n, 6) of a gt.txt, and what is wrong with it: each kind of fault once, with its first line."""
    if not text.strip():
        return np.zeros((0, 6)), ["is empty"]
    rows, faults = [], Faults()
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            values, fault = _row(line)
            if fault:
                faults.add(fault, f"line {number} ({line.strip()[:60]!r})")
            else:
                rows.append(values)
    boxes = np.array(rows).reshape(-1, 6)
    for frame, vehicle in repeated(boxes[:, :2]):
        faults.add("is there twice", f"vehicle {vehicle:g} in frame {frame:g}")
    return boxes, list(faults)


def _row(line: str) -> tuple[list[float], str]:
    """The six values of a line, or what is wrong with them."""
    try:
        values = [float(v) for v in line.split(",")[:6]]
    except ValueError:
        return [], "holds what is no number"
    if len(values) < 6:
        return [], f"has fewer values than {_FIELDS}"
    if not np.isfinite(values).all():
        return [], "holds a value that is not finite"
    if any(v < 1 or v != int(v) for v in values[:2]):
        return [], "has a frame or ID that is no whole number from 1 on"
    return (values, "") if min(values[4:]) > 0 else ([], "has a box without area")


def _clock(folder: Path) -> tuple[float, int, list[str]]:
    """Frames a second, number of frames (0 = unknown) and problems of a camera, from its video or its fps.txt."""
    video, given = next(iter(sorted(folder.glob("vdo.*"))), None), folder / "fps.txt"
    try:
        if video is not None:
            info = probe(video)
            rate, frames, source = float(info.fps), info.frames, video.name
        elif given.is_file():
            rate, frames, source = float(given.read_text(encoding="utf-8")), 0, given.name
        else:
            return 0.0, 0, ["has no frame rate: neither vdo.avi nor fps.txt"]
    except DataError as error:
        return 0.0, 0, [f"has a video that cannot be read ({error.why.rstrip('.') or error.what})"]
    except ValueError:
        return 0.0, 0, ["has a fps.txt that is no number"]
    return (rate, frames, []) if 2 <= rate <= 1000 else (0.0, 0, [f"has {rate:g} frames a second in {source}, not 2 or "
                                                                  "more"])


def _ground(path: Path) -> np.ndarray | None:
    """The inverse of the homography (latitude, longitude to pixel) in a calibration.txt; None without the file."""
    if not path.is_file():
        return None
    text = next((line for line in path.read_text(encoding="utf-8").splitlines() if ";" in line), "")
    rows = [[float(v) for v in row.split()] for row in text.rpartition(":")[2].split(";")]
    if [len(row) for row in rows] != [3, 3, 3]:
        raise ValueError("no 3 x 3 matrix")
    return np.linalg.inv(np.array(rows))


# ---- split ---------------------------------------------------------------------------------------------------------

def split(vehicles: Mapping[str, set[int]], scenario: Mapping[str, str], problems: list[str]) -> dict[str, bool]:
    """{scenario: is it public?}. vehicles: IDs of each camera. Scenarios that share an ID stay in one part."""
    groups: list[tuple[set[str], set[int]]] = []
    for camera, place in sorted(scenario.items()):
        names, ids = {place}, set(vehicles.get(camera, ()))
        for other in [g for g in groups if g[0] & names or g[1] & ids]:
            groups.remove(other)
            names, ids = names | other[0], ids | other[1]
        groups.append((names, ids))
    if len(groups) < 2 and scenario:
        shared = ", ".join(sorted(set(scenario.values())))
        problems.append(f"its scenarios ({shared}) fall into one group of shared vehicles, and a split needs two")
    order = sorted(groups, key=lambda group: hashed(min(group[0])))
    tests = max(1, half_up(len(order), 4))
    return {name: number >= tests for number, (names, _) in enumerate(order) for name in names}


# ---- streams -------------------------------------------------------------------------------------------------------

def _recording(camera: Camera, public: bool) -> Recording:
    """Steps of moving and stopped vehicles; each vehicle has one state a chunk, from its boxes in that chunk alone."""
    frames = sampled(camera.frames, camera.fps)
    steps = np.zeros((len(frames) // CHUNK_FRAMES, len(COMPONENTS)), np.int16)
    known = np.zeros(steps.shape, bool)
    known[:, :2] = True
    boxes = camera.boxes[camera.boxes[:, 0] <= len(steps) * CHUNK_S * camera.fps]  # of whole chunks
    at, vehicles = boxes[:, 0].astype(int) - 1, boxes[:, 1].astype(int)
    chunk = (np.searchsorted(frames, at, side="right") - 1) // CHUNK_FRAMES
    state = {key: _moves(camera, boxes[rows]) for key, rows in _groups(vehicles, chunk)}
    seen: Counter[tuple[int, int, int]] = Counter()
    for row in np.flatnonzero(np.isin(at, frames)):
        key = int(vehicles[row]), int(chunk[row])
        seen[*key, component("moving" if state[key] else "stopped")] += 1
    objects = np.array([[*key, count] for key, count in sorted(seen.items())], np.int64).reshape(-1, 4)
    np.add.at(steps, (objects[:, 1], objects[:, 2]), objects[:, 3].astype(np.int16))
    return Recording(camera.name, public, steps, known, objects)


def _groups(vehicle: np.ndarray, chunk: np.ndarray) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
    """((vehicle, chunk), rows) of each vehicle in each chunk."""
    order = np.lexsort((chunk, vehicle))
    key = np.stack([vehicle, chunk], axis=1)[order]
    for rows in np.split(order, np.flatnonzero((np.diff(key, axis=0) != 0).any(axis=1)) + 1):
        if len(rows):
            yield (int(vehicle[rows[0]]), int(chunk[rows[0]])), rows


def _moves(camera: Camera, boxes: np.ndarray) -> bool:
    """Faster than MOVING_MPS from the first to the last of one vehicle's boxes (n, 6)? One with a single box moves."""
    ends = boxes[[boxes[:, 0].argmin(), boxes[:, 0].argmax()]]  # (2, 6)
    seconds = (ends[1, 0] - ends[0, 0]) / camera.fps
    return not seconds or _distance_m(ends, camera.ground) / seconds > MOVING_MPS


def _distance_m(boxes: np.ndarray, ground: np.ndarray | None) -> float:
    """Metres between two boxes (2, 6): of their lower middles on the ground, or of their centres in car lengths."""
    left, top, width, height = boxes[:, 2:].T
    if ground is None:
        middle = np.stack([left + width / 2, top + height / 2], axis=1)  # (2, 2)
        return float(np.linalg.norm(middle[1] - middle[0]) * CAR_M / np.maximum(width, height).mean())
    place = np.stack([left + width / 2, top + height, np.ones(2)], axis=1) @ ground.T  # (2, 3)
    latitude, longitude = (place[:, :2] / place[:, 2:]).T
    east = (longitude[1] - longitude[0]) * np.cos(np.radians(latitude.mean()))
    return float(np.hypot(east, latitude[1] - latitude[0]) * _DEGREE_M)


def _notes(cameras: list[Camera], parts: Mapping[str, bool]) -> Iterator[str]:
    tested = sorted(name for name, public in parts.items() if not public)
    yield f"Test scenarios: {', '.join(tested)}; public: {', '.join(sorted(set(parts) - set(tested)))}."
    detected = {c.name: sum(len([line for line in path.read_text(errors="replace").splitlines() if line.strip()])
                            for path in sorted((c.folder / "det").glob("det_*.txt"))[:1]) for c in cameras}
    share = sum(len(c.boxes) for c in cameras if detected[c.name]) / max(1, sum(detected.values()))
    yield ("Counts are lower bounds: only vehicles that pass two cameras or more are labelled"
           + (f"; the labels hold {share:.0%} as many boxes as the detections that lie beside them." if share else "."))
    if plain := [c.name for c in cameras if c.ground is None]:
        yield (f"{len(plain)} of {len(cameras)} cameras have no calibration.txt; there the longer side of a box counts "
               f"as {CAR_M:g} m.")
