"""Stages of the traffic road: `streams` (prepare), `gather` (read and clip every chunk), `report` (release).

    gather/vault/chunks.safetensors          clipped un-noised steps of every chunk of the test episodes
    report/release/reports.parquet           one row a window: twelve values, which of them are fresh, the text
    report/release/transcript.safetensors    noisy window sums and realised scales
    report/vault/                            noise, seed, which random id is which episode

Chunks are read first, by the harness alone; then the method's process plans window by window from released values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench import registry, seeds
from bench.data.streams import Streams, write_streams
from bench.errors import PluginError
from bench.nets.training import use_threads
from bench.privacy.bits import Bits, SeededBits
from bench.privacy.claims import EventClaim
from bench.privacy.contract import CHUNK_STEPS, Branch
from bench.privacy.mechanism import Planner, Transcript
from bench.privacy.windows import clip_chunks, release_windows, replayed, window_sums
from bench.registry import Spec
from bench.reports import ages, text
from bench.run.cache import write_json
from bench.run.enforced import PublicWorker, full_claim, priced, short_claim
from bench.run.sandbox import available
from bench.run.stages import Job
from bench.run.views import fitted_state, load_tensors, save_tensors
from bench.traffic import COMPONENTS, EXPERTS, SLOTS, WINDOW_CHUNKS, columns

BLOCK = 256  # streams in lock-step; fixed, since sums inside a method may depend on the size of a batch
CLEAR = EventClaim(WINDOW_CHUNKS, 2, (Fraction(1),), (Fraction(0),) * SLOTS)  # windows of a method without a claim


def run_prepare(job: Job) -> None:
    """config: dataset, root, seed, fingerprint of the root."""
    root = Path(job.config["root"]) if job.config["root"] else None
    adapter = registry.build("datasets", job.config["dataset"])
    write_streams(adapter, root, int(job.config["seed"]), job.out, job.report)


def branches_of(facts: Mapping[str, Any]) -> tuple[Branch, ...]:
    """Branches of a traffic method, named by their experts. Raises PluginError for any other."""
    found = tuple(Branch.from_dict(b) for b in facts["branches"])
    known = {e.name: e.dim for e in EXPERTS}
    if facts["encodes"] != "fields" or any(known.get(b.name) != b.dim for b in found) or not found:
        raise PluginError(f"The branches {[b.name for b in found]} with encode = {facts['encodes']!r} cannot be read.",
                          "The trusted reader gives each expert's components by its name.",
                          f"Set encode = \"fields\" and name branches after {', '.join(known)}.")
    return found


def event_of(facts: Mapping[str, Any], slots: int = SLOTS) -> EventClaim:
    """The event terms of a claim, of its first `slots` windows; of a method without one, its windows alone.

    Shorter streams release a part of what the claim has priced, so that it holds of them too.
    """
    claim = full_claim(facts)
    event = claim.event if claim is not None and claim.event is not None else CLEAR
    return replace(event, spends=event.spends[:slots])


def run_gather(job: Job) -> None:
    """config: method, variant, facts; inputs: streams. Clips every chunk of the test episodes to the claim's caps."""
    streams, out = Streams(job.inputs["streams"]), {}
    values = streams.steps[streams.test()] / CHUNK_STEPS  # (N, chunks, 12)
    for branch in branches_of(job.config["facts"]):
        steps, _ = clip_chunks(values[..., columns(branch.name)], branch, CHUNK_STEPS)
        out[f"steps:{branch.name}"] = steps.astype(np.int32)
    (job.out / "vault").mkdir()
    save_tensors(job.out / "vault" / "chunks.safetensors", out)


# ---- release -------------------------------------------------------------------------------------------------------

