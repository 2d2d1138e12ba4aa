"""What an enforced method declares and writes: branches, plan, and the five functions that the harness calls.

The harness clips every atom, adds the noise and keeps the transcript. A method encodes one atom, proposes scales from
values that are already released, and renders released values: three places that never see one another's memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np

from bench.errors import PluginError, nearest
from bench.privacy.checks import LIMITS, count, exact, limited
from bench.privacy.claims import NORMS, BranchClaim, FullClaim
from bench.types import CLIP_FRAMES, Method

NOISES = ("gaussian", "discrete_laplace", "randomized_response")
CLIP_LENGTHS = (8, CLIP_FRAMES, 32)  # frames of a method's own clips
READERS = ("pixels", "fields")  # trusted words that `encode` may be instead of a function
CHUNK_STEPS = 4  # whole steps of a value of 1 in a chunk's row: it is a mean over the chunk's four frames


@dataclass(frozen=True)
class Branch:
    """One data-dependent branch, as data: what the harness clips it to and which noise it adds.

    dim: width of a row; an atom of `rows` steps gives (rows, dim).  norm, clip: "l2" and "l1" balls around zero,
    "box" = [0, clip] per coordinate, "label" = one of `clip` classes.  noise: None = passed in clear (prices to
    infinity).  floor: smallest standard deviation per coordinate (gaussian).  epsilon: of one row, for pure noise
    with a fixed price; None where `plan` spends.  rows: of one clip, the same for all branches; None = one per frame,
    1 = the whole budget in one.  Discrete Laplace needs whole numbers: its rows are truncated.
    """

    name: str
    dim: int
    norm: Literal["l2", "l1", "box", "label"] = "l2"
    clip: float = 1.0
    noise: str | None = "gaussian"
    floor: float | None = None
    epsilon: Fraction | None = None
    rows: int | None = None

    def __post_init__(self):
        at = f"branch {self.name!r}: "
        count(at + "dim", self.dim, 1, 10**6)
        if self.rows is not None:
            count(at + "rows", self.rows, 1, max(CLIP_LENGTHS))
        limited("clip_norm", self.clip, at + "clip")
        if self.norm not in NORMS or self.noise not in (None, *NOISES):
            word, known = (self.norm, NORMS) if self.norm not in NORMS else (str(self.noise), NOISES)
            raise PluginError(f"{at}{word!r} is not known.", "The harness draws the noise.", nearest(word, known))
        if self.noise == "gaussian":
            if self.norm not in ("l2", "box"):
                raise PluginError(f"{at}Gaussian noise goes with norm = \"l2\" or \"box\".", "", "")
            if self.floor is None:
                raise PluginError(f"{at}Gaussian noise needs a floor.", "The smallest standard deviation that it may "
                                  "have is what the claim is priced by.", "Give floor = a standard deviation.")
            limited("noise_std", self.floor, at + "floor")
        elif self.noise and (self.norm == "l2" or (self.norm == "label") != (self.noise == "randomized_response")):
            raise PluginError(f"{at}{self.noise} noise does not go with norm = {self.norm!r}.",
                              "Discrete Laplace needs whole numbers in an l1 ball or a box; randomised response a "
                              "label.", "Choose another norm.")
        if self.noise == "discrete_laplace" and self.clip != int(self.clip):
            raise PluginError(f"{at}clip = {self.clip} is not a whole number.", "Its values are whole numbers.", "")
        if self.noise == "randomized_response" and (self.epsilon is None or self.dim != 1 or self.clip < 2):
            raise PluginError(f"{at}randomised response needs epsilon, dim = 1 and clip = the number of classes.",
                              "", "")
        if self.epsilon is not None:
            object.__setattr__(self, "epsilon", exact(at + "epsilon", self.epsilon, *LIMITS["epsilon"]))

    @property
    def sensitivity(self) -> Fraction:
        """Largest l1 change of one clipped row: 2 C for a ball, C dim for a box (whole numbers)."""
        return Fraction(int(self.clip)) * (self.dim if self.norm == "box" else 2)

    @property
    def scale(self) -> Fraction:
        """Discrete Laplace scale of a branch with a fixed price: sensitivity / epsilon."""
        if self.epsilon is None:
            raise PluginError(f"branch {self.name!r} has no epsilon of its own.", "Its spends come from `plan`.", "")
        return self.sensitivity / self.epsilon

    def rows_of(self, frames: int) -> int:
        """Rows of one clip of that many frames."""
        return frames if self.rows is None else self.rows

    def as_claim(self, rows: int) -> BranchClaim:
        """The branch as the accountant reads it."""
        more: dict[str, Any] = {"rows": rows, "dim": self.dim}
        if self.noise == "gaussian":
            return BranchClaim(self.name, "gaussian", self.clip, noise_std=self.floor, norm=self.norm, **more)
        if self.noise == "discrete_laplace":
            return BranchClaim(self.name, self.noise, self.clip, scale=self.scale, norm=self.norm, **more)
        return BranchClaim(self.name, self.noise, epsilon=self.epsilon, norm=self.norm, rows=rows)

    def as_dict(self) -> dict[str, Any]:
        """JSON; `from_dict` takes it back."""
        return {**vars(self), "epsilon": None if self.epsilon is None else str(self.epsilon)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Branch:
        return cls(**{**data, "epsilon": None if data["epsilon"] is None else Fraction(data["epsilon"])})


@dataclass
class Plan:
    """What `plan` proposes for one step of B streams.

    scale: standard deviations (B,) of each Gaussian branch; below the floor they are raised to it and counted.
    spend: for discrete Laplace without a fixed price, B budgets per branch ("0.4" or "2/5", never a float sum).
    memory: arrays that come back with the next step.
    """

    scale: Mapping[str, np.ndarray] = field(default_factory=dict)
    spend: Mapping[str, Sequence[str]] = field(default_factory=dict)
    memory: Mapping[str, np.ndarray] = field(default_factory=dict)


class PrivateMethod(Method):
    """Lane "enforced": the harness draws the noise, so that the claim holds whatever the method does.

    terms: unit, frames, delta and the like, a FullClaim; the harness fills in `branches`.  atom: the smallest thing
    that adjacency may change: "clip" (terms.frames of them, 16 by default), "chunk" or "pixels".
    """

    lane: ClassVar[str] = "enforced"
    atom: ClassVar[str] = "clip"
    probed: ClassVar[str] = ""
    inspects: tuple[str, ...] = ()
    branches: tuple[Branch, ...] = ()
    terms: FullClaim

    def encode(self, atom: np.ndarray) -> Mapping[str, np.ndarray]:
        """uint8 (16, H, W, 3) -> {branch: (rows, dim)}. Sees one atom and the fitted state, nothing else.

        May be a word instead of a function, then no method code runs: "pixels" (the harness sums cells of the frames),
        or, for chunks, "fields" (a committed table; branches carry the names of its experts).
        """
        raise NotImplementedError

    def plan(self, t: int, past: Mapping[str, np.ndarray], memory: Mapping[str, np.ndarray],
             public: Mapping[str, Any]) -> Plan:
        """Scales of step t for B streams at once. `past`: released rows (B, dim) of step t - 1, empty at t = 0.

        Reads released values and public facts only. The default keeps every scale at its floor. Under `ctx.simulate`
        the same function gets torch tensors and may return them, so that gradients reach a learned scale.
        """
        return Plan()

    def render(self, transcripts: Sequence[Mapping[str, np.ndarray]], public: Mapping[str, Any],
               decoding: str) -> np.ndarray:
        """Released values {branch: (rows, dim)} of the clips of one source (one clip when isolated) -> uint8 video.

        public: fps, canvas_px, frames (unpadded, of all clips). Returns (16 * clips, S, S, 3); padding is cut off.
        Of chunks: noisy window sums {branch: (T, dim)} of B streams, NaN where nothing was released -> reports
        float64 (B, T, components), NaN = missing; `bench.reports.ReportMethod` has it.
        """
        raise NotImplementedError

    def inspect(self, transcripts: Sequence[Mapping[str, np.ndarray]],
                public: Mapping[str, Any]) -> Mapping[str, Sequence[np.ndarray]]:
        """What `render` computes on its way, for diagnostics: {name in `inspects`: one (16, d) array a clip}.

        A name is a stage ("quantized", "context"), or "assignment:BRANCH" with probabilities (16, entries) over the
        rows of the state's array "codebook:BRANCH". Reads released values and public facts only, as `render` does.
        """
        raise NotImplementedError


def full_claim(method: PrivateMethod) -> FullClaim:
    """The claim that the branches back. Raises PluginError where terms and branches do not fit."""
    terms = getattr(method, "terms", None)
    if not isinstance(terms, FullClaim):
        raise PluginError("An enforced method without `terms` claims nothing.",
                          "A claim names unit, adjacency and delta.",
                          "Set terms = FullClaim(unit=\"clip\", ...).")
    if terms.unit in ("pixels", "event", "label"):
        _check_terms(method, terms)
        return terms
    if terms.frames not in CLIP_LENGTHS or terms.clips != 1:
        raise PluginError(f"The terms speak of {terms.clips} clip(s) of {terms.frames} frames.",
                          f"The harness releases clips of {', '.join(map(str, CLIP_LENGTHS))} frames, padding counted.",
                          f"Use frames={CLIP_FRAMES}, clips=1.")
    names = [b.name for b in method.branches]
    if len(set(names)) != len(names):
        raise PluginError("Two branches have the same name.", "", "Rename one.")
    rows = [b.rows_of(terms.frames) for b in method.branches]
    if len(set(rows)) > 1:
        raise PluginError(f"The branches have {sorted(set(rows))} rows.",
                          "They are released step by step, all at once.", "Give every branch the same rows.")
    return replace(terms, branches=tuple(b.as_claim(n) for b, n in zip(method.branches, rows, strict=True)))


def _check_terms(method: PrivateMethod, terms: FullClaim) -> None:
    """A claim that is priced from its own terms must be what the harness will execute, or it is refused."""
    if terms.unit == "pixels":
        if method.encode != "pixels":
            raise PluginError("A pixels claim goes with encode = \"pixels\".",
                              "Only the harness's own reader draws the noise that it is priced by.",
                              "Set encode = \"pixels\", or claim a clip.")
        return
    if terms.unit == "event":
        _check_event(method, terms)
        return
    if terms.unit == "label" and terms.label is not None and len(method.branches) == 1:
        branch, said = method.branches[0], terms.label
        rows = branch.rows_of(terms.frames)
        if branch.noise == "randomized_response" and \
                (int(branch.clip), branch.epsilon, rows) == (said.classes, said.epsilon, said.labels):
            return
        raise PluginError(f"The label claim speaks of {said.labels} labels of {said.classes} classes; the branch "
                          f"{branch.name!r} releases {rows} rows a clip.", "Every row spends.",
                          f"Use LabelClaim(labels={rows}) with the branch's classes and epsilon.")
    raise PluginError(f"Claims of unit {terms.unit!r} are not executed for methods that encode clips.",
                      "Nothing would hold the method to its terms.", "Claim a clip.")


def _check_event(method: PrivateMethod, terms: FullClaim) -> None:
    """Branches of an event claim spend from the plan and lie inside the claim's caps, so that 2 K C holds."""
    event = terms.event
    if event is None or method.atom != "chunk":
        raise PluginError("An event claim goes with atom = \"chunk\" and event terms.",
                          "An event may change some chunks of a stream, and each is clipped by itself.",
                          "Set atom = \"chunk\" and terms = FullClaim(unit=\"event\", event=EventClaim(...)).")
    caps = event.cap if len(event.cap) > 1 else event.cap * len(method.branches)
    if len(caps) != len(method.branches) or not method.branches:
        raise PluginError(f"{len(caps)} caps for {len(method.branches)} branches.", "Every branch has its cap.",
                          "Give one cap a branch, in their order.")
    if (terms.adjacency == "per_window") != (event.accountant == "sum"):
        raise PluginError(f"The accountant {event.accountant!r} does not go with the adjacency {terms.adjacency!r}.",
                          "Changes in every window add up; changes in all are paid by the most used chunk.",
                          'Use accountant = "sum" with "per_window", "max" with "total".')
    for branch, cap in zip(method.branches, caps, strict=True):
        if branch.noise != "discrete_laplace" or branch.epsilon is not None:
            raise PluginError(f"branch {branch.name!r}: an event claim needs discrete Laplace noise whose spends come "
                              "from `plan`.", "", "Leave epsilon out.")
        if branch.sensitivity > 2 * cap * CHUNK_STEPS:
            raise PluginError(f"branch {branch.name!r} moves by up to {branch.sensitivity} steps a chunk, its cap "
                              f"allows {2 * cap * CHUNK_STEPS}.", f"A value of 1 is {CHUNK_STEPS} steps.",
                              "Lower clip, or claim a larger cap.")
