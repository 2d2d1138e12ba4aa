"""600 ten-minute episodes of a signalled crossing, simulated; the counts are committed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import numpy as np

from bench import DataError, dataset
from bench.data.crossing import committed
from bench.data.crossing.labels import chain, one_hot
from bench.data.streams import StreamDataset, Table
from bench.traffic import CHUNK_FRAMES


@dataset("sumo_crossing")
class SumoCrossing(StreamDataset):
    """A crossing with signals, cars and people, seen from above: 80 x 80 m, two frames a second, our own net and
    demand, driven by SUMO. Episodes 0 to 399 are public, 400 to 599 are released and attacked. Counts come from the
    committed file; `veilbench data prepare sumo_crossing --root DIR` simulates them again (extra `traffic`), writes
    them to DIR and compares. Signs and weather are drawn chains: SUMO has neither.
    """

    title: ClassVar[str] = "A simulated crossing"
    licence: ClassVar[str] = "Apache-2.0"
    publishable: ClassVar[bool] = True

    def table(self, root: Path | None, report: Callable[[str], None]) -> Table:
        """All 600 episodes; with a root they are simulated first and must be the committed ones, bit for bit."""
        if root is not None:
            _again(root, report)
        counts = committed.counts()
        chunks = counts.reshape(len(counts), -1, CHUNK_FRAMES, counts.shape[2]).sum(axis=2, dtype=np.int16)
        labels = [np.stack([one_hot(chain(name, e)) for e in range(len(counts))]) * np.int16(CHUNK_FRAMES)
                  for name in ("signs", "environment")]
        ids = tuple(f"episode{e:03d}" for e in range(len(counts)))
        return Table(ids, np.concatenate([chunks, *labels], axis=2), np.arange(len(counts)) < committed.PUBLIC,
                     np.concatenate([_objects(e) for e in committed.TRACKED if e >= committed.PUBLIC]))


def _objects(episode: int) -> np.ndarray:
    """What each vehicle and person of a tracked episode adds, int (n, 5): see Table."""
    frame, number, kind, active = committed.tracks(episode)[:, :4].T
    keys, steps = np.unique(np.stack([number, frame // CHUNK_FRAMES, 2 * kind + 1 - active]), axis=1,
                            return_counts=True)
    return np.concatenate([np.full((1, keys.shape[1]), episode), keys, steps[None]]).T


def _again(root: Path, report: Callable[[str], None]) -> None:
    """Simulate everything into `root`. Raises DataError that says what differs from the committed digests."""
    from bench.data.crossing import simulate

    if not root.is_dir():
        raise DataError(f"There is no folder {root}.", "The simulated counts are written there.", "Make it first.")
    counts, tracks = simulate.run_all(committed.EPISODES, frozenset(committed.TRACKED), report)
    committed.write(root, counts, tracks, simulate.VERSION)
    wrong = [e for e in range(len(counts)) if not np.array_equal(counts[e], committed.counts()[e])]
    wrong += [e for e in tracks if not np.array_equal(tracks[e], committed.tracks(e))]
    if wrong:
        raise DataError(f"Simulated again, {len(set(wrong))} episodes differ: {sorted(set(wrong))[:5]} ...",
                        "The counts are those of another simulation.", "Use the SUMO that the extra `traffic` names.")
