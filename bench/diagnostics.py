"""What a diagnostic of an enforced method is: it reads the vault, attacks nobody, never ranks. No torch.

    Diagnostic   clipped values, noise and scales of released clips               noise_scale, scales
    Probe        features at every stage of a release, with labels                stages
    Reread       releases of changed inputs, read by networks trained before      interventions
    Repeat       what one fixed network says of many releases of one video        stability
    Assignments  soft assignments to codebooks over many releases of one frame    quantization
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from bench.measures import Attack, Column, Noise
from bench.types import Context

ASSIGNMENT = "assignment:"  # begins the name of what `inspect` gives for a branch with a codebook
EVERY_STAGE = ("clipped", "noisy")  # what the harness itself holds of every enforced method


@dataclass(frozen=True)
class Anatomy:
    """What an enforced method is made of.

    branches: {name: law of its noise, None = in clear}.  probed: the branch that says the label.  inspects: what its
    `inspect` gives.
    """

    branches: Mapping[str, str | None]
    probed: str
    inspects: tuple[str, ...] = ()

    @property
    def stages(self) -> tuple[str, ...]:
        """Stages with features, in the order of the release."""
        return (*EVERY_STAGE, *(name for name in self.inspects if not name.startswith(ASSIGNMENT)))

    @property
    def assigned(self) -> tuple[str, ...]:
        """Branches with a codebook."""
        return tuple(n.removeprefix(ASSIGNMENT) for n in self.inspects if n.startswith(ASSIGNMENT))


def told_apart(columns: Sequence[Column], param: str, values: Sequence[Any]) -> tuple[Column, ...]:
    """Each column once for every value of a parameter: `probe[stage=clipped]`, `probe[stage=noisy]`."""
    return tuple(replace(c, params={**(c.params or {}), param: value}) for value in values for c in columns)


@dataclass(frozen=True)
class Opened:
    """One branch of one released clip as the vault holds it: T unpadded steps, dim values each.

    clipped, residual: float64 (T, dim), what was clipped and the noise that was added.  noise: law and scales (T,).
    floor: the smallest scale that the claim allows.  norm: l2 (T,) before clipping, NaN where encoding failed.
    clip_norm: what the rows were clipped to (an l2 or l1 ball, or a box).
    """

    clipped: np.ndarray
    residual: np.ndarray
    noise: Noise
    floor: float
    norm: np.ndarray
    clip_norm: float


class Diagnostic(Attack):
    """Reads the vault of an enforced release.

    Columns of statistic "mean" are filled by `measure`, those of statistic "jackknife" by `values` and `pooled`.
    """

    def columns_of(self, method: Anatomy) -> tuple[Column, ...]:
        """Its columns on a method; none where the method has nothing to measure: then the row does not exist."""
        return self.columns

    def measure(self, branches: Mapping[str, Opened]) -> Mapping[str, float]:
        """{column key: value} of one released clip, NaN where undefined."""
        return {}

    def values(self, branches: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
        """{name: (N, ...)}: values of the N frames of one clip, as `pooled` takes them."""
        return {}

    def pooled(self, values: Mapping[str, np.ndarray], people: np.ndarray) -> Mapping[str, float]:
        """{column key: value} over all rows of `values`; people (N,) says whose each row is. Called for everybody, and
        once without each person.
        """
        return {}


@dataclass(frozen=True)
class Labelled:
    """Features (R, N, d) of N videos, one row a draw, and their labels (N,)."""

    features: np.ndarray
    labels: np.ndarray


class Probe(Diagnostic):
    """Trained on features of development people at one stage, read on test people."""

    seeds: ClassVar[tuple[int, ...]] = (42, 43, 44)

    def scores(self, train: Labelled, calibration: Labelled, test: np.ndarray, classes: int,
               ctx: Context) -> np.ndarray:
        """(K, classes) float for test features (K, d), higher = more likely. Raises Diverged."""
        raise NotImplementedError


class Reread(Diagnostic):
    """Networks that were trained on ordinary releases read releases whose clipped inputs were changed.

    readers: attacks and evaluators; each fills the column that has its name.
    """

    readers: ClassVar[tuple[str, ...]] = ()

    def interventions(self, method: Anatomy) -> tuple[str, ...]:
        """What is done to the clipped inputs: `shuffle:BRANCH`, `shuffle:all` (every branch by itself), `zero`."""
        names = tuple(f"shuffle:{name}" for name in method.branches)
        return (*names, *(("shuffle:all",) if len(names) > 1 else ()), "zero")


class Repeat(Diagnostic):
    """One fixed evaluator on `draws` releases of the same test videos. `values` of a video has one row."""

    readers: ClassVar[tuple[str, ...]] = ()
    draws: int = 20
    subset: str | None = None

    def agreement(self, predicted: np.ndarray, truth: int) -> Mapping[str, float]:
        """{column id: value} of one video from its predicted labels (R,)."""
        raise NotImplementedError


class Assignments(Diagnostic):
    """Soft assignments of released values; `values` gets {branch: (R, T, entries)} of one video, rows summing to 1."""

    draws: int = 20
    subset: str | None = None

    def load(self, codebooks: Mapping[str, np.ndarray]) -> None:
        """{branch: (entries, d)}, from the fitted state."""
        raise NotImplementedError
