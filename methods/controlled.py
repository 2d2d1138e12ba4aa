"""Controlled: identity pushed out of both wavelet bands, expression painted back in by a network that never saw it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from bench import Anonymizer, DataError, Diverged, Video, method
from bench.nets.descent import Descent, Pace, batches
from bench.nets.development import as_frames, as_pictures, classes, frames_of, mirrored, some_of
from bench.nets.image import frame_classifier
from bench.nets.judges import scaled
from bench.nets.sigmoid_unet import SigmoidUNet
from bench.nets.states import fill, frozen, packed, part_of
from bench.nets.training import load_matching
from bench.nets.wavelet import join_bands, split_bands

ASSET = "feature_method"  # a resnet10t that knows attributes and expressions of public people
FRAMES_AT_ONCE = 32


@dataclass(frozen=True)
class Size:
    """Channels of the three U-Nets, networks of the controllers, epochs and rates of each stage, in this order:
    U-Nets copy, identity controllers, stage 1, expression controller, compensator copies, stage 2.
    videos: most development videos that are read; where there are more, as many are drawn.
    """

    low: int
    high: int
    compensator: int
    controller: str
    start: str | None
    videos: int
    frames_per_video: int
    batch: int
    epochs: tuple[int, int, int, int, int, int]
    rates: tuple[float, float, float, float, float, float]


SIZES = {
    "tiny": Size(low=8, high=4, compensator=8, controller="resnet10t", start=ASSET, videos=300, frames_per_video=3,
                 batch=32, epochs=(6, 3, 2, 2, 3, 2), rates=(3e-3, 2e-3, 3e-4, 1e-3, 3e-3, 1e-3)),
    "paper": Size(low=64, high=64, compensator=64, controller="resnet50", start=None, videos=100_000,
                  frames_per_video=16, batch=32, epochs=(200, 200, 300, 200, 200, 300),
                  rates=(1e-5, 1e-4, 1e-4, 1e-4, 1e-5, 1e-4)),
}


@method("controlled")
class Controlled(Anonymizer):
    """Splits every frame by one level of the Haar wavelet, changes the coarse and the fine bands by a U-Net each,
    joins them, and lets a third network bring the expression back: released = F_fc(IDWT(F_lpr(low), F_hpr(high))).
    Stage 1 trains F_lpr and F_hpr to minimise - CE(C(F(band)), person) against identity controllers C that are frozen;
    stage 2 trains F_fc alone to minimise CE(C_fc(F_fc(y)), expression) on the frames y of stage 1, C_fc frozen. F_fc
    never sees an original frame. `@stage1` releases y, without compensation. It promises nothing: identity is hidden
    from two fixed networks, and an attacker who trains on released frames is another one.

    Kept: the single-level split, two separate networks, frozen controllers with the sign of their cross entropy turned
    and no bound on it, rejoining, compensation under a frozen expression controller; U-Nets that first learn to copy
    by L1. Scaled: in `tiny` narrow U-Nets, small ResNets, a few epochs of 300 videos at most; a U-Net stands in for the
    compensator (the published one is U-ViT, 28 layers of width 1,152 behind a latent autoencoder) in `paper` too. Ours
    by inference: the published code does not run, so these are readings of it. The three fine bands are three pictures
    for one U-Net of three channels; what stage 1 made is rounded to 8 bits before it is compensated; each controller
    learns people on its own band, and expressions on single original frames, in `tiny` from the shared network
    `feature_method`; F_fc starts as a copy of what it reads; nothing but its few steps keeps stage 1 from wiping out
    the whole picture, since its loss has no bound. No weights are published, so none can be loaded.

    Source: Xu, Ahmedt-Aristizabal, Petersson, Wang and Li, "Facial Expression Recognition with Controlled Privacy
    Preservation and Feature Compensation", WACV 2025, arXiv:2412.00277; of the paper its abstract and figure were
    read, and fengxxu/ppfer, which has no licence file; written anew, no code copied.
    """

    fits = True
    needs = frozenset({"identity", "expression"})
    assets = (ASSET,)
    variants = {"stage1": {"compensation": False}}

    def __init__(self, *, compensation: bool = True):
        self.compensation = compensation
        self.networks: dict[str, nn.Module] = {}  # low, high and compensator, after fit or load
        self.controllers: dict[str, nn.Module] = {}  # low, high and expression, after fit; a release needs none

    def _build(self, low: int, high: int, compensator: int) -> None:
        self._design = np.array([low, high, compensator])
        self.networks = {"low": SigmoidUNet(low), "high": SigmoidUNet(high)}
        if compensator:
            self.networks["compensator"] = SigmoidUNet(compensator)

    # ---- stages ----------------------------------------------------------------------------------------------------

    def fit(self, data: Any, assets: Mapping[str, Any], ctx: Any) -> None:
        """All stages, on frames of the training people. Raises Diverged when a loss is not finite or does not fall."""
        size = SIZES[ctx.profile]
        videos = some_of(data.train, size.videos, ctx.rng("videos"))
        people, faces = classes(videos, "identity"), classes(videos, "expression")
        frames, owners = frames_of(videos, size.frames_per_video, ctx.rng("frames"))
        torch.manual_seed(ctx.torch_seed("weights"))
        self._build(size.low, size.high, size.compensator if self.compensation else 0)
        teacher, started = _Teacher(size, ctx), self._started(size, int(faces.max()) + 1, assets)
        for name in ("low", "high"):
            self._suppress(name, teacher, frames, torch.from_numpy(people[owners]))
        if self.compensation:
            expressions = torch.from_numpy(faces[owners])
            teacher.learn(3, "expression controller", started, frames,
                          lambda x, i: F.cross_entropy(started(scaled(x)), expressions[i]))
            self.controllers["expression"] = frozen(started)
            self._compensate(teacher, self._suppressed(frames), expressions)
        for network in self.networks.values():
            network.eval()

    def _started(self, size: Size, expressions: int, assets: Mapping[str, Any]) -> nn.Module:
        """The expression controller before it is tuned. Raises DataError for an asset of another architecture."""
        controller = frame_classifier(size.controller, expressions)
        if size.start and self.compensation:
            try:
                load_matching(controller, {k: torch.from_numpy(np.array(v)) for k, v in assets[size.start].items()})
            except ValueError as error:
                raise DataError(f"The asset {size.start} does not fit {size.controller}: {error}.",
                                "The expression controller starts from it.", "Train the asset again.") from error
        return controller

    def _suppress(self, name: str, teacher: _Teacher, frames: np.ndarray, people: torch.Tensor) -> None:
        """One band: its network learns to copy, a controller learns people on it, rests, and is led astray."""
        network = self.networks[name]
        controller = frame_classifier(teacher.size.controller, int(people.max()) + 1)

        def band(x: torch.Tensor) -> torch.Tensor:
            return _bands(x)[name]

        def named(pictures: torch.Tensor, index: np.ndarray) -> torch.Tensor:
            each = people[index].repeat_interleave(len(pictures) // len(index))  # fine bands are three pictures
            return F.cross_entropy(controller(scaled(pictures)), each)

        teacher.learn(0, f"{name}: copying", network, frames, lambda x, i: (network(band(x)) - band(x)).abs().mean())
        teacher.learn(1, f"{name}: identity controller", controller, frames, lambda x, i: named(band(x), i))
        self.controllers[name] = frozen(controller)
        teacher.learn(2, f"{name}: stage 1", network, frames, lambda x, i: -named(network(band(x)), i))
        network.eval()

    def _compensate(self, teacher: _Teacher, suppressed: np.ndarray, expressions: torch.Tensor) -> None:
        """Stage 2, on frames of stage 1 alone."""
        network, controller = self.networks["compensator"], self.controllers["expression"]
        teacher.learn(4, "compensator: copying", network, suppressed, lambda y, i: (network(y) - y).abs().mean())
        teacher.learn(5, "compensator: stage 2", network, suppressed, lambda y, i: F.cross_entropy(
            controller(scaled(network(y))), expressions[i]))

    # ---- release ---------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def _suppressed(self, frames: np.ndarray) -> np.ndarray:
        """What stage 1 makes of frames, uint8 (N, H, W, 3)."""
        made = []
        for start in range(0, len(frames), FRAMES_AT_ONCE):
            pictures = as_pictures(frames[start:start + FRAMES_AT_ONCE])
            bands = _bands(pictures)
            low, high = self.networks["low"](bands["low"]), self.networks["high"](bands["high"])
            joined = join_bands(2 * low, (2 * high - 1).unflatten(0, (-1, 3)), *pictures.shape[2:])
            made.append(_checked(joined))
        return np.concatenate(made)

    @torch.inference_mode()
    def release(self, video: Video, rng: np.random.Generator) -> Video:
        """uint8 (T, H, W, 3), each frame for itself; `rng` is not read. Raises Diverged when weights hold a NaN."""
        frames = self._suppressed(video.frames)
        if self.compensation:
            frames = np.concatenate([_checked(self.networks["compensator"](as_pictures(frames[i:i + FRAMES_AT_ONCE])))
                                     for i in range(0, len(frames), FRAMES_AT_ONCE)])
        return Video(frames, video.fps)

    def state(self) -> Mapping[str, np.ndarray]:
        return {"design": self._design, **packed(**self.networks)}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Raises DataError for weights of another architecture or variant, or with a NaN."""
        if len(state.get("design", ())) != 3 or bool(state["design"][2]) != self.compensation:
            raise DataError("The state is not of this variant of controlled.",
                            "It must hold two networks, and the compensator when there is compensation.",
                            "Fit the method again.")
        self._build(*(int(number) for number in state["design"]))
        for name, network in self.networks.items():
            fill(network, part_of(state, name), f"controlled's network {name}")


