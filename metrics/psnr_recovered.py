"""How near a recovery attack comes to the original pixels, in decibels."""

from __future__ import annotations

import numpy as np

from bench import Column, metric
from bench.nets.image_quality import CAP_DB, psnr


@metric("psnr_recovered", of="pair", column=Column(
    id="psnr_recovered", unit="dB", better="lower", low=0.0, high=CAP_DB, title="PSNR of the recovered video",
    role="privacy", source="TADP 4.2.1; one value a frame, 10 log10(1 / MSE), capped at 100 dB"))
def psnr_recovered(original: np.ndarray, recovered: np.ndarray) -> np.ndarray:
    """Peak signal-to-noise ratio of each recovered frame against the original: 10 log10(1 / MSE) dB over pixels and
    channels, capped at 100 dB, as `psnr_released` for what was released. Takes float (T, 3, H, W) in [0, 1] twice,
    gives float64 (T,) in [0, 100]; frames are averaged after the logarithm.

    Lower is more private, as far as the attacker is strong: read it beside the released video's own PSNR (copying
    the input is an attacker too) and the mean face. Raises ValueError when the shapes differ. Source: TADP 4.2.1.
    """
    return psnr(original, recovered)
