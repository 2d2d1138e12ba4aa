"""What a method learns from: frames of development videos beside class numbers, and its networks as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from bench.errors import DataError


def classes(samples: Sequence[Any], label: str) -> np.ndarray:
    """int64 (N,): the label of each development video, numbered 0 .. K - 1 without gaps.

    Raises DataError when a video lacks the label, or when all videos have the same one.
    """
    try:
        values = [getattr(sample, label) for sample in samples]
    except (AttributeError, KeyError):
        values = [None]
    if not values or any(value is None for value in values):
        raise DataError(f"The development videos have no label {label!r}.", "The method learns from it.",
                        "Use a dataset whose sources carry it, or another method.")
    known, numbers = np.unique(values, return_inverse=True)
    if len(known) < 2:
        raise DataError(f"All development videos have the same {label}.", "The method learns to tell them apart.",
                        "Use a dataset with at least two.")
    return numbers.astype(np.int64)


def frames_of(samples: Sequence[Any], per_video: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Drawn frames uint8 (M, H, W, 3) of all videos, and the number of the video that each is from (M,)."""
    frames, owners = [], []
    for number, sample in enumerate(samples):
        every = sample.video.frames
        chosen = np.sort(rng.choice(len(every), min(per_video, len(every)), replace=False))
        frames.append(every[chosen])
        owners += [number] * len(chosen)
    return np.concatenate(frames), np.array(owners)


def as_pictures(frames: np.ndarray) -> torch.Tensor:
    """uint8 (N, H, W, 3) -> float32 (N, 3, H, W) in 0 .. 1."""
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(frames, 3, 1))).float().div_(255.0)


def mirrored(frames: np.ndarray, rng: np.random.Generator) -> torch.Tensor:
    """uint8 (N, H, W, 3) -> float (N, 3, H, W) in 0 .. 1, half of them mirrored."""
    pictures = as_pictures(frames)
    flip = torch.from_numpy(rng.random(len(frames)) < 0.5)[:, None, None, None]
    return torch.where(flip, pictures.flip(3), pictures)


def as_frames(pictures: torch.Tensor) -> np.ndarray:
    """float (N, 3, H, W) -> uint8 (N, H, W, 3): cut to 0 .. 1 and rounded to the nearest level."""
    return (pictures.clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()


def arrays_of(modules: Mapping[str, nn.Module]) -> dict[str, np.ndarray]:
    """All tensors of the modules, as `NAME.tensor`."""
    return {f"{name}.{key}": tensor.detach().numpy() for name, module in modules.items()
            for key, tensor in module.state_dict().items()}


def fill(modules: Mapping[str, nn.Module], state: Mapping[str, np.ndarray]) -> None:
    """Put `arrays_of` back and set the modules to evaluation. Raises DataError for another architecture or a NaN."""
    for name, module in modules.items():
        found = {key.partition(".")[2]: torch.from_numpy(np.array(array)) for key, array in state.items()
                 if key.partition(".")[0] == name}
        wrong = list(_unfit(module.state_dict(), found))
        if wrong:
            raise DataError(f"The weights do not fit the {name}: {', '.join(wrong[:3])}.",
                            "They are of another architecture, or damaged.", "Fit the method again.")
        module.load_state_dict(found)
        module.eval()


def _unfit(own: Mapping[str, torch.Tensor], found: Mapping[str, torch.Tensor]) -> Iterable[str]:
    for key in sorted(own.keys() | found.keys()):
        if key not in found or key not in own:
            yield f"{key} is {'missing' if key in own else 'left over'}"
        elif found[key].shape != own[key].shape:
            yield f"{key} is {tuple(found[key].shape)}, not {tuple(own[key].shape)}"
        elif found[key].is_floating_point() and not torch.isfinite(found[key]).all():
            yield f"{key} is not finite"
