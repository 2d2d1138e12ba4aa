"""The shared networks of the tiny profile, untrained, by the word that bench/asset_list.py calls them."""

from __future__ import annotations

from torch import nn

from bench.nets import clip_expression, clip_vit, video
from bench.nets.image import frame_classifier


def architecture(word: str, classes: int) -> nn.Module:
    """The network with `classes` logits: "x3d", "clip_vit", "clip_cnn" read clips; others are timm's, on frames."""
    if word == "x3d":
        return video.x3d(classes, video.SIZES["tiny"])
    if word == "clip_vit":
        return clip_vit.ClipViT(clip_vit.SIZES["tiny"], classes)
    if word == "clip_cnn":
        return clip_expression.ClipExpressionNet(classes)
    return frame_classifier(word, classes)
