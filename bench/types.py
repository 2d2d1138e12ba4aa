"""What passes between the parts: videos, claims, contracts of plug-ins. No torch here.

Video is `uint8 (T, H, W, 3)` RGB at every border; `as_float()` gives `float32 (T, 3, H, W)` in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

LANES = ("enforced", "declared", "none")
LABELS = ("expression", "identity", "attributes", "same_video")  # what `needs` may name
CLIP_FRAMES = 16  # T of PROTOCOL 2


@dataclass(frozen=True)
class Video:
    """Frames and their rate, nothing else: no name, no label, no sound.

    frames: uint8 (T, H, W, 3), RGB.  fps: frames per second.
    """

    frames: np.ndarray
    fps: float = 25.0

    def __post_init__(self):
        shape, dtype = np.shape(self.frames), getattr(self.frames, "dtype", None)
        if len(shape) != 4 or shape[3] != 3 or dtype != np.uint8:
            raise ValueError(f"a video is uint8 (T, H, W, 3), got {dtype} {shape}")

    def __len__(self) -> int:
        return self.frames.shape[0]

    def as_float(self) -> np.ndarray:
        """float32 (T, 3, H, W) in [0, 1]."""
        return np.moveaxis(self.frames, 3, 1).astype(np.float32) / 255.0  # (T, 3, H, W)


@dataclass(frozen=True)
class Claim:
    """What a method says it protects. Two claims compare only when all fields but epsilon agree.

    unit: clip | source_video | frame | event | pixels | image_metric | none.  horizon: what is composed.
    epsilon at `delta`; a method without a claim has epsilon = infinity, never 0.
    """

    unit: str = "none"
    adjacency: str = "none"
    horizon: str = "none"
    delta: float = 0.0
    epsilon: float = math.inf


NO_CLAIM = Claim()


@dataclass(frozen=True)
class Context:
    """What the harness hands a plug-in for one stage: randomness by name, a profile, a place to report progress.

    `rng(*names)` gives an independent numpy generator; `torch_seed(*names)` an integer for torch.
    `budget` holds the suite's sizes for this plug-in (epochs and the like).
    `simulate(raw, public) -> (released, scales)`: the release loop with gradients, in `fit` of an enforced method.
    """

    rng: Callable[..., np.random.Generator]
    torch_seed: Callable[..., int]
    profile: str = "tiny"
    budget: Mapping[str, Any] = field(default_factory=dict)
    report: Callable[[str], None] = print
    simulate: Callable[..., Any] | None = None


class Method:
    """Base of every release method. `name` is set from the file name by the registry.

    needs: labels that `fit` may read, a subset of LABELS; reading another one raises.
    variants: named settings; `veilbench run demo --method blur@8` builds `Blur(**variants["8"])`.
    fits: False when there is nothing to fit; then no development data is opened.
    """

    name: ClassVar[str] = ""
    lane: ClassVar[str] = "none"
    needs: ClassVar[frozenset[str]] = frozenset()
    assets: ClassVar[tuple[str, ...]] = ()
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    fits: ClassVar[bool] = False
    control: ClassVar[Literal["positive", "negative"] | None] = None
    claim: Claim = NO_CLAIM

    def fit(self, data: Any, assets: Mapping[str, Any], ctx: Context) -> None:
        """Learn from development people. `data` is a DevelopmentData; labels only as declared in `needs`."""

    def state(self) -> Mapping[str, np.ndarray]:
        """The fitted method as arrays, nothing else; written as safetensors."""
        return {}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Take back what `state` gave."""


