"""Published networks that a face method builds on, by path and SHA-256 (owner of diffusers): ArcFace, AffectNet, SDXL.

Encoders give 512 numbers a picture; those of the picture and of its mirror image side by side make 1,024, as ArcFace
is commonly read. Networks travel as arrays by name, with their configuration as JSON bytes under `config`.
Sources: Deng et al., CVPR 2019, in the layout of mk-minchul/CVLface; He et al., CVPR 2016, as torchvision's ResNet;
Podell et al., ICLR 2024, the autoencoder as `diffusers.AutoencoderKL` names it. Licences follow the published files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F
from torchvision.models import resnet18, resnet34

from bench import weights
from bench.errors import DataError, WeightsMissing
from bench.nets.given import brought
from bench.nets.iresnet import IResNet, load_adaface

RESNETS = {"resnet18": resnet18, "resnet34": resnet34}
FACE_PX, PICTURE_PX = 112, 224
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of the ResNet's input
SDXL: dict[str, Any] = {  # as published with the weights
    "block_out_channels": [128, 256, 512, 512], "layers_per_block": 2, "latent_channels": 4, "norm_num_groups": 32,
    "scaling_factor": 0.13025, "sample_size": 1024,
    "down_block_types": ["DownEncoderBlock2D"] * 4, "up_block_types": ["UpDecoderBlock2D"] * 4}


class FaceEncoder(nn.Module):
    """uint8 frames (N, H, W, 3) -> features (N, 1024): ArcFace's embedding of the whole frame and of its mirror."""

    def __init__(self, architecture: str):
        super().__init__()
        self.config = {"kind": "face", "architecture": architecture}
        self.network = IResNet(architecture)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        x = _resized(_unit(frames), FACE_PX) * 2 - 1
        return torch.cat([self.network(x), self.network(x.flip(3))], dim=1)


