"""Stages `report_metric` and `event`: numbers of report streams, and attacks on matched counterfactual streams."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from bench import registry, seeds
from bench.data.streams import Streams
from bench.distinguishers import Distinguisher
from bench.errors import DataError, PluginError, Undefined
from bench.measures import Noise, column_key
from bench.nets.training import use_threads
from bench.privacy import ceilings
from bench.privacy.claims import EventClaim
from bench.privacy.contract import CHUNK_STEPS, Branch
from bench.privacy.windows import clip_chunks, window_sums
from bench.registry import Spec
from bench.report_measures import ReportMetric, Reports, Stream
from bench.run.cache import write_json
from bench.run.enforced import priced
from bench.run.matched import EXACT, each_window, exact, learned
from bench.run.released import isolation_of
from bench.run.stage_reports import branches_of, event_of
from bench.run.stages import Job
from bench.run.trials import ALL_PEOPLE, Trial, public_numbers, write_trials
from bench.run.views import load_tensors
from bench.traffic import COMPONENTS, EXPERTS, columns

STAYS = ("vehicle_stay", "pedestrian_stay")  # events of single objects, outside every claim
OBJECTS = 10  # of each kind and episode


class Released:
    """A report release joined with its id map. episode: (N,) position among the test episodes; draw: (N,)."""

    def __init__(self, folder: Path, streams: Streams, numbers_seed: int):
        known = {r["id"]: r["episode"] for r in pq.read_table(folder / "vault" / "idmap.parquet").to_pylist()}
        manifest = pq.read_table(folder / "release" / "manifest.parquet").to_pylist()
        self.folder, self.streams = folder, streams
        self.episode = np.array([known[r["id"]] for r in manifest])
        self.draw = np.array([r["draw"] for r in manifest])
        names = [streams.info["ids"][k] for k in streams.test()]
        numbers = public_numbers(names, numbers_seed, "people")
        self.person = np.array([numbers[names[e]] for e in self.episode])

    def reports(self) -> Reports:
        """The reports beside the truth, streams in the order of the release."""
        table = pq.read_table(self.folder / "release" / "reports.parquet")
        shape = (len(self.episode), self.streams.info["slots"])
        shown = np.stack([table.column(c).to_numpy(zero_copy_only=False) for c in COMPONENTS], axis=1)
        fresh = np.stack([table.column(f"fresh_{e.name}").to_numpy(zero_copy_only=False) for e in EXPERTS], axis=1)
        test = self.streams.test()[self.episode]
        return Reports(self.streams.truth(test), shown.reshape(*shape, -1).astype(np.float64),
                       fresh.reshape(*shape, -1).astype(bool), self.streams.requests.expert[test],
                       self.streams.requests.priority[test], self.episode)

    def scales(self, branches: tuple[Branch, ...]) -> dict[str, np.ndarray]:
        """Realised scales {branch: (N, T)}. Raises DataError when the transcript was changed after the release."""
        found = self._transcript()
        return {b.name: found[f"scale:{b.name}"] for b in branches}

    def sums(self, branches: tuple[Branch, ...], scales: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Noisy window sums {branch: float64 (N, T, dim)}, NaN where nothing was released."""
        found = self._transcript()
        return {b.name: np.where(np.isnan(scales[b.name])[..., None] & (b.noise is not None), np.nan,
                                 found[f"steps:{b.name}"]) for b in branches}

    def _transcript(self) -> dict[str, np.ndarray]:
        path = self.folder / "release" / "transcript.safetensors"
        wanted = json.loads((self.folder / "release" / "release.json").read_text(encoding="utf-8"))["transcript"]
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != wanted:
            raise DataError(f"The transcript {path} is not the one that was released.",
                            "Its digest stands in release.json.", "Release again.")
        return load_tensors(path)

    def trial(self, column: str, stream: int, seed: int, value: float) -> Trial:
        person = int(self.person[stream])
        return Trial(column, person, person, 0, int(self.draw[stream]), seed, float(value))


