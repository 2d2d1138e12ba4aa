"""The prepared folder of a traffic dataset: values of every chunk under a hashed description.

    dataset.json    name, track, split digest, manifest digest, numbers of episodes and chunks; what is public of its
                    gaps: `missing` (components without any value), `filmed` (chunks of a window that were filmed),
                    `says` (sentences)
    streams.npz     steps int16 (N, chunks, 12), quarters of a value; public bool (N,); asked, priority int (N, T);
                    objects int32 (n, 5): what single objects add, see Table
                    truth int16 (N, chunks, 12), known bool (N, chunks, 12), reads bool (N, 4): where they differ from
                    the defaults, see Table
    notes.json      of videos: what their owner should know; tells of the protected videos, never published

What is not known is never scored: its truth is NaN. Where labels lack a value, a method reads the fixed vector, as
where an expert failed. Where clips are shorter than a window, the chunks after `filmed` are nobody's: a mean is over
the filmed ones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bench.data.crossing.committed import digest
from bench.errors import DataError
from bench.traffic import (
    CHUNK_S,
    CHUNK_STEPS,
    COMPONENTS,
    EXPERTS,
    SLOTS,
    WINDOW_CHUNKS,
    Requests,
    columns,
    requests,
)

GIVEN = ("truth", "known", "reads")  # arrays of a table that a dataset may leave out


@dataclass(frozen=True)
class Table:
    """Episodes of one length. ids: names, sorted; steps int (N, chunks, 12); public (N,): may a method fit on it?

    objects: int (n, 5), where single objects are known: episode, object, chunk, component and the steps that it adds;
    an object keeps its number in all episodes.
    truth: int (N, chunks, 12), where `steps` are readings of a video: what was really there.
    known: bool (N, chunks, 12), where something is not: has this component a true value in this chunk?
    reads: bool (N, 4), which experts an episode has; the values of the others are missing.  notes: for the owner.
    says: what a reader of the numbers must know, one sentence each, printed when the dataset is prepared and published
    with it.  filmed: chunks of each window that were filmed.
    """

    ids: tuple[str, ...]
    steps: np.ndarray
    public: np.ndarray
    objects: np.ndarray = field(default_factory=lambda: np.zeros((0, 5), np.int32))
    truth: np.ndarray | None = None
    known: np.ndarray | None = None
    reads: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    filmed: int = WINDOW_CHUNKS

    def missing(self) -> list[str]:
        """Components without any label. None of a video's: there `reads` says what a camera has."""
        if self.known is None or self.truth is not None:
            return []
        gone = np.flatnonzero(~self.known.any(axis=(0, 1)))
        return [COMPONENTS[i] for i in gone]


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
    """Prepare a traffic dataset into `out`. Raises DataError where an episode has no whole window, more than SLOTS of
    them, or no value.
    """
    table = adapter.table(root, report)
    slots, missing = _slots(adapter.name, table), table.missing()
    steps = table.steps.astype(np.int16)
    given = {name: getattr(table, name) for name in GIVEN if getattr(table, name) is not None}
    if "truth" in given:
        given["truth"] = given["truth"].astype(np.int16)
    labelled = [e.name for e in EXPERTS if not set(COMPONENTS[columns(e.name)]) <= set(missing)]
    asked = requests(seed, adapter.name, len(table.ids), slots, labelled)
    np.savez_compressed(out / "streams.npz", steps=steps, public=table.public, asked=asked.expert,
                        priority=asked.priority, objects=table.objects.astype(np.int32), **given)
    if table.notes:
        (out / "notes.json").write_text(json.dumps(table.notes, indent=1), encoding="utf-8")
    split = hashlib.sha256(json.dumps([[i, bool(p)] for i, p in zip(table.ids, table.public, strict=True)]).encode())
    info = {"name": adapter.name, "title": adapter.title, "licence": adapter.licence, "track": adapter.track,
            "publishable": adapter.publishable, "ids": list(table.ids), "chunks": table.steps.shape[1],
            "slots": slots, "seed": seed, "split": split.hexdigest(), "manifest": _manifest(steps, given),
            "left_over_chunks": table.steps.shape[1] - slots * WINDOW_CHUNKS,
            "videos": len(table.ids), "people": int((~table.public).sum()),
            "missing": missing, "filmed": table.filmed, "says": list(table.says)}
    (out / "dataset.json").write_text(json.dumps(info, indent=1), encoding="utf-8")


def _slots(name: str, table: Table) -> int:
    """Whole windows of an episode; a table that no method could read is refused."""
    slots = table.steps.shape[1] // WINDOW_CHUNKS
    if not slots:
        raise DataError(f"The episodes of {name} have {table.steps.shape[1]} chunks.",
                        f"A report covers a window of {WINDOW_CHUNKS}.", "Bring longer videos.")
    if slots > SLOTS:
        raise DataError(f"The episodes of {name} have {slots} windows.", f"Claims speak of {SLOTS} at most.",
                        "Cut the streams into shorter episodes.")
    if table.steps.shape[2] != len(COMPONENTS) or (table.steps < 0).any():
        raise DataError(f"The table of {name} has values {table.steps.shape}, least {table.steps.min()}.",
                        "Counts are not negative, and there are twelve components.", "")
    if len(table.missing()) == len(COMPONENTS):
        raise DataError(f"No component of {name} has a value.", "There would be nothing to report.", "")
    return slots


