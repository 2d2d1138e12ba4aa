"""Error of the reported pedestrian counts."""

from __future__ import annotations

from bench import Column, ReportMetric, Reports, metric
from bench.report_scores import SLOTS, mae


@metric("mae_pedestrian")
class MAEPedestrian(ReportMetric):
    """Mean absolute error of the mean numbers of walking and of waiting people in a window, the mean of the two;
    against what was there, clipped or not. Over all slots (the headline, reused values and the public median
    included), over the slots that asked for people, and over those with a release at most two windows old. A
    missing report has no error, so that "all" is undefined for a method that leaves slots empty. Source: PROTOCOL 5.
    """

    columns = tuple(Column("mae_pedestrian", "1", "lower" if slots == "all" else "none", 0, 1000,
                           f"Pedestrian MAE, {slots} slots",
                           role="utility" if slots == "all" else "descriptive", params={"slots": slots})
                    for slots in SLOTS)

    def values(self, reports: Reports):
        return {c.key: mae(reports, "pedestrian", c.params["slots"]) for c in self.columns}
