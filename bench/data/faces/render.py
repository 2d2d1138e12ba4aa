"""From curves to pictures: one video's tables, layers, shading, camera.

Everything is float32 and works on all frames at once; planar colour is (3, T, H, W), linear RGB.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from bench.data.faces import features, hair
from bench.data.faces.expression import Performance
from bench.data.faces.geometry import Grid, bump, planar
from bench.data.faces.person import Person
from bench.data.faces.pose import Motion, View
from bench.data.faces.scene import Scene

BEHIND_Z, GLASSES_Z = -0.30, 0.50
_WRAP = (0.34, 0.20, 0.15)  # light wraps furthest around skin in red


@dataclass(frozen=True)
class Tables:
    """What a person keeps, on a fine grid over the face and a wide one around it."""

    face: Grid
    wide: Grid
    rest: np.ndarray  # (rows, columns) depth at rest
    moves: np.ndarray  # (units, 2, rows, columns) displacement
    albedo: np.ndarray  # (rows, columns, 3)
    level: np.ndarray  # (rows, columns) the outline's level function
    relief: np.ndarray  # (rows, columns, 4)
    folds: np.ndarray  # (units, rows, columns, 4)
    strands: np.ndarray  # (rows, columns) of the wide grid: light and dark in the hair


@dataclass(frozen=True)
class Clip:
    """One video before it is drawn."""

    person: Person
    tables: Tables
    act: Performance
    scene: Scene
    motion: Motion


@dataclass
class Layers:
    """Where each pixel looks: skin and frontal coordinates (T, H, W) and how much of each layer it shows."""

    u: np.ndarray
    v: np.ndarray
    p: np.ndarray
    q: np.ndarray
    x: np.ndarray
    y: np.ndarray
    face: np.ndarray
    before: np.ndarray
    behind: np.ndarray
    inner: np.ndarray  # eyes and the mouth's inside, where skin does not show


def fields(tables: Tables, act: Performance) -> np.ndarray:
    """Displacement, depth and a step for the inverse map per frame, float32 (T, rows, columns, 4), see Motion."""
    u, _ = tables.face.points()
    shape = (len(act.units), tables.face.rows, tables.face.columns)
    flat = tables.moves.reshape(len(tables.moves), -1)
    both = (act.units @ flat).reshape(shape[0], 2, *shape[1:])
    both += np.tanh(u / np.float32(0.05)) * (act.side @ flat).reshape(both.shape)
    out = np.zeros((*shape, 4), np.float32)
    out[..., 0], out[..., 1], out[..., 2] = both[:, 0], both[:, 1], tables.rest
    slope = (both[:, 1, 2:] - both[:, 1, :-2]) * np.float32(0.5 / tables.face.step)
    out[..., 3] = 1
    out[:, 1:-1, :, 3] = 1 / np.clip(1 + slope, 0.6, 4)
    return out


def draw(clip: Clip, view: View, size: int, rng: np.random.Generator) -> tuple[np.ndarray, Layers]:
    """Pictures uint8 (T, size, size, 3) of the view, and the layers behind them. `rng` draws the camera's noise."""
    motion, scene = clip.motion, clip.scene
    x, y = motion.head_units(view, size)
    u, v, p, q = motion.material(x, y)
    aa = float(view.side.mean()) / size / motion.scale
    wide = clip.tables.wide
    behind_table, before_table = hair.layers(clip.person, scene, wide, clip.tables.strands)
    behind = _sample(wide, behind_table, *motion.frontal(x, y, BEHIND_Z))
    before = _sample(wide, before_table, p, q)
    face, cover, inner = _skin(clip, u, v, p, q, aa)
    picture = _background(scene, view, size)
    picture *= 1 - behind[3]
    picture += behind[:3]
    picture += cover * (face - picture)
    picture *= 1 - before[3]
    picture += before[:3]
    if clip.person.glasses != "none":
        table = hair.spectacles(clip.person, clip.tables.wide)
        rims = _sample(wide, table, *motion.frontal(x, y, GLASSES_Z))
        picture *= 1 - rims[3]
        picture += rims[:3] * (scene.key * 0.6 + scene.fill).reshape(3, 1, 1, 1)
        inner = np.maximum(inner, rims[3])
    layers = Layers(u, v, p, q, x, y, cover, before[3], behind[3], inner)
    return _camera(picture, scene, view, size, rng), layers


