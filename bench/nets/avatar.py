"""What avatar_dp and avatar_rr share: a reader of expressions, and a public avatar that acts what was released."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from bench.errors import ConfigError
from bench.nets.clip_expression import ClipExpressionNet, read_clip, train_reader
from bench.privacy.contract import PrivateMethod
from bench.types import CLIP_FRAMES, Context

READER = "reader:"  # before the names of its tensors in the state


class AvatarMethod(PrivateMethod):
    """Reads the expression of a clip and shows a public person acting it. A method derives from it and says what of
    the reading leaves the clip (`branches`, `encode`) and which expression the released values name (`render`).
    """

    fits = True
    needs = frozenset({"expression"})
    assets = ("clip_expression_method", "avatar_method")
    memory_between_clips = True  # the clips of one video are decoded together, and the avatar acts on

    def __init__(self, *, classes: int, epochs: int):
        self.classes, self.epochs = classes, epochs
        self._state: Mapping[str, np.ndarray] = {}

    def fit(self, data: Any, assets: Mapping[str, Any], ctx: Context) -> None:
        """Fine-tunes the reader on all development people. Raises ConfigError for a label the avatar cannot act."""
        items = [(item.video.frames, int(item.expression)) for item in data]
        shown = assets["avatar_method"]["frames"]  # (labels, 32, S, S, 3)
        found = max(label for _, label in items) + 1
        if found > self.classes or self.classes > len(shown):
            raise ConfigError(f"{self.name} is set to {self.classes} expressions; the dataset has {found}, the avatar "
                              f"acts {len(shown)}.", "Claim and noise are those of a fixed list of expressions.",
                              f"Use a dataset with at most {min(self.classes, len(shown))} labels.")
        model = train_reader([v for v, _ in items], [y for _, y in items], self.classes,
                             assets["clip_expression_method"], self.epochs, ctx)
        self._state = {"avatar": np.asarray(shown[:self.classes])} | {
            READER + k: v.numpy() for k, v in model.state_dict().items()}

    def state(self) -> Mapping[str, np.ndarray]:
        return self._state

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        self._state = dict(state)

    def probabilities(self, atom: np.ndarray) -> np.ndarray:
        """How likely each expression is, (classes,), in one clip, uint8 (16, H, W, 3)."""
        model = ClipExpressionNet(self.classes)
        model.load_state_dict({k[len(READER):]: torch.from_numpy(np.array(v)) for k, v in self._state.items()
                               if k.startswith(READER)})
        return read_clip(model, atom)

    def act(self, labels: Sequence[int], canvas_px: int) -> np.ndarray:
        """The avatar acts one label a clip, uint8 (16 * clips, S, S, 3): the onset in the first, the rest after it.

        Raises ConfigError where the canvas is not the avatar's.
        """
        avatar = self._state["avatar"]
        if avatar.shape[2] != canvas_px:
            raise ConfigError(f"The avatar was drawn on {avatar.shape[2]} px, the release is on {canvas_px} px.", "",
                              "Fit the method on the canvas that it releases on.")
        part = (slice(0, CLIP_FRAMES), slice(CLIP_FRAMES, 2 * CLIP_FRAMES))
        return np.concatenate([avatar[label, part[min(k, 1)]] for k, label in enumerate(labels)])


def unpadded_shares(clips: int, frames: int) -> np.ndarray:
    """Weight (clips,) of each clip of a video of `frames` frames: how much of it is not padding, in (0, 1]."""
    return np.clip((frames - CLIP_FRAMES * np.arange(clips)) / CLIP_FRAMES, 1 / CLIP_FRAMES, 1.0)
