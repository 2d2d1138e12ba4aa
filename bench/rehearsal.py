"""Public episodes as a game: a policy of reports spends, sees what would be released, and learns how good it is.

The clip, the view, the budget and the fill are those of a release (`bench.reports`); the noise has the same law and
comes from a torch generator, as in every training (`bench.privacy.noise`). Nothing private is near.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from bench import seeds
from bench.privacy.noise import simulate_noise
from bench.reports import UNIT, ReportMethod, View, means, remembered, within
from bench.traffic import CHUNK_STEPS, EXPERTS, PRIORITIES, PRIORITY_ODDS, WINDOW_CHUNKS, columns, windows


@dataclass(frozen=True)
class Answer:
    """One window of B streams after the release. truth, shown: (B, 12), NaN in `shown` = missing; fresh: bool (B, 4);
    age: (B, 4) windows since an expert's release, 0 = this one's, -1 = never; asked, priority: (B,).
    """

    truth: np.ndarray
    shown: np.ndarray
    fresh: np.ndarray
    age: np.ndarray
    asked: np.ndarray
    priority: np.ndarray


class Rehearsal:
    """reset() -> View; step(spends) -> (Answer, View or None at the end). All streams go in step.

    Episodes are drawn with replacement, requests anew for each. steps: int (N, chunks, 12) of public episodes.
    """

    def __init__(self, method: ReportMethod, steps: np.ndarray, streams: int, seed: int):
        import torch

        self.method, self.streams = method, streams
        self.truth = windows(steps)  # (N, T, 12)
        self.sums = windows(method.clipped(steps)) * (WINDOW_CHUNKS * CHUNK_STEPS)
        self.rng, self.noise = seeds.derive(seed, "rehearsal"), torch.Generator().manual_seed(seed)
        self.limits = [int(most / UNIT) for most in method.limits()]

    def reset(self) -> View:
        """The first window of new episodes."""
        shape = (self.streams, self.truth.shape[1])
        self.episode = self.rng.integers(len(self.truth), size=self.streams)
        self.asked = self.rng.integers(len(EXPERTS), size=shape)
        self.priority = self.rng.choice(PRIORITIES, size=shape, p=PRIORITY_ODDS)
        self.t, self.ever = 0, np.zeros((self.streams, len(EXPERTS)), dtype=bool)
        self.now = self.method.view(0, {}, {}, self.asked, self.priority)
        return self.now

    def step(self, spends: np.ndarray) -> tuple[Answer, View | None]:
        """spends: fortieths of epsilon, int (B, 4). What is over the budget or the window's limit releases nothing."""
        wanted = within(spends, self.now)
        memory = remembered(self.now, wanted)
        paid = np.where(wanted.sum(axis=1, keepdims=True) <= self.limits[self.t], wanted, 0)
        past = self._noisy(paid)
        fresh = paid > 0
        self.ever |= fresh
        answer = Answer(self.truth[self.episode, self.t], self._shown(past, memory, fresh), fresh,
                        np.where(self.ever, np.where(fresh, 0, self.now.age), -1), self.now.asked, self.now.priority)
        self.t += 1
        if self.t == self.truth.shape[1]:
            return answer, None
        self.now = self.method.view(self.t, past, memory, self.asked, self.priority)
        return answer, self.now

    def _noisy(self, paid: np.ndarray) -> dict[str, np.ndarray]:
        """Noisy sums {expert: (B, dim)} of this window, NaN where nothing was paid."""
        import torch

        out = {}
        for m, branch in enumerate(self.method.branches):
            clean = torch.from_numpy(self.sums[self.episode, self.t, columns(branch.name)])
            reach = Fraction(branch.sensitivity) * self.method.changed / UNIT
            scale = torch.from_numpy(float(reach) / np.maximum(paid[:, m:m + 1], 1))
            noisy = simulate_noise(clean, "discrete_laplace", scale, generator=self.noise).numpy()
            out[branch.name] = np.where(paid[:, m:m + 1] > 0, noisy, np.nan)
        return out

    def _shown(self, past: Mapping[str, np.ndarray], memory: Mapping[str, np.ndarray],
               fresh: np.ndarray) -> np.ndarray:
        """What the reports of this window say (B, 12)."""
        if self.method.filtered:
            assert self.method.beliefs is not None
            return self.method.beliefs.medians(self.method.updated(past, memory))
        values = np.concatenate([means(past[e.name], e.name) for e in EXPERTS], axis=1)
        if not self.method.reuse:
            return values
        before = np.where(np.isnan(memory["last"]), self.method.prior, memory["last"])
        return np.where(np.isnan(values), before, values)


def quality(answer: Answer) -> np.ndarray:
    """How well the asked expert's part of each report answers, (B,) in 0 .. 1: clip(1 - MAE / C) of counts; of
    states, whether the leading one is right; 0 where it is missing.
    """
    out = np.zeros(len(answer.asked))
    for m, expert in enumerate(EXPERTS):
        part = columns(expert.name)
        truth, shown = answer.truth[:, part], answer.shown[:, part]
        if expert.label:
            good = truth.argmax(axis=1) == np.nan_to_num(shown, nan=-1.0).argmax(axis=1)
        else:
            good = np.clip(1 - np.abs(truth - shown).mean(axis=1) / expert.cap, 0, 1)
        out = np.where(answer.asked == m, np.where(np.isnan(shown).any(axis=1), 0.0, good), out)
    return out


