"""Optical flow and the warping error: how far a frame is from the next one, moved back along the flow.

Flow is (N, 2, H, W): x to the right and y down, in pixels, from where a point is to where it goes in the next frame.
The error and the mask are those of Lai et al. 2018, "Learning Blind Video Temporal Consistency": squared error, a
forward-backward check and motion boundaries, all with squared norms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import torch
from torch.nn import functional as F
from torchvision.models.optical_flow import raft_large

from bench.measures import VideoMetric
from bench.nets.given import given
from bench.nets.pairs import without_repeats
from bench.types import Context

Estimate = Callable[[np.ndarray, np.ndarray], np.ndarray]  # uint8 (N, H, W, 3) twice -> float32 (N, 2, H, W)

SIDE_PX = 128  # smaller frames are enlarged to it: RAFT takes no less, and DIS looks at every second pixel
STEP_PX = 8  # RAFT takes sides that are multiples of it
RAFT_PAIRS = 8  # at once
REACH_PX = 1e-6  # rounding that still counts as inside the picture


# ---- estimators ----------------------------------------------------------------------------------------------------

def flow_estimator(name: str) -> Estimate:
    """`dis` or `raft`. Raises WeightsMissing for RAFT without its weights, ValueError for another name."""
    if name == "dis":
        return dis()
    if name == "raft":
        return raft(given("raft", "the weights C_T_SKHT_V2 of torchvision's raft_large"))
    raise ValueError(f"there is no flow estimator {name!r}: dis, raft")


def dis() -> Estimate:
    """Dense inverse search (Kroeger et al. 2016, arXiv 1603.03590), OpenCV's medium preset, on grey values.

    Frames with a side under 128 px are enlarged for it, and the flow is brought back to pixels.
    """
    method: Any = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)

    def estimate(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        height, width = first.shape[1:3]
        scale = max(1.0, SIDE_PX / min(height, width))
        size = (round(width * scale), round(height * scale))
        flows = [method.calc(_grey(a, size), _grey(b, size), None) for a, b in zip(first, second, strict=True)]
        back = [cv2.resize(flow, (width, height), interpolation=cv2.INTER_AREA) for flow in flows]  # (H, W, 2)
        to_px = np.array([width / size[0], height / size[1]], np.float32)
        return np.moveaxis(np.stack(back) * to_px, 3, 1)  # (N, 2, H, W)

    return estimate


def _grey(frame: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    return cv2.resize(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), size, interpolation=cv2.INTER_LINEAR)


def raft(state: dict[str, torch.Tensor]) -> Estimate:
    """RAFT (Teed and Deng 2020, arXiv 2003.12039), torchvision's raft_large, 12 updates.

    Frames with a side under 128 px or no multiple of 8 are enlarged for it, and the flow is brought back to pixels.
    Raises RuntimeError when the tensors are of another architecture.
    """
    with torch.device("meta"):
        model = raft_large(weights=None, progress=False)
    model.load_state_dict(state, assign=True)
    model.eval()

    @torch.inference_mode()
    def estimate(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        size = [max(SIDE_PX, -(-side // STEP_PX) * STEP_PX) for side in first.shape[1:3]]
        parts = zip(_raft_input(first, size).split(RAFT_PAIRS), _raft_input(second, size).split(RAFT_PAIRS))
        flow = torch.cat([model(a, b)[-1] for a, b in parts])  # (N, 2, *size)
        height, width = first.shape[1:3]
        scale = torch.tensor([width / size[1], height / size[0]])[:, None, None]
        return (F.interpolate(flow, (height, width), mode="bilinear", align_corners=False) * scale).numpy()

    return estimate


def _raft_input(frames: np.ndarray, size: list[int]) -> torch.Tensor:
    batch = torch.from_numpy(np.array(frames)).permute(0, 3, 1, 2).float() / 127.5 - 1  # (N, 3, H, W)
    return F.interpolate(batch, size, mode="bilinear", align_corners=False)


# ---- warp, mask, error ---------------------------------------------------------------------------------------------

def warp(following: torch.Tensor, flow: torch.Tensor) -> torch.Tensor:
    """Moves the next frames back: the value at x is following(x + flow(x)), bilinear, 0 outside the picture.

    (N, C, H, W) and (N, 2, H, W) in px -> (N, C, H, W). Pixel centres are whole numbers (align_corners=True).
    """
    x, y = _targets(flow)
    height, width = flow.shape[2:]
    grid = torch.stack([2 * x / max(width - 1, 1) - 1, 2 * y / max(height - 1, 1) - 1], dim=-1)  # (N, H, W, 2)
    return F.grid_sample(following, grid, mode="bilinear", padding_mode="zeros", align_corners=True)


def _targets(flow: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Where every pixel goes: x and y, (N, H, W) px."""
    height, width = flow.shape[2:]
    columns = torch.arange(width, dtype=flow.dtype)
    rows = torch.arange(height, dtype=flow.dtype)
    return columns + flow[:, 0], rows[:, None] + flow[:, 1]


