"""Error of the reported pedestrian counts."""

from __future__ import annotations

from bench import ReportMetric, Reports, metric
from bench.report_scores import error_columns, mae


@metric("mae_pedestrian")
class MAEPedestrian(ReportMetric):
    """Mean absolute error of the mean numbers of walking and of waiting people in a window, the mean of the two;
    against what was there, clipped or not. Over all slots (the headline, reused values and the public median
    included), over the slots that asked for people, and over those with a release at most two windows old. A
    missing report has no error, so that "all" is undefined for a method that leaves slots empty. Source: PROTOCOL 5.
    """

    columns = error_columns("mae_pedestrian", "Pedestrian")

    def values(self, reports: Reports):
        return {c.key: mae(reports, "pedestrian", c.params["slots"]) for c in self.columns}
