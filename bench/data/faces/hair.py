"""What surrounds the face: hair behind and in front, ears, neck and shirt, glasses, as RGBA tables of one video.

Tables are premultiplied linear RGBA, float32 (rows, columns, 4), lit for the video's light.
"""

from __future__ import annotations

import cv2
import numpy as np

from bench.data.faces.geometry import Grid, ramp
from bench.data.faces.person import Person
from bench.data.faces.scene import Scene
from bench.data.faces.skin import distance_to, smooth_noise


def strands_of(person: Person, grid: Grid, rng: np.random.Generator) -> np.ndarray:
    """Light and dark strands that run from the parting down the head, about -1 .. 1."""
    u, v = grid.points()
    fall = np.clip(v + person.top_v + 0.12, 0.02, 4)
    lean = person.part if person.hair_style in ("swept", "long") else 0.3 * person.part
    s = (u - lean) / (0.30 + 0.55 * np.sqrt(fall)) + 0.02 * np.sin(5.0 * v + 3.0 * u)
    if person.hair_style == "swept":  # arcs that leave the parting sideways, on its far side
        arcs = 1.3 * (v - 0.75 * (u - person.part) ** 2 + person.top_v)
        far = ramp((np.sign(-person.part) * (u - person.part) + 0.05) / 0.25)
        s = s * (1 - far) + arcs * far
    knots = np.linspace(-3, 3, 900)
    fine = np.interp(s, knots, rng.normal(0, 1, 900))
    broad = np.interp(s, np.linspace(-3, 3, 140), rng.normal(0, 1, 140))
    cloud = smooth_noise(rng, (grid.rows, grid.columns), 0.07 / grid.step)
    strands = 0.45 * fine + 0.55 * broad + 0.25 * cloud
    return np.clip(cv2.GaussianBlur(strands.astype(np.float32), (0, 0), 0.7) / 1.2, -1.2, 1.2)


def _hairline(person: Person, scene: Scene, u: np.ndarray) -> np.ndarray:
    """Where hair begins above the forehead, by style; temples and sideburns fall towards the ears."""
    x = np.abs(u) / person.width
    line = person.hairline + scene.hairline + person.hair_curve * 0.45 * x ** 2
    line = line + person.peak * np.exp(-(u / 0.13) ** 2) + 1.05 * ramp((x - 0.80) / 0.20)
    if person.hair_style == "short":
        line = line - 0.07 - 0.10 * np.exp(-((x - 0.55) / 0.16) ** 2)
    toward = np.sign(-person.part) * u
    if person.hair_style == "swept":
        line = line + 0.26 * ramp((toward + 0.30) / 0.95) - 0.03
    elif person.hair_style == "fringe":
        brow = person.eye_v - person.brow_v
        line = np.maximum(line, brow - 0.13 - 0.05 * np.cos(2.2 * u) + 0.04 * toward)
    elif person.hair_style == "long":
        line = line + 0.16 * ramp((np.abs(u - person.part) - 0.25) / 0.6) - 0.05
        line = line + 0.34 * ramp((x - 0.42) / 0.42) ** 2
    return line


def _front_alpha(person: Person, scene: Scene, grid: Grid, strands: np.ndarray) -> np.ndarray:
    u, v = grid.points()
    au, soft = np.abs(u), max(1.6 * grid.step, 0.05)
    volume = person.volume + scene.volume
    crown = np.hypot(u / (person.width + 0.45 * volume + 0.02), np.minimum(v, 0) / (person.top_v + volume))
    crown = crown + 0.022 * strands
    shell = np.clip((1.0 - crown) / soft + 0.5, 0, 1)
    cut = np.clip((_hairline(person, scene, u) + 0.045 * strands - v) / (soft * 1.3) + 0.5, 0, 1)
    below = ramp((0.22 - v) / 0.25) if person.hair_style in ("short", "swept") else 1.0
    alpha = shell * cut * below
    if person.hair_style in ("long", "fringe"):
        bottom = 1.75 if person.hair_style == "long" else 1.00
        wave = 0.035 * np.sin(4.2 * v + 2 * person.part)
        inner = np.clip((au - (0.83 * person.width - 0.03 * v + wave + 0.035 * strands)) / soft + 0.5, 0, 1)
        swell = (0.12 + volume) * ramp((v + 0.95) / 1.1)
        outer = np.clip((person.width + 0.03 + swell + 0.06 * v + wave + 0.03 * strands - au) / soft + 0.5, 0, 1)
        ends = np.clip((bottom + 0.10 * strands - v) / 0.16 + 0.5, 0, 1)
        alpha = np.maximum(alpha, inner * outer * ends * ramp((v + 0.75) / 0.3))
    return alpha.astype(np.float32)


