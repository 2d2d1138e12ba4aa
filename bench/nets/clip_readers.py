"""Clip networks that give logits and a feature: what an anonymizer must leave readable is judged by one of them.

    x3d      the shared X3D of the tiny profile, so that it can start from an asset for methods
    r3d      R3D-18 as SPAct changes it: the last stage keeps its frames and is dilated over time instead
    i3d      I3D on a ResNet-50, of TED-SPAD
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from bench.nets.evaluators import NETWORKS, r3d
from bench.nets.training import load_matching
from bench.nets.video import SIZES, x3d

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the package scripts functions when imported
    from pytorchvideo.models.resnet import create_resnet

EMBEDDED = (512, 128)  # widths of the embedding's two layers
MEAN, DEVIATION = 0.45, 0.225  # of the input of r3d and i3d
ROOM = 0.0125  # added to a deviation, as the X3D learned it


class ClipReader(nn.Module):
    """(N, T, 3, H, W) in 0 .. 1 -> logits (N, classes) and feature (N, d), with gradients to the frames.

    start: tensors of a network of the same word; a head of another size is left out, as `load_matching` says.
    embeds: the feature is a unit vector of 128 from two further layers, as TED-SPAD's triplet reads it; else it is
    what the body sees, averaged over time and place.
    """

    def __init__(self, word: str, classes: int, *, start: Mapping[str, torch.Tensor] | None = None,
                 embeds: bool = False):
        super().__init__()
        self.word, made = word, _BUILD[word](classes)
        if start is not None:
            load_matching(made, dict(start))
        if word == "r3d":
            body, self.head = [made.stem, made.layer1, made.layer2, made.layer3, made.layer4], made.fc
        else:
            *body, self.head = made.blocks
        self.body, self.embed = nn.Sequential(*body), None
        if embeds:
            first = {"x3d": lambda: self.head.pool.pre_conv.in_channels, "i3d": lambda: self.head.proj.in_features,
                     "r3d": lambda: self.head.in_features}[word]()
            self.embed = _embedding(first)

    def forward(self, clips: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen = self.body(self.prepared(clips))  # (N, d, T', H', W')
        feature = seen.mean((2, 3, 4))
        logits = self.head(feature if self.word == "r3d" else seen)
        return logits, feature if self.embed is None else F.normalize(self.embed(feature), dim=1)

    def prepared(self, clips: torch.Tensor) -> torch.Tensor:
        """What the body reads, (N, 3, T, S, S). For x3d: each clip and channel standardised, 64 px."""
        if self.word != "x3d":
            return (clips.transpose(1, 2) - MEAN) / DEVIATION
        side = SIZES["tiny"].side_px
        if clips.shape[3:] != (side, side):
            n, t = clips.shape[:2]
            clips = F.adaptive_avg_pool2d(clips.flatten(0, 1), side).view(n, t, 3, side, side)
        clips = clips.transpose(1, 2)
        mean, deviation = clips.mean((2, 3, 4), keepdim=True), clips.std((2, 3, 4), keepdim=True)
        return (clips - mean) / (deviation + ROOM)


def _embedding(width: int) -> nn.Module:
    inner, last = EMBEDDED
    return nn.Sequential(nn.Linear(width, inner), nn.BatchNorm1d(inner), nn.ReLU(inplace=True),
                         nn.Linear(inner, last, bias=False), nn.BatchNorm1d(last))


def _x3d(classes: int) -> Any:
    return x3d(classes, SIZES["tiny"])


def _r3d(classes: int) -> Any:
    made: Any = r3d(classes, NETWORKS["r3d"].sizes["paper"])
    last, given = made.layer4[0], made.layer4[0].conv1[0].in_channels
    last.conv1[0] = nn.Conv3d(given, 2 * given, 3, (1, 2, 2), (2, 1, 1), dilation=(2, 1, 1), bias=False)
    last.downsample[0] = nn.Conv3d(given, 2 * given, 1, (1, 2, 2), bias=False)
    return made


def _i3d(classes: int) -> Any:
    over_time, alone = (3, 1, 1), (1, 1, 1)
    return create_resnet(model_depth=50, model_num_class=classes, head_activation=None, stem_conv_kernel_size=(5, 7, 7),
                         stage1_pool=nn.MaxPool3d, stage_conv_a_kernel_size=(
                             over_time, [over_time, alone], [over_time, alone], [alone, over_time]))


_BUILD: dict[str, Callable[[int], Any]] = {"x3d": _x3d, "r3d": _r3d, "i3d": _i3d}
