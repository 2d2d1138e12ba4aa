"""A learned controller decides what each report may spend, and on which expert."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from bench import method
from bench.nets.frozen_policy import logits
from bench.rehearsal import Rehearsal
from bench.reports import UNIT, ReportMethod, View
from bench.traffic import SLOTS
from methods.br_moe.controller import FEATURES, LEVELS, Controls, Streets, observed

STREAMS, ROLLOUTS = 1024, 50


@method("br_moe")
class BRMoE(ReportMethod):
    """In every window a small network chooses: nothing, or 0.1, 0.2, 0.4 or 0.8 of epsilon for the requested expert,
    for all four, or for the two that count. It reads the public request and its priority, the time, the budget that is
    left, and what past noisy releases tell by public statistics; never the stream. It was trained by proximal policy
    optimisation on public episodes only, with rewards for relevance to the request, coverage and brevity by priority,
    and is frozen. The harness clips, sums, adds the noise and refuses what is over the budget, so the controller can
    waste the budget but not exceed it. Reports become text by a fixed template from noisy values. With `max` a window
    may spend 0.4, 0.8, 2 or 4. `seed2`: trained from another seed. Protected are events of at most K chunks of 2 s
    (K = 2: at most 2 s), never a whole stay; an event over several windows is covered as the accountant says. Source:
    BR-MoE, budgeted semantic release; rewards, network and observation are ours, since its text does not fix them.
    """

    believes = True
    variants = {
        "max": {"accountant": "max"}, "seed2": {"training": 2}, "hmm": {"filtered": True},
        "noreuse": {"reuse": False}, "notask": {"tasks": False}, "box": {"box": True},
        "counts": {"counts_only": True}, "max-counts-box": {"accountant": "max", "counts_only": True, "box": True},
        "eps2": {"budget": "2"}, "eps8": {"budget": "8"}, "k5": {"changed": 5}, "k10": {"changed": 10},
    }

    def __init__(self, *, accountant: str = "sum", budget: str = "4", changed: int = 2, box: bool = False,
                 reuse: bool = True, filtered: bool = False, tasks: bool = True, counts_only: bool = False,
                 training: int = 1, rollouts: int = ROLLOUTS):
        super().__init__(accountant=accountant, budget=budget, changed=changed, box=box, reuse=reuse,
                         filtered=filtered)
        self.tasks, self.training, self.rollouts = tasks, training, rollouts
        self.controls = Controls(accountant, self.allowance(0), tasks=tasks, counts_only=counts_only)
        self.weights: dict[str, np.ndarray] = {}

    def limits(self) -> tuple[Fraction, ...]:
        """The largest level in every slot, whatever the budget of the episode."""
        return (min(UNIT * LEVELS[self.accountant][-1], self.budget),) * SLOTS

    def fit(self, data, assets, ctx) -> None:
        from bench.nets.ppo import Recipe, train  # heavy, and what plays the policy needs none of it

        super().fit(data, assets, ctx)
        seed = ctx.torch_seed("policy", str(self.training))
        game = Streets(Rehearsal(self, data.steps, STREAMS, seed), self.controls, tasks=self.tasks)
        self.weights, _ = train(game, FEATURES, len(self.controls.table), Recipe(self.rollouts), seed, ctx.report)

    def state(self):
        return {**super().state(), **{f"policy:{k}": v for k, v in self.weights.items()}}

    def load(self, state) -> None:
        super().load(state)
        self.weights = {k.partition(":")[2]: np.asarray(v) for k, v in state.items() if k.startswith("policy:")}

    def spends(self, view: View) -> np.ndarray:
        scores = logits(self.weights, observed(view, self, tasks=self.tasks))
        best = np.where(self.controls.mask(view), scores, -np.inf).argmax(axis=1)
        return self.controls.spends(best, view.asked)
