"""Mosaic of square blocks, frame by frame."""

from __future__ import annotations

import numpy as np

from bench import Anonymizer, Video, method

REFERENCE_PX = 64  # canvas side at which block_px is stated


@method("pixelate")
class Pixelate(Anonymizer):
    """Cuts every frame into square blocks and paints each with its mean colour: released = mean of the block, with
    blocks of 8 px on a 64 px canvas, growing with the canvas (block_px * side / 64). The variant `jitter` moves the
    grid by a random offset in every frame. It promises nothing: 64 means of a face remain and a network can learn
    them, and a moving face or the moving grid of `jitter` samples the face anew in each frame, so that a video holds
    more detail than any of its frames. Source: common practice; trained networks recognise mosaics in McPherson,
    Shokri and Shmatikov, arXiv:1609.00408.
    """

    variants = {"jitter": {"jitter": True}}

    def __init__(self, *, block_px: float = 8.0, jitter: bool = False):
        self.block_px = block_px  # px on a 64 px canvas
        self.jitter = jitter

    def release(self, video: Video, rng: np.random.Generator) -> Video:
        """uint8 (T, H, W, 3); `jitter` draws two offsets in 0 .. block - 1 a frame, else `rng` is not read.

        Blocks that the border cuts are painted with the mean of the part that is inside.
        """
        block = max(1, round(self.block_px * max(video.frames.shape[1:3]) / REFERENCE_PX))
        offsets = rng.integers(0, block, (len(video), 2)) if self.jitter else np.zeros((len(video), 2), int)
        frames = [_mosaic(frame, block, *offset) for frame, offset in zip(video.frames, offsets)]
        return Video(np.stack(frames), video.fps)


def _mosaic(frame: np.ndarray, block: int, top: int, left: int) -> np.ndarray:
    """Block means of one uint8 (H, W, 3) frame; the first full block begins at row `top`, column `left`."""
    rows, columns = _starts(frame.shape[0], block, top), _starts(frame.shape[1], block, left)
    sums = np.add.reduceat(np.add.reduceat(frame, rows, axis=0, dtype=np.int64), columns, axis=1)
    heights, widths = np.diff([*rows, frame.shape[0]]), np.diff([*columns, frame.shape[1]])
    area = np.multiply.outer(heights, widths)[..., None]  # px of each block
    means = ((2 * sums + area) // (2 * area)).astype(np.uint8)  # rounded to the nearest level
    return means.repeat(heights, axis=0).repeat(widths, axis=1)


def _starts(size: int, block: int, offset: int) -> np.ndarray:
    return np.unique([0, *range(offset, size, block)])
