"""Perceptual distance of frames: squared differences of unit-normalised feature maps, LPIPS and a stand-in for it.

Per stage, every position of a feature map is scaled to unit length over its channels; squared differences are added
over channels (LPIPS: with a learned weight each), averaged over positions, and the stages are added up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torchvision.models import alexnet

from bench.measures import VideoMetric
from bench.nets.given import given
from bench.nets.image import as_input, frame_classifier
from bench.nets.pairs import without_repeats
from bench.types import Context

STAND_IN = "resnet10t"  # the architecture of the asset feature_eval
FRAMES_AT_ONCE = 32
ALEX_STAGES = (1, 4, 7, 9, 11)  # the five activations of AlexNet's convolutions
ALEX_SHIFT, ALEX_SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # of input in [-1, 1], as published
TINY = 1e-10  # a position without any feature stays zero

Maps = list[torch.Tensor]  # one (N, C, h, w) per stage


@dataclass(frozen=True)
class PerceptualDistance:
    """stages: uint8 (N, H, W, 3) -> feature maps (N, C, h, w).  weights: (C,) >= 0 per stage, None = all 1."""

    stages: Callable[[torch.Tensor], Maps]
    weights: tuple[torch.Tensor, ...] | None = None

    @torch.inference_mode()
    def maps(self, frames: np.ndarray) -> Maps:
        """Unit-normalised feature maps of uint8 (T, H, W, 3), float32 (T, C, h, w) per stage."""
        parts = [self.stages(part) for part in torch.from_numpy(np.array(frames)).split(FRAMES_AT_ONCE)]
        whole = [torch.cat(stage) if len(stage) > 1 else stage[0] for stage in zip(*parts, strict=True)]
        return [m / m.norm(dim=1, keepdim=True).add_(TINY) for m in whole]

    @torch.inference_mode()
    def between(self, first: Maps, second: Maps) -> np.ndarray:
        """Distance of N pairs of frames from their maps, float64 (N,), 0 = alike."""
        total = torch.zeros(len(first[0]), dtype=torch.float64)
        for stage, (a, b) in enumerate(zip(first, second, strict=True)):
            squared = (a - b).square_()  # (N, C, h, w)
            if self.weights is not None:
                squared *= self.weights[stage][:, None, None]
            total += squared.sum(1).double().mean((1, 2))
        return total.numpy()

    def adjacent(self, frames: np.ndarray) -> np.ndarray:
        """Distance of every adjacent pair of uint8 (T, H, W, 3), float64 (T - 1,); (0,) for a single frame.

        It is 0 where a frame repeats the one before, which the network then does not see again.
        """
        distinct, which = without_repeats(frames)
        found = np.zeros(len(frames) - 1)
        if len(distinct) > 1:
            maps = self.maps(distinct)
            found[np.diff(which) > 0] = self.between([m[:-1] for m in maps], [m[1:] for m in maps])
        return found


def perceptual_distance(net: str, assets: Mapping[str, Mapping[str, torch.Tensor]]) -> PerceptualDistance:
    """`synth`: the asset feature_eval.  `alex`: LPIPS 0.1 on AlexNet.

    Raises WeightsMissing for `alex` without its two files, ValueError for another name.
    """
    if net == "synth":
        return stand_in(assets["feature_eval"])
    if net == "alex":
        return lpips_alex(given("alexnet", "the weights IMAGENET1K_V1 of torchvision's alexnet"),
                          given("lpips_alex", "the linear heads of LPIPS 0.1, alex.pth,"))
    raise ValueError(f"there is no perceptual network {net!r}: synth, alex")


def stand_in(state: Mapping[str, torch.Tensor]) -> PerceptualDistance:
    """All five stages of timm's resnet10t, unweighted: each adds a value in [0, 2], for features are not negative.

    Raises RuntimeError when the tensors are of another architecture.
    """
    model: Any = frame_classifier(STAND_IN, len(state["fc.bias"]))
    model.load_state_dict({k: v.float() if v.is_floating_point() else v for k, v in state.items()})
    model.eval()
    return PerceptualDistance(lambda frames: model.forward_intermediates(as_input(frames), intermediates_only=True))


def lpips_alex(trunk: Mapping[str, torch.Tensor], heads: Mapping[str, torch.Tensor]) -> PerceptualDistance:
    """LPIPS 0.1 (Zhang et al. 2018, arXiv 1801.03924) on AlexNet; frames of at least 31 px.

    trunk: state of torchvision's alexnet.  heads: `lin0.model.1.weight` .. `lin4.model.1.weight`, (1, C, 1, 1).
    Raises RuntimeError when the tensors are of another architecture.
    """
    with torch.device("meta"):
        layers = alexnet(weights=None).features
    prefix = "features."
    layers.load_state_dict({k.removeprefix(prefix): v for k, v in trunk.items() if k.startswith(prefix)}, assign=True)
    layers.eval()
    weights = tuple(heads[f"lin{k}.model.1.weight"].flatten() for k in range(len(ALEX_STAGES)))
    return PerceptualDistance(lambda frames: _alex_maps(layers, frames), weights)


def _alex_maps(layers: nn.Sequential, frames: torch.Tensor) -> Maps:
    shift, scale = (torch.tensor(v)[:, None, None] for v in (ALEX_SHIFT, ALEX_SCALE))
    x = (frames.permute(0, 3, 1, 2).float() / 127.5 - 1 - shift) / scale  # (N, 3, H, W)
    maps = []
    for number, layer in enumerate(layers[:ALEX_STAGES[-1] + 1]):
        x = layer(x)
        if number in ALEX_STAGES:
            maps.append(x)
    return maps


class PerceptualMetric(VideoMetric):
    """A metric of perceptual distances between frames: the network by the name of its variant."""

    assets = ("feature_eval",)

    def __init__(self, *, network: str = "synth"):
        self.network = network

    def load(self, assets: Mapping[str, Any], ctx: Context) -> None:
        self.distance = perceptual_distance(self.network, assets)
