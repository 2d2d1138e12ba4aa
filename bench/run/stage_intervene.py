"""Stages `intervene` (a release of changed inputs), `reread` (networks trained before read it) and `repeat` (one fixed
network reads many releases).

The change happens in trusted code between encode and noise; noise, plan and render are those of any release. What comes
out is nobody's release: the stage is of another kind, release.json names the intervention, and whoever opens the
folder without asking for that intervention is refused (`bench.run.released`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bench import registry, seeds
from bench.data.clips import Clips
from bench.errors import ConfigError, Undefined, nearest
from bench.measures import Evaluator, column_key
from bench.nets.training import use_threads
from bench.registry import Spec
from bench.run.anatomy import Pool, anatomy_of, built, checked, keys_of
from bench.run.cache import write_json
from bench.run.released import Released, isolation_of, open_release, people_of
from bench.run.stage_attack import load_attacker, probe_trials
from bench.run.stage_enforced import write_release
from bench.run.stage_metric import predictions
from bench.run.stages import Job
from bench.run.trials import Trial, public_numbers, write_trials
from bench.run.views import load_tensors

ON = "on:"  # begins the name of an input that is an intervention


# ---- releases of changed inputs ------------------------------------------------------------------------------------

def run_intervene(job: Job) -> None:
    """config: as of `enforced`, and intervention ("shuffle:BRANCH", "shuffle:all" or "zero"); test parts alone."""
    name, clips = job.config["intervention"], Clips(job.inputs["clips"])
    test = {row.video for row in clips.rows("test")}
    write_release(job, lambda steps, index: changed(steps, index, name, test, int(job.config["seed"])),
                  {"intervention": name})


def changed(steps: Mapping[str, np.ndarray], index: list[dict[str, Any]], intervention: str, test: set[str],
            seed: int) -> dict[str, np.ndarray]:
    """Clipped steps {branch: (atoms, 16, dim)} of every clip after an intervention. Raises ConfigError.

    A shuffled branch gets the rows of another test clip in every test clip. A branch is shuffled alike whether alone or
    with all, and two branches are never shuffled alike.
    """
    if intervention == "zero":
        return {name: np.zeros_like(rows) for name, rows in steps.items()}
    word, _, chosen = intervention.partition(":")
    if word != "shuffle" or chosen not in (*steps, "all"):
        raise ConfigError(f"There is no intervention {intervention!r}.",
                          nearest(intervention, ["zero", "shuffle:all", *(f"shuffle:{n}" for n in steps)]), "")
    among = np.array([i for i, record in enumerate(index) if record["video"] in test])
    found = dict(steps)
    for name in steps if chosen == "all" else (chosen,):
        source = np.arange(len(index))
        source[among] = among[derangement(len(among), seeds.derive(seed, "intervention", name))]
        found[name] = steps[name][source]
    return found


def derangement(count: int, rng: np.random.Generator) -> np.ndarray:
    """A random cycle through 0 .. count - 1: every place gets another one's number. Raises Undefined below two."""
    if count < 2:
        raise Undefined(f"{count} test clip cannot be shuffled")
    order = rng.permutation(count)
    found = np.empty(count, dtype=np.int64)
    found[order] = np.roll(order, 1)
    return found


# ---- networks that were trained on ordinary releases ---------------------------------------------------------------

