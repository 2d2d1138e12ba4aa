"""What passes between the parts: videos, claims, contracts of plug-ins. No torch here.

Video is `uint8 (T, H, W, 3)` RGB at every border; `as_float()` gives `float32 (T, 3, H, W)` in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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
    memory_between_clips: does a released clip of a whole video depend on its other clips? If so the harness also asks
    for clips that are released each for itself.
    """

    name: ClassVar[str] = ""
    lane: ClassVar[str] = "none"
    needs: ClassVar[frozenset[str]] = frozenset()
    assets: ClassVar[tuple[str, ...]] = ()
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    fits: ClassVar[bool] = False
    memory_between_clips: ClassVar[bool] = False
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
class Sample:
    """A video together with what a threat model grants about it. `label` and `person` are class indices or None.

    redraws: further releases of the same input with independent noise, where the suite asked for them.
    """

    video: Video
    person: int | None = None
    label: int | None = None
    redraws: tuple[Video, ...] = ()

    def draw(self, epoch: int) -> Video:
        """Fresh noise each epoch: epoch e reads release e mod R."""
        every = (self.video, *self.redraws)
        return every[epoch % len(every)]


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
