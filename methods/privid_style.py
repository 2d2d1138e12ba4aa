"""Chunk-wise queries with Laplace noise under a policy (rho, K), one range a coordinate."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil

import numpy as np

from bench import Branch, method
from bench.reports import ReportMethod, View
from bench.traffic import CHUNK_S, CHUNK_STEPS, EXPERTS


@method("privid_style")
class PrividStyle(ReportMethod):
    """An analyst's query a window: the mean of each component of the requested expert over the window's chunks. Every
    chunk is read by itself and gives one row of fixed size, each value clamped to its range [0, C] before the sum; each
    component is a query of its own, with Laplace noise of scale C N / (epsilon / d) on the sum of d components. The
    policy (rho, K) protects whatever is seen in at most K segments of at most rho seconds each, and a segment may
    straddle a border: N = K (1 + ceil(rho / c)) rows of chunks of c = 2 s change. The budget belongs to time, as in
    Privid: every window may spend all of it, since an event's chunks cannot lie in more than N places (`max`
    accounting, N chunks in all); `sum` is for the adjacency in which N chunks of every window change. The range counts
    once a coordinate where the other rows clip an L1 ball, so that four states cost twice their noise. No query
    language and no video engine is rebuilt. Source: Privid, policy and sensitivity of its public code; which query is
    asked is ours.
    """

    variants = {"sum": {"accountant": "sum"}, "rho6": {"rho_s": 6.0}, "k2": {"segments": 2},
                "eps2": {"budget": "2"}, "eps8": {"budget": "8"}}

    def __init__(self, *, rho_s: float = 2.0, segments: int = 1, accountant: str = "max", budget: str = "4"):
        super().__init__(accountant=accountant, budget=budget, changed=segments * (1 + ceil(rho_s / CHUNK_S)), box=True)
        self.branches = tuple(Branch(e.name, dim=e.dim, norm="box", clip=e.cap * CHUNK_STEPS, noise="discrete_laplace")
                              for e in EXPERTS)
        assert self.terms.event is not None
        ranges = tuple(Fraction(e.cap * e.dim, 2) for e in EXPERTS)  # a box moves as far as a ball of this radius
        self.terms = replace(self.terms, event=replace(self.terms.event, cap=ranges))

    def spends(self, view: View) -> np.ndarray:
        out = np.zeros((len(view.asked), 4), dtype=np.int64)
        out[np.arange(len(out)), view.asked] = self.allowance(view.t)
        return out
