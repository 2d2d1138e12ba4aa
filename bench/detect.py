"""Finding faces and cutting them out: the one owner of facenet-pytorch (MTCNN; its weights lie in the package).

Boxes are (x0, y0, x1, y1) in pixels of the frame, x to the right, y downwards; a detection adds its probability.
A crop's box is computed inside one clip and from nothing else, so that a clip never changes its neighbour.
Source of the detector: Zhang et al., "Joint Face Detection and Alignment using Multitask Cascaded Convolutional
Networks", IEEE SPL 2016.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import cv2
import numpy as np

MARGIN = 1.3  # side of the crop over the longer side of the face box
_SMALLEST_PX = 20  # MTCNN's networks see faces of 12 px and more; below 20 px there is nothing to find
_SMOOTHING = 5  # frames in the moving average of a box
_PADDED_TO = 32  # candidates per forward pass come in multiples of this
_FOLLOW_IOU = 0.1  # a face that overlaps less with the frame beside it is another face


class FaceDetector:
    """MTCNN on the CPU, batched, offline.

    short_side_px: larger frames are scaled down to this before detection.  face_share: the smallest face looked for,
    as a share of the frame's shorter side (never below 20 px).  min_prob: detections below it are dropped.
    batch: frames per forward pass.  threads: torch's threads while detecting, None to leave them as they are.
    """

    def __init__(self, *, short_side_px: int = 240, face_share: float = 0.1, min_prob: float = 0.7, batch: int = 32,
                 threads: int | None = None):
        self.short_side_px, self.face_share, self.min_prob, self.batch = short_side_px, face_share, min_prob, batch
        self.threads = threads

    def detect(self, frames: np.ndarray) -> list[np.ndarray]:
        """Faces of each frame of uint8 (T, H, W, 3): T arrays float64 (n, 5), x0, y0, x1, y1, probability.

        Sorted by probability, highest first; (0, 5) where there is none; boxes lie inside the frame. Frames whose
        shorter side is under 20 px have none.
        """
        frames = np.asarray(frames)
        short = min(frames.shape[1:3])
        if len(frames) == 0 or short < _SMALLEST_PX:
            return [np.zeros((0, 5)) for _ in frames]
        scale = min(1.0, self.short_side_px / short)
        found: list[np.ndarray] = []
        with _torch_threads(self.threads):
            for start in range(0, len(frames), self.batch):
                found += self._batch(_shrink(frames[start:start + self.batch], scale))
        return [self._clean(boxes, scale, frames.shape[2], frames.shape[1]) for boxes in found]

    def _batch(self, frames: np.ndarray) -> list[np.ndarray]:
        smallest = max(_SMALLEST_PX, round(self.face_share * min(frames.shape[1:3])))
        try:
            return _run_mtcnn(frames, smallest)
        except (RuntimeError, IndexError, ValueError):  # the package fails on a batch whose candidates are all empty
            return self._one_by_one(frames, smallest)

    @staticmethod
    def _one_by_one(frames: np.ndarray, smallest: int) -> list[np.ndarray]:
        found = []
        for frame in frames:
            try:
                found += _run_mtcnn(frame[None], smallest)
            except (RuntimeError, IndexError, ValueError):
                found.append(np.zeros((0, 5)))
        return found

    def _clean(self, boxes: np.ndarray, scale: float, width: int, height: int) -> np.ndarray:
        boxes = boxes.copy()
        boxes[:, :4] /= scale
        boxes[:, 0:4:2] = boxes[:, 0:4:2].clip(0, width)
        boxes[:, 1:4:2] = boxes[:, 1:4:2].clip(0, height)
        good = (boxes[:, 4] >= self.min_prob) & (boxes[:, 2] - boxes[:, 0] >= 1) & (boxes[:, 3] - boxes[:, 1] >= 1)
        boxes = boxes[good & np.isfinite(boxes).all(1)]
        return boxes[np.argsort(-boxes[:, 4], kind="stable")]  # (n, 5)


@contextmanager
def _torch_threads(count: int | None) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def _mtcnn() -> Any:
    import torch  # heavy: loaded when the first frame is looked at
    from facenet_pytorch import MTCNN

    network = MTCNN(keep_all=True, select_largest=False, post_process=False, device="cpu").eval()
    network.to(memory_format=torch.channels_last)  # a third faster on the CPU, the same boxes
    for part in (network.pnet, network.rnet, network.onet):
        part.register_forward_pre_hook(lambda _, x: (x[0].contiguous(memory_format=torch.channels_last),))
    for part in (network.rnet, network.onet):
        part.register_forward_pre_hook(_pad)
        part.register_forward_hook(_unpad)
    return network


def _pad(part: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Candidates (n, 3, h, w) padded to a multiple of 32: few shapes, so that torch's kernel cache stays small."""
    import torch

    part.real = len(inputs[0])
    padding = inputs[0].new_zeros(-part.real % _PADDED_TO, *inputs[0].shape[1:])
    return (torch.cat([inputs[0], padding]),)


def _unpad(part: Any, inputs: Any, outputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(output[:part.real] for output in outputs)


def _run_mtcnn(frames: np.ndarray, smallest_px: int) -> list[np.ndarray]:
    network = _mtcnn()
    network.min_face_size = smallest_px
    boxes, probs = network.detect(frames)  # object arrays; None where there is no face
    return [np.zeros((0, 5)) if box is None else
            np.column_stack([np.asarray(box, np.float64), np.asarray(prob, np.float64)])  # (n, 5)
            for box, prob in zip(boxes, probs, strict=True)]


def _shrink(frames: np.ndarray, scale: float) -> np.ndarray:
    if scale == 1.0:
        return frames
    height, width = (max(_SMALLEST_PX, round(side * scale)) for side in frames.shape[1:3])
    return np.stack([cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA) for frame in frames])


