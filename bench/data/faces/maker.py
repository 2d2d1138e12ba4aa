"""Makes videos by name: (seed, person, label, take) -> pictures on the canvas or in the full frame, and their truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.data.faces import features, geometry, hair, skin
from bench.data.faces.expression import EXPRESSIONS, UNITS, Performance, perform
from bench.data.faces.geometry import Grid, displacement, landmark_points
from bench.data.faces.person import Person, draw_person, draw_style
from bench.data.faces.pose import Motion, View
from bench.data.faces.render import BEHIND_Z, Clip, Layers, Tables, draw, fields
from bench.data.faces.scene import draw_scene
from bench.seeds import derive
from bench.types import CLIP_FRAMES

__all__ = ["EXPRESSIONS", "FaceMaker", "Truth"]

MARGIN = 1.3
_FOREHEAD = slice(17, 20)  # a detector's box does not reach up to the hairline
_KEEP = 4  # people whose tables are kept
_EYE_X = np.array([-1, -0.45, 0.45, 1, 0.45, -0.45], np.float32)
_MOUTH_X = np.array([-1, -0.5, 0, 0.5, 1, 0.5, 0, -0.5], np.float32)


@dataclass(frozen=True)
class Truth:
    """What is known of a made video.

    landmarks: float32 (T, 57, 2), x and y in pixels (pixel centres at .5): jaw 17, forehead 3, brows 10, nose 7,
    eyes 12, mouth 8.  flow: float32 (T - 1, S, S, 2), where each pixel's point goes in the next frame, in pixels.
    valid: bool (T - 1, S, S), False where the point is hidden, leaves the picture, or lies in an eye, in the mouth,
    under glasses or on the edge of two layers.
    """

    landmarks: np.ndarray
    flow: np.ndarray
    valid: np.ndarray


class FaceMaker:
    """All made videos of one seed. Nothing is kept between calls but a few people's tables."""

    def __init__(self, seed: int):
        self.seed = int(seed)
        self._tables: dict[tuple[str, float], Tables] = {}

    def person(self, name: str) -> Person:
        return draw_person(self.seed, name)

    def frames_of(self, names: tuple[str, str, int]) -> int:
        """32, or 40 for about a quarter of the videos."""
        return 40 if derive(self.seed, "length", *names).random() < 0.25 else 32

    def canvas(self, names: tuple[str, str, int], px: int) -> np.ndarray:
        """The face on the canvas, uint8 (T, px, px, 3)."""
        clip = self._clip(names, px, MARGIN * 2.1)
        return self._draw(clip, self._crop(clip), px, names)[0]

    def full_frame(self, names: tuple[str, str, int], px: int) -> np.ndarray:
        """What the camera saw, uint8 (T, px, px, 3)."""
        clip = self._clip(names, px, 3.7)
        return self._draw(clip, _whole(len(clip.act.units)), px, names)[0]

    def truth(self, names: tuple[str, str, int], px: int) -> Truth:
        """Landmarks and flow of `canvas(names, px)`."""
        clip = self._clip(names, px, MARGIN * 2.1)
        view = self._crop(clip)
        _, layers = self._draw(clip, view, px, names)
        flow, valid = _flow(clip, view, px, layers)
        return Truth(self._on_canvas(clip, view, px), flow, valid)

    def landmarks(self, names: tuple[str, str, int], px: int) -> np.ndarray:
        """Landmarks of `canvas(names, px)` alone, float32 (T, 57, 2) in pixels: nothing is drawn."""
        clip = self._clip(names, px, MARGIN * 2.1)
        return self._on_canvas(clip, self._crop(clip), px)

    def landmarks_full(self, names: tuple[str, str, int], px: int) -> np.ndarray:
        """Landmarks of `full_frame(names, px)`: float32 (T, 57, 2) in pixels."""
        return self._landmarks(self._clip(names, px, 3.7)) * np.float32(px)

    # ---- parts ----

    def _clip(self, names: tuple[str, str, int], px: int, span: float) -> Clip:
        person_name, label, _ = names
        if label not in EXPRESSIONS:
            raise ValueError(f"{label!r} is none of {EXPRESSIONS}")
        person = self.person(person_name)
        tables = self._tables_of(person_name, person, round(0.72 * span / px, 4))
        style = draw_style(self.seed, person_name, len(UNITS))
        act = perform(self.seed, names, style, self.frames_of(names))
        scene = draw_scene(self.seed, names)
        centre = np.array([0.5, 0.47], np.float32) + np.float32(scene.scale) * act.shift
        motion = Motion(tables.face, fields(tables, act), act.pose, centre, scene.scale, scene.stretch)
        return Clip(person, tables, act, scene, motion)

    def _tables_of(self, name: str, person: Person, step: float) -> Tables:
        key = (name, step)
        if key not in self._tables:
            while len(self._tables) >= _KEEP:
                del self._tables[next(iter(self._tables))]
            self._tables[key] = _make_tables(person, step, derive(self.seed, "texture", name))
        return self._tables[key]

    def _draw(self, clip: Clip, view: View, px: int, names: tuple[str, str, int]) -> tuple[np.ndarray, Layers]:
        return draw(clip, view, px, derive(self.seed, "noise", *names))

    def _crop(self, clip: Clip) -> View:
        """A square box of jaw, brows, nose, eyes and mouth with margin, one for each clip of 16 frames."""
        marks = np.delete(self._landmarks(clip), _FOREHEAD, axis=1)  # (T, K, 2) in frame units
        low, high = marks.min(1), marks.max(1)
        side = (high - low).max(1) * MARGIN
        middle = (high + low) / 2
        out = np.empty((len(marks), 3), np.float32)
        for start in range(0, len(marks), CLIP_FRAMES):
            part = slice(start, start + CLIP_FRAMES)
            box = side[part].mean()
            out[part] = [*(middle[part].mean(0) - box / 2), box]
        return View(out[:, 0].copy(), out[:, 1].copy(), out[:, 2].copy())

    def _on_canvas(self, clip: Clip, view: View, px: int) -> np.ndarray:
        marks = (self._landmarks(clip) - np.stack([view.x0, view.y0], 1)[:, None]) / view.side[:, None, None] * px
        return marks.astype(np.float32)

    def _landmarks(self, clip: Clip) -> np.ndarray:
        """Float32 (T, 57, 2) in frame units."""
        frames, motion = len(clip.act.units), clip.motion
        still = landmark_points(clip.person)
        points = np.concatenate([still[part] for part in ("jaw", "forehead", "brow", "nose")])
        grid = np.broadcast_to(points[None, None], (frames, 1, len(points), 2))
        skin_xy = np.stack(motion.place(np.ascontiguousarray(grid[..., 0]), np.ascontiguousarray(grid[..., 1])), -1)
        p, q = _rule_points(clip.person, clip.act)
        z = np.stack([motion.grid.sample(f, a, b)[..., 2].reshape(a.shape) for f, a, b in zip(motion.fields, p, q)])
        rule_xy = np.stack(motion.project(p, q, z), -1)
        return np.concatenate([skin_xy, rule_xy], axis=2)[:, 0].astype(np.float32)


