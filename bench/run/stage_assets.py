"""Stage `asset`: train one shared network on public people."""

from __future__ import annotations

from bench import assets
from bench.data.clips import Clips
from bench.nets.training import use_threads
from bench.run.stages import Job
from bench.run.views import save_tensors


def run_asset(job: Job) -> None:
    """config: asset, seed and budget; input: clips of the public people."""
    use_threads()
    tensors = assets.train_asset(job.config["asset"], Clips(job.inputs["clips"]), int(job.config["seed"]),
                                 dict(job.config["budget"]), job.report)
    save_tensors(job.out / "weights.safetensors", tensors)
