"""What a recovery network knows before it meets a method: faces of public people, made worse in general ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from bench.measures import Pair
from bench.nets.degrade import degraded
from bench.nets.recovery import RecoveryRecipe, train_recovery
from bench.nets.rvrt import RVRT, SIZES
from bench.types import CLIP_FRAMES, Video

SIDE_PX = 32  # of the pieces: one window of the network's attention
FRAMES = 8


@dataclass(frozen=True)
class Spoiled(Pair):
    """A clip that is made worse anew in each epoch. spoil: epoch -> the generator that the epoch draws from."""

    spoil: Callable[[int], np.random.Generator]

    def draw(self, epoch: int) -> Video:
        return Video(degraded(self.original.frames, self.spoil(epoch)), self.original.fps)


def train_start(videos: Sequence[Video], epochs: int, torch_seed: Callable[..., int],
                rng: Callable[..., np.random.Generator], report: Callable[[str], None]) -> RVRT:
    """An RVRT of the `tiny` size that restores whatever `degraded` does, learnt on all whole clips of the videos."""
    clips = [Video(v.frames[start:start + CLIP_FRAMES], v.fps) for v in videos
             for start in range(0, len(v) - CLIP_FRAMES + 1, CLIP_FRAMES)]
    pairs = [Spoiled(clip, (), lambda epoch, i=i: rng("spoil", i, epoch))  # type: ignore[misc]
             for i, clip in enumerate(clips)]
    torch.manual_seed(torch_seed("weights"))
    model = RVRT(SIZES["tiny"])
    recipe = RecoveryRecipe(epochs=epochs, batch=4, rate=2e-3, frames=FRAMES, side_px=SIDE_PX, slow="flow.")
    train_recovery(model, pairs, recipe, torch_seed("order"), report=report)
    return model.eval()
