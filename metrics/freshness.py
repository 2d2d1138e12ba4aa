"""How old and how complete the answers are."""

from __future__ import annotations

from bench import Column, ReportMetric, Reports, metric
from bench.report_scores import asked_age, coverage


@metric("freshness")
class Freshness(ReportMetric):
    """Two columns about what each slot asked for. `coverage`: the share of slots whose expert has a release of this
    window or of the two before it. `age`: seconds since the end of the window that the shown value is of, 0 when it
    is this window's own; where nothing has ever been released, since the start of the episode. Source: PROTOCOL 5.
    """

    columns = (Column("coverage", "rate", "higher", 0, 1, "Coverage of the asked slots", role="utility"),
               Column("age", "s", "lower", 0, 1e6, "Age of the answer", role="utility"))

    def values(self, reports: Reports):
        return {"coverage": coverage(reports), "age": asked_age(reports)}
