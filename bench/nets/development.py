"""What a method learns from: frames of development videos beside class numbers, as batches, moved at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from bench.errors import DataError


def classes(samples: Sequence[Any], label: str) -> np.ndarray:
    """int64 (N,): the label of each development video, numbered 0 .. K - 1 without gaps.

    Raises DataError when a video lacks the label, or when all videos have the same one.
    """
    try:
        values = [getattr(sample, label) for sample in samples]
    except (AttributeError, KeyError):
        values = [None]
    if any(value is None for value in values):
        raise DataError(f"The development videos have no label {label!r}.", "The method learns from it.",
                        "Use a dataset whose sources carry it, or another method.")
    known, numbers = np.unique(np.array(values), return_inverse=True)
    if len(known) < 2:
        raise DataError(f"{'All' if len(known) else 'No'} development videos have the label {label!r} "
                        f"{known[0] if len(known) else 'at all'}.", "The method learns to tell values apart.",
                        "Use a dataset with at least two, or another method.")
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


def some_of(samples: Sequence[Any], most: int, rng: np.random.Generator) -> list[Any]:
    """All samples, or as many as `most` drawn from them, in their order."""
    if len(samples) <= most:
        return list(samples)
    return [samples[i] for i in np.sort(rng.choice(len(samples), most, replace=False))]


def draw_frames(samples: Sequence[Any], count: int, rng: np.random.Generator) -> np.ndarray:
    """uint8 (V, count, S, S, 3): random frames of each development video, in order; repeated where it is too short.

    Raises DataError without a video and when the videos differ in size.
    """
    chosen = []
    for sample in samples:
        frames = sample.video.frames
        index = rng.choice(len(frames), count, replace=len(frames) < count)
        chosen.append(frames[np.sort(index)])
    if not chosen or len({c.shape for c in chosen}) > 1:
        raise DataError(f"There are {len(chosen)} development videos of {len({c.shape for c in chosen})} sizes.",
                        "A method that learns needs some, all on one canvas.", "Prepare the dataset again.")
    return np.stack(chosen)


def as_pictures(frames: np.ndarray) -> torch.Tensor:
    """uint8 (N, H, W, 3) -> float32 (N, 3, H, W) in 0 .. 1."""
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(frames, 3, 1))).float().div_(255.0)


def as_frames(pictures: torch.Tensor) -> np.ndarray:
    """float (N, 3, H, W) -> uint8 (N, H, W, 3): cut to 0 .. 1 and rounded to the nearest level."""
    return (pictures.clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()


def mirrored(frames: np.ndarray, rng: np.random.Generator) -> torch.Tensor:
    """uint8 (N, H, W, 3) -> float (N, 3, H, W) in 0 .. 1, half of them mirrored."""
    pictures = as_pictures(frames)
    flip = torch.from_numpy(rng.random(len(frames)) < 0.5)[:, None, None, None]
    return torch.where(flip, pictures.flip(3), pictures)


def moved(batch: torch.Tensor, rng: np.random.Generator, reach_px: int = 3, gain: float = 0.1) -> torch.Tensor:
    """One random mirror, shift (edges repeated) and brightness for a whole batch (N, 3, H, W); gradients pass."""
    height, width = batch.shape[2:]
    mirror, (dy, dx) = rng.random() < 0.5, rng.integers(-reach_px, reach_px + 1, 2)
    rows = (torch.arange(height) + int(dy)).clamp(0, height - 1)
    columns = (torch.arange(width) + int(dx)).clamp(0, width - 1)
    batch = batch.flip(3) if mirror else batch
    return batch[:, :, rows][:, :, :, columns] * float(1 + gain * (2 * rng.random() - 1))
