"""How far the released pixels are from the original ones, in decibels."""

from __future__ import annotations

import numpy as np

from bench import Column, metric
from bench.nets.image_quality import CAP_DB, psnr


@metric("psnr_released", of="pair", column=Column(
    id="psnr_released", unit="dB", better="none", low=0.0, high=CAP_DB, title="PSNR of the released video",
    role="descriptive", source="one value a frame, 10 log10(1 / MSE), capped at 100 dB"))
def psnr_released(original: np.ndarray, released: np.ndarray) -> np.ndarray:
    """Peak signal-to-noise ratio of each frame: 10 log10(1 / MSE) dB over pixels and channels, capped at 100 dB.

    Takes float (T, 3, H, W) in [0, 1] twice, gives float64 (T,) in [0, 100]. Frames are averaged after the
    logarithm: the mean of frame values is not the PSNR of the pooled error. Descriptive: more distortion is neither
    more private nor less useful by itself. Raises ValueError when the shapes differ.
    """
    return psnr(original, released)
