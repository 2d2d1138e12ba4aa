"""Steps down a loss for methods that train several networks in turn: rates, clipping, and when to give up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from bench.errors import Diverged


def cosine(share: float) -> float:
    """Share of the rate after this share of the steps: up over a twentieth, then down as a cosine."""
    return min(1.0, share / 0.05 + 0.02) * 0.5 * (1 + math.cos(math.pi * share))


def drops(*shares: float) -> Callable[[float], float]:
    """The rate falls to a tenth at each of these shares of the steps."""
    return lambda share: 0.1 ** sum(share >= at for at in shares)


@dataclass(frozen=True)
class Pace:
    """How to step: Adam, or stochastic gradient descent with momentum .9; norm of the gradient is cut at `clip`."""

    rate: float = 1e-3
    adam: bool = True
    weight_decay: float = 0.0
    schedule: Callable[[float], float] = cosine
    clip: float = 5.0
    betas: tuple[float, float] = (0.9, 0.999)  # of Adam


class Descent:
    """`steps` steps on some modules, each with its share of the rate. Raises Diverged on what is not finite.

    Only the parameters of these modules that want a gradient are moved, and no other network keeps a gradient of the
    loss. name: of what learns, for messages.
    """

    def __init__(self, name: str, modules: Iterable[tuple[nn.Module, float]], pace: Pace, steps: int):
        groups: list[dict[str, Any]] = [
            {"params": [p for p in module.parameters() if p.requires_grad], "lr": pace.rate * share, "share": share}
            for module, share in modules]
        self.name, self.pace, self.steps, self.losses = name, pace, steps, list[list[float]]()
        self.parameters = [p for group in groups for p in group["params"]]
        self.optimizer: torch.optim.Optimizer = (
            torch.optim.AdamW(groups, betas=pace.betas, weight_decay=pace.weight_decay) if pace.adam else
            torch.optim.SGD(groups, lr=pace.rate, momentum=0.9, weight_decay=pace.weight_decay))

    def step(self, loss: torch.Tensor, *watched: torch.Tensor) -> None:
        """One step down `loss`; it and what is `watched` are kept for `check`."""
        done = len(self.losses)
        if not torch.isfinite(loss):
            raise Diverged(f"the loss of {self.name} became {loss.item()} in step {done + 1}")
        for group in self.optimizer.param_groups:
            group["lr"] = self.pace.rate * group["share"] * self.pace.schedule(done / self.steps)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward(inputs=self.parameters)
        norm = nn.utils.clip_grad_norm_(self.parameters, self.pace.clip)
        if not torch.isfinite(norm):
            raise Diverged(f"the gradient of {self.name} became {norm.item()} in step {done + 1}")
        self.optimizer.step()
        self.losses.append([float(value.detach()) for value in (loss, *watched)])

    def ends(self, number: int = 0) -> tuple[float, float]:
        """Means of the loss (0) or of a watched value (1, 2, ...) over the first and the last quarter of the steps."""
        values = np.array([row[number] for row in self.losses])
        quarter = max(1, len(values) // 4)
        return float(values[:quarter].mean()), float(values[-quarter:].mean())

    @property
    def recent(self) -> float:
        """Mean loss of the last 50 steps; NaN before the first."""
        return float(np.mean([row[0] for row in self.losses[-50:]])) if self.losses else math.nan

    def check(self, number: int = 0, what: str = "") -> None:
        """Raise Diverged unless this value fell from the first to the last quarter of the steps."""
        first, last = self.ends(number)
        if not last < first:
            raise Diverged(f"{self.name}{what and ', ' + what} made no progress: {first:.4g} at first, "
                           f"{last:.4g} at last")


def batches(count: int, size: int, epochs: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Index arrays that go through all samples once an epoch, in a drawn order; a rest of one sample is left out."""
    found: list[np.ndarray] = []
    for _ in range(epochs):
        order = rng.permutation(count)
        parts: Sequence[np.ndarray] = [order[i:i + size] for i in range(0, count, size)]
        found += [part for part in parts if len(part) > 1]
    if not found:
        raise Diverged(f"{count} samples are too few to train on")
    return found
