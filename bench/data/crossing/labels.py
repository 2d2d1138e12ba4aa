"""Sign and weather of every chunk: sticky chains, drawn by us, since SUMO has neither.

A fixed camera's sign (a changeable board here) and weather are all but public; the chains exist so that all twelve
components have something to say. Mean dwell: 60 chunks for the sign, 200 for the weather.
"""

from __future__ import annotations

import numpy as np

from bench import seeds
from bench.data.crossing.demand import EPISODE_S, SEED
from bench.traffic import CHUNK_S

STATES = 4
DWELL = {"signs": 60, "environment": 200}  # chunks
CHUNKS = int(EPISODE_S / CHUNK_S)


def chain(name: str, episode: int) -> np.ndarray:
    """States uint8 (300,) of an episode: each chunk leaves its state with probability 1 / dwell, for any other."""
    rng = seeds.derive(SEED, "sumo_crossing", name, episode)
    state, leave = int(rng.integers(STATES)), rng.random(CHUNKS) < 1 / DWELL[name]
    step = rng.integers(1, STATES, CHUNKS)
    out = np.empty(CHUNKS, np.uint8)
    for chunk in range(CHUNKS):
        if chunk and leave[chunk]:
            state = (state + int(step[chunk])) % STATES
        out[chunk] = state
    return out


def one_hot(states: np.ndarray) -> np.ndarray:
    """States (...,) -> 0 or 1, int16 (..., 4)."""
    return (states[..., None] == np.arange(STATES)).astype(np.int16)
