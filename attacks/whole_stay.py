"""Was one object there at all? Its entire visit, which no event claim covers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bench import Column, Noise, Stream, ThreatModel, attack
from bench.event_auc import best_auc

_KINDS = {"vehicle_stay": "one vehicle, its whole visit", "pedestrian_stay": "one person, the whole visit"}
RANKED = ("pedestrian_stay", "mean")
_OF = {"mean": "mean over objects", "worst": "the object that stands out"}


@attack("whole_stay")
class WholeStay(Stream):
    """Knows the whole stream with and without one real vehicle or person and guesses by the likelihood ratio, as
    `event_llr` does, but over all chunks in which the object was in view: a median of nine chunks for a vehicle and
    31 for a person, where the claims speak of K = 2. The claim sets no ceiling here. Ten objects of each kind in each
    episode whose objects are known; the mean over them, and the one that stands out most. What a window may spend
    more under `max` is paid here. Source: ours.
    """

    threat = ThreatModel(knows="the stream with and without the object, and every scale", reads="transcript",
                         trained_on="nothing")
    events = tuple(_KINDS)
    columns = tuple(Column("auc", "rate", "lower" if (event, key) == RANKED else "none", 0, 1,
                           f"Whole-stay AUC: {kind}, {of}", params={"event": event, "of": key},
                           role="privacy" if (event, key) == RANKED else "descriptive")
                    for event, kind in _KINDS.items() for key, of in _OF.items())

    def auc(self, shift: Mapping[str, np.ndarray], noise: Mapping[str, Noise]) -> float:
        return best_auc(shift, noise)
