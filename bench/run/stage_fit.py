"""Stage `fit`: the method learns from development people, locked in: it can read their videos and nothing else."""

from __future__ import annotations

from pathlib import Path

from bench import registry, seeds
from bench.data.clips import Clips
from bench.registry import Spec
from bench.run.enforced import method_readable, preloaded
from bench.run.sandbox import available
from bench.run.stages import Job
from bench.run.views import save_tensors, write_development_view, write_public_streams
from bench.run.workers import MethodWorker

# What `ctx`, assets and training may bring in, beside the plug-in's own imports. The first optimizer of torch imports
# torch._dynamo, which makes a temporary folder and so must come before the lock.
FIT_PACKAGES = ("torch", "torch._dynamo")


def run_fit(job: Job) -> None:
    """config: method, variant, profile, seed; inputs: clips or streams, assets. Development people or public
    episodes only.
    """
    spec, seed = Spec(job.config["method"], job.config["variant"]), int(job.config["seed"])
    place = job.out / "development"
    view = write_public_streams(job.inputs["streams"], place) if "streams" in job.inputs else \
        write_development_view(Clips(job.inputs["clips"]), job.config["needs"], seed, place)
    assets = {k: v / "weights.safetensors" for k, v in job.inputs.items() if k not in ("clips", "streams")}
    packages = FIT_PACKAGES if assets or "clips" in job.inputs or may_train(spec) else ()  # four seconds to import
    with MethodWorker(spec, job.config["profile"], isolation=available(), preload=preloaded(spec, packages),
                      readable=[*method_readable(spec), view, *assets.values()]) as worker:
        state = worker.fit(view, assets, seeds.derive_int(seed, "fit", str(spec)))
    _remove(view)
    save_tensors(job.out / "state.safetensors", state)


def may_train(spec: Spec) -> bool:
    """Could this method of the traffic track need torch: do its own files speak of it, or use a module that trains?"""
    for path in registry.source_files("methods", spec.name):
        ours = path.is_relative_to(registry.ROOT / "bench")
        if (path.parent.name == "nets" or path.stem == "rehearsal") if ours else "torch" in path.read_text("utf-8"):
            return True
    return False


def _remove(view: Path) -> None:
    for path in view.iterdir():
        path.unlink()
    view.rmdir()
