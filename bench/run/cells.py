"""From trial rows to cells: the published number, its interval, and everything it may be compared by (DESIGN 4, 5)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bench import seeds, stats
from bench.privacy import ceilings

KEY = ("method", "variant", "dataset", "profile", "attack", "metric", "evaluator", "via", "decoding", "draws")


def cell_id(cell: Mapping[str, Any]) -> str:
    """A short name of a cell, stable while its row and column are the same."""
    return hashlib.sha256("\x1f".join(str(cell[k]) for k in KEY).encode()).hexdigest()[:10]


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
                "split": None, "params": None, "text": None, "control": config["control"], "person_values": {}}
        cells.append({"id": cell_id(cell), **cell})
    return cells


def failed_cells(config: Mapping[str, Any], reason: str) -> list[dict[str, Any]]:
    """Cells of a row whose stages failed: invalid, never private."""
    return [{**cell, "status": f"invalid: {reason}"} for cell in blank_cells(config)]


def undefined_cells(config: Mapping[str, Any], reason: str) -> list[dict[str, Any]]:
    """Cells of a measurement that has no meaning on this data."""
    return [{**cell, "status": "undefined", "text": reason} for cell in blank_cells(config)]


def measured_cells(config: Mapping[str, Any], trials: Mapping[str, np.ndarray], result: Mapping[str, Any],
                   split: str) -> list[dict[str, Any]]:
    """One cell per column. `trials` holds the rows of all seeds (columns of `bench.run.trials.SCHEMA`)."""
    cells = []
    for blank, column in zip(blank_cells(config), config["columns"], strict=True):
        name = column["id"] if column["id"] in set(trials["column"]) else None
        mask = trials["column"] == name
        rows = {k: v[mask] for k, v in trials.items()}
        interval = _interval(rows, column, result, int(config["seeds"][0]))
        value = interval.value if math.isfinite(interval.value) else None
        cells.append({**blank, "value": value, "lo": _number(interval.lo), "hi": _number(interval.hi),
                      "n": interval.n, "people": interval.people, "chance": result.get("chance"), "split": split,
                      "ceiling": ceiling_of(column["id"], config.get("loss"), result, rows),
                      "lane": _lane(config["lane"], result.get("isolation")),
                      "status": "ok" if value is not None else "undefined",
                      "text": None if value is not None else "no trial has a defined value",
                      "params": _seed_spread(rows, column, config["seeds"]),
                      "person_values": _person_values(rows, column)})
    return cells


def ceiling_of(column: str, loss: Mapping[str, Any] | None, result: Mapping[str, Any],
               rows: Mapping[str, np.ndarray]) -> float | None:
    """The most that the claim allows in this column, None where it sets no limit (PROTOCOL 6).

    Accuracy over n people or labels, with the priors of the trials; a trial that reads about k clips faces k times
    the loss of one (mu sqrt(k)). A renderer may read all clips of a video, so a frame of it counts as all of them.
    """
    if loss is None or column not in ("top1", "fer", "uar") or not result.get("clips_read"):
        return None
    cost = ceilings.Loss(**loss)
    reads = {int(k): int(n) for k, n in result["clips_read"].items()}
    if column == "uar":
        return ceilings.uar(cost.over(max(reads)), result["classes"]).bound
    counts = np.bincount(rows["truth"], minlength=result["classes"])
    priors = [float(x) for x in counts / counts.sum()]
    return ceilings.over_trials(cost, [k for k, n in reads.items() for _ in range(n)],
                                lambda one: ceilings.top1(one, priors)).bound


def _lane(lane: str, isolation: Mapping[str, Any] | None) -> str:
    """An enforced method that ran without green isolation has merely declared its claim."""
    return "declared" if lane == "enforced" and isolation is not None and isolation["level"] > 3 else lane


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _interval(rows: Mapping[str, np.ndarray], column: Mapping[str, Any], result: Mapping[str, Any],
              seed: int) -> stats.Interval:
    people = rows["person"].tolist()
    if column["statistic"] == "uar":
        rng = seeds.derive(seed, "bootstrap", column["id"])
        return stats.uar_interval(rows["truth"].tolist(), rows["predicted"].tolist(), people, result["classes"], rng)
    return stats.mean_interval(rows["value"].tolist(), people, low=column["low"], high=column["high"])


def _person_values(rows: Mapping[str, np.ndarray], column: Mapping[str, Any]) -> dict[int, float]:
    """Mean of each person's trials (for UAR: the person's own average recall over the classes that occur)."""
    if column["statistic"] != "uar":
        means = stats.person_means(rows["value"].tolist(), rows["person"].tolist())
        return {int(str(person)): value for person, value in means.items()}
    values = {}
    for person in sorted(set(rows["person"].tolist())):
        mine = rows["person"] == person
        truth, right = rows["truth"][mine], rows["value"][mine]
        values[int(person)] = float(np.mean([right[truth == c].mean() for c in np.unique(truth)]))
    return values


def _seed_spread(rows: Mapping[str, np.ndarray], column: Mapping[str, Any],
                 all_seeds: Sequence[int]) -> dict[str, float] | None:
    """With several attacker seeds: the worst seed and the standard deviation over seeds, from the release's side."""
    if len(all_seeds) < 2 or column["statistic"] != "mean":
        return None
    means = []
    for seed in all_seeds:
        mine = rows["seed"] == seed
        means.append(stats.mean_interval(rows["value"][mine].tolist(), rows["person"][mine].tolist()).value)
    worst = max(means) if column["better"] == "lower" else min(means)
    return {"worst_seed": float(worst), "seed_sd": float(np.std(means, ddof=1))}
