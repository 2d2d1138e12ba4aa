"""FWE with the original's flow: whether the released video moves as the original does."""

from __future__ import annotations

import numpy as np

from bench import Column, Video, metric
from bench.nets.flow import FlowMetric, flow_of
from bench.nets.pairs import apart

SOURCE = "Lai et al. 2018, arXiv 1808.00449; TADP 4.1.6"


@metric("fwe_src")
class FWESource(FlowMetric):
    """Flow warping error with the flow of the original: each released frame is compared with the next released frame,
    moved back along the optical flow of the original. Mean squared error on [0, 1] over pixels and channels, without
    pixels that the flow hides, loses or cannot be trusted on. `@dis`: OpenCV's DIS flow on grey values; `@raft`:
    torchvision's RAFT with its published weights. A value is an adjacent pair inside a 16-frame clip; pairs across
    the border of two clips, where methods that work clip by clip flicker, have their own column. Lower is steadier;
    the row `original` is the floor. A flat grey video gets 0: read it beside `motion` of `fwe_self`.
    Source: Lai et al. 2018 (evaluation code); named but not defined in TADP 4.1.6.
    """

    columns = (
        Column(id="fwe_src", unit="1", better="lower", low=0, high=1, role="utility",
               title="Warping error along the original's flow", source=SOURCE),
        Column(id="fwe_src_boundary", unit="1", better="none", low=0, high=1,
               title="Warping error along the original's flow, across clip borders", source=SOURCE),
        Column(id="fwe_src_valid", unit="rate", better="none", low=0, high=1,
               title="Pixels on which the original's flow is trusted", source=SOURCE),
    )
    variants = {"dis": {}, "raft": {"flow": "raft"}}
    headline = "dis"

    def values(self, original: Video, released: Video) -> dict[str, np.ndarray]:
        error = share = np.zeros(0)
        if len(released) > 1:
            moved = flow_of(original.frames, self.estimate)
            error, share = moved.errors(released.frames), moved.valid_share()
        inside, boundary = apart(error)
        return {"fwe_src": inside, "fwe_src_boundary": boundary, "fwe_src_valid": apart(share)[0]}
