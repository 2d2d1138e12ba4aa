"""Diagnostics of the vault: closed forms on made values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from bench import Noise, Opened, registry, seeds

T, DIM = 16, 512


def branch(law="gaussian", scale=2.0, drawn=1.0, *, signal=None, norm=0.5, floor=None, clip=1.0) -> Opened:
    """Noise of `drawn` times the stated scale."""
    rng = seeds.derive(5, "diagnostics", str(law), str(scale), str(drawn))
    if law == "discrete_laplace":
        q = math.exp(-1 / (scale * drawn))
        residual = (rng.geometric(1 - q, (T, DIM)) - rng.geometric(1 - q, (T, DIM))).astype(float)
    else:
        residual = rng.normal(0, scale * drawn, (T, DIM))
    signal = np.full((T, DIM), 0.5 / math.sqrt(DIM)) if signal is None else signal
    return Opened(signal, residual, Noise(law, np.full(T, scale)), scale if floor is None else floor,
                  np.full(T, norm), clip)


def measured(name, **branches):
    return registry.build("attacks", name).measure(branches)


@pytest.mark.parametrize("law, scale", [("gaussian", 2.0), ("gaussian", 40.0), ("discrete_laplace", 3.0),
                                        ("discrete_laplace", 600.0)])
def test_right_noise_has_ratio_one_and_noise_too_small_shows(law, scale):
    spread = 4 * math.sqrt((2 if law == "gaussian" else 5) / (T * DIM))  # four standard errors of a mean of squares
    assert measured("noise_scale", a=branch(law, scale))["noise_ratio"] == pytest.approx(1, abs=spread)
    assert measured("noise_scale", a=branch(law, scale, 1 / math.sqrt(2)))["noise_ratio"] == pytest.approx(
        0.5, abs=spread)


@pytest.mark.parametrize("scale", [0.5, 3.0, 100.0])
def test_the_variance_of_discrete_laplace_noise_is_that_of_scipy(scale):
    residual = np.full((T, DIM), math.sqrt(stats.dlaplace(1 / scale).var()))
    given = Opened(residual, residual, Noise("discrete_laplace", np.full(T, scale)), scale, np.ones(T), 1.0)
    assert measured("noise_scale", a=given)["noise_ratio"] == pytest.approx(1, rel=1e-9)


def test_a_label_or_a_branch_in_clear_has_no_noise_to_compare():
    for law in ("randomized_response", None):
        assert math.isnan(measured("noise_scale", a=branch(law))["noise_ratio"])


def test_scales_clipping_and_noise_against_signal():
    found = measured("scales", a=branch(scale=6.0, floor=2.0, norm=0.5), b=branch(scale=2.0, floor=2.0, norm=1.5))
    assert found["scale_ratio"] == pytest.approx((3 + 1) / 2) and found["clipping_rate"] == 0.5
    alone = measured("scales", a=branch(scale=2.0))
    assert alone["noise_to_signal"] == pytest.approx(2 * math.sqrt(DIM) / 0.5, rel=0.02)  # |n| is near s sqrt(d)


def test_frames_without_a_signal_and_failed_encodings_are_left_out():
    signal = np.full((T, DIM), 1 / math.sqrt(DIM))
    signal[3:] = 0
    partly = measured("scales", a=branch(scale=2.0, signal=signal))["noise_to_signal"]
    assert partly == pytest.approx(2 * math.sqrt(DIM), rel=0.1)
    empty = measured("scales", a=branch(signal=np.zeros((T, DIM)), norm=math.nan))
    assert math.isnan(empty["noise_to_signal"]) and math.isnan(empty["clipping_rate"])
    assert empty["scale_ratio"] == 1
