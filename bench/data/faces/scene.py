"""Nuisance of one video: light, camera, background, shirt, and how the person looks that day."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from bench.data.faces.person import linear
from bench.seeds import derive

DAY, WHITE = 0.35, 0.7


@dataclass(frozen=True)
class Scene:
    """light: unit vector towards the lamp (u right, v down, z to the camera). key, fill: linear RGB strengths.

    hair, skin: tone factors of the day; hairline, volume: hair of the day.
    background: linear RGB (n, n, 3). noise: sd in 0..1. blur: sigma as a share of the frame's side.
    """

    light: tuple[float, float, float]
    key: np.ndarray
    fill: np.ndarray
    exposure: float
    blur: float
    noise: float
    hair: float
    skin: float
    hairline: float
    volume: float
    stretch: tuple[float, float]
    scale: float
    background: np.ndarray
    shirt: np.ndarray
    pattern: float


def draw_scene(seed: int, names: tuple[str, str, int]) -> Scene:
    """The scene of the video `names` = (person, label, take), from the stream (seed, "nuisance", *names)."""
    rng = derive(seed, "nuisance", *names)
    azimuth, elevation = rng.uniform(-1.0, 1.0), rng.uniform(0.1, 0.8)
    light = (float(np.sin(azimuth) * np.cos(elevation)), float(-np.sin(elevation)),
             float(np.cos(azimuth) * np.cos(elevation)))
    key = 0.92 * np.exp(rng.normal(0, 0.16)) * np.exp(rng.normal(0, 0.10 * WHITE, 3) * np.array([1, 0.4, 1]))
    fill = np.clip(rng.normal(0.36, 0.09), 0.14, 0.6) * np.exp(rng.normal(0, 0.13 * WHITE, 3) * np.array([1, 0.4, 1]))
    return Scene(light=light, key=key.astype(np.float32), fill=fill.astype(np.float32),
                 exposure=float(np.exp(rng.normal(0, 0.13))), blur=float(rng.uniform(0, 0.005)),
                 noise=float(rng.uniform(0.003, 0.012)), hair=float(np.exp(rng.normal(0, 0.30 * DAY))),
                 skin=float(np.exp(rng.normal(0, 0.13 * DAY))), hairline=float(rng.normal(0, 0.05 * DAY)),
                 volume=float(rng.normal(0, 0.05 * DAY)),
                 stretch=(float(1 + rng.normal(0, 0.022 * DAY)), float(1 + rng.normal(0, 0.018 * DAY))),
                 scale=float(0.268 * np.exp(rng.normal(0, 0.05))), background=_background(rng),
                 shirt=linear(_muted(rng, 0.15, 0.75)), pattern=float(rng.uniform(0, 6.28)))


def _muted(rng: np.random.Generator, low: float, high: float) -> np.ndarray:
    grey = rng.uniform(low, high)
    return np.clip(grey + rng.normal(0, 0.09, 3), 0.03, 0.95)


def _background(rng: np.random.Generator, n: int = 48) -> np.ndarray:
    """A room out of focus: a wall with a slow gradient and a few soft shapes."""
    wall = np.ones((n, n, 3)) * _muted(rng, 0.25, 0.75)
    slope = np.linspace(-1, 1, n)
    wall *= 1 + 0.18 * (rng.normal() * slope[:, None, None] + rng.normal() * slope[None, :, None]) / 2
    for _ in range(int(rng.integers(2, 6))):
        x, y = rng.integers(0, n, 2)
        wide, tall = rng.integers(4, 16, 2)
        wall[max(0, y - tall):y + tall, max(0, x - wide):x + wide] = _muted(rng, 0.15, 0.8)
    return linear(cv2.GaussianBlur(wall.astype(np.float32), (0, 0), float(rng.uniform(1.5, 4.0))))
