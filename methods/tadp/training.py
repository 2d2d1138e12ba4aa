"""How TADP is fitted: features and their thresholds, windows of consecutive clips, the training loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from bench import DataError, Diverged
from methods.tadp import losses
from methods.tadp.frozen import Encoders, Recogniser
from methods.tadp.sizes import BRANCHES, Size

RATE = 1e-3
START_STEPS, START_RATE = 150, 0.05  # of the search for the latent of the mean face
WINDOW = 3  # consecutive clips of one source video in a batch
PERCENTILE = 95
LEAST_PEOPLE, LEAST_CLIPS = 2, 20  # below 1 / (1 - .95) = 20 samples the percentile is the largest of them


@dataclass(frozen=True)
class Source:
    """One training video: uint8 frames (T K, H, W, 3) with the last one repeated, its label, unpadded frames."""

    frames: np.ndarray
    label: int
    unpadded: int
    features: dict[str, np.ndarray]  # {branch: (K, T, dim)}

    @property
    def clips(self) -> int:
        return len(self.features["id"])


def read(item: Any, encoders: Encoders, length: int) -> Source:
    """A development video, padded to whole clips of `length` frames, with its features."""
    frames = item.video.frames
    count = -(-len(frames) // length)
    found = encoders(frames)
    missing = count * length - len(frames)
    whole = {b: np.concatenate([v, np.repeat(v[-1:], missing, axis=0)]) for b, v in found.items()}
    padded = np.concatenate([frames, np.repeat(frames[-1:], missing, axis=0)])
    return Source(padded, item.expression, len(frames),
                  {b: v.reshape(count, length, -1) for b, v in whole.items()})


def thresholds(items: Sequence[Any], encoders: Encoders, length: int) -> dict[str, float]:
    """C_b: the 95th percentile of the norms of unpadded frames of calibration people.

    Raises DataError for too few people or clips, and for features without a finite, positive norm.
    """
    people = {item.identity for item in items}
    norms: dict[str, list[np.ndarray]] = {b: [] for b in BRANCHES}
    clips = 0
    for item in items:
        frames = item.video.frames
        clips += -(-len(frames) // length)
        for branch, rows in encoders(frames).items():
            norms[branch].append(np.linalg.norm(rows.astype(np.float64), axis=1))
    if len(people) < LEAST_PEOPLE or clips < LEAST_CLIPS:
        raise DataError(f"There are {len(people)} calibration people with {clips} clips.",
                        f"A {PERCENTILE}th percentile that holds for other people needs at least {LEAST_PEOPLE} people "
                        f"and {LEAST_CLIPS} clips.", "Use a dataset with more people or longer videos.")
    return {b: _usable(b, float(np.percentile(np.concatenate(v), PERCENTILE))) for b, v in norms.items()}


def medians(sources: Sequence[Source], clip: dict[str, float]) -> dict[str, float]:
    """Median norm of the clipped features of training people, in the units of the features."""
    found = {}
    for branch in BRANCHES:
        norms = [np.linalg.norm(s.features[branch].reshape(-1, s.features[branch].shape[-1])[:s.unpadded], axis=1)
                 for s in sources]
        found[branch] = _usable(branch, float(np.median(np.minimum(np.concatenate(norms), clip[branch]))))
    return found


def _usable(branch: str, norm: float) -> float:
    if not math.isfinite(norm) or norm <= 0:
        raise DataError(f"The features of branch {branch!r} have norm {norm}.",
                        "Nothing can be clipped to it, and no noise can be measured against it.",
                        "Check the encoder and its weights.")
    return norm


@dataclass(frozen=True)
class Window:
    """Consecutive clips of one video: the first one and how many."""

    video: int
    first: int
    count: int


def windows(clips: Sequence[int], size: Size, rng: np.random.Generator) -> list[list[Window]]:
    """One epoch: batches of windows of equal length. Every other window is cut to one clip, as isolated clips are."""
    every = [Window(v, start, min(WINDOW, count - start)) for v, count in enumerate(clips)
             for start in range(0, count, WINDOW)]
    chosen = [every[i] for i in rng.permutation(len(every))[:size.windows or None]]
    chosen = [w if k % 2 else Window(w.video, w.first + int(rng.integers(w.count)), 1) for k, w in enumerate(chosen)]
    batches = []
    for length in range(1, WINDOW + 1):
        same = [w for w in chosen if w.count == length]
        parts = [same[i:i + size.batch] for i in range(0, len(same), size.batch)]
        batches += [part for part in parts if len(part) * length > 1]  # one clip has no spread to standardise by
    return [batches[i] for i in rng.permutation(len(batches))]


def rendered(size: Size, length: int, rng: np.random.Generator) -> np.ndarray:
    """Frames of a clip of `length` that a batch decodes: the first, the last, and others by chance; sorted."""
    if not size.rendered:
        return np.arange(length)
    inner = 1 + rng.choice(length - 2, max(0, size.rendered - 2), replace=False)
    return np.sort(np.concatenate([[0, length - 1], inner]))


@dataclass
class Trainer:
    """Trains scale module and contextualizer of `method` on `sources`; everything else is frozen.

    simulate: the release loop, differentiable. Raises Diverged on a loss that is not finite.
    """

    method: Any
    sources: Sequence[Source]
    recogniser: Recogniser
    simulate: Callable[..., Any]
    public: dict[str, Any]

    def run(self, rng: np.random.Generator, report: Callable[[str], None]) -> None:
        self.start()
        size: Size = self.method.size
        counts = [s.clips for s in self.sources]
        epochs = [windows(counts, size, rng) for _ in range(size.epochs)]
        parameters = [p for m in self.method.trained() for p in m.parameters()]
        optimizer = torch.optim.AdamW(parameters, lr=RATE)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, sum(map(len, epochs)))
        for number, batches in enumerate(epochs):
            seen: list[float] = []
            for batch in batches:
                loss = self.objective(batch, rng).total()
                if not torch.isfinite(loss):
                    raise Diverged(f"the loss became {loss.item()} in epoch {number + 1}")
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, 1.0)
                optimizer.step()
                schedule.step()
                seen.append(float(loss.detach()))
            report(f"epoch {number + 1}/{size.epochs}: loss {np.mean(seen):.3f}")

    def start(self) -> None:
        """The projection begins at the latent whose picture is nearest to the mean training frame: what is left to
        learn is how a frame differs from it. A small random start would begin far from any face.
        """
        mean = np.mean([s.frames[:s.unpadded].mean(axis=0) for s in self.sources], axis=0) / 255  # (H, W, 3)
        wanted = torch.from_numpy(mean).float().permute(2, 0, 1)[None]
        latent = torch.zeros(1, *self.method.size.latent, requires_grad=True)
        optimizer = torch.optim.Adam([latent], lr=START_RATE)
        for _ in range(START_STEPS):
            optimizer.zero_grad()
            (self.method.decoder(latent) - wanted).abs().mean().backward()
            optimizer.step()
        with torch.no_grad():
            self.method.contextualizer.project.bias.copy_(latent.flatten())

    def objective(self, batch: Sequence[Window], rng: np.random.Generator) -> losses.Objective:
        """All losses of one batch; memory starts anew at each window."""
        n, count = len(batch), batch[0].count
        raw = {b: torch.from_numpy(np.concatenate([self.sources[w.video].features[b][w.first:w.first + count]
                                                   for w in batch])) / self.method.clip[b] for b in BRANCHES}
        released, _ = self.simulate(raw, self.public)
        quantized = self.method.quantized({b: v.unflatten(0, (n, count)) for b, v in released.items()})
        index = rendered(self.method.size, self.method.frames, rng)
        context = self.method.contextualizer
        mixed = context.remembered(context.context(quantized))[:, :, index]  # (n, count, frames, width)
        made = self.method.decoder(context.latents(mixed.flatten(0, 2)))
        source, labels, mask = self._targets(batch, index)
        scores, maps = self.recogniser(made)
        with torch.no_grad():
            wanted = self.recogniser(source)[1]
        found = losses.Objective(losses.expression_loss(scores, labels, mask),
                                 losses.reconstruction_loss(made, source, mask),
                                 losses.perceptual_loss(maps, wanted, mask), losses.intra_loss(quantized))
        if count > 1:
            found.inter = losses.inter_loss(quantized)
            shaped = [m.unflatten(0, (n, count, len(index))) for m in maps]
            found.boundary = losses.boundary_loss([m[:, 1:, 0] for m in shaped], [m[:, :-1, -1] for m in shaped])
        return found

    def _targets(self, batch: Sequence[Window], index: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Source frames (N, 3, H, W) in [0, 1], labels (N,) and the mask (N,) of unpadded ones, in batch order."""
        frames, labels, mask = [], [], []
        for w in batch:
            source = self.sources[w.video]
            where = (np.arange(w.first, w.first + w.count)[:, None] * self.method.frames + index).ravel()
            frames.append(source.frames[where])
            labels.append(np.full(len(where), source.label))
            mask.append(where < source.unpadded)
        pixels = torch.from_numpy(np.concatenate(frames)).permute(0, 3, 1, 2).float() / 255
        return pixels, torch.from_numpy(np.concatenate(labels)), torch.from_numpy(np.concatenate(mask)).float()
