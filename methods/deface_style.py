"""Box blur inside the face ellipse, as the deface command-line tool does by default."""

from __future__ import annotations

import cv2
import numpy as np

from bench import Anonymizer, Video, method

BLUR_FACTOR = 2  # the kernel is the enlarged face box divided by this, deface's default


@method("deface_style")
class DefaceStyle(Anonymizer):
    """Blurs the face inside an ellipse with a box filter half as wide and half as high as the enlarged face box:
    released = mean over S/2 x S/2 px inside the ellipse, input outside. The canvas already is the face box enlarged
    by 1.3, so the ellipse is the one inscribed in the canvas, and hair, ears and background in its corners stay
    visible. It promises nothing: the corners identify people too, the filter is fixed and known, and a coarse colour
    map of the face remains. Source: after ORB-HD/deface (MIT licence; written anew, no code copied). The tool's own
    mask scale 1.3 adds 30 % on every side of its detector's box, so its ellipse can reach further out than ours.
    """

    def release(self, video: Video, rng: np.random.Generator) -> Video:
        """uint8 (T, H, W, 3), borders mirrored without repeating the edge; `rng` is not read."""
        height, width = video.frames.shape[1:3]
        kernel = (max(1, width // BLUR_FACTOR), max(1, height // BLUR_FACTOR))  # OpenCV's order: width, height
        blurred = np.stack([cv2.blur(frame, kernel) for frame in video.frames])
        inside = _ellipse(height, width)[None, :, :, None]  # (1, H, W, 1)
        return Video(np.where(inside, blurred, video.frames), video.fps)


def _ellipse(height: int, width: int) -> np.ndarray:
    """Mask (H, W), bool: pixel centres inside the ellipse that touches all four borders."""
    y, x = (2 * np.arange(height) + 1) / height - 1, (2 * np.arange(width) + 1) / width - 1  # -1 .. 1
    return np.add.outer(y**2, x**2) < 1
