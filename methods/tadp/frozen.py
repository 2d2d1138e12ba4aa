"""The frozen parts of TADP: two frame encoders with their codebooks, the frame decoder, a fixed recogniser.

tiny: small networks trained on public people; the one of expressions reads a frame beside the others of its clip, since
in one frame it cannot tell a face at rest from an expression of another face. paper: ArcFace, an AffectNet ResNet and
the decoder of SDXL, brought by path and SHA-256 (`bench.nets.published_faces`). Both come here as arrays by name, and
stay so in the fitted state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from bench import DataError
from bench.nets.coders import ClipCoder, FrameCoder, FrameDecoder, as_clips, as_coder_input, load_coder, scaled
from methods.tadp.sizes import BRANCHES, Size, size_of

CODERS = {"id": "identity_code_method", "expr": "expression_code_method"}
RECOGNISER, AUTOENCODER = "expression_frame_method", "autoencoder_method"
Arrays = Mapping[str, np.ndarray]


def from_assets(assets: Mapping[str, Arrays]) -> dict[str, np.ndarray]:
    """The arrays of the frozen parts among the shared networks of the tiny profile."""
    found: dict[str, np.ndarray] = {}
    for branch, name in CODERS.items():
        found[f"codebook:{branch}"] = np.asarray(assets[name]["codebook"])
        found |= {f"encoder.{branch}.{k}": np.asarray(v) for k, v in assets[name].items()
                  if k != "codebook" and not k.startswith("from_")}
    decoder = assets[AUTOENCODER]
    found |= {k: np.asarray(v) for k, v in decoder.items() if k.startswith(("decoder.", "latent_"))}
    return found


def from_published() -> dict[str, np.ndarray]:
    """The arrays of the frozen parts of the paper profile. Raises WeightsMissing that says which file to bring."""
    from bench.nets import published_faces as faces

    found: dict[str, np.ndarray] = {}
    for prefix, network in (("encoder.id.", faces.load_face(*faces.where("arcface_ir101"))),
                            ("encoder.expr.", faces.load_expression(*faces.where("affectnet_resnet34"))),
                            ("decoder.", faces.load_decoder(*faces.where("sdxl_vae")))):
        found |= {prefix + k: v for k, v in faces.arrays_of(network).items()}
    dim = size_of("paper").dim
    found |= {f"codebook:{b}": faces.load_codebook(*faces.where(f"tadp_codebook_{b}"), dim) for b in BRANCHES}
    shape = (faces.SDXL["latent_channels"], 1, 1)
    return found | {"latent_mean": np.zeros(shape, np.float32),
                    "latent_deviation": np.full(shape, 1 / faces.SDXL["scaling_factor"], np.float32)}


def part(arrays: Arrays, prefix: str) -> dict[str, torch.Tensor]:
    """The tensors whose names begin with `prefix`, without it."""
    return {k[len(prefix):]: torch.from_numpy(np.array(v)) for k, v in arrays.items() if k.startswith(prefix)}


def digest(arrays: Arrays) -> np.ndarray:
    """SHA-256 of the frozen parts, uint8 (32,)."""
    total = hashlib.sha256()
    for name in sorted(k for k in arrays if k.startswith(("codebook:", "encoder.", "decoder.", "latent_"))):
        total.update(f"{name} {arrays[name].shape} {arrays[name].dtype}".encode())
        total.update(np.ascontiguousarray(arrays[name]).tobytes())
    return np.frombuffer(total.digest(), np.uint8)


def check_digest(state: Arrays) -> None:
    """Raise DataError when the codebooks or weights of a fitted state are not those that it was fitted with."""
    found = digest(state)
    if not np.array_equal(found, state["digest"]):
        raise DataError(f"A codebook or the weights of the fitted TADP have SHA-256 {found.tobytes().hex()[:16]}…, not "
                        f"{np.asarray(state['digest'], np.uint8).tobytes().hex()[:16]}….",
                        "Scales and decoder were trained against the others.", "Fit the method again.")


def recogniser(assets: Mapping[str, Arrays], arrays: Arrays, published: bool) -> Recogniser:
    """The network that training reads made frames with. tiny: one of its own; paper: the expression encoder."""
    if published:
        return Recogniser(part(arrays, "encoder.expr."))
    return Recogniser(part({k: np.asarray(v) for k, v in assets[RECOGNISER].items()}, ""))


class Encoders:
    """Both frozen encoders: the uint8 frames (T, H, W, 3) of one clip -> {branch: float32 (T, dim)}."""

    def __init__(self, arrays: Arrays, size: Size):
        self.size = size
        self.networks: dict[str, Any] = {b: self.network(part(arrays, f"encoder.{b}.")) for b in BRANCHES}

    @staticmethod
    def network(tensors: dict[str, torch.Tensor]) -> Any:
        if "head.weight" in tensors:
            return load_coder(tensors)
        from bench.nets.published_faces import network_from  # heavy, and needed at the paper's size alone

        return network_from(tensors)

    @torch.inference_mode()
    def __call__(self, frames: np.ndarray) -> dict[str, np.ndarray]:
        clip = torch.from_numpy(np.array(frames))
        return {branch: features(network, clip).numpy() for branch, network in self.networks.items()}


def features(network: Any, frames: torch.Tensor) -> torch.Tensor:
    """Features (T, dim) of the uint8 frames (T, H, W, 3) of a clip."""
    if isinstance(network, ClipCoder):
        return network.code(network.trunk(as_clips(frames[None])))[0]
    if isinstance(network, FrameCoder):
        return network.code(network.maps(as_coder_input(frames))[-1])
    return network(frames)


class Recogniser:
    """A fixed network that training reads, never a release: class scores and feature maps of frames in [0, 1]."""

    def __init__(self, tensors: dict[str, torch.Tensor]):
        self.network = Encoders.network(tensors)

    def __call__(self, frames: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """(N, 3, H, W) -> scores (N, classes) and maps of the second and third stage, with gradients."""
        if isinstance(self.network, FrameCoder):
            maps = self.network.maps(scaled(frames))
            return self.network.logits(self.network.code(maps[-1])), maps[1:3]
        maps = self.network.maps(frames)
        return self.network.logits(maps[-1]), maps[1:3]


class Decoder(nn.Module):
    """The frozen frame decoder: latents (N, C, h, w) of about unit deviation -> frames (N, 3, S, S) in [0, 1]."""

    def __init__(self, arrays: Arrays):
        super().__init__()
        tensors = part(arrays, "decoder.")
        if any(k.startswith("net.") for k in tensors):
            self.network: nn.Module = FrameDecoder()
            self.network.load_state_dict(tensors)
        else:
            from bench.nets.published_faces import network_from

            self.network = network_from(tensors)
        self.mean, self.deviation = (torch.from_numpy(np.array(arrays[f"latent_{k}"])) for k in ("mean", "deviation"))
        self.eval().requires_grad_(False)

    def forward(self, latents: torch.Tensor) -> torch.Tensor:
        return self.network(latents * self.deviation + self.mean)
