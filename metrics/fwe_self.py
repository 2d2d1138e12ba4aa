"""FWE with the released video's own flow, and how much it moves at all."""

from __future__ import annotations

import numpy as np

from bench import Column, Video, metric
from bench.nets.flow import FlowMetric, flow_of
from bench.nets.pairs import apart

SOURCE = "Lai et al. 2018, arXiv 1808.00449"


@metric("fwe_self")
class FWESelf(FlowMetric):
    """Flow warping error with the released video's own flow: each released frame is compared with the next one, moved
    back along the optical flow between the two. Mean squared error on [0, 1] over trusted pixels and channels, as in
    `fwe_src`; `@dis`: OpenCV's DIS flow, `@raft`: torchvision's RAFT with its published weights. A value is an
    adjacent pair inside a 16-frame clip; pairs across the border of two clips have their own column. Lower is
    steadier, but a frozen video gets 0: `motion`, the mean absolute difference of adjacent frames, stands beside and
    is 0 there. The row `original` says how much of both a real video has. Source: Lai et al. 2018 with the other flow.
    """

    columns = (
        Column(id="fwe_self", unit="1", better="lower", low=0, high=1, role="utility",
               title="Warping error along the released video's own flow", source=SOURCE),
        Column(id="fwe_self_boundary", unit="1", better="none", low=0, high=1,
               title="Warping error along its own flow, across clip borders", source=SOURCE),
        Column(id="fwe_self_valid", unit="rate", better="none", low=0, high=1,
               title="Pixels on which the released video's own flow is trusted", source=SOURCE),
        Column(id="motion", unit="1", better="none", low=0, high=1,
               title="Mean absolute difference of adjacent frames", source="ours: a companion of FWE"),
    )
    variants = {"dis": {}, "raft": {"flow": "raft"}}
    headline = "dis"

    def values(self, original: Video, released: Video) -> dict[str, np.ndarray]:
        error = share = difference = np.zeros(0)
        if len(released) > 1:
            moved = flow_of(released.frames, self.estimate)
            error, share = moved.errors(released.frames), moved.valid_share()
            difference = np.abs(np.diff(released.frames.astype(np.int16), axis=0)).mean((1, 2, 3)) / 255  # (T - 1,)
        inside, boundary = apart(error)
        return {"fwe_self": inside, "fwe_self_boundary": boundary, "fwe_self_valid": apart(share)[0],
                "motion": apart(difference)[0]}
