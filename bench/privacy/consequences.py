"""What follows from a priced claim: ceilings on every attack, and guarantees for other units or why there is none.

Both are plain rows, ready to be printed; every bound carries its theorem and its conditions, every conversion its rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Any, NamedTuple

from bench.privacy.accounting import Price, price
from bench.privacy.ceilings import Ceiling, Loss, auc, bit_accuracy, eer, tar, top1
from bench.privacy.claims import CHUNK_SECONDS, EventClaim, FullClaim
from bench.privacy.conversions import epsilon_exact
from bench.privacy.units import TABLE, Facts, Guarantee, ImpossibleConversion, convert

CLASSES = (2, 9, 25)  # the fewest; test people of the demo; test people of the full set of made people
FAR = 0.01
EXAMPLE_CLIPS = (2, 10)  # a source video has more clips than the claim's one
EXAMPLE_FRAMES = 16
LARGEST_LOSS = 1e6  # beyond it every ceiling is 1 in floats, and no conversion is worth its line
TWO_CASES = ("pixels", "event", "image_metric")  # neighbours are not two people


# ---- ceilings ------------------------------------------------------------------------------------------------------

def loss_of(claim: FullClaim, cost: Price) -> Loss:
    """The loss of everything that the claim covers, its whole curve where the noise is Gaussian."""
    ball = bool(claim.branches) and all(b.noise == "gaussian" and b.norm in ("l2", "l1") for b in claim.branches)
    if cost.mu is not None:
        return Loss("gaussian", mu=cost.mu if math.isinf(cost.mu) else min(cost.mu, LARGEST_LOSS), norm_clipped=ball)
    return Loss("pure", epsilon=cost.epsilon if math.isinf(cost.epsilon) else min(cost.epsilon, LARGEST_LOSS))


def ceilings_of(claim: FullClaim, cost: Price) -> dict[str, Any] | None:
    """{one_bit, top1 {"2", "9", "25"}, auc, eer, tar}, each a row; None where epsilon is infinite.

    top1 is None for units whose neighbours are not two people: there only two cases can be told apart or not.
    """
    loss, event = loss_of(claim, cost), claim.unit == "event"
    if not loss.finite:
        return None
    names = None if claim.unit in TWO_CASES else {str(n): _row(_top1(loss, n), chance=1 / n) for n in CLASSES}
    return {"one_bit": _row(bit_accuracy(loss), chance=0.5), "top1": names, "auc": _row(auc(loss, event=event),
            chance=0.5), "eer": _row(eer(loss), chance=0.5), "tar": {"far": FAR, **_row(tar(loss, FAR, event=event),
                                                                                       chance=FAR)}}


def _top1(loss: Loss, classes: int) -> Ceiling:
    """The smaller of two valid bounds: norm-clipped Gaussian noise has one of its own."""
    anyway = top1(replace(loss, norm_clipped=False), classes)
    own = top1(loss, classes)
    return own if (own.bound or 0.0) < (anyway.bound or 0.0) else anyway


def _row(ceiling: Ceiling, *, chance: float) -> dict[str, Any]:
    return asdict(ceiling) | {"conditions": list(ceiling.conditions), "chance": chance, "no_limit": ceiling.vacuous}


# ---- other units ---------------------------------------------------------------------------------------------------

class Attempt(NamedTuple):
    """One conversion to try: what the reader would like to know, and how the table of `units` calls it."""

    to: str
    guarantee: Guarantee
    target: str
    facts: Facts = Facts()
    source: str = ""


def conversions_of(claim: FullClaim, cost: Price) -> list[dict[str, Any]]:
    """Rows {to, possible, words, epsilon, delta, mu, rho}; `words` is the rule, or the reason why nothing follows."""
    if cost.epsilon > LARGEST_LOSS:
        return []
    return [_tried(attempt, claim.delta) for attempt in _attempts(claim, cost)]


def _tried(attempt: Attempt, delta: float) -> dict[str, Any]:
    nothing = dict.fromkeys(("epsilon", "delta", "mu", "rho"))
    try:
        got = convert(attempt.guarantee, attempt.target, attempt.facts, source=attempt.source)
    except ImpossibleConversion as error:
        settled = any(e.words == error.why and not e.provable for e in TABLE)
        reason = error.why if settled else " ".join(part for part in (error.what, error.why) if part)
        return {"to": attempt.to, "possible": False, "words": reason, **nothing}
    words = got.rules[-1].partition(": ")[2]
    numbers = {"pure": {"epsilon": got.epsilon, "delta": 0.0}, "gdp": {"mu": got.mu},
               "zcdp": {"rho": got.rho}}.get(got.form, {})
    if got.form == attempt.guarantee.form == "gdp":  # a pure loss said as mu has a better epsilon of its own
        numbers |= {"epsilon": epsilon_exact(got.mu, delta), "delta": delta}
    return {"to": attempt.to, "possible": True, "words": words, **nothing, **numbers}


def _guarantee(claim: FullClaim, cost: Price) -> Guarantee:
    if cost.mu is not None:
        return Guarantee(claim.unit, "gdp", mu=cost.mu)
    chunks = claim.event.changed_chunks if claim.event is not None else 0
    return Guarantee(claim.unit, "pure", epsilon=cost.epsilon, chunks=chunks)


def _attempts(claim: FullClaim, cost: Price) -> Iterator[Attempt]:
    whole = _guarantee(claim, cost)
    if claim.unit == "clip":
        yield from _of_clip(claim)
    elif claim.unit == "source_video":
        yield Attempt("one clip of the video", whole, "clip")
        yield Attempt("all videos of a person", whole, "person")
    elif claim.unit == "frame":
        for words, apart in (("each frame encoded by itself", True), ("frames that read one another", False)):
            yield Attempt(f"a clip of {EXAMPLE_FRAMES} frames, {words}", whole, "clip",
                          Facts(frames=EXAMPLE_FRAMES, frame_wise=apart))
    elif claim.event is not None:
        yield from _of_event(claim, claim.event, cost, whole)
    elif claim.unit == "image_metric":
        spans = [b.diameter(2) for b in claim.branches]  # of a single bounded latent; several have no common distance
        facts = Facts(diameter=spans[0]) if len(spans) == 1 and math.isfinite(spans[0]) else Facts()
        yield Attempt("all images exchanged for any others", whole, "replace", facts)
    if claim.unit in ("pixels", "label"):
        yield Attempt("a whole clip exchanged for any other", whole, "clip")
        yield Attempt("all videos of a person", whole, "person")
    if whole.form == "pure":
        yield Attempt("the same unit, as zero-concentrated loss rho", whole, "zcdp")
        yield Attempt("the same unit, as Gaussian loss mu", whole, "gdp")
    else:
        yield Attempt("the same unit with delta = 0", whole, "pure")


def _of_clip(claim: FullClaim) -> Iterator[Attempt]:
    one = replace(claim, clips=1, horizon="one clip")
    clip = _guarantee(one, price(one))
    yield Attempt("one frame of the clip", clip, "frame")
    for k in (claim.clips,) if claim.clips > 1 else EXAMPLE_CLIPS:
        for words, apart in (("processed apart", True), ("that read one another", False)):
            yield Attempt(f"a source video of {k} clips {words}", clip, "source_video", Facts(clips=k, separate=apart))
    yield Attempt("all videos of a person", clip, "person", source="source_video")
    for target, words in (("clip add/remove", "a clip that is there or not"), ("duration", "how long the video is"),
                          ("training membership", "whether a video was used for training")):
        yield Attempt(words, clip, target)


def _of_event(claim: FullClaim, event: EventClaim, cost: Price, whole: Guarantee) -> Iterator[Attempt]:
    k, in_all = event.changed_chunks, claim.adjacency == "total"
    covered, where = (k - 1) * CHUNK_SECONDS, "in all" if in_all else "per window"
    known = Facts(chunks=2 * k)  # a budget may lie below the listed spends: then the plain multiple is the smaller one
    if in_all and event.budget is None:
        known = replace(known, spends=event.spends, window_chunks=event.window_chunks,
                        cadence_chunks=event.cadence_chunks)
    if k > 1:
        yield Attempt(f"an event visible for {covered} s", whole, "seconds", Facts(seconds=covered))
    yield Attempt(f"an event visible for {k * CHUNK_SECONDS} s", whole, "seconds", Facts(seconds=k * CHUNK_SECONDS))
    yield Attempt(f"an event of {2 * k} chunks {where}", whole, "larger event", known)
    if in_all:
        facts = Facts(spends=(Fraction(cost.epsilon_sum or 0),))
        yield Attempt(f"an event of {k} chunks in every window", whole, "event per window", facts, "event in all")
    else:
        yield Attempt(f"an event of {k} chunks in all", whole, "event in all", source="event per window")
    yield Attempt("somebody's whole way through the scene", whole, "trajectory")
    yield Attempt("the same person at other cameras", whole, "other cameras")
