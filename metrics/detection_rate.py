"""In how many released frames a face detector still finds a face."""

from __future__ import annotations

from functools import cache

import cv2
import numpy as np

from bench import Column, metric
from bench.detect import FaceDetector

FRAMES = 4  # looked at in each video
FACE_PX = 160  # the canvas is enlarged to this side for the detector
PAD_PX = 32  # grey border on every side: the crop leaves the detector no background
FACE_SHARE = 0.4  # smallest face looked for, of the bordered side: the canvas is a face crop, small faces are noise


@metric("detection_rate", of="release", column=Column(
    id="detection_rate", unit="rate", better="none", low=0.0, high=1.0, title="Frames with a face found",
    role="descriptive", source="MTCNN, Zhang et al. 2016, doi 10.1109/LSP.2016.2603342, as in facenet-pytorch"))
def detection_rate(frames: np.ndarray) -> np.ndarray:
    """1 where MTCNN finds at least one face in a released frame, 0 where it finds none, NaN on frames not looked at.

    Takes uint8 (T, H, W, 3), gives float64 (T,). Four equally spaced frames of a video are looked at, enlarged to
    160 px inside a grey border of 32 px. Descriptive: a method may keep a face on purpose. Below .5 the identity
    numbers that need a face (T-ID, TG) say little.
    """
    found = np.full(len(frames), np.nan)
    chosen = np.unique(np.linspace(0, len(frames) - 1, FRAMES).round().astype(int))
    boxes = _detector().detect(np.stack([_framed(frames[i]) for i in chosen]))
    found[chosen] = [float(len(b) > 0) for b in boxes]
    return found


@cache
def _detector() -> FaceDetector:
    return FaceDetector(face_share=FACE_SHARE)


def _framed(frame: np.ndarray) -> np.ndarray:
    large = cv2.resize(frame, (FACE_PX, FACE_PX), interpolation=cv2.INTER_CUBIC)
    return cv2.copyMakeBorder(large, PAD_PX, PAD_PX, PAD_PX, PAD_PX, cv2.BORDER_CONSTANT, value=(127, 127, 127))
