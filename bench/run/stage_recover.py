"""Stages `learn` (fit a recovery attacker on development pairs) and `derive` (apply it: a derived release folder).

The derived folder is read like a release: one file a clip, the id map of the release that it was made from. What its
release.json says of claim, lane and isolation is what that release said: recovering is post-processing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import bench.video as video_io
from bench import registry, seeds
from bench.data.clips import Clips
from bench.errors import PluginError
from bench.measures import Pair, Recover
from bench.nets.training import use_threads
from bench.registry import Spec
from bench.run.cache import write_json
from bench.run.released import Released, cut, drawn, isolated, open_release
from bench.run.stages import Job
from bench.run.views import asset_tensors, load_tensors, save_tensors, state_of
from bench.types import Video


def _build(job: Job) -> Recover:
    spec = Spec(job.config["attack"], job.config["variant"])
    return registry.get("attacks", spec.name)(**{**registry.settings("attacks", spec), **job.config["budget"]})


def run_learn(job: Job) -> None:
    """config: attack, variant, budget, profile, seed; inputs: release, clips, assets."""
    use_threads()
    attack, clips = _build(job), Clips(job.inputs["clips"])
    rows = {row.video: row for row in clips.rows("train")}
    pairs: list[Pair] = []
    for item, number, videos in drawn(open_release(job.inputs["release"], parts=("train",)), by_clip=True):
        original = cut(clips.video(rows[item.video]))[max(number, 0)]
        pairs.append(Pair(original, videos))
    attack.fit(pairs, asset_tensors(job.inputs), job.context("attack", job.config["attack"]))
    save_tensors(job.out / "state.safetensors", state_of(attack, job.config["attack"]))


def run_derive(job: Job) -> None:
    """config: attack, variant, budget, profile, seed, subset ("one" clip of each person, label and role, or None)."""
    use_threads()
    attack = _build(job)
    attack.load(load_tensors(job.inputs["train"] / "state.safetensors"), job.context("attack", job.config["attack"]))
    items = chosen([i for i in open_release(job.inputs["release"], parts=("test",))], job.config["subset"])
    (job.out / "release" / "media").mkdir(parents=True)
    (job.out / "vault").mkdir()
    manifest: list[dict[str, Any]] = []
    known: dict[str, dict[str, str]] = {}
    rng = seeds.derive(int(job.config["seed"]), "derived-ids", job.config["attack"])
    for item, number, clip in _wanted(items, job.config["subset"]):
        released = _recovered(attack, clip, job.config["attack"])
        name = known.setdefault(item.video, {**_who(item), "id": rng.bytes(8).hex()})["id"]
        path = job.out / "release" / "media" / f"{len(manifest):06d}.mkv"
        video_io.write_lossless(path, released.frames, released.fps)
        manifest.append({"id": name, "draw": item.draw, "clip": number, "frames": len(released), "fps": released.fps,
                         "file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()})
        if len(manifest) % 50 == 0:
            job.report(f"{len(manifest)} clips")
    pq.write_table(pa.Table.from_pylist(manifest), job.out / "release" / "manifest.parquet")
    pq.write_table(pa.Table.from_pylist(list(known.values())), job.out / "vault" / "idmap.parquet")
    facts = json.loads((job.inputs["release"] / "release" / "release.json").read_text(encoding="utf-8"))
    write_json(job.out / "release" / "release.json",
               {**facts, "via": str(Spec(job.config["attack"], job.config["variant"])), "files": len(manifest),
                "decoding": "isolated"})


def chosen(items: Sequence[Released], subset: str | None) -> list[Released]:
    """All items, or with "one" the first video (of one draw) of each person, label and role, in a stable order."""
    if subset is None:
        return list(items)
    first: dict[tuple[str, str, str], Released] = {}
    for item in items:
        first.setdefault((item.person, item.label, item.role), item)
    return list(first.values())


def _wanted(items: Sequence[Released], subset: str | None) -> Iterator[tuple[Released, int, Video]]:
    for item, number, clip in isolated(items):
        if subset is None or number == 0:
            yield item, number, clip


def _who(item: Released) -> dict[str, str]:
    return {"video": item.video, "person": item.person, "label": item.label, "part": item.part, "role": item.role}


def _recovered(attack: Recover, clip: Video, name: str) -> Video:
    made = attack.recover(clip)
    if not isinstance(made, Video) or made.frames.shape != clip.frames.shape:
        got = made.frames.shape if isinstance(made, Video) else type(made).__name__
        raise PluginError(f"The attack {name} recovered {got} from a clip of {clip.frames.shape}.",
                          "A recovered clip has as many frames as the released one, of the "
                          "same size.", "Mend `recover`.")
    return made
