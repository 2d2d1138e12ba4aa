"""From trial rows to cells: the published number, its interval, and everything it may be compared by (DESIGN 4, 5)."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from bench import frechet, open_set, seeds, stats
from bench.measures import column_key
from bench.paired import pseudo_values
from bench.privacy import ceilings
from bench.run.trials import ALL_PEOPLE, number

KEY = ("method", "variant", "dataset", "profile", "attack", "metric", "evaluator", "via", "decoding", "draws")
RATES = ("top1", "fer", "uar")  # columns whose ceiling is that of naming one of some classes


def cell_id(cell: Mapping[str, Any]) -> str:
    """A short name of a cell, stable while its row and column are the same."""
    parts = [str(cell[k]) for k in KEY] + ([json.dumps(cell["params"], sort_keys=True)] if cell["params"] else [])
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:10]


def blank_cells(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The cells that a score stage fills, without a value: status "missing"."""
    claim = config["claim"]
    cells = []
    for column in config["columns"]:
        cell = {**{k: config[k] for k in KEY if k != "metric"}, "metric": column["id"], "lane": config["lane"],
                "unit": claim["unit"], "adjacency": claim["adjacency"], "horizon": claim["horizon"],
                "epsilon": float(claim["epsilon"]), "delta": claim["delta"], "value": None, "lo": None, "hi": None,
                "metric_unit": column["unit"], "better": column["better"], "role": column["role"],
                "title": column["title"], "chance": None, "ceiling": None, "n": 0, "people": 0,
                "seeds": list(config["seeds"]), "status": "missing", "source": "measured", "digest": config["digest"],
                "split": None, "params": column["params"], "text": None, "control": config["control"],
                "person_values": {}, "details": None, "track": config.get("track", "face"),
                "column": column_key(column["id"], column["params"])}
        cells.append({"id": cell_id(cell), **cell})
    return cells


def failed_cells(config: Mapping[str, Any], reason: str) -> list[dict[str, Any]]:
    """Cells of a row whose stages failed: invalid, never private."""
    return [{**cell, "status": f"invalid: {reason}"} for cell in blank_cells(config)]


def undefined_cells(config: Mapping[str, Any], reason: str) -> list[dict[str, Any]]:
    """Cells of a measurement that has no meaning on this data, or whose full-size network is not here."""
    missing = reason.startswith("weights missing: ")
    status = reason.partition(".")[0] if missing else "undefined"
    return [{**cell, "status": status, "text": reason} for cell in blank_cells(config)]


def measured_cells(config: Mapping[str, Any], trials: Mapping[str, np.ndarray], result: Mapping[str, Any],
                   split: str) -> list[dict[str, Any]]:
    """One cell per column. `trials` holds the rows of all seeds (columns of `bench.run.trials.SCHEMA`)."""
    cells = []
    for blank, column in zip(blank_cells(config), config["columns"], strict=True):
        key = column_key(column["id"], column["params"])
        mask = trials["column"] == key
        rows = {k: v[mask] for k, v in trials.items()}
        interval = _interval(rows, column, result, int(config["seeds"][0]))
        value = number(interval.value)
        status = (result.get("status") or {}).get(key, "ok") if value is not None else "undefined"
        cells.append({**blank, "value": value, "lo": number(interval.lo), "hi": number(interval.hi),
                      "n": interval.n, "people": interval.people, "chance": _of(result.get("chance"), key),
                      "split": split, "ceiling": ceiling_of(column, config.get("loss"), result, rows),
                      "lane": _lane(config["lane"], result.get("isolation")), "status": status,
                      "text": None if value is not None else "no trial has a defined value",
                      "details": _details(rows, column, config["seeds"], result, config.get("loss") is not None),
                      "person_values": _person_values(rows, column, result)})
    return cells


def _of(value: Any, key: str) -> Any:
    """One value for all columns, or one a column."""
    return value.get(key) if isinstance(value, Mapping) else value


def ceiling_of(column: Mapping[str, Any], loss: Mapping[str, Any] | None, result: Mapping[str, Any],
               rows: Mapping[str, np.ndarray]) -> float | None:
    """The most that the claim allows in this column (for eer the least), None where it sets no limit (PROTOCOL 6).

    Accuracy over n people or labels, with the priors of the trials; a trial that reads about k clips (or k draws)
    faces k times the loss of one (mu sqrt(k)). A renderer with memory may read all clips of a video, so a frame of it
    counts as all of them.
    """
    if result.get("ceilings"):
        return result["ceilings"].get(column_key(column["id"], column["params"]))
    name, limited = column["id"], (*RATES, "tar", "dir", "eer")
    if loss is None or name not in limited or not result.get("clips_read") or not len(rows["value"]):
        return None
    cost = ceilings.Loss(**loss)
    reads = {int(k): int(n) for k, n in result["clips_read"].items()}
    if name in ("tar", "dir", "eer"):
        return _open_set_ceiling(name, column["params"], cost.over(max(reads)), result)
    if name == "uar":
        return ceilings.uar(cost.over(max(reads)), result["classes"]).bound
    counts = np.bincount(rows["truth"], minlength=result["classes"])
    priors = [float(x) for x in counts / counts.sum()]
    return ceilings.over_trials(cost, [k for k, n in reads.items() for _ in range(n)],
                                lambda one: ceilings.top1(one, priors)).bound


