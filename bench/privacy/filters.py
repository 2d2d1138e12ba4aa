"""Budgets in exact arithmetic: what a stream of window releases may still spend, and what it has cost.

A window t covers the chunks t * cadence .. t * cadence + window_chunks - 1. The load of a chunk is the sum of the
spends of the windows that cover it. An event of at most K chunks in all costs at most the mean of the K largest
loads; an event of at most K chunks in every window costs the sum of the spends.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from fractions import Fraction

from bench.privacy.checks import count, exact


class TotalFilter:
    """Admits a spend while the sum of all spends stays within the budget. Fractions only."""

    def __init__(self, budget: Fraction | int | str | float):
        self.budget = exact("budget", budget, 0.0, 1e6)
        self.spent = Fraction(0)

    def admit(self, spend: Fraction | int | str | float) -> bool:
        """True and booked, or False and nothing is spent. A refused release must not read the data."""
        e = exact("spend", spend, 0.0, 1e6)
        if self.spent + e > self.budget:
            return False
        self.spent += e
        return True


class ChunkLoadFilter:
    """Admits a spend while every chunk of its window stays within the budget, over an unlimited horizon.

    Each call is the next window, refused ones included. Loads of chunks that no later window covers are dropped.
    """

    def __init__(self, budget: Fraction | int | str | float, window_chunks: int, cadence_chunks: int | None = None):
        self.budget = exact("budget", budget, 0.0, 1e6)
        self.window = count("window_chunks", window_chunks, 1, 10**6)
        self.cadence = count("cadence_chunks", window_chunks if cadence_chunks is None else cadence_chunks, 1, 10**6)
        self.next_window = 0
        self.peak = Fraction(0)  # the largest load so far
        self._live: list[tuple[int, Fraction]] = []  # (first chunk, spend) of windows that still overlap

    def admit(self, spend: Fraction | int | str | float) -> bool:
        """True and booked on every chunk of the next window, or False and nothing is spent."""
        e = exact("spend", spend, 0.0, 1e6)
        start = self.next_window * self.cadence
        self.next_window += 1
        self._live = [(s, v) for s, v in self._live if s + self.window > start]
        # windows start in order and have one length: the chunk at `start` is covered by all that still overlap
        load = sum((v for _, v in self._live), Fraction(0)) + e
        if load > self.budget:
            return False
        if e:
            self._live.append((start, e))
            self.peak = max(self.peak, load)
        return True


class WindowGuard:
    """Refuses a window that spends more than the claim's list allows, then asks the filter. Each call is a window."""

    def __init__(self, limits: Sequence[Fraction], inner: TotalFilter | ChunkLoadFilter):
        self.limits, self.inner, self.window = limits, inner, 0

    def admit(self, spend: Fraction | int | str | float) -> bool:
        """True and booked, or False and nothing is spent; windows after the last one of the list are refused."""
        e = exact("spend", spend, 0.0, 1e6)
        limit = self.limits[self.window] if self.window < len(self.limits) else Fraction(0)
        self.window += 1
        if e > limit:
            self.inner.admit(0)  # the window passes all the same
            return False
        return self.inner.admit(e)


def loads(spends: Sequence[Fraction], window_chunks: int, cadence_chunks: int) -> list[tuple[Fraction, int]]:
    """(load, number of chunks with it) over the covered chunks, in order of time. Linear in the spends, not chunks."""
    edges: dict[int, Fraction] = {}
    for t, e in enumerate(spends):
        edges[t * cadence_chunks] = edges.get(t * cadence_chunks, Fraction(0)) + e
        end = t * cadence_chunks + window_chunks
        edges[end] = edges.get(end, Fraction(0)) - e
    result, load, last = [], Fraction(0), 0
    for chunk in sorted(edges):
        if chunk > last and load:
            result.append((load, chunk - last))
        load, last = load + edges[chunk], chunk
    return result


def top_k_mean_load(spends: Sequence[Fraction], window_chunks: int, cadence_chunks: int, k: int) -> Fraction:
    """The mean of the k largest chunk loads: what an event of at most k chunks in all costs (fixed spends)."""
    left, total = k, Fraction(0)
    for load, chunks in heapq.nlargest(k, loads(spends, window_chunks, cadence_chunks)):
        total += load * min(left, chunks)
        left -= min(left, chunks)
        if not left:
            break
    return total / k
