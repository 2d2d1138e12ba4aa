"""RVRT, the recurrent video restoration transformer (Liang et al., NeurIPS 2022, arXiv:2206.02146), at scale 1.

Two strided convolutions -> features at a quarter of the size -> four passes over clips of two frames (backward,
forward, backward, forward), each of which lays what it carries over the next clip by guided deformable attention
along the optical flow -> the features of all passes -> pixel shuffle -> added to the input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import nn
from torch.nn import functional as F

from bench.nets.deform import GuidedDeformableAttention
from bench.nets.spynet import SpyNet, compose
from bench.nets.windows import Backbone, Sizes

CLIP = 2  # frames of a clip of the recurrence
PASSES = ("backward_1", "forward_1", "backward_2", "forward_2")
SHARE = 0.4  # of the clip at hand in the running mean that a direct pass starts as
SCALE = 4  # how much smaller the features are


@dataclass(frozen=True)
class RVRTSize:
    """Sizes of a network. `blocks`: residual groups of window attention before, in each pass, and after."""

    width: int
    blocks: tuple[int, int, int]
    depth: tuple[int, int, int]  # layers of a group, likewise
    heads: int  # of window attention
    aligners: int  # heads of the deformable attention
    groups: int  # of the input convolution of each pass and of the last stage
    reach: float  # px of the features: the largest learned offset
    matching: int  # channels of its queries and keys
    hidden: int  # channels of the offset network
    picture: int  # channels at full size
    flow_levels: int
    flow_widths: tuple[int, int, int, int]
    direct: bool = False  # levels pass around the norms, and each pass starts as a running mean (ours)
    window: Sizes = (CLIP, 8, 8)


SIZES = {
    "tiny": RVRTSize(width=32, blocks=(1, 1, 1), depth=(2, 1, 2), heads=2, aligners=2, groups=1, reach=3.0, matching=8,
                     hidden=16, picture=16, flow_levels=3, flow_widths=(8, 16, 16, 8), direct=True),
    "paper": RVRTSize(width=192, blocks=(1, 2, 1), depth=(2, 2, 2), heads=6, aligners=12, groups=3, reach=10.0,
                      matching=192, hidden=64, picture=64, flow_levels=6, flow_widths=(32, 64, 32, 16)),
}


class RVRT(nn.Module):
    """(N, T, 3, H, W) in about 0 .. 1 -> the same shape.

    An odd T is filled up by repeating the last frame, sides by repeating the border. Both last layers start at zero:
    training starts from a copy of the input. They see the input too, one (`around`) without a rectifier (ours): narrow
    features at a quarter of the size could not take back what the copy brings, such as the edges of a mosaic.

    With `direct` (ours, for a short training) every pass starts as a mean that runs over the clips: what is carried
    starts as the first clip and moves by SHARE towards each further one, in features that keep their strength.
    """

    def __init__(self, size: RVRTSize):
        super().__init__()
        self.size, c = size, size.width
        common: dict = {"heads": size.heads, "window": size.window, "direct": size.direct}
        self.flow = SpyNet(size.flow_levels, size.flow_widths)
        self.shrink = nn.Sequential(nn.Conv2d(3, c, 3, stride=2, padding=1), nn.LeakyReLU(0.1),
                                    nn.Conv2d(c, c, 3, stride=2, padding=1), nn.LeakyReLU(0.1))
        self.shallow = Backbone(c, c, blocks=size.blocks[0], depth=size.depth[0], **common)
        self.align = nn.ModuleDict({name: GuidedDeformableAttention(
            c, size.aligners, reach=size.reach, hidden=size.hidden, matching=size.matching) for name in PASSES})
        self.step = nn.ModuleDict({name: Backbone(
            (2 + i) * c, c, blocks=size.blocks[1], depth=size.depth[1], groups=_divides(size.groups, (2 + i) * c),
            turn=i % 2 if size.depth[1] == 1 else 0, **common) for i, name in enumerate(PASSES)})
        self.merge = Backbone((1 + len(PASSES)) * c, c, blocks=size.blocks[2], depth=size.depth[2],
                              groups=_divides(size.groups, 5 * c), **common)
        self.enlarge = nn.Sequential(
            nn.Conv2d(c, 4 * size.picture, 3, padding=1), nn.PixelShuffle(2), nn.LeakyReLU(0.1),
            nn.Conv2d(size.picture, 4 * size.picture, 3, padding=1), nn.PixelShuffle(2), nn.LeakyReLU(0.1))
        self.finish = nn.Sequential(nn.Conv2d(size.picture + 3, size.picture, 3, padding=1), nn.LeakyReLU(0.1),
                                    nn.Conv2d(size.picture, 3, 3, padding=1))
        self.around = nn.Conv2d(size.picture + 3, 3, 3, padding=1)
        for layer in (*self.shrink, *self.enlarge, *self.finish):
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, a=0.1)
        for last in (self.finish[-1], self.around):
            nn.init.zeros_(last.weight)  # type: ignore[arg-type]
            nn.init.zeros_(last.bias)  # type: ignore[arg-type]
        if size.direct:
            for step in self.step.values():
                start_as_mean(cast(Backbone, step).inside, c)

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        padded = filled(clips, CLIP, SCALE * self.size.window[1])
        n, t, _, height, width = padded.shape
        small = self.shrink(padded.flatten(0, 1) - 0.5)
        every = self.shallow(small.view(n, t, -1, height // SCALE, width // SCALE))  # (N, T, C, h, w)
        to_next, to_last = self.flows(padded)
        for name in PASSES:
            backward = name.startswith("backward")
            here, flows = (every.flip(1), to_next.flip(1)) if backward else (every, to_last)
            carried = self.propagate(name, here, flows)
            every = torch.cat([every, carried.flip(1) if backward else carried], dim=2)
        large = self.enlarge(self.merge(every).flatten(0, 1))
        seen = torch.cat([large, padded.flatten(0, 1) - 0.5], dim=1)
        picture = (self.finish(seen) + self.around(seen)).view_as(padded)
        return clips + picture[:, :clips.shape[1], :, :clips.shape[3], :clips.shape[4]]

    def flows(self, clips: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Two (N, T - 1, 2, h, w) in px of the features: from frame t to t + 1, and from t + 1 to t."""
        n, t = clips.shape[:2]
        small = F.avg_pool2d(clips.flatten(0, 1), SCALE).view(n, t, 3, *(s // SCALE for s in clips.shape[3:]))
        former, later = small[:, :-1].flatten(0, 1), small[:, 1:].flatten(0, 1)
        both = self.flow(torch.cat([former, later]), torch.cat([later, former]))
        to_next, to_last = both.view(2, n, t - 1, *both.shape[1:])
        return to_next, to_last

    def propagate(self, name: str, every: torch.Tensor, flows: torch.Tensor) -> torch.Tensor:
        """One pass in the order given: (N, T, C k, h, w) of all features so far, newest last -> (N, T, C, h, w).

        flows: (N, T - 1, 2, h, w), [t] from frame t + 1 to frame t. Only what is carried is worked on clip by clip;
        what is known before is read, and the places where the alignment looks are found, for all clips at once.
        """
        align, step = cast(GuidedDeformableAttention, self.align[name]), cast(Backbone, self.step[name])
        c = self.size.width
        newest = every[:, :, -c:].unflatten(1, (-1, CLIP))  # (N, K, 2, C, h, w)
        known = step.read(every).unflatten(1, (-1, CLIP)).unbind(1)
        carried = newest[:, 0] if self.size.direct else torch.zeros_like(newest[:, 0])
        matched: list[tuple[torch.Tensor, ...]] = []
        if len(known) > 1:
            both = align.match(*(part.flatten(0, 1) for part in (newest[:, 1:], newest[:, :-1], clip_flows(flows))))
            matched = list(zip(*(part.unflatten(0, (len(every), -1)).unbind(1) for part in both)))
        made: list[torch.Tensor] = []
        for k, here in enumerate(known):
            if made:
                carried = align.lay(carried, *matched[k - 1])
            carried = carried + step.work(here + step.read(carried, first=every.shape[2]))
            made.append(carried)
        return torch.cat(made, dim=1)


def clip_flows(flows: torch.Tensor) -> torch.Tensor:
    """Flows between clips: (N, T - 1, 2, h, w), [t] from frame t + 1 to t -> (N, T / 2 - 1, 2, 2, 2, h, w).

    [n, k, q, p]: from frame q of clip k + 1 to frame p of clip k; longer ways are composed of the short ones.
    """
    n, steps, _, height, width = flows.shape
    if steps < CLIP:  # one clip has no neighbour
        return flows.new_zeros(n, 0, CLIP, CLIP, 2, height, width)
    inner, border, later = flows[:, :-2:2], flows[:, 1:-1:2], flows[:, 2::2]  # p1 -> p0, c0 -> p1, c1 -> c0
    near = border.flatten(0, 1)
    far = compose(near, inner.flatten(0, 1))  # c0 -> p0
    first = torch.stack([far, near], dim=1)
    back = later.flatten(0, 1)
    second = torch.stack([compose(back, far), compose(back, near)], dim=1)
    return torch.stack([first, second], dim=1).view(n, steps // CLIP, 2, 2, 2, height, width)


def filled(clips: torch.Tensor, frames: int, side: int) -> torch.Tensor:
    """T to a multiple of `frames`, sides to multiples of `side`, by repeating the last frame and the border."""
    missing = -clips.shape[1] % frames
    if missing:
        clips = torch.cat([clips, clips[:, -1:].expand(-1, missing, -1, -1, -1)], dim=1)
    below, right = -clips.shape[3] % side, -clips.shape[4] % side
    if below or right:
        flat = F.pad(clips.flatten(0, 1), (0, right, 0, below), mode="replicate")
        clips = flat.view(*clips.shape[:2], *flat.shape[1:])
    return clips


def _divides(groups: int, channels: int) -> int:
    return groups if channels % groups == 0 else 1


def start_as_mean(convolution: nn.Conv2d, width: int) -> None:
    """Input convolution of a pass: SHARE times (newest features - what is carried), and a little of all the rest."""
    with torch.no_grad():
        convolution.weight *= 0.3
        middle, given = torch.arange(width), convolution.in_channels
        convolution.weight[middle, given - 2 * width + middle, 1, 1] += SHARE
        convolution.weight[middle, given - width + middle, 1, 1] -= SHARE
        convolution.bias.zero_()  # type: ignore[union-attr]
