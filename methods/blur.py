"""Gaussian blur of the whole canvas, frame by frame."""

from __future__ import annotations

import cv2
import numpy as np

from bench import Anonymizer, Video, method

REFERENCE_PX = 64  # canvas side at which sigma_px is stated


@method("blur")
class Blur(Anonymizer):
    """Convolves every frame with a Gaussian: released = G(sigma) * input, where sigma is 4 px on a 64 px canvas and
    grows with the canvas (sigma_px * side / 64); the borders are mirrored. Fine detail goes, coarse shape, colour,
    pose and motion stay. It promises nothing: the filter is fixed and known, an attacker can train on blurred faces
    or sharpen them, and several frames of one face say more than one. Source: common practice; that trained networks
    recognise blurred faces is shown by McPherson, Shokri and Shmatikov, arXiv:1609.00408.
    """

    variants = {"2": {"sigma_px": 2.0}, "8": {"sigma_px": 8.0}}

    def __init__(self, *, sigma_px: float = 4.0):
        self.sigma_px = sigma_px  # px on a 64 px canvas

    def release(self, video: Video, rng: np.random.Generator) -> Video:
        """uint8 (T, H, W, 3), the kernel cut at 3 sigma as OpenCV does for 8 bit; `rng` is not read."""
        sigma = self.sigma_px * max(video.frames.shape[1:3]) / REFERENCE_PX
        blurred = [cv2.GaussianBlur(frame, (0, 0), sigma, borderType=cv2.BORDER_REFLECT) for frame in video.frames]
        return Video(np.stack(blurred), video.fps)