def run_reread(job: Job) -> None:
    """config: attack, variant, budget, profile, seed, numbers_seed, reader, reader_budget; inputs: reader (the stage
    that trained it), clips, and `on:INTERVENTION` releases.
    """
    use_threads()
    spec, clips = Spec.parse(job.config["reader"]), Clips(job.inputs["clips"])
    rows: list[Trial] = []
    chance = 1 / len(clips.labels)
    isolation = None
    for name, folder in sorted(job.inputs.items()):
        if not name.startswith(ON):
            continue
        intervention, isolation = name.removeprefix(ON), isolation_of(folder)
        key = column_key(spec.name, {"intervention": intervention})
        if spec.name in registry.names("metrics"):
            items = open_release(folder, parts=("test",), intervention=intervention)
            rows += _read_labels(job, items, clips, key)
        else:
            items = open_release(folder, role="probe", intervention=intervention)
            own = replace(job, config={**job.config, "attack": spec.name, "variant": spec.variant,
                                       "budget": job.config["reader_budget"]})
            attack = built(own)
            people = load_attacker(attack, own, job.inputs["reader"])
            rows += probe_trials(attack, own, people, items, key)[0]
            chance = 1 / len(people)
        job.report(f"{intervention}: {np.mean([r.value for r in rows if r.column == key]):.3f}")
    write_trials(job.out / "trials.parquet", rows)
    write_json(job.out / "result.json", {"chance": chance, "people": len({r.person for r in rows}),
                                         "classes": round(1 / chance), "isolation": isolation})


def _read_labels(job: Job, items: list[Released], clips: Clips, key: str) -> list[Trial]:
    people = public_numbers(people_of(items), job.config["numbers_seed"], "people")
    videos = public_numbers([i.video for i in items], job.config["numbers_seed"], "videos")
    return [Trial(key, people[item.person], videos[item.video], 0, item.draw, int(job.config["seed"]),
                  float(truth == predicted), truth=truth, predicted=predicted)
            for item, truth, predicted in predictions(_evaluator(job, clips), items, clips.labels)]


def _evaluator(job: Job, clips: Clips) -> Evaluator:
    """The evaluator that the metric stage trained on the method's ordinary development releases."""
    spec = Spec.parse(job.config["reader"])
    made: Evaluator = registry.get("metrics", spec.name)(
        **{**registry.settings("metrics", spec), **job.config["reader_budget"]})
    made.load(load_tensors(job.inputs["reader"] / "state.safetensors"), len(clips.labels),
              job.context("metric", spec.name))
    return made


def run_repeat(job: Job) -> None:
    """config: as of `reread`, and facts; inputs: reader, clips, release (several draws of the test videos)."""
    use_threads()
    clips, diagnostic, seed = Clips(job.inputs["clips"]), built(job), int(job.config["seed"])
    anatomy = anatomy_of(job.config["facts"], clips.info["canvas_px"])
    single, pooled = (keys_of(diagnostic, anatomy, pooled=which) for which in (False, True))
    items = open_release(job.inputs["release"], parts=("test",))
    people = public_numbers(people_of(items), job.config["numbers_seed"], "people")
    videos = public_numbers([i.video for i in items], job.config["numbers_seed"], "videos")
    pool, rows = Pool(), []
    for item, truth, predicted in _by_video(predictions(_evaluator(job, clips), items, clips.labels)):
        found = checked(diagnostic.agreement(predicted, truth), {c.id: c for c in single.values()}, diagnostic.name)
        rows += [Trial(key, people[item.person], videos[item.video], 0, 0, seed, found[column.id])
                 for key, column in single.items()]
        pool.add(people[item.person], diagnostic.values({"predicted": predicted, "truth": truth}))
    rows += pool.trials(diagnostic, pooled, seed)
    write_trials(job.out / "trials.parquet", rows)
    chance = {c.key: 1 / len(clips.labels) for c in single.values() if c.id == "fer_mean"}
    write_json(job.out / "result.json", {"chance": chance, "people": len(people), "clips": len(pool.people),
                                         "isolation": isolation_of(job.inputs["release"])})


def _by_video(found: Iterator[tuple[Released, int, int]]) -> Iterator[tuple[Released, int, np.ndarray]]:
    """(item of the first draw, label, labels read in every draw (R,)) of each video."""
    groups: dict[str, list[tuple[Released, int, int]]] = {}
    for entry in found:
        groups.setdefault(entry[0].video, []).append(entry)
    for group in groups.values():
        yield group[0][0], group[0][1], np.array([predicted for _, _, predicted in group])
