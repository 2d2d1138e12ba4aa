"""The price of a claim, and the floors that a budget buys. scipy only, closed forms only.

Everything that may change at once is summed: frames, branches, clips, channels. Scales above the guaranteed floor
are never credited. What has no noise, no known noise or no branch in the claim prices to infinity.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from bench.errors import ConfigError, nearest
from bench.privacy.checks import LIMITS, count, exact, limited, number
from bench.privacy.claims import CHUNK_SECONDS, NOISES, BranchClaim, EventClaim, FullClaim
from bench.privacy.conversions import (
    epsilon_cks,
    epsilon_exact,
    epsilon_mironov,
    mu_exact,
    mu_of_pure,
    rho_cks,
    rho_mironov,
    rho_of_pure,
)
from bench.privacy.filters import top_k_mean_load
from bench.types import Claim

INF = math.inf
CONVERSIONS = ("exact", "cks", "mironov")


class Price(NamedTuple):
    """What a claim costs; None where a number does not apply, infinity where nothing is promised.

    epsilon: the one that places a row on the board. rho, mu and the first three belong to Gaussian noise at `delta`;
    pure to noise without a delta; sum and max to an event that touches K chunks of every window, or K in all (for
    pixels: m of every frame, or m in all). assumptions: what must hold, in sentences.
    """

    epsilon: float
    delta: float
    rho: float | None = None
    mu: float | None = None
    epsilon_mironov: float | None = None
    epsilon_cks: float | None = None
    epsilon_exact: float | None = None
    epsilon_pure: float | None = None
    epsilon_sum: float | None = None
    epsilon_max: float | None = None
    assumptions: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Field by field; infinity stays a float, which JSON has no word for."""
        return self._asdict() | {"assumptions": list(self.assumptions)}


def price(claim: FullClaim, *, released: Collection[str] = ()) -> Price:
    """What `claim` costs. `released`: names of the branches found in a transcript, checked against the claim."""
    why = _no_price(claim, released)
    if why:
        return _infinite(claim, why)
    if claim.event is not None:
        return _price_event(claim, claim.event)
    if claim.pixels is not None:
        return _price_pixels(claim)
    if claim.label is not None:
        per_clip = claim.label.epsilon * claim.label.labels
        return _pure(claim, per_clip * claim.clips, _LABEL)
    return _price_branches(claim)


def claimed(claim: FullClaim, cost: Price) -> Claim:
    """The short claim stored with every row of the board; a pure claim stands under the board's delta too."""
    return Claim(claim.unit, claim.adjacency, claim.horizon, claim.delta, cost.epsilon)


# ---- branches: frames x clips, Gaussian and pure noise -------------------------------------------------------------

def step(branch: BranchClaim, order: int, unit: str) -> float:
    """How far one row may move between neighbours, in the l1 (order 1) or l2 norm (order 2).

    Where a unit is replaced, any row may become any other: the diameter of what it is clipped to. A claim of unit
    "image_metric" is stated for rows at distance 1, whatever the domain; `units` multiplies it by a diameter.
    """
    return 1.0 if unit == "image_metric" else branch.diameter(order)


def gaussian_rho(branches: Collection[BranchClaim], frames: int, clips: int = 1, unit: str = "clip") -> float:
    """rho of the Gaussian branches: sum over rows of (step / floor)^2 / 2. A replaced clip changes every row."""
    total = 0.0
    for b in branches:
        if b.noise == "gaussian":
            total += (b.rows or frames) * (step(b, 2, unit) / (b.noise_std or 0.0)) ** 2
    return clips * total / 2


def pure_row(branch: BranchClaim, unit: str = "clip") -> tuple[Fraction, int]:
    """(epsilon of one row, rows in a clip or 0 for one per frame) of a branch with pure noise."""
    if branch.noise == "exponential":
        return (branch.epsilon or Fraction(0)) * Fraction(step(branch, 2, unit)), branch.rows or 0
    if branch.epsilon is not None:
        return branch.epsilon, branch.rows or 1
    return Fraction(step(branch, 1, unit)) / (branch.scale or 1), branch.rows or 0


def _price_branches(claim: FullClaim) -> Price:
    delta, rho = claim.delta, gaussian_rho(claim.branches, claim.frames, claim.clips, claim.unit)
    others = [b for b in claim.branches if b.noise != "gaussian"]
    if others:
        return _price_mixed(claim, rho, others)
    mu = math.sqrt(2 * rho)
    exactly = epsilon_exact(mu, delta)
    return Price(exactly, delta, rho, mu, epsilon_mironov(rho, delta), epsilon_cks(rho, delta), exactly,
                 assumptions=_sentences(claim, _GAUSSIAN))