def visible(forward: torch.Tensor, backward: torch.Tensor) -> torch.Tensor:
    """Pixels whose flow can be trusted, bool (N, H, W), from the flows (N, 2, H, W) there and back, in px.

    Out: a pixel that leaves the picture; an occluded one, |F + B|^2 > 0.01 (|F|^2 + |B|^2) + 0.5 with B the backward
    flow where the pixel went; a motion boundary, |grad u|^2 + |grad v|^2 > 0.01 |F|^2 + 0.002.
    """
    back = warp(backward, forward)
    size, size_back = _squared(forward), _squared(back)
    occluded = _squared(forward + back) > 0.01 * (size + size_back) + 0.5
    boundary = _squared_gradient(forward) > 0.01 * size + 0.002
    return _inside(forward) & ~occluded & ~boundary


def _squared(flow: torch.Tensor) -> torch.Tensor:
    return flow[:, 0].square() + flow[:, 1].square()  # (N, H, W)


def _squared_gradient(flow: torch.Tensor) -> torch.Tensor:
    """Squared forward differences of u and v along x and y, added up; 0 past the last row and column. (N, H, W)."""
    across = F.pad(flow[..., 1:] - flow[..., :-1], (0, 1))
    down = F.pad(flow[..., 1:, :] - flow[..., :-1, :], (0, 0, 0, 1))
    return _squared(across) + _squared(down)


def _inside(flow: torch.Tensor) -> torch.Tensor:
    (x, y), (height, width) = _targets(flow), flow.shape[2:]
    return (x >= -REACH_PX) & (x <= width - 1 + REACH_PX) & (y >= -REACH_PX) & (y <= height - 1 + REACH_PX)


def warping_error(frames: torch.Tensor, following: torch.Tensor, flow: torch.Tensor,
                  valid: torch.Tensor) -> torch.Tensor:
    """Mean squared error over valid pixels and channels of warp(following, flow) against frames, (N,) in [0, 1].

    frames, following: (N, C, H, W) in [0, 1].  flow: (N, 2, H, W) px.  valid: bool (N, H, W). NaN without a valid one.
    """
    error = (warp(following, flow) - frames).square().mean(1)  # (N, H, W)
    return torch.where(valid, error, torch.zeros_like(error)).sum((1, 2)) / valid.sum((1, 2))


# ---- of a video ----------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class VideoFlow:
    """Flow of every adjacent pair of a video. forward: float64 (T - 1, 2, H, W) px.  valid: bool (T - 1, H, W)."""

    forward: torch.Tensor
    valid: torch.Tensor

    def valid_share(self) -> np.ndarray:
        """Share of valid pixels of each pair, (T - 1,) in [0, 1]."""
        return self.valid.double().mean((1, 2)).numpy()

    def errors(self, frames: np.ndarray) -> np.ndarray:
        """Warping error of each adjacent pair of uint8 (T, H, W, 3) along this flow, (T - 1,)."""
        unit = torch.from_numpy(np.ascontiguousarray(np.moveaxis(frames, 3, 1))).double() / 255  # (T, 3, H, W)
        return warping_error(unit[:-1], unit[1:], self.forward, self.valid).numpy()


def flow_of(frames: np.ndarray, estimate: Estimate) -> VideoFlow:
    """Flow and mask of uint8 (T, H, W, 3), T >= 2. A pair of frames that comes again, frozen, is looked at once."""
    distinct, which = without_repeats(frames)
    pairs, again = np.unique(np.stack([which[:-1], which[1:]]), axis=1, return_inverse=True)  # (2, N), (T - 1,)
    first, second = distinct[pairs[0]], distinct[pairs[1]]
    there, back = (torch.from_numpy(np.ascontiguousarray(flow)).double()
                   for flow in (estimate(first, second), estimate(second, first)))
    valid = visible(there, back)
    return VideoFlow(there[again], valid[again])


class FlowMetric(VideoMetric):
    """A metric that reads optical flow: `dis` or `raft`, by the name of its variant."""

    def __init__(self, *, flow: str = "dis"):
        self.flow = flow

    def load(self, assets: Mapping[str, Any], ctx: Context) -> None:
        self.estimate = flow_estimator(self.flow)
