"""How large TADP's parts are: the paper's sizes, and small ones for 64 px and two cores."""

from __future__ import annotations

from dataclasses import dataclass

from bench import ConfigError

BRANCHES = ("id", "expr")
BOUNDARY = 4  # L: last frames of a clip that stand for its end


@dataclass(frozen=True)
class Size:
    """One profile.

    dim: numbers of a feature, both branches.  width: of fusion, Transformer and memory.  latent: shape of a frame for
    the decoder.  epochs, batch: of training; a batch holds that many windows of up to 3 clips.  rendered: frames of a
    clip that training decodes (its first and last one and others by chance), 0 = all.
    """

    dim: int
    width: int
    layers: int
    heads: int
    latent: tuple[int, int, int]
    epochs: int
    batch: int
    rendered: int
    windows: int = 0  # windows of an epoch, 0 = all


SIZES = {
    "tiny": Size(dim=8, width=64, layers=2, heads=4, latent=(4, 8, 8), epochs=10, batch=8, rendered=3, windows=320),
    "paper": Size(dim=1024, width=512, layers=4, heads=8, latent=(4, 32, 32), epochs=100, batch=16, rendered=0),
}


def size_of(name: str) -> Size:
    """The size of that name. Raises ConfigError."""
    if name not in SIZES:
        raise ConfigError(f"TADP has no size {name!r}.", f"Known: {', '.join(SIZES)}.", "Choose one of them.")
    return SIZES[name]
