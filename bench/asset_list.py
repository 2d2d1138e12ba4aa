"""Names of the shared networks: what each learns, its architecture, how long it trains. No torch here."""

from __future__ import annotations

from dataclasses import dataclass

from bench.errors import ConfigError, nearest


@dataclass(frozen=True)
class Asset:
    """One shared network: what it learns (`task`), its architecture, how long it trains."""

    task: str
    architecture: str
    epochs: int
    per_video: int


ASSETS = {
    "identity_method": Asset("identity", "resnet14t", 10, 4),
    "identity_eval": Asset("identity", "resnet10t", 6, 4),
    "clip_identity_eval": Asset("identity", "clip_vit", 120, 1),
    "expression_method": Asset("expression", "x3d", 100, 1),
    "expression_eval": Asset("expression", "x3d", 100, 1),
    "clip_expression_method": Asset("expression", "clip_cnn", 60, 1),
    "avatar_method": Asset("avatar", "frames", 0, 1),
    "feature_method": Asset("feature", "resnet10t", 8, 4),
    "identity_code_method": Asset("identity", "coder", 8, 4),
    "expression_code_method": Asset("expression", "clip_coder", 120, 8),
    "expression_frame_method": Asset("expression", "coder", 14, 4),
    "autoencoder_method": Asset("pixels", "autoencoder", 14, 2),
    "feature_eval": Asset("feature", "resnet10t", 8, 4),
    "source_faces_method": Asset("pictures", "none", 0, 6),  # no network: six pictures of every public person
}


def check_name(name: str) -> None:
    """Raise ConfigError when there is no such asset."""
    if name not in ASSETS:
        raise ConfigError(f"There is no asset called {name!r}.", nearest(name, ASSETS),
                          "Assets are declared by plug-ins in `assets = (...)`.")
