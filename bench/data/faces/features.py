"""Eyes and mouth, drawn by rule in every frame on planar skin colour (3, T, H, W), with soft edges one pixel wide."""

from __future__ import annotations

import numpy as np

from bench.data.faces.expression import AU, Performance
from bench.data.faces.geometry import ramp
from bench.data.faces.person import Person
from bench.data.faces.skin import cover

_SCLERA = np.array([0.66, 0.62, 0.59], np.float32)
_LASH = np.array([0.012, 0.009, 0.008], np.float32)
_INSIDE = np.array([0.055, 0.010, 0.010], np.float32)
_TEETH = np.array([0.72, 0.68, 0.60], np.float32)
_TONGUE = np.array([0.36, 0.10, 0.09], np.float32)


def level(act: Performance, unit: str, side: np.ndarray | float = 0.0) -> np.ndarray:
    """A unit's curve as (T, 1, 1), or (T, H, W) with its asymmetry when `side` is the sign of u."""
    value = act.units[:, AU[unit], None, None]
    return value if np.isscalar(side) and side == 0.0 else value + side * act.side[:, AU[unit], None, None]


def band(q: np.ndarray, low: float, high: float) -> slice:
    """Rows of the picture in which q lies between low and high in any frame."""
    hit = np.flatnonzero(((q > low) & (q < high)).any(axis=(0, 2)))
    return slice(0, 0) if len(hit) == 0 else slice(int(hit[0]), int(hit[-1]) + 1)


def edge(distance: np.ndarray, aa: float) -> np.ndarray:
    """Coverage of a shape whose inside has positive distance."""
    return np.clip(distance * np.float32(1 / aa) + np.float32(0.5), 0, 1)