def _sample(grid: Grid, table: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """One table for all frames: (T, H, W) points -> planar (C, T, H, W)."""
    frames, rows, columns = u.shape
    flat = grid.sample(table, u.reshape(-1, columns), v.reshape(-1, columns))
    return planar(flat.reshape(frames, rows, columns, -1))


def _skin(clip: Clip, u: np.ndarray, v: np.ndarray, p: np.ndarray, q: np.ndarray,
          aa: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lit skin with eyes and mouth: planar colour, coverage, coverage of eyes and mouth's inside."""
    grid, tables, person, act = clip.tables.face, clip.tables, clip.person, clip.act
    relief = tables.relief + np.tensordot(act.units, tables.folds, axes=(1, 0)).astype(np.float32)
    relief = grid.sample_each(relief, u, v)
    paint = np.concatenate([tables.albedo * _cast(clip)[..., None], tables.level[..., None]], axis=-1)
    painted = _sample(grid, paint.astype(np.float32), u, v)
    albedo, shine = painted[:3] * np.float32(clip.scene.skin), np.zeros_like(u)
    inner = np.zeros_like(u)
    rows = features.band(q, person.eye_v - 0.34, person.eye_v + 0.24)
    part = np.ascontiguousarray(albedo[:, :, rows])
    inner[:, rows] = features.eyes(part, shine[:, rows], p[:, rows], q[:, rows], person, act, aa)
    albedo[:, :, rows] = part
    rows = features.band(q, person.mouth_v - 0.32, person.mouth_v + 0.52)
    part = np.ascontiguousarray(albedo[:, :, rows])
    hole = features.mouth(part, shine[:, rows], p[:, rows], q[:, rows], person, act, aa)
    albedo[:, :, rows] = part
    inner[:, rows] = np.maximum(inner[:, rows], hole)
    cover = features.edge(1.0 - painted[3], max(aa * 1.3, 0.03))
    return _light(clip, albedo, shine, relief, inner), cover, inner


def _cast(clip: Clip) -> np.ndarray:
    """Shadows that stay put on the face in one video: under the nose, under hair, under the lower lip."""
    person, (lx, ly, _) = clip.person, clip.scene.light
    u, v = clip.tables.face.points()
    drop = 0.06 + 0.10 * max(-ly, 0.0)
    nose = bump(u, v, -0.14 * lx, person.nose_v + drop, person.nose_w * 0.8, 0.06) * (0.10 + 0.32 * max(-ly, 0.0))
    lip = 0.16 * bump(u, v, -0.05 * lx, person.mouth_v + 0.19, 0.17, 0.05)
    rim = 0.30 * np.clip((clip.tables.level - 0.72) / 0.28, 0, 1) ** 2
    line = person.hairline + clip.scene.hairline + person.hair_curve * 0.45 * u ** 2
    if person.hair_style == "fringe":
        line = np.maximum(line, person.eye_v - person.brow_v - 0.15)
    fringe = 0.34 * np.exp(-np.clip(v - line - 0.02, 0, 2) / 0.10)
    return ((1 - nose) * (1 - lip) * (1 - rim) * (1 - fringe)).astype(np.float32)


def _light(clip: Clip, albedo: np.ndarray, shine: np.ndarray, relief: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Wrapped diffuse light, fill from above, hollows, a soft highlight; (3, T, H, W)."""
    scene, pose = clip.scene, clip.motion.pose[:, :, None, None]
    gx, gy = relief[0], relief[1]
    steep = gx * gx + gy * gy
    soften = 1 / np.sqrt(1 + steep * np.float32(0.22))  # slopes saturate, so that no face of the relief goes black
    gx, gy = gx * soften, gy * soften
    nz = 1 / np.sqrt(1 + gx * gx + gy * gy)
    nx, ny = -gx * nz, -gy * nz
    nx, ny, nz = nx + pose[:, 0] * nz, ny + pose[:, 1] * nz, nz - pose[:, 0] * nx - pose[:, 1] * ny
    lx, ly, lz = (np.float32(value) for value in scene.light)
    toward = nx * lx + ny * ly + nz * lz
    occlusion = 1 - np.clip(relief[2] * np.float32(8.0), 0, np.float32(0.42)) * (1 - inner)
    sky = (np.float32(0.82) - np.float32(0.28) * ny) * occlusion
    hx, hy, hz = lx, ly, lz + np.float32(1)
    length = np.float32(1 / np.sqrt(hx * hx + hy * hy + hz * hz))
    gleam = np.clip((nx * hx + ny * hy + nz * hz) * length, 0, 1) ** 20 * (1 - inner) * np.float32(0.075)
    shine = shine + gleam
    out = np.empty_like(albedo)
    for channel, wrap in enumerate(_WRAP):
        diffuse = np.clip((toward + np.float32(wrap)) * np.float32(1 / (1 + wrap)), 0, 1) * (0.4 + 0.6 * occlusion)
        out[channel] = albedo[channel] * (scene.key[channel] * diffuse + scene.fill[channel] * sky) \
            + shine * scene.key[channel]
    return out


def _background(scene: Scene, view: View, size: int) -> np.ndarray:
    """The room behind, planar (3, T, size, size); it stands still in the camera frame."""
    n = len(scene.background)
    step = (np.arange(size, dtype=np.float32) + np.float32(0.5)) / np.float32(size)
    frames = len(view.x0)
    out = np.empty((3, frames, size, size), np.float32)
    last: tuple[float, ...] = ()
    for t in range(frames):
        here = (float(view.x0[t]), float(view.y0[t]), float(view.side[t]))
        if here == last:
            out[:, t] = out[:, t - 1]
            continue
        across = np.broadcast_to((view.x0[t] + view.side[t] * step) * n, (size, size)).astype(np.float32)
        down = np.broadcast_to(((view.y0[t] + view.side[t] * step) * n)[:, None], (size, size)).astype(np.float32)
        out[:, t] = planar(cv2.remap(scene.background, across, down, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT))
        last = here
    return out


def _camera(picture: np.ndarray, scene: Scene, view: View, size: int, rng: np.random.Generator) -> np.ndarray:
    """Exposure, defocus, gamma, noise: uint8 (T, size, size, 3)."""
    picture = cv2.merge([channel.reshape(-1, size) for channel in picture]).reshape(-1, size, size, 3)
    picture *= np.float32(scene.exposure)
    sigma = scene.blur * size / float(view.side.mean())
    if sigma > 0.25:
        for t in range(len(picture)):
            picture[t] = cv2.GaussianBlur(picture[t], (0, 0), sigma)
    np.sqrt(np.maximum(picture, 0, out=picture), out=picture)
    bright = np.maximum(picture - np.float32(0.78), 0)  # a soft shoulder instead of clipping
    picture -= bright * bright / (bright + np.float32(0.22))
    grain = rng.standard_normal(picture.shape[:3], dtype=np.float32) * np.float32(255 * scene.noise) + np.float32(0.5)
    picture *= np.float32(255)
    picture += grain[..., None]
    return np.clip(picture, 0, 255, out=picture).astype(np.uint8)
