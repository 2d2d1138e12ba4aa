"""A user's own videos: ROOT/<person>/<label>/*.{mp4,mkv,avi,mov,flv,webm}, faces found by MTCNN."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from bench import CLIP_FRAMES, DataError, Dataset, Prepared, Source, dataset
from bench.data.splits import MIN_PEOPLE
from bench.detect import FaceDetector, crop_clip
from bench.video import iter_frames, probe

SUFFIXES = (".mp4", ".mkv", ".avi", ".mov", ".flv", ".webm")
FPS = 25  # of every prepared video; the native rate stands in the manifest
_LAYOUT = f"ROOT/<person>/<label>/*.{{{','.join(suffix[1:] for suffix in SUFFIXES)}}}"
_SHOWN = 20  # problems printed before "and n more"


@dataset("videofolder")
class VideoFolder(Dataset):
    """Talking faces from a folder of the user's: one folder a person, inside it one a label.

    Person and label are folder names, the id is the path below ROOT. Every video is resampled to 25 frames a second
    and cut into clips of 16 frames; the crop box of a clip is computed inside it (PROTOCOL 2). Hidden files and files
    with other suffixes are passed over. Needs 6 people or more, each with two videos of one label (one to enrol, one
    to probe).
    """

    title = "Your own videos"
    licence = "as the owner of the videos says"
    publishable = False
    needs_root = True

    def __init__(self):
        self._detector = FaceDetector()

    def sources(self, root: Any, seed: int) -> list[Source]:
        """All videos, sorted by id; each file is opened. Raises one DataError that lists every problem."""
        root = _checked_root(root)
        found = [Source(id=path.relative_to(root).as_posix(), person=path.parts[-3], label=path.parts[-2], path=path)
                 for path in sorted(root.glob("*/*/*")) if _is_video(path.relative_to(root))]
        problems = [*_misplaced(root), *_empty(root, found), *_people(found), *_unreadable(found)]
        if problems:
            more = len(problems) - _SHOWN
            listed = "; ".join(problems[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
            raise DataError(f"{root} cannot be used as it is: {listed}.",
                            f"The layout is {_LAYOUT}; the split needs {MIN_PEOPLE} people, and enrolment and probe of "
                            "a person need two videos of one label.",
                            "Mend or remove what is listed, add what is missing, and try again.")
        return sorted(found, key=lambda source: source.id)

    def load(self, source: Source, canvas_px: int) -> Prepared:
        """Crop one video clip by clip: never more than 16 full-size frames in memory. Raises DataError."""
        info = probe(source.path)
        crops, lost = [], 0
        for clip in _clips(iter_frames(source.path, fps=FPS)):
            crop, face = crop_clip(clip, self._detector.detect(clip), canvas_px)
            crops.append(crop)
            lost += not face
        native = {"fps": float(info.fps), "width": info.width, "height": info.height, "rotation": info.rotation,
                  "frames": info.frames, "variable_fps": info.variable_fps}
        return Prepared(np.concatenate(crops), float(FPS), native, lost)  # (T, S, S, 3)


def _clips(frames: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    while clip := list(islice(frames, CLIP_FRAMES)):
        yield np.stack(clip)  # (t <= 16, H, W, 3)


def _checked_root(root: Any) -> Path:
    if root is None:
        raise DataError("The dataset 'videofolder' needs a folder of videos.", "",
                        f"Give --root DIR, laid out as {_LAYOUT}.")
    root = Path(root)
    if not root.is_dir():
        raise DataError(f"There is no folder {root}.", "", f"Give --root a folder laid out as {_LAYOUT}.")
    if not any(not path.name.startswith(".") for path in root.iterdir()):
        raise DataError(f"The folder {root} is empty.", "", f"Lay the videos out as {_LAYOUT}.")
    return root


def _is_video(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not any(part.startswith(".") for part in path.parts)


def _misplaced(root: Path) -> Iterator[str]:
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        if path.is_file() and _is_video(inside) and len(inside.parts) != 3:
            yield f"{inside.as_posix()} does not lie in a person's label folder"


def _empty(root: Path, found: Iterable[Source]) -> Iterator[str]:
    people = {source.person for source in found}
    for path in sorted(root.iterdir()):
        if path.is_dir() and not path.name.startswith(".") and path.name not in people:
            yield f"{path.name} has no video"


def _people(found: Iterable[Source]) -> Iterator[str]:
    videos: dict[str, Counter[str]] = {}
    for source in found:
        videos.setdefault(source.person, Counter())[source.label] += 1
    if len(videos) < MIN_PEOPLE:
        yield f"it has videos of {len(videos)} {'person' if len(videos) == 1 else 'people'}, not {MIN_PEOPLE} or more"
    for person, labels in sorted(videos.items()):
        if labels.total() < 2:
            yield f"{person} has one video"
        elif max(labels.values()) < 2:
            yield f"{person} has no two videos of one label"


def _unreadable(found: Iterable[Source]) -> Iterator[str]:
    for source in found:
        try:
            info = probe(source.path)
        except DataError as error:
            yield f"{source.id} cannot be read ({error.why.rstrip('.') or error.what})"
        else:
            if info.truncated:
                yield f"{source.id} is cut short: its header announces more than the file holds"