def _back_alpha(person: Person, scene: Scene, grid: Grid, strands: np.ndarray) -> np.ndarray:
    u, v = grid.points()
    volume = person.volume + scene.volume
    soft = max(1.6 * grid.step, 0.05)
    top = np.hypot(u / (person.width + 0.06 + 0.5 * volume), np.minimum(v, 0) / (person.top_v + volume))
    bottom = {"long": 1.85, "fringe": 1.10}.get(person.hair_style, 0.35)
    if person.hair_style in ("long", "fringe"):
        width = person.width + 0.03 + (0.11 + volume) * ramp((v + 0.95) / 1.1)
    else:
        width = person.width + 0.03 - 0.24 * np.clip(v, 0, 1)
    side = np.clip((width + 0.03 * strands - np.abs(u)) / soft + 0.5, 0, 1)
    ends = np.clip((bottom + 0.10 * strands - v) / 0.16 + 0.5, 0, 1)
    return (np.clip((1 - top + 0.02 * strands) / soft + 0.5, 0, 1) * side * ends).astype(np.float32)


def _hair_colour(person: Person, scene: Scene, grid: Grid, strands: np.ndarray) -> np.ndarray:
    """Lit hair, (rows, columns, 3): round shading, strands, a soft band of gloss."""
    u, v = grid.points()
    nx, ny = np.clip(u / 1.15, -0.95, 0.95), np.clip(v / 1.5, -0.9, 0.35)
    nz = np.sqrt(np.clip(1 - nx ** 2 - ny ** 2, 0.05, 1))
    lx, ly, lz = scene.light
    lit = np.clip((nx * lx + ny * ly + nz * lz + 0.35) / 1.35, 0, 1)
    light = scene.key[None, None] * lit[..., None] + scene.fill[None, None] * (0.8 - 0.2 * ny)[..., None]
    tone = person.hair * np.float32(scene.hair) * np.exp(np.float32(0.42) * strands)[..., None]
    band = np.exp(-((v + 0.98 * person.top_v * np.sqrt(np.clip(1 - (u / 1.5) ** 2, 0.1, 1)) - 0.30
                     + 0.05 * strands) / 0.15) ** 2)
    gloss = 0.10 * band * lit * np.clip(0.5 + strands, 0, 1.5)
    return (tone * light * (0.75 + 0.5 * ramp((0.4 - v) / 1.6))[..., None]
            + gloss[..., None] * (0.5 * scene.key + 3 * tone)).astype(np.float32)


