"""What methods that train networks share: frames to learn from, one careful optimiser, states as arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from bench.errors import DataError, Diverged

WARM_UP = 0.05  # share of the steps over which the rate rises


class Descent:
    """Adam with a rate that rises over a twentieth of the steps and then falls as a cosine.

    name: of what learns, for the message. Raises Diverged on a loss or a gradient that is not finite.
    """

    def __init__(self, name: str, modules: Iterable[nn.Module], *, steps: int, rate: float,
                 betas: tuple[float, float] = (0.9, 0.99), norm: float = 5.0):
        self.name, self.steps, self.rate, self.norm = name, steps, rate, norm
        self.parameters = [p for module in modules for p in module.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=rate, betas=betas)
        self.losses: list[float] = []

    def step(self, loss: torch.Tensor) -> None:
        """One update of the parameters, and of nothing else: gradients that reached other networks are not kept."""
        done = len(self.losses)
        if not torch.isfinite(loss):
            raise Diverged(f"the loss of {self.name} became {loss.item()} in step {done + 1}")
        gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        norm = nn.utils.clip_grad_norm_(self.parameters, self.norm)
        if not torch.isfinite(norm):
            raise Diverged(f"the gradient of {self.name} became {norm.item()} in step {done + 1}")
        share = done / max(1, self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * min(1.0, share / WARM_UP + 0.02) * 0.5 * (1 + math.cos(math.pi * share))
        self.optimizer.step()
        self.losses.append(float(loss.detach()))

    @property
    def recent(self) -> float:
        """Mean loss of the last 50 steps; NaN before the first."""
        return float(np.mean(self.losses[-50:])) if self.losses else math.nan


# ---- frames --------------------------------------------------------------------------------------------------------

def draw_frames(videos: Sequence[Any], count: int, rng: np.random.Generator) -> np.ndarray:
    """uint8 (V, count, S, S, 3): random frames of each development video, in order; repeated where it is too short.

    Raises DataError without a video and when the videos differ in size.
    """
    chosen = []
    for item in videos:
        frames = item.video.frames
        index = rng.choice(len(frames), count, replace=len(frames) < count)
        chosen.append(frames[np.sort(index)])
    if not chosen or len({c.shape for c in chosen}) > 1:
        raise DataError(f"There are {len(chosen)} development videos of {len({c.shape for c in chosen})} sizes.",
                        "A method that learns needs some, all on one canvas.", "Prepare the dataset again.")
    return np.stack(chosen)


def as_batch(frames: np.ndarray) -> torch.Tensor:
    """uint8 (N, H, W, 3) -> float32 (N, 3, H, W) in 0 .. 1."""
    return torch.from_numpy(np.ascontiguousarray(frames)).permute(0, 3, 1, 2).float().div_(255.0)


def as_frames(batch: torch.Tensor) -> np.ndarray:
    """float (N, 3, H, W) -> uint8 (N, H, W, 3), clipped to 0 .. 1 and rounded to the nearest level."""
    return (batch.clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()


def moved(batch: torch.Tensor, rng: np.random.Generator, reach_px: int = 3, gain: float = 0.1) -> torch.Tensor:
    """One random mirror, shift (edges repeated) and brightness for a whole batch (N, 3, H, W); gradients pass."""
    height, width = batch.shape[2:]
    mirror, (dy, dx) = rng.random() < 0.5, rng.integers(-reach_px, reach_px + 1, 2)
    rows = (torch.arange(height) + int(dy)).clamp(0, height - 1)
    columns = (torch.arange(width) + int(dx)).clamp(0, width - 1)
    batch = batch.flip(3) if mirror else batch
    return batch[:, :, rows][:, :, :, columns] * float(1 + gain * (2 * rng.random() - 1))


# ---- states --------------------------------------------------------------------------------------------------------

def packed(**modules: nn.Module) -> dict[str, np.ndarray]:
    """Tensors of networks as arrays, by "network/tensor"."""
    return {f"{name}/{key}": tensor.detach().numpy().copy() for name, module in modules.items()
            for key, tensor in module.state_dict().items()}


def part_of(state: Mapping[str, Any], name: str) -> dict[str, torch.Tensor]:
    """The tensors of one network of a packed state."""
    return {key.removeprefix(f"{name}/"): torch.from_numpy(np.array(value)) for key, value in state.items()
            if key.startswith(f"{name}/")}


def fill(module: nn.Module, tensors: Mapping[str, Any], what: str) -> nn.Module:
    """Load every tensor into `module`, which is returned in evaluation mode.

    Raises DataError when a tensor is missing, is too many, has another shape or is not finite.
    """
    own = module.state_dict()
    given = {key: value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value))
             for key, value in tensors.items()}
    wrong = [f"{key} is {tuple(given[key].shape)}, not {tuple(value.shape)}" for key, value in own.items()
             if key in given and given[key].shape != value.shape]
    problems = [*wrong, *(f"{key} is missing" for key in own if key not in given),
                *(f"{key} is unknown" for key in given if key not in own),
                *(f"{key} is not finite" for key, value in given.items() if not torch.isfinite(value).all())]
    if problems:
        raise DataError(f"The weights of {what} do not fit: {'; '.join(problems[:4])}"
                        + (f"; and {len(problems) - 4} more." if len(problems) > 4 else "."),
                        "They are of another architecture or of another size.", "Give the weights of this network.")
    module.load_state_dict({key: value.to(own[key].dtype) for key, value in given.items()})
    return module.eval()


def frozen(module: nn.Module) -> nn.Module:
    """In evaluation mode, without gradients of its own; gradients pass through it."""
    return module.eval().requires_grad_(False)