class _Teacher:
    """Trains one network at a time on drawn frames, at the sizes of a profile."""

    def __init__(self, size: Size, ctx: Any):
        self.size, self.ctx = size, ctx

    def learn(self, stage: int, what: str, network: nn.Module, frames: np.ndarray,
              loss: Callable[[torch.Tensor, np.ndarray], torch.Tensor]) -> None:
        """Minimise loss(pictures in 0 .. 1, their numbers) over this network alone. Raises Diverged."""
        rng = self.ctx.rng(what)
        plan = batches(len(frames), self.size.batch, self.size.epochs[stage], rng)
        descent = Descent(what, [(network, 1.0)], Pace(self.size.rates[stage]), len(plan))
        network.train()
        for index in plan:
            descent.step(loss(mirrored(frames[index], rng), index))
        self.ctx.report("{}: {:.3f} -> {:.3f}".format(what, *descent.ends()))
        descent.check()


def _bands(pictures: torch.Tensor) -> dict[str, torch.Tensor]:
    """Both bands as pictures in 0 .. 1: low (N, 3, h, w), high (3 N, 3, h, w), the three of a frame in a row."""
    low, high = split_bands(pictures)
    return {"low": low / 2, "high": (high.flatten(0, 1) + 1) / 2}


def _checked(pictures: torch.Tensor) -> np.ndarray:
    if not torch.isfinite(pictures).all():
        raise Diverged("the networks gave values that are not finite")
    return as_frames(pictures)
