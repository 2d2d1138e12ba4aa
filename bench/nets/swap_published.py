"""MobileFaceSwap's published weights: renamed and laid out for bench.nets.swap, refused when anything is missing.

The public file is a Paddle pickle, which could run code and is not read. It is read as safetensors, converted with
`{name: tensor.numpy() for name, tensor in paddle.load(FILE).items()}`, under its own names. Paddle keeps the weights
of a linear layer as (in, out). The published program leaves the biases of the predicted convolutions at zero.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch.nn import functional as F

from bench.errors import DataError
from bench.nets.development import as_pictures
from bench.nets.features import script_network
from bench.nets.given import brought
from bench.nets.states import fill
from bench.nets.swap import KernelPredictor, SwapNet

IDENTITY_PX = 112  # what the identity network reads
ENCODER_STAGES = 5
_RENAMED = (  # published name -> ours, each a pattern of the whole name
    (r"EncoderModulation\.(\d+)\.(.*)", r"predictor/point.\1.\2"),
    (r"predictor\.first_decoder\.(.*)", r"predictor/second.\1"),
    (r"predictor\.decoder_norm\.(.*)", r"predictor/second_norm.\1"),
    (r"predictor\.norm\.(.*)", r"predictor/first_norm.\1"),
    (r"predictor\.(.*)", r"predictor/\1"), (r"mask\.5\.(.*)", r"net/mask_last.\1"))
_FINAL = {"1": "0", "2": "1", "4": "3", "5": "4", "7": "6"}  # places in the last layers; theirs begin by upsampling
_STATISTICS = {"_mean": "running_mean", "_variance": "running_var"}


def load_published(path: str, sha256: str, predictor: KernelPredictor, net: SwapNet) -> None:
    """Fill both networks, of paper size. Raises WeightsMissing without the file, DataError for another one."""
    file = brought("mobilefaceswap_224", path, sha256)
    try:
        published = load_file(file)
    except SafetensorError as error:
        raise DataError(f"The weights {file.name} cannot be read: {error}.", "Only tensors are read, never a pickle.",
                        "Save the published dictionary as .safetensors.") from None
    own = {"predictor": predictor, "net": net}
    found: dict[str, dict[str, torch.Tensor]] = {"predictor": {}, "net": {}}
    for name, tensor in published.items():
        network, _, key = renamed(name).partition("/")
        if network in found:
            found[network][key] = _laid_out(key, tensor)
    for network, module in own.items():
        state = module.state_dict()
        for key, value in state.items():
            if key.endswith("num_batches_tracked") or key.startswith(("depth_bias", "point_bias")):
                found[network][key] = torch.zeros_like(value)
        fill(module, found[network], file.name)


def renamed(name: str) -> str:
    """`network/tensor` of ours for a published name; "" for a tensor that inference does not read."""
    first, _, last = name.rpartition(".")
    name = f"{first}.{_STATISTICS.get(last, last)}"
    if match := re.fullmatch(r"DecoderModulation\.(\d+)\.(.*)", name):
        return f"predictor/point.{int(match[1]) + ENCODER_STAGES}.{match[2]}"
    if match := re.fullmatch(r"final\.(\d)\.(.*)", name):
        return f"net/final.{_FINAL.get(match[1], match[1])}.{match[2]}"
    if match := re.fullmatch(r"mask\.([0-4])\.(\d)\.(.*)", name):
        return f"net/mask.{match[1]}.{int(match[2]) - 1}.{match[3]}"
    for pattern, ours in _RENAMED:
        if re.fullmatch(pattern, name):
            return re.sub(pattern, ours, name)
    return ""


def _laid_out(key: str, tensor: torch.Tensor) -> torch.Tensor:
    if key.endswith("style.weight"):
        return tensor.T
    return tensor.flatten(1) if re.fullmatch(r"point\.\d+\.weight", key) else tensor


def script_codes(path: str, sha256: str, pictures: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Unit vectors (N, 512) and maps (N, 512, h, w) of uint8 (N, S, S, 3) by a published identity network.

    It is TorchScript, (N, 3, 112, 112) RGB with ImageNet's mean and deviation -> (vector, map). Raises as `brought`,
    DataError when it answers otherwise.
    """
    network = script_network("mobilefaceswap_arcface", path, sha256)
    batch = F.interpolate(as_pictures(pictures), (IDENTITY_PX, IDENTITY_PX), mode="bilinear", align_corners=False,
                          antialias=True)
    mean, deviation = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, :, None, None]
    with torch.inference_mode():
        answer: Any = network((batch - mean) / deviation)
    shapes = [tuple(a.shape) for a in answer] if isinstance(answer, (tuple, list)) else []
    if len(shapes) != 2 or shapes[0] != (len(pictures), 512) or shapes[1][:2] != (len(pictures), 512):
        raise DataError("The identity network does not give a vector (N, 512) and a map (N, 512, h, w).",
                        "Kernels are predicted from both.", "Export it with both outputs.")
    return F.normalize(answer[0], dim=1).clone(), answer[1].clone()

