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

from bench.beliefs import Belief, Beliefs
from bench.errors import ConfigError, PluginError
from bench.privacy.claims import EventClaim, FullClaim
from bench.privacy.contract import CHUNK_STEPS, Branch, Plan, PrivateMethod
from bench.privacy.windows import clip_chunks
from bench.traffic import COMPONENTS, EXPERTS, SLOTS, WINDOW_CHUNKS, WINDOW_S, Expert, columns, windows

UNIT = Fraction(1, 40)  # of a spend: policies count in fortieths, so that sums are exact
EXACT = 2.0**20  # a box so large that nothing is clipped; its step is one


@dataclass(frozen=True)
class View:
    """What a policy may read: public facts and released values of B streams before window t. Shapes (B, ...).

    asked (B,) expert index and priority (B,) of the window; last (B, 12): the last released means, cut to their range,
    NaN where there was none; age (B, 4): windows since an expert's last release, t + 1 where there was none;
    left (B,): fortieths of the budget that are not spent (under "max": of the next window).  belief: what all released
    values tell about this window, for methods that keep one.
    """

    t: int
    slots: int
    asked: np.ndarray
    priority: np.ndarray
    last: np.ndarray
    age: np.ndarray
    left: np.ndarray
    belief: Belief | None = None


class ReportMethod(PrivateMethod):
    """A method of the traffic track. A child writes `spends`; everything else is the same for all of them.

    accountant: "sum" = at most `changed` chunks in every window, spends add up to `budget`; "max" = that many in all,
    each window may spend `budget`.  box: cut each count to [0, cap] instead of scaling the pair into the L1 ball;
    the same noise, less bias.  reuse: show the last release where there is no fresh one.  filtered: show the posterior
    median of a filter over all releases so far and public statistics, in every window.  caps: of the two that count,
    where they are lower than the schema's; chosen on public episodes.
    """

    atom: ClassVar[str] = "chunk"
    encode = "fields"  # type: ignore[assignment]
    fits: ClassVar[bool] = True  # the public median
    share: ClassVar[Fraction] = Fraction(1, 10)  # of the budget, that one window may spend where windows add up
    believes: ClassVar[bool] = False  # does `spends` read View.belief?

    def __init__(self, *, accountant: str = "sum", budget: str = "4", changed: int = 2, box: bool = False,
                 reuse: bool = True, filtered: bool = False, caps: tuple[int, int] = (20, 6)):
        self.accountant, self.budget, self.reuse, self.filtered = accountant, Fraction(budget), reuse, filtered
        self.changed, counted = changed, dict(zip(("traffic", "pedestrian"), caps, strict=True))
        self.beliefs = Beliefs() if filtered or self.believes else None
        self._check()
        self.branches = tuple(Branch(e.name, dim=e.dim, norm="box" if box and not e.label else "l1",
                                     clip=min(e.cap, counted.get(e.name, e.cap)) * CHUNK_STEPS,
                                     noise="discrete_laplace") for e in EXPERTS)
        self.terms = FullClaim(
            unit="event", adjacency="per_window" if accountant == "sum" else "total", horizon_seconds=SLOTS * WINDOW_S,
            event=EventClaim(WINDOW_CHUNKS, changed, tuple(Fraction(e.cap) for e in EXPERTS), self.limits(),
                             (Fraction(1, 4),) * 4, budget=self.budget or None, accountant=accountant))
        self.prior = np.full(len(COMPONENTS), np.nan)

    def _check(self) -> None:
        """Raises ConfigError for terms that no window could keep."""
        most = WINDOW_CHUNKS * (1 if self.accountant == "sum" else SLOTS)
        if not 1 <= self.changed <= most:
            raise ConfigError(f"changed = {self.changed}: an event cannot change so many chunks.",
                              f"A window has {WINDOW_CHUNKS}, an episode {WINDOW_CHUNKS * SLOTS}.",
                              f"Give 1 to {most}.")
        for limit in self.limits():
            if (limit / UNIT).denominator != 1:
                raise ConfigError(f"A window may spend {limit}, which is no multiple of {UNIT}.",
                                  "Policies count in fortieths of epsilon; what is left over would be claimed and "
                                  "never spent.", "Give a budget whose share of a window is a multiple of 1/40.")

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
        if self.beliefs is not None:
            self.beliefs.fit(windows(data.steps), windows(self.clipped(data.steps)))

    def clipped(self, steps: np.ndarray) -> np.ndarray:
        """Chunk steps (N, chunks, 12) as a release would clip them."""
        return np.concatenate([clip_chunks(steps[..., columns(b.name)] / CHUNK_STEPS, b, CHUNK_STEPS)[0]
                               for b in self.branches], axis=2)

    def state(self):
        kept = {} if self.beliefs is None else {f"belief:{k}": v for k, v in self.beliefs.arrays.items()}
        return {"prior": self.prior, **kept}

    def load(self, state):
        self.prior = np.asarray(state["prior"], dtype=np.float64)
        if self.beliefs is not None:
            self.beliefs = Beliefs({k.partition(":")[2]: np.asarray(v, dtype=np.float64) for k, v in state.items()
                                    if k.startswith("belief:")})

    # ---- plan ----

    def plan(self, t, past, memory, public):
        asked, priority = np.asarray(public["asked"]), np.asarray(public["priority"])  # (B, T)
        view = self.view(t, past, memory, asked, priority)
        wanted = within(self.spends(view), view)
        return Plan(spend={e.name: [str(UNIT * int(n)) for n in wanted[:, m]] for m, e in enumerate(EXPERTS)},
                    memory=remembered(view, wanted))

    def view(self, t: int, past: Mapping[str, np.ndarray], memory: Mapping[str, np.ndarray], asked: np.ndarray,
             priority: np.ndarray) -> View:
        """What may be read before window t. past: sums (B, dim) of window t - 1, empty at t = 0; asked, priority:
        (B, T); memory: see `remembered`.
        """
        streams = len(asked)
        if not past:
            last, age = np.full((streams, len(COMPONENTS)), np.nan), np.ones((streams, 4), dtype=np.int64)
            left = np.full(streams, int(self.budget / UNIT), dtype=np.int64)
            belief = self.beliefs.start(streams) if self.beliefs is not None else None
        else:
            values = np.concatenate([means(past[e.name], e.name) for e in EXPERTS], axis=1)  # (B, 12)
            fresh = np.stack([~np.isnan(past[e.name][:, 0]) for e in EXPERTS], axis=1)  # (B, 4)
            last, age = np.where(np.isnan(values), memory["last"], values), np.where(fresh, 1, memory["age"] + 1)
            left = memory["left"]
            if self.accountant == "sum":
                left = left - np.where(fresh, memory["wanted"], 0).sum(axis=1)
            belief = self.beliefs.ahead(self.updated(past, memory)) if self.beliefs is not None else None
        return View(t, asked.shape[1], asked[:, t], priority[:, t], last, age, left, belief)

    def updated(self, past: Mapping[str, np.ndarray], memory: Mapping[str, np.ndarray]) -> Belief:
        """The belief of `memory` after the window whose noisy sums are `past`."""
        assert self.beliefs is not None
        values = np.concatenate([past[e.name] for e in EXPERTS], axis=1) / (WINDOW_CHUNKS * CHUNK_STEPS)
        reach = np.array([float(b.sensitivity * self.changed) for b in self.branches]) / (WINDOW_CHUNKS * CHUNK_STEPS)
        spent = np.where(memory["wanted"] > 0, memory["wanted"] * float(UNIT), np.nan)
        return self.beliefs.seen(Belief(memory["counts"], memory["states"]), values, reach / spent)

    # ---- report ----

    def render(self, transcripts: Sequence[Mapping[str, np.ndarray]], public: Mapping[str, Any],
               decoding: str) -> np.ndarray:
        """Reports float64 (B, T, 12): fresh values cut to their range, else the last ones, else the public median."""
        if self.filtered:
            return self._filtered({e.name: np.stack([one[e.name] for one in transcripts]) for e in EXPERTS}, public)
        out = []
        for released in transcripts:
            values = np.concatenate([means(released[e.name], e.name) for e in EXPERTS], axis=1)  # (T, 12)
            out.append(filled(values, self.prior) if self.reuse else values)
        return np.stack(out)

    def _filtered(self, sums: Mapping[str, np.ndarray], public: Mapping[str, Any]) -> np.ndarray:
        """Posterior medians (B, T, 12) from noisy sums {branch: (B, T, dim)}; the plan is made again on the way."""
        assert self.beliefs is not None
        past: dict[str, np.ndarray] = {}
        memory: Mapping[str, np.ndarray] = {}
        out = []
        for t in range(next(iter(sums.values())).shape[1]):
            memory = self.plan(t, past, memory, public).memory
            past = {name: v[:, t] for name, v in sums.items()}
            out.append(self.beliefs.medians(self.updated(past, memory)))
        return np.stack(out, axis=1)


