"""One linear layer on fixed features: how plainly can a label be read from them?"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from bench.errors import Diverged


def linear_probe(train: np.ndarray, labels: np.ndarray, calibration: tuple[np.ndarray, np.ndarray], classes: int,
                 seed: int, *, epochs: int = 50, patience: int = 5, rate: float = 1e-3, weight_decay: float = 1e-4,
                 batch: int = 16) -> nn.Module:
    """Train on features (R, N, d), epoch e with draw e mod R; stop when the loss on `calibration`, features (M, d) and
    labels (M,), has not fallen for `patience` epochs, and keep the epoch of the least.

    Every coordinate is first brought to mean 0 and standard deviation 1 over the training features: with one learning
    rate for all stages, a feature's units would otherwise decide how far its probe gets. The layer starts at zero, so
    that few steps need not undo a random start; the seed orders the batches. Raises Diverged.
    """
    center, spread = train.mean((0, 1)), train.std((0, 1))  # (d,)
    model = _Probe(center, np.where(spread > 1e-12, spread, 1.0), classes)
    inputs, targets = torch.from_numpy(train).float(), torch.from_numpy(labels)
    held, held_labels = torch.from_numpy(calibration[0]).float(), torch.from_numpy(calibration[1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=weight_decay)
    order = torch.Generator().manual_seed(seed)
    least, since, best = float("inf"), 0, {k: v.clone() for k, v in model.state_dict().items()}
    for epoch in range(epochs):
        for index in torch.randperm(len(targets), generator=order).split(batch):
            loss = F.cross_entropy(model(inputs[epoch % len(inputs)][index]), targets[index])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        with torch.inference_mode():
            held_loss = F.cross_entropy(model(held), held_labels).item()
        if not np.isfinite(held_loss):
            raise Diverged(f"the probe's loss became {held_loss} in epoch {epoch + 1}")
        since = 0 if held_loss < least else since + 1
        if since == 0:
            least, best = held_loss, {k: v.clone() for k, v in model.state_dict().items()}
        if since >= patience:
            break
    model.load_state_dict(best)
    return model


class _Probe(nn.Module):
    """logits = W (x - center) / spread + b."""

    def __init__(self, center: np.ndarray, spread: np.ndarray, classes: int):
        super().__init__()
        self.center: torch.Tensor
        self.spread: torch.Tensor
        self.register_buffer("center", torch.from_numpy(center).float())
        self.register_buffer("spread", torch.from_numpy(spread).float())
        self.layer = nn.Linear(len(center), classes)
        nn.init.zeros_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.layer((features - self.center) / self.spread)


@torch.inference_mode()
def probe_scores(model: nn.Module, features: np.ndarray) -> np.ndarray:
    """Log-probabilities (K, classes)."""
    return F.log_softmax(model(torch.from_numpy(features).float()), dim=1).numpy()
