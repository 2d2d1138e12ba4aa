"""The prepared folder of a traffic dataset: values of every chunk under a hashed description.

    dataset.json    name, track, split digest, manifest digest, numbers of episodes and chunks
    streams.npz     steps int16 (N, chunks, 12), quarters of a value; public bool (N,); asked, priority int (N, T);
                    objects int32 (n, 5): what single objects add, see Table
                    truth int16 (N, chunks, 12), reads bool (N, 4): where they differ from the defaults, see Table
    notes.json      of videos: what their owner should know; tells of the protected videos, never published
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bench.data.crossing.committed import digest
from bench.errors import DataError
from bench.traffic import COMPONENTS, EXPERTS, WINDOW_CHUNKS, Requests, requests, windows


@dataclass(frozen=True)
class Table:
    """Episodes of one length. ids: names, sorted; steps int (N, chunks, 12); public (N,): may a method fit on it?

    objects: int (n, 5), where single objects are known: episode, object, chunk, component and the steps that it adds.
    truth: int (N, chunks, 12), where `steps` are readings of a video: what was really there, -1 = nobody knows.
    reads: bool (N, 4), which experts an episode has; the values of the others are missing.  notes: for the owner.
    """

    ids: tuple[str, ...]
    steps: np.ndarray
    public: np.ndarray
    objects: np.ndarray = field(default_factory=lambda: np.zeros((0, 5), np.int32))
    truth: np.ndarray | None = None
    reads: np.ndarray | None = None
    notes: tuple[str, ...] = ()


class StreamDataset:
    """Base of a traffic dataset: gives its table of chunk values.

    publishable: may the site show pictures of it?  needs_root: is it a folder of the user's?
    """

    track: ClassVar[str] = "traffic"
    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    licence: ClassVar[str] = ""
    publishable: ClassVar[bool] = False
    needs_root: ClassVar[bool] = False

    def table(self, root: Path | None, report: Callable[[str], None]) -> Table:
        """Values of all episodes. Raises DataError that lists every problem of `root`."""
        raise NotImplementedError


def write_streams(adapter: StreamDataset, root: Path | None, seed: int, out: Path,
                  report: Callable[[str], None]) -> None:
    """Prepare a traffic dataset into `out`. Raises DataError where an episode has no whole window or no value."""
    table = adapter.table(root, report)
    slots = table.steps.shape[1] // WINDOW_CHUNKS
    if not slots:
        raise DataError(f"The episodes of {adapter.name} have {table.steps.shape[1]} chunks.",
                        f"A report covers a window of {WINDOW_CHUNKS}.", "Bring longer videos.")
    if table.steps.shape[2] != len(COMPONENTS) or (table.steps < 0).any():
        raise DataError(f"The table of {adapter.name} has values {table.steps.shape}, least {table.steps.min()}.",
                        "Counts are not negative, and there are twelve components.", "")
    steps = table.steps.astype(np.int16)
    asked = requests(seed, adapter.name, len(table.ids), slots)
    more: dict[str, Any] = {} if table.truth is None else {"truth": table.truth.astype(np.int16)}
    more |= {} if table.reads is None else {"reads": table.reads}
    np.savez_compressed(out / "streams.npz", steps=steps, public=table.public, asked=asked.expert,
                        priority=asked.priority, objects=table.objects.astype(np.int32), **more)
    if table.notes:
        (out / "notes.json").write_text(json.dumps(table.notes, indent=1), encoding="utf-8")
    split = hashlib.sha256(json.dumps([[i, bool(p)] for i, p in zip(table.ids, table.public, strict=True)]).encode())
    info = {"name": adapter.name, "title": adapter.title, "licence": adapter.licence, "track": adapter.track,
            "publishable": adapter.publishable, "ids": list(table.ids), "chunks": table.steps.shape[1],
            "slots": slots, "seed": seed, "split": split.hexdigest(), "manifest": _manifest(steps, more),
            "left_over_chunks": table.steps.shape[1] - slots * WINDOW_CHUNKS,
            "videos": len(table.ids), "people": int((~table.public).sum())}
    (out / "dataset.json").write_text(json.dumps(info, indent=1), encoding="utf-8")


def _manifest(steps: np.ndarray, more: dict[str, np.ndarray]) -> str:
    """SHA-256 of the readings; with truth and experts where they are given."""
    found = [digest(steps), *(f"{name} {digest(more[name])}" for name in sorted(more))]
    return found[0] if not more else hashlib.sha256("\n".join(found).encode()).hexdigest()


class Streams:
    """A prepared traffic dataset, opened for reading."""

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self.info: dict[str, Any] = json.loads((self.folder / "dataset.json").read_text(encoding="utf-8"))
        with np.load(self.folder / "streams.npz") as found:
            self.steps, self.public = found["steps"], found["public"]
            self.requests = Requests(found["asked"], found["priority"])
            self._objects = found["objects"]
            more = {name: found[name] for name in ("truth", "reads") if name in found}
        self._truth = more.get("truth")
        self.from_video = self._truth is not None  # else the steps are exact
        self.reads = more.get("reads", np.ones((len(self.steps), len(EXPERTS)), dtype=bool))
        if _manifest(self.steps, more) != self.info["manifest"]:
            raise DataError(f"{self.folder / 'streams.npz'} is not what was prepared.", "", "Prepare it again.")

    def test(self) -> np.ndarray:
        """Numbers of the test episodes."""
        return np.flatnonzero(~self.public)

    def truth(self, episodes: np.ndarray) -> np.ndarray:
        """Window means (n, T, 12) of what was there in some episodes; NaN where a chunk of the window is unknown."""
        if self._truth is None:
            return windows(self.steps[episodes])
        known = self._truth[episodes]
        return np.where(windows(known < 0) > 0, np.nan, windows(known))

    def stays(self, episode: int) -> dict[str, list[np.ndarray]]:
        """{"vehicle", "pedestrian": what each object of the episode adds over its whole visit, int (chunks, 12)}."""
        rows = self._objects[self._objects[:, 0] == episode]
        out: dict[str, list[np.ndarray]] = {"vehicle": [], "pedestrian": []}
        for number in sorted(set(rows[:, 1].tolist())):
            own, added = rows[rows[:, 1] == number], np.zeros(self.steps.shape[1:], dtype=np.int64)
            np.add.at(added, (own[:, 2], own[:, 3]), own[:, 4])
            out["vehicle" if own[0, 3] < 2 else "pedestrian"].append(added)
        return out


def check_streams(folder: Path) -> list[str]:
    """What is wrong with a prepared folder, in sentences; empty when it is as it was prepared."""
    try:
        Streams(folder)
    except (DataError, OSError, ValueError, KeyError) as error:
        return [error.what if isinstance(error, DataError) else f"streams.npz cannot be read ({type(error).__name__})"]
    return []
