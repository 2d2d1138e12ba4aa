"""quantization: how a method's soft assignments to its codebooks look under the noise."""

import numpy as np

from bench import Assignments, Column, ThreatModel, attack, column_key, told_apart


def _column(name, title, *, unit="1", high=1e9):
    return Column(id=name, unit=unit, better="none", low=0, high=high, role="diagnostic", statistic="jackknife",
                  title=title, source="TADP table 13")


@attack("quantization")
class Quantization(Assignments):
    """Of methods that assign noisy values to the entries of a codebook, branch by branch, over all unpadded test
    frames. `entry_norm`, `entry_norm_std`: l2 norms of the entries. `entropy`: of the soft assignment, in nats;
    log(entries) is uniform. `max_probability`: of the likeliest entry. `top1_agreement`: share of pairs of independent
    releases whose likeliest entry for the same frame is the same. Low agreement does not make a video unsteady, since
    all of the assignment is used; entropy near uniform means that the codebook says little. Methods without a codebook
    have no such row. It attacks nobody and ranks nothing. Source: TADP table 13; pairs of draws, so that their number
    does not matter, are ours.
    """

    threat = ThreatModel(knows="what the method computes from its own released values, and its codebooks",
                         reads="draws", trained_on="nothing", decoding="assembled")
    columns = (_column("entry_norm", "Norm of a codebook entry"),
               _column("entry_norm_std", "Norm of a codebook entry, deviation"),
               _column("entropy", "Entropy of an assignment", unit="nats", high=100),
               _column("max_probability", "Probability of the likeliest entry", unit="rate", high=1),
               _column("top1_agreement", "Pairs of draws with the same likeliest entry", unit="rate", high=1))

    def __init__(self, *, draws: int = 20, subset: str | None = None):
        self.draws, self.subset = draws, subset
        self.codebooks = {}

    def columns_of(self, method):
        return told_apart(self.columns, "branch", method.assigned)

    def load(self, codebooks):
        self.codebooks = dict(codebooks)

    def values(self, branches):
        found = {}
        for name, chances in branches.items():  # (R, T, entries)
            logs = np.log(np.where(chances > 0, chances, 1.0))
            found[f"entropy:{name}"] = -(chances * logs).sum(2).mean(0)  # (T,)
            found[f"max_probability:{name}"] = chances.max(2).mean(0)
            found[f"top1_agreement:{name}"] = _agreement(chances.argmax(2))
        return found

    def pooled(self, values, people):
        found = {}
        for name, entries in self.codebooks.items():
            norms, params = np.linalg.norm(entries, axis=1), {"branch": name}
            found |= {column_key("entry_norm", params): norms.mean(), column_key("entry_norm_std", params): norms.std()}
            found |= {column_key(what, params): values[f"{what}:{name}"].mean()
                      for what in ("entropy", "max_probability", "top1_agreement")}
        return found


def _agreement(chosen):
    """(R, T) entries -> (T,) share of pairs of draws that are equal, NaN with one draw."""
    draws = len(chosen)
    if draws < 2:
        return np.full(chosen.shape[1], np.nan)
    ordered = np.sort(chosen, axis=0)
    equal = np.zeros(chosen.shape[1])
    for lag in range(1, draws):
        equal += (ordered[lag:] == ordered[:-lag]).sum(0)
    return equal / (draws * (draws - 1) / 2)
