"""Pictures of the crossing: 320 x 240, two frames a second, from simulated positions, signs and weather.

Seen from above, three pixels a metre; what the camera counts is the square in the middle, the sign stands beside it.
The scenes are easy: flat colours, nothing hides anything. Errors of a vision expert on them are a lower bound.
"""

from __future__ import annotations

import cv2
import numpy as np

from bench import seeds
from bench.data.crossing import committed
from bench.data.crossing.demand import SEED
from bench.data.crossing.labels import chain
from bench.data.crossing.simulate import HALF_M
from bench.traffic import CHUNK_FRAMES, EXPERTS

WIDTH, HEIGHT = 320, 240
PX_PER_M = HEIGHT / (2 * HALF_M)
CAR_M = (5.0, 1.8)  # SUMO's own passenger car; its position is the middle of the front bumper
_PERSON_PX = 2
_ROAD, _PAVEMENT, _GRASS, _LINE = (92, 92, 96), (150, 148, 142), (86, 118, 74), (214, 214, 208)
_ROAD_M, _WALK_M = 6.4, 9.4  # half widths: two lanes each way, and a sidewalk beside them
_CARS = ((196, 52, 48), (48, 84, 180), (232, 232, 236), (30, 30, 34), (222, 170, 40), (60, 140, 90))  # RGB
_PEOPLE = ((250, 120, 60), (240, 230, 80), (120, 220, 250), (250, 140, 220))
_NOISE, _BANK, _FINE = 3.0, 16, 16  # sensor noise sd, pictures of it, sub-pixel steps
_WEATHER = next(e.components for e in EXPERTS if e.name == "environment")
_SIGNS = next(e.components for e in EXPERTS if e.name == "signs")
_SIGN_PX = (20, 60)


def _place(x_m: float, y_m: float) -> tuple[float, float]:
    """Metres east and north of the middle -> pixels right and down."""
    return WIDTH / 2 + x_m * PX_PER_M, HEIGHT / 2 - y_m * PX_PER_M


def background() -> np.ndarray:
    """The empty crossing in clear weather, without a sign: uint8 (240, 320, 3) RGB."""
    image = np.full((HEIGHT, WIDTH, 3), _GRASS, np.uint8)
    for half, colour in ((_WALK_M, _PAVEMENT), (_ROAD_M, _ROAD)):
        left, top = _place(-half, half)
        right, bottom = _place(half, -half)
        image[:, round(left):round(right)] = colour
        image[round(top):round(bottom)] = colour
    for start in range(12, round(HALF_M), 4):  # the middle lines of the four arms
        for x, y, wide, high in ((0, start, .2, 2), (0, -start, .2, 2), (start, 0, 2, .2), (-start, 0, 2, .2)):
            a, b = _place(x - wide / 2, y + high / 2), _place(x + wide / 2, y - high / 2)
            cv2.rectangle(image, (round(a[0]), round(a[1])), (round(b[0]), round(b[1])), _LINE, -1)
    return image


def _car(image: np.ndarray, x_m: float, y_m: float, angle: float, colour: tuple[int, int, int]) -> None:
    """A turned box; angle in degrees clockwise from north."""
    ahead = np.array([np.sin(np.radians(angle)), np.cos(np.radians(angle))])
    side, front = np.array([ahead[1], -ahead[0]]) * CAR_M[1] / 2, np.array([x_m, y_m])
    back = front - ahead * CAR_M[0]
    corners = [_place(*corner) for corner in (front + side, front - side, back - side, back + side)]
    cv2.fillConvexPoly(image, np.round(np.array(corners) * _FINE).astype(np.int32), colour, cv2.LINE_AA, 4)


def _sign(image: np.ndarray, name: str) -> None:
    """What the board beside the road shows; nothing when there is no sign."""
    x, y = _SIGN_PX
    if name == "stop":
        angles = np.radians(np.arange(8) * 45 + 22.5)
        cv2.fillConvexPoly(image, np.round(np.stack([x + 12 * np.cos(angles), y + 12 * np.sin(angles)], axis=1)
                                           ).astype(np.int32), (200, 20, 30), cv2.LINE_AA)
    elif name == "speed_limit":
        cv2.circle(image, (x, y), 12, (200, 20, 30), -1, cv2.LINE_AA)
        cv2.circle(image, (x, y), 8, (245, 245, 245), -1, cv2.LINE_AA)
    elif name == "other_sign":
        cv2.fillConvexPoly(image, np.array([[x, y - 12], [x + 12, y + 10], [x - 12, y + 10]]), (240, 200, 30),
                           cv2.LINE_AA)


def _weathered(image: np.ndarray, name: str, rng: np.random.Generator) -> np.ndarray:
    """Clear: as it is. Rain: darker, with streaks. Fog: towards grey. Other: dusk."""
    if name == "rain":
        image = (image * 0.8).astype(np.uint8)
        for x, y in rng.integers((0, 0), (WIDTH, HEIGHT), (120, 2)):
            cv2.line(image, (int(x), int(y)), (int(x) - 1, int(y) + 5), (170, 175, 185), 1)
    elif name == "fog":
        image = (image * 0.45 + 200 * 0.55).astype(np.uint8)
    elif name == "other_weather":
        image = (image * 0.5).astype(np.uint8)
    return image


def draw(rows: np.ndarray, sign: str, weather: str, rng: np.random.Generator, *, noise: bool = True) -> np.ndarray:
    """One frame uint8 (240, 320, 3). rows: what is in view, int (n, 7), columns simulate.TRACK."""
    image = background()
    _sign(image, sign)
    for _, number, kind, _, x, y, angle in rows.tolist():
        if kind == 0:
            _car(image, x / 10, y / 10, angle, _CARS[number % len(_CARS)])
        else:
            px, py = _place(x / 10, y / 10)
            cv2.circle(image, (round(px), round(py)), _PERSON_PX, _PEOPLE[number % len(_PEOPLE)], -1)
    image = _weathered(image, weather, rng)
    return np.clip(image + _bank()[int(rng.integers(_BANK))], 0, 255).astype(np.uint8) if noise else image


_banks: list[np.ndarray] = []


def _bank() -> np.ndarray:
    """Sensor noise int16 (16, 240, 320, 3), drawn once: drawing it for each frame would cost more than the frame."""
    if not _banks:
        rng = seeds.derive(SEED, "sumo_crossing", "sensor")
        _banks.append(np.round(rng.normal(0, _NOISE, (_BANK, HEIGHT, WIDTH, 3))).astype(np.int16))
    return _banks[0]


def chunk(episode: int, number: int) -> np.ndarray:
    """The four frames of one chunk, uint8 (4, 240, 320, 3). Raises DataError for an episode without tracks.

    A chunk is drawn by itself: the same whether or not any other one is.
    """
    track, frames = committed.tracks(episode), []
    sign, weather = (_SIGNS[chain("signs", episode)[number]], _WEATHER[chain("environment", episode)[number]])
    rng = seeds.derive(SEED, "sumo_crossing", "picture", episode, number)
    for frame in range(number * CHUNK_FRAMES, (number + 1) * CHUNK_FRAMES):
        frames.append(draw(track[track[:, 0] == frame], sign, weather, rng))
    return np.stack(frames)


def empty_frames(count: int, weather: str = "clear") -> np.ndarray:
    """Public pictures of the crossing without anybody, uint8 (count, 240, 320, 3), for a frozen background model."""
    rng = seeds.derive(SEED, "sumo_crossing", "empty", weather)
    return np.stack([draw(np.zeros((0, 7), int), "no_sign", weather, rng) for _ in range(count)])
