"""Lane "declared": a method that adds protective noise itself, handed out here, event by event.

The claim lists the branches. `ctx.noise.draw` gives noise of the law and scale that the claim states and counts it;
a clip whose draws are not those of the claim is never released. What stays the author's word: that the values were
clipped as stated, that the noise was added to them, and that nothing else of the clip reaches the release.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bench.errors import ConfigError, PluginError, nearest
from bench.privacy.bits import Bits
from bench.privacy.checks import count
from bench.privacy.claims import BranchClaim, FullClaim
from bench.privacy.mechanism import declared_noise
from bench.types import CLIP_FRAMES, Method, Video

LAWS = ("gaussian", "discrete_laplace", "exponential")  # noise that is added to a value
UNITS = ("clip", "image_metric")


@dataclass(frozen=True)
class Event:
    """One draw: so many rows of noise for a branch of the claim. Its width, law and scale are the claim's."""

    branch: str
    rows: int


class Noise:
    """The protective noise of one clip, and the record of what was drawn."""

    def __init__(self, claim: FullClaim, bits: Bits):
        self._branches = {b.name: b for b in claim.branches}
        self._most = {b.name: rows_of(b, claim) for b in claim.branches}
        self._bits = bits
        self._drawn: Counter[str] = Counter()

    def draw(self, event: Event) -> np.ndarray:
        """float64 (rows, dim) of noise to add. Raises PluginError for a draw that the claim does not pay for."""
        branch = self._branches.get(event.branch)
        if branch is None:
            raise PluginError(f"It draws noise for {event.branch!r}, which is no branch of its claim.",
                              "Only what the claim lists is priced.", nearest(event.branch, self._branches))
        rows = count(f"rows of {event.branch!r}", event.rows, 1, 10**6)
        self._drawn[branch.name] += rows
        if self._drawn[branch.name] > self._most[branch.name]:
            raise PluginError(f"It draws {self._drawn[branch.name]} rows for {branch.name!r} in one clip, its claim "
                              f"pays for {self._most[branch.name]}.", "Every noisy row that leaves a clip costs.",
                              "Release fewer rows, or claim more.")
        return declared_noise(branch, rows, self._bits)

    def settle(self) -> None:
        """Called when a clip is done. Raises PluginError where noise that the claim is priced by was never drawn."""
        short = [name for name, most in self._most.items() if self._drawn[name] != most]
        if short:
            raise PluginError(f"It drew {self._drawn[short[0]]} of the {self._most[short[0]]} rows of noise for "
                              f"{short[0]!r} that its claim is priced by.", "A claim that is not met is not published.",
                              "Draw all noise of the claim in every clip, also where a clip cannot be read.")


def rows_of(branch: BranchClaim, claim: FullClaim) -> int:
    """Noisy rows of one clip: as the branch says, else one a frame."""
    return branch.rows or claim.frames


@dataclass(frozen=True)
class ReleaseContext:
    """What `release` gets beside the clip. noise: protective. rng(*names): chance that protects nothing."""

    noise: Noise
    rng: Callable[..., np.random.Generator]
    profile: str = "tiny"


class DeclaredMethod(Method):
    """Lane "declared": the noise comes from `ctx.noise.draw(Event(branch, rows))`, the method does all else.

    terms: a FullClaim with its branches (`BranchClaim`); every branch names law, scale, clip and width.
    """

    lane: ClassVar[str] = "declared"
    terms: FullClaim

    def release(self, video: Video, ctx: ReleaseContext) -> Video:
        """One clip of 16 frames, the last one repeated where it is shorter -> 16 frames of the same size and rate.

        Sees that clip, the fitted state and `ctx`; it must not write to `video.frames`, nor remember the clip.
        """
        raise NotImplementedError


def declared_claim(method: DeclaredMethod) -> FullClaim:
    """The claim of a declared method. Raises PluginError where its noise could not be drawn as it states."""
    claim = getattr(method, "terms", None)
    if not isinstance(claim, FullClaim) or not claim.branches:
        raise PluginError("A declared method without `terms` and branches claims nothing.",
                          "Its epsilon is the price of the noise that it says it draws.",
                          'Set terms = FullClaim(unit="clip", branches=(BranchClaim(...),)).')
    if claim.unit not in UNITS or claim.frames != CLIP_FRAMES or claim.clips != 1:
        raise PluginError(f"The terms speak of {claim.clips} x {claim.frames} frames, unit {claim.unit!r}.",
                          "A declared method is handed one clip after the other.",
                          f"Use unit = {' or '.join(map(repr, UNITS))}, frames={CLIP_FRAMES}, clips=1.")
    if method.memory_between_clips:
        raise PluginError("A declared method with memory between clips is not executed.",
                          "Each clip is released by itself, so that its claim is about a clip.", "Drop the memory.")
    for branch in claim.branches:
        _check_branch(branch)
    return claim


def _check_branch(branch: BranchClaim) -> None:
    if branch.noise not in LAWS:
        raise PluginError(f"Noise {branch.noise!r} of branch {branch.name!r} cannot be drawn.",
                          f"What can be added to a value is {', '.join(LAWS)}.", "")
    if branch.dim is None or branch.noise == "discrete_laplace" and branch.scale is None:
        raise PluginError(f"The branch {branch.name!r} does not say how wide its rows are or how large its noise is.",
                          "Noise has as many coordinates as the value that it hides.", "Give dim (and scale).")


def release_clips(method: DeclaredMethod, video: Video, rng: Callable[..., np.random.Generator],
                  bits: Callable[[int], Bits], profile: str) -> Video:
    """A whole video, clip by clip, each with noise of its own (`bits(k)` of clip k) and a settled record.

    Raises PluginError where a clip comes back in another shape or its draws are not those of the claim.
    """
    claim, parts = declared_claim(method), []
    for k, start in enumerate(range(0, len(video), claim.frames)):
        frames = video.frames[start:start + claim.frames]
        padded = np.concatenate([frames, np.repeat(frames[-1:], claim.frames - len(frames), axis=0)])
        padded.flags.writeable = False
        noise = Noise(claim, bits(k))
        made = method.release(Video(padded, video.fps), ReleaseContext(noise, lambda *n, k=k: rng(k, *n), profile))
        noise.settle()
        if not isinstance(made, Video) or made.frames.shape != padded.shape or made.fps != video.fps:
            raise PluginError("release gave something else than a clip of the same frames, size and rate.", "",
                              "Return Video(frames, video.fps).")
        parts.append(made.frames[:len(frames)])
    if not parts:
        raise ConfigError("A video without frames cannot be released.", "", "")
    return Video(np.concatenate(parts), video.fps)
