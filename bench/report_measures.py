"""What an attack and a metric of report streams (traffic) fill in, and what they read. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bench.measures import Attack, Column, Noise


class Stream(Attack):
    """Did the event happen? Knows the sums with and without it, reads the noisy ones; trains nothing.

    events: names of the matched counterfactual events that the harness makes, each the `event` of a column "auc".
    """

    events: ClassVar[tuple[str, ...]] = ()

    def auc(self, shift: Mapping[str, np.ndarray], noise: Mapping[str, Noise]) -> float:
        """AUC of the best guess. shift: {branch: int64 (T, dim)}, what the event adds to the window sums; noise: law
        and scales (T,) in whole steps, NaN where nothing was released.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Reports:
    """N streams of T reports beside the truth, C components (bench.traffic.COMPONENTS), E experts.

    truth, report: float64 (N, T, C) window means, NaN in `report` = missing.  fresh: bool (N, T, E), released in
    that window.  asked, priority: (N, T), the expert that the slot asks for and the weight of the slot.
    episode: (N,), which streams are draws of one episode.
    """

    truth: np.ndarray
    report: np.ndarray
    fresh: np.ndarray
    asked: np.ndarray
    priority: np.ndarray
    episode: np.ndarray

    def of(self, keep: np.ndarray) -> Reports:
        """The streams where `keep` (N,) is true."""
        return Reports(*(getattr(self, name)[keep] for name in self.__dataclass_fields__))


class ReportMetric:
    """Numbers of report streams. Columns of statistic "mean" come from `values`, those of "jackknife" from `number`."""

    name: ClassVar[str] = ""
    columns: ClassVar[tuple[Column, ...]] = ()
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def values(self, reports: Reports) -> Mapping[str, np.ndarray]:
        """{column key: (N,) float}, one value a stream, NaN where undefined."""
        return {}

    def number(self, reports: Reports) -> Mapping[str, float]:
        """{column key: float} of all streams together; the harness leaves out one episode at a time."""
        return {}
