"""Stage `shipped`: take one shared network from the package. Its file counts, not the code that once trained it."""

from __future__ import annotations

import shutil

from bench import weights
from bench.run.stages import Job


def run_shipped(job: Job) -> None:
    """config: asset and the digest of its file (`shipped`)."""
    shutil.copyfile(weights.verified(job.config["asset"]), job.out / "weights.safetensors")
