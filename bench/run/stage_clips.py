"""Stage `clips`: prepare a dataset."""

from __future__ import annotations

from pathlib import Path

from bench import registry
from bench.data.clips import write_clips
from bench.nets.training import use_threads
from bench.run.stages import Job


def run_clips(job: Job) -> None:
    """config: dataset, root, seed, canvas_px, fingerprint of the root."""
    use_threads()
    adapter = registry.build("datasets", job.config["dataset"])
    root = Path(job.config["root"]) if job.config["root"] else None
    write_clips(adapter, root, int(job.config["seed"]), job.config["canvas_px"], job.out, job.report)
