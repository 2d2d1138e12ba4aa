"""Stages `train_match` (a matcher learns on released development clips) and `match` (is it the same person?).

Templates are made from original enrolment clips of all test people; every released probe clip is compared with all of
them. Thresholds come from development people alone, with templates from half of their originals and probes from their
releases of the other half. Only DIR divides the test people into enrolled and unknown ones (PROTOCOL 2 and 7).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench import open_set, registry, seeds, stats
from bench.data import splits
from bench.data.clips import Clips, Row
from bench.errors import DataError, Diverged, PluginError
from bench.measures import Column, Match
from bench.nets.training import use_threads
from bench.registry import Spec
from bench.run.cache import write_json
from bench.run.released import Released, cut, drawn, isolated, isolation_of, open_release, people_of
from bench.run.stages import Job
from bench.run.trials import Trial, public_numbers, write_trials
from bench.run.views import asset_tensors, load_tensors, save_tensors, state_of
from bench.types import Sample, Video

DECIMALS = 6  # of a cosine: rounding errors of float32 embeddings must not tell equal pictures apart
CHANCE = {"eer": lambda far: 0.5, "tar": lambda far: far}


def _build(job: Job) -> Match:
    spec = Spec(job.config["attack"], job.config["variant"])
    return registry.get("attacks", spec.name)(**{**registry.settings("attacks", spec), **job.config["budget"]})


def run_train_match(job: Job) -> None:
    """config: attack, variant, budget, profile, seed; inputs: release (its development clips), assets."""
    use_threads()
    attack = _build(job)
    items = open_release(job.inputs["release"], parts=("train",))
    held_out = for_thresholds(people_of(items))
    items = [i for i in items if i.person not in held_out]
    if not items:
        raise DataError("The release holds no development videos.", "The matcher learns on them.",
                        "Release the part `development` too.")
    people = people_of(items)
    samples = [Sample(videos[0], person=people.index(item.person), redraws=videos[1:])
               for item, _, videos in drawn(items, by_clip=True)]
    attack.fit(samples, len(people), asset_tensors(job.inputs), job.context("attack", job.config["attack"]))
    save_tensors(job.out / "state.safetensors", state_of(attack, job.config["attack"]))
    write_json(job.out / "people.json", people)


def for_thresholds(people: Sequence[str]) -> set[str]:
    """A third of the training people, by hash: the matcher does not learn them, so that their scores are those of
    strangers. On people whom it has learned, impostors score too low and every threshold would be too generous.
    """
    ordered = sorted(set(people), key=splits.hashed)
    return set(ordered[::3]) if len(ordered) >= 6 else set()


def run_match(job: Job) -> None:
    """config: as train_match and numbers_seed; inputs: train, release, clips, and probes when they are derived.

    Raises Diverged when an embedding is infinite. A clip without an embedding (NaN) is a match that failed.
    """
    use_threads()
    attack, clips, release = _build(job), Clips(job.inputs["clips"]), job.inputs["release"]
    learned = json.loads((job.inputs["train"] / "people.json").read_text(encoding="utf-8"))
    attack.load(load_tensors(job.inputs["train"] / "state.safetensors"), len(learned),
                job.context("attack", job.config["attack"]))
    probes = open_release(job.inputs.get("probes", release), role="probe")
    test = Table(_templates(attack, clips, clips.rows("test", role="enrolment")), _probes(attack, probes))
    job.report(f"{len(test.probes)} probe clips against {len(test.people)} templates, {test.undetected} undetected")
    development = _development(attack, clips, release)
    job.report(f"thresholds from {len(development.probes)} clips of {len(development.people)} development people")
    match = Matched(test, development, int(job.config["numbers_seed"]))
    _write(job, attack.columns, match, clips, isolation_of(release))


# ---- embeddings and scores -----------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Probe:
    """One released clip: whose, from where, and its unit vector (d,), NaN when no face could be embedded."""

    item: Released
    clip: int
    vector: np.ndarray


class Table:
    """Cosines of probes against templates.

    scores: float64 (N, P), NaN where a side has no embedding.  own: (N,) column of each probe's person, -1 without.
    """

    def __init__(self, templates: Mapping[str, np.ndarray], probes: Sequence[Probe]):
        self.people, self.probes = sorted(templates), list(probes)
        self.scores = np.zeros((len(self.probes), len(self.people)))
        if self.scores.size:
            _one_length([*(p.vector for p in self.probes), *templates.values()])
            vectors = np.stack([p.vector for p in self.probes])  # (N, d)
            gallery = np.stack([templates[p] for p in self.people])  # (P, d)
            self.scores = np.round(vectors @ gallery.T, DECIMALS)
        self.own = np.array([self.people.index(p.item.person) if p.item.person in templates else -1
                             for p in self.probes], dtype=int)
        self.detected = np.array([not np.isnan(p.vector).any() for p in self.probes], dtype=bool)

    @property
    def undetected(self) -> int:
        return int((~self.detected).sum())

    def genuine(self) -> np.ndarray:
        """(N, P) bool: the same person on both sides."""
        return self.own[:, None] == np.arange(len(self.people))

    def best_unknown(self, enrolled: Sequence[int]) -> np.ndarray:
        """(M,) best score of each probe of a person who is not enrolled, NaN where there is none."""
        return open_set.best_scores(self.scores[~np.isin(self.own, enrolled)][:, list(enrolled)])


def _vector(attack: Match, video: Video) -> np.ndarray:
    vector = np.asarray(attack.embed(video), dtype=float)
    if vector.ndim != 1 or np.isinf(vector).any():
        raise Diverged(f"the matcher gave an embedding of shape {vector.shape}, infinite: {np.isinf(vector).any()}")
    if np.isnan(vector).any():
        return np.full(vector.shape, np.nan)
    if abs(np.linalg.norm(vector) - 1) > 1e-3:
        raise PluginError(f"The matcher gave an embedding of length {np.linalg.norm(vector):.3g}.",
                          "Scores are cosines of unit vectors.", "Normalise it in `embed`.")
    return vector


def _one_length(vectors: Sequence[np.ndarray]) -> None:
    """Raise PluginError when the embeddings are not all of one length."""
    if len(sizes := sorted({v.size for v in vectors})) > 1:
        raise PluginError(f"The matcher gave embeddings of {sizes[0]} and of {sizes[-1]} numbers.",
                          "Two of different length have no cosine.", "Return vectors (d,) of one length from `embed`.")


def _templates(attack: Match, clips: Clips, rows: Iterable[Row]) -> dict[str, np.ndarray]:
    """Person -> normalised mean of the embeddings of their original clips; NaN where no face was found in any."""
    found: dict[str, list[np.ndarray]] = defaultdict(list)
    for row in rows:
        found[row.person] += [_vector(attack, clip) for clip in cut(clips.video(row))]
    templates = {}
    for person, vectors in found.items():
        _one_length(vectors)
        known = [v for v in vectors if not np.isnan(v).any()]
        total = np.sum(known, axis=0) if known else vectors[0]
        templates[person] = total / max(np.linalg.norm(total), 1e-12) if known else total
    return templates


def _probes(attack: Match, items: Sequence[Released]) -> list[Probe]:
    return [Probe(item, clip, _vector(attack, video)) for item, clip, video in isolated(items)]


def _development(attack: Match, clips: Clips, release: Path) -> Table:
    """Development people whom the matcher did not learn: templates from half of their originals, probes from the
    release of the other half. Calibration people, and a third of the training people.

    Halves alternate by hash inside each person and label, as enrolment and probe of test people do.
    """
    held_out = for_thresholds([r.person for r in clips.rows("train")])
    rows = [r for r in clips.rows("train", "calibration") if r.part == "calibration" or r.person in held_out]
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.person, row.label].append(row)
    ordered = [sorted(group, key=lambda row: splits.hashed(row.video)) for group in groups.values()]
    probes = {row.video for group in ordered for row in group[1::2]}
    items = [i for i in open_release(release, parts=("train", "calibration"), draw=0) if i.video in probes]
    return Table(_templates(attack, clips, (row for group in ordered for row in group[::2])), _probes(attack, items))


# ---- from scores to trials -----------------------------------------------------------------------------------------

class Matched:
    """Test people's scores, the thresholds that development people fixed, and who is enrolled when."""

    def __init__(self, test: Table, development: Table, seed: int):
        self.test, self.development = test, development
        self.halves = open_set.partitions(test.people, seeds.derive(seed, "open-set", "test"))
        enrolled = len(self.halves[0][0]) if self.halves else 1
        size = min(enrolled, (len(development.people) + 1) // 2)  # false alarms grow with the gallery: as many people
        self.development_halves = open_set.partitions(
            development.people, seeds.derive(seed, "open-set", "development"), enrolled=size)

    def threshold(self, column: Column) -> float:
        """The smallest score that development people accept at the column's false accept rate; NaN without any."""
        table, far = self.development, float((column.params or {})["far"])
        if column.id == "dir":
            best = [table.best_unknown(enrolled) for enrolled, _ in self.development_halves]
            return open_set.threshold_at_far(np.concatenate(best) if best else np.zeros(0), far)
        return open_set.threshold_at_far(table.scores[~table.genuine()], far)

    def values(self, column: Column) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(probe, template, value) of every trial of a column, (M,) each; template -1 where a trial has several."""
        table, genuine = self.test, self.test.genuine()
        if column.id == "eer":
            probe, template = np.nonzero(np.ones_like(genuine))
            return probe, template, table.scores[probe, template]
        threshold = self.threshold(column)
        if column.id == "dir":
            probe, value = self._identified(threshold)
            return probe, np.full(len(probe), -1), value
        probe, template = np.nonzero(genuine if column.id == "tar" else ~genuine)
        value = (table.scores[probe, template] >= threshold).astype(float)
        return probe, template, np.where(np.isnan(threshold), np.nan, value)

    def _identified(self, threshold: float) -> tuple[np.ndarray, np.ndarray]:
        """Probes whose person is enrolled in some partition, and the mean of their results over these."""
        table = self.test
        sums, times = np.zeros(len(table.probes)), np.zeros(len(table.probes))
        for enrolled, _ in self.halves:
            mated = np.flatnonzero(np.isin(table.own, enrolled))
            mates = np.searchsorted(enrolled, table.own[mated])
            sums[mated] += open_set.identified(table.scores[mated][:, list(enrolled)], mates, threshold)
            times[mated] += 1
        probe = np.flatnonzero(times)
        return probe, sums[probe] / times[probe] if not np.isnan(threshold) else np.full(len(probe), np.nan)

    def realised(self, column: Column) -> float:
        """The false accept rate that test people really had at the column's threshold (DIR: mean over partitions)."""
        threshold = self.threshold(column)
        if column.id != "dir":
            return open_set.far(self.test.scores[~self.test.genuine()], threshold)
        rates = [open_set.tar(best, threshold) for enrolled, _ in self.halves
                 if len(best := self.test.best_unknown(enrolled))]
        return float(np.mean(rates)) if rates else float("nan")

    def status(self, column: Column) -> str:
        """Whether so few comparisons of so few people can show the rate (PROTOCOL 7)."""
        test = self.test
        impostors = int((~test.genuine()).sum())
        pairs = {frozenset((a, b)) for a in {p.item.person for p in test.probes} for b in test.people if a != b}
        if column.id == "eer":
            return "ok" if len(pairs) and test.genuine().any() else "not_measurable"
        far = float((column.params or {})["far"])
        if column.id != "dir":
            return open_set.measurability(impostors, len(pairs), far)
        if not self.halves:
            return "not_measurable"
        return min((self._dir_status(enrolled, far) for enrolled, _ in self.halves),
                   key=["not_measurable", "indicative", "ok"].index)

    def _dir_status(self, enrolled: Sequence[int], far: float) -> str:
        unknown = [p.item.person for p, own in zip(self.test.probes, self.test.own) if own not in enrolled]
        return open_set.measurability(len(unknown), len(set(unknown)) * len(enrolled), far)


def _write(job: Job, columns: Sequence[Column], match: Matched, clips: Clips, isolation: object) -> None:
    """Trials, and what is known about the measurement as a whole."""
    test, seed = match.test, int(job.config["seed"])
    rows = clips.rows("test")
    names = public_numbers([r.person for r in rows], job.config["numbers_seed"], "people")
    videos = public_numbers([r.video for r in rows if r.role == "probe"], job.config["numbers_seed"], "videos")
    trials: list[Trial] = []
    chance, without, thresholds, realised = {}, {}, {}, {}
    for column in columns:
        probe, template, value = match.values(column)
        owners = [test.probes[n] for n in probe]
        whose = [names[p.item.person] for p in owners]
        truth = [names[test.people[q]] if q >= 0 else -1 for q in template]
        trials += [Trial(column.key, who, videos[p.item.video], p.clip, p.item.draw, seed, float(v), truth=t)
                   for who, p, v, t in zip(whose, owners, value, truth)]
        far = (column.params or {}).get("far")
        chance[column.key] = CHANCE[column.id](far) if column.id in CHANCE else None
        kept = test.detected[probe]
        without[column.key] = _number(column, value[kept], np.array(whose)[kept], np.array(truth)[kept])
        if far is not None:
            thresholds[column.key], realised[column.key] = (_finite(match.threshold(column)),
                                                            _finite(match.realised(column)))
    write_trials(job.out / "trials.parquet", trials)
    people = len(set(names))
    write_json(job.out / "result.json", {
        "chance": chance, "people": people, "classes": people, "isolation": isolation,
        "clips_read": Counter(str(p.item.clips_read("clip")) for p in test.probes),
        "status": {column.key: match.status(column) for column in columns}, "undetected": test.undetected,
        "excluding_undetected": without, "thresholds": thresholds, "realised": realised,
        "partitions": len(match.halves)})


def _number(column: Column, value: np.ndarray, whose: np.ndarray, truth: np.ndarray) -> float | None:
    """A column's number from these trials alone, None when it has none."""
    if column.statistic == "eer":
        return _finite(open_set.eer(value[whose == truth], value[whose != truth]))
    return _finite(stats.mean_interval(value.tolist(), whose.tolist()).value)


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
