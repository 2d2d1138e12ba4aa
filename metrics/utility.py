"""How well the requests were answered."""

from __future__ import annotations

from bench import Column, ReportMetric, Reports, metric
from bench.report_scores import utility


@metric("utility")
class Utility(ReportMetric):
    """Each slot asks one expert and has a public priority (0, 1 or 3). Quality of counts is clip(1 - MAE / cap, 0, 1),
    a missing report 0; of sign and weather macro-F1 over the slots that asked. The mean over slots, weighted by
    priority (idle slots count nothing); beside it every slot with the same weight. Source: PROTOCOL 5.
    """

    columns = tuple(Column("utility", "rate", "higher" if by == "by priority" else "none", 0, 1,
                           f"Utility, {by}", statistic="jackknife",
                           role="utility" if by == "by priority" else "descriptive",
                           params={"slots": "weighted" if by == "by priority" else "equal"})
                    for by in ("by priority", "all slots alike"))

    def number(self, reports: Reports):
        return {c.key: utility(reports, weighted=c.params["slots"] == "weighted") for c in self.columns}
