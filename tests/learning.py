"""What tests of methods that learn share: made development people, a context, and a spy on what networks read."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from bench import Context, Video, seeds


class Person(SimpleNamespace):
    """One development video with its labels, as `fit` sees it."""


def people(count: int, labels: int = 2, each: int = 2, side: int = 16, frames: int = 4) -> SimpleNamespace:
    """A split in which colour and stripes say who, a bright quarter which expression; a little noise over all."""
    rng = seeds.derive(5, "people")
    colours = rng.integers(30, 140, (count, 3))
    train = []
    for person in range(count):
        for label in range(labels):
            for _ in range(each):
                video = colours[person] + rng.normal(0, 6, (frames, side, side, 3))
                video[:, :, ::2] += 20 * person
                half = side // 2
                video[:, half * (label // 2 % 2):, half * (label % 2):][:, :half, :half] += 60
                video = np.clip(video, 0, 255).astype(np.uint8)
                train.append(Person(video=Video(video), identity=10 * person, expression=label))
    return SimpleNamespace(train=train, calibration=[])


def context(*names: str, profile: str = "tiny", log: list[str] | None = None) -> Context:
    """Seeded by the names; what the method reports goes to `log`."""
    return Context(rng=lambda *more: seeds.derive(9, *names, *more), profile=profile,
                   torch_seed=lambda *more: seeds.derive_torch(9, *names, *more),
                   report=(lambda text: None) if log is None else log.append)


def read_by(module: torch.nn.Module, seen: list[torch.Tensor]) -> torch.utils.hooks.RemovableHandle:
    """Every input of this module from now on goes to `seen`."""
    return module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach().clone()))


def numbers(module: torch.nn.Module) -> dict[str, np.ndarray]:
    """A copy of a module's tensors."""
    return {name: tensor.detach().numpy().copy() for name, tensor in module.state_dict().items()}
