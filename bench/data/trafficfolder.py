"""A user's own fixed-camera videos: ROOT/<camera>/*.mp4, read by vision experts on isolated chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from bench import DataError, dataset
from bench.data.camera.chunks import Footage, read_video, usable
from bench.data.camera.experts import Camera
from bench.data.camera.folder import camera_of, labels_without_video, truth_of, videos
from bench.data.streams import StreamDataset, Table
from bench.errors import UserError
from bench.traffic import CHUNK_S, EXPERTS, SLOTS, WINDOW_CHUNKS

_LAYOUT = "ROOT/<camera>/*.mp4 (or mkv, avi, mov, flv, webm), with <camera>/empty/ and <camera>/public/"
_SHOWN = 20  # problems listed


@dataclass(frozen=True)
class _Recording:
    name: str
    path: Path
    public: bool
    camera: Camera


@dataclass(frozen=True)
class _Episode:
    name: str
    public: bool
    steps: np.ndarray
    truth: np.ndarray
    reads: tuple[bool, ...]


@dataset("trafficfolder")
class TrafficFolder(StreamDataset):
    """Any videos of fixed cameras. Experts count vehicles and people in chunks of 2 s, each by itself, against a
    background from public pictures in `empty/`; settings stand in camera.toml. Recordings in `public/` may be seen by
    anybody: methods fit on them; all others are released. Videos are cut into episodes of equal length, ten windows of
    60 s or as many as the shortest video has; each has a budget of its own. Counts by hand (NAME.csv beside NAME.mp4)
    are what reports are compared with; without them errors are undefined. Errors then hold those of the experts too.
    """

    title: ClassVar[str] = "Your own traffic videos"
    licence: ClassVar[str] = "as the owner of the videos says"
    needs_root: ClassVar[bool] = True

    def problems(self, root: Path) -> list[str]:
        """What is wrong with a folder, one sentence each, found without reading its videos whole."""
        try:
            return _found(_checked(root))[1]
        except UserError as error:
            return [error.what]

    def table(self, root: Path | None, report: Callable[[str], None]) -> Table:
        """All episodes. Raises one DataError that lists every problem."""
        root = _checked(root)
        recordings, problems = _found(root)
        _stop(root, problems)
        found = []
        for recording in recordings:
            try:
                footage = read_video(recording.path, recording.camera, report)
                found.append((recording, footage, truth_of(recording.path.with_suffix(".csv"), len(footage.steps))))
            except UserError as error:
                problems.append(f"{recording.name}: {error}")
        _stop(root, problems)
        notes = tuple(note for _, footage, _ in found for note in footage.notes)
        for note in notes:
            report(note)
        return _table(found, notes)


def _found(root: Path) -> tuple[list[_Recording], list[str]]:
    """The recordings of all cameras, and what is wrong with the folder; no video is read whole."""
    problems: list[str] = []
    folders = sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    recordings = [r for folder in folders for r in _recordings(folder, problems)]
    return recordings, problems or list(_missing(recordings))


def _stop(root: Path, problems: list[str]) -> None:
    if problems:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise DataError(f"{root} cannot be used as it is: {'; '.join(problems[:_SHOWN])}{more}",
                        f"The layout is {_LAYOUT}.", "Mend or remove what is listed and try again.")


def _checked(root: Path | None) -> Path:
    if root is None or not Path(root).is_dir():
        raise DataError("The dataset 'trafficfolder' needs a folder of videos." if root is None else
                        f"There is no folder {root}.", "", f"Give --root DIR, laid out as {_LAYOUT}.")
    if loose := videos(Path(root)):
        raise DataError(f"{loose[0]} lies in no camera's folder.", "Public pictures belong to one view.",
                        f"The layout is {_LAYOUT}.")
    if not any(p.is_dir() and not p.name.startswith(".") for p in Path(root).iterdir()):
        raise DataError(f"The folder {root} has no folder of a camera.", "", f"Lay the videos out as {_LAYOUT}.")
    return Path(root)


def _recordings(folder: Path, problems: list[str]) -> Iterator[_Recording]:
    """The videos of one camera; what is wrong with it is added to `problems`."""
    problems += [f"{folder.name}/{name} counts a video that is not there." for name in labels_without_video(folder)]
    public = videos(folder / "public")
    try:
        camera = camera_of(folder)
    except UserError as error:
        problems.append(str(error))
        return
    if not videos(folder) + public:
        problems.append(f"{folder.name} has no video.")
    for path in videos(folder) + public:
        name = path.relative_to(folder.parent).as_posix()
        try:
            length_s = float(usable(path, camera).duration)
            truth_of(path.with_suffix(".csv"), int(length_s / CHUNK_S) + 1)  # told before reading, which takes long
        except UserError as error:
            problems.append(f"{name}: {error}")
        else:
            yield _Recording(name, path, path in public, camera)


def _missing(recordings: list[_Recording]) -> Iterator[str]:
    if not any(r.public for r in recordings):
        yield "no camera has a recording in public/: methods learn what is usual from recordings that may be seen, " \
              "one of ten minutes is a start."
    elif all(r.public for r in recordings):
        yield "all recordings lie in public/, so that there is none to release."


def _table(found: list[tuple[_Recording, Footage, np.ndarray]], notes: tuple[str, ...]) -> Table:
    """Episodes of as many whole windows as the shortest video has, ten at most."""
    length = WINDOW_CHUNKS * min(SLOTS, *(len(footage.steps) // WINDOW_CHUNKS for _, footage, _ in found))
    episodes = []
    for recording, footage, truth in found:
        reads = tuple(e.name in recording.camera.reads for e in EXPERTS)
        for number in range(len(footage.steps) // length):
            part = slice(number * length, (number + 1) * length)
            episodes.append(_Episode(f"{recording.name}#{number}", recording.public, footage.steps[part], truth[part],
                                     reads))
    counted = np.stack([e.truth for e in episodes])  # -1 where nobody counted
    return Table(tuple(e.name for e in episodes), np.stack([e.steps for e in episodes]),
                 np.array([e.public for e in episodes]), truth=counted.clip(0), known=counted >= 0,
                 reads=np.array([e.reads for e in episodes]), notes=notes)
