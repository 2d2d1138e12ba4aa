"""Who a made person is: face shape, colours, hair, and a personal style of expressing.

Units: half a face width is about 1, u to the image's right, v down, the eye line at v = -0.07, the chin near 1.3.
Coarse cues (outline, colours, hair) survive strong blur, fine cues (eyes, brows, nose, mouth, moles) do not; MACRO
and FINE scale their spread about the middle of each range, so that an attacker's success falls in steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.seeds import derive

MACRO, FINE, COLOUR = 0.45, 1.4, 0.3
HAIR_STYLES = ("short", "swept", "long", "fringe")
_SKIN = np.array([[0.95, 0.76, 0.66], [0.82, 0.60, 0.47], [0.50, 0.34, 0.25]], np.float32)  # sRGB, light to dark
_DARK_HAIR = np.array([[0.10, 0.08, 0.07], [0.21, 0.14, 0.10], [0.17, 0.12, 0.12]], np.float32)
_LIGHT_HAIR = np.array([[0.47, 0.34, 0.23], [0.66, 0.52, 0.35], [0.48, 0.30, 0.19], [0.56, 0.50, 0.44]], np.float32)
_IRIS = np.array([[0.25, 0.14, 0.07], [0.36, 0.22, 0.10], [0.30, 0.42, 0.52], [0.34, 0.40, 0.26], [0.42, 0.44, 0.45]],
                 np.float32)
ATTRIBUTES = ("glasses", "beard", "older", "dark_hair")
BEARDS = ("stubble", "full", "goatee", "moustache")


@dataclass(frozen=True)
class Person:
    """Everything that stays the same in every video of one person. Lengths in face units, colours linear RGB."""

    width: float
    chin_v: float
    top_v: float
    power: float
    taper: float
    jaw: float
    cheek: float
    eye_u: float
    eye_v: float
    eye_w: float
    eye_h: float
    eye_tilt: float
    lid_fold: float
    iris: np.ndarray
    iris_r: float
    brow_v: float
    brow_h: float
    brow_len: float
    brow_arch: float
    brow_tilt: float
    nose_w: float
    nose_v: float
    bridge: float
    nose_z: float
    tip: float
    mouth_v: float
    mouth_w: float
    lip_up: float
    lip_low: float
    bow: float
    lip_red: float
    skin: np.ndarray
    blush: float
    freckles: float
    moles: np.ndarray  # (n, 3): u, v, radius
    age: float
    hair: np.ndarray
    hair_style: str
    hairline: float
    hair_curve: float
    peak: float
    volume: float
    part: float
    beard: str
    glasses: str
    frame_w: float

    @property
    def attributes(self) -> dict[str, int]:
        """Four binary attributes: glasses, beard, older, dark_hair."""
        return {"glasses": int(self.glasses != "none"), "beard": int(self.beard != "none"),
                "older": int(self.age > 0.5), "dark_hair": int(float(self.hair.mean()) < 0.04)}


@dataclass(frozen=True)
class Style:
    """How one person moves, drawn apart from how they look."""

    amplitude: float
    asymmetry: float
    speed: float
    talk_hz: float
    talk: float
    blink_hz: float
    nod: float
    beats: float
    weights: np.ndarray  # one factor per action unit


def linear(srgb: np.ndarray) -> np.ndarray:
    """Picture values in [0, 1] to linear light; the camera takes the square root."""
    return np.square(np.clip(srgb, 0, 1)).astype(np.float32)


def draw_person(seed: int, person: str) -> Person:
    """The person's look, from the stream (seed, "identity", person) alone."""
    rng = derive(seed, "identity", person)

    def coarse(low: float, high: float) -> float:
        return float((low + high) / 2 + (rng.random() - 0.5) * (high - low) * MACRO)

    def fine(low: float, high: float) -> float:
        return float((low + high) / 2 + (rng.random() - 0.5) * (high - low) * FINE)

    shape: dict[str, Any] = {"width": coarse(0.90, 1.06), "chin_v": coarse(1.20, 1.44), "top_v": coarse(1.28, 1.42),
             "power": coarse(2.0, 2.9), "taper": coarse(0.12, 0.34), "jaw": coarse(0.0, 0.09),
             "cheek": coarse(0.02, 0.09)}
    eyes: dict[str, Any] = {"eye_u": fine(0.37, 0.45), "eye_v": fine(-0.12, -0.02), "eye_w": fine(0.195, 0.245),
            "eye_h": fine(0.085, 0.140), "eye_tilt": fine(-0.16, 0.08), "lid_fold": fine(0.03, 0.07),
            "iris_r": fine(0.098, 0.112)}
    brows: dict[str, Any] = {"brow_v": fine(0.22, 0.29), "brow_h": fine(0.038, 0.074), "brow_len": fine(0.24, 0.31),
             "brow_arch": fine(0.01, 0.08), "brow_tilt": fine(-0.10, 0.10)}
    middle: dict[str, Any] = {"nose_w": fine(0.14, 0.205), "nose_v": fine(0.38, 0.46), "bridge": fine(0.07, 0.11),
              "nose_z": fine(0.20, 0.30), "tip": fine(0.085, 0.125), "mouth_v": fine(0.71, 0.79),
              "mouth_w": fine(0.27, 0.35), "lip_up": fine(0.05, 0.09), "lip_low": fine(0.07, 0.12),
              "bow": fine(0.1, 0.45), "lip_red": fine(0.25, 0.75)}
    bits = _attribute_bits(seed, person)
    return Person(**shape, **eyes, **brows, **middle, **_colours(rng, bits), **_hair(rng, bits, coarse))