def run_report(job: Job) -> None:
    """config: method, variant, profile, seed, draws, facts; inputs: streams, gather, fit when it fits."""
    use_threads()
    streams, isolation = Streams(job.inputs["streams"]), available()
    spec = Spec(job.config["method"], job.config["variant"])
    branches, event = branches_of(job.config["facts"]), event_of(job.config["facts"], streams.info["slots"])
    order = _order(job, streams)  # (N, 2): test episode, draw
    chunks = load_tensors(job.inputs["gather"] / "vault" / "chunks.safetensors")
    sums = {b.name: window_sums(chunks[f"steps:{b.name}"].astype(np.int64), event)[order[:, 0]] for b in branches}
    asked, declared = _public(streams, order, job.config["profile"]), job.config["lane"] == "declared"
    seen = asked | {"raw": np.nan_to_num(streams.truth(streams.test()))[order[:, 0]]} if declared else asked
    with PublicWorker(spec, job.config["profile"], isolation) as worker:
        worker.load_state(fitted_state(job.inputs))
        transcript = _released(worker, sums, branches, event, seen, _bits(job, streams))
        _spoke(spec, branches, event, transcript)
        reports = _rendered(worker, transcript, asked)
        fresh = fresh_of(transcript.released)
        if all(b.noise is None for b in branches):  # all passes in clear: fresh is what the method says of it
            fresh &= said_in(_rendered(worker, transcript, asked, "isolated"))
    with PublicWorker(spec, job.config["profile"], isolation) as again:
        again.load_state(fitted_state(job.inputs))
        same = _replayed(again, transcript, branches, event, asked, reports, strict=not declared)
    _write(job, streams, order, transcript, reports, fresh, {"isolation": isolation.as_dict(), "replayed": same})


def _spoke(spec: Spec, branches: tuple[Branch, ...], event: EventClaim, transcript: Transcript) -> None:
    """Raises PluginError for a method that may spend and released nothing: it would look like the most private."""
    noisy = [b.name for b in branches if b.noise is not None]
    if noisy and any(event.spends) and all(np.isnan(transcript.released[n]).all() for n in noisy):
        raise PluginError(f"{spec} released nothing in any window of {len(transcript.released[noisy[0]])} streams.",
                          "All its spends were 0 or over what a window or the budget allows: nothing is released then.",
                          "Spend within `limits`; the row that releases nothing is public_median.")


def _order(job: Job, streams: Streams) -> np.ndarray:
    """(N, 2): position among the test episodes and draw of each stream, in an order that tells nothing."""
    every = [(e, d) for e in range(len(streams.test())) for d in range(job.config["draws"])]
    rng = seeds.derive(int(job.config["seed"]), "report-order", job.config["method"], job.config["variant"] or "")
    return np.array(every)[rng.permutation(len(every))]


def _bits(job: Job, streams: Streams) -> SeededBits:
    """Benchmark noise of one release and no other."""
    names = ("method", "variant", "profile", "draws")
    return SeededBits(seeds.derive(int(job.config["seed"]), "protective-noise", streams.info["manifest"],
                                   *(str(job.config.get(name)) for name in names)))


def _public(streams: Streams, order: np.ndarray, profile: str) -> dict[str, Any]:
    """Public facts of all streams: what each slot asks for, how many chunks of a window were filmed, and whether the
    fields were read in pictures.
    """
    test = streams.test()[order[:, 0]]
    return {"asked": streams.requests.expert[test], "priority": streams.requests.priority[test], "profile": profile,
            "filmed": streams.filmed, "from_video": streams.from_video}


def _facts_of(public: Mapping[str, Any], index: np.ndarray) -> dict[str, Any]:
    return {k: v[index].tolist() if isinstance(v, np.ndarray) else v for k, v in public.items()}


def blocks(count: int) -> Iterator[tuple[np.ndarray, int]]:
    """(indices of exactly BLOCK streams, how many of them count); the last block repeats its first stream."""
    for start in range(0, count, BLOCK):
        index = np.arange(start, min(start + BLOCK, count))
        yield np.concatenate([index, np.full(BLOCK - len(index), index[0])]), len(index)


def _stretch(public: Mapping[str, Any]) -> float:
    """What makes a noisy sum over the filmed chunks that of a whole window; methods divide by a whole window. It is
    public and comes after the noise.
    """
    return WINDOW_CHUNKS / public.get("filmed", WINDOW_CHUNKS)


def planner_of(worker: PublicWorker, public: Mapping[str, Any]) -> Planner:
    """Asks the method's process what to spend, from released window sums and public facts."""
    by = _stretch(public)
    return lambda t, past, memory: worker.plan(t, {n: v * by for n, v in past.items()}, memory, public)


