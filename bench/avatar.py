"""The public avatar: one made person of the public people, acting each expression once."""

from __future__ import annotations

import json

import numpy as np

from bench.data.clips import Clips
from bench.errors import DataError
from bench.types import CLIP_FRAMES

AVATAR_CLIPS = 2  # of the performance: the onset, and what follows


def acted(clips: Clips) -> dict[str, np.ndarray]:
    """{"frames": uint8 (labels, 32, S, S, 3)}: the public person with the fewest attributes (no glasses, no beard), the
    first by name; its first video of each label, two whole clips of 16 frames, labels in sorted order.

    Raises DataError when that person lacks a label, or has no video of two whole clips of it.
    """
    rows = sorted(clips.rows("public"), key=lambda row: row.video)
    if not rows:
        raise DataError("The dataset has no public people.", "An avatar is a public person.", "")
    person = min(rows, key=lambda row: (sum(json.loads(row.attributes).values()), row.person)).person
    length, shown = AVATAR_CLIPS * CLIP_FRAMES, []
    for label in clips.labels:
        fitting = [r for r in rows if (r.person, r.label) == (person, label) and r.frames >= length]
        if not fitting:
            raise DataError(f"The public person {person} has no video of {label!r} with {length} frames.",
                            "The avatar acts every expression.", "Add one to the public dataset.")
        shown.append(clips.video(fitting[0]).frames[:length])
    return {"frames": np.stack(shown)}
