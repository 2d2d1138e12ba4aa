"""Adjacent frames of a video: pairs inside a clip, across the border of two clips, and of one picture. numpy only."""

from __future__ import annotations

import numpy as np

from bench.types import CLIP_FRAMES


def inside_clips(frames: int) -> np.ndarray:
    """bool (T - 1,): do frames t and t + 1 lie in one clip of 16 frames?

    >>> np.flatnonzero(~inside_clips(40)).tolist()
    [15, 31]
    """
    return np.arange(1, frames) % CLIP_FRAMES != 0


def without_repeats(frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Frames equal to the one before are left out, so that a network sees a frozen picture once.

    (T, ...) -> (the others (N, ...), which of them each frame is, int (T,)). T >= 1.

    >>> without_repeats(np.array([[5], [5], [7], [5]]))[1].tolist()
    [0, 0, 1, 2]
    """
    new = np.ones(len(frames), bool)
    new[1:] = (frames[1:] != frames[:-1]).any(axis=tuple(range(1, frames.ndim)))
    return frames[new], np.cumsum(new) - 1


def apart(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One value per adjacent pair, (T - 1,) -> (inside clips, across borders), float64 of the same shape.

    Each holds NaN where the other holds the value. A video of one frame has no pair: both are one NaN.
    """
    values = np.asarray(values, dtype=np.float64)
    if not len(values):
        return np.full(1, np.nan), np.full(1, np.nan)
    inside = inside_clips(len(values) + 1)
    return np.where(inside, values, np.nan), np.where(inside, np.nan, values)
