"""What every release method without a claim must do, and what the five classic ones are known to do."""

from __future__ import annotations

import inspect

import cv2
import numpy as np
import pytest

from bench import Anonymizer, Video, registry
from bench.seeds import derive

CLASSIC = ("original", "blackout", "blur", "blur@2", "blur@8", "pixelate", "pixelate@jitter", "deface_style")
SIZES = (32, 64, 65)


def noise_video(frames: int = 5, size: int = 64, *, seed: int = 1, fps: float = 25.0) -> Video:
    """Smooth noise, so that it looks alike at every size; the array is read-only."""
    coarse = derive(seed, "test_methods").integers(0, 256, (frames, 16, 16, 3)).astype(np.uint8)
    video = np.stack([cv2.resize(frame, (size, size), interpolation=cv2.INTER_NEAREST) for frame in coarse])
    video.flags.writeable = False
    return Video(video, fps)


def released(spec: str, video: Video, seed: int = 7) -> np.ndarray:
    return registry.build("methods", spec).release(video, derive(seed, spec)).frames


def classes() -> list[tuple[str, type]]:
    return [(name, registry.get("methods", name)) for name in registry.names("methods")]


ANONYMIZERS = [name for name, cls in classes() if issubclass(cls, Anonymizer) and not cls.fits and not cls.assets]


def test_the_classic_methods_are_listed():
    assert {spec.partition("@")[0] for spec in CLASSIC} <= set(ANONYMIZERS)


@pytest.mark.parametrize("name", ANONYMIZERS)
def test_same_seed_gives_the_same_bytes_and_the_input_stays(name):
    video = noise_video(fps=23.976)
    before = video.frames.copy()
    first, second = (registry.build("methods", name).release(video, derive(7)) for _ in range(2))
    assert first.frames.tobytes() == second.frames.tobytes()
    assert first.fps == 23.976
    np.testing.assert_array_equal(video.frames, before)


@pytest.mark.parametrize("name", ANONYMIZERS)
def test_documentation_says_what_it_does(name):
    cls = registry.get("methods", name)
    first = inspect.getdoc(cls).split("\n\n")[0]
    assert cls.__doc__ != cls.__mro__[1].__doc__
    assert len(first) > 150, "the first paragraph of the class stands on the method's page"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("frames", [1, 2, 17])
@pytest.mark.parametrize("spec", CLASSIC)
def test_any_size_and_length(spec, frames, size):
    out = released(spec, noise_video(frames, size))
    assert out.shape == (frames, size, size, 3)
    assert out.dtype == np.uint8


@pytest.mark.parametrize("spec", [s for s in CLASSIC if s not in ("original", "pixelate@jitter")])
def test_a_frame_is_released_alone(spec):
    """No method here carries anything from one frame to the next: an isolated clip equals its part of the video."""
    video = noise_video(6)
    np.testing.assert_array_equal(released(spec, video)[2:4], released(spec, Video(video.frames[2:4])))


def test_original_is_the_input():
    video = noise_video()
    np.testing.assert_array_equal(released("original", video), video.frames)


def test_blackout_does_not_depend_on_its_input():
    first, second = (released("blackout", noise_video(seed=seed)) for seed in (1, 2))
    np.testing.assert_array_equal(first, second)
    assert set(np.unique(first)) == {127}


def test_controls():
    signs = {name: cls.control for name, cls in classes() if cls.control}
    assert signs["original"] == "positive" and signs["blackout"] == "negative"
    assert not {"blur", "pixelate", "deface_style"} & set(signs)


def test_more_blur_leaves_less_variance():
    video = noise_video()
    variances = [released(spec, video).var() for spec in ("original", "blur@2", "blur", "blur@8")]
    assert variances == sorted(variances, reverse=True)
    assert variances[0] > 4 * variances[3]


@pytest.mark.parametrize("size", [64, 128])
def test_blur_spreads_a_point_by_its_sigma(size):
    """The second moment of a blurred point is sigma^2, sigma = 4 px x size / 64 (kernel cut at 3 sigma: 3 % less)."""
    frames = np.zeros((1, size, size, 3), np.uint8)
    box = size // 32  # a box, bright enough to survive 8 bit; its own variance is subtracted
    frames[:, size // 2 - box: size // 2 + box, size // 2 - box: size // 2 + box] = 255
    profile = released("blur", Video(frames))[0, :, :, 0].sum(axis=1).astype(float)
    y = np.arange(size)
    centre = np.average(y, weights=profile)
    variance = np.average((y - centre) ** 2, weights=profile) - ((2 * box) ** 2 - 1) / 12
    assert variance == pytest.approx((4 * size / 64) ** 2, rel=0.1)


@pytest.mark.parametrize("spec", ["blur", "blur@8", "pixelate", "pixelate@jitter", "deface_style"])
def test_a_flat_picture_stays_as_it_is(spec):
    flat = np.full((2, 65, 65, 3), (10, 127, 254), np.uint8)
    np.testing.assert_array_equal(released(spec, Video(flat)), flat)


def test_pixelate_paints_each_block_with_its_mean():
    video = noise_video(size=64)
    blocks = video.frames.reshape(-1, 8, 8, 8, 8, 3).mean(axis=(2, 4))  # (T, 8, 8, 3)
    out = released("pixelate", video).reshape(-1, 8, 8, 8, 8, 3)
    assert (out == out[:, :, :1, :, :1]).all(), "a block has one colour"
    assert np.abs(out[:, :, 0, :, 0] - blocks).max() <= 0.5


@pytest.mark.parametrize("size", [32, 128])
def test_pixelate_scales_with_the_canvas(size):
    out = released("pixelate", noise_video(1, size))[0]
    edges = np.flatnonzero((np.diff(out.astype(int), axis=0) != 0).any(axis=(1, 2))) + 1
    assert set(edges) == set(range(size // 8, size, size // 8))


def test_jitter_moves_the_grid_in_each_frame():
    still = np.repeat(noise_video(1).frames, 8, axis=0)
    assert (np.diff(released("pixelate", Video(still)).astype(int), axis=0) == 0).all()
    moving = released("pixelate@jitter", Video(still))
    changed = (np.diff(moving.astype(int), axis=0) != 0).any(axis=(1, 2, 3))
    assert changed.sum() >= 6, "two frames in a row share an offset with probability 1/64"
    assert (moving != released("pixelate@jitter", Video(still), seed=8)).any()
    sizes = {len(np.unique(frame.reshape(-1, 3), axis=0)) for frame in moving}
    assert max(sizes) <= 81, "at most 9 x 9 blocks"


def test_deface_style_blurs_the_ellipse_and_leaves_the_corners():
    video = noise_video()
    out = released("deface_style", video)
    y, x = np.mgrid[:64, :64] - 31.5
    radius = np.hypot(y, x)
    np.testing.assert_array_equal(out[:, radius > 32.5], video.frames[:, radius > 32.5])
    mean = cv2.boxFilter(video.frames[0].astype(float), -1, (32, 32), borderType=cv2.BORDER_REFLECT_101)
    inside = radius < 31
    assert np.abs(out[0][inside] - mean[inside]).max() <= 0.5 + 1e-9