def lids(person: Person, act: Performance, side: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """Heights of the upper and lower lid at the eye's middle, relative to the eye line (upper negative)."""
    lift = 1 + 0.60 * level(act, "lid_up", side) - 0.50 * level(act, "lid_tight", side) \
        - 0.40 * level(act, "droop", side) - 0.12 * level(act, "nose", side)
    low = 1 - 0.42 * level(act, "cheek", side) - 0.40 * level(act, "lid_tight", side) \
        + 0.15 * level(act, "lid_up", side)
    blink = act.blink[:, None, None]
    lower = person.eye_h * 0.58 * np.clip(low, 0.1, 1.3) * (1 - 0.3 * blink)
    upper = -person.eye_h * np.clip(lift, 0.15, 1.7)
    return upper + (lower * 0.9 - upper) * blink, lower


def eyes(albedo: np.ndarray, shine: np.ndarray, p: np.ndarray, q: np.ndarray, person: Person, act: Performance,
         aa: float) -> np.ndarray:
    """Paint both eyes; returns their coverage (T, H, W). `shine` (T, H, W) receives the catch-light."""
    side = np.where(p < 0, np.float32(-1), np.float32(1))
    across = np.abs(p) - np.float32(person.eye_u)
    x = across * np.float32(1 / person.eye_w)
    y = q - np.float32(person.eye_v) - np.float32(person.eye_tilt) * across
    upper, lower = lids(person, act, side)
    arch = np.clip(1 - x * x, 0, 1)
    lid_u, lid_l = upper * arch ** np.float32(0.7), lower * arch
    inside = np.minimum(y - lid_u, lid_l - y)
    white = edge(inside, aa) * edge((1.0 - np.abs(x)) * person.eye_w + aa, aa)
    shade = 0.50 + 0.50 * ramp((y - lid_u) * 9) - 0.22 * x * x
    sclera = np.empty_like(albedo)
    for channel in range(3):
        sclera[channel] = _SCLERA[channel] * shade
    gaze_x, gaze_y = act.gaze[:, 0, None, None] * np.float32(0.075), act.gaze[:, 1, None, None] * np.float32(0.05)
    d = np.hypot(across * side - gaze_x, y + np.float32(0.015) - gaze_y)
    ring = np.clip(1.15 - 0.75 * ramp((d - person.iris_r * 0.7) / (person.iris_r * 0.35)), 0, 2)
    iris = edge(person.iris_r - d, aa)
    ring = ring * (0.55 + 0.45 * ramp((y - lid_u) * 8))
    for channel in range(3):
        sclera[channel] += iris * (person.iris[channel] * ring - sclera[channel])
    cover(sclera, _LASH, edge(person.iris_r * 0.45 - d, aa))
    albedo += white * (sclera - albedo)
    open_ = np.clip((lid_l - lid_u) * 12, 0, 1)
    gleam = np.exp(-((across * side - gaze_x + 0.028) ** 2 + (y + 0.05 - gaze_y) ** 2) * np.float32(1 / 0.0011))
    shine += 0.55 * white * gleam
    within = ramp((1.12 - np.abs(x)) * 6)
    lash = edge(0.014 + 0.010 * ramp(x + 0.4) - np.abs(y - lid_u + 0.006), max(aa, 0.02)) * within
    cover(albedo, _LASH, 0.85 * lash)
    fold = np.exp(-((y - upper * arch ** np.float32(0.55) + person.lid_fold) / 0.016) ** 2)
    cover(albedo, person.skin * np.float32(0.25), 0.45 * fold * within * open_)
    cover(albedo, person.skin * np.float32(0.30), 0.35 * edge(0.008 - np.abs(y - lid_l), max(aa, 0.02)) * within)
    return white


def mouth_curves(person: Person, act: Performance, x: np.ndarray, side: np.ndarray | float) -> dict[str, np.ndarray]:
    """Heights (frontal q) of the lips' four curves at x in -1..1 across the mouth, and the half width."""
    bend = np.abs(x) ** np.float32(1.8)
    corner = -0.165 * level(act, "smile", side) + 0.135 * level(act, "frown", side) + 0.02 * level(act, "stretch", side)
    middle = 0.02 * level(act, "smile") - 0.03 * level(act, "frown") - 0.02 * level(act, "chin") \
        - 0.015 * level(act, "nose")
    line = person.mouth_v + middle + (corner - middle) * bend
    hood = np.clip(1 - x * x, 0, 1)
    opened = np.clip(level(act, "open"), 0, 1.3)
    raise_ = np.clip(level(act, "lip_raise", side), 0, 1.3)
    smile, stretch = np.clip(level(act, "smile"), 0, 1.3), np.clip(level(act, "stretch"), 0, 1.3)
    parted = np.clip(level(act, "open") + 0.35 * smile + 0.5 * raise_ + 0.3 * stretch - 0.8 * level(act, "press"), 0, 1)
    gap_up = 0.030 * opened + 0.065 * raise_ + 0.030 * parted * (0.5 + smile)
    gap_low = 0.175 * opened + 0.020 * parted * (1 + smile) + 0.015 * raise_
    thin = 1 - 0.60 * level(act, "press") - 0.22 * smile - 0.15 * stretch + 0.22 * level(act, "pucker")
    thin = np.clip(thin, 0.2, 1.4)
    in_up = line - gap_up * hood ** np.float32(0.6)
    in_low = line + gap_low * hood ** np.float32(0.75)
    cupid = 1 - person.bow * 0.8 * np.exp(-(x / 0.16) ** 2) + 0.10 * np.exp(-((np.abs(x) - 0.30) / 0.15) ** 2)
    return {"in_up": in_up, "in_low": in_low, "out_up": in_up - person.lip_up * thin * cupid * hood ** np.float32(0.8),
            "out_low": in_low + person.lip_low * thin * hood ** np.float32(0.62), "parted": parted}


def mouth_width(person: Person, act: Performance) -> np.ndarray:
    """Half width of the mouth, (T, 1, 1)."""
    return person.mouth_w * np.clip(1 + 0.30 * level(act, "smile") + 0.20 * level(act, "stretch")
                                    - 0.26 * level(act, "pucker") - 0.06 * level(act, "open"), 0.55, 1.6)


def mouth(albedo: np.ndarray, shine: np.ndarray, p: np.ndarray, q: np.ndarray, person: Person, act: Performance,
          aa: float) -> np.ndarray:
    """Paint lips, teeth and the mouth's inside; returns the coverage (T, H, W) of the inside."""
    side = np.where(p < 0, np.float32(-1), np.float32(1))
    width = mouth_width(person, act).astype(np.float32)
    x = p / width
    curve = {k: c.astype(np.float32) for k, c in mouth_curves(person, act, np.clip(x, -1, 1), side).items()}
    within = edge((1.0 - np.abs(x)) * width, aa * 1.5)
    lips = edge(np.minimum(q - curve["out_up"], curve["out_low"] - q), aa * 1.4) * within
    upper = q < (curve["in_up"] + curve["in_low"]) * 0.5
    red = person.skin * (1 - np.array([0.12, 0.52, 0.48], np.float32) * (0.45 + 0.6 * person.lip_red))
    tone = np.where(upper, np.float32(0.76), np.float32(0.98))
    for channel in range(3):
        albedo[channel] += 0.92 * lips * (red[channel] * tone - albedo[channel])
    low_middle = curve["in_low"] * 0.45 + curve["out_low"] * 0.55
    shine += 0.10 * lips * np.exp(-((q - low_middle) / 0.022) ** 2) * np.exp(-(x / 0.5) ** 2)
    line = np.exp(-((q - (curve["in_up"] + curve["in_low"]) * 0.5) / np.maximum(aa * 0.45, 0.014)) ** 2) * within
    cover(albedo, _INSIDE * np.float32(1.3), 0.75 * line)
    hole = edge(np.minimum(q - curve["in_up"], curve["in_low"] - q) - aa * 0.25, aa) * within
    inner = np.empty_like(albedo)
    inner[:] = _INSIDE.reshape(3, 1, 1, 1)
    tongue = ramp((q - curve["in_low"] + 0.075) / 0.05) * ramp((0.8 - np.abs(x)) * 3)
    cover(inner, _TONGUE, 0.7 * tongue)
    teeth = edge(curve["in_up"] + 0.075 - q, aa) * ramp((0.92 - np.abs(x)) * 6) * np.clip(curve["parted"] * 3, 0, 1)
    gaps = 0.93 + 0.07 * np.cos(p * np.float32(2 * np.pi / 0.085))
    for channel in range(3):
        inner[channel] += teeth * (_TEETH[channel] * gaps * (1 - 0.5 * x * x) - inner[channel])
    albedo += hole * (inner - albedo)
    return hole
