"""How good report streams are: errors, states, age, coverage, utility (PROTOCOL 5). Pure functions of arrays."""

from __future__ import annotations

import numpy as np

from bench.measures import Column
from bench.report_measures import Reports
from bench.reports import ages
from bench.traffic import EXPERTS, WINDOW_S, columns

REUSED_SLOTS = 2  # a report that is older no longer covers its slot
SLOTS = ("all", "asked", "covered")


def error_columns(column: str, who: str) -> tuple[Column, ...]:
    """Columns of a mean absolute error of counts, one for each choice of slots; that over all slots ranks."""
    return tuple(Column(column, "1", "lower" if slots == "all" else "none", 0, 1000, f"{who} MAE, {slots} slots",
                        role="utility" if slots == "all" else "descriptive", params={"slots": slots})
                 for slots in SLOTS)


def index_of(name: str) -> int:
    return next(m for m, e in enumerate(EXPERTS) if e.name == name)


def covered(reports: Reports) -> np.ndarray:
    """bool (N, T, E): released in this window or at most two before it."""
    seen = np.logical_or.accumulate(reports.fresh, axis=1)
    return seen & (ages(reports.fresh) <= REUSED_SLOTS * WINDOW_S)


def known(reports: Reports, name: str) -> np.ndarray:
    """bool (N, T): is the truth of an expert known? Labels may say nothing of it."""
    return ~np.isnan(reports.truth[..., columns(name)]).any(axis=2)


def slot_error(reports: Reports, name: str) -> np.ndarray:
    """Mean absolute error (N, T) over an expert's components; NaN where the report is missing."""
    part = columns(name)
    return np.abs(reports.report[..., part] - reports.truth[..., part]).mean(axis=2)


def mae(reports: Reports, name: str, slots: str) -> np.ndarray:
    """Mean absolute error (N,) of a count expert over "all" slots, those that "asked" for it, or "covered" ones.

    NaN where a stream has no such slot, and on "all" slots where the report of one of them is missing. Slots of which
    nobody knows the truth do not count.
    """
    m, error = index_of(name), slot_error(reports, name)
    if slots == "all":
        true = known(reports, name)
        return np.where((np.isnan(error) & true).any(axis=1), np.nan, mean_where(error, true))
    keep = (reports.asked == m) if slots == "asked" else covered(reports)[..., m]
    return mean_where(error, keep & ~np.isnan(error))


def mean_where(values: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """Means (N,) of `values` (N, T) where `keep`; NaN where nothing is kept."""
    count = keep.sum(axis=1)
    total = np.where(keep, values, 0.0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def states(values: np.ndarray) -> np.ndarray:
    """The leading state of one-hot means (..., d), -1 where they are missing; the first among equals."""
    missing = np.isnan(values).any(axis=-1)
    return np.where(missing, -1, np.where(missing[..., None], 0.0, values).argmax(axis=-1))


def macro_f1(truth: np.ndarray, said: np.ndarray, classes: int, weight: np.ndarray | None = None) -> float:
    """Mean of the F1 of each class, all weights 1 by default; a missing answer (-1) is wrong.

    A class that is neither true nor said is left out; without any the result is NaN.

    >>> round(macro_f1(np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 1, 1, 2, 0]), 3), 6)
    0.655556
    """
    w = np.ones(np.shape(truth)) if weight is None else np.asarray(weight, dtype=float)
    scores = []
    for c in range(classes):
        hit, true, own = (float(w[mask].sum()) for mask in ((truth == c) & (said == c), truth == c, said == c))
        if true + own:
            scores.append(2 * hit / (true + own))
    return float(np.mean(scores)) if scores else float("nan")


def state_f1(reports: Reports, name: str, keep: np.ndarray | None = None, weight: np.ndarray | None = None) -> float:
    """Macro-F1 of a label expert over the slots in `keep` (N, T) whose truth is known, all by default, weighted by
    `weight` (N, T); NaN without any.
    """
    part = columns(name)
    truth, said = states(reports.truth[..., part]), states(reports.report[..., part])
    keep = known(reports, name) & (np.ones(truth.shape, dtype=bool) if keep is None else keep)
    return macro_f1(truth[keep], said[keep], part.stop - part.start, None if weight is None else weight[keep])


def utility(reports: Reports, *, weighted: bool) -> float:
    """How well requests are answered, 0 to 1: each expert's quality on the slots that ask for it, by their weight.

    Quality of counts: clip(1 - MAE / C, 0, 1), missing 0; of states: macro-F1. Weighted: by the slot's priority, idle
    slots count nothing; else every slot counts the same. A slot whose answer nobody knows counts nothing either. NaN
    where no slot counts.
    """
    answers = np.stack([known(reports, e.name) for e in EXPERTS], axis=2)  # (N, T, E)
    weight = np.take_along_axis(answers, reports.asked[..., None], axis=2)[..., 0] * \
        (reports.priority.astype(float) if weighted else np.ones(reports.asked.shape))
    total, sum_ = float(weight.sum()), 0.0
    for m, expert in enumerate(EXPERTS):
        asked = reports.asked == m
        share = float(weight[asked].sum())
        if not share:
            continue
        if expert.label:
            quality = state_f1(reports, expert.name, asked & (weight > 0), weight)
        else:
            good = np.nan_to_num(np.clip(1 - slot_error(reports, expert.name) / expert.cap, 0, 1))
            quality = float((good * weight)[asked].sum()) / share
        sum_ += share * quality
    return sum_ / total if total else float("nan")


def asked_age(reports: Reports) -> np.ndarray:
    """Mean age (N,) in seconds of what is shown to the request of each slot."""
    return np.take_along_axis(ages(reports.fresh), reports.asked[..., None], axis=2)[..., 0].mean(axis=1)


def coverage(reports: Reports) -> np.ndarray:
    """Share (N,) of slots whose asked expert has a report that is fresh or at most two windows old."""
    return np.take_along_axis(covered(reports), reports.asked[..., None], axis=2)[..., 0].mean(axis=1)
