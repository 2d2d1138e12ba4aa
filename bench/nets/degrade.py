"""Pictures made worse in the ways of anonymizers: what a recovery network learns from before it meets one."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np

SMALL_PX, LARGE_PX = 3, 12  # blocks of a mosaic and steps of a coarser picture
SIGMA_PX = (0.5, 7.0)  # of a Gaussian blur
GREY_LEVELS = (4.0, 60.0)  # standard deviation of added noise


def mosaic(frame: np.ndarray, block: int, top: int, left: int) -> np.ndarray:
    """Block means of one uint8 (H, W, 3) frame, rounded; the first full block begins at row `top`, column `left`.

    Blocks that the border cuts get the mean of the part that is inside.
    """
    rows, columns = _starts(frame.shape[0], block, top), _starts(frame.shape[1], block, left)
    sums = np.add.reduceat(np.add.reduceat(frame, rows, axis=0, dtype=np.int64), columns, axis=1)
    heights, widths = np.diff([*rows, frame.shape[0]]), np.diff([*columns, frame.shape[1]])
    area = np.multiply.outer(heights, widths)[..., None]  # px of each block
    means = ((2 * sums + area) // (2 * area)).astype(np.uint8)  # rounded to the nearest level
    return means.repeat(heights, axis=0).repeat(widths, axis=1)


def _starts(size: int, block: int, offset: int) -> np.ndarray:
    return np.unique([0, *range(offset, size, block)])


def degraded(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One way of making a clip worse, drawn with its strength: uint8 (T, H, W, 3) -> the same shape.

    A mosaic (of still or of moving blocks), a Gaussian or a box blur, noise, or a coarser picture; every third clip
    gets light noise on top. Sizes in pixels of the frames given.
    """
    way = WAYS[int(rng.integers(len(WAYS)))]
    made = way(frames, rng)
    return noisy(made, rng, 0.2) if rng.random() < 1 / 3 else made


def still_mosaic(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    block = int(rng.integers(SMALL_PX, LARGE_PX + 1))
    top, left = rng.integers(0, block, 2)
    return np.stack([mosaic(frame, block, int(top), int(left)) for frame in frames])


def moving_mosaic(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    block = int(rng.integers(SMALL_PX, LARGE_PX + 1))
    corners = rng.integers(0, block, (len(frames), 2))
    return np.stack([mosaic(frame, block, int(y), int(x)) for frame, (y, x) in zip(frames, corners, strict=True)])


def gaussian_blur(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    sigma = float(rng.uniform(*SIGMA_PX))
    return np.stack([cv2.GaussianBlur(frame, (0, 0), sigma) for frame in frames])


def box_blur(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    side = int(rng.integers(SMALL_PX, 2 * LARGE_PX + 1))
    return np.stack([cv2.blur(frame, (side, side)) for frame in frames])


def noisy(frames: np.ndarray, rng: np.random.Generator, share: float = 1.0) -> np.ndarray:
    deviation = share * rng.uniform(*GREY_LEVELS)
    return np.clip(np.rint(frames + deviation * rng.standard_normal(frames.shape)), 0, 255).astype(np.uint8)


def coarse(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    height, width = frames.shape[1:3]
    step = rng.uniform(SMALL_PX, LARGE_PX)
    small = (max(2, round(width / step)), max(2, round(height / step)))
    return np.stack([cv2.resize(cv2.resize(frame, small, interpolation=cv2.INTER_AREA), (width, height),
                                interpolation=cv2.INTER_LINEAR) for frame in frames])


WAYS: tuple[Callable[[np.ndarray, np.random.Generator], np.ndarray], ...] = (
    still_mosaic, moving_mosaic, moving_mosaic, gaussian_blur, box_blur, noisy, coarse)  # two of three mosaics move
