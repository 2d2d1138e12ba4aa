"""What traffic methods share: one loop from noisy window sums to reports, and one policy that each of them writes.

The harness clips, sums and adds the noise. A method decides, from public facts and past releases alone, how much each
expert may spend in the next window (`spends`). Here also: what is shown where nothing was released, and the text.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from bench.privacy.claims import EventClaim, FullClaim
from bench.privacy.contract import CHUNK_STEPS, Branch, Plan, PrivateMethod
from bench.traffic import COMPONENTS, EXPERTS, SLOTS, WINDOW_CHUNKS, WINDOW_S, columns, windows

UNIT = Fraction(1, 40)  # of a spend: policies count in fortieths, so that sums are exact


@dataclass(frozen=True)
class View:
    """What a policy may read: public facts and released values of B streams before window t. Shapes (B, ...).

    asked (B,) expert index and priority (B,) of the window; last (B, 12): the last released means, cut to their range,
    NaN where there was none; age (B, 4): windows since an expert's last release, t + 1 where there was none;
    left (B,): fortieths of the budget that are not spent (under "max": of the next window).
    """

    t: int
    slots: int
    asked: np.ndarray
    priority: np.ndarray
    last: np.ndarray
    age: np.ndarray
    left: np.ndarray


class ReportMethod(PrivateMethod):
    """A method of the traffic track. A child writes `spends`; everything else is the same for all of them.

    accountant: "sum" = at most `changed` chunks in every window, spends add up to `budget`; "max" = that many in all,
    each window may spend `budget`.  box: cut each count to [0, cap] instead of scaling the pair into the L1 ball;
    the same noise, less bias.  reuse: show the last release where there is no fresh one.
    """

    atom: ClassVar[str] = "chunk"
    encode = "fields"  # type: ignore[assignment]
    fits: ClassVar[bool] = True  # the public median
    share: ClassVar[Fraction] = Fraction(1, 10)  # of the budget, that one window may spend where windows add up

    def __init__(self, *, accountant: str = "sum", budget: str = "4", changed: int = 2, box: bool = False,
                 reuse: bool = True):
        self.accountant, self.budget, self.reuse = accountant, Fraction(budget), reuse
        self.branches = tuple(Branch(e.name, dim=e.dim, norm="box" if box and not e.label else "l1",
                                     clip=e.cap * CHUNK_STEPS, noise="discrete_laplace") for e in EXPERTS)
        self.terms = FullClaim(
            unit="event", adjacency="per_window" if accountant == "sum" else "total", horizon_seconds=SLOTS * WINDOW_S,
            event=EventClaim(WINDOW_CHUNKS, changed, tuple(Fraction(e.cap) for e in EXPERTS), self.limits(),
                             (Fraction(1, 4),) * 4, budget=self.budget or None, accountant=accountant))
        self.prior = np.full(len(COMPONENTS), np.nan)

    def limits(self) -> tuple[Fraction, ...]:
        """The most that each window spends; the harness refuses more. Part of the claim."""
        return (self.budget * self.share if self.accountant == "sum" else self.budget,) * SLOTS

    def allowance(self, t: int) -> int:
        """The same of window t, in fortieths."""
        return int(self.limits()[t] / UNIT)

    @abstractmethod
    def spends(self, view: View) -> np.ndarray:
        """Fortieths of epsilon that each expert is to spend in this window, int (B, 4)."""

    # ---- public data ----

    def fit(self, data, assets, ctx):
        """`data.steps`: int (N, chunks, 12) of public episodes. What is shown at first: medians of their windows, and
        of states the share of each, so that the most frequent one leads.
        """
        shown = windows(data.steps).reshape(-1, len(COMPONENTS))
        self.prior = np.median(shown, axis=0)
        for expert in EXPERTS:
            if expert.label:
                self.prior[columns(expert.name)] = shown[:, columns(expert.name)].mean(axis=0)

    def state(self):
        return {"prior": self.prior}

    def load(self, state):
        self.prior = np.asarray(state["prior"], dtype=np.float64)

    # ---- plan ----

    def plan(self, t, past, memory, public):
        asked, priority = np.asarray(public["asked"]), np.asarray(public["priority"])  # (B, T)
        last, age, left = self._remembered(past, memory, len(asked))
        view = View(t, asked.shape[1], asked[:, t], priority[:, t], last, age, left)
        wanted = np.asarray(self.spends(view), dtype=np.int64)  # (B, 4)
        wanted = np.where(wanted.sum(axis=1, keepdims=True) <= left[:, None], wanted, 0)
        return Plan(spend={e.name: [str(UNIT * int(n)) for n in wanted[:, m]] for m, e in enumerate(EXPERTS)},
                    memory={"last": last, "age": age, "left": left, "wanted": wanted})

    def _remembered(self, past: Mapping[str, np.ndarray], memory: Mapping[str, np.ndarray],
                    streams: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(last (B, 12), age (B, 4), left (B,)) after the window that has just been released."""
        if not past:
            whole = int(self.budget / UNIT)
            return (np.full((streams, len(COMPONENTS)), np.nan), np.ones((streams, 4), dtype=np.int64),
                    np.full(streams, whole, dtype=np.int64))
        values = np.concatenate([means(past[e.name], e.name) for e in EXPERTS], axis=1)  # (B, 12)
        fresh = np.stack([~np.isnan(past[e.name][:, 0]) for e in EXPERTS], axis=1)  # (B, 4)
        last = np.where(np.isnan(values), memory["last"], values)
        left = memory["left"]
        if self.accountant == "sum":
            left = left - np.where(fresh, memory["wanted"], 0).sum(axis=1)
        return last, np.where(fresh, 1, memory["age"] + 1), left

    # ---- report ----

    def render(self, transcripts: Sequence[Mapping[str, np.ndarray]], public: Mapping[str, Any],
               decoding: str) -> np.ndarray:
        """Reports float64 (B, T, 12): fresh values cut to their range, else the last ones, else the public median."""
        out = []
        for released in transcripts:
            values = np.concatenate([means(released[e.name], e.name) for e in EXPERTS], axis=1)  # (T, 12)
            out.append(filled(values, self.prior) if self.reuse else values)
        return np.stack(out)


