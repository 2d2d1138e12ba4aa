"""BDD100K: videos from moving cars with boxes and weather in Scalabel JSON, from a copy of your own."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bench import dataset
from bench.data.recordings import Faults, Found, RecordedDataset, Recording, component, listed, sampled
from bench.traffic import CHUNK_FRAMES, COMPONENTS, EXPERTS, columns

RATE = 5  # frames a second of the tracking labels
KEPT = frozenset((sampled(2 * RATE, RATE) % RATE).tolist())  # frame numbers modulo RATE that are sampled
PARTS = {"train": True, "val": False}  # official: is it public?
WEATHER = {"clear": "clear", "rainy": "rain", "foggy": "fog", "snowy": "other_weather", "overcast": "other_weather",
           "partly cloudy": "other_weather", "undefined": None}
SCENES = ("tunnel", "residential", "parking lot", "city street", "gas stations", "highway", "undefined")
TIMES = ("daytime", "night", "dawn/dusk", "undefined")
_ROADS = "car truck bus train motorcycle motor bicycle bike trailer van"
KINDS = {**dict.fromkeys([*_ROADS.split(), "other vehicle"], "traffic"), "traffic sign": "signs",
         **dict.fromkeys(("pedestrian", "person", "other person"), "pedestrian"), "rider": None, "traffic light": None}
STATES = {"traffic": ("motion", {"moving": "moving", "stopped": "stopped"}),
          "pedestrian": ("motion", {"walking": "walking", "waiting": "waiting"}),
          "signs": ("sign", {"stop": "stop", "speed limit": "speed_limit", "other": "other_sign"})}


@dataclass
class Clip:
    """One video. frames: {number: None where it is not sampled, else what is seen in it}; pictures: their names."""

    part: str
    faults: Faults
    frames: dict[int, Seen | None] = field(default_factory=dict)
    pictures: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """weather: a component, None = undefined, "" = not said; objects: (expert, object, component or None = unsaid)."""

    weather: str | None
    objects: tuple[tuple[str, str, str | None], ...]


@dataset("bdd100k")
class BDD100K(RecordedDataset):
    """Tracking labels (one JSON a video, five frames a second); train is public and val is tested, as published.
    Weather is of the frame or of the image of that video: clear, rain, fog, all else other; undefined is missing. The
    published boxes do not tell moving from stopped, walking from waiting, or one sign from another, and the camera
    moves itself: these components are missing. A copy to which somebody has added them is read: attribute `motion`
    (moving, stopped; walking, waiting) of road users and `sign` (stop, speed limit, other) of signs. A component is
    known in videos in which every object has its state. An episode is one window of 38 s (19 chunks), since the
    published videos last 40 s, more or less; means and their noise are those of 19 chunks.
    """

    title: ClassVar[str] = "BDD100K (your own copy)"
    licence: ClassVar[str] = "as the licence of BDD100K says"
    most: ClassVar[int] = 1
    filmed: ClassVar[int] = 19
    layout: ClassVar[str] = ("ROOT/.../train/*.json and ROOT/.../val/*.json (tracking), with weather in their frames "
                             "or in ROOT/.../*_train.json and *_val.json (images); pictures, if any, in "
                             "ROOT/images/track/PART/VIDEO/")

    def read(self, root: Path, report: Callable[[str], None]) -> Found:
        """All label files of the two parts."""
        found, clips, images, files = Found(), dict[str, Clip](), dict[str, Mapping[str, Any]](), list(_files(root))
        faults = [Faults(path.relative_to(root).as_posix()) for path, _ in files]
        for (path, part), own in zip(files, faults, strict=True):
            for frame in _frames(path, own):
                _sort(frame, part, own, clips, images)
        found.problems = [text for own in faults for text in own]
        if not clips:
            found.problems.append("it has no video: no frame with a videoName in a train or val folder")
        for name, clip in clips.items():
            _check(name, clip, root)
        found.problems += [text for clip in clips.values() for text in clip.faults]
        if not found.problems:
            found.recordings = list(_recordings(clips, images))
            found.notes = list(_notes(images))
        return found


# ---- files ---------------------------------------------------------------------------------------------------------

def _files(root: Path) -> Iterator[tuple[Path, str]]:
    """(file, part) of every label file of a published part."""
    for path in sorted(root.rglob("*.json")):
        part = next((p for p in PARTS if path.parent.name == p or path.stem.endswith(f"_{p}")), None)
        if part:
            yield path, part


def _frames(path: Path, faults: Faults) -> Iterable[Mapping[str, Any]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        faults.add(f"is broken JSON ({error})")
        return []
    frames = found.get("frames") if isinstance(found, dict) else found
    if not isinstance(frames, list) or not all(isinstance(f, dict) and isinstance(f.get("name"), str) for f in frames):
        faults.add("is no list of frames that have a name")
        return []
    return frames


def _sort(frame: Mapping[str, Any], part: str, faults: Faults, clips: dict[str, Clip],
          images: dict[str, Mapping[str, Any]]) -> None:
    """Put one frame where it belongs: a frame of a video, or a single image that describes the video of its name."""
    about = _fields(frame.get("attributes"))
    for name, known in (("weather", WEATHER), ("scene", SCENES), ("timeofday", TIMES)):
        if about.get(name) is not None and str(about[name]) not in known:
            faults.add(f"has {name} {about[name]!r}, which is none of {', '.join(known)}", frame["name"])
    video = frame.get("videoName")
    if video is None:
        images[Path(frame["name"]).stem] = about
        return
    clip = clips.setdefault(str(video), Clip(part, Faults(f"video {video}")))
    if clip.part != part:
        clip.faults.add("stands in both parts")
    elif (number := _number(frame, clip)) is not None:
        objects = tuple(_objects(frame["labels"], number, clip.faults))
        seen = Seen(WEATHER.get(str(about["weather"])) if about.get("weather") else "", objects)
        clip.frames[number], clip.pictures[number] = seen if number % RATE in KEPT else None, frame["name"]
        if about and not number:
            images.setdefault(str(video), about)


def _fields(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _number(frame: Mapping[str, Any], clip: Clip) -> int | None:
    """The place of a frame in its video; None where it cannot be used."""
    number = frame.get("frameIndex")
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        clip.faults.add("has no frameIndex that is a whole number from 0 on", frame["name"])
    elif number in clip.frames:
        clip.faults.add("is there twice", f"frame {number}")
    elif not isinstance(frame.get("labels"), list):
        clip.faults.add("has no labels", f"frame {number}")
        clip.frames[number] = None  # it is there
    else:
        return number
    return None


def _objects(labels: list[Any], number: int, faults: Faults) -> Iterator[tuple[str, str, str | None]]:
    for label in labels:
        category = str(_fields(label).get("category"))
        if category not in KINDS:
            faults.add(f"has the category {category!r}, which is not known", f"frame {number}")
        elif expert := KINDS[category]:
            key, states = STATES[expert]
            said = _fields(label.get("attributes")).get(key)
            if not _is_box(label.get("box2d")) or label.get("id") is None:
                faults.add(f"has a {category} without id or without a box2d of positive area", f"frame {number}")
            elif said is not None and str(said) not in states:
                faults.add(f"has {key} {said!r}, which is none of {', '.join(states)}", f"frame {number}")
            else:
                yield expert, str(label["id"]), states.get(str(said))


def _is_box(box: Any) -> bool:
    try:
        x1, y1, x2, y2 = (float(box[k]) for k in ("x1", "y1", "x2", "y2"))
    except (TypeError, KeyError, ValueError):
        return False
    return all(map(math.isfinite, (x1, y1, x2, y2))) and x2 > x1 and y2 > y1


def _check(name: str, clip: Clip, root: Path) -> None:
    """Every frame up to the last one, and its picture where pictures are there."""
    for number in sorted(set(range(max(clip.frames, default=-1) + 1)) - set(clip.frames)):
        clip.faults.add("is missing", f"frame {number}")
    folder = root / "images" / "track" / clip.part
    for number, picture in sorted(clip.pictures.items()) if folder.is_dir() else ():
        if not (folder / name / picture).is_file():
            clip.faults.add(f"has no picture in images/track/{clip.part}/{name}", f"frame {number} ({picture})")


# ---- streams -------------------------------------------------------------------------------------------------------

def _recordings(clips: Mapping[str, Clip], images: Mapping[str, Mapping[str, Any]]) -> Iterator[Recording]:
    said = {e for clip in clips.values() for seen in clip.frames.values() if seen
            for e, _, state in seen.objects if state}
    first = 0  # number of the first object of a video
    for name, clip in sorted(clips.items()):
        numbers = sampled(max(clip.frames) + 1, RATE)
        seen = [s for s in (clip.frames[int(n)] for n in numbers) if s is not None]
        steps = np.zeros((len(seen), len(COMPONENTS)), np.int16)  # of frames, summed to chunks below
        known = np.zeros(steps.shape, bool)
        objects: Counter[tuple[int, int, int]] = Counter()
        ids = {key: first + k for k, key in enumerate(sorted({o for s in seen for _, o, _ in s.objects}))}
        first += len(ids)
        for expert in (e.name for e in EXPERTS if e.name in said):
            known[:, columns(expert)] = all(state for s in seen for e, _, state in s.objects if e == expert)
        image = WEATHER.get(images.get(name, {}).get("weather", "undefined"))
        for k, frame in enumerate(seen):
            for expert, key, state in frame.objects:
                if state and expert != "signs" and known[k, component(state)]:
                    steps[k, component(state)] += 1
                    objects[ids[key], k // CHUNK_FRAMES, component(state)] += 1
            _set_states(steps[k], known[k], frame, image)
        rows = np.array([[*key, count] for key, count in sorted(objects.items())], np.int64).reshape(-1, 4)
        yield Recording(name, PARTS[clip.part], steps.reshape(-1, CHUNK_FRAMES, steps.shape[1]).sum(axis=1),
                        np.asarray(known.reshape(-1, CHUNK_FRAMES, known.shape[1]).all(axis=1)), rows)


def _set_states(steps: np.ndarray, known: np.ndarray, frame: Seen, image: str | None) -> None:
    """Sign and weather of one frame, in place: the first of stop, speed limit, other that is seen, else no sign."""
    if known[columns("signs")].all():
        shown = {state for expert, _, state in frame.objects if expert == "signs"}
        steps[component(next((s for s in STATES["signs"][1].values() if s in shown), "no_sign"))] = 1
    weather = image if frame.weather == "" else frame.weather
    known[columns("environment")] = weather is not None
    if weather is not None:
        steps[component(weather)] = 1


def _notes(images: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, word in (("timeofday", "Time of day"), ("scene", "Scene")):
        if counts := Counter(about[name] for about in images.values() if about.get(name)):
            yield f"{word} of the videos and images: {listed(counts)}."
    yield "The camera moves: a count is of what the driver sees, not of a place."
