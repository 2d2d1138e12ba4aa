"""SSIM on 1,000 frames of 64 x 64 against every library here that has one, in one run, one thread each."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
import pytest
from clock import seconds

from bench import registry
from bench.seeds import derive

pytestmark = pytest.mark.perf

FRAMES, SIDE_PX = 1000, 64


@pytest.fixture
def one_thread():
    torch = pytest.importorskip("torch")
    before, before_cv = torch.get_num_threads(), cv2.getNumThreads()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    yield torch
    torch.set_num_threads(before)
    cv2.setNumThreads(before_cv)


def peers(torch, a: np.ndarray, b: np.ndarray) -> dict[str, Callable[[], np.ndarray]]:
    """{library: its SSIM of every frame}, for those that are installed."""
    first, second = torch.from_numpy(a), torch.from_numpy(b)
    found: dict[str, Callable[[], np.ndarray]] = {}
    try:
        from skimage.metrics import structural_similarity
        found["scikit-image"] = lambda: np.array([structural_similarity(
            x, y, channel_axis=0, data_range=1.0, gaussian_weights=True, sigma=1.5, use_sample_covariance=False)
            for x, y in zip(a, b)])
    except ImportError:
        pass
    try:
        from torchmetrics.functional.image import structural_similarity_index_measure as measure
        found["torchmetrics"] = lambda: measure(first, second, data_range=1.0, sigma=1.5, reduction="none").numpy()
    except ImportError:
        pass
    try:
        import piq
        found["piq"] = lambda: piq.ssim(first, second, data_range=1.0, reduction="none").numpy()
    except ImportError:
        pass
    return found


def test_ssim_of_a_thousand_frames(one_thread):
    a = derive(2, "perf").random((FRAMES, 3, SIDE_PX, SIDE_PX), dtype=np.float32)
    b = np.clip(a + derive(3, "perf").normal(0, 0.1, a.shape), 0, 1).astype(np.float32)
    ours = registry.get("metrics", "ssim_released").function
    values, ours_s = ours(a, b), seconds(lambda: ours(a, b))
    found = peers(one_thread, a, b)
    if not found:
        pytest.skip("no library with an SSIM is installed")
    times = {}
    for name, function in found.items():
        assert function() == pytest.approx(values, abs=2e-3), name  # torchmetrics averages over the border too
        times[name] = seconds(function, repeats=2)
    print(f"\nSSIM, {FRAMES} frames of {SIDE_PX} x {SIDE_PX}: ours {ours_s * 1e3:.0f} ms; "
          + "; ".join(f"{name} {s * 1e3:.0f} ms, {s / ours_s:.2f} times ours" for name, s in times.items()))
    assert ours_s <= min(times.values())
