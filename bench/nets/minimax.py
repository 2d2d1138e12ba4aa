"""The game of adversarial anonymization: one network changes frames, an opponent looks for people in them, a reader
looks for expressions. One player moves at a time; whoever does not move is frozen and in evaluation mode.

    anonymizer's move    L_A = - a L_B + w L_T      (official SPAct: a = w = 1)
    opponents' move      L_B for the privacy network, L_T for the reader, each with its own optimizer
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from bench.errors import Diverged

GRADIENT_NORM = 5.0  # at most, of one player's step
Report = Callable[[str], None]


@dataclass(frozen=True)
class Sizes:
    """How large and how long a game is. Steps count batches; a round is one move of either side.

    frames, side_px: of a clip as the reader sees it.  clips: clips a batch.  views, view_px: frames a batch that the
    privacy network sees, and their side.  reconstruct, introduce: steps of the two initialisations.
    """

    frames: int
    side_px: int
    clips: int
    views: int
    view_px: int
    reconstruct: int
    introduce: int
    rounds: int
    reconstruct_rate: float = 1e-3
    anonymizer_rate: float = 1e-4
    privacy_rate: float = 1e-4
    reader_rate: float = 1e-4


@dataclass(frozen=True)
class Faces:
    """What the privacy network's loss may read: frames (N, 3, H, W) in 0 .. 1, and people only if they are declared."""

    frames: torch.Tensor
    people: torch.Tensor | None = None


@dataclass(frozen=True)
class Acts:
    """What the reader's loss may read: clips (N, T, 3, H, W) in 0 .. 1 and their expressions (N,).

    again, later: the same clips seen otherwise, and clips of the same videos at another time, where a loss needs them.
    """

    clips: torch.Tensor
    expressions: torch.Tensor
    again: torch.Tensor | None = None
    later: torch.Tensor | None = None


@dataclass
class Game:
    """The three players, their losses and where their batches come from. `privacy` is None in a game without one.

    privacy_loss(faces), reader_loss(acts): scalars that go through the anonymizer; what is small is good for the
    opponent itself.  losses: what every move came to, by the name of the player.
    """

    anonymizer: nn.Module
    privacy: nn.Module | None
    reader: nn.Module
    privacy_loss: Callable[[Faces], torch.Tensor]
    reader_loss: Callable[[Acts], torch.Tensor]
    faces: Callable[[], Faces]
    acts: Callable[[], Acts]
    sizes: Sizes
    privacy_weight: float = 1.0
    utility_weight: float = 1.0
    report: Report = print
    losses: dict[str, list[float]] = field(default_factory=dict)

    def play(self) -> None:
        """Both initialisations, then the rounds. Raises Diverged on what is not finite or makes no progress."""
        sizes = self.sizes
        anonymizer = self._optimizer(self.anonymizer, sizes.reconstruct_rate)
        for _ in range(sizes.reconstruct):
            self._reconstruct(anonymizer)
        self._progress("reconstruction", "anonymizer")
        opponents = {"reader": self._optimizer(self.reader, sizes.reader_rate)}
        if self.privacy is not None:
            opponents["privacy"] = self._optimizer(self.privacy, sizes.privacy_rate)
        for _ in range(sizes.introduce):
            self.move_opponents(opponents)
        self._tell("before the game")
        anonymizer = self._optimizer(self.anonymizer, sizes.anonymizer_rate)
        for number in range(sizes.rounds):
            self.move_anonymizer(anonymizer)
            self.move_opponents(opponents)
            if (number + 1) % max(1, sizes.rounds // 10) == 0:
                self._tell(f"round {number + 1}/{sizes.rounds}")

    def move_anonymizer(self, optimizer: torch.optim.Optimizer) -> None:
        """One step down L_A; the opponents are frozen and in evaluation mode."""
        self.anonymizer.train()
        with frozen(*self._opponents()):
            loss = self.utility_weight * self.reader_loss(self.acts())
            if self.privacy is not None:
                loss = loss - self.privacy_weight * self.privacy_loss(self.faces())
            self._step("anonymizer", optimizer, self.anonymizer, loss)

    def move_opponents(self, optimizers: dict[str, torch.optim.Optimizer]) -> None:
        """One step of each opponent down its own loss; the anonymizer is frozen and in evaluation mode."""
        for opponent in self._opponents():
            opponent.train()
        with frozen(self.anonymizer):
            self._step("reader", optimizers["reader"], self.reader, self.reader_loss(self.acts()))
            if self.privacy is not None:
                self._step("privacy", optimizers["privacy"], self.privacy, self.privacy_loss(self.faces()))

    def _reconstruct(self, optimizer: torch.optim.Optimizer) -> None:
        """The anonymizer learns to copy: L1 between a frame and what it makes of it."""
        self.anonymizer.train()
        frames = self.acts().clips.flatten(0, 1)
        self._step("reconstruction", optimizer, self.anonymizer, F.l1_loss(self.anonymizer(frames), frames))

    def _step(self, name: str, optimizer: torch.optim.Optimizer, player: nn.Module, loss: torch.Tensor) -> None:
        losses = self.losses.setdefault(name, [])
        losses.append(loss.item())
        if not np.isfinite(losses[-1]):
            raise Diverged(f"the loss of the {name} became {losses[-1]} in step {len(losses)}")
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(player.parameters(), GRADIENT_NORM)
        if not torch.isfinite(norm):
            raise Diverged(f"the gradient of the {name} became {norm.item()} in step {len(losses)}")
        optimizer.step()

    def _progress(self, name: str, player: str) -> None:
        """Raises Diverged when the last quarter of the steps is not below the first."""
        losses = self.losses.get(name, [])
        quarter = len(losses) // 4
        if quarter and not np.mean(losses[-quarter:]) < np.mean(losses[:quarter]):
            raise Diverged(f"the {player} made no progress in {len(losses)} steps of {name}: its loss went from "
                           f"{np.mean(losses[:quarter]):.4f} to {np.mean(losses[-quarter:]):.4f}")

    def _opponents(self) -> list[nn.Module]:
        return [self.reader] if self.privacy is None else [self.reader, self.privacy]

    @staticmethod
    def _optimizer(player: nn.Module, rate: float) -> torch.optim.Optimizer:
        return torch.optim.Adam(player.parameters(), lr=rate)

    def _tell(self, when: str) -> None:
        means = {name: np.mean(values[-10:]) for name, values in self.losses.items() if values}
        self.report(f"{when}: " + ", ".join(f"{name} {value:.3f}" for name, value in means.items()))


@contextmanager
def frozen(*modules: nn.Module) -> Iterator[None]:
    """These modules in evaluation mode and without gradients of their own; both are put back afterwards."""
    before = [(parameter, parameter.requires_grad) for module in modules for parameter in module.parameters()]
    modes = [(module, module.training) for module in modules]
    for module in modules:
        module.eval()
    for parameter, _ in before:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter, wanted in before:
            parameter.requires_grad_(wanted)
        for module, mode in modes:
            module.train(mode)
