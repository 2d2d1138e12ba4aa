"""Did the event happen? The best possible guess, computed and not sampled."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bench import Column, Noise, Stream, ThreatModel, attack
from bench.event_auc import best_auc

EVENTS = ("vehicle", "pedestrian", "flip", "experts", "every_window")
_TITLES = {"vehicle": "one moving vehicle, K chunks", "pedestrian": "one walking person, K chunks",
           "flip": "all vehicles of K chunks stop", "experts": "K chunks change in every expert",
           "every_window": "K chunks of every window change in every expert"}


@attack("event_llr")
class EventLLR(Stream):
    """Worst case: knows the whole stream with and without one event and reads all noisy sums; guesses by the
    likelihood ratio, which no attacker can beat. Nothing is trained or drawn: the ratio's law is a convolution of
    whole-number laws, and the AUC follows from it to rounding. Events of K changed chunks in the window in which the
    method spends most (chosen from public facts): one vehicle, one person, all vehicles stopping (the largest change
    of one expert), the largest change of all experts, and that in every window. The first four lie under the ceiling
    of a claim about K chunks in all, the last under that of K chunks in every window. Source: BR-MoE's event attack;
    the likelihood ratio is ours.
    """

    threat = ThreatModel(knows="the stream with and without the event, and every scale", reads="transcript",
                         trained_on="nothing")
    events = EVENTS
    columns = tuple(Column("auc", "rate", "lower" if e == "experts" else "none", 0, 1,
                           f"Event AUC: {_TITLES[e]}", params={"event": e},
                           role="privacy" if e == "experts" else "descriptive") for e in EVENTS)

    def auc(self, shift: Mapping[str, np.ndarray], noise: Mapping[str, Noise]) -> float:
        return best_auc(shift, noise)