def means(sums: np.ndarray, name: str) -> np.ndarray:
    """Noisy window sums (..., dim) of an expert -> means, cut to [0, cap]; NaN stays."""
    cap = next(e.cap for e in EXPERTS if e.name == name)
    return np.clip(sums / (WINDOW_CHUNKS * CHUNK_STEPS), 0.0, cap)


def filled(values: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Values (T, C) with every missing one replaced by the last before it, or by `start` (C,)."""
    out = values.copy()
    for t in range(len(out)):
        before = out[t - 1] if t else start
        out[t] = np.where(np.isnan(out[t]), before, out[t])
    return out


def ages(fresh: np.ndarray) -> np.ndarray:
    """Seconds (..., T, E) since the end of the window that each shown value is of; fresh: bool of that shape.

    0 when it is this window's own; an expert that has released nothing counts from the start of the episode.
    """
    slots = np.moveaxis(np.broadcast_to(np.arange(fresh.shape[-2])[:, None], fresh.shape), -2, 0)  # (T, ..., E)
    seen = np.maximum.accumulate(np.where(np.moveaxis(fresh, -2, 0), slots, -1), axis=0)
    return np.moveaxis((slots - seen) * WINDOW_S, 0, -2)


def text(report: np.ndarray, age_s: np.ndarray) -> str:
    """One report (12,) in words, from released values alone; age_s (4,) says how old each part is.

    >>> text(np.array([3.2, 1, 0, 0, 0, 0, 0, 1, .9, .1, 0, 0.]), np.zeros(4))
    'About 3 vehicles moving and 1 standing. About 0 people walking and 0 waiting. Sign: none. Weather: clear.'
    """
    parts = []
    for number, expert in enumerate(EXPERTS):
        values = report[columns(expert.name)]
        old = f" ({age_s[number]:g} s old)" if age_s[number] else ""
        if np.isnan(values).any():
            parts.append(f"{_HEADS[expert.name]}: not reported.")
        elif expert.label:
            word = expert.components[int(values.argmax())]
            parts.append(f"{_HEADS[expert.name]}: {_WORDS.get(word, word)}{old}.")
        else:
            first, second = (f"{v:.0f}" for v in values)
            parts.append(_COUNTED[expert.name].format(first, second) + f"{old}.")
    return " ".join(parts)


_HEADS = {"traffic": "Vehicles", "pedestrian": "People", "signs": "Sign", "environment": "Weather"}
_COUNTED = {"traffic": "About {} vehicles moving and {} standing",
            "pedestrian": "About {} people walking and {} waiting"}
_WORDS = {"stop": "stop", "speed_limit": "speed limit", "other_sign": "another", "no_sign": "none",
          "other_weather": "something else"}
