"""How the recovery attackers learn: pairs of released and original clips, Charbonnier loss, one loop for all nets.

Beside it the two guesses that need no network and that every recovery must beat: a copy, and the mean face.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from bench.errors import Diverged
from bench.measures import Pair, Recover
from bench.nets.given import given
from bench.types import Context, Video


@dataclass(frozen=True)
class RecoveryRecipe:
    """How long and how fast. The rate rises over a twentieth of the steps and then falls as a cosine.

    frames: length of the piece of each clip that one epoch reads, its place drawn anew; None = the whole clip.
    eps: of the loss mean sqrt((x - y)^2 + eps), values in 0 .. 1.
    slow: prefix of the parameters that rest for the first `rest` of the steps and then learn at `slowness` the rate.
    """

    epochs: int
    batch: int = 2
    rate: float = 1e-3
    frames: int | None = None
    eps: float = 1e-6
    clip_norm: float = 1.0
    slow: str = ""
    rest: float = 0.2
    slowness: float = 0.25


class NetworkRecover(Recover):
    """A recovery attacker around a network (N, T, 3, H, W) -> the same. An attack says `network` and `recipe`.

    published: the weights that it starts from in the `paper` profile, under the names of its own layers. None: random.
    """

    published: ClassVar[str | None] = None

    def __init__(self, *, epochs: int, clips: int = 240):
        self.epochs, self.clips = epochs, clips
        self.model: Any = None  # a torch Module, after fit or load

    def network(self, profile: str) -> nn.Module:
        raise NotImplementedError

    def recipe(self, profile: str) -> RecoveryRecipe:
        raise NotImplementedError

    def fit(self, pairs: Sequence[Pair], assets: Mapping[str, Any], ctx: Context) -> None:
        torch.manual_seed(ctx.torch_seed("weights"))
        self.model = self.network(ctx.profile)
        if self.published is not None and ctx.profile == "paper":
            self.model.load_state_dict(given(self.published, "the published network, its tensors named as here,"))
        chosen = ctx.rng("clips").permutation(len(pairs))[:self.clips]
        train_recovery(self.model, [pairs[i] for i in np.sort(chosen)], self.recipe(ctx.profile),
                       ctx.torch_seed("order"), report=ctx.report)

    @torch.inference_mode()
    def recover(self, video: Video) -> Video:
        """uint8 (T, S, S, 3), rounded to the nearest level; the same number of frames."""
        self.model.eval()
        made = self.model(as_clips([video.frames]))[0].clamp(0, 1)  # (T, 3, S, S)
        frames = (made * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()
        return Video(frames.numpy(), video.fps)

    def state(self) -> dict[str, np.ndarray]:
        return {name: tensor.numpy() for name, tensor in self.model.state_dict().items()}

    def load(self, state: Mapping[str, np.ndarray], ctx: Context) -> None:
        self.model = self.network(ctx.profile)
        self.model.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in state.items()})


def as_clips(clips: Sequence[np.ndarray]) -> torch.Tensor:
    """uint8 clips (T, H, W, 3) of one shape -> float32 (N, T, 3, H, W) in 0 .. 1."""
    return torch.from_numpy(np.stack(clips)).permute(0, 1, 4, 2, 3).float().div_(255.0)


def charbonnier(made: torch.Tensor, wanted: torch.Tensor, eps: float) -> torch.Tensor:
    """mean sqrt((x - y)^2 + eps)."""
    return ((made - wanted) ** 2 + eps).sqrt().mean()


def train_recovery(model: nn.Module, pairs: Sequence[Pair], recipe: RecoveryRecipe, seed: int, *,
                   report: Callable[[str], None] = lambda text: None) -> list[float]:
    """Train in place; the mean loss of each epoch. Epoch e reads draw e of each pair.

    A clip and its target are mirrored together, half of the time. Clips of one batch have one length, so that no
    padding is read. Raises Diverged on a loss or a gradient that is not finite.
    """
    generator = torch.Generator().manual_seed(seed)
    slow = [p for name, p in model.named_parameters() if recipe.slow and name.startswith(recipe.slow)]
    fast = [p for name, p in model.named_parameters() if not (recipe.slow and name.startswith(recipe.slow))]
    optimizer = torch.optim.Adam([{"params": fast}, {"params": slow}] if slow else fast, lr=recipe.rate,
                                 betas=(0.9, 0.99))
    losses: list[float] = []
    plans = [_batches(pairs, recipe, generator) for _ in range(recipe.epochs)]
    steps, done = sum(map(len, plans)), 0
    model.train()
    for epoch, plan in enumerate(plans):
        total = 0.0
        for index in plan:
            _set_rates(optimizer, recipe, done / steps)
            done += 1
            total += _step(model, [pairs[i] for i in index], recipe, optimizer, generator, epoch, done)
        losses.append(total / max(1, len(plan)))
        report(f"epoch {epoch + 1}/{recipe.epochs}: loss {losses[-1]:.4f}")
    return losses


def _batches(pairs: Sequence[Pair], recipe: RecoveryRecipe, generator: torch.Generator) -> list[list[int]]:
    """Every pair once, in a drawn order, in batches whose clips have one shape."""
    waiting: dict[tuple[int, ...], list[int]] = {}
    made: list[list[int]] = []
    for i in torch.randperm(len(pairs), generator=generator).tolist():
        batch = waiting.setdefault(pairs[i].original.frames.shape, [])
        batch.append(i)
        if len(batch) == recipe.batch:
            made.append(waiting.pop(pairs[i].original.frames.shape))
    return made + list(waiting.values())


def _set_rates(optimizer: torch.optim.Optimizer, recipe: RecoveryRecipe, share: float) -> None:
    rate = recipe.rate * min(1.0, share / 0.05 + 0.02) * 0.5 * (1 + math.cos(math.pi * share))
    for i, group in enumerate(optimizer.param_groups):
        group["lr"] = rate if i == 0 else rate * recipe.slowness * (share >= recipe.rest)


def _step(model: nn.Module, pairs: Sequence[Pair], recipe: RecoveryRecipe, optimizer: torch.optim.Optimizer,
          generator: torch.Generator, epoch: int, done: int) -> float:
    released, wanted = _drawn(pairs, recipe, epoch, generator)
    loss = charbonnier(model(released), wanted, recipe.eps)
    if not torch.isfinite(loss):
        raise Diverged(f"the loss became {loss.item()} in epoch {epoch + 1}, step {done}")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
    if not torch.isfinite(norm):
        raise Diverged(f"the gradient became {norm.item()} in epoch {epoch + 1}, step {done}")
    optimizer.step()
    return loss.item()


def _drawn(pairs: Sequence[Pair], recipe: RecoveryRecipe, epoch: int,
           generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Released and original clips of one batch, each pair mirrored together half of the time."""
    length = len(pairs[0].original)
    piece = min(length, recipe.frames or length)
    first = int(torch.randint(length - piece + 1, (), generator=generator))
    stop = first + piece
    released = as_clips([pair.draw(epoch).frames[first:stop] for pair in pairs])
    wanted = as_clips([pair.original.frames[first:stop] for pair in pairs])
    flip = (torch.rand(len(pairs), generator=generator) < 0.5)[:, None, None, None, None]
    return torch.where(flip, released.flip(4), released), torch.where(flip, wanted.flip(4), wanted)


# ---- guesses without a network -------------------------------------------------------------------------------------

def copied(video: Video) -> Video:
    """The released clip itself as the guess."""
    return Video(video.frames.copy(), video.fps)


def mean_face(originals: Iterable[Video]) -> np.ndarray:
    """uint8 (S, S, 3): the mean of all original frames, each clip counted once, rounded to the nearest level."""
    clips = [video.frames.mean(axis=0, dtype=np.float64) for video in originals]
    return np.rint(np.mean(clips, axis=0)).astype(np.uint8)


def always(face: np.ndarray, video: Video) -> Video:
    """One picture (S, S, 3) in every frame of a guess at `video`."""
    return Video(np.repeat(face[None], len(video), axis=0), video.fps)
