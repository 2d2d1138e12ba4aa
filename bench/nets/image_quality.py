"""PSNR and SSIM of single frames, numpy and OpenCV: one definition for released and for recovered videos."""

from __future__ import annotations

import cv2
import numpy as np

CAP_DB = 100.0  # equal frames have no finite PSNR
WINDOW_PX = 11  # Gaussian of sigma 1.5 cut at 3.5 sigma
RIM = WINDOW_PX // 2  # pixels whose window would leave the frame
FRAMES_AT_ONCE = 32  # OpenCV filters up to 512 planes in one call


def psnr(reference: np.ndarray, other: np.ndarray) -> np.ndarray:
    """10 log10(1 / MSE) dB of each frame over pixels and channels, capped at 100 dB.

    float (T, 3, H, W) in [0, 1] twice -> float64 (T,) in [0, 100]. Raises ValueError when the shapes differ.
    """
    _same_shape(reference, other)
    mse = np.square(reference.astype(np.float64) - other).mean(axis=(1, 2, 3))  # (T,)
    return np.minimum(-10.0 * np.log10(np.maximum(mse, 1e-30)), CAP_DB)


def ssim(reference: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Structural similarity of each frame (Wang et al. 2004): Gaussian window 11 x 11, sigma 1.5, biased covariance,
    data range 1, mean over channels and over pixels whose window is inside the frame.

    float (T, 3, H, W) in [0, 1] twice -> float64 (T,) in [-1, 1], 1 = equal; NaN for frames smaller than the window.
    Raises ValueError when the shapes differ.
    """
    _same_shape(reference, other)
    if min(reference.shape[2:]) < WINDOW_PX:
        return np.full(len(reference), np.nan)
    values = []
    for start in range(0, len(reference), FRAMES_AT_ONCE):
        part = slice(start, start + FRAMES_AT_ONCE)
        values.append(_ssim(_planes(reference[part]), _planes(other[part])))
    return np.concatenate(values)


def _same_shape(reference: np.ndarray, other: np.ndarray) -> None:
    if reference.shape != other.shape:
        raise ValueError(f"both videos need one shape, got {reference.shape} and {other.shape}")


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