class Anonymizer(Method):
    """Lane "none": no formal claim, epsilon is infinite. One method to write: `release`."""

    def release(self, video: Video, rng: np.random.Generator) -> Video:
        """The video that may be published: same number of frames, same size, same fps.

        Sees frames and fps, nothing else. Must not write to `video.frames`; all randomness from `rng`.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class ThreatModel:
    """What an attacker knows and reads. It is printed beside every number of the attack."""

    knows: str  # one sentence
    reads: Literal["frame", "clip", "video", "transcript"]
    trained_on: Literal["released enrolment", "original enrolment", "development pairs", "nothing"]
    decoding: Literal["assembled", "isolated"] = "assembled"


@dataclass(frozen=True)
class Column:
    """One published number of an attack or metric.

    better: said from the release's side: "higher", "lower" or "none" (descriptive, never ranked).
    statistic: "mean" = mean of person means with a t interval; "uar" = unweighted average recall with a
    stretched percentile cluster bootstrap over people (PROTOCOL 8).
    role: "privacy" or "utility" columns rank; "descriptive" ones never do.
    """

    id: str
    unit: str
    better: Literal["higher", "lower", "none"]
    low: float
    high: float
    title: str
    statistic: Literal["mean", "uar"] = "mean"
    role: Literal["privacy", "utility", "descriptive"] = "descriptive"
    source: str = ""


@dataclass(frozen=True)
class Sample:
    """A video together with what a threat model grants about it. `label` and `person` are class indices or None."""

    video: Video
    person: int | None = None
    label: int | None = None


class Attack:
    """Base of every attack. `columns` are the numbers it publishes, `threat` what it knows."""

    name: ClassVar[str] = ""
    threat: ClassVar[ThreatModel]
    columns: ClassVar[tuple[Column, ...]] = ()
    assets: ClassVar[tuple[str, ...]] = ()
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}


class Identify(Attack):
    """Who is it? Fitted on enrolment videos with known people, then scores probe videos."""

    def fit(self, enrolment: Sequence[Sample], people: int, assets: Mapping[str, Any], ctx: Context) -> None:
        """`enrolment` has `person` in 0 .. people - 1. Raises Diverged when training fails."""
        raise NotImplementedError

    def score(self, video: Video) -> np.ndarray:
        """(N, P) float: one row per trial (frame, clip or whole video), higher = more likely that person."""
        raise NotImplementedError

    def state(self) -> Mapping[str, np.ndarray]:
        """The fitted attacker as arrays."""
        raise NotImplementedError

    def load(self, state: Mapping[str, np.ndarray], people: int, ctx: Context) -> None:
        """Take back what `state` gave, in another process."""
        raise NotImplementedError


@dataclass(frozen=True)
class Noise:
    """How a branch of a transcript was noised: the law's name (None = in clear) and its scale (T,) of every step.

    gaussian: standard deviation.  discrete_laplace: b.  randomized_response: epsilon.
    """

    law: str | None
    scale: np.ndarray


class Compare(Attack):
    """Which of some known inputs gave this transcript? Reads noisy values, no picture; trains nothing."""

    def score(self, released: Mapping[str, np.ndarray], candidates: Mapping[str, np.ndarray],
              noise: Mapping[str, Noise]) -> np.ndarray:
        """(P,) float, higher = more likely. released: {branch: (T, dim)}; candidates: {branch: (P, T, dim)}."""
        raise NotImplementedError


class Evaluator:
    """A utility network retrained on each method's development releases (metric `name@evaluator`)."""

    name: ClassVar[str] = ""
    columns: ClassVar[tuple[Column, ...]] = ()
    assets: ClassVar[tuple[str, ...]] = ()
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    reads: ClassVar[str] = "assembled"

    def fit(self, train: Sequence[Sample], calibration: Sequence[Sample], classes: int,
            assets: Mapping[str, Any], ctx: Context) -> None:
        """Train on `train`, choose on `calibration`. Raises Diverged when training fails."""
        raise NotImplementedError

    def predict(self, video: Video) -> np.ndarray:
        """(classes,) float, higher = more likely: one decision per source video."""
        raise NotImplementedError


@dataclass(frozen=True)
class Metric:
    """A pure function over released frames, or over pairs of original and released frames.

    of = "pair": function(original, released) on float32 (T, 3, H, W) in [0, 1] -> (T,) one value per frame.
    of = "release": function(frames) on uint8 (T, H, W, 3) -> (T,) one value per frame.
    NaN marks a frame on which the metric is undefined; the harness averages the others, frame -> video -> person.
    """

    name: str
    function: Callable[..., np.ndarray]
    of: Literal["pair", "release"]
    column: Column
    doc: str = ""

    @property
    def columns(self) -> tuple[Column, ...]:
        return (self.column,)


# ---- datasets ------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Source:
    """One video of a dataset, before it is prepared. `id` is unique and stable; splits sort by its hash."""

    id: str
    person: str
    label: str
    attributes: Mapping[str, int] = field(default_factory=dict)
    path: Any = None  # pathlib.Path of the file, None when the video is made


@dataclass(frozen=True)
class Prepared:
    """A source video on the canvas: uint8 (T, S, S, 3), constant fps, crop box computed inside each clip."""

    frames: np.ndarray
    fps: float
    native: Mapping[str, Any] = field(default_factory=dict)  # fps, width, height, rotation, frames
    centre_boxes: int = 0  # clips in which no face was found and the centre box was used
    landmarks: np.ndarray | None = None  # float32 (T, K, 2) px, where they are known: made public people


class Dataset:
    """Base of a dataset adapter: lists sources cheaply, loads one at a time.

    publishable: may the site show frames of it?  public: dataset whose people train the shared assets.
    """

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    licence: ClassVar[str] = ""
    publishable: ClassVar[bool] = False
    needs_root: ClassVar[bool] = False
    public: ClassVar[str] = "synthfaces_public"

    def sources(self, root: Any, seed: int) -> list[Source]:
        """All usable videos, in a stable order. Raises DataError that lists every problem of `root` at once."""
        raise NotImplementedError

    def load(self, source: Source, canvas_px: int) -> Prepared:
        """Decode (or make) one video and put its face on the canvas."""
        raise NotImplementedError
