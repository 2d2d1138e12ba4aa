"""Stage `metric`: a pure metric over frames, or an evaluator retrained on the method's development releases."""

from __future__ import annotations

import numpy as np

from bench import registry
from bench.data.clips import Clips
from bench.errors import Diverged, PluginError, Undefined
from bench.nets.training import use_threads
from bench.registry import Spec
from bench.run.cache import write_json
from bench.run.released import Released, batches, clips_read, isolation_of, open_release, people_of
from bench.run.stages import Job
from bench.run.trials import Trial, finite, public_numbers, write_trials
from bench.run.views import asset_tensors
from bench.types import CLIP_FRAMES, Evaluator, Metric, Sample


def run_metric(job: Job) -> None:
    """config: metric, variant, budget, profile, seed; inputs: release, clips, assets."""
    use_threads()
    spec = Spec(job.config["metric"], job.config["variant"])
    plugin = registry.get("metrics", spec.name)
    items = open_release(job.inputs["release"], parts=("test",))
    names = public_numbers(people_of(items), job.config["numbers_seed"], "people")
    videos = public_numbers([i.video for i in items], job.config["numbers_seed"], "videos")
    if isinstance(plugin, Metric):
        rows, result = _pure(job, plugin, [i for i in items if i.role == "probe"], names, videos)
    else:
        evaluator = plugin(**{**registry.settings("metrics", spec), **job.config["budget"]})
        rows, result = _evaluate(job, evaluator, items, names, videos)
    write_trials(job.out / "trials.parquet", rows)
    write_json(job.out / "result.json", {**result, "clips_read": clips_read(items),
                                         "isolation": isolation_of(job.inputs["release"])})


def _pure(job: Job, metric: Metric, items: list[Released], names: dict[str, int],
          videos: dict[str, int]) -> tuple[list[Trial], dict]:
    """One row a probe video: the mean over its frames of a value per frame, undefined frames dropped."""
    clips = Clips(job.inputs["clips"])
    sources = {row.video: row for row in clips.rows("test")}
    rows, undefined = [], 0
    for item, video in batches(items):
        if metric.of == "pair":
            original = clips.video(sources[item.video]).as_float()
            start = max(item.clip, 0) * CLIP_FRAMES  # an isolated clip is compared with its part of the source
            values = metric.function(original[start:start + len(video)], video.as_float())
        else:
            values = metric.function(video.frames)
        values = np.asarray(values, dtype=float)
        if values.shape != (len(video),):
            raise PluginError(f"The metric {metric.name} gave {values.shape} values for {len(video)} frames.",
                              "A metric gives one value per frame.",
                              "Return an array of shape (T,), NaN where undefined.")
        undefined += int(np.isnan(values).all())
        value = float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")
        rows.append(Trial(metric.column.id, names[item.person], videos[item.video], 0, item.draw,
                          int(job.config["seed"]), value))
    return rows, {"chance": None, "people": len(names), "undefined_videos": undefined}


def _evaluate(job: Job, evaluator: Evaluator, items: list[Released], names: dict[str, int],
              videos: dict[str, int]) -> tuple[list[Trial], dict]:
    labels = Clips(job.inputs["clips"]).labels
    if len(labels) < 2:
        raise Undefined(f"the dataset has one label only ({labels[0]})")
    release = job.inputs["release"]
    train, calibration = ([Sample(i.read(), label=labels.index(i.label)) for i in open_release(release, parts=(p,))]
                          for p in ("train", "calibration"))
    evaluator.fit(train, calibration, len(labels), asset_tensors(job.inputs),
                  job.context("metric", job.config["metric"]))
    rows = []
    for item, video in batches(items):
        scores = np.asarray(evaluator.predict(video), dtype=float)
        if scores.shape != (len(labels),) or not finite(scores):
            raise Diverged(f"the evaluator gave {scores.shape} scores, finite: {finite(scores)}")
        truth, predicted = labels.index(item.label), int(scores.argmax())
        rows += [Trial(column.id, names[item.person], videos[item.video], 0, item.draw, int(job.config["seed"]),
                       float(truth == predicted), truth=truth, predicted=predicted) for column in evaluator.columns]
    majority = max(sum(i.label == label for i in items) for label in labels) / len(items)
    return rows, {"chance": 1 / len(labels), "people": len(names), "classes": len(labels), "majority": majority}
