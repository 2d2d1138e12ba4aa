"""The clip networks that utility is read with: X3D, R3D, TimeSformer, VideoMAE, each in the size of a profile.

Every network takes (N, 3, T, S, S) and gives logits (N, classes). All are built from settings, nothing is downloaded:
`tiny` starts from random numbers or an evaluation asset, `paper` from published weights that must lie in the checkout.
transformers is imported by the two builders that need it, so that X3D and R3D start without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from torchvision.models.video.resnet import BasicBlock, Conv3DSimple, VideoResNet

from bench.nets.video import SIZES, x3d


@dataclass(frozen=True)
class ResNetSize:
    """What an R3D reads and the channels of its first stage; r3d_18 has 64."""

    frames: int
    side_px: int
    width: int


@dataclass(frozen=True)
class TransformerSize:
    """What a video transformer reads and how wide and deep it is; the inner layers of its MLP are 4 x width."""

    frames: int
    side_px: int
    patch_px: int
    width: int
    layers: int
    heads: int


@dataclass(frozen=True)
class Network:
    """One architecture: build(classes, size), its size in each profile, the published weights that `paper` starts from.

    The weights are safetensors under the names of the library that builds the network.
    """

    build: Callable[[int, Any], nn.Module]
    sizes: Mapping[str, Any]
    published: str


class R3D(VideoResNet):
    """torchvision's VideoResNet of 18 layers with plain 3-D convolutions; with width 64 it is r3d_18."""

    def __init__(self, width: int, classes: int):
        self.width = width  # the parent builds its layers with the two methods below
        super().__init__(BasicBlock, [Conv3DSimple] * 4, [2, 2, 2, 2], self._stem, num_classes=classes)
        self.fc = nn.Linear(8 * width, classes)
        nn.init.normal_(self.fc.weight, 0, 0.01)
        nn.init.zeros_(self.fc.bias)

    def _stem(self) -> nn.Module:
        self.inplanes = self.width
        return nn.Sequential(nn.Conv3d(3, self.width, (3, 7, 7), stride=(1, 2, 2), padding=(1, 3, 3), bias=False),
                             nn.BatchNorm3d(self.width), nn.ReLU(inplace=True))

    def _make_layer(self, block: Any, conv_builder: Any, planes: int, blocks: int, stride: int = 1) -> nn.Sequential:
        return super()._make_layer(block, conv_builder, planes * self.width // 64, blocks, stride)


def r3d(classes: int, size: ResNetSize) -> nn.Module:
    """R3D (Tran et al. 2018)."""
    return R3D(size.width, classes)


def timesformer(classes: int, size: TransformerSize) -> nn.Module:
    """TimeSformer (Bertasius et al. 2021): divided space-time attention, read from the class token.

    As published, the projection after temporal attention starts at zero in every layer (the library draws it), so an
    untrained network reads each frame for itself and the class token averages over frames.
    """
    from transformers import TimesformerConfig, TimesformerForVideoClassification

    model = TimesformerForVideoClassification(TimesformerConfig(
        **_settings(classes, size), attention_type="divided_space_time"))
    for layer in model.timesformer.encoder.layer:
        for tensor in layer.temporal_dense.parameters():  # type: ignore[union-attr]
            nn.init.zeros_(tensor)
    return _clips_to_logits(model)


def videomae(classes: int, size: TransformerSize) -> nn.Module:
    """The encoder of VideoMAE (Tong et al. 2022): tubelets of 2 frames, fixed sine-cosine positions, mean pooling."""
    from transformers import VideoMAEConfig, VideoMAEForVideoClassification

    return _clips_to_logits(VideoMAEForVideoClassification(VideoMAEConfig(
        **_settings(classes, size), tubelet_size=2, use_mean_pooling=True)))


def _settings(classes: int, size: TransformerSize) -> dict[str, Any]:
    return {"image_size": size.side_px, "patch_size": size.patch_px, "num_frames": size.frames, "num_labels": classes,
            "hidden_size": size.width, "num_hidden_layers": size.layers, "num_attention_heads": size.heads,
            "intermediate_size": 4 * size.width}


def _clips_to_logits(model: nn.Module) -> nn.Module:
    """Frames before channels on the way in, logits alone on the way out; the names of its tensors stay as they are."""
    model.register_forward_pre_hook(lambda module, inputs: (inputs[0].transpose(1, 2),))  # (N, T, 3, S, S)
    model.register_forward_hook(lambda module, inputs, output: output.logits)
    return model


NETWORKS: dict[str, Network] = {
    "x3d": Network(x3d, SIZES, "x3d_s_k400"),
    "r3d": Network(r3d, {"tiny": ResNetSize(frames=8, side_px=64, width=8),
                         "paper": ResNetSize(frames=16, side_px=112, width=64)}, "r3d_18_k400"),
    "timesformer": Network(timesformer, {
        "tiny": TransformerSize(frames=8, side_px=64, patch_px=16, width=96, layers=4, heads=3),
        "paper": TransformerSize(frames=8, side_px=224, patch_px=16, width=768, layers=12, heads=12)},
        "timesformer_base_k400"),
    "videomae": Network(videomae, {
        "tiny": TransformerSize(frames=8, side_px=64, patch_px=16, width=96, layers=4, heads=3),
        "paper": TransformerSize(frames=16, side_px=224, patch_px=16, width=768, layers=12, heads=12)},
        "videomae_base_k400"),
}