def _attribute_bits(seed: int, person: str) -> dict[str, bool]:
    """The four attributes, each true for two of every four people p000-p003, p004-p007 and so on."""
    number = int(person[1:])
    block = derive(seed, "identity", "block", number // 4)
    return {name: bool(block.permutation(4)[number % 4] < 2) for name in ATTRIBUTES}


def _colours(rng: np.random.Generator, bits: dict[str, bool]) -> dict[str, Any]:
    tone = float(np.clip(0.7 + (rng.random() - 0.5) * 2.2 * COLOUR * 2, 0.0, 2.0))
    low = min(int(tone), 1)
    skin = _SKIN[low] + (_SKIN[low + 1] - _SKIN[low]) * (tone - low)
    skin = skin * (1 + rng.normal(0, 0.06 * COLOUR, 3))
    moles = []
    for _ in range(int(rng.integers(0, 5))):
        u, v = rng.uniform(-0.72, 0.72), rng.uniform(-0.55, 1.0)
        moles.append((u, v * (1 - 0.25 * abs(u)), rng.uniform(0.022, 0.038) * FINE))
    return {"iris": linear(_IRIS[rng.integers(len(_IRIS))]), "skin": linear(skin),
            "blush": float(rng.uniform(0.1, 0.5)), "freckles": float(rng.uniform(0.4, 1.0) * (rng.random() < 0.22)),
            "moles": np.array(moles, np.float32).reshape(-1, 3), "age": 0.5 * bits["older"] + 0.5 * float(rng.random())}


def _hair(rng: np.random.Generator, bits: dict[str, bool], coarse: Callable[[float, float], float]) -> dict[str, Any]:
    pool = _DARK_HAIR if bits["dark_hair"] else _LIGHT_HAIR
    middle = pool.mean(0)
    colour = middle + (pool[rng.integers(len(pool))] - middle) * (0.4 + COLOUR)
    beard = str(rng.choice(BEARDS)) if bits["beard"] else "none"
    glasses = str(rng.choice(["round", "square"])) if bits["glasses"] else "none"
    return {"hair": linear(colour), "hair_style": str(rng.choice(HAIR_STYLES)), "hairline": coarse(-0.90, -0.70),
            "hair_curve": coarse(0.05, 0.35), "peak": coarse(0.0, 0.10), "volume": coarse(0.06, 0.16),
            "part": float(rng.choice([-1, 1]) * rng.uniform(0.15, 0.4)), "beard": beard, "glasses": glasses,
            "frame_w": float(rng.uniform(0.02, 0.045))}


def draw_style(seed: int, person: str, units: int) -> Style:
    """The person's way of moving, from the stream (seed, "style", person) alone. `units`: number of action units."""
    rng = derive(seed, "style", person)
    return Style(amplitude=float(rng.uniform(0.82, 1.12)), asymmetry=float(rng.normal(0, 0.22)),
                 speed=float(rng.uniform(0.75, 1.3)), talk_hz=float(rng.uniform(2.6, 4.8)),
                 talk=float(rng.uniform(0.6, 1.2)), blink_hz=float(rng.uniform(0.15, 0.5)),
                 nod=float(rng.uniform(0.3, 1.2)), beats=float(rng.uniform(0, 0.25)),
                 weights=np.clip(rng.normal(1, 0.12, units), 0.5, 1.5).astype(np.float32))
