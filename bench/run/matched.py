"""Matched streams with and without an event, made at observation level: to learn from, and to judge by (PROTOCOL 6).

What a release shows is a window sum plus noise, so that a stream with an event is the same stream with other whole
numbers added to its sums. An event that changes what K chunks hold starts from K consecutive chunks that hold the one
thing (all vehicles move) and ends with K that hold the other (all of them stand); one that adds an object adds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bench import seeds
from bench.data.streams import Streams
from bench.distinguishers import Distinguisher, Matched
from bench.paired import auc_values
from bench.privacy.claims import EventClaim
from bench.privacy.contract import CHUNK_STEPS, Branch
from bench.privacy.windows import clip_chunks, window_sums
from bench.traffic import EXPERTS, columns

EXAMPLES = 8000  # public streams that an attack learns an event from
EXACT = tuple(Branch(e.name, dim=e.dim, norm="l1", clip=e.cap * CHUNK_STEPS, noise="discrete_laplace")
              for e in EXPERTS)  # cut to the caps as in a release; read at scale 0
Arrays = Mapping[str, np.ndarray]


def clipped(streams: Streams, episodes: np.ndarray, branches: Sequence[Branch]) -> dict[str, np.ndarray]:
    """Chunk steps {branch: int64 (N, chunks, dim)} of some episodes, as a release clips them."""
    values = streams.steps[episodes] / CHUNK_STEPS
    return {b.name: clip_chunks(values[..., columns(b.name)], b, CHUNK_STEPS)[0] for b in branches}


def matched(sums: Arrays, chunks: Arrays, episode: np.ndarray, shift: Arrays, scale: Arrays, event: EventClaim,
            filmed: int, rng: np.random.Generator) -> Matched:
    """N streams twice. sums, shift: {branch: (N, T, dim)}, noisy sums and what the event adds to them; chunks: {branch:
    (E, chunks, dim)} behind them; episode: (N,), which of the E each stream is; scale: {branch: (N, T)}; filmed:
    chunks of a window that were filmed, so that something can happen in them.
    """
    moved = np.sum([np.abs(v).sum(axis=2) for v in shift.values()], axis=0)  # (N, T)
    window, every = moved.argmax(axis=1), np.arange(len(moved))
    first = window * (event.cadence_chunks or event.window_chunks) + \
        rng.integers(max(1, filmed - event.changed_chunks + 1), size=len(window))
    places = first[:, None] + np.arange(event.changed_chunks)  # (N, K)
    both = {}
    for name, added in shift.items():
        start = np.maximum(-added[every, window], 0)  # (N, dim), what the K chunks hold without the event
        own = chunks[name][episode[:, None], places].sum(axis=1)
        without = sums[name].astype(np.float64)
        without[every, window] += np.where(start.any(axis=1, keepdims=True), start - own, 0)
        both[name] = np.stack([without, without + added])
    return Matched(both, scale, window)


def public_streams(streams: Streams, branches: Sequence[Branch], shift: Arrays, scale: Arrays, event: EventClaim,
                   rng: np.random.Generator) -> Matched:
    """EXAMPLES streams of public episodes under fresh noise, each with the scales and the event of one released stream,
    both moved round to any window: few methods spend in one window alone, and episodes are few.

    Simulated noise of an attacker, not of a release: it protects nobody and may be drawn in floating point.
    """
    public = np.flatnonzero(streams.public)
    chunks = clipped(streams, public, branches)
    episode = rng.integers(len(public), size=EXAMPLES)
    size, slots = next(iter(scale.values())).shape
    like, turn = rng.integers(size, size=EXAMPLES)[:, None], rng.integers(slots, size=EXAMPLES)[:, None]
    moved = (np.arange(slots) - turn) % slots  # (M, T)
    noisy, spread = {}, {b.name: scale[b.name][like, moved] for b in branches}
    for b in branches:
        exact = window_sums(chunks[b.name], event)[episode]  # (M, T, dim)
        noisy[b.name] = exact + _laplace(spread[b.name], exact.shape, rng) if b.noise else exact.astype(np.float64)
    return matched(noisy, chunks, episode, {n: v[like, moved] for n, v in shift.items()}, spread, event,
                   streams.filmed, rng)


def _laplace(scale: np.ndarray, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Discrete Laplace (M, T, dim) of scale (M, T), 0 at scale 0; NaN where that is."""
    p = -np.expm1(-1 / np.where(scale > 0, scale, 1.0))[..., None]
    drawn = np.where(scale[..., None] > 0, rng.geometric(p, shape) - rng.geometric(p, shape), 0)
    return np.where(np.isnan(scale)[..., None], np.nan, drawn)


def learned(attack: Distinguisher, streams: Streams, branches: Sequence[Branch], sums: Arrays, episode: np.ndarray,
            shift: Arrays, scale: Arrays, event: EventClaim, names: tuple[int, str]) -> np.ndarray:
    """What each of N released streams adds to the AUC of an attack on one event, (N,). names: seed and event.

    sums: {branch: (N, T, dim)}, noisy, NaN where nothing was released; episode: (N,), numbers of test episodes.
    """
    rng = seeds.derive(names[0], "matched", attack.name, names[1])
    attack.fit(public_streams(streams, branches, shift, scale, event, rng))
    test, place = np.unique(episode, return_inverse=True)
    scores = attack.score(matched(sums, clipped(streams, test, branches), place, shift, scale, event,
                                  streams.filmed, rng))
    return auc_values(scores[0], scores[1])


def exact(streams: Streams, episode: np.ndarray, event: EventClaim) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Sums and scales of every expert in clear: what the positive control of a learned attack reads."""
    test, place = np.unique(episode, return_inverse=True)
    sums = {n: window_sums(v, event)[place].astype(np.float64) for n, v in clipped(streams, test, EXACT).items()}
    return sums, {n: np.zeros(v.shape[:2]) for n, v in sums.items()}


def each_window(shifts: Sequence[Arrays]) -> Iterator[tuple[str, np.ndarray]]:
    """Shifts of N streams, one dict each, as arrays {branch: int64 (N, T, dim)}."""
    for name in shifts[0]:
        yield name, np.stack([shift[name] for shift in shifts])
