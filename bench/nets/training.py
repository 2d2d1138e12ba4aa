"""The one training loop of classifiers: AdamW, one cosine cycle, seeded order, stop on a non-finite loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from bench.errors import Diverged

Data = tuple[torch.Tensor, torch.Tensor]  # inputs uint8 (N, ...), targets int64 (N,), or what `Recipe.loss` takes
WARM_UP_STEPS = 30  # at most; never more than a tenth of all steps


@dataclass(frozen=True)
class Recipe:
    """How long and how fast. `prepare` turns a uint8 batch into network input, `augment` jitters it.

    The rate rises over the first tenth of the steps (at most WARM_UP_STEPS) and then falls as a cosine.
    """

    epochs: int
    prepare: Callable[[torch.Tensor], torch.Tensor]
    augment: Callable[[torch.Tensor, torch.Generator], torch.Tensor] | None = None
    batch: int = 32
    rate: float = 1e-3
    weight_decay: float = 0.05
    label_smoothing: float = 0.1
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None  # default: cross entropy


@dataclass(frozen=True)
class Progress:
    """What training did: mean loss of the first and the last epoch, chosen epoch, accuracy on calibration data."""

    first_loss: float
    last_loss: float
    epoch: int
    calibration: float | None


def use_threads(threads: int = 1) -> None:
    """Fix torch's threads: results are the same bytes only for the same number of threads.

    Deterministic mode would also fill every new tensor with NaN before it is written, a tenth of a network's time.
    """
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def train_classifier(model: nn.Module, epoch_data: Callable[[int], Data], recipe: Recipe, seed: int, *,
                     calibration: Data | None = None, report: Callable[[str], None] = lambda text: None) -> Progress:
    """Train in place. With calibration data, the epoch that is best on it is kept; else the last one.

    epoch_data(epoch) gives the samples of that epoch. Raises Diverged on a non-finite loss.
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.rate, weight_decay=recipe.weight_decay)
    losses: list[float] = []
    best: tuple[float, int, dict] | None = None
    for epoch in range(recipe.epochs):
        losses.append(_train_epoch(model, epoch_data(epoch), recipe, optimizer, generator, epoch))
        if calibration is not None:
            accuracy = float((predict(model, calibration[0], recipe).argmax(1) == calibration[1]).float().mean())
            if best is None or accuracy > best[0]:
                best = (accuracy, epoch, {k: v.clone() for k, v in model.state_dict().items()})
        report(f"epoch {epoch + 1}/{recipe.epochs}: loss {losses[-1]:.3f}"
               + (f", calibration accuracy {accuracy:.3f}" if calibration is not None else ""))
    if best is not None:
        model.load_state_dict(best[2])
    return Progress(losses[0], losses[-1], best[1] if best else recipe.epochs - 1, best[0] if best else None)


def _train_epoch(model: nn.Module, data: Data, recipe: Recipe, optimizer: torch.optim.Optimizer,
                 generator: torch.Generator, epoch: int) -> float:
    inputs, targets = data
    order = torch.randperm(len(targets), generator=generator)
    batches = [b for b in order.split(recipe.batch) if len(b) > 1 or len(order) == 1]
    total = 0.0
    model.train()
    for step, index in enumerate(batches):
        rate = 0.5 * recipe.rate * (1 + np.cos(np.pi * (epoch + step / len(batches)) / recipe.epochs))
        warm_up = max(1, min(WARM_UP_STEPS, recipe.epochs * len(batches) // 10))
        rate *= min(1.0, (epoch * len(batches) + step + 1) / warm_up)
        for group in optimizer.param_groups:
            group["lr"] = rate
        batch = recipe.prepare(inputs[index])
        batch = recipe.augment(batch, generator) if recipe.augment else batch
        loss = _loss(recipe, model(batch), targets[index])
        if not torch.isfinite(loss):
            raise Diverged(f"the loss became {loss.item()} in epoch {epoch + 1}, step {step + 1}")
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        total += loss.item()
    return total / max(1, len(batches))


def _loss(recipe: Recipe, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    if recipe.loss is not None:
        return recipe.loss(outputs, targets)
    return F.cross_entropy(outputs, targets, label_smoothing=recipe.label_smoothing)


@torch.inference_mode()
def predict(model: nn.Module, inputs: torch.Tensor, recipe: Recipe) -> torch.Tensor:
    """Log-probabilities (N, classes) in evaluation mode."""
    model.eval()
    parts = [F.log_softmax(model(recipe.prepare(part)), dim=1) for part in inputs.split(64)]
    return torch.cat(parts)


def load_matching(model: nn.Module, state: dict[str, torch.Tensor]) -> list[str]:
    """Load every tensor whose name and shape fit (all but a head of another size); returns what was left out."""
    own = model.state_dict()
    fitting = {k: v for k, v in state.items() if k in own and own[k].shape == v.shape}
    if len(fitting) < 0.5 * len(own):
        raise ValueError(f"only {len(fitting)} of {len(own)} tensors fit: these weights are of another architecture")
    model.load_state_dict(fitting, strict=False)
    return sorted(set(own) - set(fitting))
