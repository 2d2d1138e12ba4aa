"""Stage `enforced`: from the encoded clips of a method to its release, with noise that the harness draws.

    release/transcript.safetensors   noisy values and realised scales, beside the media
    vault/residuals.safetensors      the noise itself, for audits

When the first value is released, no process that has seen a raw one is alive.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from bench import seeds
from bench.data.clips import Clips
from bench.errors import PluginError
from bench.privacy.bits import SeededBits
from bench.privacy.contract import Branch
from bench.privacy.mechanism import Planner, Transcript, replay_scales, run_streams, unit_of
from bench.registry import Spec
from bench.run.enforced import BLOCK, PublicWorker, clip_length, priced, short_claim
from bench.run.sandbox import available
from bench.run.stage_encode import branches_of, check_encoded, small
from bench.run.stage_release import Item, items_of, write_border, written
from bench.run.stages import Job
from bench.run.views import fitted_state, load_tensors, save_tensors
from bench.types import CLIP_FRAMES, Video


@dataclass(frozen=True)
class Streams:
    """The clips of all items, in the order of the release: which item, which atom."""

    items: list[Item]
    first: list[int]  # first stream of each item
    atom: np.ndarray  # (N,) row of the encode stage

    def of(self, number: int) -> range:
        stop = self.first[number + 1] if number + 1 < len(self.first) else len(self.atom)
        return range(self.first[number], stop)


def streams_of(items: list[Item], index: list[Mapping[str, Any]], length: int = CLIP_FRAMES) -> Streams:
    """One stream per clip of every item."""
    place = {(r["video"], r["clip"]): i for i, r in enumerate(index)}
    first: list[int] = []
    atoms: list[int] = []
    for item in items:
        first.append(len(atoms))
        atoms += [place[item.row.video, k] for k in (range(-(-item.row.frames // length)) if item.clip < 0
                                                  else (item.clip,))]
    return Streams(items, first, np.array(atoms))


def run_enforced(job: Job) -> None:
    """config: method, variant, profile, seed, parts, draws, decoding, facts, encoded_by where another row encoded;
    inputs: clips, encode, fit if fitted.
    """
    if "encoded_by" in job.config:
        check_encoded(job)
    write_release(job, lambda steps, index: steps, {})


Change = Callable[[dict[str, np.ndarray], list[dict[str, Any]]], dict[str, np.ndarray]]


def write_release(job: Job, change: Change, said: Mapping[str, Any]) -> None:
    """A release folder. `change` gives the clipped steps {branch: (atoms, 16, dim)} that are noised, from those of the
    encode stage and its index; `said` goes into release.json beside all else.
    """
    clips, spec, isolation = Clips(job.inputs["clips"]), Spec(job.config["method"], job.config["variant"]), available()
    branches, fixed = branches_of(job, clips)
    items = items_of(job.config, clips)
    vault = job.inputs["encode"] / "vault"
    index = pq.read_table(vault / "index.parquet").to_pylist()
    streams = streams_of(items, index, clip_length(job.config["facts"]))
    atoms = load_tensors(vault / "atoms.safetensors")
    steps = change({k.name: atoms[f"steps:{k.name}"] for k in branches}, index)
    values = {name: rows[streams.atom].astype(np.int64) for name, rows in steps.items()}
    (job.out / "release" / "media").mkdir(parents=True)
    (job.out / "vault").mkdir()
    state = fitted_state(job.inputs)
    with PublicWorker(spec, job.config["profile"], isolation) as worker:
        worker.load_state(state)
        transcript = _transcript(job, worker, values, branches, noise_bits(job.config, clips), fixed, clips)
        manifest = list(_media(job, worker, streams, transcript, clips))
    with PublicWorker(spec, job.config["profile"], isolation) as again:
        again.load_state(state)
        _replay(job, again, streams, transcript, branches, clips, [m.pop("pixels") for m in manifest])
    digest = _write_values(job, transcript, branches)
    facts = _facts(job, clips, transcript, isolation.as_dict(), digest, len(manifest))
    write_border(job, items, manifest, {**facts, **said})


def noise_bits(config: Mapping[str, Any], clips: Clips) -> SeededBits:
    """Benchmark noise of one release and no other: two that shared it would give their difference away in clear."""
    names = ("method", "variant", "profile", "decoding", "draws", "parts", "subset", "intervention")
    return SeededBits(seeds.derive(int(config["seed"]), "protective-noise", clips.info["manifest"],
                                   *(str(config.get(name)) for name in names)))


def _blocks(count: int) -> Iterator[np.ndarray]:
    """Indices of blocks of exactly BLOCK streams; the last one is filled up with its own first stream."""
    for start in range(0, count, BLOCK):
        index = np.arange(start, min(start + BLOCK, count))
        yield np.concatenate([index, np.full(BLOCK - len(index), index[0])])


def _transcript(job: Job, worker: PublicWorker, values: Mapping[str, np.ndarray], branches: tuple[Branch, ...],
                bits: SeededBits, fixed: Mapping[str, Fraction], clips: Clips) -> Transcript:
    """All streams, block by block; in each block every step waits for the one before."""
    planner, count = worker.planner(job.config["facts"], clips.info["canvas_px"]), len(values[branches[0].name])
    names = [k.name for k in branches]
    whole = Transcript(*({n: [] for n in names} for _ in range(3)))  # type: ignore[arg-type]
    for index in _blocks(count):
        part = run_streams({n: values[n][index] for n in names}, branches, planner, bits, fixed_scale=fixed)
        size = min(BLOCK, count - int(index[0]))
        for name in names:
            for field in ("released", "scales", "residuals"):
                getattr(whole, field)[name].append(getattr(part, field)[name][:size])
        whole.raised += part.raised
    for field in ("released", "scales", "residuals"):
        setattr(whole, field, {n: np.concatenate(v) for n, v in getattr(whole, field).items()})
    return whole


def _rendered(worker: PublicWorker, job: Job, streams: Streams, transcript: Transcript, number: int, clips: Clips,
              *, backwards: bool = False) -> Video:
    """One item, from its released values and public facts; a method without memory gets each clip for itself.

    backwards: the clips in another order; a renderer that remembers what it rendered before gives another video.
    """
    item = streams.items[number]
    length = clip_length(job.config["facts"])
    frames = item.row.frames if item.clip < 0 else min(length, item.row.frames - item.clip * length)
    public = {"fps": item.row.fps, "canvas_px": clips.info["canvas_px"], "profile": job.config["profile"]}
    parts = [{name: rows[i] for name, rows in transcript.released.items()} for i in streams.of(number)]
    if job.config["facts"]["memory_between_clips"]:
        return Video(worker.render(parts, {**public, "frames": frames}, job.config["decoding"]), item.row.fps)
    order = range(len(parts))
    made = {k: worker.render([parts[k]], {**public, "frames": min(length, frames - k * length)}, "isolated")
            for k in (reversed(order) if backwards else order)}
    return Video(np.concatenate([made[k] for k in order]), item.row.fps)


def _media(job: Job, worker: PublicWorker, streams: Streams, transcript: Transcript,
           clips: Clips) -> Iterator[dict[str, Any]]:
    for number, item in enumerate(streams.items):
        video = _rendered(worker, job, streams, transcript, number, clips)
        row = written(job.out / "release" / "media" / f"{number:06d}.mkv", item, video)
        own = streams.of(number)
        yield {**row, "first_stream": own.start, "streams": len(own),
               "pixels": hashlib.sha256(video.frames.tobytes()).hexdigest()}
        if (number + 1) % 100 == 0 or number + 1 == len(streams.items):
            job.report(f"{number + 1}/{len(streams.items)} videos")


def _replay(job: Job, worker: PublicWorker, streams: Streams, transcript: Transcript, branches: tuple[Branch, ...],
            clips: Clips, pixels: list[str]) -> None:
    """A fresh process gets the same released values, in the opposite order: all must come out the same, bit for bit."""
    planner = worker.planner(job.config["facts"], clips.info["canvas_px"])
    if planner is not None:
        _replay_plan(planner, worker.spec, streams, transcript, branches)
    for number, digest in reversed(list(enumerate(pixels))):
        video = _rendered(worker, job, streams, transcript, number, clips, backwards=True)
        if hashlib.sha256(video.frames.tobytes()).hexdigest() != digest:
            raise PluginError(f"The video {number} of {worker.spec} differs on replay.",
                              "Rendering may read released values and public facts only.",
                              "Mend `render`: no unseeded chance, no clock, no memory of other videos; nothing was "
                              "published.")


def _replay_plan(planner: Planner, spec: Spec, streams: Streams, transcript: Transcript,
                 branches: tuple[Branch, ...]) -> None:
    for index in _blocks(len(streams.atom)):
        found = replay_scales({n: v[index] for n, v in transcript.released.items()}, branches, planner)
        for name, scales in found.items():
            if not np.array_equal(scales, transcript.scales[name][index]):
                raise PluginError(f"The scales of {spec} in branch {name!r} differ on replay.",
                                  "A scale may follow from released values and public facts only, not from chance, "
                                  "the clock or a hidden channel.", "Mend `plan`; nothing was published.")


def _write_values(job: Job, transcript: Transcript, branches: tuple[Branch, ...]) -> str:
    """Noisy steps and scales to the release, noise to the vault; SHA-256 of the first."""
    steps = {f"steps:{k.name}": np.rint(transcript.released[k.name] / unit_of(k)).astype(np.int64) for k in branches}
    path = job.out / "release" / "transcript.safetensors"
    save_tensors(path, {k: small(v) for k, v in steps.items()}
                 | {f"scale:{n}": v for n, v in transcript.scales.items()})
    save_tensors(job.out / "vault" / "residuals.safetensors",
                 {f"residual:{n}": small(v) for n, v in transcript.residuals.items()}
                 | {f"scale:{n}": v for n, v in transcript.scales.items()})
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _facts(job: Job, clips: Clips, transcript: Transcript, isolation: dict[str, Any], digest: str,
           count: int) -> dict[str, Any]:
    facts, config = job.config["facts"], job.config
    _, cost = priced(facts)
    scales = {name: {"least": float(v.min()), "median": float(np.median(v)), "most": float(v.max())}
              for name, v in transcript.scales.items()}
    return {"schema": 2, "method": config["method"], "variant": config["variant"], "profile": config["profile"],
            "dataset": clips.info["name"], "canvas_px": clips.info["canvas_px"], "decoding": config["decoding"],
            "draws": config["draws"], "files": count, "lane": "enforced", "claim": short_claim(facts),
            "full_claim": facts["full_claim"], "price": {k: (str(v) if v == float("inf") else v)
                                                         for k, v in cost.as_dict().items()},
            "isolation": isolation, "noise": "seeded", "benchmark_only": True, "scales": scales,
            "raised_to_floor": transcript.raised, "transcript": digest, "branches": facts["branches"],
            "replayed": True, "clip_frames": clip_length(facts), "memory": facts["memory_between_clips"]}
