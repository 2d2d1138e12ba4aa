"""Which guarantee follows from which: the provable conversions with their rule, the others with the reason why not.

A guarantee is about one unit and comes in one form. `convert(guarantee, target, facts)` looks up TABLE; what the rule
needs to know beyond the guarantee (the number of clips, whether the encoder is frame-wise) stands in `Facts`, and a
rule whose condition is not stated is refused. `table()` lists everything for the page "how the claims differ".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from bench.errors import ConfigError, nearest
from bench.privacy.checks import count, number
from bench.privacy.claims import CHUNK_SECONDS
from bench.privacy.conversions import mu_of_pure, rho_of_pure
from bench.privacy.filters import top_k_mean_load

Form = Literal["pure", "approx", "gdp", "zcdp", "measured"]


class ImpossibleConversion(ConfigError):
    """A guarantee that does not follow from another one, with the reason."""


@dataclass(frozen=True)
class Guarantee:
    """A form and its numbers, for one unit. chunks: K of an event. rules: how it was derived, in words."""

    unit: str
    form: Form
    epsilon: float = math.inf
    delta: float = 0.0
    mu: float = math.inf
    rho: float = math.inf
    chunks: int = 0
    rules: tuple[str, ...] = ()

    def __post_init__(self):
        for name in {"pure": ("epsilon",), "approx": ("epsilon", "delta"), "gdp": ("mu",), "zcdp": ("rho",)}.get(
                self.form, ()):
            if getattr(self, name) != math.inf:
                number(name, getattr(self, name), 0.0, 1e12)


@dataclass(frozen=True)
class Facts:
    """What a rule must know; a condition that is not stated counts as not met."""

    frames: int | None = None  # T of a clip
    clips: int | None = None  # K of a source video, public
    videos: int | None = None  # public bound on the videos of one person
    chunks: int | None = None  # K' of the event asked for
    frame_wise: bool = False  # the encoder of a frame reads that frame only
    frame_mu: float | None = None  # with frame_wise: sqrt(sum over branches (2 C / s)^2)
    separate: bool = False  # clips are processed without reading one another
    null_clip: bool = False  # "absent" is mapped to an admissible clip
    admissible_between: bool = False  # every stream between two events is itself admissible
    independent_noise: bool = False  # fresh noise for every frame
    spends: tuple[Fraction, ...] = ()  # of the windows, for events
    window_chunks: int | None = None
    cadence_chunks: int | None = None
    seconds: float | None = None  # visible length of an event
    diameter: float | None = None  # of the metric's domain


Rule = Callable[[Guarantee, Facts], Guarantee]


@dataclass(frozen=True)
class Entry:
    """One row of the table. rule None = impossible, `words` then says why."""

    source: str
    target: str
    words: str
    rule: Rule | None = None

    @property
    def provable(self) -> bool:
        return self.rule is not None


# ---- arithmetic of guarantees --------------------------------------------------------------------------------------

def composed(g: Guarantee, times: int) -> Guarantee:
    """The same mechanism `times` over, with independent noise: mu sqrt(n), n rho, n epsilon (and n delta)."""
    return replace(g, mu=g.mu * math.sqrt(times), rho=g.rho * times, epsilon=g.epsilon * times,
                   delta=min(1.0, g.delta * times))


def grouped(g: Guarantee, size: int) -> Guarantee:
    """A group of `size` units changed at once, mechanism unknown: n mu, n^2 rho, n epsilon, delta times a sum."""
    delta = 0.0
    if g.delta:
        steps = size if g.epsilon == 0 else math.expm1(min(size * g.epsilon, 700)) / math.expm1(min(g.epsilon, 700))
        delta = min(1.0, g.delta * steps)
    return replace(g, mu=g.mu * size, rho=g.rho * size**2, epsilon=g.epsilon * size, delta=delta)


def _need(value: int | float | None, name: str, words: str) -> int | float:
    if value is None:
        raise ImpossibleConversion(f"This conversion needs {name}.", words, f"State {name} if it is public.")
    return value


def _whole(value: int | None, name: str, words: str) -> int:
    return count(name, _need(value, name, words), 1, 10**7)


def _holds(condition: bool, name: str, words: str) -> None:
    if not condition:
        raise ImpossibleConversion(f"The condition {name} is not stated to hold.", words,
                                   "State it only if the method is built so.")


def _clip_to_frame(g: Guarantee, f: Facts) -> Guarantee:
    if f.frame_wise and f.frame_mu is not None and g.form == "gdp":
        return replace(g, mu=min(g.mu, number("frame_mu", f.frame_mu, 0.0, 1e12)))
    return g


def _frame_to_clip(g: Guarantee, f: Facts) -> Guarantee:
    frames = _whole(f.frames, "frames", "A clip is as many frames.")
    return composed(g, frames) if f.frame_wise else grouped(g, frames)


def _clip_to_video(g: Guarantee, f: Facts) -> Guarantee:
    clips = _whole(f.clips, "clips", "The number of clips must be public.")
    return composed(g, clips) if f.separate else grouped(g, clips)


def _video_to_person(g: Guarantee, f: Facts) -> Guarantee:
    return composed(g, _whole(f.videos, "videos", "Nothing bounds how many videos of one person exist."))


def _add_remove_to_replace(g: Guarantee, f: Facts) -> Guarantee:
    if g.form == "approx":
        return replace(g, epsilon=2 * g.epsilon, delta=min(1.0, (1 + math.exp(min(g.epsilon, 700))) * g.delta))
    return replace(g, epsilon=2 * g.epsilon, mu=2 * g.mu, rho=4 * g.rho)


def _replace_to_add_remove(g: Guarantee, f: Facts) -> Guarantee:
    _holds(f.null_clip, "null_clip", "A missing clip must itself be processed as some admissible clip.")
    return g


def _event_to_larger(g: Guarantee, f: Facts) -> Guarantee:
    more = _whole(f.chunks, "chunks", "How many chunks does the larger event touch?")
    _pure_event(g)
    if f.spends and f.window_chunks:
        largest = top_k_mean_load(f.spends, f.window_chunks, f.cadence_chunks or f.window_chunks, more)
        return replace(g, epsilon=float(largest * more / g.chunks), chunks=more)
    return replace(g, epsilon=g.epsilon * max(1.0, more / g.chunks), chunks=more)


def _event_black_box(g: Guarantee, f: Facts) -> Guarantee:
    more = _whole(f.chunks, "chunks", "How many chunks does the larger event touch?")
    _pure_event(g)
    _holds(f.admissible_between, "admissible_between", "Steps of K chunks must pass through streams that can occur.")
    return replace(grouped(g, math.ceil(more / g.chunks)), chunks=more)


def _pure_event(g: Guarantee) -> None:
    count("chunks of the guarantee", g.chunks, 1, 10**6)
    if g.form != "pure":
        raise ImpossibleConversion(f"An event guarantee of form {g.form!r} is not converted.",
                                   "The rule is about pure epsilon.", "")


def _total_to_per_window(g: Guarantee, f: Facts) -> Guarantee:
    if not f.spends:
        raise ImpossibleConversion("This conversion needs the spends.", "All windows add up.", "List what each spends.")
    _pure_event(g)
    return replace(g, epsilon=float(sum(f.spends)))


def chunks_of(seconds: float) -> int:
    """Most 2 s chunks that an event visible for `seconds` touches: ceil(L / 2) + 1."""
    return math.ceil(number("seconds", seconds, 0.0, 1e9) / CHUNK_SECONDS) + 1


def _chunks_to_seconds(g: Guarantee, f: Facts) -> Guarantee:
    need = chunks_of(float(_need(f.seconds, "seconds", "How long is the event visible?")))
    if need > g.chunks:
        raise ImpossibleConversion(f"An event of {f.seconds:g} s touches up to {need} chunks, and K is {g.chunks}.",
                                   "It may start in the middle of a chunk.", f"Convert to an event of {need} chunks.")
    return g


def _frames_to_video(g: Guarantee, f: Facts) -> Guarantee:
    _holds(f.independent_noise, "independent_noise", "Noise drawn once for an identity or a seed does not add up: "
           "its difference between frames is free of noise.")
    return composed(g, _whole(f.frames, "frames", "Every frame is one release."))


def _metric_to_replace(g: Guarantee, f: Facts) -> Guarantee:
    span = _need(f.diameter, "diameter", "Without a bounded domain two inputs may lie arbitrarily far apart.")
    return replace(g, epsilon=g.epsilon * number("diameter", span, 1e-12, 1e12))


def _pure_to_zcdp(g: Guarantee, f: Facts) -> Guarantee:
    return replace(g, form="zcdp", rho=rho_of_pure(g.epsilon))


def _pure_to_gdp(g: Guarantee, f: Facts) -> Guarantee:
    return replace(g, form="gdp", mu=mu_of_pure(g.epsilon))


def _same(g: Guarantee, f: Facts) -> Guarantee:
    return g


TABLE: tuple[Entry, ...] = (
    Entry("clip", "frame", "A frame is part of its clip: the clip's loss, or less with a frame-wise encoder.",
          _clip_to_frame),
    Entry("frame", "clip", "Frame-wise encoder: the frames' losses compose. Otherwise T frames are a group.",
          _frame_to_clip),
    Entry("clip", "source_video", "K public. Clips processed apart compose (rho K, mu sqrt K); otherwise a group.",
          _clip_to_video),
    Entry("source_video", "clip", "A clip is part of its video: the video's loss.", _same),
    Entry("source_video", "person", "Compose over all videos of the person; needs a public bound on their number.",
          _video_to_person),
    Entry("clip", "clip add/remove", "The number of clips is public by definition; it is not protected."),
    Entry("clip", "duration", "Duration is public by definition; it is not protected."),
    Entry("clip", "clip count", "The number of clips is public by definition; it is not protected."),
    Entry("clip", "training membership", "The claim is about the video that is released, not about training data."),
    Entry("add/remove", "replace", "A removal and an addition: 2 epsilon, (1 + e^epsilon) delta; 2 mu.",
          _add_remove_to_replace),
    Entry("replace", "add/remove", "Only if a missing clip is mapped to an admissible one.", _replace_to_add_remove),
    Entry("event", "larger event", "Linear in the chunks touched: (1/K) times the sum of the K' largest loads.",
          _event_to_larger),
    Entry("event", "larger event (black box)", "ceil(K'/K) epsilon, in steps of K chunks.", _event_black_box),
    Entry("event in all", "event per window", "The maximum over windows becomes their sum.", _total_to_per_window),
    Entry("event per window", "event in all", "An event in all is one of those per window: the same sum holds.", _same),
    Entry("event", "seconds", "An event of L seconds touches at most ceil(L/2) + 1 chunks.", _chunks_to_seconds),
    Entry("event", "trajectory", "Nothing bounds the chunks that a whole trajectory touches."),
    Entry("event", "other cameras", "Other cameras are other releases; nothing bounds how many see the same person."),
    Entry("frame image", "video", "Sum over frames, if every frame has noise of its own.", _frames_to_video),
    Entry("image_metric", "replace", "epsilon times the diameter of a bounded domain.", _metric_to_replace),
    Entry("pure", "zcdp", "rho = epsilon^2 / 2.", _pure_to_zcdp),
    Entry("pure", "gdp", "Phi(-mu/2) = 1 / (1 + e^epsilon): both curves share three points.", _pure_to_gdp),
    Entry("gdp", "pure", "Gaussian noise exceeds every finite epsilon with some probability."),
    Entry("approx", "pure", "With probability delta nothing at all is promised."),
    Entry("approx", "gdp", "One point does not fix the curve; the mechanism is needed."),
    Entry("approx", "exact profile", "One point does not fix the curve; the mechanism is needed."),
    *(Entry(what, "dp", "A measurement on some inputs bounds no other input and no other attack; only the reverse "
            "holds: a claim limits what attacks can reach.") for what in ("k-anonymity", "plr", "psnr", "attack auc")),
)
_FORM_KEYS = ("pure", "approx", "gdp", "zcdp")


def convert(guarantee: Guarantee, target: str, facts: Facts | None = None, *, source: str = "") -> Guarantee:
    """The guarantee for `target`. Raises ImpossibleConversion with the reason where none follows.

    source: the table's name of what is converted, by default the unit, or the form where `target` is a form.
    """
    source = source or (guarantee.form if any((guarantee.form, target) == (e.source, e.target) for e in TABLE)
                        else guarantee.unit)
    entry = next((e for e in TABLE if (e.source, e.target) == (source, target)), None)
    if entry is None:
        raise ImpossibleConversion(f"No rule leads from {source!r} to {target!r}.",
                                   "What is not proved is not converted.",
                                   nearest(target, {e.target for e in TABLE if e.source == source}))
    if entry.rule is None:
        raise ImpossibleConversion(f"A guarantee for {target!r} does not follow from {source!r}.", entry.words, "")
    if guarantee.form == "measured" or source in _FORM_KEYS and guarantee.form != source:
        raise ImpossibleConversion(f"A value of form {guarantee.form!r} is no guarantee to convert from {source!r}.",
                                   "Measured numbers never become a guarantee.", "")
    result = entry.rule(guarantee, facts or Facts())
    unit = guarantee.unit if target in _FORM_KEYS else target
    return replace(result, unit=unit, rules=(*guarantee.rules, f"{source} to {target}: {entry.words}"))


def table() -> list[dict[str, str | bool]]:
    """Every entry as {source, target, provable, words}."""
    return [{"source": e.source, "target": e.target, "provable": e.provable, "words": e.words} for e in TABLE]
