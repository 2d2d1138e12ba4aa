"""Stage `diagnose`: what the vault says of an enforced release, clip by clip, for every released test video."""

from __future__ import annotations

from bench.data.clips import Clips
from bench.run.anatomy import Pool, Vault, anatomy_of, built, checked, keys_of
from bench.run.cache import write_json
from bench.run.released import isolation_of, open_release, people_of
from bench.run.stages import Job
from bench.run.trials import Trial, public_numbers, write_trials


def run_diagnose(job: Job) -> None:
    """config: attack, variant, budget, profile, seed, numbers_seed, facts; inputs: release, encode, clips."""
    clips, diagnostic, seed = Clips(job.inputs["clips"]), built(job), int(job.config["seed"])
    anatomy = anatomy_of(job.config["facts"], clips.info["canvas_px"])
    vault, pool = Vault(job, clips), Pool()
    single, pooled = (keys_of(diagnostic, anatomy, pooled=which) for which in (False, True))
    items = open_release(job.inputs["release"], parts=("test",), draw=0)
    people = public_numbers(people_of(items), job.config["numbers_seed"], "people")
    videos = public_numbers([i.video for i in items], job.config["numbers_seed"], "videos")
    rows: list[Trial] = []
    for item in items:
        for clip, opened in vault.clips(item):
            found = checked(diagnostic.measure(opened), single, job.config["attack"])
            rows += [Trial(key, people[item.person], videos[item.video], clip, 0, seed, value)
                     for key, value in found.items()]
            if pooled:
                pool.add(people[item.person], diagnostic.values(opened))
    rows += pool.trials(diagnostic, pooled, seed)
    write_trials(job.out / "trials.parquet", rows)
    write_json(job.out / "result.json", {"chance": None, "people": len(people), "clips": len(pool.people),
                                         "isolation": isolation_of(job.inputs["release"])})
