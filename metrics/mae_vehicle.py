"""Error of the reported vehicle counts."""

from __future__ import annotations

from bench import ReportMetric, Reports, metric
from bench.report_scores import error_columns, mae


@metric("mae_vehicle")
class MAEVehicle(ReportMetric):
    """Mean absolute error of the mean numbers of moving and of stopped vehicles in a window, the mean of the two;
    against what was there, clipped or not. Over all slots (the headline, reused values and the public median
    included), over the slots that asked for vehicles, and over those with a release at most two windows old. A
    missing report has no error, so that "all" is undefined for a method that leaves slots empty. Source: PROTOCOL 5.
    """

    columns = error_columns("mae_vehicle", "Vehicle")

    def values(self, reports: Reports):
        return {c.key: mae(reports, "traffic", c.params["slots"]) for c in self.columns}
