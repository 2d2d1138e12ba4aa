"""An enforced method as diagnostics see it: its branches, the stages that can be read, and its vault opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from bench import registry
from bench.data.clips import Clips
from bench.diagnostics import ASSIGNMENT, Anatomy, Diagnostic, Opened
from bench.errors import PluginError
from bench.measures import Column, Noise
from bench.privacy.contract import Branch
from bench.privacy.mechanism import unit_of
from bench.registry import Spec
from bench.run.enforced import PublicWorker, all_branches
from bench.run.released import Released
from bench.run.stage_transcript import Values
from bench.run.stages import Job
from bench.run.trials import ALL_PEOPLE, Trial
from bench.run.views import load_tensors


def anatomy_of(facts: Mapping[str, Any], canvas_px: int) -> Anatomy:
    """Raises PluginError when the method names a branch that it has not."""
    branches = {b.name: b.noise for b in all_branches(facts, canvas_px)[0]}
    inspects, probed = tuple(facts.get("inspects", ())), facts.get("probed") or list(branches)[-1]
    named = {probed, *(n.removeprefix(ASSIGNMENT) for n in inspects if n.startswith(ASSIGNMENT))}
    if named - set(branches) or {"clipped", "noisy"} & set(inspects) or len(set(inspects)) < len(inspects):
        raise PluginError(f"probed = {probed!r}, inspects = {list(inspects)}: the branches are {list(branches)}.",
                          "Diagnostics read what these names stand for.",
                          "Name branches that exist, each stage once, and neither \"clipped\" nor \"noisy\".")
    return Anatomy(branches, probed, inspects)


def built(job: Job) -> Any:
    """The plug-in of an attack or diagnostic stage, with the suite's budget."""
    spec = Spec(job.config["attack"], job.config["variant"])
    return registry.get("attacks", spec.name)(**{**registry.settings("attacks", spec), **job.config["budget"]})


def keys_of(diagnostic: Diagnostic, anatomy: Anatomy, *, pooled: bool) -> dict[str, Column]:
    """Its columns on a method by key: those of a whole set of people, or those of single clips and videos."""
    return {c.key: c for c in diagnostic.columns_of(anatomy) if (c.statistic == "jackknife") == pooled}


def checked(found: Mapping[str, float], wanted: Mapping[str, Any], name: str) -> dict[str, float]:
    """Values by column key. Raises PluginError when a column is missing or unknown."""
    if set(found) != set(wanted):
        raise PluginError(f"The diagnostic {name} gave {sorted(found)}, its columns are {sorted(wanted)}.",
                          "Every column needs its value.", "Return one number for each column.")
    return {key: float(value) for key, value in found.items()}


class Pool:
    """Values of all frames (or videos) and whose they are: numbers of everybody, and without each person."""

    def __init__(self) -> None:
        self.values: dict[str, list[np.ndarray]] = {}
        self.people: list[int] = []

    def add(self, person: int, values: Mapping[str, np.ndarray]) -> None:
        """Rows of one person; every name has as many."""
        counts = {len(v) for v in values.values()}
        if len(counts) > 1:
            raise PluginError(f"values of {sorted(values)} have {sorted(counts)} rows.", "A row is a frame or a video.",
                              "Give as many for every name.")
        for name, rows in values.items():
            self.values.setdefault(name, []).append(np.asarray(rows, dtype=np.float64))
        self.people += [person] * (counts.pop() if counts else 0)

    def trials(self, diagnostic: Diagnostic, wanted: Mapping[str, Any], seed: int) -> list[Trial]:
        """One row about everybody (ALL_PEOPLE), and one without each person."""
        if not wanted:
            return []
        whole, people = {n: np.concatenate(v) for n, v in self.values.items()}, np.array(self.people)
        kept = {ALL_PEOPLE: np.ones(len(people), bool), **{int(p): people != p for p in np.unique(people)}}
        rows = []
        for person, mask in kept.items():
            found = diagnostic.pooled({n: v[mask] for n, v in whole.items()}, people[mask]) if mask.any() else \
                dict.fromkeys(wanted, np.nan)
            rows += [Trial(key, person, 0, 0, 0, seed, value)
                     for key, value in checked(found, wanted, diagnostic.name).items()]
        return rows


class Vault:
    """Clipped values and norms of the encode stage, noise and scales of the release."""

    def __init__(self, job: Job, clips: Clips):
        self.branches, self.fixed = all_branches(job.config["facts"], clips.info["canvas_px"])
        self.atoms = load_tensors(job.inputs["encode"] / "vault" / "atoms.safetensors")
        self.noise = load_tensors(job.inputs["release"] / "vault" / "residuals.safetensors")
        index = pq.read_table(job.inputs["encode"] / "vault" / "index.parquet").to_pylist()
        self.place = {(r["video"], r["clip"]): i for i, r in enumerate(index)}

    def clips(self, item: Released) -> Iterator[tuple[int, dict[str, Opened]]]:
        """(clip number, every branch of it, padding cut off) of one released file."""
        for offset in range(item.streams):
            clip = max(item.clip, 0) + offset
            frames = slice(min(item.clip_frames, item.frames - offset * item.clip_frames))
            yield clip, self._opened(self.place[item.video, clip], item.first_stream + offset, frames)

    def _opened(self, atom: int, stream: int, frames: slice) -> dict[str, Opened]:
        found = {}
        for branch in self.branches:
            name, unit = branch.name, unit_of(branch)
            scale = self.noise[f"scale:{name}"][stream].astype(np.float64)
            found[name] = Opened(self.atoms[f"steps:{name}"][atom][frames].astype(np.float64) * unit,
                                 self.noise[f"residual:{name}"][stream][frames].astype(np.float64) * unit,
                                 Noise(branch.noise, scale[frames]), self._floor(branch, scale),
                                 self.atoms[f"norm:{name}"][atom][frames], float(branch.clip))
        return found

    def _floor(self, branch: Branch, scale: np.ndarray) -> float:
        known: float | Fraction | None = branch.floor if branch.noise == "gaussian" else self.fixed.get(branch.name)
        return float(known) if known is not None else float(scale.min())


def unpadded(clips: list[np.ndarray], frames: int) -> np.ndarray:
    """Rows (frames, d) of a video of that many frames, from the (16, d) of each of its clips."""
    return np.concatenate(clips)[:frames]


def inspector(worker: PublicWorker, job: Job, values: Values,
              clips: Clips) -> Callable[[Released], dict[str, np.ndarray]]:
    """{name: (frames, d)} of one released file: what the method's `inspect` says of its released values."""
    fps = {row.video: row.fps for row in clips.rows()}
    names = list(job.config["facts"]["inspects"])

    def inspect(item: Released) -> dict[str, np.ndarray]:
        streams = range(item.first_stream, item.first_stream + item.streams)
        parts = [{name: rows[i] for name, rows in values.released.items()} for i in streams]
        public = {"fps": fps[item.video], "canvas_px": clips.info["canvas_px"], "profile": job.config["profile"],
                  "frames": item.frames}
        return {name: unpadded(found, item.frames) for name, found in worker.inspect(parts, public, names).items()}
    return inspect