class ClearMethod(ReportMethod):
    """A row that reports exact windows of some experts: no noise, no claim, nothing to spend. A child writes `render`,
    from `exact`.
    """

    lane = "none"
    fits: ClassVar[bool] = False

    def __init__(self, experts: Sequence[Expert] = EXPERTS):
        super().__init__()
        self.branches = tuple(Branch(e.name, dim=e.dim, norm="box", clip=EXACT, noise=None) for e in experts)
        self.terms = FullClaim(unit="none")

    def load(self, state):
        if self.fits:
            super().load(state)

    def spends(self, view: View) -> np.ndarray:
        return np.zeros((len(view.asked), len(EXPERTS)), dtype=np.int64)

    def exact(self, sums: Mapping[str, np.ndarray]) -> np.ndarray:
        """Window sums of one stream -> means (T, 12); NaN for an expert that is not passed on."""
        slots = len(next(iter(sums.values())))
        return np.concatenate([sums[e.name] / (WINDOW_CHUNKS * CHUNK_STEPS) if e.name in sums
                               else np.full((slots, e.dim), np.nan) for e in EXPERTS], axis=1)


def within(wanted: np.ndarray, view: View) -> np.ndarray:
    """The spends (B, 4) that the budget still allows; of the others nothing. Raises PluginError for anything else than
    fortieths.
    """
    whole, shape = np.asarray(wanted), (len(view.asked), len(EXPERTS))
    if whole.shape != shape or whole.dtype.kind not in "iu" or (whole < 0).any():
        least = f", least {whole.min()}" if whole.size and whole.dtype.kind in "iuf" else ""
        raise PluginError(f"`spends` gave {whole.dtype} {whole.shape}{least}.",
                          f"It gives fortieths of epsilon, whole numbers that are not negative, of shape {shape}: a "
                          f"row a stream, for {', '.join(e.name for e in EXPERTS)}.", "Mend `spends`.")
    whole = whole.astype(np.int64)
    return np.where(whole.sum(axis=1, keepdims=True) <= view.left[:, None], whole, 0)


def remembered(view: View, wanted: np.ndarray) -> dict[str, np.ndarray]:
    """What comes back with the next window: the view's state, and the spends (B, 4) that were asked for."""
    kept = {"last": view.last, "age": view.age, "left": view.left, "wanted": wanted}
    if view.belief is not None:
        kept |= {"counts": view.belief.counts, "states": view.belief.states}
    return kept


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


def text(report: np.ndarray, age_s: np.ndarray, ever: np.ndarray) -> str:
    """One report (12,) in words, from released values alone; age_s (4,): how old each part is; ever bool (4,): has its
    expert released anything yet? What is shown before that is public knowledge and not of this stream.

    >>> text(np.array([3.2, 1, 0, 0, 0, 0, 0, 1, .9, .1, 0, 0.]), np.zeros(4), np.ones(4, bool))
    'About 3 vehicles moving and 1 standing. About 0 people walking and 0 waiting. Sign: none. Weather: clear.'
    """
    parts = []
    for number, expert in enumerate(EXPERTS):
        values = report[columns(expert.name)]
        old = "" if not age_s[number] else f" ({age_s[number]:g} s old)" if ever[number] else " (nothing released yet)"
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
