"""Which frames of a video are read. numpy only, so that pages and tables need no torch."""

from __future__ import annotations

import numpy as np


def spread(unpadded: int, start: int, length: int, count: int) -> np.ndarray:
    """Indices of `count` equally spaced frames of one clip; frames past `unpadded` are never read.

    >>> spread(32, 16, 16, 4).tolist()
    [18, 22, 26, 30]
    """
    stop = min(start + length, unpadded)
    if stop <= start:
        raise ValueError(f"clip at frame {start} lies outside a video of {unpadded} frames")
    return (start + (np.arange(count) + 0.5) * (stop - start) / count).astype(int)
