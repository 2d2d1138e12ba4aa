"""Whether the reported weather is the right one."""

from __future__ import annotations

from bench import Column, ReportMetric, Reports, metric
from bench.report_scores import state_f1


@metric("f1_environment")
class F1Environment(ReportMetric):
    """Macro-F1 of the leading weather of every window (clear, rain, fog, other) over all episodes, a missing
    report counted as wrong. Weather is all but public, so that a high value proves little. Source:
    PROTOCOL 5.
    """

    columns = (Column("f1_environment", "rate", "higher", 0, 1, "Environment macro-F1", statistic="jackknife",
                      role="utility"),)

    def number(self, reports: Reports):
        return {"f1_environment": state_f1(reports, "environment")}
