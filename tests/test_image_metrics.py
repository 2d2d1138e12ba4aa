"""PSNR, SSIM and detection rate against closed forms and a second library."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from bench import Video, registry
from bench.seeds import derive


def score(name: str, *videos: np.ndarray) -> np.ndarray:
    return registry.get("metrics", name).function(*videos)


def flat(value: float, frames: int = 2, size: int = 64) -> np.ndarray:
    return np.full((frames, 3, size, size), value, np.float32)


def pair(frames: int = 3, size: int = 64) -> tuple[np.ndarray, np.ndarray]:
    rng = derive(3, "image_metrics")
    a = rng.random((frames, 3, size, size))
    return a.astype(np.float32), np.clip(a + rng.normal(0, 0.1, a.shape), 0, 1).astype(np.float32)


# ---- PSNR ----------------------------------------------------------------------------------------------------------

def test_psnr_of_a_constant_error():
    assert score("psnr_released", flat(0.3).astype(float), flat(0.3).astype(float) + 0.1) == pytest.approx([20.0] * 2)


def test_psnr_of_two_independent_uniform_pictures():
    rng = derive(1, "psnr")
    a, b = rng.random((2, 4, 3, 256, 256))
    assert score("psnr_released", a, b) == pytest.approx([7.7815] * 4, abs=0.05)  # MSE 1/6


def test_psnr_is_averaged_after_the_logarithm():
    a = flat(0.5).astype(float)
    b = a + np.array([0.1, 0.01]).reshape(2, 1, 1, 1)
    assert score("psnr_released", a, b).mean() == pytest.approx(30.0)  # pooled: 22.97


def test_psnr_of_equal_frames_is_capped():
    assert score("psnr_released", flat(0.5), flat(0.5)).tolist() == [100.0, 100.0]


def test_psnr_agrees_with_torchmetrics_per_frame():
    torch = pytest.importorskip("torch")
    peer = pytest.importorskip("torchmetrics.functional.image")
    a, b = pair()
    theirs = [peer.peak_signal_noise_ratio(torch.tensor(y[None], dtype=torch.float64),
                                           torch.tensor(x[None], dtype=torch.float64), data_range=1.0, dim=(1, 2, 3))
              for x, y in zip(a, b)]
    assert score("psnr_released", a, b) == pytest.approx(np.array(theirs), abs=1e-6)


# ---- SSIM ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("a, b, expected", [(0.25, 0.75, 0.6000639898), (0.0, 1.0, 9.999e-5), (0.5, 0.5, 1.0)])
def test_ssim_of_flat_pictures(a, b, expected):
    assert score("ssim_released", flat(a), flat(b)) == pytest.approx([expected] * 2, abs=1e-8)


def test_ssim_agrees_with_torchmetrics_inside_the_border():
    """The peer mirrors the border and averages over all pixels; ours only over whole windows: 5 px are cut here."""
    torch = pytest.importorskip("torch")
    peer = pytest.importorskip("torchmetrics.functional.image")
    a, b = pair()
    _, full = peer.structural_similarity_index_measure(
        torch.tensor(b, dtype=torch.float64), torch.tensor(a, dtype=torch.float64), data_range=1.0, sigma=1.5,
        return_full_image=True)
    theirs = full[:, :, 5:-5, 5:-5].mean(dim=(1, 2, 3)).numpy()
    assert score("ssim_released", a, b) == pytest.approx(theirs, abs=1e-6)


def test_ssim_below_its_window_is_undefined():
    assert np.isnan(score("ssim_released", flat(0.1, size=10), flat(0.9, size=10))).all()
    assert np.isfinite(score("ssim_released", flat(0.1, size=11), flat(0.9, size=11))).all()


@pytest.mark.parametrize("name", ["psnr_released", "ssim_released"])
def test_one_value_a_frame_within_the_range_and_other_shapes_refused(name):
    a, b = pair()
    column = registry.get("metrics", name).column
    values = score(name, a, b)
    assert values.shape == (3,) and ((values >= column.low) & (values <= column.high)).all()
    assert score(name, a[1:2], b[1:2]) == pytest.approx(values[1:2])  # no frame knows another
    with pytest.raises(ValueError, match="one shape"):
        score(name, a, b[:2])


@pytest.mark.parametrize("name", ["psnr_released", "ssim_released", "detection_rate"])
def test_picture_metrics_never_rank(name):
    column = registry.get("metrics", name).column
    assert (column.better, column.role) == ("none", "descriptive")


# ---- detection rate ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("frames, looked_at", [(1, 1), (3, 3), (16, 4), (40, 4)])
def test_detection_rate_looks_at_a_few_frames_and_sees_no_face_in_grey(frames, looked_at):
    values = score("detection_rate", np.full((frames, 64, 64, 3), 127, np.uint8))
    assert values.shape == (frames,)
    assert np.isfinite(values).sum() == looked_at
    assert np.nansum(values) == 0
    assert np.isfinite(values[[0, -1]]).all()


def test_detection_rate_finds_a_photographed_face_until_it_is_blurred():
    photo = pytest.importorskip("skimage.data").astronaut()
    crop = cv2.resize(photo[30:230, 125:325], (64, 64), interpolation=cv2.INTER_AREA)  # the face in the middle
    video = Video(np.stack([crop] * 2))
    assert score("detection_rate", video.frames).tolist() == [1.0, 1.0]
    hidden = registry.build("methods", "blur@8").release(video, derive(1)).frames
    assert score("detection_rate", hidden).tolist() == [0.0, 0.0]
