"""Stages `clips` (prepare a dataset) and `asset` (train one shared network on public people)."""

from __future__ import annotations

import shutil
from pathlib import Path

from bench import assets, registry, weights
from bench.data.clips import Clips, write_clips
from bench.nets.training import use_threads
from bench.run.stages import Job
from bench.run.views import save_tensors


def run_clips(job: Job) -> None:
    """config: dataset, root, seed, canvas_px, fingerprint of the root."""
    use_threads()
    adapter = registry.build("datasets", job.config["dataset"])
    root = Path(job.config["root"]) if job.config["root"] else None
    write_clips(adapter, root, int(job.config["seed"]), job.config["canvas_px"], job.out, job.report)


def run_asset(job: Job) -> None:
    """config: asset and either `shipped` (a digest), or seed and budget with clips of the public people as input."""
    use_threads()
    if "shipped" in job.config:
        shutil.copyfile(weights.verified(job.config["asset"]), job.out / "weights.safetensors")
        return
    tensors = assets.train_asset(job.config["asset"], Clips(job.inputs["clips"]), int(job.config["seed"]),
                                 dict(job.config["budget"]), job.report)
    save_tensors(job.out / "weights.safetensors", tensors)
