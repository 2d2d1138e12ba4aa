"""Reports in words from exact fields: a learned agent picks how much detail each expert gives. No noise, no claim.

The agent of RL-MoE as far as its public texts describe it: four experts, a policy trained by proximal policy
optimisation on rewards for relevance, coverage and brevity. It reads the exact fields, so it protects nothing formally.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bench import seeds
from bench.nets.frozen_policy import logits
from bench.rehearsal import Answer, quality
from bench.reports import ClearMethod, filled
from bench.traffic import COMPONENTS, EXPERTS, columns, windows

LEVELS = ("silent", "coarse", "rounded", "exact")
WORDS = np.array([0, 2, 3, 5])  # that an expert needs at each level
COVERAGE, BREVITY = 0.2, 0.1  # weights beside relevance
STREAMS, ROLLOUTS = 4096, 60
OBSERVED = len(EXPERTS) + 2 + len(COMPONENTS)


class SpokenMethod(ClearMethod):
    """Actions: a level for the expert that is asked for, and one for the others. removed: components never spoken."""

    fits = True
    removed: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *, rollouts: int = ROLLOUTS):
        super().__init__([e for e in EXPERTS if not set(e.components) <= set(self.removed)])
        self.rollouts = rollouts
        self.gone = np.isin(COMPONENTS, self.removed)
        self.thirds = np.zeros((4, 3))  # what "few", "some" and "many" stand for
        self.weights: dict[str, np.ndarray] = {}

    # ---- public data ----

    def fit(self, data, assets, ctx) -> None:
        from bench.nets.ppo import Recipe, train  # heavy, and what plays the policy needs none of it

        super().fit(data, assets, ctx)
        shown = windows(data.steps)
        self.thirds = np.quantile(shown[..., :4].reshape(-1, 4), [1 / 6, 1 / 2, 5 / 6], axis=0).T
        seed = ctx.torch_seed("policy")
        self.weights, _ = train(Talk(self, shown, seed), OBSERVED, len(LEVELS)**2, Recipe(self.rollouts), seed,
                                ctx.report)

    def state(self):
        return {**super().state(), "thirds": self.thirds, **{f"policy:{k}": v for k, v in self.weights.items()}}

    def load(self, state) -> None:
        super().load(state)
        self.thirds = np.asarray(state["thirds"], dtype=np.float64)
        self.weights = {k.partition(":")[2]: np.asarray(v) for k, v in state.items() if k.startswith("policy:")}

    # ---- release ----

    def render(self, transcripts, public, decoding) -> np.ndarray:
        """(B, T, 12): what is said of each window; what is not said stays as it was, at first the public median.

        decoding = "isolated": NaN where nothing is said.
        """
        asked, priority = np.asarray(public["asked"]), np.asarray(public["priority"])
        exact = np.stack([np.where(self.gone, 0.0, self.exact(one)) for one in transcripts])  # (B, T, 12)
        out = []
        for b in range(len(exact)):
            action = logits(self.weights, observed(exact[b], asked[b], priority[b])).argmax(axis=1)
            said = np.where(self.gone, np.nan, self.said(exact[b], detail(action, asked[b])))
            out.append(said if decoding == "isolated" else filled(said, self.prior))
        return np.stack(out)

    def said(self, exact: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """Values (B, 12) as spoken at `levels` (B, 4); NaN where silent. Coarse: few, some, many, or the leading
        state; rounded: whole numbers, or quarters of a state's share.
        """
        out = np.full(exact.shape, np.nan)
        for m, expert in enumerate(EXPERTS):
            part, level = columns(expert.name), levels[:, m:m + 1]
            values = exact[:, part]
            if expert.label:
                coarse, rounded = np.eye(expert.dim)[values.argmax(axis=1)], np.rint(values * 4) / 4
            else:
                marks = self.thirds[part]  # (2, 3)
                near = np.abs(values[..., None] - marks).argmin(axis=2)
                coarse, rounded = np.take_along_axis(marks[None], near[..., None], 2)[..., 0], np.rint(values)
            out[:, part] = np.select([level == 1, level == 2, level == 3], [coarse, rounded, values], np.nan)
        return out


def detail(action: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Levels (B, 4) of actions (B,): of the asked expert, and of all others."""
    own, others = np.divmod(action, len(LEVELS))
    out = np.repeat(others[:, None], len(EXPERTS), axis=1)
    out[np.arange(len(out)), asked] = own
    return out


def observed(exact: np.ndarray, asked: np.ndarray, priority: np.ndarray) -> np.ndarray:
    """(B, OBSERVED): the request, its priority, the exact fields."""
    caps = np.array([e.cap for e in EXPERTS for _ in range(e.dim)], dtype=float)
    return np.concatenate([np.eye(len(EXPERTS))[asked], priority[:, None] == [1, 3], exact / caps], axis=1)


class Talk:
    """One window is a game of one step (see bench.nets.ppo)."""

    def __init__(self, method: SpokenMethod, truth: np.ndarray, seed: int):
        self.method, self.truth = method, truth.reshape(-1, len(COMPONENTS))
        self.rng = seeds.derive(seed, "talk")

    def reset(self) -> tuple[np.ndarray, np.ndarray]:
        self.now = self.truth[self.rng.integers(len(self.truth), size=STREAMS)]
        self.asked = self.rng.integers(len(EXPERTS), size=STREAMS)
        self.priority = self.rng.choice((0, 1, 3), size=STREAMS)
        known = np.where(self.method.gone, 0.0, self.now)
        return observed(known, self.asked, self.priority), np.ones((STREAMS, len(LEVELS)**2), dtype=bool)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, None]:
        levels = detail(actions, self.asked)
        said = np.where(self.method.gone, np.nan, self.method.said(np.where(self.method.gone, 0.0, self.now), levels))
        return reward(self.now, said, self.asked, levels), None


def reward(truth: np.ndarray, said: np.ndarray, asked: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """(B,): relevance = quality of the asked expert's part, coverage = mean quality of all parts, brevity = words."""
    nothing = np.zeros(levels.shape)
    good = np.stack([quality(Answer(truth, said, levels > 0, nothing, np.full(len(asked), m), nothing[:, 0]))
                     for m in range(len(EXPERTS))], axis=1)
    return good[np.arange(len(asked)), asked] + COVERAGE * good.mean(axis=1) - \
        BREVITY * WORDS[levels].sum(axis=1) / (len(EXPERTS) * WORDS[-1])
