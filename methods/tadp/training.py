"""How TADP is fitted: features and their thresholds, windows of consecutive clips, the training loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from bench import DataError, Diverged
from methods.tadp import losses
from methods.tadp.frozen import Encoders, Recogniser
from methods.tadp.sizes import BRANCHES, Size

RATE, READING_RATE = 1e-3, 1e-3
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


def encoded(frames: np.ndarray, encoders: Encoders, length: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """A video, its last frame repeated to fill K clips of `length` frames (T K, H, W, 3), and what a release would
    encode of every clip, {branch: (K, T, dim)}.
    """
    count = -(-len(frames) // length)
    padded = np.concatenate([frames, np.repeat(frames[-1:], count * length - len(frames), axis=0)])
    found = [encoders(clip) for clip in np.split(padded, count)]
    return padded, {b: np.stack([one[b] for one in found]) for b in BRANCHES}


def read(item: Any, encoders: Encoders, length: int) -> Source:
    """A development video, padded to whole clips of `length` frames, with its features."""
    padded, found = encoded(item.video.frames, encoders, length)
    return Source(padded, item.expression, len(item.video.frames), found)


def thresholds(items: Sequence[Any], encoders: Encoders, length: int) -> dict[str, float]:
    """C_b: the 95th percentile of the norms of unpadded frames of calibration people.

    Raises DataError for too few people or clips, and for features without a finite, positive norm.
    """
    people = {item.identity for item in items}
    norms: dict[str, list[np.ndarray]] = {b: [] for b in BRANCHES}
    clips = 0
    for item in items:
        found = encoded(item.video.frames, encoders, length)[1]
        clips += len(found[BRANCHES[0]])
        for branch, rows in found.items():
            norms[branch].append(np.linalg.norm(np.concatenate(rows)[:len(item.video.frames)].astype(float), axis=1))
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
        size: Size = self.method.size
        self.start()
        head = nn.Linear(size.width, 1 + max(s.label for s in self.sources))
        self._phase("reading", size.reading, replace(size, batch=size.reading_batch), READING_RATE,
                    lambda batch: self.reading(batch, head, rng), [*self.method.trained(), head], rng, report)
        self._phase("painting", size.epochs, size, RATE, lambda batch: self.objective(batch, rng).total(),
                    self.method.trained(), rng, report)

    def _phase(self, name: str, count: int, size: Size, rate: float, objective: Callable[[Sequence[Window]], Any],
               modules: Sequence[nn.Module], rng: np.random.Generator, report: Callable[[str], None]) -> None:
        epochs = [windows([s.clips for s in self.sources], size, rng) for _ in range(count)]
        parameters = [p for m in modules for p in m.parameters()]
        optimizer = torch.optim.AdamW(parameters, lr=rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, sum(map(len, epochs))))
        for number, batches in enumerate(epochs):
            seen: list[float] = []
            for batch in batches:
                loss = objective(batch)
                if not torch.isfinite(loss):
                    raise Diverged(f"the loss became {loss.item()} in epoch {number + 1} of {name}")
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, 1.0)
                optimizer.step()
                schedule.step()
                seen.append(float(loss.detach()))
            report(f"{name}, epoch {number + 1}/{count}: loss {np.mean(seen):.3f}")

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

    def mixed(self, batch: Sequence[Window], people: Sequence[Window] | None = None,
              ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """A new simulated release of the windows: mixed context (n, count, T, width) and the quantized rows.

        people: the windows that identity is taken from, those of the batch unless given.
        """
        n, count = len(batch), batch[0].count
        raw = {b: torch.from_numpy(np.concatenate([self.sources[w.video].features[b][w.first:w.first + count]
                                                   for w in of])) / self.method.clip[b]
               for b, of in zip(BRANCHES, (people or batch, batch), strict=True)}
        released, _ = self.simulate(raw, self.public)
        quantized = self.method.quantized({b: v.unflatten(0, (n, count)) for b, v in released.items()})
        context = self.method.contextualizer
        return context.remembered(context.context(quantized)), quantized

    def reading(self, batch: Sequence[Window], head: nn.Module, rng: np.random.Generator) -> torch.Tensor:
        """Cross entropy of the source's label, read from the mean mixed context of every clip. Nothing is painted, so
        many draws of noise cost little, and what is painted later starts from a context that says something. Identity
        comes from another window: a label that is remembered with its person is no reading.
        """
        mixed, _ = self.mixed(batch, [batch[i] for i in rng.permutation(len(batch))])
        scores = head(mixed.mean(2))  # (n, count, classes)
        labels = torch.tensor([self.sources[w.video].label for w in batch])
        return nn.functional.cross_entropy(scores.flatten(0, 1), labels.repeat_interleave(scores.shape[1]))

    def objective(self, batch: Sequence[Window], rng: np.random.Generator) -> losses.Objective:
        """All losses of one batch; memory starts anew at each window."""
        n, count = len(batch), batch[0].count
        mixed, quantized = self.mixed(batch)
        index = rendered(self.method.size, self.method.frames, rng)
        made = self.method.decoder(self.method.contextualizer.latents(mixed[:, :, index].flatten(0, 2)))
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
