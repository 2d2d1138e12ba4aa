"""How alike the released and the original picture are in local structure."""

from __future__ import annotations

import numpy as np

from bench import Column, metric
from bench.nets.image_quality import ssim


@metric("ssim_released", of="pair", column=Column(
    id="ssim_released", unit="", better="none", low=-1.0, high=1.0, title="SSIM of the released video",
    role="descriptive", source="Wang et al. 2004, doi 10.1109/TIP.2003.819861; Gaussian window"))
def ssim_released(original: np.ndarray, released: np.ndarray) -> np.ndarray:
    """Structural similarity of each frame, the mean over channels and over pixels whose window is inside the frame.

    Gaussian window 11 x 11 with sigma 1.5, biased covariance, data range 1. Takes float (T, 3, H, W) in [0, 1] twice,
    gives float64 (T,) in [-1, 1], 1 = equal; NaN for frames smaller than the window. Descriptive. Raises ValueError
    when the shapes differ.
    """
    return ssim(original, released)
