"""Stage `metric`: a pure metric over frames, one with a network, a distance of two sets, or an evaluator retrained on
the method's development releases.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from bench import registry
from bench.data.clips import Clips
from bench.errors import Diverged, PluginError, Undefined
from bench.measures import Column, Evaluator, Metric, SetMetric, VideoMetric
from bench.nets.training import use_threads
from bench.registry import Spec
from bench.run.cache import write_json
from bench.run.floors import Guesses
from bench.run.released import Released, batches, drawn, isolation_of, open_release, people_of
from bench.run.stage_sets import distances
from bench.run.stages import Job
from bench.run.trials import Trial, finite, mean_defined, public_numbers, write_trials
from bench.run.views import asset_tensors, save_tensors, state_of
from bench.types import CLIP_FRAMES, Sample, Video

Result = tuple[list[Trial], dict]


def run_metric(job: Job) -> None:
    """config: metric, variant, budget, profile, seed, numbers_seed; inputs: release, clips; assets, or of a
    distance of sets the features that stages `embed` made.
    """
    use_threads()
    spec = Spec(job.config["metric"], job.config["variant"])
    plugin = registry.get("metrics", spec.name)
    items = open_release(job.inputs["release"], parts=("test",))
    known = _Known(job, items)
    if isinstance(plugin, Metric):
        rows, result = _pure(job, plugin, known)
    else:
        made = plugin(**{**registry.settings("metrics", spec), **job.config["budget"]})
        rows, result = _videos(job, made, known) if isinstance(made, VideoMetric) else \
            distances(job, made, items, known.people) if isinstance(made, SetMetric) else _evaluate(job, made, known)
    reads: Counter[str] = Counter(str(i.clips_read("video")) for i in items)
    write_trials(job.out / "trials.parquet", rows)
    write_json(job.out / "result.json", {**result, "clips_read": reads,
                                         "isolation": isolation_of(job.inputs["release"])})


class _Known:
    """The released test videos, their originals, and the public numbers of people and videos."""

    def __init__(self, job: Job, items: list[Released]):
        self.items = items
        self.probes = [i for i in items if i.role == "probe"]
        self.people = public_numbers(people_of(items), job.config["numbers_seed"], "people")
        self.videos = public_numbers([i.video for i in items], job.config["numbers_seed"], "videos")
        self.seed = int(job.config["seed"])
        self.clips = Clips(job.inputs["clips"])
        self._sources = {row.video: row for row in self.clips.rows("test")}

    def original(self, item: Released) -> Video:
        """The same frames before release: the whole video, or the part that an isolated clip was made from."""
        video = self.clips.video(self._sources[item.video])
        start = max(item.clip, 0) * CLIP_FRAMES
        return Video(video.frames[start:start + item.frames], video.fps)

    def trial(self, column: str, item: Released, value: float) -> Trial:
        return Trial(column, self.people[item.person], self.videos[item.video], max(item.clip, 0), item.draw,
                     self.seed, value)


def _inside(values: np.ndarray, column: Column, name: str) -> np.ndarray:
    """The values. Raises PluginError where one lies outside the range that the column states; NaN is undefined."""
    slack = 1e-6 * max(1.0, *(abs(x) for x in (column.low, column.high) if math.isfinite(x)))  # float32 rounding
    if (outside := values[(values < column.low - slack) | (values > column.high + slack)]).size:
        raise PluginError(f"The metric {name} gave {outside.flat[0]:.6g} for {column.id}, which says that it lies in "
                          f"{column.low:g} .. {column.high:g}.", "Intervals are cut to that range.",
                          "Mend the metric, or its column's low and high.")
    return values


def _pure(job: Job, metric: Metric, known: _Known) -> Result:
    """One row a probe video: the mean over its frames of a value per frame, undefined frames dropped.

    Frames at the cap of a scale in decibels are counted: equal frames have no finite value. A recovered clip is also
    set beside two guesses that need no attack.
    """
    rows, capped = [], 0
    guesses = Guesses(job, metric, known.probes) if "direct" in job.inputs and metric.of == "pair" else None
    for item, video in batches(known.probes):
        original = known.original(item) if metric.of == "pair" else None
        values = metric.function(video.frames) if original is None else \
            metric.function(original.as_float(), video.as_float())
        values = np.asarray(values, dtype=float)
        if values.shape != (len(video),):
            raise PluginError(f"The metric {metric.name} gave {values.shape} values for {len(video)} frames.",
                              "A metric gives one value per frame.",
                              "Return an array of shape (T,), NaN where undefined.")
        rows.append(known.trial(metric.column.key, item, mean_defined(_inside(values, metric.column, metric.name))))
        capped += int((values >= metric.column.high).sum()) if metric.column.unit == "dB" else 0
        if guesses is not None and original is not None:
            guesses.compare(item, original, rows[-1].value)
    return rows, {"chance": None, "people": len(known.people), "capped_frames": capped or None,
                  "guesses": guesses.floors() if guesses is not None else None,
                  "undefined_videos": int(sum(np.isnan(r.value) for r in rows))}


def _videos(job: Job, metric: VideoMetric, known: _Known) -> Result:
    """One row a probe video and column: the mean of the video's defined values."""
    metric.load(asset_tensors(job.inputs), job.context("metric", metric.name))
    wanted, rows = {c.id: c for c in metric.columns}, []
    for item, video in batches(known.probes):
        values = metric.values(known.original(item), video)
        if set(values) != set(wanted):
            raise PluginError(f"The metric {metric.name} gave {sorted(values)}, its columns are {sorted(wanted)}.",
                              "Every column needs its values.", "Return one array for each column.")
        rows += [known.trial(wanted[name].key, item, mean_defined(_inside(np.asarray(v, dtype=float), wanted[name],
                                                                   metric.name))) for name, v in values.items()]
    return rows, {"chance": None, "people": len(known.people)}


