"""Releases nothing: the line to beat."""

from __future__ import annotations

import numpy as np

from bench import method
from bench.reports import ReportMethod, View


@method("public_median")
class PublicMedian(ReportMethod):
    """Reports the median of public episodes in every slot and never touches the protected stream, so that its epsilon
    is 0. A private method whose reports are worse than these adds noise to what everybody could have guessed. Source:
    none; the baseline of PROTOCOL 5.
    """

    control = "negative"
    variants = {"max": {"accountant": "max"}}

    def __init__(self, *, accountant: str = "sum"):
        super().__init__(accountant=accountant, budget="0")

    def spends(self, view: View) -> np.ndarray:
        return np.zeros((len(view.asked), 4), dtype=np.int64)