def _rule_points(person: Person, act: Performance) -> tuple[np.ndarray, np.ndarray]:
    """Frontal points of eyes and mouth, float32 (T, 1, 20) each."""
    parts_p, parts_q = [], []
    for side in (-1.0, 1.0):
        upper, lower = features.lids(person, act, side)
        arch = np.clip(1 - _EYE_X ** 2, 0, 1)
        y = np.where(np.arange(6) < 4, upper * arch ** 0.7, lower * arch)
        across = _EYE_X * person.eye_w
        parts_p.append(np.broadcast_to(side * (person.eye_u + across), y.shape))
        parts_q.append(person.eye_v + person.eye_tilt * across + y)
    x = _MOUTH_X[None, None]
    curve = features.mouth_curves(person, act, x, np.sign(x))
    parts_q.append(np.where(np.arange(8) < 4, curve["out_up"], curve["out_low"]))
    parts_p.append(x * features.mouth_width(person, act))
    p, q = np.concatenate(parts_p, -1), np.concatenate(parts_q, -1)
    return np.ascontiguousarray(p, np.float32), np.ascontiguousarray(q, np.float32)


def _make_tables(person: Person, step: float, rng: np.random.Generator) -> Tables:
    face = Grid.over(-1.3, -1.6, 1.3, 1.75, step)
    wide = Grid.over(-1.95, -1.95, 1.95, 2.45, step)
    u, v = face.points()
    rest = geometry.height(person, u, v)
    relief, folds = skin.relief(person, face, rest)
    return Tables(face, wide, rest, displacement(person, u, v),
                  np.ascontiguousarray(np.moveaxis(skin.albedo(person, face, rng), 0, -1)),
                  skin.coverage(person, face), relief, folds, hair.strands_of(person, wide, rng))