def _released(worker: PublicWorker, sums: Mapping[str, np.ndarray], branches: tuple[Branch, ...], event: EventClaim,
              public: Mapping[str, Any], bits: Bits) -> Transcript:
    """All streams, block by block, windows in lock-step."""
    names = [b.name for b in branches]
    parts: dict[str, dict[str, list[np.ndarray]]] = {f: {n: [] for n in names}
                                                     for f in ("released", "scales", "residuals")}
    spends: dict[str, list[list[Fraction]]] = {}
    for index, size in blocks(len(sums[names[0]])):
        planner = planner_of(worker, _facts_of(public, index))
        made = release_windows({n: sums[n][index] for n in names}, branches, planner, event, bits)
        for field, found in parts.items():
            for name in names:
                found[name].append(getattr(made, field)[name][:size])
        for name, own in made.spends.items():
            spends.setdefault(name, []).extend(own[:size])
    whole = {field: {n: np.concatenate(v) for n, v in found.items()} for field, found in parts.items()}
    return Transcript(whole["released"], whole["scales"], whole["residuals"], spends)


def _rendered(worker: PublicWorker, transcript: Transcript, public: Mapping[str, Any],
              decoding: str = "assembled") -> np.ndarray:
    """Reports float64 (N, T, 12), block by block. Raises PluginError on another shape or an infinite value.

    decoding: "isolated" = each window without memory of the others, NaN where nothing is said of it.
    """
    out = []
    (count, slots), by = public["asked"].shape, _stretch(public)
    for index, size in blocks(count):
        arrays = {f"{i}:{n}": v[k] * by for i, k in enumerate(index) for n, v in transcript.released.items()}
        _, found = worker.call({"op": "render", "clips": len(index), "public": _facts_of(public, index),
                                "decoding": decoding}, arrays)
        made = found.get("frames")
        wanted = (BLOCK, slots, len(COMPONENTS))
        if made is None or made.shape != wanted or made.dtype != np.float64 or np.isinf(made).any():
            got = "nothing" if made is None else f"{made.dtype} {made.shape}"
            raise PluginError(f"render of {worker.spec} returned {got}, wanted finite float64 {wanted}.",
                              "A report has twelve values a window, NaN = missing.", "Mend `render`.")
        out.append(made[:size])
    return np.concatenate(out)


def _replayed(worker: PublicWorker, transcript: Transcript, branches: tuple[Branch, ...], event: EventClaim,
              public: Mapping[str, Any], reports: np.ndarray, *, strict: bool) -> bool:
    """A fresh process gets the released values again: spends and reports must be the same, bit for bit.

    Whether they are; strict: raises PluginError where they are not. A method whose claim is only declared may read
    the exact windows (`public["raw"]`), and that is how it shows.
    """
    for index, size in blocks(len(reports)):
        planner = planner_of(worker, _facts_of(public, index))
        found = replayed({n: v[index] for n, v in transcript.released.items()}, branches, planner, event)
        for name, own in found.items():
            if own[:size] != [transcript.spends[name][k] for k in index[:size]]:
                if not strict:
                    return False
                raise PluginError(f"The spends of {worker.spec} for {name!r} differ on replay.",
                                  "They may follow from released values and public facts only, not from chance, the "
                                  "clock or a hidden channel.", "Mend `plan`; nothing was published.")
    if not np.array_equal(_rendered(worker, transcript, public), reports, equal_nan=True):
        if not strict:
            return False
        raise PluginError(f"The reports of {worker.spec} differ on replay.",
                          "Rendering may read released values and public facts only.",
                          "Mend `render`: no unseeded chance, no clock; nothing was published.")
    return True


# ---- the border ----------------------------------------------------------------------------------------------------

def fresh_of(transcript: Mapping[str, np.ndarray]) -> np.ndarray:
    """bool (N, T, experts): what was released in its own window, from released values {branch: (N, T, dim)}."""
    shape = next(iter(transcript.values())).shape[:2]
    return np.stack([~np.isnan(transcript[e.name][..., 0]) if e.name in transcript else np.zeros(shape, dtype=bool)
                     for e in EXPERTS], axis=2)


