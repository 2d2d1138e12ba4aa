"""The same agent, forbidden to speak of people and of standing vehicles."""

from __future__ import annotations

from bench import method
from bench.spoken import SpokenMethod


@method("rl_moe_field_removal")
class RLMoEFieldRemoval(SpokenMethod):
    """`rl_moe` with fields removed: nothing about walking or waiting people, nothing about standing vehicles; public
    medians stand in their place. The pedestrian expert is not even run. What remains is exact: whoever knows the rest
    of a window sees whether one moving vehicle was there. No formal claim. Source: BR-MoE, baseline RL-MoE + field
    removal; which fields are removed is ours.
    """

    removed = ("stopped", "walking", "waiting")
