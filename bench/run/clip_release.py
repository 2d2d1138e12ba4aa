"""A user's own video through a method with a claim: the crop video, with noise of the operating system.

A method with a claim writes the face crop on its canvas, 25 frames a second, and no frame with the surroundings: what
stays untouched around a face is not covered by any noise. No seed exists; nobody can draw this noise again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from bench import registry, seeds
from bench.errors import DataError
from bench.privacy.accounting import Price, price
from bench.privacy.bits import OsBits
from bench.privacy.claims import FullClaim
from bench.privacy.mechanism import clip_rows, run_streams
from bench.registry import Spec
from bench.run.enforced import PublicWorker, all_branches, clip_length, priced, raw_rows
from bench.run.sandbox import Isolation, available
from bench.run.stage_encode import padded_clip
from bench.run.workers import MethodWorker
from bench.types import CLIP_FRAMES, Prepared, Source
from bench.video import Writer, probe

CANVAS_PX = 64


@dataclass(frozen=True)
class ClipReleaseReport:
    """What came out: frames on the canvas, clips, clips without a face, the claim over all clips and its price.

    clip_frames: of a clip; a shorter source, or the rest of a longer one, was padded by repeating its last frame.
    """

    frames: int
    clips: int
    centre_boxes: int
    claim: FullClaim
    cost: Price
    isolation: Isolation | None
    clip_frames: int = CLIP_FRAMES


def release_declared(worker: MethodWorker, facts: Mapping[str, Any], source: Path, output: Path, *,
                     lossless: bool = False) -> ClipReleaseReport:
    """The same for a method that draws its noise itself; `worker` has its state. Chance without noise is seeded."""
    made = _crop(source)
    answer, arrays = worker.call({"op": "release", "seed": str(seeds.fresh()), "fps": made.fps, "noise": "os"},
                                 {"frames": made.frames})
    _write(output, arrays["frames"], answer["fps"], lossless)
    count = -(-len(made.frames) // CLIP_FRAMES)
    claim = replace(priced(facts)[0], clips=count, horizon="")
    return ClipReleaseReport(len(made.frames), count, made.centre_boxes, claim, price(claim), None)


def release_clips(spec: Spec, facts: Mapping[str, Any], state: Mapping[str, np.ndarray], source: Path, output: Path, *,
                  lossless: bool = False) -> ClipReleaseReport:
    """Write the crop video of `source`. Raises DataError for a file that is no whole video; no output is left then."""
    made = _crop(source)
    length = clip_length(facts)
    count = -(-len(made.frames) // length)
    atoms = [padded_clip(made.frames, k, length) for k in range(count)]
    branches, fixed = all_branches(facts, CANVAS_PX)
    isolation = available()
    raw = list(raw_rows(spec, facts, state, atoms))
    values = {b.name: np.stack([clip_rows(r.get(b.name), b, b.rows_of(length))[0] for r in raw]) for b in branches}
    with PublicWorker(spec, "tiny", isolation) as worker:
        worker.load_state(state)
        planner = worker.planner(facts, CANVAS_PX)
        released = run_streams(values, branches, planner, OsBits(), fixed_scale=fixed).released
        public = {"canvas_px": CANVAS_PX, "profile": "tiny", "fps": made.fps, "frames": len(made.frames)}
        frames = worker.render([{n: v[k] for n, v in released.items()} for k in range(count)], public, "assembled")
    _write(output, frames, made.fps, lossless)
    claim = replace(priced(facts)[0], clips=count, horizon="")
    return ClipReleaseReport(len(frames), count, made.centre_boxes, claim, price(claim), isolation, length)


def _crop(source: Path) -> Prepared:
    """The face crop of a user's file on the canvas. Raises DataError for a file that is cut short."""
    if probe(source).truncated:
        raise DataError(f"{source} is cut short: its header announces more than the file holds.", "",
                        "Copy or convert the file again.")
    return registry.get("datasets", "videofolder")().load(Source(source.stem, "", "", path=source), CANVAS_PX)


def _write(output: Path, frames: np.ndarray, fps: float, lossless: bool) -> None:
    with Writer(output, Fraction(fps).limit_denominator(1000), lossless=lossless) as writer:
        for frame in frames:
            writer.write(frame)
