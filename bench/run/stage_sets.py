"""Stage `embed`: the features of clips, computed once for all distances that read them; and those distances."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from bench import registry
from bench.data.clips import Clips
from bench.errors import PluginError, Undefined
from bench.frechet import delete_one_people, same_data_floor
from bench.measures import SetMetric
from bench.nets.training import use_threads
from bench.registry import Spec
from bench.run.cache import write_json
from bench.run.released import Released, cut, isolated, open_release
from bench.run.stages import Job
from bench.run.trials import ALL_PEOPLE, Trial
from bench.run.views import asset_tensors, load_tensors, save_tensors
from bench.types import Video

Key = tuple[str, int]  # source video, number of its clip
Features = dict[Key, np.ndarray]


def run_embed(job: Job) -> None:
    """config: metric, variant, budget, profile, seed; inputs: assets, and release or clips (then of the originals).

    Writes one row for each clip of the test people's probe videos, of their first draw.
    """
    use_threads()
    spec = Spec(job.config["metric"], job.config["variant"])
    metric: SetMetric = registry.get("metrics", spec.name)(**{**registry.settings("metrics", spec),
                                                              **job.config["budget"]})
    metric.load(asset_tensors(job.inputs), job.context("metric", spec.name))
    keys: list[Key] = []
    vectors: list[np.ndarray] = []
    for key, clip in _clips(job.inputs):
        keys.append(key)
        vectors.append(_feature(metric, clip, vectors))
    if not keys:
        raise Undefined("no probe video of a test person was released")
    save_tensors(job.out / "features.safetensors", {"features": np.stack(vectors)})
    write_json(job.out / "clips.json", keys)


def _clips(inputs: Mapping[str, Path]) -> Iterator[tuple[Key, Video]]:
    if "release" in inputs:
        for item, number, clip in isolated(open_release(inputs["release"], parts=("test",), role="probe", draw=0)):
            yield (item.video, number), clip
        return
    clips = Clips(inputs["clips"])
    for row in clips.rows("test", role="probe"):
        for number, clip in enumerate(cut(clips.video(row))):
            yield (row.video, number), clip


def _feature(metric: SetMetric, clip: Video, before: Sequence[np.ndarray]) -> np.ndarray:
    """The feature vector of a clip. Raises PluginError when it is no vector, or of another length than those before."""
    vector = np.asarray(metric.embed(clip), dtype=float)
    if vector.ndim != 1 or (before and vector.shape != before[0].shape):
        raise PluginError(f"`embed` of {metric.name} gave an array of shape {vector.shape}"
                          + (f" after one of shape {before[0].shape}." if before else "."),
                          "Distances are of vectors of one length.", "Return one vector (d,) for every clip.")
    return vector


def read_features(folder: Path) -> Features:
    """What a stage `embed` wrote: {(video, clip number): (d,)}, in the order of the release."""
    keys = json.loads((folder / "clips.json").read_text(encoding="utf-8"))
    rows = np.asarray(load_tensors(folder / "features.safetensors")["features"])
    return {(video, number): row for (video, number), row in zip(keys, rows, strict=True)}


def distances(job: Job, metric: SetMetric, items: Sequence[Released],
              people: Mapping[str, int]) -> tuple[list[Trial], dict]:
    """Trials of a distance of sets: one number for all people (filed under ALL_PEOPLE), one without each of them.

    inputs of the job: features (of the release), originals and, of a derived release, direct: stages `embed`.
    """
    seed, owner_of = int(job.config["seed"]), {item.video: people[item.person] for item in items}
    released, known = (read_features(job.inputs[name]) for name in ("features", "originals"))
    owners = [owner_of[video] for video, _ in released]
    second, first = np.stack(list(released.values())), np.stack([known[key] for key in released])

    def distance(a: np.ndarray, b: np.ndarray) -> float:
        return metric.distance(a, b, first)

    rows = _rows(metric.columns[0].key, (first, second), owners, distance, seed)
    if "direct" in job.inputs:
        direct = read_features(job.inputs["direct"])
        same = np.stack([direct[key] for key in released])
        rows += _rows(metric.recovered_columns[0].key, (same, second), owners, distance, seed)
    rng = job.context("metric", metric.name).rng("floor")
    floor = same_data_floor(first, owners, distance, rng) if len(set(owners)) > 1 else None
    return rows, {"chance": None, "people": len(people), "clips": len(owners), "floor": floor}


def _rows(column: str, sets: tuple[np.ndarray, np.ndarray], owners: Sequence[int],
          distance: Callable[..., float], seed: int) -> list[Trial]:
    whole, without = delete_one_people(sets, [owners, owners], distance)
    values = {ALL_PEOPLE: whole, **{int(str(person)): value for person, value in without.items()}}
    return [Trial(column, person, 0, 0, 0, seed, value) for person, value in values.items()]
