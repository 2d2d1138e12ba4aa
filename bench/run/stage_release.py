"""Stage `release`: the method runs in a worker; this side hands it frames and keeps the border.

    release/release.json       method, claim, decoding, draws, frames, what the method counted; never a seed
    release/manifest.parquet   random ids, draw, clip, frames, digest of each file; no source, name, label, role
    release/media/*.mkv        what the world may see
    vault/idmap.parquet        which random id is whom; private to the organiser
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import bench.video as video_io
from bench import seeds
from bench.data.clips import Clips, Row
from bench.registry import Spec
from bench.run.cache import write_json
from bench.run.enforced import clip_length
from bench.run.stages import Job
from bench.run.views import fitted_state
from bench.run.workers import MethodWorker
from bench.types import CLIP_FRAMES, Video

PARTS = {"development": ("train",), "calibration": ("calibration",), "enrolment": ("test",), "probe": ("test",)}


@dataclass(frozen=True)
class Item:
    """One video to release: whose, which draw, which clip (-1: the whole video)."""

    row: Row
    draw: int
    clip: int
    id: str


def run_release(job: Job) -> None:
    """config: method, variant, profile, seed, parts, draws, decoding; inputs: clips, and state when fitted."""
    spec, clips = Spec(job.config["method"], job.config["variant"]), Clips(job.inputs["clips"])
    items = items_of(job.config, clips)
    (job.out / "release" / "media").mkdir(parents=True)
    (job.out / "vault").mkdir()
    with MethodWorker(spec, job.config["profile"]) as worker:
        facts = worker.call({"op": "facts"})[0]
        if "fit" in job.inputs:
            worker.load_state(fitted_state(job.inputs))
        manifest = list(_release_all(worker, job, clips, items))
        counts = worker.call({"op": "counts"})[0]["counts"]
    said = {"frames": sum(row["frames"] for row in manifest), "counts": counts}
    write_border(job, items, manifest, {**_release_facts(job.config, clips, facts, len(manifest)), **said})


def write_border(job: Job, items: list[Item], manifest: list[dict[str, Any]], facts: Mapping[str, Any]) -> None:
    """Manifest and facts of the release, id map and seed of the vault."""
    pq.write_table(pa.Table.from_pylist(manifest), job.out / "release" / "manifest.parquet")
    write_json(job.out / "release" / "release.json", facts)
    fields = ("video", "person", "label", "part", "role")
    known = {item.id: {"id": item.id, **{f: getattr(item.row, f) for f in fields}} for item in items}
    pq.write_table(pa.Table.from_pylist(list(known.values())), job.out / "vault" / "idmap.parquet")
    write_json(job.out / "vault" / "vault.json", {"seed": job.config["seed"]})


def _release_facts(config: Mapping[str, Any], clips: Clips, facts: Mapping[str, Any], count: int) -> dict[str, Any]:
    return {"schema": 1, "method": config["method"], "variant": config["variant"], "profile": config["profile"],
            "dataset": clips.info["name"], "canvas_px": clips.info["canvas_px"], "decoding": config["decoding"],
            "draws": config["draws"], "files": count, "lane": facts["lane"], "claim": facts["claim"],
            "isolation": "process split only", "memory": facts["memory_between_clips"]}


def items_of(config: Mapping[str, Any], clips: Clips) -> list[Item]:
    """Everything that was asked for, in an order that tells nothing."""
    wanted = {(part, role) for name in config["parts"] for part in PARTS[name]
              for role in ([name] if part == "test" else [""])}
    rows = [r for r in clips.rows() if (r.part, r.role) in wanted]
    rng = seeds.derive(int(config["seed"]), "release-order", clips.info["name"], config["method"],
                       config["variant"] or "")
    ids = {r.video: rng.bytes(8).hex() for r in rows}
    items = [Item(row, draw, clip, ids[row.video]) for row in _subset(rows, config.get("subset"))
             for draw in range(draws_of(config["draws"], row)) for clip in _clips_of(row, config)]
    return [items[i] for i in rng.permutation(len(items))]


def draws_of(draws: int | Mapping[str, int], row: Row) -> int:
    """R of a row: one number for all, or one a part ({"development": 2, "probe": 1}), 1 where it is not named."""
    if isinstance(draws, int):
        return draws
    name = next(n for n, parts in PARTS.items() if row.part in parts and (row.part != "test" or n == row.role))
    return draws.get(name, 1)


def _subset(rows: list[Row], subset: str | None) -> list[Row]:
    """All rows, or with "one" the first video of each person, label and role."""
    if subset is None:
        return rows
    first: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        first.setdefault((row.person, row.label, row.role), row)
    return list(first.values())


def _clips_of(row: Row, config: Mapping[str, Any]) -> range | tuple[int, ...]:
    if config["decoding"] != "isolated":
        return (-1,)
    return (0,) if config.get("subset") else range(-(-row.frames // clip_length(config.get("facts"))))


def _release_all(worker: MethodWorker, job: Job, clips: Clips, items: list[Item]) -> Iterator[dict[str, Any]]:
    seed = int(job.config["seed"])
    for number, item in enumerate(items):
        video = clips.video(item.row)
        if item.clip >= 0:
            start = item.clip * CLIP_FRAMES
            video = Video(video.frames[start:start + CLIP_FRAMES], video.fps)
        released = worker.release(video, seeds.derive_int(seed, "release", item.row.video, item.draw, item.clip))
        yield written(job.out / "release" / "media" / f"{number:06d}.mkv", item, released)
        if (number + 1) % 100 == 0 or number + 1 == len(items):
            job.report(f"{number + 1}/{len(items)} videos")


def written(path: Path, item: Item, video: Video) -> dict[str, Any]:
    """Write one released video; its row of the manifest."""
    video_io.write_lossless(path, video.frames, video.fps)
    return {"id": item.id, "draw": item.draw, "clip": item.clip, "frames": len(video), "fps": video.fps,
            "file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