def _price_mixed(claim: FullClaim, rho: float, others: list[BranchClaim]) -> Price:
    """Pure noise adds as rho or mu, or as epsilon on top of the Gaussian branches; the smaller sum holds."""
    pure, rho_all, mu_squared = Fraction(0), rho, 2 * rho
    for branch in others:
        each, rows = pure_row(branch, claim.unit)
        times = (rows or claim.frames) * claim.clips
        pure += each * times
        mu_squared += times * mu_of_pure(each) ** 2
        rho_all += times * rho_of_pure(each)
    if not rho:
        return _pure(claim, pure, _PURE)
    delta, top, mu = claim.delta, float(pure), math.sqrt(mu_squared)
    exactly = min(epsilon_exact(math.sqrt(2 * rho), delta) + top, epsilon_exact(mu, delta))
    return Price(exactly, delta, rho_all, mu,
                 min(epsilon_mironov(rho, delta) + top, epsilon_mironov(rho_all, delta)),
                 min(epsilon_cks(rho, delta) + top, epsilon_cks(rho_all, delta)), exactly,
                 assumptions=_sentences(claim, _GAUSSIAN + _MIXED))


# ---- events, pixels, pure noise ------------------------------------------------------------------------------------

def _price_event(claim: FullClaim, event: EventClaim) -> Price:
    cadence = event.cadence_chunks or event.window_chunks
    total = sum(event.spends, Fraction(0))
    load = top_k_mean_load(event.spends, event.window_chunks, cadence, event.changed_chunks)
    if event.budget is not None:
        load = min(load, event.budget)  # the chunk load never exceeds the sum of the spends
        total = min(total, event.budget) if event.accountant == "sum" else total
    worst = load if claim.adjacency == "total" else total
    seconds = (event.changed_chunks - 1) * CHUNK_SECONDS
    cover = f"K = {event.changed_chunks} chunks cover an event that is visible for {seconds} s at most." if seconds \
        else "K = 1 chunk covers an event only if it never crosses the border between two chunks."
    overlap = (_OVERLAP,) if cadence < event.window_chunks else ()
    return Price(float(worst), 0.0, epsilon_pure=float(worst), epsilon_sum=float(total), epsilon_max=float(load),
                 assumptions=_sentences(claim, (cover, *_EVENT, *overlap)))


def event_noise(event: EventClaim, spend: Fraction) -> list[tuple[Fraction, Fraction, Fraction]]:
    """(sensitivity of the window mean, epsilon, Laplace scale on the mean) of each expert at one spend.

    Sensitivity 2 K C / J; on the integer sum of the window it is 2 K C, and the scale J times larger.
    """
    caps = event.cap if len(event.cap) > 1 else event.cap * len(event.allocation)
    rows = []
    for cap, share in zip(caps, event.allocation, strict=True):
        sensitivity = 2 * event.changed_chunks * cap / event.window_chunks
        e = spend * share
        if not e:
            raise ConfigError("An expert without a share releases nothing.", "Its noise would be infinite.",
                              "Leave it out of the allocation.")
        rows.append((sensitivity, e, sensitivity / e))
    return rows


def pixel_scale(m: int, epsilon: Any, *, frames: int, channels: int = 3, levels: int = 255,
                adjacency: str = "per_frame") -> Fraction:
    """Laplace scale on the integer cell sums that makes a whole clip cost `epsilon`: m levels / (epsilon per draw)."""
    total = exact("epsilon", epsilon, *LIMITS["epsilon"])
    draws = channels * (frames if adjacency == "per_frame" else 1)
    return Fraction(count("m", m) * levels * draws) / total


def _price_pixels(claim: FullClaim) -> Price:
    pixels = claim.pixels
    assert pixels is not None
    in_all = pixels.draw_epsilon * pixels.channels  # frames are disjoint windows: only the largest load counts
    every = in_all * claim.frames * claim.clips
    worst = every if claim.adjacency == "per_frame" else in_all
    return Price(float(worst), 0.0, epsilon_pure=float(worst), epsilon_sum=float(every), epsilon_max=float(in_all),
                 assumptions=_sentences(claim, _PIXELS))


def _pure(claim: FullClaim, epsilon: Fraction, notes: tuple[str, ...]) -> Price:
    return Price(float(epsilon), 0.0, epsilon_pure=float(epsilon), assumptions=_sentences(claim, notes))


# ---- no price ------------------------------------------------------------------------------------------------------

def _no_price(claim: FullClaim, released: Collection[str]) -> str:
    if claim.unit == "none":
        return "There is no formal claim, hence no limit on what a release may reveal."
    if claim.unit in ("clip", "source_video", "frame", "image_metric") and not claim.branches:
        return "The claim lists no branch, so that nothing says how the released values are protected."
    names = {b.name for b in claim.branches}
    for name in (*claim.reads, *sorted(released)):
        if name not in names:
            return f"The branch {name!r} reaches the release but is missing from the claim: it has no noise."
    for branch in claim.branches:
        if branch.noise is None:
            return f"The branch {branch.name!r} is passed in clear: whoever reads it learns the value itself."
        if branch.noise not in NOISES:
            hint = nearest(str(branch.noise), NOISES)
            return f"The noise {branch.noise!r} of branch {branch.name!r} is an event without a known price. {hint}"
    return ""


