"""Shared networks, trained once on public people (who occur in no split), seeded, each in two copies.

`*_method` copies are what a method may build on; `*_eval` copies are what attacks and evaluators start from. The two
have different seeds and, for identity, different architectures: what evaluates is never what a method trained with.

    identity    who is it, from a frame          resnet10t (eval), resnet14t (method)
    expression  which expression, from a clip    X3D, 8 frames
    feature     attributes and expression of a frame, for perceptual distances; resnet10t
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from bench import seeds
from bench.asset_list import ASSETS, Asset
from bench.data.clips import Clips, Row
from bench.errors import ConfigError, nearest
from bench.nets.image import as_input, frame_classifier, jitter
from bench.nets.training import Data, Recipe, train_classifier
from bench.nets.video import SIZES, as_clip_input, jitter_clips, spread, x3d
from bench.types import CLIP_FRAMES


def check_name(name: str) -> None:
    """Raise ConfigError when there is no such asset."""
    if name not in ASSETS:
        raise ConfigError(f"There is no asset called {name!r}.", nearest(name, ASSETS),
                          "Assets are declared by plug-ins in `assets = (...)`.")


def train_asset(name: str, clips: Clips, seed: int, budget: dict[str, Any],
                report: Callable[[str], None]) -> dict[str, np.ndarray]:
    """Train one asset on the public people of `clips`; returns its tensors as arrays."""
    asset = ASSETS[name]
    rows = clips.rows("public")
    model, recipe = _build(asset, clips, rows, int(budget.get("epochs", asset.epochs)), seed, name)
    rng = seeds.derive(seed, "asset", name, "samples")
    videos = [clips.video(row).frames for row in rows]
    targets = _targets(asset.task, clips, rows)
    train_classifier(model, lambda epoch: _draw(asset, videos, targets, rng), recipe,
                     seeds.derive_torch(seed, "asset", name, "order"), report=report)
    return {k: v.numpy() for k, v in model.state_dict().items()}


def _build(asset: Asset, clips: Clips, rows: list[Row], epochs: int, seed: int, name: str) -> tuple[nn.Module, Recipe]:
    torch.manual_seed(seeds.derive_torch(seed, "asset", name, "weights"))
    classes = len(set(_targets(asset.task, clips, rows)))
    if asset.architecture == "x3d":
        size = SIZES["tiny"]
        return x3d(classes, size), Recipe(epochs=epochs, batch=16, rate=3e-3, augment=jitter_clips,
                                          prepare=lambda c: as_clip_input(c, size.side_px))
    return frame_classifier(asset.architecture, classes), Recipe(epochs=epochs, prepare=as_input, augment=jitter,
                                                                 rate=2e-3)


def _targets(task: str, clips: Clips, rows: list[Row]) -> list[int]:
    """Class of each video: person, label, or the joint value of label and attributes."""
    if task == "identity":
        names = [row.person for row in rows]
    elif task == "expression":
        names = [row.label for row in rows]
    else:
        names = [json.dumps([row.label, row.attributes]) for row in rows]
    index = {value: i for i, value in enumerate(sorted(set(names)))}
    return [index[value] for value in names]


def _draw(asset: Asset, videos: list[np.ndarray], targets: list[int], rng: np.random.Generator) -> Data:
    inputs, classes = [], []
    for frames, target in zip(videos, targets):
        if asset.architecture == "x3d":
            k = int(rng.integers(-(-len(frames) // CLIP_FRAMES)))
            inputs.append(frames[spread(len(frames), k * CLIP_FRAMES, CLIP_FRAMES, SIZES["tiny"].frames)][None])
        else:
            inputs.append(frames[np.sort(rng.choice(len(frames), asset.per_video, replace=False))])
        classes += [target] * len(inputs[-1])
    return torch.from_numpy(np.concatenate(inputs)), torch.tensor(classes)
