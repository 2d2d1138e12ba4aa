"""The traffic schema (PROTOCOL 5): four experts, twelve components, chunks, windows, requests. Public by definition.

A chunk is 2 s, four frames; a report covers a window of 30 chunks. Values of a chunk are means over its four frames,
kept as whole quarters ("steps"), so that sums over a window are whole numbers.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from bench import seeds
from bench.privacy.contract import CHUNK_STEPS

CHUNK_FRAMES, CHUNK_S, FPS = CHUNK_STEPS, 2.0, 2.0  # a mean over four frames is a whole number of quarters
WINDOW_CHUNKS, SLOTS = 30, 10
WINDOW_S = CHUNK_S * WINDOW_CHUNKS
PRIORITIES, PRIORITY_ODDS = (0, 1, 3), (0.30, 0.45, 0.25)


@dataclass(frozen=True)
class Expert:
    """One expert: its components, its cap (L1 per chunk), and whether it names one of several states."""

    name: str
    components: tuple[str, ...]
    cap: int
    label: bool = False

    @property
    def dim(self) -> int:
        return len(self.components)


EXPERTS = (
    Expert("traffic", ("moving", "stopped"), 20),
    Expert("pedestrian", ("walking", "waiting"), 6),
    Expert("signs", ("stop", "speed_limit", "other_sign", "no_sign"), 1, label=True),
    Expert("environment", ("clear", "rain", "fog", "other_weather"), 1, label=True),
)
NAMES = tuple(expert.name for expert in EXPERTS)
COMPONENTS = tuple(name for expert in EXPERTS for name in expert.components)


def columns(name: str) -> slice:
    """Where the components of an expert stand among the twelve.

    >>> columns("pedestrian")
    slice(2, 4, None)
    """
    start = 0
    for expert in EXPERTS:
        if expert.name == name:
            return slice(start, start + expert.dim)
        start += expert.dim
    raise KeyError(name)


def expert(name: str) -> Expert:
    return next(e for e in EXPERTS if e.name == name)


def windows(steps: np.ndarray) -> np.ndarray:
    """Chunk steps (N, chunks, d) -> window means float64 (N, T, d); chunks after the last whole window are dropped."""
    count = steps.shape[1] // WINDOW_CHUNKS
    whole = steps[:, :count * WINDOW_CHUNKS].reshape(len(steps), count, WINDOW_CHUNKS, steps.shape[2])
    return whole.sum(axis=2, dtype=np.int64) / float(WINDOW_CHUNKS * CHUNK_STEPS)


@dataclass(frozen=True)
class Requests:
    """What is asked of each slot, public: expert (N, T) as an index, priority (N, T)."""

    expert: np.ndarray
    priority: np.ndarray


def requests(seed: int, dataset: str, episodes: int, slots: int, experts: Collection[str] = NAMES) -> Requests:
    """One task a slot, uniform over some experts, with its priority; the same for every method."""
    rng, among = seeds.derive(seed, "requests", dataset), [m for m, e in enumerate(EXPERTS) if e.name in experts]
    asked = np.array(among)[rng.integers(len(among), size=(episodes, slots))]
    return Requests(asked, rng.choice(PRIORITIES, size=(episodes, slots), p=PRIORITY_ODDS))
