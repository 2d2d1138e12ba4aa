"""The audit of an event claim: two streams that differ in K chunks, released over and over (called by stage `audit`).

Neighbours are fixed before the first release: a public episode in which K chunks hold far too many of the one kind,
and the same with far too many of the other, so that a mechanism that forgets to clip is seen too. The chunks lie in the
first window, or where the claim allows it in every window. The guess is by the exact likelihood ratio of the noisy
sums under the scales that the release states, which no observer can beat where these are true.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench import seeds
from bench.data.streams import Streams
from bench.privacy.audit import BETA, SCALE_ALARM
from bench.privacy.bits import Bits, SeededBits
from bench.privacy.claims import EventClaim
from bench.privacy.contract import CHUNK_STEPS, Branch
from bench.privacy.mechanism import Planner, Transcript
from bench.privacy.windows import clip_chunks, release_windows, window_sums
from bench.registry import Spec
from bench.run.audit_trials import FAR, Trials, scale_row
from bench.run.enforced import BLOCK, PublicWorker, priced
from bench.run.sandbox import available
from bench.run.stage_reports import planner_of
from bench.run.stages import Job
from bench.run.views import fitted_state
from bench.traffic import columns

WORDS = {"one_window": "K chunks of one window, all experts", "one_expert": "K chunks of one window, one expert",
         "every_window": "K chunks of every window, all experts"}
KEPT_BLOCKS, FEWEST_DRAWS = 16, 100  # of releases whose noise is tested, of draws that make a test
Release = Callable[..., Transcript]  # as release_windows


@dataclass(frozen=True)
class StreamPair:
    """Two streams: clipped window sums {branch: int64 (T, dim)}."""

    name: str
    first: dict[str, np.ndarray]
    second: dict[str, np.ndarray]


def pairs_of(steps: np.ndarray, branches: tuple[Branch, ...], event: EventClaim, adjacency: str) -> list[StreamPair]:
    """Neighbours made from one public episode, int (chunks, 12): those that the claim's adjacency knows."""
    names = ("one_window", "one_expert", *(("every_window",) if adjacency == "per_window" else ()))
    made = []
    for name in names:
        ends = []
        for kind in (0, 1):
            values = steps / CHUNK_STEPS
            for t in range(len(event.spends) if name == "every_window" else 1):
                start = t * (event.cadence_chunks or event.window_chunks)
                for b in branches[:1] if name == "one_expert" else branches:
                    far = FAR * b.clip * (np.arange(b.dim) == kind)
                    values[start:start + event.changed_chunks, columns(b.name)] = far
            ends.append({b.name: window_sums(clip_chunks(values[None, :, columns(b.name)], b, CHUNK_STEPS)[0], event)[0]
                         for b in branches})
        made.append(StreamPair(name, *ends))
    return made


@dataclass
class StreamMechanism:
    """The trusted loop over windows for one pair, read as an observer reads it. Keeps its first blocks.

    release: `release_windows`, or what stands in for it where an audit is to catch a broken one.
    """

    pair: StreamPair
    branches: tuple[Branch, ...]
    event: EventClaim
    planner: Planner | None
    bits: Bits  # benchmark noise; independent of the bits that choose the input
    release: Release = release_windows
    kept: list[tuple[np.ndarray, Transcript]] = field(default_factory=list)

    def given(self, bits: np.ndarray) -> dict[str, np.ndarray]:
        """Sums {branch: int64 (B, T, dim)} of the streams that the bits (B,) choose."""
        return {b.name: np.where(bits[:, None, None], self.pair.second[b.name], self.pair.first[b.name])
                for b in self.branches}

    def __call__(self, bits: np.ndarray) -> dict[str, np.ndarray]:
        """ln p(second) - ln p(first) of every noisy sum, {branch: (B, T, dim)}; 0 where nothing was released."""
        out = self.release(self.given(bits), self.branches, self.planner, self.event, self.bits)
        if len(self.kept) < KEPT_BLOCKS:
            self.kept.append((bits, out))
        found = {}
        for b in self.branches:
            seen, scale = out.released[b.name], out.scales[b.name][..., None]
            apart = np.abs(seen - self.pair.first[b.name]) - np.abs(seen - self.pair.second[b.name])
            found[b.name] = np.where(np.isnan(seen), 0.0, np.nan_to_num(apart) / np.where(scale > 0, scale, 1.0))
        return found

    def inputs(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Weights of the matched filter: log ratios count once where the two streams differ, and nowhere else."""
        differ = {b.name: (self.pair.first[b.name] != self.pair.second[b.name]).astype(float) for b in self.branches}
        return {n: np.zeros_like(v) for n, v in differ.items()}, differ

    def spread(self) -> dict[str, float]:
        return {b.name: 1.0 for b in self.branches}

    def noise_rows(self) -> list[dict[str, Any]]:
        """One test a branch of the noise of the first blocks, where it was least: released minus given."""
        given, rows = self.given(np.concatenate([bits for bits, _ in self.kept])), []
        for b in self.branches:
            seen = np.concatenate([out.released[b.name] for _, out in self.kept])
            scale = np.concatenate([out.scales[b.name] for _, out in self.kept])  # (B, T), NaN: nothing released
            least = np.isclose(scale, np.nanmin(scale)) if np.isfinite(scale).any() else np.zeros(scale.shape, bool)
            if least.sum() * b.dim >= FEWEST_DRAWS:
                rows.append(scale_row(b, seen[least], given[b.name][least], scale[least]))
        return rows


def run_stream_audit(job: Job, audited: Callable[..., tuple[dict[str, Any], Trials]],
                     report: Callable[..., None]) -> None:
    """config: as `run_audit`; inputs: streams, and fit when fitted. audited, report: what every audit shares."""
    streams, facts = Streams(job.inputs["streams"]), job.config["facts"]
    branches, (claim, cost) = tuple(Branch.from_dict(b) for b in facts["branches"]), priced(facts)
    assert claim.event is not None
    spec, seed = Spec(job.config["method"], job.config["variant"]), int(job.config["seed"])
    episode = int(seeds.derive(seed, "audit", str(spec), "episode").choice(np.flatnonzero(streams.public)))
    pairs, found = pairs_of(streams.steps[episode], branches, claim.event, claim.adjacency), []
    beta = max(BETA - SCALE_ALARM * len(branches), BETA / 2) / len(pairs)  # a true claim is refuted with BETA at most
    public = {"asked": [streams.requests.expert[episode].tolist()] * BLOCK, "profile": job.config["profile"],
              "priority": [streams.requests.priority[episode].tolist()] * BLOCK, "filmed": streams.filmed,
              "from_video": streams.from_video}
    noise: list[dict[str, Any]] = []
    with PublicWorker(spec, job.config["profile"], available()) as worker:
        worker.load_state(fitted_state(job.inputs))
        for i, pair in enumerate(pairs):
            n = (job.config["releases"] + i) // len(pairs)
            job.report(f"{n} releases: {WORDS[pair.name]}")
            rng = [seeds.derive(seed, "audit", str(spec), kind, pair.name) for kind in ("noise", "bits")]
            mechanism = StreamMechanism(pair, branches, claim.event, planner_of(worker, public), SeededBits(rng[0]))
            found.append(audited(mechanism, n, cost, rng[1], beta))
            noise = noise or mechanism.noise_rows()
    report(job, streams.info["name"], cost, found, noise, beta)
