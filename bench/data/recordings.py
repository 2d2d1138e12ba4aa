"""Recordings of any length become episodes of one length: what datasets of a user's own labels share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bench.data.streams import StreamDataset, Table
from bench.errors import ConfigError, DataError
from bench.traffic import CHUNK_S, COMPONENTS, FPS, SLOTS, WINDOW_CHUNKS

SHOWN = 20  # problems printed before "and n more"
NOBODY = np.zeros((0, 4), np.int64)


@dataclass(frozen=True)
class Recording:
    """One camera, video or period. steps: int (chunks, 12), quarters; known: bool (chunks, 12); public: may a method
    fit on it?  objects: int (n, 4), where single objects are known: object, chunk, component, the steps it adds; an
    object keeps its number in all recordings.
    """

    name: str
    public: bool
    steps: np.ndarray
    known: np.ndarray
    objects: np.ndarray = field(default_factory=lambda: NOBODY)


@dataclass
class Found:
    """What reading a folder gave: recordings, every problem in it, and what a reader of the numbers must know."""

    recordings: list[Recording] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class RecordedDataset(StreamDataset):
    """Base of a dataset that is read from labels in a user's folder. layout: where its files lie; most: windows of an
    episode; filmed: chunks of a window, fewer than usual where all recordings are short clips.
    """

    needs_root: ClassVar[bool] = True
    layout: ClassVar[str] = ""
    most: ClassVar[int] = SLOTS
    filmed: ClassVar[int] = WINDOW_CHUNKS

    @abstractmethod
    def read(self, root: Path, report: Callable[[str], None]) -> Found:
        """Everything in an existing folder; problems are collected, never raised."""

    def table(self, root: Path | None, report: Callable[[str], None]) -> Table:
        """All episodes. Raises one DataError that lists the problems of `root`."""
        found = self.read(self._checked(root), report)
        if found.problems:
            more = len(found.problems) - SHOWN
            listed = "; ".join(found.problems[:SHOWN]) + (f"; and {more} more" if more > 0 else "")
            raise DataError(f"{root} cannot be used as it is: {listed}.", f"The layout is {self.layout}.",
                            "Mend or remove what is listed, and try again.")
        return cut(self.name, found.recordings, self.most, self.filmed, found.notes)

    def problems(self, root: Path) -> list[str]:
        """Every problem of a folder, one sentence each; empty when it can be prepared."""
        try:
            found = self.read(self._checked(root), lambda text: None)
            if not found.problems:
                cut(self.name, found.recordings, self.most, self.filmed, ())
        except DataError as error:
            return [error.what]
        return found.problems

    def _checked(self, root: Path | None) -> Path:
        if root is None:
            raise ConfigError(f"The dataset {self.name} needs a folder.", "Nothing is downloaded.",
                              f"Give --root DIR, laid out as {self.layout}.")
        if not Path(root).is_dir():
            raise DataError(f"There is no folder {root}.", "", f"Give --root a folder laid out as {self.layout}.")
        return Path(root)


class Faults:
    """What is wrong with one file or recording: each kind of fault once, with the first place and how many more."""

    def __init__(self, where: str = ""):
        self.where, self._found = where, dict[str, list[str]]()

    def add(self, fault: str, place: str = "") -> None:
        self._found.setdefault(fault, []).append(place)

    def __iter__(self) -> Iterator[str]:
        for fault, places in self._found.items():
            more = f", and {len(places) - 1} more" if len(places) > 1 else ""
            yield " ".join(part for part in (self.where, places[0], fault) if part) + more


def repeated(rows: np.ndarray) -> np.ndarray:
    """The rows (k, d) that stand more than once in `rows` (n, d)."""
    found, count = np.unique(rows, axis=0, return_counts=True)
    return found[count > 1]


# ---- episodes ------------------------------------------------------------------------------------------------------

def cut(name: str, recordings: Sequence[Recording], most: int, filmed: int, notes: Iterable[str]) -> Table:
    """Episodes of one length (see `_length`), ids sorted; windows of `filmed` chunks, filled up (see `_filled`).

    A longer recording gives several episodes; what is left over is dropped and counted, and so is a public episode
    that shows an object of a test episode. Raises DataError where a part of the split is left without episodes.
    """
    length = _length(recordings, most, filmed)
    if not length:
        longest = max((len(r.steps) for r in recordings), default=0) * CHUNK_S
        raise DataError(f"Every recording of {name} is shorter than a window: the longest has {longest:g} s.",
                        f"A report covers {filmed * CHUNK_S:g} s, and remainders are dropped.",
                        "Bring longer recordings.")
    size = length * filmed
    pieces = sorted((piece for r in recordings for piece in _pieces(r, size)), key=lambda piece: piece[0])
    tested = {int(o) for _, r, objects, _ in pieces if not r.public for o in objects[:, 0]}
    kept = [p for p in pieces if not (p[1].public and tested & set(p[2][:, 0].tolist()))]
    for public in (True, False):
        if not any(r.public == public for _, r, _, _ in kept):
            raise DataError(f"{name} has no {'public' if public else 'test'} episode of {size * CHUNK_S:g} s.",
                            "Methods fit on public episodes and are measured on test episodes; an object stands in "
                            "one part only, and recordings that are shorter are left out.",
                            "Bring more or longer recordings of both parts.")
    said = [*notes, *_left(recordings, size, len(pieces) - len(kept))]
    rows = [np.column_stack([np.full(len(objects), e), objects]) for e, (_, _, objects, _) in enumerate(kept)]
    objects = np.concatenate(rows).astype(np.int64)
    objects[:, 2] += objects[:, 2] // filmed * (WINDOW_CHUNKS - filmed)
    fit = np.array([r.public for _, r, _, _ in kept])
    steps, known = (np.stack([getattr(r, what)[part] for _, r, _, part in kept]) for what in ("steps", "known"))
    return Table(tuple(p[0] for p in kept), _filled(np.where(known, steps, 0), fit, filmed), fit, objects,
                 known=_filled(known, np.zeros_like(fit), filmed), says=tuple(said), filmed=filmed)


def _filled(chunks: np.ndarray, public: np.ndarray, filmed: int) -> np.ndarray:
    """Windows of `filmed` chunks (N, T filmed, 12) made as long as any other, (N, T 30, 12).

    Of a test episode by zeros, which the harness takes out again; of a public one by whole numbers that keep the mean
    of the window, so that what a method learns there is about means.
    """
    more = WINDOW_CHUNKS - filmed
    windows = chunks.reshape(len(chunks), -1, filmed, chunks.shape[2])  # (N, T, filmed, 12)
    mean = windows.mean(axis=2, keepdims=True) * public[:, None, None, None]
    total = np.floor(np.arange(more + 1)[:, None] * mean + 0.5)  # (N, T, more + 1, 12)
    added = np.diff(total, axis=2).astype(chunks.dtype)
    return np.concatenate([windows, added], axis=2).reshape(len(chunks), -1, chunks.shape[2])


def _length(recordings: Sequence[Recording], most: int, filmed: int) -> int:
    """Windows of an episode: as many as `most` that leave both parts an episode and keep half of all windows."""
    whole = [len(r.steps) // filmed for r in recordings]
    for length in range(most, 1, -1):
        parts = {r.public for r, count in zip(recordings, whole, strict=True) if count >= length}
        if len(parts) == 2 and 2 * sum(count // length * length for count in whole) >= sum(whole):
            return length
    return min(1, sum(whole))


def _pieces(recording: Recording, size: int) -> Iterable[tuple[str, Recording, np.ndarray, slice]]:
    """(id, recording, its objects with chunks counted from the piece's start, its chunks) of each whole episode."""
    for number in range(len(recording.steps) // size):
        own = recording.objects[recording.objects[:, 1] // size == number]
        yield f"{recording.name}/{number:02d}", recording, own - [0, number * size, 0, 0], \
            slice(number * size, (number + 1) * size)


def _left(recordings: Sequence[Recording], size: int, shared: int) -> Iterable[str]:
    short = sum(len(r.steps) < size for r in recordings)
    dropped = sum(len(r.steps) % size for r in recordings)
    if dropped:
        yield (f"{dropped * CHUNK_S:g} s at the ends of recordings were dropped: an episode has {size * CHUNK_S:g} s"
               + (f", and {short} of {len(recordings)} recordings are shorter." if short else "."))
    if shared:
        yield f"{shared} public episodes that show an object of the test part were left out."


# ---- chunks --------------------------------------------------------------------------------------------------------

def sampled(frames: int, fps: float) -> np.ndarray:
    """Frame numbers from 0 on, int (4 chunks,), of a recording at two frames a second, whole chunks only.

    >>> sampled(45, 10).tolist()
    [0, 5, 10, 15, 20, 25, 30, 35]
    """
    count = int(frames / fps / CHUNK_S + 1e-9) * int(CHUNK_S * FPS)
    return np.floor(np.arange(count) * fps / FPS + 0.5).astype(np.int64)


def component(name: str) -> int:
    return COMPONENTS.index(name)


def listed(counts: dict[Any, int]) -> str:
    """`{"night": 3, "daytime": 1}` -> "daytime 1, night 3"."""
    return ", ".join(f"{key} {count}" for key, count in sorted(counts.items(), key=str))
