"""Networks of a fitted method as arrays, and back; refused when they are of another architecture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from bench.errors import DataError


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
