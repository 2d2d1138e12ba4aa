"""What an attack, an evaluator and a metric are: the numbers they publish and the functions they fill in. No torch.

    Identify   fit on known people, score a released frame, clip, video or set of draws     plr, cplr, vplr, redraw
    Match      embed a clip; the harness keeps templates, thresholds and pairs               open_set
    Recover    learn released -> original on pairs; the result is a derived release          recover_unet, recover_rvrt
    Compare    which known input gave this transcript?                                       latent_llr
    Evaluator  a utility network retrained on each method's releases                         fer
    Metric     a pure function of frames;  VideoMetric: with a network;  SetMetric: of two sets of clips
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from bench.types import Context, Sample, Video


@dataclass(frozen=True)
class ThreatModel:
    """What an attacker knows and reads. It is printed beside every number of the attack."""

    knows: str  # one sentence
    reads: Literal["frame", "clip", "video", "draws", "transcript", "vault"]
    trained_on: Literal["released enrolment", "original enrolment", "released development", "development pairs",
                        "nothing"]
    decoding: Literal["assembled", "isolated"] = "assembled"


@dataclass(frozen=True)
class Column:
    """One published number of an attack or metric.

    better: said from the release's side: "higher", "lower" or "none" (descriptive, never ranked).
    statistic: "mean" = mean of person means with a t interval; "uar" = unweighted average recall and "eer" = equal
    error rate of scored pairs, both with a stretched percentile cluster bootstrap over people; "jackknife" = a
    number of a whole set of people with a delete-one-person jackknife (PROTOCOL 8).
    role: "privacy" or "utility" columns rank; "descriptive" ones never do. "diagnostic" ones stand on the method's page
    alone, outside every board.
    params: what tells two columns of one id apart, {"far": 0.1}; part of the comparison key.
    """

    id: str
    unit: str
    better: Literal["higher", "lower", "none"]
    low: float
    high: float
    title: str
    statistic: Literal["mean", "uar", "eer", "jackknife"] = "mean"
    role: Literal["privacy", "utility", "descriptive", "diagnostic"] = "descriptive"
    source: str = ""
    params: Mapping[str, Any] | None = None

    @property
    def key(self) -> str:
        """What a trial row of this column is filed under: `top1`, `tar[far=0.1]`."""
        return column_key(self.id, self.params)


def column_key(column: str, params: Mapping[str, Any] | None) -> str:
    """`tar[far=0.1]`: the id of a column and what tells it from others of that id."""
    return f"{column}[{','.join(f'{k}={v}' for k, v in sorted(params.items()))}]" if params else column


class Attack:
    """Base of every attack. `columns` are the numbers it publishes, `threat` what it knows."""

    name: ClassVar[str] = ""
    threat: ClassVar[ThreatModel]
    columns: ClassVar[tuple[Column, ...]] = ()
    assets: ClassVar[tuple[str, ...]] = ()
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}


class Identify(Attack):
    """Who is it? Fitted on enrolment releases with known people, then scores probe releases.

    With `threat.decoding` = "isolated" every sample and every probe is one clip (at most 16 frames, padding cut off).
    trains_like: name of the attack whose fitted state this one reads; then `fit` is never called.
    """

    trains_like: ClassVar[str] = ""

    def fit(self, enrolment: Sequence[Sample], people: int, assets: Mapping[str, Any], ctx: Context) -> None:
        """`enrolment` has `person` in 0 .. people - 1; `sample.draw(epoch)` gives fresh noise. Raises Diverged."""
        raise NotImplementedError

    def score(self, video: Video) -> np.ndarray:
        """(N, P) float: one row per trial (frame, clip or whole video), higher = more likely that person."""
        raise NotImplementedError

    def score_draws(self, videos: Sequence[Video]) -> np.ndarray:
        """The same for an attack that reads "draws": all releases of one input, which have the same shape."""
        raise NotImplementedError

    def state(self) -> Mapping[str, np.ndarray]:
        """The fitted attacker as arrays."""
        raise NotImplementedError

    def load(self, state: Mapping[str, np.ndarray], people: int, ctx: Context) -> None:
        """Take back what `state` gave, in another process."""
        raise NotImplementedError


class Match(Attack):
    """Same person or not? Learns an embedding on released development clips; the harness makes templates from
    original enrolment clips, fixes thresholds on development people and counts accepted pairs.
    """

    def fit(self, development: Sequence[Sample], people: int, assets: Mapping[str, Any], ctx: Context) -> None:
        """`development` holds clips with `person` in 0 .. people - 1. Raises Diverged when training fails."""
        raise NotImplementedError

    def embed(self, video: Video) -> np.ndarray:
        """(d,) unit vector of one clip (padding cut off); scores are cosines. NaN where no face can be embedded."""
        raise NotImplementedError

    def state(self) -> Mapping[str, np.ndarray]:
        raise NotImplementedError

    def load(self, state: Mapping[str, np.ndarray], people: int, ctx: Context) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class Pair:
    """An original clip and its releases with independent noise, all of one shape, padding cut off."""

    original: Video
    released: tuple[Video, ...]

    def draw(self, epoch: int) -> Video:
        """Fresh noise each epoch: epoch e reads release e mod R."""
        return self.released[epoch % len(self.released)]


class Recover(Attack):
    """Undo the anonymization. Fitted on pairs of isolated development clips; maps each released clip to a guess at
    its original. The result is a derived release (`via`), which other attacks and metrics then read.
    """

    def fit(self, pairs: Sequence[Pair], assets: Mapping[str, Any], ctx: Context) -> None:
        """Raises Diverged when training fails."""
        raise NotImplementedError

    def recover(self, video: Video) -> Video:
        """One released clip, uint8 (T, S, S, 3), T <= 16 -> the same number of frames, size and fps."""
        raise NotImplementedError

    def state(self) -> Mapping[str, np.ndarray]:
        raise NotImplementedError

    def load(self, state: Mapping[str, np.ndarray], ctx: Context) -> None:
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

    def state(self) -> Mapping[str, np.ndarray]:
        """The fitted evaluator as arrays."""
        raise NotImplementedError

    def load(self, state: Mapping[str, np.ndarray], classes: int, ctx: Context) -> None:
        """Take back what `state` gave, in another process."""
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


class VideoMetric:
    """A metric of one video beside its original that needs a network or a flow estimator (`name@evaluator`)."""

    name: ClassVar[str] = ""
    columns: ClassVar[tuple[Column, ...]] = ()
    assets: ClassVar[tuple[str, ...]] = ()
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def load(self, assets: Mapping[str, Any], ctx: Context) -> None:
        """Build the evaluator from `assets`, {name: {tensor name: torch tensor}}."""

    def values(self, original: Video, released: Video) -> Mapping[str, np.ndarray]:
        """{column id: (N,) float}: values of one video, NaN where undefined; the harness averages the others.

        Both are uint8 (T, S, S, 3) of one shape, whole videos or single clips, padding cut off.
        """
        raise NotImplementedError


class SetMetric:
    """A distance between two sets of clips in the feature space of a network (`name@evaluator`), of all people.

    columns: original against released. A derived release is compared with the originals in the same columns, and
    in `recovered_columns` with the release that it was derived from.
    embeds_like: another such metric whose features it measures; they are computed once for both. It has the same
    variants and constructor.
    """

    name: ClassVar[str] = ""
    embeds_like: ClassVar[str | None] = None
    columns: ClassVar[tuple[Column, ...]] = ()
    recovered_columns: ClassVar[tuple[Column, ...]] = ()
    assets: ClassVar[tuple[str, ...]] = ()
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def load(self, assets: Mapping[str, Any], ctx: Context) -> None:
        """Build the network from `assets`, {name: {tensor name: torch tensor}}."""

    def embed(self, clip: Video) -> np.ndarray:
        """(d,) float feature of one clip of at most 16 frames."""
        raise NotImplementedError

    def distance(self, first: np.ndarray, second: np.ndarray, originals: np.ndarray) -> float:
        """Distance of two feature sets (N, d), (M, d). `originals` (K, d) fix a bandwidth, the same for all methods.

        A function of the features alone: `load` was not called in the process that asks for it.
        """
        raise NotImplementedError
