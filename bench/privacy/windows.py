"""Event claims as the harness executes them: clip chunks, sum windows, spend under a filter (PROTOCOL 5).

A chunk's values are whole steps inside the expert's cap; the sum of a window moves by at most 2 K C when K of its
chunks change. Noise of scale 2 K C / e on the sum costs e; means are made afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bench.errors import PluginError
from bench.privacy.bits import Bits
from bench.privacy.claims import EventClaim
from bench.privacy.contract import Branch, Plan
from bench.privacy.filters import ChunkLoadFilter, TotalFilter, WindowGuard
from bench.privacy.mechanism import Planner, Transcript, clip_rows, replay_spends, run_streams


def clip_chunks(values: np.ndarray, branch: Branch, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Values (N, chunks, dim) of an expert -> whole steps int64 inside its cap, and which chunks were replaced.

    A chunk that is not finite counts as the fixed vector; it is never dropped, since the denominator is public.
    """
    flat = np.asarray(values, dtype=np.float64).reshape(-1, branch.dim)
    failed = np.asarray(~np.isfinite(flat).all(axis=1))  # (N * chunks,)
    clipped, _ = clip_rows(np.where(failed[:, None], 0.0, flat) * steps, branch, len(flat))
    return clipped.reshape(values.shape), failed.reshape(values.shape[:-1])


def window_sums(steps: np.ndarray, event: EventClaim) -> np.ndarray:
    """Clipped steps (N, chunks, dim) -> sums int64 (N, T, dim) of the claim's windows.

    Raises PluginError when the stream has fewer whole windows than the claim spends for; what is left over is dropped.
    """
    cadence = event.cadence_chunks or event.window_chunks
    starts = [t * cadence for t in range(len(event.spends))]
    if starts[-1] + event.window_chunks > steps.shape[1]:
        raise PluginError(f"A stream of {steps.shape[1]} chunks has no {len(starts)} windows of "
                          f"{event.window_chunks} chunks.", "The claim spends for each of them.",
                          "Claim as many windows as the episode has.")
    return np.stack([steps[:, s:s + event.window_chunks].sum(axis=1) for s in starts], axis=1)


def guards(event: EventClaim, streams: int) -> list[WindowGuard]:
    """One filter a stream: the claim's list of spends, then its budget by its accountant."""
    budget = event.budget if event.budget is not None else sum(event.spends)
    if event.accountant == "sum":
        return [WindowGuard(event.spends, TotalFilter(budget)) for _ in range(streams)]
    return [WindowGuard(event.spends, ChunkLoadFilter(budget, event.window_chunks, event.cadence_chunks))
            for _ in range(streams)]


def release_windows(sums: Mapping[str, np.ndarray], branches: Sequence[Branch], planner: Planner | None,
                    event: EventClaim, bits: Bits) -> Transcript:
    """Noisy window sums of B streams in lock-step. sums: {branch: int64 (B, T, dim)}.

    Branches without noise pass in clear (their claim is worth nothing); the others release what is admitted.
    """
    streams = len(sums[branches[0].name])
    return run_streams(sums, branches, complete(planner, branches, streams), bits, filters=guards(event, streams),
                       changed=event.changed_chunks)


def replayed(released: Mapping[str, np.ndarray], branches: Sequence[Branch], planner: Planner | None,
             event: EventClaim) -> dict[str, list[list]]:
    """The admitted spends that follow from a stored transcript; they must equal those that were executed."""
    streams = len(released[branches[0].name])
    planned = complete(planner, branches, streams)
    return replay_spends(released, branches, planned, guards(event, streams)) if planned else {}


def complete(planner: Planner | None, branches: Sequence[Branch], streams: int) -> Planner | None:
    """A planner that speaks of every noisy branch in every window: 0 where it asked for nothing.

    So the filters see each window once, refused and idle ones included.
    """
    noisy = [b.name for b in branches if b.noise is not None]
    if not noisy:
        return None

    def plan(t: int, past: Mapping[str, np.ndarray], memory: Mapping[str, np.ndarray]) -> Plan:
        asked = planner(t, past, memory) if planner is not None else Plan()
        if asked.scale:
            raise PluginError("plan of an event claim gave scales.", "The noise of a window follows from its spend.",
                              "Give spend = {branch: one budget a stream}.")
        return Plan({}, {**{n: ["0"] * streams for n in noisy}, **asked.spend}, asked.memory)

    return plan
