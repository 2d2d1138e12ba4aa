"""Stage `encode`: what a method whose noise the harness draws says of every clip, clipped and on the grid.

    vault/atoms.safetensors   clipped un-noised whole steps of every clip and the norms before clipping
    vault/index.parquet       which clip of which video

Its process has ended when the first value is released.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench import seeds
from bench.data.clips import Clips
from bench.errors import PluginError
from bench.privacy.contract import Branch
from bench.privacy.mechanism import clip_rows
from bench.registry import Spec
from bench.run.cache import write_json
from bench.run.enforced import all_branches, clip_length, raw_rows
from bench.run.sandbox import available
from bench.run.stage_release import PARTS
from bench.run.stages import Job
from bench.run.views import fitted_state, load_tensors, save_tensors
from bench.types import CLIP_FRAMES

CHECKED = 24  # clips that a row encodes itself, where it releases the encoded clips of another row


def padded_clip(frames: np.ndarray, clip: int, length: int = CLIP_FRAMES) -> np.ndarray:
    """Clip `clip` of a video, uint8 (length, H, W, 3), the last frame repeated."""
    part = frames[clip * length:(clip + 1) * length]
    return np.concatenate([part, np.repeat(part[-1:], length - len(part), axis=0)])


def branches_of(job: Job, clips: Clips) -> tuple[tuple[Branch, ...], dict[str, Fraction]]:
    """Branches of the method, and the Laplace scale of a trusted reader's."""
    return all_branches(job.config["facts"], clips.info["canvas_px"])


def run_encode(job: Job) -> None:
    """config: method, variant, profile, seed, parts, facts; inputs: clips, and fit when fitted."""
    clips = Clips(job.inputs["clips"])
    (branches, _), length = branches_of(job, clips), clip_length(job.config["facts"])
    wanted = {part for name in job.config["parts"] for part in PARTS[name]}
    rows = [r for r in clips.rows() if r.part in wanted]
    index: list[dict[str, Any]] = []
    steps: dict[str, list[np.ndarray]] = {k.name: [] for k in branches}
    norms: dict[str, list[np.ndarray]] = {k.name: [] for k in branches}
    spec = Spec(job.config["method"], job.config["variant"])
    places = [(row, clip) for row in rows for clip in range(-(-row.frames // length))]
    encoded = raw_rows(spec, job.config["facts"], fitted_state(job.inputs), _atoms(clips, rows, length))
    for number, ((row, clip), raw) in enumerate(zip(places, encoded, strict=True)):
        failed = False
        for branch in branches:
            given = raw.get(branch.name)
            count = branch.rows_of(length)
            clipped, bad = clip_rows(given, branch, count)
            failed |= bad
            steps[branch.name].append(clipped)
            norms[branch.name].append(_norms(given, count, bad))
        index.append({"video": row.video, "clip": clip, "failed": failed})
        if (number + 1) % 200 == 0:
            job.report(f"{number + 1} clips")
    (job.out / "vault").mkdir()
    save_tensors(job.out / "vault" / "atoms.safetensors",
                 {f"steps:{k}": small(np.stack(v)) for k, v in steps.items()}
                 | {f"norm:{k}": np.stack(v) for k, v in norms.items()})
    pq.write_table(pa.Table.from_pylist(index), job.out / "vault" / "index.parquet")
    write_json(job.out / "encode.json", {"isolation": None if job.config["facts"]["encodes"] != "method"
                                         else available().as_dict()})


def _atoms(clips: Clips, rows: list[Any], length: int) -> Iterator[np.ndarray]:
    """The clips of these videos, one after the other; a video is read once."""
    for row in rows:
        frames = clips.video(row).frames
        yield from (padded_clip(frames, clip, length) for clip in range(-(-len(frames) // length)))


def _norms(given: Any, rows: int, bad: bool) -> np.ndarray:
    """l2 norms (rows,) of the rows before clipping, NaN where they had to be replaced."""
    if bad or given is None:
        return np.full(rows, np.nan)
    return np.linalg.norm(np.asarray(given, dtype=np.float64), axis=1)


def small(steps: np.ndarray) -> np.ndarray:
    """int32 where every value fits: half the size."""
    return steps.astype(np.int32) if np.abs(steps).max(initial=0) < 2**31 else steps


def check_encoded(job: Job) -> None:
    """Raise PluginError unless this row encodes CHECKED clips, taken by chance, to the very values it was given."""
    clips, spec = Clips(job.inputs["clips"]), Spec(job.config["method"], job.config["variant"])
    (branches, _), length = branches_of(job, clips), clip_length(job.config["facts"])
    vault = job.inputs["encode"] / "vault"
    index = pq.read_table(vault / "index.parquet").to_pylist()
    steps = {k.partition(":")[2]: v for k, v in load_tensors(vault / "atoms.safetensors").items() if k[:6] == "steps:"}
    rng = seeds.derive(int(job.config["seed"]), "encoded-check", str(spec))
    chosen = rng.choice(len(index), min(CHECKED, len(index)), replace=False)
    rows = {r.video: r for r in clips.rows()}
    frames = (padded_clip(clips.video(rows[index[i]["video"]]).frames, index[i]["clip"], length) for i in chosen)
    own = raw_rows(spec, job.config["facts"], fitted_state(job.inputs), frames)
    for i, raw in zip(chosen, own, strict=True):
        for branch in branches:
            mine, given = clip_rows(raw.get(branch.name), branch, branch.rows_of(length))[0], steps.get(branch.name)
            if given is None or not np.array_equal(mine, given[i]):
                raise PluginError(f"{spec} encodes a clip to other values than {job.config['encoded_by']}, whose "
                                  f"encoded clips the suite gives it (branch {branch.name!r}).",
                                  "Its release would not be its own.", "Take it out of `encoded` in the suite.")
