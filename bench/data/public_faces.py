"""Pictures of public people, an asset for methods that put another identity in the place of the filmed one."""

from __future__ import annotations

import numpy as np

from bench.data.clips import Clips


def pictures(clips: Clips, count: int) -> dict[str, np.ndarray]:
    """`pictures`: uint8 (P, count, S, S, 3), people in the order of their names. They stand in no split of a dataset.

    The first frames of equally spaced videos of a person, in the order of the videos' names; a person with fewer
    videos is repeated.
    """
    people: dict[str, list] = {}
    for row in sorted(clips.rows("public"), key=lambda row: row.video):
        people.setdefault(row.person, []).append(row)
    chosen = [[rows[i * len(rows) // count] for i in range(count)] for _, rows in sorted(people.items())]
    return {"pictures": np.stack([[clips.video(row).frames[0] for row in rows] for rows in chosen])}