# ---- boxes ---------------------------------------------------------------------------------------------------------

def area(boxes: np.ndarray) -> np.ndarray:
    """(...,) area in square pixels of boxes (..., 4 or 5)."""
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def iou(box: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """(n,) intersection over union of one box with boxes (n, 4 or 5), in 0..1."""
    wide = np.minimum(box[2], boxes[:, 2]) - np.maximum(box[0], boxes[:, 0])
    high = np.minimum(box[3], boxes[:, 3]) - np.maximum(box[1], boxes[:, 1])
    common = wide.clip(0) * high.clip(0)
    return common / np.maximum(area(box) + area(boxes) - common, 1e-9)


def largest_face(boxes: np.ndarray) -> np.ndarray | None:
    """The detection (5,) with the largest area, or None when boxes (n, 5) is empty."""
    return boxes[int(np.argmax(area(boxes)))] if len(boxes) else None


def follow_face(detections: Sequence[np.ndarray]) -> np.ndarray:
    """The clip's largest face, followed forwards and backwards by overlap.

    detections: T arrays (n, 5) of one clip. Returns float64 (T, 4), NaN rows where the face was not found.
    """
    track = np.full((len(detections), 4), np.nan)
    sizes = [area(boxes).max() if len(boxes) else -1.0 for boxes in detections]
    if not sizes or max(sizes) < 0:
        return track
    start = int(np.argmax(sizes))
    first = largest_face(detections[start])
    assert first is not None
    track[start] = first[:4]
    for order in (range(start + 1, len(detections)), range(start - 1, -1, -1)):
        last = track[start]
        for t in order:
            overlaps = iou(last, detections[t])
            if len(overlaps) and overlaps.max() >= _FOLLOW_IOU:
                last = track[t] = detections[t][int(np.argmax(overlaps)), :4]
    return track


def fill_and_smooth(track: np.ndarray, window: int = _SMOOTHING) -> np.ndarray:
    """Gaps of a track (T, 4) interpolated linearly (held at its ends), then a centred moving average.

    The average uses only frames of the track: it narrows at both ends. At least one row must be finite.
    """
    steps, known = np.arange(len(track)), np.flatnonzero(np.isfinite(track[:, 0]))
    full = np.column_stack([np.interp(steps, known, track[known, k]) for k in range(4)])  # (T, 4)
    reach = [min(window // 2, t, len(full) - 1 - t) for t in range(len(full))]
    return np.stack([full[t - r:t + r + 1].mean(0) for t, r in enumerate(reach)])  # (T, 4)


def square(box: np.ndarray, margin: float = MARGIN) -> tuple[int, int, int]:
    """(x0, y0, side) in whole pixels of the square around a box: side = margin x its longer side, same centre."""
    side = max(1, round(margin * max(box[2] - box[0], box[3] - box[1])))
    return round((box[0] + box[2] - side) / 2), round((box[1] + box[3] - side) / 2), side


def centre_square(height: int, width: int) -> tuple[int, int, int]:
    """(x0, y0, side) of the largest square in the middle of a frame."""
    side = min(height, width)
    return (width - side) // 2, (height - side) // 2, side


def cut(frame: np.ndarray, place: tuple[int, int, int], canvas_px: int) -> np.ndarray:
    """The square (x0, y0, side) of a frame (H, W, 3) on a canvas (S, S, 3); pixels beyond its edge repeat the edge."""
    x0, y0, side = place
    height, width = frame.shape[:2]
    left, top = max(0, -x0), max(0, -y0)
    right, bottom = max(0, x0 + side - width), max(0, y0 + side - height)
    piece = frame[min(max(y0, 0), height - 1):max(y0 + side, 1), min(max(x0, 0), width - 1):max(x0 + side, 1)]
    if left or top or right or bottom:
        piece = cv2.copyMakeBorder(piece, top, bottom, left, right, cv2.BORDER_REPLICATE)
    return resize(piece[:side, :side], canvas_px, canvas_px)


def resize(image: np.ndarray, width: int, height: int) -> np.ndarray:
    """Area averaging when shrinking, linear interpolation when growing; uint8 (H, W, 3) to (height, width, 3)."""
    if image.shape[:2] == (height, width):
        return np.ascontiguousarray(image)
    shrinking = image.shape[0] * image.shape[1] > height * width
    return cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA if shrinking else cv2.INTER_LINEAR)


def crop_clip(frames: np.ndarray, detections: Sequence[np.ndarray], canvas_px: int,
              margin: float = MARGIN) -> tuple[np.ndarray, bool]:
    """One clip's face on the canvas, and whether a face was found in it.

    frames: uint8 (T, H, W, 3) of one clip.  detections: T arrays (n, 5) of the same clip. Returns uint8
    (T, S, S, 3), S = canvas_px. The box is smoothed inside the clip, missing frames are interpolated from it; a clip
    without any face gets the largest square in the middle and False (PROTOCOL 2).
    """
    track = follow_face(detections)
    found = bool(np.isfinite(track).any())
    if found:
        places = [square(box, margin) for box in fill_and_smooth(track)]
    else:
        places = [centre_square(*frames.shape[1:3])] * len(frames)
    return np.stack([cut(frame, place, canvas_px) for frame, place in zip(frames, places, strict=True)]), found