class ExpressionEncoder(nn.Module):
    """A ResNet trained on AffectNet: features (N, 1024) of frames, and class scores and maps for a loss."""

    def __init__(self, architecture: str, classes: int):
        super().__init__()
        self.config = {"kind": "expression", "architecture": architecture, "classes": classes}
        self.network = RESNETS[architecture](weights=None, num_classes=classes)

    def maps(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Maps of the four stages of frames (N, 3, H, W) in [0, 1]."""
        mean, deviation = (torch.tensor(v)[:, None, None].to(x) for v in (MEAN, DEVIATION))
        net = self.network
        x = net.maxpool(net.relu(net.bn1(net.conv1((_resized(x, PICTURE_PX) - mean) / deviation))))
        found = []
        for stage in (net.layer1, net.layer2, net.layer3, net.layer4):
            x = stage(x)
            found.append(x)
        return found

    def logits(self, last: torch.Tensor) -> torch.Tensor:
        """Class scores (N, classes) from the last map."""
        return self.network.fc(last.mean((2, 3)))

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        x = _unit(frames)
        return torch.cat([self.maps(v)[-1].mean((2, 3)) for v in (x, x.flip(3))], dim=1)


class VaeDecoder(nn.Module):
    """The decoder half of an AutoencoderKL: latents (N, 4, h, w) -> frames (N, 3, 8 h, 8 w) in [0, 1]."""

    def __init__(self, config: Mapping[str, Any]):
        super().__init__()
        from diffusers import AutoencoderKL  # seconds to import, and needed at this size alone

        self.config = {"kind": "vae", **config}
        whole: Any = AutoencoderKL(**config)
        self.post_quant_conv, self.decoder = whole.post_quant_conv, whole.decoder

    def forward(self, latents: torch.Tensor) -> torch.Tensor:
        return (self.decoder(self.post_quant_conv(latents)) / 2 + 0.5).clamp(0, 1)


def _unit(frames: torch.Tensor) -> torch.Tensor:
    return frames.permute(0, 3, 1, 2).float() / 255


def _resized(x: torch.Tensor, side: int) -> torch.Tensor:
    return F.interpolate(x, (side, side), mode="bilinear", align_corners=False, antialias=True)


# ---- from files ----------------------------------------------------------------------------------------------------

def where(name: str) -> tuple[Path, str]:
    """Path and SHA-256 of a published network that somebody has brought. Raises WeightsMissing."""
    known = weights.shipped()
    if name not in known:
        raise WeightsMissing(name, f"Save it as {weights.FOLDER / name}.safetensors and put its SHA-256 into "
                                   "weights.json beside it, or use a size that needs no such weights.")
    return known[name].path, known[name].sha256


def load_face(path: str | Path, sha256: str, architecture: str = "ir101") -> FaceEncoder:
    """ArcFace's IR network. Raises WeightsMissing without the file, DataError for another one."""
    network, bgr = load_adaface(path, sha256, architecture)
    if bgr:
        raise DataError(f"{Path(path).name} reads blue, green, red.", "The encoder gives red, green, blue.",
                        "Give the file of CVLFace, whose names begin with `model.net.`.")
    model = FaceEncoder(architecture)
    model.network = network
    return model.eval()


def load_expression(path: str | Path, sha256: str, architecture: str = "resnet34") -> ExpressionEncoder:
    """A torchvision ResNet with its classifier, as safetensors. Raises as `load_face`."""
    tensors = load_file(brought("affectnet", path, sha256))
    model = ExpressionEncoder(architecture, len(tensors.get("fc.bias", ())) or 1)
    _fill(model.network, tensors, Path(path))
    return model.eval()


def load_decoder(path: str | Path, sha256: str, config: Mapping[str, Any] | None = None) -> VaeDecoder:
    """The decoder among the tensors of a published AutoencoderKL, SDXL's by default. Raises as `load_face`."""
    tensors = load_file(brought("sdxl_vae", path, sha256))
    model = VaeDecoder(config or SDXL)
    _fill(model, {k: v for k, v in tensors.items() if k.startswith(("decoder.", "post_quant_conv."))}, Path(path))
    return model.eval()


def load_codebook(path: str | Path, sha256: str, dim: int) -> np.ndarray:
    """Entries (K, dim) float32 of a codebook, the tensor `entries`. Raises as `load_face`."""
    entries = load_file(brought("tadp_codebook", path, sha256)).get("entries")
    if entries is None or entries.ndim != 2 or entries.shape[1] != dim or not torch.isfinite(entries).all():
        raise DataError(f"{Path(path).name} holds no codebook of finite rows of {dim} numbers.", "",
                        f"Save a tensor `entries` of shape (K, {dim}).")
    return entries.float().numpy()


def _fill(model: nn.Module, tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    try:
        model.load_state_dict({k: v.float() if v.is_floating_point() else v for k, v in tensors.items()})
    except RuntimeError as error:
        raise DataError(f"{path.name} does not fit: {str(error).splitlines()[-1].strip()}",
                        "A network with gaps would not be the published one.",
                        "Name the right file, or the right architecture.") from error


# ---- as arrays -----------------------------------------------------------------------------------------------------

def arrays_of(model: Any) -> dict[str, np.ndarray]:
    """Tensors of one of the networks above by name, and its configuration."""
    config = np.frombuffer(json.dumps(model.config).encode(), np.uint8)
    return {k: v.numpy() for k, v in model.state_dict().items()} | {"config": config}


def network_from(tensors: Mapping[str, torch.Tensor]) -> Any:
    """The network behind `arrays_of`, frozen, in evaluation mode."""
    config = json.loads(tensors["config"].numpy().tobytes())
    kind = config.pop("kind")
    made: Any = VaeDecoder(config) if kind == "vae" else {"face": FaceEncoder,
                                                         "expression": ExpressionEncoder}[kind](**config)
    made.load_state_dict({k: v for k, v in tensors.items() if k != "config"})
    return made.eval().requires_grad_(False)