def run_report_metric(job: Job) -> None:
    """config: metric, variant, profile, seed, numbers_seed, facts; inputs: release, streams."""
    use_threads()
    spec, seed = Spec(job.config["metric"], job.config["variant"]), int(job.config["seed"])
    metric: ReportMetric = registry.get("metrics", spec.name)(**registry.settings("metrics", spec))
    released = Released(job.inputs["release"], Streams(job.inputs["streams"]), job.config["numbers_seed"])
    reports, rows = released.reports(), []
    for key, values in metric.values(reports).items():
        if np.shape(values) != (len(reports.episode),):
            raise PluginError(f"The metric {spec} gave {np.shape(values)} values of {key} for "
                              f"{len(reports.episode)} streams.", "", "Give one value a stream.")
        rows += [released.trial(key, n, seed, v) for n, v in enumerate(values)]
    rows += list(_without(metric, reports, released, seed))
    if not np.isfinite([r.value for r in rows]).any() and _unlabelled(metric, reports):
        hint = "; write NAME.csv with counts by hand beside NAME.mp4" if released.streams.from_video else ""
        raise Undefined(f"{released.streams.info['name']} has no labels of what {spec} measures{hint}")
    wanted = {c.key for c in metric.columns}
    if {r.column for r in rows} != wanted:
        raise PluginError(f"The metric {spec} gave {sorted({r.column for r in rows})}, its columns are "
                          f"{sorted(wanted)}.", "Every column needs its values.", "")
    write_trials(job.out / "trials.parquet", rows)
    write_json(job.out / "result.json", {"chance": None, "pseudo_values": True, "clips": len(reports.episode),
                                         **_about(job, released)})


def _about(job: Job, released: Released) -> dict[str, Any]:
    """What every number of a release carries: its episodes, its price by both accountants, its isolation."""
    cost = priced(job.config["facts"])[1]
    both = {"epsilon_sum": cost.epsilon_sum, "epsilon_max": cost.epsilon_max}
    return {"people": len(set(released.person.tolist())), "isolation": isolation_of(job.inputs["release"]),
            **{k: v for k, v in both.items() if v is not None and np.isfinite(v)}}


def _unlabelled(metric: ReportMetric, reports: Reports) -> bool:
    """Would even perfect reports have no value? Then it is the labels that say nothing, and not the method."""
    perfect = replace(reports, report=reports.truth, fresh=np.ones_like(reports.fresh))
    found: list[Any] = [*metric.values(perfect).values(), *metric.number(perfect).values()]
    return not any(np.isfinite(np.asarray(value, dtype=float)).any() for value in found)


def _without(metric: ReportMetric, reports: Reports, released: Released, seed: int) -> Iterator[Trial]:
    """Numbers of all streams, and without one episode at a time."""
    everything = np.zeros(len(reports.episode), dtype=bool)
    groups = [(ALL_PEOPLE, everything)] + [(int(p), released.person == p) for p in sorted(set(released.person))]
    if not metric.number(reports):
        return
    for person, left_out in groups:
        for key, value in metric.number(reports.of(~left_out)).items():
            yield Trial(key, person, 0, 0, 0, seed, float(value))


# ---- events --------------------------------------------------------------------------------------------------------

def run_event(job: Job) -> None:
    """config: attack, variant, profile, seed, numbers_seed, lane, facts, of an attack that learns control; inputs:
    release, streams.
    """
    use_threads()
    spec, facts, seed = Spec(job.config["attack"], job.config["variant"]), job.config["facts"], int(job.config["seed"])
    attack: Stream = registry.get("attacks", spec.name)(**registry.settings("attacks", spec))
    released = Released(job.inputs["release"], Streams(job.inputs["streams"]), job.config["numbers_seed"])
    branches, event = branches_of(facts), event_of(facts, released.streams.info["slots"])
    scales = released.scales(branches)
    spent = {n: np.nan_to_num(1 / np.where(v > 0, v, np.nan)) for n, v in scales.items()}  # more noise, less spent
    rows = []
    for stream, episode in enumerate(released.episode):
        same = released.episode == episode
        noise = {b.name: Noise(b.noise, scales[b.name][stream]) for b in branches}
        for name in attack.events:
            if name in STAYS or isinstance(attack, Distinguisher):
                continue
            shift = shift_of(name, branches, event, {n: v[same].mean(axis=0) for n, v in spent.items()})
            rows.append(released.trial(column_key("auc", {"event": name}), stream, seed, attack.auc(shift, noise)))
    rows += list(_stays(attack, released, branches, event, scales, seed))
    if isinstance(attack, Distinguisher):
        rows += list(_learned(attack, released, branches, event, job.config["control"] == "positive", seed))
    if not rows:
        raise Undefined(f"{released.streams.info['name']} knows no single objects")
    write_trials(job.out / "trials.parquet", rows)
    write_json(job.out / "result.json", {"chance": 0.5, **_about(job, released),
                                         "ceilings": event_ceilings(facts, attack.events, job.config["lane"])})


def _stays(attack: Stream, released: Released, branches: tuple[Branch, ...], event: EventClaim,
           scales: Mapping[str, np.ndarray], seed: int) -> Iterator[Trial]:
    """Of some objects of each episode whose objects are known: the mean over objects, and the one that stands out."""
    wanted = [name for name in attack.events if name in STAYS]
    for position in sorted(set(released.episode.tolist())) if wanted else ():
        episode = int(released.streams.test()[position])
        found = released.streams.stays(episode)
        for name in wanted:
            objects = found[name.removesuffix("_stay")]
            rng = seeds.derive(seed, "stays", name, episode)
            chosen = [objects[k] for k in rng.permutation(len(objects))[:OBJECTS]]
            shifts = [stay_of(released.streams.steps[episode], one, branches, event) for one in chosen]
            for stream in np.flatnonzero(released.episode == position) if shifts else ():
                noise = {b.name: Noise(b.noise, scales[b.name][stream]) for b in branches}
                values = [attack.auc(shift, noise) for shift in shifts]
                for of, value in (("mean", np.mean(values)), ("worst", max(values))):
                    yield released.trial(column_key("auc", {"event": name, "of": of}), int(stream), seed, float(value))


