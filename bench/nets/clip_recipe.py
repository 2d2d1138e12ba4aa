"""How clip transformers are trained: as a shared asset on public people, and as an attacker of a release."""

from __future__ import annotations

from bench.nets.clip_vit import ViTSize, as_vit_input
from bench.nets.training import Recipe
from bench.nets.video import jitter_clips


def clip_recipe(size: ViTSize, epochs: int) -> Recipe:
    """How a clip transformer is trained: mirrored, shifted by up to 2 px and brightened, one draw a clip."""
    return Recipe(epochs=epochs, prepare=lambda clips: as_vit_input(clips, size.side_px), augment=jitter_clips,
                  batch=8, rate=1e-3)
