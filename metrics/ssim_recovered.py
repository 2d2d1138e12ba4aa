"""How much of the original's local structure a recovery attack brings back."""

from __future__ import annotations

import numpy as np

from bench import Column, metric
from bench.nets.image_quality import ssim


@metric("ssim_recovered", of="pair", column=Column(
    id="ssim_recovered", unit="", better="lower", low=-1.0, high=1.0, title="SSIM of the recovered video",
    role="privacy", source="Wang et al. 2004, doi 10.1109/TIP.2003.819861; TADP 4.2.1"))
def ssim_recovered(original: np.ndarray, recovered: np.ndarray) -> np.ndarray:
    """Structural similarity of each recovered frame to the original: Gaussian window 11 x 11 with sigma 1.5, biased
    covariance, data range 1, mean over channels and pixels whose window is inside the frame, as `ssim_released` for
    what was released. Takes float (T, 3, H, W) in [0, 1] twice, gives float64 (T,) in [-1, 1], 1 = equal.

    Lower is more private, as far as the attacker is strong: read it beside the released video's own SSIM and the mean
    face. NaN for frames smaller than the window. Raises ValueError when the shapes differ.
    Source: Wang et al. 2004; as a measure of recovery, TADP 4.2.1.
    """
    return ssim(original, recovered)
