"""Stages `train` (fit an attacker) and `attack` (run it on released probe videos, write trials)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench import registry
from bench.data.clips import Clips
from bench.errors import Diverged
from bench.measures import Identify
from bench.nets.training import use_threads
from bench.registry import Spec
from bench.run.cache import write_json
from bench.run.released import Released, cut, drawn, isolated, isolation_of, open_release, people_of
from bench.run.stages import Job
from bench.run.trials import Trial, finite, hit, public_numbers, write_trials
from bench.run.views import asset_tensors, load_tensors, save_tensors
from bench.types import Sample


def _build(job: Job) -> Identify:
    spec = Spec(job.config["attack"], job.config["variant"])
    return registry.get("attacks", spec.name)(**{**registry.settings("attacks", spec), **job.config["budget"]})


def run_train(job: Job) -> None:
    """config: attack, variant, budget, profile, seed; inputs: release or clips (what it trains on), assets."""
    use_threads()
    attack = _build(job)
    by_clip = attack.threat.decoding == "isolated"
    if "release" in job.inputs:
        items = open_release(job.inputs["release"], role="enrolment")
        people = people_of(items)
        samples = [Sample(videos[0], person=people.index(item.person), redraws=videos[1:])
                   for item, _, videos in drawn(items, by_clip=by_clip)]
    else:
        clips = Clips(job.inputs["clips"])
        rows = clips.rows("test", role="enrolment")
        people = sorted({r.person for r in rows})
        samples = [Sample(part, person=people.index(r.person)) for r in rows
                   for part in (cut(clips.video(r)) if by_clip else [clips.video(r)])]
    attack.fit(samples, len(people), asset_tensors(job.inputs), job.context("attack", job.config["attack"]))
    save_tensors(job.out / "state.safetensors", attack.state())
    write_json(job.out / "people.json", people)


def run_attack(job: Job) -> None:
    """config: as train; inputs: train, release. Raises Diverged when a score is not finite."""
    use_threads()
    attack, items = _build(job), open_release(job.inputs["release"], role="probe")
    people = load_attacker(attack, job, job.inputs["train"])
    rows, reads = probe_trials(attack, job, people, items)
    write_trials(job.out / "trials.parquet", rows)
    write_json(job.out / "result.json", {"chance": 1 / len(people), "people": len(people), "classes": len(people),
                                         "clips_read": reads, "isolation": isolation_of(job.inputs["release"])})


def load_attacker(attack: Identify, job: Job, train: Path) -> list[str]:
    """Take back what the `train` stage fitted; returns the names of its classes."""
    people = json.loads((train / "people.json").read_text(encoding="utf-8"))
    attack.load(load_tensors(train / "state.safetensors"), len(people), job.context("attack", job.config["attack"]))
    return people


def probe_trials(attack: Identify, job: Job, people: list[str], items: list[Released],
                 column: str = "top1") -> tuple[list[Trial], Counter[str]]:
    """One row a trial of the attacker on released probes, and how many clips stand behind how many trials."""
    names = public_numbers(people, job.config["numbers_seed"], "people")
    videos = public_numbers([i.video for i in items], job.config["numbers_seed"], "videos")
    rows: list[Trial] = []
    reads: Counter[str] = Counter()
    for probe in _scored(attack, items):
        if probe.scores.ndim != 2 or probe.scores.shape[1] != len(people) or not finite(probe.scores):
            raise Diverged(f"the attacker scored a probe with {probe.scores.shape} values, finite: "
                           f"{finite(probe.scores)}; wanted (trials, {len(people)}) finite ones")
        truth, first = people.index(probe.item.person), max(probe.clip, 0) * len(probe.scores)
        rows += [Trial(column, names[probe.item.person], videos[probe.item.video], first + t, probe.item.draw,
                       int(job.config["seed"]), hit(s, truth), truth=truth, predicted=int(s.argmax()))
                 for t, s in enumerate(probe.scores)]
        reads[str(probe.clips_read)] += len(probe.scores)
    return rows, reads


@dataclass(frozen=True)
class _Probe:
    """What the attacker said of one probe, and how many releases of clips stand behind it."""

    item: Released
    clip: int
    scores: np.ndarray  # (trials, people)
    clips_read: int


def _scored(attack: Identify, items: list[Released]) -> Iterator[_Probe]:
    reads = attack.threat.reads
    if reads == "draws":  # a clip, or the video of a method that has no noise to average away
        for item, clip, videos in drawn(items, by_clip=False):
            scores = np.asarray(attack.score_draws(videos), dtype=float)
            yield _Probe(item, clip, scores, item.clips_read("frame") * len(videos))
    elif attack.threat.decoding == "isolated":
        for item, clip, video in isolated(items):
            yield _Probe(item, clip, np.asarray(attack.score(video), dtype=float), item.clips_read(reads))
    else:
        for item in items:
            scores = np.asarray(attack.score(item.read()), dtype=float)
            yield _Probe(item, item.clip, scores, item.clips_read(reads))
