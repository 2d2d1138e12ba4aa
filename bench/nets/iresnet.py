"""AdaFace's published networks: IR-18, IR-50 and IR-101, how their weights are loaded and what they read.

The parameters are named and laid out as in the published files, so that these load with nothing left over. A face is
moved by a similarity to five reference points on 112 x 112 px and read as (x / 255 - .5) / .5. The networks of the
AdaFace repository read BGR, the same networks in CVLFace's safetensors files (names begin with `model.net.`) RGB.
Sources: Kim, Jain, Liu, CVPR 2022; mk-minchul/AdaFace; mk-minchul/CVLface. Weights follow the licence of their data.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import cv2
import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

import bench.detect
from bench.errors import DataError
from bench.nets.given import brought

SIDE_PX = 112
UNITS = {"ir18": (2, 2, 2, 2), "ir50": (3, 4, 14, 3), "ir101": (3, 13, 30, 3)}  # residual units of each stage
WIDTHS = (64, 128, 256, 512)
# Left eye, right eye, nose, left and right corner of the mouth, (x, y) px; 8 px shift them from 96 x 112 to 112 x 112.
REFERENCE = np.array([[30.29459953, 51.69630051], [65.53179932, 51.50139999], [48.02519989, 71.73660278],
                      [33.54930115, 92.3655014], [62.72990036, 92.20410156]]) + [8.0, 0.0]


class Unit(nn.Module):
    """One residual unit: two 3 x 3 convolutions, the second with the stride; the shortcut follows by 1 x 1."""

    def __init__(self, channels: int, width: int, stride: int):
        super().__init__()
        self.shortcut_layer = nn.MaxPool2d(1, stride) if channels == width else nn.Sequential(
            nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))
        self.res_layer = nn.Sequential(
            nn.BatchNorm2d(channels), nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width),
            nn.PReLU(width), nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.res_layer(x) + self.shortcut_layer(x)


class IResNet(nn.Module):
    """float (N, 3, 112, 112) -> embeddings (N, 512), not of unit length: their norm tells the picture's quality."""

    def __init__(self, architecture: str):
        super().__init__()
        self.input_layer = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.PReLU(64))
        units, channels = [], WIDTHS[0]
        for count, width in zip(UNITS[architecture], WIDTHS, strict=True):
            for number in range(count):
                units.append(Unit(channels, width, 2 if number == 0 else 1))
                channels = width
        self.body = nn.Sequential(*units)
        self.output_layer = nn.Sequential(nn.BatchNorm2d(512), nn.Dropout(0.4), nn.Flatten(),
                                          nn.Linear(512 * 7 * 7, 512), nn.BatchNorm1d(512, affine=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.output_layer(self.body(self.input_layer(x)))  # (N, 512)


# ---- published weights ---------------------------------------------------------------------------------------------

def load_adaface(path: str | Path, sha256: str, architecture: str = "ir50") -> tuple[IResNet, bool]:
    """A published network and whether it reads BGR. Nothing is loaded whose SHA-256 is another one.

    path: a safetensors file, or a .ckpt of the AdaFace repository, which is read as tensors only, never as code.
    Raises WeightsMissing without the file, DataError for another one or another architecture.
    """
    path = brought(f"adaface_{architecture}", path, sha256)
    published = _read(path)
    bgr = not any(name.startswith("model.net.") for name in published)
    tensors = {name.removeprefix("model.").removeprefix("net."): tensor for name, tensor in published.items()
               if not name.startswith("head.")}
    network = IResNet(architecture)
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        raise DataError(f"{path.name} does not hold the weights of {architecture}: {str(error).splitlines()[-1]}",
                        "A network with gaps would not be the published one.",
                        "Name the right architecture.") from error
    return network, bgr


def _read(path: Path) -> dict[str, torch.Tensor]:
    if path.suffix == ".safetensors":
        return load_file(path)
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise DataError(f"{path.name} holds more than tensors.", "Loading it could run code that lies in the file.",
                        "Save its `state_dict` as safetensors and name that file.") from error
    return found.get("state_dict", found)


# ---- faces ---------------------------------------------------------------------------------------------------------

def similarity(points: np.ndarray, reference: np.ndarray = REFERENCE) -> np.ndarray:
    """(2, 3) least-squares turn, scale and shift that takes points (5, 2) to the reference; never a mirror.

    As complex numbers, w = a z + b with a = sum conj(z - z') (w - w') / sum |z - z'|^2 (primes: means).
    """
    z, w = points @ [1, 1j], reference @ [1, 1j]  # (5,)
    a = np.vdot(z - z.mean(), w - w.mean()) / np.vdot(z - z.mean(), z - z.mean())
    b = w.mean() - a * z.mean()
    return np.array([[a.real, -a.imag, b.real], [a.imag, a.real, b.imag]])


def align(frame: np.ndarray, points: np.ndarray) -> np.ndarray:
    """uint8 (112, 112, 3): the face of a frame (H, W, 3) with its five points on the reference, black outside."""
    return cv2.warpAffine(frame, similarity(points), (SIDE_PX, SIDE_PX), flags=cv2.INTER_LINEAR)


def aligned_faces(frames: np.ndarray) -> np.ndarray:
    """uint8 (N, 112, 112, 3): the aligned faces of frames (T, H, W, 3). Frames without a face are left out, N <= T."""
    found = [align(frame, points) for frame in frames if (points := five_points(frame)) is not None]
    return np.stack(found) if found else np.zeros((0, SIDE_PX, SIDE_PX, 3), np.uint8)


def five_points(frame: np.ndarray) -> np.ndarray | None:
    """(5, 2) px landmarks of the largest face that MTCNN sees in a frame (H, W, 3), None when it sees none."""
    detector = bench.detect._mtcnn()
    detector.min_face_size = max(20, min(frame.shape[:2]) // 4)  # a crop shows one large face
    try:
        boxes, _, points = detector.detect(frame[None], landmarks=True)
    except (RuntimeError, IndexError, ValueError):  # the package fails when no candidate is left
        return None
    if boxes[0] is None:
        return None
    return np.asarray(points[0], float)[int(np.argmax(bench.detect.area(np.asarray(boxes[0], float))))]


def as_face_input(faces: torch.Tensor, bgr: bool) -> torch.Tensor:
    """uint8 RGB (N, 112, 112, 3) -> float32 (N, 3, 112, 112) in [-1, 1], channels turned round for BGR."""
    batch = faces.permute(0, 3, 1, 2).float().div_(255.0).sub_(0.5).div_(0.5)
    return batch.flip(1) if bgr else batch