def _open_set_ceiling(name: str, params: Mapping[str, Any] | None, loss: ceilings.Loss,
                      result: Mapping[str, Any]) -> float | None:
    """At the false alarm rate that was realised on test people, where that is above the one asked for."""
    if name == "eer":
        return ceilings.eer(loss).bound
    far = float((params or {})["far"])
    realised = (result.get("realised") or {}).get(column_key(name, params), far)
    far = min(1.0, max(far, float(realised)))
    if name == "tar":
        return ceilings.tar(loss, far).bound
    return ceilings.dir_at_far(loss, far, max(1, int(result["people"]) // 2)).bound


def _lane(lane: str, isolation: Mapping[str, Any] | None) -> str:
    """An enforced method that ran without green isolation has merely declared its claim."""
    return "declared" if lane == "enforced" and isolation is not None and isolation["level"] > 3 else lane


def _interval(rows: Mapping[str, np.ndarray], column: Mapping[str, Any], result: Mapping[str, Any],
              seed: int) -> stats.Interval:
    people = rows["person"].tolist()
    rng = seeds.derive(seed, "bootstrap", column["id"])
    if column["statistic"] == "uar":
        return stats.uar_interval(rows["truth"].tolist(), rows["predicted"].tolist(), people, result["classes"], rng)
    if column["statistic"] == "eer":
        return open_set.eer_interval(rows["value"], rows["truth"] == rows["person"], rows["truth"], rows["person"], rng)
    if column["statistic"] == "jackknife":
        whole, without = _set_values(rows)
        return frechet.jackknife_interval(whole, without, n=int(result.get("clips", 0)), low=column["low"],
                                          high=column["high"])
    return stats.mean_interval(rows["value"].tolist(), people, low=column["low"], high=column["high"])


def _set_values(rows: Mapping[str, np.ndarray]) -> tuple[float, dict[Hashable, float]]:
    """(the number of everybody, {person: the number without them}), seeds averaged."""
    means = stats.person_means(rows["value"].tolist(), rows["person"].tolist())
    values: dict[Hashable, float] = {int(p): means.get(p, math.nan) for p in sorted(set(rows["person"].tolist()))}
    return values.pop(ALL_PEOPLE, math.nan), values


def value_of(rows: Mapping[str, np.ndarray], statistic: str, classes: int) -> float:
    """The published number of these trial rows alone: what a check of the database recomputes."""
    if statistic == "uar":
        return stats.uar(rows["truth"].tolist(), rows["predicted"].tolist(), classes)
    if statistic == "eer":
        return _eer(rows)
    if statistic == "jackknife":
        return _set_values(rows)[0]
    means = stats.person_means(rows["value"].tolist(), rows["person"].tolist())
    return sum(means.values()) / len(means) if means else math.nan


def _eer(rows: Mapping[str, np.ndarray]) -> float:
    genuine = rows["truth"] == rows["person"]
    return float(open_set.eer(rows["value"][genuine], rows["value"][~genuine]))


def _person_values(rows: Mapping[str, np.ndarray], column: Mapping[str, Any],
                   result: Mapping[str, Any]) -> dict[int, float]:
    """Mean of each person's trials (UAR: the person's own average recall; a set's distance: none, it is nobody's).

    Of a smooth number of all together, where its stage says so: what each of them adds to it.
    """
    if column["statistic"] == "jackknife":
        found = pseudo_values(*_set_values(rows)) if result.get("pseudo_values") else {}
        return {int(str(person)): value for person, value in found.items()}
    if column["statistic"] == "mean":
        means = stats.person_means(rows["value"].tolist(), rows["person"].tolist())
        return {int(str(person)): value for person, value in means.items()}
    values = {}
    for person in sorted(set(rows["person"].tolist())):
        mine = rows["person"] == person
        if column["statistic"] == "eer":
            own = {k: v[mine] for k, v in rows.items()}
            values[int(person)] = _eer(own)
            continue
        truth, right = rows["truth"][mine], rows["value"][mine]
        values[int(person)] = float(np.mean([right[truth == c].mean() for c in np.unique(truth)]))
    return values


def _details(rows: Mapping[str, np.ndarray], column: Mapping[str, Any], all_seeds: Sequence[int],
             result: Mapping[str, Any], limited: bool) -> dict[str, Any] | None:
    """What stands beside a number: worst attacker seed, spread over seeds, same-data floor, guesses without an attack,
    frames at a cap, a price by both accountants, and under a claim how many trials read so many clips.
    """
    names = ("floor", "guesses", "majority", "undetected", "capped_frames", "epsilon_sum", "epsilon_max",
             *(("clips_read",) if limited else ()))
    found = {k: result[k] for k in names if result.get(k) is not None}
    if len(all_seeds) > 1:
        means = [value_of({k: v[rows["seed"] == seed] for k, v in rows.items()}, column["statistic"],
                          int(result.get("classes", 0))) for seed in all_seeds]
        found["seed_sd"] = float(np.std(means, ddof=1))
        if column["better"] != "none":
            found["worst_seed"] = float(max(means) if column["better"] == "lower" else min(means))
    return found or None
