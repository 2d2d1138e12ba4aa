"""Traffic datasets whose labels do not say everything: beside the values stands what is known of each chunk.

    known.npz       known bool (N, chunks, 12): has this component a value in this chunk? No file: all of them have
    dataset.json    also `missing` (components without any value), `says` (sentences), `known` (digest of the array),
                    `filmed` (chunks of a window that were filmed, the same in all of them and public)

What is not known is the fixed vector to a method, as where an expert failed, and is never scored: its truth is NaN.
Where clips are shorter than a window, the chunks after `filmed` are nobody's: a mean is over the filmed ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench import seeds
from bench.data.crossing.committed import digest
from bench.data.streams import StreamDataset, Streams, Table, check_streams, write_streams
from bench.errors import DataError
from bench.traffic import (
    CHUNK_S,
    CHUNK_STEPS,
    COMPONENTS,
    EXPERTS,
    PRIORITIES,
    PRIORITY_ODDS,
    SLOTS,
    WINDOW_CHUNKS,
    columns,
)


@dataclass(frozen=True)
class PartialTable(Table):
    """known: bool (N, chunks, 12). says: what a reader of the numbers must know, one sentence each, printed when the
    dataset is prepared and published with it (unlike `notes`). filmed: chunks of each window that were filmed.
    """

    known: np.ndarray = field(default_factory=lambda: np.zeros((0, 0, len(COMPONENTS)), bool))
    says: tuple[str, ...] = ()
    filmed: int = WINDOW_CHUNKS


class _Read(StreamDataset):
    """A dataset whose table has been read."""

    def __init__(self, adapter: StreamDataset, table: Table):
        for name in ("name", "title", "licence", "publishable"):
            setattr(self, name, getattr(adapter, name))
        self._table = table

    def table(self, root: Path | None, report: Callable[[str], None]) -> Table:
        return self._table


def prepare_streams(adapter: StreamDataset, root: Path | None, seed: int, out: Path,
                    report: Callable[[str], None]) -> None:
    """`write_streams`, and what is known where the table says it. Raises DataError, for more than SLOTS windows too."""
    table = adapter.table(root, report)
    write_streams(_Read(adapter, table), root, seed, out, report)
    info = json.loads((out / "dataset.json").read_text(encoding="utf-8"))
    if info["slots"] > SLOTS:
        raise DataError(f"The episodes of {adapter.name} have {info['slots']} windows.",
                        f"Claims speak of {SLOTS} at most.", "Cut the streams into shorter episodes.")
    if isinstance(table, PartialTable):
        _write_known(table, info, seed, out)


def _write_known(table: PartialTable, info: dict, seed: int, out: Path) -> None:
    """known.npz, the further fields of dataset.json, and requests for those experts alone that have labels."""
    absent = np.asarray(~table.known.any(axis=(0, 1)))  # (12,)
    np.savez_compressed(out / "known.npz", known=table.known)
    with np.load(out / "streams.npz") as found:
        arrays = {name: found[name] for name in found}
    labelled = [m for m, e in enumerate(EXPERTS) if not absent[columns(e.name)].all()]
    if not labelled:
        raise DataError(f"No component of {info['name']} has a value.", "There would be nothing to report.", "")
    rng, shape = seeds.derive(seed, "requests", info["name"]), arrays["asked"].shape
    arrays["asked"] = np.array(labelled)[rng.integers(len(labelled), size=shape)]
    arrays["priority"] = rng.choice(PRIORITIES, size=shape, p=PRIORITY_ODDS)
    np.savez_compressed(out / "streams.npz", **arrays)
    info |= {"missing": [c for c, gone in zip(COMPONENTS, absent, strict=True) if gone], "says": list(table.says),
             "known": digest(table.known), "filmed": table.filmed}
    (out / "dataset.json").write_text(json.dumps(info, indent=1), encoding="utf-8")


class PartialStreams(Streams):
    """Any prepared traffic dataset, with what is known. known: bool (N, chunks, 12); absent: bool (12,), components
    that no chunk has.
    """

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.known = np.ones(self.steps.shape, dtype=bool)
        if "known" in self.info:
            with np.load(self.folder / "known.npz") as found:
                self.known = found["known"]
            if digest(self.known) != self.info["known"]:
                raise DataError(f"{self.folder / 'known.npz'} is not what was prepared.", "", "Prepare it again.")
        self.absent = np.isin(COMPONENTS, self.info.get("missing", ()))
        self.filmed = int(self.info.get("filmed", WINDOW_CHUNKS))

    def truth(self, episodes: np.ndarray) -> np.ndarray:
        """Window means float64 (n, T, 12) of the filmed chunks; NaN where one of these has no value. Where `steps` are
        readings of a video, of what was really there.
        """
        if self.from_video:
            return super().truth(episodes)
        steps, known = self._filmed(self.steps[episodes]), self._filmed(self.known[episodes])
        means = steps.sum(axis=2, dtype=np.int64) / float(self.filmed * CHUNK_STEPS)
        return np.where(known.all(axis=2), means, np.nan)

    def crossing(self) -> list[int]:
        """Objects that are seen in public and in test episodes, where numbers are kept over all recordings."""
        if "known" not in self.info:
            return []
        parts = [set(self._objects[self.public[self._objects[:, 0]] == public, 1].tolist()) for public in (True, False)]
        return sorted(parts[0] & parts[1])

    def _filmed(self, chunks: np.ndarray) -> np.ndarray:
        """(n, chunks, 12) -> (n, T, filmed, 12): the filmed chunks of each whole window."""
        slots = self.info["slots"]
        whole = chunks[:, :slots * WINDOW_CHUNKS].reshape(len(chunks), slots, WINDOW_CHUNKS, chunks.shape[2])
        return whole[:, :, :self.filmed]


def said_of(info: dict) -> Iterator[str]:
    """What a prepared dataset lacks, in sentences; nothing where it has every component."""
    if missing := info.get("missing"):
        yield (f"{info['name']} has no labels of {', '.join(missing).replace('_', ' ')}: reports leave them out, and "
               "what measures them says so instead of counting 0.")
    if info.get("filmed", WINDOW_CHUNKS) < WINDOW_CHUNKS:
        yield (f"A window has {info['filmed']} filmed chunks, {info['filmed'] * CHUNK_S:g} s: means and their noise "
               "are those of these chunks.")
    yield from info.get("says", ())


def check_partial(folder: Path) -> list[str]:
    """What is wrong with a prepared folder, in sentences; empty when it is as it was prepared and nobody crosses."""
    if problems := check_streams(folder):
        return problems
    try:
        crossing = PartialStreams(folder).crossing()
    except (DataError, OSError, EOFError, ValueError, KeyError) as error:
        return [error.what if isinstance(error, DataError) else f"known.npz cannot be read ({type(error).__name__})"]
    return [f"object {number} stands in both parts" for number in crossing]
