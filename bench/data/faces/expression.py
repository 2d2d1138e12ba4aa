"""What a made face does over time: action-unit curves, speech, blinks, gaze and head motion.

The onset ends by frame 6 and the apex holds until 4 frames before the end, so that every unpadded clip of 16 frames
shows its label. Part of the label lies in motion: classes differ in onset speed, rhythm, tremor, blinks, gaze and
head motion, and a still may catch speech, a resting habit or a passing expression instead of the lasting one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.data.faces.person import Style
from bench.seeds import derive
from bench.types import CLIP_FRAMES

EXPRESSIONS = ("anger", "disgust", "fear", "happy", "neutral", "sad")
UNITS = ("brow_in", "brow_out", "brow_down", "lid_up", "cheek", "lid_tight", "nose", "lip_raise", "smile", "frown",
         "chin", "stretch", "press", "open", "droop", "pucker")
AU = {name: index for index, name in enumerate(UNITS)}
FPS = 25.0
ONSET_END, OFFSET_FRAMES = 6, 4
PASSING = (2.0, 3.5)  # frames that a passing expression lasts
_PROTOTYPES = {
    "anger": {"brow_down": 1.0, "lid_tight": 0.6, "lid_up": 0.35, "press": 0.9, "chin": 0.25},
    "disgust": {"nose": 1.0, "lip_raise": 0.95, "brow_down": 0.55, "cheek": 0.35, "lid_tight": 0.5, "frown": 0.3},
    "fear": {"brow_in": 0.85, "brow_out": 0.75, "lid_up": 1.0, "stretch": 0.8, "open": 0.35},
    "happy": {"cheek": 0.8, "smile": 1.0, "lid_tight": 0.3, "open": 0.35},
    "neutral": {},
    "sad": {"brow_in": 1.0, "brow_down": 0.15, "frown": 0.9, "chin": 0.5, "droop": 0.5},
}
_ONSET = {"anger": 3.5, "disgust": 4.0, "fear": 2.0, "happy": 4.0, "neutral": 4.0, "sad": 6.0}  # frames
# rhythm: Hz, depth, units that pulse; the depth is relative to the unit's level
_RHYTHM = {"anger": (1.1, 0.30, ("brow_down", "press", "lid_tight")),
           "disgust": (1.8, 0.45, ("nose", "lip_raise", "lid_tight")),
           "fear": (0.0, 0.0, ()),
           "happy": (3.0, 0.35, ("smile", "cheek", "open")),
           "neutral": (0.0, 0.0, ()),
           "sad": (0.6, 0.25, ("brow_in", "frown"))}


@dataclass(frozen=True)
class Performance:
    """Curves of one video, float32. angles in radians, shift in face units."""

    units: np.ndarray  # (T, len(UNITS)), about 0 .. 1.2
    side: np.ndarray  # (T, len(UNITS)): added on the image's right half, taken off on the left
    blink: np.ndarray  # (T,) 0 open .. 1 shut
    gaze: np.ndarray  # (T, 2), -1 .. 1
    pose: np.ndarray  # (T, 3): yaw, pitch, roll
    shift: np.ndarray  # (T, 2)
    apex: np.ndarray  # (T,) 0 .. 1: how much of the expression is on


def smoothstep(x: np.ndarray) -> np.ndarray:
    """0 below 0, 1 above 1, smooth between."""
    x = np.clip(x, 0, 1)
    return x * x * (3 - 2 * x)


def perform(seed: int, names: tuple[str, str, int], style: Style, frames: int) -> Performance:
    """Curves of the video `names` = (person, label, take), from the stream (seed, "expression", *names)."""
    rng = derive(seed, "expression", *names)
    label = names[1]
    t = np.arange(frames, dtype=np.float32)
    apex = _envelope(rng, label, style, t)
    jitter = np.clip(rng.normal(1, 0.12, len(UNITS)), 0.5, 1.5)
    strength = float(rng.uniform(0.95, 1.3)) * style.amplitude * style.weights * jitter
    units = apex[:, None] * _levels(label) * strength
    units *= 1 + _rhythm(rng, label, style, t)
    for other, weight in _passing(rng, label, frames):
        units += weight[:, None] * (_levels(other) * strength - units)
    units += _habit(rng)[None] + _wander(rng, t) + _tremor(rng, label, apex, frames)
    _speech(rng, label, style, units, t)
    side = units * float(np.clip(style.asymmetry + rng.normal(0, 0.06), -0.45, 0.45)) * 0.5
    pose, shift = _head(rng, label, style, apex, t)
    return Performance(np.clip(units, -0.25, 1.35).astype(np.float32), side.astype(np.float32),
                       _blinks(rng, label, style, t), _gaze(rng, label, t), pose, shift, apex.astype(np.float32))


def _levels(label: str) -> np.ndarray:
    level = np.zeros(len(UNITS), np.float32)
    for unit, value in _PROTOTYPES[label].items():
        level[AU[unit]] = value
    return level


def _passing(rng: np.random.Generator, label: str, frames: int) -> list[tuple[str, np.ndarray]]:
    """A brief glance of another expression in each clip: (which, weight (T,)), PASSING frames long.

    One still cannot tell it from the lasting expression; the clip around it can.
    """
    others = [name for name in EXPRESSIONS if name != label]
    t, out = np.arange(frames), []
    for start in range(0, frames - CLIP_FRAMES // 2, CLIP_FRAMES):
        half = float(rng.uniform(*PASSING)) / 2
        middle = float(rng.uniform(max(start, ONSET_END + 1), min(start + CLIP_FRAMES, frames - OFFSET_FRAMES)))
        out.append((str(rng.choice(others)), 0.85 * smoothstep(half + 0.5 - np.abs(t - middle))))
    return out


def _envelope(rng: np.random.Generator, label: str, style: Style, t: np.ndarray) -> np.ndarray:
    """Onset done by ONSET_END, hold, then decay over the last OFFSET_FRAMES frames."""
    length = float(np.clip(_ONSET[label] / style.speed, 1.2, ONSET_END))
    start = float(rng.uniform(0, ONSET_END - length))
    rise = smoothstep((t - start + 0.25) / length)
    fall = smoothstep((t - (len(t) - OFFSET_FRAMES - 1)) / (OFFSET_FRAMES + 2.0))
    return np.where(t >= ONSET_END, 1.0, rise) * (1 - 0.8 * fall)


def _rhythm(rng: np.random.Generator, label: str, style: Style, t: np.ndarray) -> np.ndarray:
    hertz, depth, names = _RHYTHM[label]
    out = np.zeros((len(t), len(UNITS)))
    if not names:
        return out
    hertz *= 0.85 + 0.3 * rng.random()
    wave = np.sin(2 * np.pi * (hertz * t / FPS + rng.random()))
    for name in names:
        out[:, AU[name]] = depth * wave
    return out


def _habit(rng: np.random.Generator) -> np.ndarray:
    """A face that is never quite neutral: small constant levels, drawn for each video."""
    habit = np.abs(rng.normal(0, 0.06, len(UNITS)))
    habit[[AU["open"], AU["nose"], AU["droop"]]] *= 0.5
    return habit


def _wander(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
    phase = rng.random((2, len(UNITS))) * 2 * np.pi
    hertz = rng.uniform(0.2, 1.1, (2, len(UNITS)))
    waves = np.sin(2 * np.pi * hertz[:, None] * t[None, :, None] / FPS + phase[:, None])
    return 0.03 * waves.sum(0)


def _tremor(rng: np.random.Generator, label: str, apex: np.ndarray, frames: int) -> np.ndarray:
    size = {"fear": 0.22, "anger": 0.07}.get(label, 0.02)
    noise = rng.normal(0, 1, (frames, len(UNITS)))
    keep = np.zeros(len(UNITS))
    keep[[AU["brow_in"], AU["brow_out"], AU["stretch"], AU["open"], AU["lid_up"], AU["press"]]] = 1
    return size * noise * keep * apex[:, None]


def _speech(rng: np.random.Generator, label: str, style: Style, units: np.ndarray, t: np.ndarray) -> None:
    """Syllables open, round and stretch the mouth; written into `units`."""
    hertz = style.talk_hz * rng.uniform(0.9, 1.1)
    wave = np.clip(np.sin(2 * np.pi * (hertz * t / FPS + rng.random())), 0, 1)
    breath = np.clip(np.sin(2 * np.pi * (0.9 * t / FPS + rng.random())) + 0.75, 0, 1)
    size = style.talk * rng.uniform(0.7, 1.2) * {"sad": 0.55, "fear": 0.6, "anger": 1.1}.get(label, 0.9)
    syllable = np.repeat(rng.normal(0, 1, (len(t) // 4 + 2)), 4)[:len(t)]
    units[:, AU["open"]] += 0.50 * size * wave * breath
    units[:, AU["pucker"]] += 0.45 * size * breath * np.clip(syllable, 0, 1.2)
    units[:, AU["stretch"]] += 0.25 * size * breath * np.clip(-syllable, 0, 1.2)
    units[:, AU["press"]] *= 1 - 0.7 * wave * breath
    units[:, AU["brow_out"]] += style.beats * wave * breath


def _blinks(rng: np.random.Generator, label: str, style: Style, t: np.ndarray) -> np.ndarray:
    rate = style.blink_hz * {"fear": 0.5, "sad": 1.3, "anger": 0.5, "disgust": 1.2}.get(label, 1.0)
    half = {"sad": 3.2, "disgust": 2.6}.get(label, 1.7) * rng.uniform(0.9, 1.1)  # frames
    shut = np.zeros(len(t))
    for start in np.flatnonzero(rng.random(len(t)) < rate * 1.4 / FPS):
        shut = np.maximum(shut, np.clip(1.25 - np.abs(t - start) / half, 0, 1))
    return shut.astype(np.float32)


def _gaze(rng: np.random.Generator, label: str, t: np.ndarray) -> np.ndarray:
    """Fixations with jumps between them: frequent in fear, downcast in sad."""
    rate = {"fear": 3.5, "anger": 0.4, "sad": 0.5}.get(label, 1.1)
    change = np.cumsum(rng.random(len(t)) < rate / FPS)
    points = rng.normal(0, [0.30, 0.14], (int(change[-1]) + 1, 2))
    gaze = points[change] + np.array([0, {"sad": 0.22}.get(label, 0.0)])
    return np.clip(gaze, -0.9, 0.9).astype(np.float32)


def _head(rng: np.random.Generator, label: str, style: Style, apex: np.ndarray,
          t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    seconds = t / FPS
    pose = rng.normal(0, [0.10, 0.045, 0.035], 3) + np.zeros((len(t), 3))
    for axis, size in enumerate((0.035, 0.022, 0.018)):
        pose[:, axis] += size * style.nod * np.sin(2 * np.pi * (rng.uniform(0.3, 1.0) * seconds + rng.random()))
    phase = rng.random()
    if label == "happy":
        pose[:, 1] += 0.035 * apex * np.sin(2 * np.pi * (3.0 * seconds + phase))
        pose[:, 2] += 0.03 * apex * np.sign(phase - 0.5)
    elif label == "anger":
        pose[:, 0] += 0.035 * apex * np.sin(2 * np.pi * (2.2 * seconds + phase))
        pose[:, 1] += 0.05 * apex
    elif label == "disgust":
        pose[:, 0] += 0.10 * np.sign(phase - 0.5) * apex * smoothstep(seconds / 1.0)
        pose[:, 1] -= 0.04 * apex
    elif label == "fear":
        pose += apex[:, None] * rng.normal(0, [0.014, 0.012, 0.012], (len(t), 3))
        pose[:, 1] -= 0.05 * apex
    elif label == "sad":
        pose[:, 1] += 0.05 * apex + 0.06 * smoothstep(seconds / 1.4)
    shift = rng.normal(0, 0.05, 2) + 0.02 * np.stack(
        [np.sin(2 * np.pi * (rng.uniform(0.2, 0.6) * seconds + rng.random())) for _ in range(2)], axis=1)
    return pose.astype(np.float32), shift.astype(np.float32)