def _rgba(colour: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    return np.concatenate([colour * alpha[..., None], alpha[..., None]], axis=-1).astype(np.float32)


def _over(top: np.ndarray, under: np.ndarray) -> np.ndarray:
    return top + under * (1 - top[..., 3:])


def _ears(person: Person, scene: Scene, grid: Grid) -> np.ndarray:
    u, v = grid.points()
    au = np.abs(u)
    x, y = (au - person.width * 0.985) / 0.125, (v - (person.eye_v + 0.20) - 0.10 * (au - 1)) / 0.25
    r = np.hypot(x, y)
    alpha = np.clip((1 - r) / 0.22 + 0.5, 0, 1)
    lx, ly, _ = scene.light
    shade = 0.55 + 0.30 * np.sign(u) * lx + 0.25 * (1 - ramp((0.75 - r) / 0.4)) - 0.12 * ramp((0.4 - r) / 0.3)
    colour = person.skin * np.array([1.02, 0.86, 0.82], np.float32) * np.float32(scene.skin)
    light = (scene.key * 0.6 + scene.fill)[None, None] * np.clip(shade, 0.15, 1.1)[..., None]
    return _rgba(colour * light, alpha)


def _body(person: Person, scene: Scene, grid: Grid) -> np.ndarray:
    """Neck and shirt."""
    u, v = grid.points()
    lx, _, _ = scene.light
    chin = person.chin_v
    neck_w = 0.60 * person.width + 0.22 * ramp((v - chin - 0.15) / 0.5) ** 2
    neck = np.clip((neck_w - np.abs(u)) / (2 * grid.step) + 0.5, 0, 1) * ramp((v - 0.5) / 0.2)
    round_ = np.sqrt(np.clip(1 - (u / (neck_w + 0.02)) ** 2, 0.02, 1))
    shade = (0.25 + 0.65 * np.clip(round_ * 0.8 + lx * u * 0.6, 0, 1)) * (1 - 0.62 * np.exp(
        -np.clip(v - chin + 0.20 + 0.35 * u ** 2, 0, 3) / 0.30))
    colour = person.skin * np.float32(scene.skin * 0.92)
    skin = _rgba(colour * (scene.key * 0.8 + scene.fill)[None, None] * shade[..., None], neck)
    shoulder = chin + 0.40 + 0.16 * np.abs(u) ** 1.6 - 0.10 * np.exp(-(u / 0.5) ** 2) * -1.6
    alpha = np.clip((v - shoulder) / (2 * grid.step) + 0.5, 0, 1) * np.ones_like(u)
    fold = 0.75 + 0.15 * np.sin(3.1 * u + 2.0 * v + scene.pattern) + 0.25 * lx * u
    shirt = scene.shirt[None, None] * (scene.key * 0.7 + scene.fill)[None, None] * np.clip(fold, 0.2, 1.3)[..., None]
    return _over(_rgba(shirt, alpha), skin)


def layers(person: Person, scene: Scene, grid: Grid, strands: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(behind the face: hair, neck, shirt), (before it: ears, hair)."""
    colour = _hair_colour(person, scene, grid, strands)
    far = _rgba(colour * np.float32(0.6), _back_alpha(person, scene, grid, strands))
    behind = _over(_body(person, scene, grid), far)
    before = _over(_rgba(colour, _front_alpha(person, scene, grid, strands)), _ears(person, scene, grid))
    return behind, before


def spectacles(person: Person, grid: Grid) -> np.ndarray:
    """Frames with a faint reflection on the lenses, (rows, columns, 4)."""
    u, v = grid.points()
    au, cv = np.abs(u), person.eye_v + 0.035
    x, y = (au - person.eye_u - 0.01) / 0.29, (v - cv) / 0.235
    power = 2.0 if person.glasses == "round" else 5.0
    r = (np.abs(x) ** power + np.abs(y) ** power) ** (1 / power)
    soft = max(grid.step * 1.3, 0.02)
    rim = np.clip((person.frame_w - np.abs(r - 1) * 0.25) / soft + 0.5, 0, 1)
    bridge, _ = distance_to(au, v, [(0.0, cv - 0.09), (person.eye_u - 0.26, cv - 0.06)])
    arm, _ = distance_to(au, v, [(person.eye_u + 0.29, cv - 0.06), (person.width + 0.02, cv - 0.02)])
    thin = np.clip((person.frame_w * 0.9 - np.minimum(bridge, arm)) / soft + 0.5, 0, 1)
    alpha = 0.92 * np.maximum(rim, thin)
    colour = np.array([0.020, 0.018, 0.020], np.float32) * np.ones((*alpha.shape, 1), np.float32)
    lens = np.clip((1 - r) / 0.1, 0, 1) * (0.05 + 0.10 * ramp((0.25 - np.abs(x + 0.8 * y - 0.2)) / 0.2))
    frame = _rgba(colour, alpha)
    return _over(frame, _rgba(np.full((*alpha.shape, 3), 0.75, np.float32), lens))
