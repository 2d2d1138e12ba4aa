"""Tables over the face that a person keeps: skin colour, brows, moles, beard, folds and wrinkles."""

from __future__ import annotations

import cv2
import numpy as np

from bench.data.faces.expression import AU, UNITS
from bench.data.faces.geometry import Grid, brow_curve, bump, outline, ramp
from bench.data.faces.person import Person


def smooth_noise(rng: np.random.Generator, shape: tuple[int, int], sigma: float) -> np.ndarray:
    """Blurred white noise of standard deviation 1."""
    noise = cv2.GaussianBlur(rng.standard_normal(shape, dtype=np.float32), (0, 0), max(sigma, 0.3))
    return noise / max(float(noise.std()), 1e-6)


def cover(colour: np.ndarray, over: np.ndarray, alpha: np.ndarray) -> None:
    """Lay the plain colour `over` (3,) on planar `colour` (3, ...) with weight alpha, in place."""
    for channel in range(3):
        colour[channel] += alpha * (np.float32(over[channel]) - colour[channel])


def distance_to(u: np.ndarray, v: np.ndarray, points: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Distance to a polyline and the position 0..1 along it of the nearest point."""
    best, where = np.full((2, *np.broadcast_shapes(u.shape, v.shape)), 9, np.float32)
    lengths = [float(np.hypot(b[0] - a[0], b[1] - a[1])) for a, b in zip(points, points[1:])]
    start, total = 0.0, sum(lengths)
    for (a, b), length in zip(zip(points, points[1:]), lengths):
        du, dv = b[0] - a[0], b[1] - a[1]
        along = np.clip(((u - a[0]) * du + (v - a[1]) * dv) / (length * length), 0, 1)
        d = np.hypot(u - a[0] - along * du, v - a[1] - along * dv)
        here = (start + along * length) / total
        where = np.where(d < best, here, where)
        best = np.minimum(best, d)
        start += length
    return best.astype(np.float32), where.astype(np.float32)


def albedo(person: Person, grid: Grid, rng: np.random.Generator) -> np.ndarray:
    """Skin colour with all that is painted on it: planar linear RGB float32 (3, rows, columns)."""
    u, v = grid.points()
    au, shape = np.abs(u), (grid.rows, grid.columns)
    colour = np.repeat(person.skin[:, None], grid.rows * grid.columns, 1).reshape(3, *shape).copy()
    mottle = 0.045 * smooth_noise(rng, shape, 0.10 / grid.step) + 0.03 * smooth_noise(rng, shape, 0.035 / grid.step)
    tint = 0.03 * smooth_noise(rng, shape, 0.16 / grid.step)
    red = person.blush * (bump(au, v, 0.55, 0.34, 0.22, 0.18) + 0.7 * bump(u, v, 0, person.nose_v - 0.05, 0.14, 0.10)
                          + 0.3 * bump(u, v, 0, person.chin_v - 0.2, 0.25, 0.12))
    socket = bump(au, v, person.eye_u, person.eye_v + 0.09, 0.20, 0.08) * (0.10 + 0.16 * person.age)
    lid = 0.12 * bump(au, v, person.eye_u, person.eye_v - 0.08, 0.2, 0.06)
    colour[0] *= 1 + mottle + tint + 0.10 * red - 0.7 * socket - lid * 0.7
    colour[1] *= 1 + mottle - 0.20 * red - socket - lid
    colour[2] *= 1 + mottle - tint - 0.20 * red - 0.8 * socket - lid
    _spots(person, grid, rng, colour)
    _beard(person, grid, rng, colour)
    _brows(person, grid, rng, colour)
    nostril = bump(au, v, person.nose_w * 0.48, person.nose_v + 0.022, person.nose_w * 0.24, 0.024)
    cover(colour, person.skin * np.float32(0.12), np.clip(1.2 * nostril - 0.2, 0, 0.75))
    return np.clip(colour, 0.002, 1)


def _spots(person: Person, grid: Grid, rng: np.random.Generator, colour: np.ndarray) -> None:
    u, v = grid.points()
    if person.freckles > 0:
        spots = smooth_noise(rng, (grid.rows, grid.columns), 0.014 / grid.step)
        where = bump(np.abs(u), v, 0.38, 0.26, 0.30, 0.16) * person.freckles
        cover(colour, person.skin * np.array([0.55, 0.36, 0.28], np.float32), 0.75 * where * ramp((spots - 0.9) / 1.0))
    for mole_u, mole_v, radius in person.moles:
        d = np.hypot(u - mole_u, v - mole_v)
        alpha = np.clip((radius - d) / max(grid.step * 1.5, 0.012) + 0.5, 0, 1) * 0.85
        cover(colour, person.skin * np.array([0.16, 0.10, 0.08], np.float32), alpha)


def _beard(person: Person, grid: Grid, rng: np.random.Generator, colour: np.ndarray) -> None:
    if person.beard == "none":
        return
    u, v = grid.points()
    au, mv = np.abs(u), person.mouth_v
    noise = smooth_noise(rng, (grid.rows, grid.columns), 0.012 / grid.step)
    edge = v - (mv - 0.26 + 0.9 * np.clip(0.72 - au, 0, 1) ** 2 * 0.5 - 0.45 * np.clip(au - 0.55, 0, 1)) + 0.015 * noise
    full = ramp(edge / 0.14)
    moustache = ramp((v - (person.nose_v + 0.07)) / 0.06) * ramp((mv + 0.02 - v) / 0.05) * ramp(
        (person.mouth_w * 1.12 - au + 0.01 * noise) / 0.10)
    goatee = ramp((person.mouth_w * 0.95 - au + 0.015 * noise) / 0.14) * ramp((v - mv - 0.05) / 0.08)
    weight = {"stubble": 0.38 * np.maximum(full, moustache), "full": 0.85 * np.maximum(full, moustache),
              "goatee": 0.85 * np.maximum(goatee, moustache), "moustache": 0.88 * moustache}[person.beard]
    alpha = weight * np.clip(0.92 + 0.07 * noise, 0, 1)
    cover(colour, person.hair * 0.8 + person.skin * np.float32(0.06), alpha)


def _brows(person: Person, grid: Grid, rng: np.random.Generator, colour: np.ndarray) -> None:
    u, v = grid.points()
    au = np.abs(u)
    x = (au - 0.13) / (2 * person.brow_len)
    middle = brow_curve(person, np.clip(au, 0.10, 0.9))
    thick = person.brow_h * (0.55 + 0.6 * np.clip(1 - x, 0, 1)) * 0.62
    strands = smooth_noise(rng, (grid.rows, grid.columns), 0.016 / grid.step)
    soft = max(grid.step * 1.2, 0.022)
    alpha = np.clip((thick + 0.005 * strands - np.abs(v - middle)) / soft + 0.5, 0, 1)
    alpha = alpha * ramp(x / 0.12 + 0.35) * ramp((1.02 - x) / 0.22) * np.clip(0.92 + 0.06 * strands, 0, 1)
    cover(colour, person.hair * 0.65 + person.skin * np.float32(0.03), alpha)


# ---- folds ---------------------------------------------------------------------------------------------------------

def _folds(person: Person) -> list[tuple[dict[str, float], float, list[tuple[float, float]], float, float]]:
    """(driving units, depth that age adds, polyline on the right half, width, depth)."""
    ev, nv, mv = person.eye_v, person.nose_v, person.mouth_v
    brow, mw, nw = ev - person.brow_v, person.mouth_w, person.nose_w
    eye_end = person.eye_u + person.eye_w
    lines = [({"brow_down": 0.9}, 0.10, [(0.075, brow - 0.13), (0.085, brow), (0.07, brow + 0.10)], 0.026, 0.030)]
    for k in range(3):
        level = brow - 0.19 - 0.12 * k
        lines.append(({"brow_in": 0.45, "brow_out": 0.45}, 0.28,
                      [(0.0, level + 0.01), (0.22, level - 0.012), (0.5, level + 0.015)], 0.024, 0.020))
    lines += [
        ({"nose": 0.8}, 0.0, [(0.0, ev + 0.06), (0.06, ev + 0.075), (0.115, ev + 0.03)], 0.024, 0.022),
        ({"nose": 0.8}, 0.0, [(0.03, ev + 0.15), (0.09, ev + 0.16), (0.15, ev + 0.10)], 0.024, 0.020),
        ({"nose": 0.6}, 0.0, [(0.10, ev + 0.27), (0.16, ev + 0.23), (0.20, ev + 0.17)], 0.024, 0.014),
        ({"smile": 0.7, "lip_raise": 0.65, "nose": 0.35, "cheek": 0.2}, 0.35,
         [(nw + 0.04, nv - 0.04), (nw + 0.13, nv + 0.08), (mw + 0.11, mv - 0.08), (mw + 0.13, mv + 0.04)],
         0.045, 0.042),
        ({"frown": 0.8}, 0.22, [(mw + 0.02, mv + 0.05), (mw + 0.06, mv + 0.14), (mw + 0.05, mv + 0.22)], 0.035, 0.026),
        ({"cheek": 0.7, "lid_tight": 0.3}, 0.22, [(eye_end + 0.05, ev), (eye_end + 0.16, ev - 0.04)], 0.020, 0.014),
        ({"cheek": 0.7, "lid_tight": 0.3}, 0.22, [(eye_end + 0.05, ev + 0.05), (eye_end + 0.15, ev + 0.07)], 0.020,
         0.014),
        ({"cheek": 0.55, "lid_tight": 0.6}, 0.40,
         [(person.eye_u - person.eye_w, ev + 0.11), (person.eye_u, ev + 0.155), (eye_end - 0.03, ev + 0.12)],
         0.028, 0.018),
        ({"chin": 0.9}, 0.05, [(0.0, mv + 0.21), (0.10, mv + 0.22), (0.17, mv + 0.26)], 0.045, 0.028),
    ]
    return lines


def relief(person: Person, grid: Grid, rest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Relief as tables: at rest (rows, columns, 4), and what each unit adds (UNITS, rows, columns, 4).

    Channels: slope along u, slope along v, darkening in hollows, 0.
    """
    u, v = grid.points()
    au = np.abs(u)
    added = np.zeros((len(UNITS) + 1, grid.rows, grid.columns), np.float32)  # the last one: age
    for drivers, aged, points, width, depth in _folds(person):
        d, along = distance_to(au, v, points)
        groove = -depth * np.exp(-0.5 * (d / width) ** 2) * np.sqrt(np.clip(np.sin(np.pi * np.clip(
            0.12 + 0.80 * along, 0, 1)), 0, 1))
        for unit, weight in drivers.items():
            added[AU[unit]] += weight * groove
        added[-1] += aged * groove
    added[AU["cheek"]] += 0.045 * bump(au, v, 0.50, 0.30, 0.19, 0.13)
    added[AU["smile"]] += 0.050 * bump(au, v, person.mouth_w + 0.22, person.mouth_v - 0.24, 0.16, 0.14)
    added[AU["nose"]] += 0.018 * bump(au, v, 0.26, person.nose_v - 0.10, 0.10, 0.08)
    added[AU["brow_down"]] += 0.030 * bump(au, v, 0.22, person.eye_v - person.brow_v + 0.04, 0.13, 0.06)
    added[AU["chin"]] += 0.030 * bump(u, v, 0, person.chin_v - 0.24, 0.16, 0.08)
    still = rest + person.age * added[-1]
    return _slopes(still, grid.step), np.stack([_slopes(table, grid.step) for table in added[:-1]])


def _slopes(z: np.ndarray, step: float) -> np.ndarray:
    scale = 1.0 / (8.0 * step)
    hollow = np.clip(cv2.GaussianBlur(z, (0, 0), max(0.05 / step, 0.6)) - z, -0.03, 0.05)
    return np.stack([cv2.Sobel(z, cv2.CV_32F, 1, 0, ksize=3, scale=scale, borderType=cv2.BORDER_REPLICATE),
                     cv2.Sobel(z, cv2.CV_32F, 0, 1, ksize=3, scale=scale, borderType=cv2.BORDER_REPLICATE),
                     hollow, np.zeros_like(z)], axis=-1).astype(np.float32)


def coverage(person: Person, grid: Grid) -> np.ndarray:
    """Level function of the head on the grid, float32 (rows, columns): below 1 is skin."""
    u, v = grid.points()
    return outline(person, u, v).astype(np.float32)
