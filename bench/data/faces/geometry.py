"""The head as a surface: grids, outline, height, how action units move skin, pose, landmarks.

Two spaces. Material (u, v): a point of skin at rest. Frontal (p, q) = (u, v) + displacement: the expressing face
seen from the front; yaw, pitch and roll then act on (p, q, z) and give head units on the picture.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from bench.data.faces.expression import AU, UNITS
from bench.data.faces.person import Person


@dataclass(frozen=True)
class Grid:
    """A regular grid over face units: `columns` x `rows` points from (u0, v0), `step` apart."""

    u0: float
    v0: float
    step: float
    columns: int
    rows: int

    @classmethod
    def over(cls, u0: float, v0: float, u1: float, v1: float, step: float) -> Grid:
        return cls(u0, v0, step, int(round((u1 - u0) / step)) + 1, int(round((v1 - v0) / step)) + 1)

    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """U (1, columns) and v (rows, 1), float32."""
        u = self.u0 + self.step * np.arange(self.columns, dtype=np.float32)
        v = self.v0 + self.step * np.arange(self.rows, dtype=np.float32)
        return u[None].astype(np.float32), v[:, None].astype(np.float32)

    def sample(self, table: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Bilinear look-up of one table (rows, columns[, C <= 4]) at points u, v (N, M): float32 (N, M[, C]).

        Beyond the grid the table's edge continues.
        """
        x = (u - np.float32(self.u0)) * np.float32(1 / self.step)
        y = (v - np.float32(self.v0)) * np.float32(1 / self.step)
        return cv2.remap(table, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)

    def sample_each(self, tables: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Table t at points t: tables (T, rows, columns, C), u and v (T, H, W) -> planar float32 (C, T, H, W)."""
        out = np.empty((*u.shape, tables.shape[-1]), np.float32)
        for t in range(len(u)):
            out[t] = self.sample(tables[t], u[t], v[t]).reshape(out[t].shape)
        return planar(out)


def planar(pixels: np.ndarray) -> np.ndarray:
    """(..., C) -> contiguous (C, ...), float32."""
    *shape, channels = pixels.shape
    out = np.empty((channels, *shape), np.float32)
    flat, table = pixels.reshape(-1, shape[-1], channels), out.reshape(channels, -1, shape[-1])
    for channel in range(channels):
        cv2.extractChannel(flat, channel, table[channel])
    return out


def bump(u: np.ndarray, v: np.ndarray, u0: float, v0: float, su: float, sv: float) -> np.ndarray:
    """A Gaussian hill of height 1."""
    return np.exp(-0.5 * ((u - np.float32(u0)) / np.float32(su)) ** 2) * np.exp(
        -0.5 * ((v - np.float32(v0)) / np.float32(sv)) ** 2)


def ramp(x: np.ndarray) -> np.ndarray:
    """Smoothstep on [0, 1]."""
    x = np.clip(x, 0, 1)
    return x * x * (3 - 2 * x)


def outline(person: Person, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The head's level function: 0 in the middle, 1 on its edge; distances near the edge are about right."""
    below = np.clip(v / np.float32(person.chin_v), 0, 1.6)
    width = np.float32(person.width) * (1 - np.float32(person.taper) * below ** 1.6
                                        + np.float32(person.jaw) * np.exp(-((below - 0.62) / 0.2) ** 2)
                                        + np.float32(person.cheek) * np.exp(-((v - 0.15) / 0.3) ** 2))
    width = np.maximum(width, np.float32(0.15))
    power = np.float32(person.power)
    half = np.where(v > 0, np.float32(person.chin_v), np.float32(person.top_v))
    return ((np.abs(u) / width) ** power + (np.abs(v) / half) ** power) ** np.float32(1 / person.power)


def height(person: Person, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Depth towards the camera, face units, 0 at the head's edge and beyond."""
    level = outline(person, u, v)
    z = 0.62 * np.clip(1 - level ** 2.3, 0, 1) ** np.float32(0.6)
    inside = ramp((1.0 - level) / 0.25)
    au = np.abs(u)
    z = z + inside * (_nose(person, u, v) - 0.085 * bump(au, v, person.eye_u, person.eye_v, 0.17, 0.11)
                      + 0.035 * bump(au, v, 0.36, person.eye_v - person.brow_v + 0.02, 0.24, 0.07)
                      + 0.055 * bump(au, v, 0.58, 0.24, 0.20, 0.17)
                      + 0.05 * bump(u, v, 0, person.mouth_v, 0.34, 0.18)
                      - 0.03 * bump(u, v, 0, person.mouth_v + 0.21, 0.16, 0.06)
                      + 0.06 * bump(u, v, 0, person.chin_v - 0.20, 0.22, 0.12))
    return z.astype(np.float32)


def _nose(person: Person, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Bridge, tip and wings; its underside rolls off softly instead of breaking."""
    root, tip = person.eye_v + 0.06, person.nose_v - 0.05
    along = np.clip((v - root) / (tip - root), 0, 1.0)
    roll = ramp((person.nose_v + 0.13 - v) / 0.27) * ramp((v - root + 0.16) / 0.16)
    ridge = (0.10 + 0.90 * along ** 1.3) * np.exp(-0.5 * (u / (person.bridge * (0.75 + 0.35 * along))) ** 2)
    ball = 0.34 * bump(u, v, 0, tip - 0.01, person.tip, 0.095)
    wings = 0.42 * bump(np.abs(u), v, person.nose_w * 0.72, person.nose_v - 0.035, person.nose_w * 0.33, 0.075)
    return np.float32(person.nose_z) * (ridge * roll * 0.8 + ball + wings)


def displacement(person: Person, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """How each action unit at level 1 moves skin: float32 (UNITS, 2, rows, columns), face units, right half and left.

    Channel 0 is du, channel 1 dv.
    """
    side = np.tanh(u / 0.05).astype(np.float32)
    au, brow = np.abs(u), person.eye_v - person.brow_v
    out = np.zeros((len(UNITS), 2, *np.broadcast_shapes(u.shape, v.shape)), np.float32)

    def move(unit: str, du: float, dv: float, u0: float, v0: float, su: float, sv: float) -> None:
        hill = bump(au, v, u0, v0, su, sv)
        out[AU[unit], 0] += du * side * hill
        out[AU[unit], 1] += dv * hill

    mw, mv = person.mouth_w, person.mouth_v
    move("brow_in", 0.0, -0.18, 0.17, brow - 0.02, 0.15, 0.15)
    move("brow_out", 0.0, -0.155, 0.52, brow - 0.02, 0.20, 0.15)
    move("brow_down", -0.07, 0.13, 0.24, brow, 0.24, 0.14)
    move("lid_up", 0.0, -0.03, 0.40, brow, 0.3, 0.12)
    move("cheek", 0.0, -0.06, 0.52, 0.30, 0.24, 0.18)
    move("nose", 0.0, -0.05, 0.16, person.nose_v - 0.05, 0.14, 0.14)
    move("nose", -0.02, 0.05, 0.22, brow, 0.22, 0.12)
    move("lip_raise", 0.0, -0.06, 0.18, mv - 0.12, 0.22, 0.10)
    move("smile", 0.10, -0.11, mw + 0.03, mv - 0.02, 0.17, 0.17)
    move("frown", 0.0, 0.08, mw + 0.02, mv + 0.03, 0.16, 0.12)
    move("chin", 0.0, -0.05, 0.0, person.chin_v - 0.22, 0.24, 0.12)
    move("stretch", 0.09, 0.03, mw + 0.03, mv, 0.16, 0.18)
    move("droop", 0.0, 0.02, person.eye_u, person.eye_v - 0.14, 0.2, 0.05)
    jaw = ramp((v - (mv - 0.03)) / 0.10) * ramp((1.15 - au) / 0.5)
    out[AU["open"], 1] += 0.17 * jaw
    out[AU["open"], 0] -= 0.03 * side * jaw * ramp(au / 0.4)
    return out


LANDMARKS = ("jaw", "forehead", "brow", "eye", "nose", "mouth")


def landmark_points(person: Person) -> dict[str, np.ndarray]:
    """Landmarks at rest by part, float32 (n, 2): jaw 17, forehead 3, brows 10, nose 7; eyes and mouth move by rule."""
    angles = np.linspace(0.02 * np.pi, 0.98 * np.pi, 17)
    jaw = _edge(person, np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32))
    hairline = person.hairline + 0.02
    forehead = np.array([[-0.4, hairline + 0.06], [0, hairline], [0.4, hairline + 0.06]], np.float32)
    brow_u = np.linspace(0.13, 0.13 + 2 * person.brow_len, 5)
    brow_v = brow_curve(person, brow_u)
    brows = np.concatenate([np.stack([-brow_u, brow_v], 1), np.stack([brow_u, brow_v], 1)])
    root = person.eye_v + 0.05
    ridge = np.stack([np.zeros(4), np.linspace(root, person.nose_v - 0.05, 4)], 1)
    base = np.array([[-person.nose_w, person.nose_v], [0, person.nose_v + 0.05], [person.nose_w, person.nose_v]])
    return {"jaw": jaw.astype(np.float32), "forehead": forehead, "brow": brows.astype(np.float32),
            "nose": np.concatenate([ridge, base]).astype(np.float32)}


def brow_curve(person: Person, u: np.ndarray) -> np.ndarray:
    """Height of the brow's middle line at distance u from the face's middle."""
    x = (u - 0.13) / (2 * person.brow_len)
    return (person.eye_v - person.brow_v + person.brow_tilt * (x - 0.5) * person.brow_len * 2
            + person.brow_arch * (4 * (x - 0.45) ** 2 - 0.5))


def _edge(person: Person, ways: np.ndarray) -> np.ndarray:
    """Where rays from the middle in the directions `ways` (n, 2) leave the head: (n, 2)."""
    low, high = np.full(len(ways), 0.1, np.float32), np.full(len(ways), 2.5, np.float32)
    for _ in range(20):
        middle = (low + high) / 2
        inside = outline(person, middle * ways[:, 0], middle * ways[:, 1]) < 1
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return ways * low[:, None]
