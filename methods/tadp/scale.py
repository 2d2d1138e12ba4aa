"""The adaptive noise scale: a GRU over the released history, never below the floor."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional as F

HIDDEN, INNER = 256, 128
START_BIAS = -5.0  # softplus(-5) = .0067: training starts just above the floor


class ScalePredictor(nn.Module):
    """s_b = floor_b (1 + softplus(g_b(h))), h a GRU over projected pairs of released rows; h_0 = 0.

    dim: width of one branch's row; the projection reads both.  floors: {branch: smallest standard deviation}.
    At dim = 1024 and two branches this has 985,346 parameters.
    """

    def __init__(self, dim: int, floors: Mapping[str, float]):
        super().__init__()
        self.floors = dict(floors)
        self.project = nn.Linear(2 * dim, HIDDEN)
        self.gru = nn.GRUCell(HIDDEN, HIDDEN)
        self.heads = nn.ModuleDict({name: nn.Sequential(nn.Linear(HIDDEN, INNER), nn.GELU(), nn.Linear(INNER, 1))
                                    for name in self.floors})
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter)
            else:
                nn.init.zeros_(parameter)
        for head in self.heads.values():
            last = head[2]  # type: ignore[index]
            nn.init.zeros_(last.weight)
            nn.init.constant_(last.bias, START_BIAS)

    def forward(self, past: torch.Tensor | None,
                h: torch.Tensor | None) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """Standard deviations of the next step and the state behind them.

        past: released rows of both branches side by side (B, 2 dim), None before the first step.  h: (B, 256) or None.
        Returns ({branch: (B,)}, (B, 256)); before the first step B = 1 and one number serves all streams.
        """
        if past is None or h is None:
            h = self.project.weight.new_zeros(1, HIDDEN)
        else:
            h = self.gru(self.project(past), h.expand(len(past), HIDDEN))
        grown = {name: F.softplus(self.heads[name](h)[:, 0]) for name in self.floors}  # (B,), never negative
        return {name: self.floors[name] * (1 + grown[name]) for name in self.floors}, h
