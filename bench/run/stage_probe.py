"""Stages `probe` (how well is the label read at each stage of a release?) and `assign` (how codebooks are used)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from bench.data.clips import Clips
from bench.diagnostics import ASSIGNMENT, Anatomy, Assignments, Labelled
from bench.errors import Diverged, PluginError, Undefined
from bench.nets.training import use_threads
from bench.registry import Spec
from bench.run.anatomy import Pool, Vault, anatomy_of, built, inspector, keys_of
from bench.run.cache import write_json
from bench.run.enforced import PublicWorker, all_branches
from bench.run.released import Released, isolation_of, open_release, people_of
from bench.run.sandbox import available
from bench.run.stage_transcript import read_values
from bench.run.stages import Job
from bench.run.trials import Trial, finite, public_numbers, write_trials
from bench.run.views import fitted_state

Features = dict[str, dict[tuple[str, int], np.ndarray]]  # {stage: {(video, draw): mean over unpadded frames (d,)}}


def _public_worker(job: Job) -> PublicWorker:
    return PublicWorker(Spec(job.config["method"], job.config["method_variant"]), job.config["profile"], available())


# ---- probes --------------------------------------------------------------------------------------------------------

def run_probe(job: Job) -> None:
    """config: attack, variant, budget, profile, seed, numbers_seed, facts, method, method_variant; inputs: release,
    encode, clips, fit if fitted.
    """
    use_threads()
    clips, probe = Clips(job.inputs["clips"]), built(job)
    if len(clips.labels) < 2:
        raise Undefined(f"the dataset has one label only ({clips.labels[0]})")
    anatomy = anatomy_of(job.config["facts"], clips.info["canvas_px"])
    train, calibration, test = (open_release(job.inputs["release"], parts=(part,), draw=draw)
                                for part, draw in (("train", None), ("calibration", 0), ("test", 0)))
    features = _features(job, clips, anatomy, [*train, *calibration, *test])
    rows: list[Trial] = []
    for stage, key in zip(anatomy.stages, keys_of(probe, anatomy, pooled=False), strict=True):
        known, held_out = (_labelled(features[stage], items, clips.labels) for items in (train, calibration))
        read = np.stack([features[stage][i.video, 0] for i in test])  # (K, d)
        for seed in probe.seeds:
            own = replace(job, config={**job.config, "seed": seed})
            scores = np.asarray(probe.scores(known, held_out, read, len(clips.labels), own.context("probe", stage)))
            if scores.shape != (len(test), len(clips.labels)) or not finite(scores):
                raise Diverged(f"the probe at {stage!r} gave {scores.shape} scores, finite: {finite(scores)}")
            rows += _trials(job, key, test, clips.labels, scores.argmax(1), seed)
        job.report(f"{stage}: {np.mean([r.value for r in rows if r.column == key]):.3f}")
    write_trials(job.out / "trials.parquet", rows)
    write_json(job.out / "result.json", {"chance": 1 / len(clips.labels), "people": len(people_of(test)),
                                         "classes": len(clips.labels),
                                         "isolation": isolation_of(job.inputs["release"])})


def _trials(job: Job, key: str, items: list[Released], labels: list[str], predicted: Sequence[int],
            seed: int) -> list[Trial]:
    people = public_numbers(people_of(items), job.config["numbers_seed"], "people")
    videos = public_numbers([i.video for i in items], job.config["numbers_seed"], "videos")
    return [Trial(key, people[i.person], videos[i.video], 0, 0, seed, float(int(p) == labels.index(i.label)),
                  truth=labels.index(i.label), predicted=int(p)) for i, p in zip(items, predicted, strict=True)]


def _features(job: Job, clips: Clips, anatomy: Anatomy, items: list[Released]) -> Features:
    """Temporal means of the probed branch before and after the noise, and of every stage that the method names."""
    vault, found = Vault(job, clips), Features({stage: {} for stage in anatomy.stages})
    for item in items:
        opened = [branches[anatomy.probed] for _, branches in vault.clips(item)]
        found["clipped"][item.video, item.draw] = np.concatenate([o.clipped for o in opened]).mean(0)
        found["noisy"][item.video, item.draw] = np.concatenate([o.clipped + o.residual for o in opened]).mean(0)
    if len(anatomy.stages) == len(found) == 2:
        return found
    values = read_values(job.inputs["release"] / "release", vault.branches)
    with _public_worker(job) as worker:
        worker.load_state(fitted_state(job.inputs))
        inspect = inspector(worker, job, values, clips)
        for item in items:
            seen = inspect(item)
            for stage in anatomy.stages[2:]:
                found[stage][item.video, item.draw] = seen[stage].mean(0)
    return found


def _labelled(features: dict[tuple[str, int], np.ndarray], items: list[Released], labels: list[str]) -> Labelled:
    """Features (R, N, d) of these videos in all draws."""
    first = [i for i in items if i.draw == 0]
    draws = sorted({i.draw for i in items})
    return Labelled(np.stack([np.stack([features[i.video, r] for i in first]) for r in draws]),
                    np.array([labels.index(i.label) for i in first]))


# ---- codebooks -----------------------------------------------------------------------------------------------------

def run_assign(job: Job) -> None:
    """config and inputs as of `probe`, without encode; the release holds several draws of the test videos."""
    clips, diagnostic, state = Clips(job.inputs["clips"]), built(job), fitted_state(job.inputs)
    anatomy = anatomy_of(job.config["facts"], clips.info["canvas_px"])
    codebooks = _codebooks(state, anatomy)
    diagnostic.load(codebooks)
    items = open_release(job.inputs["release"], parts=("test",))
    people, pool = public_numbers(people_of(items), job.config["numbers_seed"], "people"), Pool()
    branches, _ = all_branches(job.config["facts"], clips.info["canvas_px"])
    values = read_values(job.inputs["release"] / "release", branches)
    with _public_worker(job) as worker:
        worker.load_state(state)
        inspect = inspector(worker, job, values, clips)
        for draws in _by_video(items):
            pool.add(people[draws[0].person], _assigned(diagnostic, draws, inspect, codebooks))
    rows = pool.trials(diagnostic, keys_of(diagnostic, anatomy, pooled=True), int(job.config["seed"]))
    write_trials(job.out / "trials.parquet", rows)
    write_json(job.out / "result.json", {"chance": None, "people": len(people), "clips": len(pool.people),
                                         "isolation": isolation_of(job.inputs["release"])})


def _codebooks(state: dict[str, np.ndarray], anatomy: Anatomy) -> dict[str, np.ndarray]:
    """{branch: (entries, d)}. Raises PluginError for a branch without a codebook in the fitted state."""
    found = {name: state.get(f"codebook:{name}") for name in anatomy.assigned}
    wrong = [name for name, rows in found.items() if rows is None or rows.ndim != 2]
    if wrong:
        raise PluginError(f"The fitted state has no codebook (entries, d) of {wrong}.",
                          "`inspects` names assignments to them.",
                          f'Give them in `state()` as "codebook:{wrong[0]}", or leave the names out.')
    return {name: np.asarray(rows, dtype=np.float64) for name, rows in found.items() if rows is not None}


def _by_video(items: list[Released]) -> list[list[Released]]:
    """All draws of each file, in their order."""
    groups: dict[tuple[str, int], list[Released]] = {}
    for item in items:
        groups.setdefault((item.video, item.clip), []).append(item)
    return list(groups.values())


def _assigned(diagnostic: Assignments, draws: list[Released], inspect: Callable[[Released], dict[str, np.ndarray]],
              codebooks: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Values of the frames of one video, from the assignments of its draws."""
    seen = [inspect(item) for item in draws]
    found = {name: np.stack([s[ASSIGNMENT + name] for s in seen]) for name in codebooks}  # (R, T, entries)
    for name, given in found.items():
        if given.shape[2] != len(codebooks[name]) or (given < 0).any() or not np.allclose(given.sum(2), 1, atol=1e-3):
            raise PluginError(f"assignment:{name} has {given.shape[2]} columns for {len(codebooks[name])} entries, and "
                              f"rows that sum to {given.sum(2).min():.4g} .. {given.sum(2).max():.4g}.",
                              "An assignment is a probability over the entries of its codebook.", "Mend `inspect`.")
    return dict(diagnostic.values(found))
