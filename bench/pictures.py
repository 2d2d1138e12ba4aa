"""Single pictures: turning them upright and writing PNG. Public names are taken from bench.video."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from bench.errors import EnvironmentFault

IDENTITY = (1, 0, 0, 1)
Matrix = tuple[int, int, int, int]


def matrix_of(data: bytes | None) -> Matrix:
    """(a, b, c, d) of a 3 x 3 display matrix, each -1, 0 or 1: shown x = a x + c y, shown y = b x + d y, y downwards.

    data: nine int32, or None when the file says nothing. A turn that is no multiple of 90 degrees is rounded to one.
    """
    if data is None:
        return IDENTITY
    a, b, _, c, d = np.frombuffer(data, np.int32)[:5].astype(float)
    if abs(b) > abs(a):
        return 0, int(np.sign(b)) or 1, int(np.sign(c)) or 1, 0
    return int(np.sign(a)) or 1, 0, 0, int(np.sign(d)) or 1


def full_matrix(matrix: Matrix) -> tuple[int, ...]:
    """The nine numbers (16.16 and 2.30 fixed point) that a container stores for a turn."""
    a, b, c, d = (value << 16 for value in matrix)
    return a, b, 0, c, d, 0, 0, 0, 1 << 30


def degrees(matrix: Matrix) -> int:
    """Counter-clockwise turn that makes the stored picture upright: 0, 90, 180 or 270 (mirroring apart)."""
    return {(1, 0): 0, (0, -1): 90, (-1, 0): 180, (0, 1): 270}[matrix[0], matrix[1]]


def turn(image: np.ndarray, matrix: Matrix) -> np.ndarray:
    """The upright view of a stored picture (H, W, 3)."""
    a, b, c, d = matrix
    return image.swapaxes(0, 1)[::b, ::c] if a == 0 else image[::d, ::a]


def turn_back(image: np.ndarray, matrix: Matrix) -> np.ndarray:
    """The stored view of an upright picture: the inverse of `turn`."""
    a, b, c, d = matrix
    return image[::b, ::c].swapaxes(0, 1) if a == 0 else image[::d, ::a]


def write_png(path: Path, image: np.ndarray) -> None:
    """Write uint8 (H, W, 3) RGB or (H, W) grey as PNG, without metadata, aside and renamed when whole."""
    path = Path(path)
    data = cv2.imencode(".png", cv2.cvtColor(image, cv2.COLOR_RGB2BGR) if image.ndim == 3 else image)[1].tobytes()
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise cannot_write(path, error) from error


def write_strip(path: Path, frames: Sequence[np.ndarray], *, gap_px: int = 2) -> None:
    """Write frames uint8 (H, W, 3) side by side, white gaps between them, as one PNG."""
    height = max(frame.shape[0] for frame in frames)
    columns = []
    for frame in frames:
        column = np.full((height, frame.shape[1] + gap_px, 3), 255, np.uint8)
        column[: frame.shape[0], : frame.shape[1]] = frame
        columns.append(column)
    write_png(path, np.concatenate(columns, axis=1)[:, : -gap_px or None])  # (H, sum of W and gaps, 3)


def cannot_write(path: Path, error: OSError) -> EnvironmentFault:
    """The paragraph for a file that cannot be written: a full disk, a read-only folder."""
    return EnvironmentFault(f"Writing {path} failed: {error.strerror or error}.",
                            "Nothing half-written was left behind.",
                            "Free some space, or write to another folder that you may write to.")
