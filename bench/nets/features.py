"""Features of frames and clips: what identity and video networks see just before they decide.

From the shared evaluation assets, or from published networks as TorchScript files, by path and SHA-256.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from bench.nets.given import brought
from bench.nets.image import as_input, frame_classifier
from bench.nets.video import SIZES, ClipSize, as_clip_input, x3d
from bench.sampling import spread
from bench.types import CLIP_FRAMES

FRAME_NET = "resnet10t"  # the architecture of the asset identity_eval
BATCH = 64
ARCFACE_PX = 112
I3D_PX = 224
Embedder = Callable[[np.ndarray], np.ndarray]


# ---- shared assets -------------------------------------------------------------------------------------------------

def frame_embedder(state: Mapping[str, torch.Tensor]) -> Embedder:
    """A function uint8 (T, S, S, 3) -> float32 (T, d) of unit norm, d = 512: one embedding a frame.

    `state`: tensors of the asset identity_eval (timm resnet10t); the embedding is its average-pooled last feature map.
    Raises RuntimeError when the tensors are of another architecture.
    """
    model = _loaded(frame_classifier(FRAME_NET, len(state["fc.bias"])), state)

    @torch.inference_mode()
    def embed(frames: np.ndarray) -> np.ndarray:
        parts = _tensor(frames).split(BATCH)
        pooled = [model.forward_head(model.forward_features(as_input(part)), pre_logits=True) for part in parts]
        return F.normalize(torch.cat(pooled), dim=1).numpy()  # (T, d)

    return embed


def clip_embedder(state: Mapping[str, torch.Tensor], size: ClipSize = SIZES["tiny"]) -> Embedder:
    """A function uint8 (T, S, S, 3) -> float32 (d,): one feature a clip, d = 216 in `tiny`.

    `state`: tensors of the asset expression_eval (an X3D). The clip is read as the equally spaced frames that the
    network was trained on. The feature is the last convolution averaged over time and place, before the projection
    to 2,048 channels and to classes: the projection adds nothing that was not there, and the bias of a Fréchet
    distance grows with d. Raises RuntimeError when the tensors are of another architecture.
    """
    model = _loaded(x3d(len(state["blocks.5.proj.bias"]), size), state)
    *body, head = model.blocks

    @torch.inference_mode()
    def embed(frames: np.ndarray) -> np.ndarray:
        chosen = frames[spread(len(frames), 0, len(frames), size.frames)]  # (t, S, S, 3)
        features = as_clip_input(_tensor(chosen[None]), size.side_px)  # (1, 3, t, S, S)
        for block in body:
            features = block(features)
        last = head.pool.pre_act(head.pool.pre_norm(head.pool.pre_conv(features)))  # (1, d, t, h, w)
        return last.mean((2, 3, 4))[0].numpy()

    return embed


def _loaded(model: Any, state: Mapping[str, torch.Tensor]) -> Any:
    model.load_state_dict(dict(state))
    return model.eval()


def _tensor(frames: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(frames, order="C"))  # a copy: torch wants to be able to write


# ---- published networks --------------------------------------------------------------------------------------------

def script_network(name: str, path: str, sha256: str) -> nn.Module:
    """A TorchScript network in evaluation mode. A file is code: it is loaded only when its SHA-256 is the given one.

    Raises as `brought`.
    """
    path = str(brought(name, path, sha256))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls TorchScript deprecated
        return torch.jit.load(path, map_location="cpu").eval()


def arcface_embedder(path: str = "", sha256: str = "") -> Embedder:
    """As `frame_embedder`, by an ArcFace network: TorchScript, (N, 3, 112, 112) RGB in [-1, 1] -> (N, d).

    The canvas already is a face crop; it is resized (bilinear, antialiased), not aligned to five points again.
    Raises as `script_network`.
    """
    model = script_network("arcface", path, sha256)

    @torch.inference_mode()
    def embed(frames: np.ndarray) -> np.ndarray:
        batch = _tensor(frames).permute(0, 3, 1, 2).float() / 127.5 - 1
        batch = F.interpolate(batch, (ARCFACE_PX, ARCFACE_PX), mode="bilinear", align_corners=False, antialias=True)
        return F.normalize(torch.cat([model(part) for part in batch.split(BATCH)]), dim=1).numpy()  # (T, d)

    return embed


def i3d_embedder(path: str = "", sha256: str = "") -> Embedder:
    """A function uint8 (T, S, S, 3) -> float32 (400,): the logits of the TorchScript I3D that FVD is computed with.

    It is called as model(x, rescale=False, resize=False, return_features=True) on x (1, 3, 16, 224, 224) in [-1, 1];
    frames are squashed to 224 px (bilinear, align_corners False, no antialias). A clip shorter than 16 frames is
    read at 16 equally spaced places, so both sets hold clips of one length. Raises as `script_network`.
    """
    model = script_network("i3d", path, sha256)

    @torch.inference_mode()
    def embed(frames: np.ndarray) -> np.ndarray:
        chosen = frames[spread(len(frames), 0, len(frames), CLIP_FRAMES)]
        batch = _tensor(chosen).permute(0, 3, 1, 2).float() / 127.5 - 1  # (16, 3, S, S)
        batch = F.interpolate(batch, (I3D_PX, I3D_PX), mode="bilinear", align_corners=False)
        clip = batch.transpose(0, 1)[None].contiguous()  # (1, 3, 16, 224, 224)
        return model(clip, rescale=False, resize=False, return_features=True)[0].numpy()

    return embed
