"""Where the landmarks of the made public people are, and what a mirror and a shift do to pictures and landmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.data.clips import Clips, Row

SHIFT_PX = 3
ROUNDS = 5


@dataclass(frozen=True)
class Landmarks:
    """True landmarks of all videos.

    px: one float32 (T, K, 2) per video.  expressed: what the face does in it, see `expressions`.  mean, deviation:
    (K, 2) over all frames.  mirrored: (K,) order under a mirror.
    """

    px: list[np.ndarray]
    expressed: list[np.ndarray]
    mean: np.ndarray
    deviation: np.ndarray
    mirrored: np.ndarray
    side_px: int

    def target(self, video: int, frames: np.ndarray, mirror: bool, shift: np.ndarray) -> np.ndarray:
        """Standardised mean landmarks (2 K,) of these frames after the mirror and the shift (x, y) in pixels."""
        return self._standardised(self.px[video][frames].mean(0), mirror, shift).ravel()

    def targets(self, video: int, frames: np.ndarray, mirror: bool, shift: np.ndarray) -> np.ndarray:
        """The same of every frame by itself, (n, 2 K)."""
        return self._standardised(self.px[video][frames], mirror, shift).reshape(len(frames), -1)

    def expression(self, video: int, frames: np.ndarray, mirror: bool) -> np.ndarray:
        """What the face does in each of these frames, (n, 2 K); a shift does not change it."""
        moves = self.expressed[video][frames]
        moves = moves[:, self.mirrored] * [-1, 1] if mirror else moves
        return moves.reshape(len(frames), -1).astype(np.float32)

    def _standardised(self, marks: np.ndarray, mirror: bool, shift: np.ndarray) -> np.ndarray:
        if mirror:
            marks = marks[..., self.mirrored, :] * [-1, 1] + [self.side_px, 0]
        return (((marks + shift) - self.mean) / self.deviation).astype(np.float32)  # (..., K, 2)


def landmarks(clips: Clips, rows: Sequence[Row]) -> Landmarks | None:
    """None when a dataset has none. Raises ValueError when the mean face has no mirror order."""
    marks = [clips.landmarks(row) for row in rows]
    known = [np.asarray(m) for m in marks if m is not None]
    if len(known) < len(rows):
        return None
    every, side = np.concatenate(known), int(clips.info["canvas_px"])
    mean = every.mean(0)
    distance = np.linalg.norm(mean[:, None] - (mean * [-1, 1] + [side, 0])[None], axis=2)  # (K, K)
    order = distance.argmin(0)
    if len(set(order.tolist())) < len(order):
        raise ValueError("the mean landmarks do not mirror onto each other")
    return Landmarks(known, expressions(known, [row.person for row in rows]), mean, every.std(0) + 1e-6, order, side)


def expressions(marks: Sequence[np.ndarray], people: Sequence[str]) -> list[np.ndarray]:
    """Landmarks (T, K, 2) of each video without place, size and tilt of the head and without the person: brought onto
    the mean shape by a similarity, less the mean of all frames of the same person; root mean square 1 over all.
    """
    centred = [m - m.mean(1, keepdims=True) for m in marks]
    unit = [m / np.sqrt(np.square(m).sum((1, 2), keepdims=True)) for m in centred]
    shape = unit[0][0]
    for _ in range(ROUNDS):  # generalised Procrustes analysis; its first frame says what is upright
        upright = [_turned(m, shape) for m in unit]
        shape = np.concatenate(upright).mean(0)
    own = {p: np.concatenate([m for m, q in zip(upright, people, strict=True) if q == p]).mean(0) for p in set(people)}
    moves = [m - own[p] for m, p in zip(upright, people, strict=True)]
    size = np.sqrt(np.square(np.concatenate(moves)).mean())
    return [m / size for m in moves]


def _turned(marks: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """Centred landmarks (T, K, 2), each frame turned about the origin to lie nearest to `shape` (K, 2)."""
    along = (marks * shape).sum((1, 2))
    across = (marks[:, :, 0] * shape[:, 1] - marks[:, :, 1] * shape[:, 0]).sum(1)
    length = np.hypot(along, across)[:, None]
    c, s = along[:, None] / length, across[:, None] / length
    return np.stack([marks[:, :, 0] * c - marks[:, :, 1] * s, marks[:, :, 0] * s + marks[:, :, 1] * c], axis=2)


def moved(frames: np.ndarray, mirror: bool, dx: int, dy: int) -> np.ndarray:
    """uint8 (T, H, W, 3) mirrored, then moved right by dx and down by dy pixels, edges repeated."""
    height, width = frames.shape[1:3]
    frames = frames[:, :, ::-1] if mirror else frames
    rows = np.clip(np.arange(height) - dy, 0, height - 1)
    return frames[:, rows][:, :, np.clip(np.arange(width) - dx, 0, width - 1)]