def _infinite(claim: FullClaim, why: str) -> Price:
    if claim.unit in ("event", "pixels"):
        return Price(INF, 0.0, epsilon_pure=INF, epsilon_sum=INF, epsilon_max=INF, assumptions=(why,))
    if claim.unit == "label":
        return Price(INF, 0.0, epsilon_pure=INF, assumptions=(why,))
    return Price(INF, claim.delta, INF, INF, INF, INF, INF, assumptions=(why,))


# ---- floors of a budget --------------------------------------------------------------------------------------------

def total_rho(epsilon: float, delta: float, conversion: str = "exact") -> float:
    """The rho that a budget (epsilon, delta) buys under one of CONVERSIONS."""
    if conversion == "exact":
        return mu_exact(epsilon, delta) ** 2 / 2
    if conversion not in CONVERSIONS:
        raise ConfigError(f"conversion = {conversion!r} is not known.", "", nearest(conversion, CONVERSIONS))
    return rho_mironov(epsilon, delta) if conversion == "mironov" else rho_cks(epsilon, delta)


def floors(epsilon: float, delta: float, *, clip_norm: Mapping[str, float], share: Mapping[str, float],
           frames: int, clips: int = 1, conversion: str = "exact") -> dict[str, float]:
    """Per-coordinate floor of each branch, so that the claim costs exactly `epsilon` at `delta`.

    Shares are parts of the total rho and add up to 1 (reading A): s = 2 C sqrt(frames clips / (2 share rho)).
    """
    if set(share) != set(clip_norm) or not share:
        raise ConfigError("share and clip_norm name different branches.", "Every branch needs both.", "")
    for name, part in share.items():
        number(f"share of {name!r}", part, 1e-9, 1.0)
        limited("clip_norm", clip_norm[name], f"clip_norm of {name!r}")
    if abs(math.fsum(share.values()) - 1) > 1e-9:
        raise ConfigError(f"The shares add up to {math.fsum(share.values()):g}, not to 1.",
                          "They divide one budget among the branches.", "")
    rows = count("frames", frames, 1, 100_000) * count("clips", clips, 1, 1_000_000)
    rho = total_rho(epsilon, delta, conversion)
    return {name: 2 * clip_norm[name] * math.sqrt(rows / (2 * part * rho)) for name, part in share.items()}


# ---- assumptions in words ------------------------------------------------------------------------------------------

def _sentences(claim: FullClaim, notes: tuple[str, ...]) -> tuple[str, ...]:
    return _said(claim.unit, claim.adjacency, claim.clips, claim.horizon_seconds, notes)


@lru_cache(maxsize=256)
def _said(unit: str, adjacency: str, clips: int, seconds: float | None, notes: tuple[str, ...]) -> tuple[str, ...]:
    said = [_UNIT_WORDS.get((unit, adjacency), "")]
    if clips > 1:
        said.append(f"{clips} clips are added up; each is processed without reading the others, and their number "
                    "is public.")
    if seconds is not None:
        said.append(f"The horizon is {seconds:g} seconds of video.")
    return tuple(s for s in (*said, *notes) if s)


_UNIT_WORDS = {
    ("clip", "replace"): "One whole clip is exchanged for any other; every frame and every branch of it may change.",
    ("source_video", "replace"): "A whole video is exchanged for any other with the same number of clips.",
    ("frame", "replace"): "One frame is exchanged; the price covers as many released rows as the claim has frames.",
    ("event", "total"): "An event may change at most K chunks in all, over the whole stream.",
    ("event", "per_window"): "An event may change up to K chunks in every window, so that all windows add up.",
    ("pixels", "per_frame"): "Up to m pixels may change in every frame, in all colour channels; all frames add up.",
    ("pixels", "total"): "Up to m pixels may change in all, over the whole video; frames do not add up.",
    ("label", "replace"): "One label is exchanged for any other; that the face is shown at all is not covered.",
    ("image_metric", "metric"): "Images at distance 1 of the method's own latent space in every frame; no replacement.",
}
_GAUSSIAN = (
    "The noise is never smaller than the stated floor; larger noise earns no credit.",
    "The noise looks only at values that were already released, never at the video.",
    "Everything after the noise reads released and public values only.",
    "Noise comes from the operating system; who knows the seed can subtract it.",
)
_MIXED = ("Branches with pure noise are added in the cheaper of two valid ways, so mu and rho are upper bounds.",)
_PURE = ("The noise has no failure probability: delta is 0.",) + _GAUSSIAN[2:]
_LABEL = ("Only the label depends on the video; all else of the release is public.",) + _GAUSSIAN[3:]
_PIXELS = ("Cells are summed as whole numbers and the noise is exact; each frame and channel has its own.",) + \
    _GAUSSIAN[3:]
_EVENT = (
    "One event may change all experts at once, so that their shares of a spend add up.",
    "Chunks are read one by one: no tracker, background model or codec carries one chunk into another.",
    "When, what and how much is released follows from past releases and public facts only; a failed chunk counts.",
    "Somebody's whole stay, or the same person at another camera, is not covered.",
)
_OVERLAP = "Windows overlap: the price is the mean of the K most used chunks."
