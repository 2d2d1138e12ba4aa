"""A user's own video through an enforced method: the crop video, with noise of the operating system.

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

from bench import registry
from bench.errors import DataError
from bench.privacy.accounting import Price, price
from bench.privacy.bits import OsBits
from bench.privacy.claims import FullClaim
from bench.privacy.mechanism import clip_rows, run_streams
from bench.registry import Spec
from bench.run.enforced import PublicWorker, all_branches, clip_length, priced, raw_rows
from bench.run.sandbox import Isolation, available
from bench.run.stage_enforced import padded_clip
from bench.types import Source
from bench.video import Writer, probe

CANVAS_PX = 64


@dataclass(frozen=True)
class ClipReleaseReport:
    """What came out: frames on the canvas, clips, clips without a face, the claim over all clips and its price."""

    frames: int
    clips: int
    centre_boxes: int
    claim: FullClaim
    cost: Price
    isolation: Isolation


def release_clips(spec: Spec, facts: Mapping[str, Any], state: Mapping[str, np.ndarray], source: Path, output: Path, *,
                  lossless: bool = False) -> ClipReleaseReport:
    """Write the crop video of `source`. Raises DataError for a file that is no whole video; no output is left then."""
    info = probe(source)
    if info.truncated:
        raise DataError(f"{source} is cut short: its header announces more than the file holds.", "",
                        "Copy or convert the file again.")
    made = registry.get("datasets", "videofolder")().load(Source(source.stem, "", "", path=source), CANVAS_PX)
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
    with Writer(output, Fraction(made.fps).limit_denominator(1000), lossless=lossless) as writer:
        for frame in frames:
            writer.write(frame)
    claim = replace(priced(facts)[0], clips=count, horizon="")
    return ClipReleaseReport(len(frames), count, made.centre_boxes, claim, price(claim), isolation)
