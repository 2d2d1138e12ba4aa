"""From the head to the picture and back: forward map of skin points, inverse map of pixels, true flow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.data.faces.geometry import Grid, planar

ITERATIONS = 4


@dataclass(frozen=True)
class View:
    """Which square of the camera frame each picture shows: corner and side in frame units, each (T,), float32."""

    x0: np.ndarray
    y0: np.ndarray
    side: np.ndarray


@dataclass(frozen=True)
class Motion:
    """Where the head is in each frame. Angles in radians, centre and scale in frame units.

    fields: float32 (T, rows, columns, 4), per grid point du, dv (the expression's displacement), z, and
    1 / (1 + d dv / dv), the Newton step that inverts the jaw's stretch.
    stretch: (2,) width and height of the day against the person's usual ones.
    """

    grid: Grid
    fields: np.ndarray
    pose: np.ndarray  # (T, 3)
    centre: np.ndarray  # (T, 2)
    scale: float
    stretch: tuple[float, float]

    def head_units(self, view: View, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Pixel centres in upright head units: two float32 (T, size, size)."""
        step = (np.arange(size, dtype=np.float32) + np.float32(0.5)) / np.float32(size)
        x = view.x0[:, None] + view.side[:, None] * step - self.centre[:, :1]  # (T, size)
        y = view.y0[:, None] + view.side[:, None] * step - self.centre[:, 1:]
        x, y = (x / np.float32(self.scale))[:, None, :], (y / np.float32(self.scale))[:, :, None]
        c, s = self._cos_sin(2)
        return c * x + s * y, c * y - s * x

    def _cos_sin(self, axis: int, frames: slice = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        angle = self.pose[frames, axis].astype(np.float32)[:, None, None]
        return np.cos(angle), np.sin(angle)

    def frontal(self, x: np.ndarray, y: np.ndarray, z: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Head units back to the frontal plane for points at depth z."""
        (cy, sy), (cp, sp) = self._cos_sin(0), self._cos_sin(1)
        wide, tall = (np.float32(s) for s in self.stretch)
        return (x - z * sy) / (cy * wide), (y - z * sp) / (cp * tall)

    def material(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Inverse map by fixed-point steps: u, v (skin at rest) and p, q (frontal), each (T, H, W)."""
        u, v = self.frontal(x, y, 0.45)
        for _ in range(ITERATIONS):
            du, dv, z, step = self.grid.sample_each(self.fields, u, v)
            p, q = self.frontal(x, y, z)
            u, v = p - du, v + (q - dv - v) * step
        return u, v, p, q

    def place(self, u: np.ndarray, v: np.ndarray, frames: slice = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """Forward map: skin points (T, H, W) -> camera frame x, y in frame units, in the frames given."""
        field = np.stack([self.grid.sample(f, a, b) for f, a, b in zip(self.fields[frames], u, v)])
        du, dv, z, _ = planar(field)
        return self.project(u + du, v + dv, z, frames)

    def project(self, p: np.ndarray, q: np.ndarray, z: np.ndarray | float,
                frames: slice = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """Frontal points at depth z, (T, H, W) -> camera frame x, y in frame units."""
        (cy, sy), (cp, sp), (cr, sr) = (self._cos_sin(axis, frames) for axis in range(3))
        x = p * np.float32(self.stretch[0]) * cy + z * sy
        y = q * np.float32(self.stretch[1]) * cp + z * sp
        centre = self.centre[frames].astype(np.float32)
        scale = np.float32(self.scale)
        return (centre[:, :1, None] + scale * (cr * x - sr * y), centre[:, 1:, None] + scale * (sr * x + cr * y))