def _whole(frames: int) -> View:
    return View(np.zeros(frames, np.float32), np.zeros(frames, np.float32), np.ones(frames, np.float32))


def _flow(clip: Clip, view: View, px: int, layers: Layers) -> tuple[np.ndarray, np.ndarray]:
    """Forward flow in pixels and where it holds."""
    now, then = slice(None, -1), slice(1, None)
    motion = clip.motion
    z = np.stack([motion.grid.sample(f, a, b)[..., 2] for f, a, b in zip(motion.fields, layers.u, layers.v)])
    share_behind = layers.behind * (1 - layers.face) * (1 - layers.before)
    share = np.stack([layers.face * (1 - layers.before), layers.before, share_behind])
    share = np.concatenate([share, 1 - share.sum(0, keepdims=True)])
    which = share.argmax(0)
    half = (np.arange(px, dtype=np.float32) + np.float32(0.5)) / np.float32(px)
    still_x = view.x0[:, None, None] + view.side[:, None, None] * half + 0 * half[:, None]
    still_y = view.y0[:, None, None] + view.side[:, None, None] * half[:, None] + 0 * half
    back = motion.frontal(layers.x, layers.y, BEHIND_Z)
    goes = [motion.place(layers.u[now], layers.v[now], then),
            motion.project(layers.p[now], layers.q[now], z[now], then),
            motion.project(back[0][now], back[1][now], BEHIND_Z, then),
            (still_x[now], still_y[now])]
    x = np.choose(which[now], [g[0] for g in goes])
    y = np.choose(which[now], [g[1] for g in goes])
    to_x = (x - view.x0[then, None, None]) / view.side[then, None, None] * px
    to_y = (y - view.y0[then, None, None]) / view.side[then, None, None] * px
    flow = np.stack([to_x - half * px, to_y - (half * px)[:, None]], -1).astype(np.float32)
    here = motion.place(layers.u, layers.v)  # where the inverse map missed its pixel, the flow is not to be trusted
    miss = np.maximum(np.abs(here[0] - still_x), np.abs(here[1] - still_y)) / view.side[:, None, None] * px
    pure = (share.max(0) > 0.97) & (layers.inner < 0.02) & ((which != 0) | (miss < 0.1))
    inside = (to_x > 0.5) & (to_x < px - 0.5) & (to_y > 0.5) & (to_y < px - 0.5)
    col, row = np.clip(to_x.astype(int), 0, px - 1), np.clip(to_y.astype(int), 0, px - 1)
    frame = np.arange(len(flow))[:, None, None]
    same = (which[then][frame, row, col] == which[now]) & pure[then][frame, row, col]
    return flow, pure[now] & inside & same

