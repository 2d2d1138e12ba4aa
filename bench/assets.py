"""Shared networks, trained once on public people (who occur in no split), seeded, each in two copies.

`*_method` copies are what a method may build on; `*_eval` copies are what attacks and evaluators start from. The two
have different seeds and, for identity, different architectures: what evaluates is never what a method trained with.

    identity    who is it, from a frame          resnet10t (eval), resnet14t (method)
                or from a clip                   a joint space-time transformer (clip_identity_eval)
    expression  which expression, from a clip    X3D, 4 frames; it also learns where the landmarks of the made
                public faces are, which gives a small network something to see from the first epoch on
                or a small convolutional reader of clips (clip_expression_method), for the avatars
    avatar      no network: what one public person looks like while acting each expression (bench/avatar.py)
    feature     attributes and expression of a frame, for perceptual distances; resnet10t
    pictures    no network: pictures of public people, whose identity a method may put in the place of another

Frame coders and the autoencoder, which only methods use, are trained in `bench.method_assets`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from bench import seeds
from bench.asset_list import ASSETS, Asset
from bench.avatar import acted
from bench.data.clips import Clips, Row
from bench.data.public_faces import pictures
from bench.method_assets import train_autoencoder, train_clip_coder, train_coder
from bench.nets import clip_expression
from bench.nets.architectures import architecture
from bench.nets.clip_recipe import clip_recipe
from bench.nets.clip_vit import SIZES as VIT_SIZES
from bench.nets.clip_vit import clip_frames
from bench.nets.image import as_input, jitter
from bench.nets.training import Data, Recipe, train_classifier
from bench.nets.video import SIZES, as_clip_input, cut_head, gain_clips
from bench.public_marks import SHIFT_PX, Landmarks, landmarks, moved
from bench.types import CLIP_FRAMES

CLIP_NETS = ("x3d", "clip_vit", "clip_cnn")  # they read clips, and learn landmarks beside
LANDMARK_WEIGHT = 3.0


def train_asset(name: str, clips: Clips, seed: int, budget: dict[str, Any],
                report: Callable[[str], None]) -> dict[str, np.ndarray]:
    """Train one asset on the public people of `clips`; returns its tensors as arrays."""
    asset = ASSETS[name]
    rows = clips.rows("public")
    if asset.task == "pictures":
        return pictures(clips, asset.per_video)
    if asset.task == "avatar":
        return acted(clips)
    if asset.architecture in ("coder", "clip_coder", "autoencoder"):
        return _train_for_methods(name, clips, rows, seed, int(budget.get("epochs", asset.epochs)), report)
    model, recipe = _build(asset, clips, rows, int(budget.get("epochs", asset.epochs)), seed, name)
    rng = seeds.derive(seed, "asset", name, "samples")
    videos = [clips.video(row).frames for row in rows]
    targets = _targets(asset.task, clips, rows)
    marks = landmarks(clips, rows) if asset.architecture in CLIP_NETS else None
    train_classifier(model, lambda epoch: _draw(asset, videos, targets, marks, rng), recipe,
                     seeds.derive_torch(seed, "asset", name, "order"), report=report)
    state = model.state_dict()
    if marks is not None:
        state = cut_head(state, len(set(targets)))
    return {k: v.numpy() for k, v in state.items()}


def _train_for_methods(name: str, clips: Clips, rows: list[Row], seed: int, epochs: int,
                       report: Callable[[str], None]) -> dict[str, np.ndarray]:
    asset, videos = ASSETS[name], [clips.video(row).frames for row in rows]
    if asset.architecture == "autoencoder":
        return train_autoencoder(name, videos, epochs, asset.per_video, seed, report)
    marks = landmarks(clips, rows) if asset.task == "expression" else None
    train = train_clip_coder if asset.architecture == "clip_coder" else train_coder
    return train(name, videos, _targets(asset.task, clips, rows), marks, epochs,
                       asset.per_video, seed, report)


def _build(asset: Asset, clips: Clips, rows: list[Row], epochs: int, seed: int, name: str) -> tuple[nn.Module, Recipe]:
    torch.manual_seed(seeds.derive_torch(seed, "asset", name, "weights"))
    classes = len(set(_targets(asset.task, clips, rows)))
    known = clips.landmarks(rows[0]) if asset.architecture in CLIP_NETS else None
    model = architecture(asset.architecture, classes + (0 if known is None else known[0].size))
    return model, _recipe(asset.architecture, epochs, classes)


def _recipe(word: str, epochs: int, classes: int) -> Recipe:
    if word == "x3d":
        side = SIZES["tiny"].side_px
        return Recipe(epochs=epochs, batch=16, rate=3e-3, weight_decay=0.02, augment=gain_clips,
                      prepare=lambda clips: as_clip_input(clips, side),
                      loss=lambda out, want: _label_and_landmarks(out, want, classes))
    if word == "clip_vit":
        return replace(clip_recipe(VIT_SIZES["tiny"], epochs), batch=16, augment=gain_clips,
                       loss=lambda out, want: _label_and_landmarks(out, want, classes))
    if word == "clip_cnn":
        return replace(clip_expression.recipe(epochs), augment=gain_clips,
                       loss=lambda out, want: _label_and_landmarks(out, want, classes))
    return Recipe(epochs=epochs, prepare=as_input, augment=jitter, rate=2e-3)


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


def _label_and_landmarks(outputs: torch.Tensor, want: torch.Tensor, classes: int) -> torch.Tensor:
    """Cross entropy of the label (column 0) plus a smooth L1 of the landmarks (the other columns, if any)."""
    loss = F.cross_entropy(outputs[:, :classes], want[:, 0].long(), label_smoothing=0.05)
    if want.shape[1] > 1:
        loss = loss + LANDMARK_WEIGHT * F.smooth_l1_loss(outputs[:, classes:], want[:, 1:])
    return loss


def _draw(asset: Asset, videos: list[np.ndarray], targets: list[int], marks: Landmarks | None,
          rng: np.random.Generator) -> Data:
    if asset.architecture in CLIP_NETS:
        return _draw_clips(videos, targets, marks, rng, _CHOSEN[asset.architecture])
    inputs = [frames[np.sort(rng.choice(len(frames), asset.per_video, replace=False))] for frames in videos]
    return torch.from_numpy(np.concatenate(inputs)), torch.tensor(np.repeat(targets, asset.per_video))


def _draw_clips(videos: list[np.ndarray], targets: list[int], marks: Landmarks | None, rng: np.random.Generator,
                chosen: Callable[[int, np.random.Generator], np.ndarray]) -> Data:
    """One random clip of each video, mirrored and shifted at random, every frame alike.

    Targets float32 (N, 1 + 2 K): label, then where the landmarks are.
    """
    inputs, wanted = [], []
    for number, frames in enumerate(videos):
        index = chosen(len(frames), rng)
        mirror, (dx, dy) = bool(rng.random() < 0.5), rng.integers(-SHIFT_PX, SHIFT_PX + 1, 2)
        inputs.append(moved(frames[index], mirror, int(dx), int(dy)))
        where = np.zeros(0) if marks is None else marks.target(number, index, mirror, np.array([dx, dy]))
        wanted.append(np.concatenate([[targets[number]], where]).astype(np.float32))
    return torch.from_numpy(np.stack(inputs)), torch.from_numpy(np.stack(wanted))


def _random_frames(unpadded: int, rng: np.random.Generator) -> np.ndarray:
    """Equally spaced frames of a random clip, from a random first one."""
    count = SIZES["tiny"].frames
    start = int(rng.integers(-(-unpadded // CLIP_FRAMES))) * CLIP_FRAMES
    length = min(CLIP_FRAMES, unpadded - start)
    return (start + (np.arange(count) + rng.random()) * length / count).astype(int)


def _whole_clip(unpadded: int, rng: np.random.Generator) -> np.ndarray:
    """Frames of a random clip of a video, chosen as an attacker reads a clip."""
    return clip_frames(unpadded, int(rng.integers(-(-unpadded // CLIP_FRAMES))), VIT_SIZES["tiny"].frames)


def _spread_clip(unpadded: int, rng: np.random.Generator) -> np.ndarray:
    """Frames of a random clip of a video, chosen as the small reader of clips does, from a random first one."""
    first = int(rng.integers(-(-unpadded // CLIP_FRAMES))) * CLIP_FRAMES
    return first + clip_expression.chosen_frames(min(CLIP_FRAMES, unpadded - first), float(rng.random()))


_CHOSEN = {"x3d": _random_frames, "clip_vit": _whole_clip, "clip_cnn": _spread_clip}
