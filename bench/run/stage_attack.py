"""Stages `train` (fit an attacker) and `attack` (run it on released probe videos, write trials)."""

from __future__ import annotations

import numpy as np

from bench import registry
from bench.data.clips import Clips
from bench.errors import Diverged
from bench.nets.training import use_threads
from bench.registry import Spec
from bench.run.cache import write_json
from bench.run.released import clips_read, isolation_of, open_release, people_of
from bench.run.stages import Job
from bench.run.trials import Trial, finite, hit, public_numbers, write_trials
from bench.run.views import asset_tensors, load_tensors, save_tensors
from bench.types import Identify, Sample


def _build(job: Job) -> Identify:
    spec = Spec(job.config["attack"], job.config["variant"])
    return registry.get("attacks", spec.name)(**{**registry.settings("attacks", spec), **job.config["budget"]})


def run_train(job: Job) -> None:
    """config: attack, variant, budget, profile, seed; inputs: release or clips (what it trains on), assets."""
    use_threads()
    attack = _build(job)
    if "release" in job.inputs:
        items = open_release(job.inputs["release"], role="enrolment")
        people = people_of(items)
        samples = [Sample(i.read(), person=people.index(i.person)) for i in items]
    else:
        clips = Clips(job.inputs["clips"])
        rows = clips.rows("test", role="enrolment")
        people = sorted({r.person for r in rows})
        samples = [Sample(clips.video(r), person=people.index(r.person)) for r in rows]
    attack.fit(samples, len(people), asset_tensors(job.inputs), job.context("attack", job.config["attack"]))
    save_tensors(job.out / "state.safetensors", attack.state())
    write_json(job.out / "people.json", people)


def run_attack(job: Job) -> None:
    """config: as train; inputs: train, release. Raises Diverged when a score is not finite."""
    use_threads()
    attack = _build(job)
    items = open_release(job.inputs["release"], role="probe")
    people = people_of(open_release(job.inputs["release"], role="enrolment"))
    attack.load(load_tensors(job.inputs["train"] / "state.safetensors"), len(people),
                job.context("attack", job.config["attack"]))
    names = public_numbers(people, job.config["numbers_seed"], "people")
    videos = public_numbers([i.video for i in items], job.config["numbers_seed"], "videos")
    rows: list[Trial] = []
    for item in items:
        scores = np.asarray(attack.score(item.read()), dtype=float)
        if scores.ndim != 2 or scores.shape[1] != len(people) or not finite(scores):
            raise Diverged(f"the attacker scored a probe with {scores.shape} values, finite: {finite(scores)}; "
                           f"wanted (trials, {len(people)}) finite ones")
        truth = people.index(item.person)
        rows += [Trial("top1", names[item.person], videos[item.video], t, item.draw, int(job.config["seed"]),
                       hit(s, truth), truth=truth, predicted=int(s.argmax())) for t, s in enumerate(scores)]
    write_trials(job.out / "trials.parquet", rows)
    per_video = len(rows) // max(1, len(items))
    write_json(job.out / "result.json", {"chance": 1 / len(people), "people": len(people), "classes": len(people),
                                         "clips_read": clips_read(items, per_video),
                                         "isolation": isolation_of(job.inputs["release"])})
