"""Exact fields in words; a learned agent picks the detail."""

from __future__ import annotations

from bench import method
from bench.spoken import SpokenMethod


@method("rl_moe")
class RLMoE(SpokenMethod):
    """Four experts give exact fields; an agent trained on public episodes picks for every report how much detail the
    requested expert gives (silent, few-some-many, whole numbers, exact) and how much the others, by rewards for
    relevance to the request, coverage of the scene and brevity. What is not said stays as it was last said. Nothing is
    noised and the agent reads the exact fields: no formal claim. The harness passes its fields in clear, so the event
    attack judges what the agent is given, which no wording can bound. In the manner of RL-MoE: its language model and
    its private weights are not public; words come from the template that all methods share. Source: RL-MoE, as BR-MoE
    describes it.
    """
