"""Where the face of a clip lies on the canvas: for methods that must know whether there is one.

The canvas is a face crop, which leaves a detector no background and no small face to look for; so it gets a border,
and faces under a fixed share of the side are not looked for. A clip of 16 frames is looked at for itself.
"""

from __future__ import annotations

import cv2
import numpy as np

from bench.detect import MARGIN, FaceDetector, largest_face
from bench.types import CLIP_FRAMES

SMALLEST_PX = 64  # smaller canvases are enlarged to this before detection
BORDER = 0.25  # grey border on every side, of the canvas side
FACE_SHARE = 0.4  # smallest face, of the bordered side
STRIDE = 8  # frames between two frames that are looked at; between them more only where they differ
GREY = 127  # of a frame that is not passed on


def found_faces(frames: np.ndarray) -> np.ndarray:
    """Box of the largest face in every frame of uint8 (T, S, S, 3): float64 (T, 4), px, NaN where there is none.

    Inside a clip of 16 frames every eighth and the last are looked at. Between two that both show a face the box is
    interpolated; between two that both show none there is none; where they differ, the frame in the middle decides.
    """
    clips = [_clip(frames[start:start + CLIP_FRAMES]) for start in range(0, len(frames), CLIP_FRAMES)]
    return np.concatenate(clips) if clips else np.zeros((0, 4))


def faces_only(frames: np.ndarray) -> tuple[np.ndarray, int]:
    """A copy of uint8 (T, S, S, 3) in which every frame without a face is grey, and how many those are."""
    lost = ~np.isfinite(found_faces(frames)[:, 0])
    out = frames.copy()
    out[lost] = GREY
    return out, int(lost.sum())


def looked_at(frames: np.ndarray) -> np.ndarray:
    """As `found_faces`, with a look at every frame."""
    side = frames.shape[1]
    scale = max(SMALLEST_PX, side) / side
    pad = round(BORDER * scale * side)
    boxes = FaceDetector(face_share=FACE_SHARE, threads=1).detect(np.stack([_framed(f, scale, pad) for f in frames]))
    best = [largest_face(found) for found in boxes]
    return np.stack([np.full(4, np.nan) if b is None else (b[:4] - pad) / scale for b in best])  # (T, 4)


def crop_box(side: int) -> np.ndarray:
    """(4,) px: where the harness put the face when it cut the canvas out, the middle without the margin."""
    rim = side * (1 - 1 / MARGIN) / 2
    return np.array([rim, rim, side - rim, side - rim])


def _framed(frame: np.ndarray, scale: float, pad: int) -> np.ndarray:
    if scale != 1:
        frame = cv2.resize(frame, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
    return cv2.copyMakeBorder(frame, pad, pad, pad, pad, cv2.BORDER_CONSTANT, value=(127, 127, 127))


def _clip(frames: np.ndarray) -> np.ndarray:
    boxes = np.full((len(frames), 4), np.nan)
    keys = sorted({*range(0, len(frames), STRIDE), len(frames) - 1})
    boxes[keys] = looked_at(frames[keys])
    spans = list(zip(keys, keys[1:], strict=False))
    while spans:
        first, last = spans.pop()
        seen = np.isfinite(boxes[[first, last], 0])
        if last - first < 2:
            continue
        if seen.all():
            share = np.linspace(0, 1, last - first + 1)[:, None]
            boxes[first:last + 1] = (1 - share) * boxes[first] + share * boxes[last]
        elif seen.any():
            middle = (first + last) // 2
            boxes[middle] = looked_at(frames[middle:middle + 1])[0]
            spans += [(first, middle), (middle, last)]
    return boxes