def _manifest(steps: np.ndarray, given: dict[str, np.ndarray]) -> str:
    """SHA-256 of the readings; with truth, what is known of it, and experts, where they are given."""
    found = [digest(steps), *(f"{name} {digest(given[name])}" for name in sorted(given))]
    return found[0] if not given else hashlib.sha256("\n".join(found).encode()).hexdigest()


class Streams:
    """A prepared traffic dataset, opened for reading. known: bool (N, chunks, 12), has a chunk a true value?; absent:
    bool (12,), components that no chunk has; filmed: chunks of a window that were filmed; reads: bool (N, 4).
    """

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self.info: dict[str, Any] = json.loads((self.folder / "dataset.json").read_text(encoding="utf-8"))
        with np.load(self.folder / "streams.npz") as found:
            self.steps, self.public = found["steps"], found["public"]
            self.requests = Requests(found["asked"], found["priority"])
            self._objects = found["objects"]
            given = {name: found[name] for name in GIVEN if name in found}
        if _manifest(self.steps, given) != self.info["manifest"]:
            raise DataError(f"{self.folder / 'streams.npz'} is not what was prepared.", "", "Prepare it again.")
        self.from_video = "truth" in given  # else the steps are labels, or exact
        self._truth = given.get("truth", self.steps)
        self.known = given.get("known", np.ones(self.steps.shape, dtype=bool))
        self.reads = given.get("reads", np.ones((len(self.steps), len(EXPERTS)), dtype=bool))
        self.absent = np.isin(COMPONENTS, self.info["missing"])
        self.filmed = int(self.info["filmed"])

    def test(self) -> np.ndarray:
        """Numbers of the test episodes."""
        return np.flatnonzero(~self.public)

    def truth(self, episodes: np.ndarray) -> np.ndarray:
        """Window means (n, T, 12) of what was there in the filmed chunks; NaN where one of these is unknown."""
        values, known = (self._filmed(chunks[episodes]) for chunks in (self._truth, self.known))
        means = values.sum(axis=2, dtype=np.int64) / float(self.filmed * CHUNK_STEPS)
        return np.where(known.all(axis=2), means, np.nan)

    def _filmed(self, chunks: np.ndarray) -> np.ndarray:
        """(n, chunks, 12) -> (n, T, filmed, 12): the filmed chunks of each whole window."""
        slots = self.info["slots"]
        whole = chunks[:, :slots * WINDOW_CHUNKS].reshape(len(chunks), slots, WINDOW_CHUNKS, chunks.shape[2])
        return whole[:, :, :self.filmed]

    def crossing(self) -> list[int]:
        """Objects that are seen in public and in test episodes. A dataset that counts them anew in each has none."""
        parts = [set(self._objects[self.public[self._objects[:, 0]] == public, 1].tolist()) for public in (True, False)]
        return sorted(parts[0] & parts[1])

    def stays(self, episode: int) -> dict[str, list[np.ndarray]]:
        """{"vehicle", "pedestrian": what each object of the episode adds over its whole visit, int (chunks, 12)}."""
        rows = self._objects[self._objects[:, 0] == episode]
        out: dict[str, list[np.ndarray]] = {"vehicle": [], "pedestrian": []}
        for number in sorted(set(rows[:, 1].tolist())):
            own, added = rows[rows[:, 1] == number], np.zeros(self.steps.shape[1:], dtype=np.int64)
            np.add.at(added, (own[:, 2], own[:, 3]), own[:, 4])
            out["vehicle" if own[0, 3] < 2 else "pedestrian"].append(added)
        return out


def said_of(info: dict) -> Iterator[str]:
    """What a prepared dataset lacks, in sentences; nothing where it has every component, as videos of faces do."""
    if missing := info.get("missing"):
        yield (f"{info['name']} has no labels of {', '.join(missing).replace('_', ' ')}: reports leave them out, and "
               "what measures them says so instead of counting 0.")
    if info.get("filmed", WINDOW_CHUNKS) < WINDOW_CHUNKS:
        yield (f"A window has {info['filmed']} filmed chunks, {info['filmed'] * CHUNK_S:g} s: means and their noise "
               "are those of these chunks.")
    yield from info.get("says", ())


def check_streams(folder: Path) -> list[str]:
    """What is wrong with a prepared folder, in sentences; empty when it is as it was prepared and nobody crosses."""
    try:
        crossing = Streams(folder).crossing()
    except (DataError, OSError, EOFError, ValueError, KeyError) as error:
        return [error.what if isinstance(error, DataError) else f"streams.npz cannot be read ({type(error).__name__})"]
    return [f"object {number} stands in both parts" for number in crossing]
