"""Stage `compare`: attacks that read the noisy values an enforced method publishes, with un-noised ones granted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from bench import registry, seeds
from bench.data.clips import Clips, Row
from bench.errors import DataError, Diverged
from bench.measures import Noise
from bench.privacy.contract import Branch
from bench.privacy.mechanism import unit_of
from bench.registry import Spec
from bench.run.cache import write_json
from bench.run.enforced import all_branches
from bench.run.released import Released, check_intervention, isolation_of, open_release
from bench.run.stages import Job
from bench.run.trials import Trial, finite, hit, public_numbers, write_trials
from bench.run.views import load_tensors


@dataclass(frozen=True)
class Values:
    """Released values of all streams of a release, read back and checked against the digest in release.json."""

    released: Mapping[str, np.ndarray]  # {branch: float64 (N, T, dim)}
    scales: Mapping[str, np.ndarray]  # {branch: (N, T)}


def read_values(folder: Path, branches: tuple[Branch, ...]) -> Values:
    """Noisy values of `folder`/transcript.safetensors. Raises DataError when it was changed after the release, or
    holds no release but an intervention.
    """
    check_intervention(folder)
    path = folder / "transcript.safetensors"
    wanted = json.loads((folder / "release.json").read_text(encoding="utf-8"))["transcript"]
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != wanted:
        raise DataError(f"The transcript {path} is not the one that was released.",
                        "It is missing or was changed after the fact; its digest stands in release.json.",
                        "Release again.")
    found = load_tensors(path)
    return Values({k.name: found[f"steps:{k.name}"].astype(np.float64) * unit_of(k) for k in branches},
                  {k.name: found[f"scale:{k.name}"] for k in branches})


def run_compare(job: Job) -> None:
    """config: attack, variant, budget, profile, seed, numbers_seed, facts; inputs: release, encode, clips."""
    spec, clips = Spec(job.config["attack"], job.config["variant"]), Clips(job.inputs["clips"])
    attack = registry.get("attacks", spec.name)(**{**registry.settings("attacks", spec), **job.config["budget"]})
    branches, _ = all_branches(job.config["facts"], clips.info["canvas_px"])
    values = read_values(job.inputs["release"] / "release", branches)
    known = _Known(job.inputs["encode"] / "vault", branches, clips)
    items = open_release(job.inputs["release"], role="probe")
    names = public_numbers(known.people, job.config["numbers_seed"], "people")
    videos = public_numbers([i.video for i in items], job.config["numbers_seed"], "videos")
    rng = seeds.derive(int(job.config["seed"]), "compare", str(spec), "candidates")
    rows: list[Trial] = []
    for item in items:
        for offset in range(item.streams):
            clip, truth = max(item.clip, 0) + offset, known.people.index(item.person)
            candidates = known.candidates(item, clip, rng)
            stream = item.first_stream + offset
            noise = {k.name: Noise(k.noise, values.scales[k.name][stream]) for k in branches}
            scores = np.asarray(attack.score({k.name: values.released[k.name][stream] for k in branches}, candidates,
                                             noise), dtype=float)
            if scores.shape != (len(known.people),) or not finite(scores):
                raise Diverged(f"the attacker gave {scores.shape} scores, finite: {finite(scores)}; wanted "
                               f"({len(known.people)},) finite ones")
            rows.append(Trial("top1", names[item.person], videos[item.video], clip, item.draw,
                              int(job.config["seed"]), hit(scores, truth), truth=truth, predicted=int(scores.argmax())))
    write_trials(job.out / "trials.parquet", rows)
    write_json(job.out / "result.json", {"chance": 1 / len(known.people), "people": len(known.people),
                                         "classes": len(known.people), "clips_read": {"1": len(rows)},
                                         "isolation": isolation_of(job.inputs["release"])})


class _Known:
    """Un-noised values of every test clip, from the vault of the encode stage."""

    def __init__(self, vault: Path, branches: tuple[Branch, ...], clips: Clips):
        atoms = load_tensors(vault / "atoms.safetensors")
        self.values = {k.name: (atoms[f"steps:{k.name}"], unit_of(k)) for k in branches}
        self.length = atoms[f"steps:{branches[0].name}"].shape[1]  # frames of the method's own clips
        index = pq.read_table(vault / "index.parquet").to_pylist()
        self.place = {(r["video"], r["clip"]): i for i, r in enumerate(index)}
        rows = clips.rows("test")
        self.people = sorted({r.person for r in rows})
        self.of: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            self.of.setdefault((row.person, row.label), []).append(row)

    def candidates(self, item: Released, clip: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """{branch: (people, T, dim)}: the true clip, and one of the same label of everyone else (any label if none)."""
        chosen = []
        for person in self.people:
            if person == item.person:
                chosen.append(self.place[item.video, clip])
                continue
            theirs = self.of.get((person, item.label)) or [r for (p, _), v in self.of.items() if p == person for r in v]
            row = theirs[int(rng.integers(len(theirs)))]
            full = max(1, row.frames // self.length)  # an unpadded clip where there is one
            chosen.append(self.place[row.video, int(rng.integers(full))])
        return {name: steps[chosen].astype(np.float64) * unit for name, (steps, unit) in self.values.items()}