def _evaluate(job: Job, evaluator: Evaluator, known: _Known) -> Result:
    labels = known.clips.labels
    if len(labels) < 2:
        raise Undefined(f"the dataset has one label only ({labels[0]})")
    train, calibration = (_samples(job, part, labels) for part in ("train", "calibration"))
    evaluator.fit(train, calibration, len(labels), asset_tensors(job.inputs),
                  job.context("metric", job.config["metric"]))
    kept = state_of(evaluator, job.config["metric"])  # diagnostics read other releases with it
    save_tensors(job.out / "state.safetensors", kept)
    rows = []
    for item, truth, predicted in predictions(evaluator, known.items, labels):
        rows += [Trial(column.key, known.people[item.person], known.videos[item.video], 0, item.draw, known.seed,
                       float(truth == predicted), truth=truth, predicted=predicted) for column in evaluator.columns]
    majority = max(Counter(i.label for i in known.items).values()) / len(known.items)
    return rows, {"chance": 1 / len(labels), "people": len(known.people), "classes": len(labels), "majority": majority}


def predictions(evaluator: Evaluator, items: Sequence[Released],
                labels: Sequence[str]) -> Iterator[tuple[Released, int, int]]:
    """(released video, its label, the label read from it). Raises Diverged when a score is not finite."""
    for item, video in batches(items):
        scores = np.asarray(evaluator.predict(video), dtype=float)
        if scores.shape != (len(labels),) or not finite(scores):
            raise Diverged(f"the evaluator gave {scores.shape} scores, finite: {finite(scores)}")
        yield item, labels.index(item.label), int(scores.argmax())


def _samples(job: Job, part: str, labels: list[str]) -> list[Sample]:
    items = open_release(job.inputs["release"], parts=(part,))
    return [Sample(videos[0], label=labels.index(item.label), redraws=videos[1:])
            for item, _, videos in drawn(items, by_clip=False)]
