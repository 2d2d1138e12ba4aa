"""Proximal policy optimisation with masked actions, for games of a fixed number of steps (Schulman et al. 2017).

All streams of a game go in step: reset() -> (observation, mask), step(actions) -> (reward, next or None).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from bench import seeds
from bench.errors import Diverged

Seen = tuple[np.ndarray, np.ndarray]  # observations float (B, n), which actions are allowed bool (B, A)


class Game(Protocol):
    """B streams in lock-step; every call of `reset` starts new ones."""

    def reset(self) -> Seen:
        """The first step."""

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, Seen | None]:
        """Actions int (B,) -> rewards (B,), and the next step, None at the end."""


@dataclass(frozen=True)
class Recipe:
    """rollouts: how many times all streams are played; then passes over the batch. The rate falls to zero."""

    rollouts: int
    passes: int = 4
    batch: int = 2048
    rate: float = 3e-3
    clip: float = 0.2
    trace: float = 0.95  # lambda of the advantage estimate; rewards are not discounted
    entropy: float = 0.01
    width: int = 64


def network(inputs: int, outputs: int, width: int) -> nn.Sequential:
    """Two hidden layers of tanh."""
    return nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
                         nn.Linear(width, outputs))


def train(game: Game, inputs: int, actions: int, recipe: Recipe, seed: int,
          report: Callable[[str], None] = lambda text: None) -> tuple[dict[str, np.ndarray], list[float]]:
    """Policy weights float64 for `bench.nets.frozen_policy`, and the mean return of each rollout. Raises Diverged."""
    torch.manual_seed(seeds.derive_torch(seed, "ppo", "weights"))
    draw = torch.Generator().manual_seed(seed)
    policy, value = network(inputs, actions, recipe.width), network(inputs, 1, recipe.width)
    nn.init.orthogonal_(list(policy.parameters())[-2], gain=0.01)  # starts near the uniform policy
    optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], lr=recipe.rate, fused=True)
    returns: list[float] = []
    for k in range(recipe.rollouts):
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate * (1 - k / recipe.rollouts)
        batch, mean = _played(game, policy, value, recipe, draw)
        returns.append(mean)
        for _ in range(recipe.passes):
            for rows in torch.randperm(len(batch[0]), generator=draw).split(recipe.batch):
                loss = _loss(policy, value, [part[rows] for part in batch], recipe)
                if not torch.isfinite(loss):
                    raise Diverged(f"the policy's loss became {loss.item()} in rollout {k + 1}")
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_([*policy.parameters(), *value.parameters()], 0.5)
                optimizer.step()
        if k % 10 == 0 or k == recipe.rollouts - 1:
            report(f"rollout {k + 1} of {recipe.rollouts}: mean return {mean:.4f}")
    return {name: v.detach().double().numpy() for name, v in policy.state_dict().items()}, returns


def _played(game: Game, policy: nn.Module, value: nn.Module, recipe: Recipe,
            draw: torch.Generator) -> tuple[list[torch.Tensor], float]:
    """One play of all streams: [observations, masks, actions, log-probabilities, advantages, targets], mean return."""
    steps, rewards = [], []
    seen: Seen | None = game.reset()
    while seen is not None:
        observed, allowed = torch.from_numpy(seen[0]).float(), torch.from_numpy(seen[1])
        with torch.no_grad():
            logs = masked(policy(observed), allowed).log_softmax(dim=1)
            action = torch.multinomial(logs.exp(), 1, generator=draw)
            steps.append((observed, allowed, action[:, 0], logs.gather(1, action)[:, 0], value(observed)[:, 0]))
        reward, seen = game.step(action[:, 0].numpy())
        rewards.append(torch.from_numpy(np.asarray(reward, dtype=np.float32)))
    values = [s[4] for s in steps]
    gains: list[torch.Tensor] = []
    later, after = torch.zeros_like(values[0]), torch.zeros_like(values[0])
    for t in reversed(range(len(steps))):
        later = rewards[t] + after - values[t] + recipe.trace * later
        after = values[t]
        gains.insert(0, later)
    gain = torch.cat(gains)
    batch = [torch.cat([s[i] for s in steps]) for i in range(4)]
    return [*batch, (gain - gain.mean()) / (gain.std() + 1e-8), gain + torch.cat(values)], \
        float(torch.stack(rewards).sum(dim=0).mean())


def _loss(policy: nn.Module, value: nn.Module, part: list[torch.Tensor], recipe: Recipe) -> torch.Tensor:
    observed, allowed, action, old, gain, target = part
    logs = masked(policy(observed), allowed).log_softmax(dim=1)
    ratio = (logs.gather(1, action[:, None])[:, 0] - old).exp()
    surrogate = torch.minimum(ratio * gain, ratio.clamp(1 - recipe.clip, 1 + recipe.clip) * gain).mean()
    spread = -(logs.exp() * logs.masked_fill(~allowed, 0.0)).sum(dim=1).mean()
    return F.mse_loss(value(observed)[:, 0], target) / 2 - surrogate - recipe.entropy * spread


def masked(logits: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """Logits (B, A) with forbidden actions out of reach."""
    return logits.masked_fill(~allowed, -1e9)
