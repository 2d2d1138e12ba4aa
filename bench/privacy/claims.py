"""The full claim: what is protected, against which change, over which horizon, by which noise.

A claim is data. `claim_file.load_claim` reads it from TOML, `accounting.price` says what it costs. Every number
is checked here, so that a wrong one names its field instead of giving a wrong price.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from bench.errors import ConfigError, nearest
from bench.privacy.checks import LIMITS, count, exact, limited, number

UNITS = ("clip", "source_video", "frame", "event", "pixels", "label", "image_metric", "none")
NOISES = ("gaussian", "discrete_laplace", "exponential", "randomized_response")
NORMS = ("l2", "l1", "box", "label")
ADJACENCIES = {  # unit: the adjacencies that it knows, the default first
    "clip": ("replace",), "source_video": ("replace",), "frame": ("replace",), "label": ("replace",),
    "image_metric": ("metric",), "none": ("none",),
    "event": ("total", "per_window"), "pixels": ("per_frame", "total"),
}
CHUNK_SECONDS = 2
BOARD_DELTA = 1e-5  # where no delta is written


@dataclass(frozen=True)
class BranchClaim:
    """One data-dependent branch of a release.

    noise: one of NOISES; None = passed in clear; any other word is an unknown event. Both price to infinity.
    norm, clip_norm: rows are clipped to an l2 or l1 ball of that radius, or a box [0, clip_norm] per coordinate.
    noise_std: per-coordinate standard deviation that is never undercut (Gaussian); larger scales earn no credit.
    scale: of the discrete Laplace noise, in the units of the clipped values.  epsilon: of one draw (pure noise);
    for `exponential` noise per unit of distance.  rows: noisy rows in a clip, by default one per frame, and one for
    a branch given by its epsilon.  dim: width of a row, needed where the norm of the clip is not that of the noise.
    """

    name: str
    noise: str | None = None
    clip_norm: float | None = None
    noise_std: float | None = None
    scale: Fraction | None = None
    epsilon: Fraction | None = None
    norm: str = "l2"
    rows: int | None = None
    dim: int | None = None
    classes: int | None = None

    def __post_init__(self):
        at = f"branch {self.name!r}: "
        if self.norm not in NORMS:
            raise ConfigError(f"{at}norm = {self.norm!r} is not known.", "", nearest(self.norm, NORMS))
        for name in ("clip_norm", "noise_std"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, limited(name, getattr(self, name), at + name))
        for name in ("scale", "epsilon"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, exact(at + name, getattr(self, name), *LIMITS[name]))
        for name, low, high in (("rows", 1, 10**6), ("dim", 1, 10**7), ("classes", 2, 10**6)):
            if getattr(self, name) is not None:
                count(at + name, getattr(self, name), low, high)
        for name in _needs(self):
            if getattr(self, name) is None:
                raise ConfigError(f"{at}{name} is missing.", f"{self.noise} noise has no price without it.",
                                  f"Give {name} in the branch.")

    def diameter(self, order: int) -> float:
        """The largest distance of two clipped rows, in the l1 (order 1) or l2 (order 2) norm."""
        clip, dim = self.clip_norm or math.inf, self.dim or 1
        if self.norm == "box":
            return clip * (dim if order == 1 else math.sqrt(dim))
        return 2 * clip * (math.sqrt(dim) if self.norm == "l2" and order == 1 else 1.0)


def _needs(branch: BranchClaim) -> list[str]:
    if branch.noise == "gaussian":
        return ["clip_norm", "noise_std"] + (["dim"] if branch.norm == "box" else [])
    if branch.noise == "discrete_laplace" and branch.epsilon is None:
        return ["clip_norm", "scale"] + (["dim"] if branch.norm in ("box", "l2") else [])
    if branch.noise == "exponential":
        return ["clip_norm", "epsilon"] + (["dim"] if branch.norm == "box" else [])
    return ["epsilon"] if branch.noise == "randomized_response" else []


@dataclass(frozen=True)
class EventClaim:
    """Window sums of clipped chunks, discrete Laplace noise of scale 2 K C / e on the sum, `cadence` chunks apart.

    changed_chunks: K.  cap: C, L1 per chunk, one for each expert.  allocation: share of a spend for each expert.
    spends: the epsilon of each window, or the most that it may be.  budget: of the filter in force, if any;
    accountant: which filter ("sum" = total, "max" = chunk load).
    """

    window_chunks: int
    changed_chunks: int
    cap: tuple[Fraction, ...]
    spends: tuple[Fraction, ...]
    allocation: tuple[Fraction, ...] = (Fraction(1),)
    cadence_chunks: int | None = None
    budget: Fraction | None = None
    accountant: str = "sum"

    def __post_init__(self):
        count("window_chunks", self.window_chunks, 1, 10**6)
        count("changed_chunks", self.changed_chunks, 1, 10**6)
        if self.cadence_chunks is not None:
            count("cadence_chunks", self.cadence_chunks, 1, 10**6)
        limits = {"cap": (1e-9, 1e9), "allocation": (0.0, 1.0), "spends": (0.0, 1e6)}
        for name, (low, high) in limits.items():
            values = tuple(exact(f"{name}[{i}]", v, low, high) for i, v in enumerate(getattr(self, name)))
            object.__setattr__(self, name, values)
        if not 0 < len(self.spends) <= 10**6:
            raise ConfigError("spends is empty." if not self.spends else "spends is too long.",
                              "An event claim is priced from what each window spends.", "Give spends = [0.4, ...].")
        if sum(self.allocation) > 1 or not any(self.allocation):
            raise ConfigError(f"allocation adds up to {float(sum(self.allocation)):g}.",
                              "The experts share one spend: their shares add up to 1 at most, and not to 0.", "")
        if len(self.cap) not in (1, len(self.allocation)):
            raise ConfigError(f"{len(self.cap)} caps for {len(self.allocation)} shares of the allocation.", "",
                              "Give one cap for each expert, or one for all.")
        if self.budget is not None:
            object.__setattr__(self, "budget", exact("budget", self.budget, 1e-9, 1e6))
        if self.accountant not in ("sum", "max"):
            raise ConfigError(f"accountant = {self.accountant!r} is not known.", "", 'Use "sum" or "max".')


@dataclass(frozen=True)
class PixelsClaim:
    """Cell sums of b x b pixels plus discrete Laplace noise, each frame and channel for itself (values 0 .. levels).

    m: pixels that may change in a frame (or in all).  scale: of the noise on the integer sum; or epsilon: of one
    frame and channel, where scale = m levels / epsilon.
    """

    m: int
    b: int
    channels: int = 3
    scale: Fraction | None = None
    epsilon: Fraction | None = None
    levels: int = 255

    def __post_init__(self):
        for name, high in (("m", 10**8), ("b", 10**4), ("channels", 64), ("levels", 2**16 - 1)):
            count(name, getattr(self, name), 1, high)
        if (self.scale is None) == (self.epsilon is None):
            raise ConfigError("A pixels claim names its noise once.", "", "Give either scale or epsilon.")
        for name in ("scale", "epsilon"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, exact(name, getattr(self, name), *LIMITS[name]))

    @property
    def draw_epsilon(self) -> Fraction:
        """Cost of one frame and channel when m of its pixels change: m levels / scale."""
        return self.epsilon if self.epsilon is not None else Fraction(self.m * self.levels) / (self.scale or 1)


@dataclass(frozen=True)
class LabelClaim:
    """One of `classes` labels through randomised response; `labels` of them in a clip, epsilon each."""

    classes: int
    epsilon: Fraction
    labels: int = 1

    def __post_init__(self):
        count("classes", self.classes, 2, 10**6)
        count("labels", self.labels, 1, 10**6)
        object.__setattr__(self, "epsilon", exact("epsilon", self.epsilon, *LIMITS["epsilon"]))


@dataclass(frozen=True)
class FullClaim:
    """Unit, adjacency, horizon, delta and the noise that is to back them.

    frames: T of a clip, padding counted.  clips: K, composed before one conversion; public.  horizon_seconds: the
    same in seconds, where that says more.  reads: the names of all data-dependent branches that reach the release;
    one that is not among `branches` has no noise and prices to infinity.
    """

    unit: str
    adjacency: str = ""
    frames: int = 16
    clips: int = 1
    delta: float = BOARD_DELTA
    branches: tuple[BranchClaim, ...] = ()
    event: EventClaim | None = None
    pixels: PixelsClaim | None = None
    label: LabelClaim | None = None
    reads: tuple[str, ...] = ()
    horizon: str = ""
    horizon_seconds: float | None = None

    def __post_init__(self):
        if self.unit not in UNITS:
            raise ConfigError(f"unit = {self.unit!r} is not a privacy unit.", "", nearest(self.unit, UNITS))
        known = ADJACENCIES[self.unit]
        object.__setattr__(self, "adjacency", self.adjacency or known[0])
        if self.adjacency not in known:
            raise ConfigError(f"adjacency = {self.adjacency!r} does not go with the unit {self.unit!r}.",
                              "Add or remove, duration and the number of clips are public by definition.",
                              nearest(self.adjacency, known))
        limited("delta", self.delta)
        count("frames", self.frames, 1, 100_000)
        count("clips", self.clips, 1, 1_000_000)
        if self.horizon_seconds is not None:
            number("horizon_seconds", self.horizon_seconds, 1e-3, 1e9)
        names = [b.name for b in self.branches]
        if len(set(names)) < len(names):
            raise ConfigError("Two branches have the same name.", "Each branch is priced once.", "Rename one.")
        self._check_part()
        object.__setattr__(self, "horizon", self.horizon or self._horizon())

    def _check_part(self):
        """Events, pixels and labels have their own table; a branch beside it must be one that prices to infinity."""
        for part in _REMEDY:
            if getattr(self, part) is not None and part != self.unit:
                raise ConfigError(f"A claim of unit {self.unit!r} has {part} terms.", "One claim, one unit.",
                                  f"Set unit = {part!r} or drop them.")
        priced = [b.name for b in self.branches if b.noise in NOISES]
        if self.unit in _REMEDY and (priced or getattr(self, self.unit) is None and not self.branches):
            what = f"branch {priced[0]!r} has its own noise" if priced else "nothing is said about its noise"
            raise ConfigError(f"In this claim of unit {self.unit!r} {what}.",
                              "Such a claim is priced from its own terms.", _REMEDY[self.unit])

    def _horizon(self) -> str:
        if self.event is not None:
            return f"{len(self.event.spends)} windows"
        return f"{self.clips} clip{'s' if self.clips > 1 else ''} of {self.frames} frames"


_REMEDY = {
    "event": "Give window_chunks, changed_chunks, cap and spends.",
    "pixels": "Give m, b and scale or epsilon.",
    "label": "Give classes and epsilon.",
}
