"""Whether the reported sign is the right one."""

from __future__ import annotations

from bench import Column, ReportMetric, Reports, metric
from bench.report_scores import state_f1


@metric("f1_sign")
class F1Sign(ReportMetric):
    """Macro-F1 of the leading sign state of every window (stop, speed limit, other, none) over all episodes, a missing
    report counted as wrong. On a fixed camera a sign is all but public, so that a high value proves little. Source:
    PROTOCOL 5.
    """

    columns = (Column("f1_sign", "rate", "higher", 0, 1, "Sign macro-F1", statistic="jackknife", role="utility"),)

    def number(self, reports: Reports):
        return {"f1_sign": state_f1(reports, "signs")}
