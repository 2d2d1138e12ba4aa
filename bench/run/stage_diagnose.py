"""Stage `diagnose`: what the vault says of an enforced release, clip by clip, for every released test video."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from bench import registry
from bench.data.clips import Clips
from bench.errors import PluginError
from bench.measures import Diagnostic, Noise, Opened
from bench.privacy.contract import Branch
from bench.privacy.mechanism import unit_of
from bench.registry import Spec
from bench.run.cache import write_json
from bench.run.enforced import all_branches
from bench.run.released import isolation_of, open_release, people_of
from bench.run.stages import Job
from bench.run.trials import Trial, public_numbers, write_trials
from bench.run.views import load_tensors


def run_diagnose(job: Job) -> None:
    """config: attack, variant, budget, profile, seed, numbers_seed, facts; inputs: release, encode, clips."""
    spec, clips = Spec(job.config["attack"], job.config["variant"]), Clips(job.inputs["clips"])
    diagnostic: Diagnostic = registry.get("attacks", spec.name)(
        **{**registry.settings("attacks", spec), **job.config["budget"]})
    branches, fixed = all_branches(job.config["facts"], clips.info["canvas_px"])
    vault = _Vault(job, branches, {name: float(scale) for name, scale in fixed.items()})
    items = open_release(job.inputs["release"], parts=("test",), draw=0)
    people = public_numbers(people_of(items), job.config["numbers_seed"], "people")
    videos = public_numbers([i.video for i in items], job.config["numbers_seed"], "videos")
    rows, keys = [], {c.id: c.key for c in diagnostic.columns}
    for item in items:
        for offset in range(item.streams):
            clip = max(item.clip, 0) + offset
            found = diagnostic.measure(vault.opened(item.video, clip, item.first_stream + offset))
            if set(found) != set(keys):
                raise PluginError(f"The diagnostic {spec} gave {sorted(found)}, its columns are {sorted(keys)}.",
                                  "Every column needs its value.", "Return one number for each column.")
            rows += [Trial(keys[name], people[item.person], videos[item.video], clip, 0, int(job.config["seed"]),
                           float(value)) for name, value in found.items()]
    write_trials(job.out / "trials.parquet", rows)
    write_json(job.out / "result.json", {"chance": None, "people": len(people),
                                         "isolation": isolation_of(job.inputs["release"])})


class _Vault:
    """Clipped values and norms of the encode stage, noise and scales of the release."""

    def __init__(self, job: Job, branches: tuple[Branch, ...], fixed: Mapping[str, float]):
        self.branches, self.fixed = branches, fixed
        self.atoms = load_tensors(job.inputs["encode"] / "vault" / "atoms.safetensors")
        self.noise = load_tensors(job.inputs["release"] / "vault" / "residuals.safetensors")
        index = pq.read_table(job.inputs["encode"] / "vault" / "index.parquet").to_pylist()
        self.place = {(r["video"], r["clip"]): i for i, r in enumerate(index)}

    def opened(self, video: str, clip: int, stream: int) -> dict[str, Opened]:
        """Every branch of one released clip."""
        atom, found = self.place[video, clip], {}
        for branch in self.branches:
            name, unit = branch.name, unit_of(branch)
            scale = self.noise[f"scale:{name}"][stream].astype(np.float64)
            found[name] = Opened(self.atoms[f"steps:{name}"][atom].astype(np.float64) * unit,
                                 self.noise[f"residual:{name}"][stream].astype(np.float64) * unit,
                                 Noise(branch.noise, scale), self._floor(branch, scale),
                                 self.atoms[f"norm:{name}"][atom], float(branch.clip))
        return found

    def _floor(self, branch: Branch, scale: np.ndarray) -> float:
        known: Any = branch.floor if branch.noise == "gaussian" else self.fixed.get(branch.name)
        return float(known) if known is not None else float(scale.min())
