"""How alike the released and the original picture are in local structure."""

from __future__ import annotations

import cv2
import numpy as np

from bench import Column, metric

WINDOW_PX = 11  # Gaussian of sigma 1.5 cut at 3.5 sigma
RIM = WINDOW_PX // 2  # pixels whose window would leave the frame
FRAMES_AT_ONCE = 32  # OpenCV filters up to 512 planes in one call


@metric("ssim_released", of="pair", column=Column(
    id="ssim_released", unit="", better="none", low=-1.0, high=1.0, title="SSIM of the released video",
    role="descriptive", source="Wang et al. 2004, doi 10.1109/TIP.2003.819861; Gaussian window, metrics.md 5"))
def ssim_released(original: np.ndarray, released: np.ndarray) -> np.ndarray:
    """Structural similarity of each frame, the mean over channels and over pixels whose window is inside the frame.

    Gaussian window 11 x 11 with sigma 1.5, biased covariance, data range 1. Takes float (T, 3, H, W) in [0, 1] twice,
    gives float64 (T,) in [-1, 1], 1 = equal; NaN for frames smaller than the window. Descriptive. Raises ValueError
    when the shapes differ.
    """
    if original.shape != released.shape:
        raise ValueError(f"both videos need one shape, got {original.shape} and {released.shape}")
    if min(original.shape[2:]) < WINDOW_PX:
        return np.full(len(original), np.nan)
    values = []
    for start in range(0, len(original), FRAMES_AT_ONCE):
        part = slice(start, start + FRAMES_AT_ONCE)
        values.append(_ssim(_planes(original[part]), _planes(released[part])))
    return np.concatenate(values)


def _planes(frames: np.ndarray) -> np.ndarray:
    """float64 (H, W, T * 3): every plane is filtered in one call."""
    t, channels, height, width = frames.shape
    return np.ascontiguousarray(frames.reshape(t * channels, height, width).transpose(1, 2, 0), np.float64)


def _ssim(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Equation 13 of Wang et al. on planes (H, W, T * 3), mean over inner pixels and channels -> (T,)."""
    def mean(x: np.ndarray) -> np.ndarray:
        return cv2.GaussianBlur(x, (WINDOW_PX, WINDOW_PX), 1.5).reshape(x.shape)[RIM:-RIM, RIM:-RIM]

    mean_a, mean_b = mean(a), mean(b)
    var_a, var_b, cov = mean(a * a) - mean_a**2, mean(b * b) - mean_b**2, mean(a * b) - mean_a * mean_b
    c1, c2 = 0.01**2, 0.03**2
    index = (2 * mean_a * mean_b + c1) * (2 * cov + c2) / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))
    return index.mean(axis=(0, 1)).reshape(-1, 3).mean(axis=1)  # (T,)