def _learned(attack: Distinguisher, released: Released, branches: tuple[Branch, ...], event: EventClaim,
             control: bool, seed: int) -> Iterator[Trial]:
    """Of an attack that learns: each stream's part in its AUC, event by event. control: reads exact counts instead."""
    episode = released.streams.test()[released.episode]
    if control:
        branches, (sums, scales) = EXACT, exact(released.streams, episode, event)
        spent = {n: seeds.derive(seed, "windows", n).random(v.shape) for n, v in scales.items()}  # any window
    else:
        scales = released.scales(branches)
        sums = released.sums(branches, scales)
        spent = {n: np.nan_to_num(1 / np.where(v > 0, v, np.nan)) for n, v in scales.items()}
    for name in attack.events:
        shifts = [shift_of(name, branches, event, {n: v[released.episode == e].mean(axis=0) for n, v in spent.items()})
                  for e in released.episode]
        values = learned(attack, released.streams, branches, sums, episode, dict(each_window(shifts)), scales, event,
                         (seed, name))
        for stream, value in enumerate(values):
            yield released.trial(column_key("auc", {"event": name}), stream, seed, value)


def stay_of(steps: np.ndarray, added: np.ndarray, branches: tuple[Branch, ...],
            event: EventClaim) -> dict[str, np.ndarray]:
    """What one object changes in the clipped window sums, {branch: int64 (T, dim)}. steps, added: (chunks, 12)."""
    out = {}
    for branch in branches:
        both = np.stack([steps, steps - added])[..., columns(branch.name)] / CHUNK_STEPS
        sums = window_sums(clip_chunks(both, branch, CHUNK_STEPS)[0], event)
        out[branch.name] = sums[0] - sums[1]
    return out


def shift_of(name: str, branches: tuple[Branch, ...], event: EventClaim,
             spent: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What an event adds to the window sums, {branch: int64 (T, dim)}, K chunks at a time.

    It lies in the window in which the branches that it moves are noised least on average over draws, (T,) `spent`;
    "every_window" in all of them. Raises PluginError for an unknown name.
    """
    moved = {b.name: _change(name, b) * event.changed_chunks for b in branches}
    slots = len(next(iter(spent.values())))
    scores = np.sum([spent[n] * np.abs(v).max() for n, v in moved.items()], axis=0)  # (T,)
    places = range(slots) if name == "every_window" else [int(np.argmax(scores))]
    out = {b.name: np.zeros((slots, b.dim), dtype=np.int64) for b in branches}
    for t in places:
        for n, change in moved.items():
            out[n][t] = change
    return out


def _change(name: str, branch: Branch) -> np.ndarray:
    """What one chunk of the event adds to a branch, int64 (dim,), inside the cap."""
    cap = next(e.cap for e in EXPERTS if e.name == branch.name)
    most = int(min(branch.clip, cap * CHUNK_STEPS))
    out = np.zeros(branch.dim, dtype=np.int64)
    if name in ("experts", "every_window") or (name == "flip" and branch.name == "traffic"):
        out[:2] = -most, most  # (C, 0) becomes (0, C)
    elif (name, branch.name) in (("vehicle", "traffic"), ("pedestrian", "pedestrian")):
        out[0] = min(CHUNK_STEPS, most)
    elif name not in ("flip", "vehicle", "pedestrian"):
        raise PluginError(f"There is no event {name!r}.", "The harness makes matched streams with and without it.",
                          "Known: vehicle, pedestrian, flip, experts, every_window.")
    return out


def event_ceilings(facts: Mapping[str, Any], events: tuple[str, ...],
                   lane: str = "enforced") -> dict[str, float | None]:
    """The highest AUC that the claim allows for each event; None without a claim, or with one that is only declared.

    K chunks in one window are K in all; what it costs if they change in every window is the sum.
    """
    cost = priced(facts)[1]
    out: dict[str, float | None] = {}
    for name in events:
        epsilon = cost.epsilon_sum if name == "every_window" else cost.epsilon_max
        bound = None if lane == "declared" or epsilon is None or not np.isfinite(epsilon) else \
            ceilings.auc(ceilings.Loss("pure", epsilon=epsilon)).bound
        out[column_key("auc", {"event": name})] = bound
    return out
