"""The controller's world: what it observes, what it may do, what it is paid for. Public facts and releases only."""

from __future__ import annotations

import numpy as np

from bench.rehearsal import Answer, Rehearsal, quality
from bench.reports import ReportMethod, View
from bench.traffic import EXPERTS, SLOTS, columns

COVERAGE, BREVITY = 0.1, 0.05  # weights beside relevance
REUSED = 2  # windows: older reports do not count as covered
LEVELS = {"sum": (4, 8, 16, 32), "max": (16, 32, 80, 160)}  # fortieths of epsilon in a window
FEATURES = 4 + 2 + 3 + 12 + 4 + 4  # see `observed`


class Controls:
    """The list of actions: nothing; then, at each level, the asked expert, all four, or the two that count."""

    def __init__(self, accountant: str, most: int, *, tasks: bool, counts_only: bool):
        levels = [level for level in LEVELS[accountant] if level <= most]
        kinds = [k for k in ("asked", "all", "counts") if (tasks or k != "asked") and (k != "all" or not counts_only)]
        rows, allowed = [np.zeros((4, 4), dtype=np.int64)], [np.ones(4, dtype=bool)]
        for kind in kinds:
            for level in levels:
                rows.append(_spends(kind, level))
                allowed.append(np.array([not (counts_only and kind == "asked" and e.label) for e in EXPERTS]))
        self.table, self.known = np.stack(rows), np.stack(allowed)  # (A, asked, 4), (A, asked)

    def spends(self, action: np.ndarray, asked: np.ndarray) -> np.ndarray:
        """Fortieths (B, 4) of actions (B,) where `asked` (B,) is requested."""
        return self.table[action, asked]

    def mask(self, view: View) -> np.ndarray:
        """Which actions the budget allows, bool (B, A); "nothing" always."""
        cost = self.table.sum(axis=2)[:, view.asked].T  # (B, A)
        return (cost <= view.left[:, None]) & self.known[:, view.asked].T


def _spends(kind: str, level: int) -> np.ndarray:
    """(asked, 4) fortieths of one kind of action at one level."""
    if kind == "asked":
        return level * np.eye(4, dtype=np.int64)
    share = np.array([1, 1, 1, 1]) * (level // 4) if kind == "all" else np.array([1, 1, 0, 0]) * (level // 2)
    return np.repeat(share[None], 4, axis=0)


def observed(view: View, method: ReportMethod, *, tasks: bool) -> np.ndarray:
    """What the policy reads, float64 (B, FEATURES), each about -1 .. 1.

    Request (4) and priority (2), zero without task conditioning; time, budget left, budget left per window; mean and
    deviation of the belief of each count, and how far the shown value lies from it (12); largest belief and belief of
    the shown state of sign and weather (4); windows since each expert's release, at most five (4).
    """
    assert method.beliefs is not None and view.belief is not None
    streams = len(view.asked)
    request = np.concatenate([np.eye(4)[view.asked], (view.priority[:, None] == [1, 3])], axis=1) * float(tasks)
    whole = float(max(method.allowance(t) for t in range(SLOTS)))
    total = float(method.budget * 40) or 1.0
    left = view.left / total
    clock = np.stack([np.full(streams, view.t / view.slots), left,
                      np.minimum(view.left / whole / (view.slots - view.t), 1.0)], axis=1)
    shown = np.where(np.isnan(view.last), method.prior, view.last)
    mean, spread = method.beliefs.moments(view.belief)
    caps = np.array([e.cap for e in EXPERTS if not e.label for _ in range(e.dim)], dtype=float)
    states = []
    for k, expert in enumerate(e for e in EXPERTS if e.label):
        own = view.belief.states[:, k]
        states += [own.max(axis=1), np.take_along_axis(own, shown[:, columns(expert.name)].argmax(axis=1)[:, None],
                                                       1)[:, 0]]
    return np.concatenate([request, clock, mean / caps, spread / caps, (shown[:, :4] - mean) / caps,
                           np.stack(states, axis=1), np.minimum(view.age, 5) / 5.0], axis=1)


def reward(answer: Answer) -> np.ndarray:
    """(B,) by the slot's priority: relevance, and a tenth of it where the slot counts as covered; less brevity.

    Coverage is paid by the quality of what is shown, so that a tiny spend that only renews a report earns nothing.
    """
    good = quality(answer)
    age = np.take_along_axis(answer.age, answer.asked[:, None], 1)[:, 0]
    covered = (age >= 0) & (age <= REUSED)
    return (answer.priority * good * (1 + COVERAGE * covered) - BREVITY * answer.fresh.mean(axis=1)) / SLOTS


class Streets:
    """Public episodes as a game of masked actions (see bench.nets.ppo)."""

    def __init__(self, rehearsal: Rehearsal, controls: Controls, *, tasks: bool):
        self.rehearsal, self.controls, self.tasks = rehearsal, controls, tasks

    def reset(self) -> tuple[np.ndarray, np.ndarray]:
        return self._seen(self.rehearsal.reset())

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray] | None]:
        answer, view = self.rehearsal.step(self.controls.spends(actions, self.rehearsal.now.asked))
        return reward(answer), None if view is None else self._seen(view)

    def _seen(self, view: View) -> tuple[np.ndarray, np.ndarray]:
        return observed(view, self.rehearsal.method, tasks=self.tasks), self.controls.mask(view)
