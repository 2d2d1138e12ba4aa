"""U-Net++ on a ResNet-18 (Zhou et al. 2018), the anonymizer of TED-SPAD, under the names of its weights.

Between encoder and decoder lies a triangle of nodes: node (i, j) reads node (i, j - 1), enlarged twice, beside every
node (i + 1 .. j, j) and the encoder's picture of that size. The names are those of the library segmentation_models
(MIT licence), with which the weights were trained; nothing of it is imported or copied.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torchvision.models.resnet import BasicBlock, ResNet

from bench.errors import DataError
from bench.nets.given import brought

DECODED = (256, 128, 64, 32)  # channels on the way up
ENCODED = (256, 128, 64, 64)  # of the encoder, smallest picture first: layer3, layer2, layer1, stem
STEP = 16  # sides are padded to a multiple of it
KEY = "fa_model_state_dict"  # of the anonymizer in a published checkpoint


class Node(nn.Module):
    """Enlarge twice, put the others beside it, two convolutions: (N, given, H, W) -> (N, made, 2 H, 2 W)."""

    def __init__(self, given: int, beside: int, made: int):
        super().__init__()
        self.conv1, self.conv2 = _convolution(given + beside, made), _convolution(made, made)

    def forward(self, x: torch.Tensor, *beside: torch.Tensor) -> torch.Tensor:
        x = F.interpolate(x, scale_factor=2, mode="nearest")
        return self.conv2(self.conv1(torch.cat([x, *beside], 1) if beside else x))


class Encoder(nn.Module):
    """The stem and three stages of ResNet-18: pictures of 1/2, 1/4, 1/8 and 1/16 of the side."""

    def __init__(self) -> None:
        super().__init__()
        whole = ResNet(BasicBlock, [2, 2, 2, 2])
        for name in ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4"):
            self.add_module(name, getattr(whole, name))  # the last stage is in the published weights, unused

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Smallest first."""
        parts: Any = self._modules
        levels = [parts["relu"](parts["bn1"](parts["conv1"](x)))]
        levels.append(parts["layer1"](parts["maxpool"](levels[-1])))
        for name in ("layer2", "layer3"):
            levels.append(parts[name](levels[-1]))
        return levels[::-1]


class NestedUNet(nn.Module):
    """(N, 3, H, W) in 0 .. 1 -> the same shape; no sigmoid: what is outside 0 .. 1 is cut off in a release."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder, depth = Encoder(), nn.Module(), len(DECODED) - 1
        blocks = {}
        for j in range(depth):
            blocks[f"x_0_{j}"] = Node((ENCODED[0], *DECODED)[j], ENCODED[j + 1] * (j + 1), DECODED[j])
            for i in range(1, j + 1):
                blocks[f"x_{i}_{j}"] = Node(ENCODED[j], ENCODED[j + 1] * (j + 1 - i), ENCODED[j + 1])
        blocks[f"x_0_{depth}"] = Node(DECODED[-2], 0, DECODED[-1])
        self.decoder.blocks = nn.ModuleDict(blocks)
        self.segmentation_head = nn.Sequential(nn.Conv2d(DECODED[-1], 3, 3, padding=1))

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        height, width = frames.shape[2:]
        levels = self.encoder(F.pad(frames, (0, -width % STEP, 0, -height % STEP), mode="replicate"))
        blocks: Any = self.decoder.blocks
        depth, made = len(DECODED) - 1, dict[tuple[int, int], torch.Tensor]()
        for span in range(depth):
            for i in range(depth - span):
                j = i + span
                given = made[i, j - 1] if span else levels[i]
                beside = [made[k, j] for k in range(i + 1, j + 1)]
                made[i, j] = blocks[f"x_{i}_{j}"](given, *beside, levels[j + 1])
        last = blocks[f"x_0_{depth}"](made[0, depth - 1])
        return self.segmentation_head(last)[:, :, :height, :width]


def _convolution(given: int, made: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(given, made, 3, padding=1, bias=False), nn.BatchNorm2d(made), nn.ReLU(inplace=True))


def load_published(path: str | Path, sha256: str, model: NestedUNet) -> None:
    """Load a checkpoint of the official TED-SPAD code into `model`, after its digest was checked.

    Raises WeightsMissing without the file, DataError when it has another digest or other tensors.
    """
    file = brought("ted_spad", path, sha256)
    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise DataError(f"The weights {file.name} cannot be read: {str(error).splitlines()[0]}.",
                        "Only tensors are read; a pickle that holds anything else could run code.",
                        "Save the dictionary of tensors alone.") from None
    kept = found.get(KEY, found) if isinstance(found, Mapping) else {}
    state = {str(k).removeprefix("module."): v for k, v in kept.items() if isinstance(v, torch.Tensor)}
    own = model.state_dict()
    wrong = [k for k in own if k not in state or state[k].shape != own[k].shape]
    if wrong or len(state) != len(own):
        raise DataError(f"The weights {file.name} do not fit the U-Net++ of TED-SPAD: {len(wrong)} of {len(own)} "
                        f"tensors are missing or of another shape{', such as ' + wrong[0] if wrong else ''}.",
                        "A network that is partly random would be measured under a published name.",
                        f"Give the checkpoint of the official code that holds {KEY}.")
    model.load_state_dict(state)