def shown_of(reads: np.ndarray) -> np.ndarray:
    """Experts that a camera has, bool (..., 4) -> the components that a report may show, bool (..., 12)."""
    return np.repeat(reads, [e.dim for e in EXPERTS], axis=-1)


def said_in(reports: np.ndarray) -> np.ndarray:
    """bool (N, T, experts): does the report (N, T, 12) of a window say something of an expert's components?"""
    return np.stack([~np.isnan(reports[..., columns(e.name)]).all(axis=2) for e in EXPERTS], axis=2)


def _write(job: Job, streams: Streams, order: np.ndarray, transcript: Transcript, reports: np.ndarray,
           fresh: np.ndarray, checked: dict[str, Any]) -> None:
    rng = seeds.derive(int(job.config["seed"]), "report-ids", job.config["method"], job.config["variant"] or "")
    names = {int(e): rng.bytes(8).hex() for e in sorted(set(order[:, 0]))}
    release, vault = job.out / "release", job.out / "vault"
    release.mkdir()
    vault.mkdir()
    reads = streams.reads[streams.test()[order[:, 0]]] & \
        [not streams.absent[columns(e.name)].all() for e in EXPERTS]  # (N, 4)
    fresh = fresh & reads[:, None]
    reports = np.where(shown_of(reads)[:, None] & ~streams.absent, reports, np.nan)  # public: what nobody reads there
    pq.write_table(_table(reports, fresh, [names[int(e)] for e in order[:, 0]], order[:, 1]),
                   release / "reports.parquet")
    pq.write_table(pa.table({"id": [names[int(e)] for e in order[:, 0]], "draw": order[:, 1]}),
                   release / "manifest.parquet")
    kept = {f"steps:{n}": np.nan_to_num(v).astype(np.int64) for n, v in transcript.released.items()}
    scales = {f"scale:{n}": v for n, v in transcript.scales.items()}
    save_tensors(release / "transcript.safetensors", kept | scales)
    noise = {f"residual:{n}": v for n, v in transcript.residuals.items()}
    save_tensors(vault / "residuals.safetensors", noise | scales)
    test = streams.test()
    known = [{"id": name, "video": streams.info["ids"][test[e]], "episode": e} for e, name in names.items()]
    pq.write_table(pa.Table.from_pylist(known), vault / "idmap.parquet")
    write_json(vault / "vault.json", {"seed": job.config["seed"]})
    digest = hashlib.sha256((release / "transcript.safetensors").read_bytes()).hexdigest()
    write_json(release / "release.json", _facts(job, streams, checked, digest, len(order)))


def _table(reports: np.ndarray, fresh: np.ndarray, ids: list[str], draws: np.ndarray) -> pa.Table:
    count, slots, _ = reports.shape
    old, ever = ages(fresh), np.logical_or.accumulate(fresh, axis=1)  # (N, T, E)
    flat = {name: reports[..., c].ravel() for c, name in enumerate(COMPONENTS)}
    shown = {f"fresh_{e.name}": fresh[..., m].ravel() for m, e in enumerate(EXPERTS)}
    words = [text(reports[n, t], old[n, t], ever[n, t]) for n in range(count) for t in range(slots)]
    return pa.table({"id": np.repeat(ids, slots).tolist(), "draw": np.repeat(draws, slots),
                     "window": np.tile(np.arange(slots), count), **flat, **shown, "text": words})


def _facts(job: Job, streams: Streams, checked: dict[str, Any], digest: str, count: int) -> dict[str, Any]:
    config, facts = job.config, job.config["facts"]
    cost = priced(facts)[1].as_dict()
    return {"schema": 2, "method": config["method"], "variant": config["variant"], "profile": config["profile"],
            "dataset": streams.info["name"], "draws": config["draws"], "files": count, "lane": config["lane"],
            "claim": short_claim(facts), "full_claim": facts["full_claim"],
            "price": {k: (str(v) if v == float("inf") else v) for k, v in cost.items()}, "noise": "seeded",
            "benchmark_only": True, "transcript": digest, "branches": facts["branches"], **checked}
