"""MinusFace: the picture minus its regeneration, channels shuffled anew in every frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from bench import Anonymizer, DataError, Diverged, Video, method
from bench.nets.block_dct import GREY, FrequencyCodec
from bench.nets.descent import Descent, Pace, batches, cosine, drops
from bench.nets.development import as_frames, as_pictures, classes, frames_of, mirrored
from bench.nets.feature_unet import FeatureUNet
from bench.nets.recogniser import Recogniser
from bench.nets.states import fill, packed, part_of

REGENERATION, RECOGNITION = 5.0, 1.0  # weights of the two losses of stage 1
FRAMES_AT_ONCE = 64


@dataclass(frozen=True)
class Size:
    """How large and how long. epochs: of stage 1 and stage 2.  copies: shuffles of a frame that stage 2 reads.

    generator_rate: the generator's share of the recogniser's rate; the official README advises .1.
    """

    factor: int
    widths: tuple[int, ...]
    backbone: str
    frames_per_video: int
    epochs: tuple[int, int]
    batch: int
    pace: Pace
    generator_rate: float
    copies: int


SIZES = {
    "tiny": Size(factor=4, widths=(16, 32, 64), backbone="narrow", frames_per_video=3, epochs=(4, 1), batch=32,
                 pace=Pace(rate=1e-2, adam=True, weight_decay=5e-4, schedule=cosine),
                 generator_rate=0.2, copies=3),
    "paper": Size(factor=8, widths=(64, 128, 256, 512, 1024), backbone="ir18", frames_per_video=16, epochs=(24, 24),
                  batch=64, pace=Pace(rate=1e-2, adam=False, weight_decay=5e-4, schedule=drops(10 / 24, 18 / 24,
                                                                                             22 / 24)),
                  generator_rate=0.1, copies=3),
}


@method("minusface")
class MinusFace(Anonymizer):
    """Releases what a generator fails to regenerate, scrambled. With E(x) = DCT(YCbCr(enlarge(x))), 192 channels of
    8 x 8 px blocks, and D its inverse, the residue is r = E(x) - g(E(x)) and every frame is released as
    D(r[pi]), pi a fresh permutation of all 192 channels. It is made to hide a face from the eye and to keep it
    recognisable for a network that was trained on such frames: high identity accuracy of an adapted attacker is its
    aim and no fault of the attack. It promises nothing else; the permutation is no key, two releases of a frame differ.

    Stage 1 trains the U-Net g and a face network f together on 5 |x - D(g(E(x)))|_1 + 1 ArcFace(f(r)), the generator
    at a slower rate; in stage 2 g is frozen and f learns anew from 3 shuffled releases of each frame.

    Kept: the order of these steps, the block DCT after enlargement, the residue in the domain of frequencies, the
    weights 5 : 1, ArcFace with s 64 and m .5, shuffling before decoding, in `paper` also the sizes (enlarged 8 times,
    34.6 million numbers, IR-18 on 112 px, 24 + 24 epochs). Scaled in `tiny`: enlarged 4 times, so that one block
    stands on 2 x 2 px; a U-Net of two halvings; three IR units; a few epochs of Adam, the generator at a fifth of the
    rate instead of a tenth. Ours by inference: frames of a video are shuffled one by one; a release is rounded to 8
    bits; frequencies are those of values in 0 .. 1, not 0 .. 255; half of the frames are mirrored in training. The
    sparsity loss, of weight 0 in the official code, is left out. No weights are published, so none can be loaded.

    Source: Mi, Zhong, Huang, Ji, Xu, Wang, Wang, Ding and Zhou, "Privacy-Preserving Face Recognition Using Trainable
    Feature Subtraction", CVPR 2024; read against recognition/tasks/minusface of Tencent/TFace, whose licence file
    was not found; written anew, no code copied.
    """

    fits = True
    needs = frozenset({"identity"})
    random_release: ClassVar[bool] = True  # two releases of one video differ, so the harness may ask for several

    def __init__(self) -> None:
        self.generator: FeatureUNet  # g, after fit or load
        self.recogniser: Recogniser | None = None  # f of stage 2, after fit; a release does not need it

    def _build(self, factor: int, widths: Sequence[int]) -> None:
        self.codec = FrequencyCodec(factor)
        self.generator = FeatureUNet(self.codec.channels, widths)
        self._design = np.array([factor, *widths])

    # ---- stages ----------------------------------------------------------------------------------------------------

    def fit(self, data: Any, assets: Mapping[str, Any], ctx: Any) -> None:
        """Both stages, on frames of the training people. Raises Diverged when a loss is not finite or does not fall."""
        size = SIZES[ctx.profile]
        people = classes(data.train, "identity")
        frames, owners = frames_of(data.train, size.frames_per_video, ctx.rng("frames"))
        torch.manual_seed(ctx.torch_seed("weights"))
        self._build(size.factor, size.widths)
        targets = torch.from_numpy(people[owners])
        self._learn_residue(frames, targets, size, ctx)
        self._learn_releases(frames, targets, size, ctx)

    def _learn_residue(self, frames: np.ndarray, people: torch.Tensor, size: Size, ctx: Any) -> None:
        """Stage 1: generator and face network, each on its own rate."""
        network = Recogniser(self.codec.channels, int(people.max()) + 1, size.backbone)
        rng = ctx.rng("stage 1")
        plan = batches(len(frames), size.batch, size.epochs[0], rng)
        descent = Descent("stage 1", [(self.generator, size.generator_rate), (network, 1.0)], size.pace, len(plan))
        self.generator.train()
        for index in plan:
            pictures = mirrored(frames[index], rng)
            whole = self.codec.encode(pictures)
            made = self.generator(whole)
            away = 2 * (pictures - self._seen(made, pictures)).abs().mean()  # of values in -1 .. 1, as published
            who = network.loss(whole - made, people[index])
            descent.step(REGENERATION * away + RECOGNITION * who, away, who)
        self.generator.eval()
        ctx.report("stage 1: L1 {:.3f} -> {:.3f}, ArcFace {:.2f} -> {:.2f}".format(*descent.ends(1), *descent.ends(2)))
        descent.check(1, "regeneration")
        descent.check(2, "recognition of residues")

    def _learn_releases(self, frames: np.ndarray, people: torch.Tensor, size: Size, ctx: Any) -> None:
        """Stage 2: the generator rests, a face network learns from shuffled releases, 3 channels a shuffle."""
        self.generator.requires_grad_(False)
        network = Recogniser(3 * size.copies, int(people.max()) + 1, size.backbone, self.codec.step)
        rng = ctx.rng("stage 2")
        plan = batches(len(frames), size.batch, size.epochs[1], rng)
        descent = Descent("stage 2", [(network, 1.0)], size.pace, len(plan))
        hits = []
        for index in plan:
            with torch.no_grad():
                residue = self.residue(pictures := mirrored(frames[index], rng))
                shown = [self.shown(residue, pictures, rng) for _ in range(size.copies)]
            embeddings = network(torch.cat(shown, 1))  # from (N, 3 copies, H, W)
            hits.append((network.head(embeddings.detach()).argmax(1) == people[index]).float().mean().item())
            descent.step(network.head.loss(embeddings, people[index]))
        self.recogniser = network.eval()
        ctx.report("stage 2: ArcFace {:.2f} -> {:.2f}, ".format(*descent.ends())
                   + f"{100 * np.mean(hits[-max(1, len(hits) // 4):]):.0f} % of training frames named")
        descent.check(0, "recognition of releases")

    # ---- release ---------------------------------------------------------------------------------------------------

    def residue(self, pictures: torch.Tensor) -> torch.Tensor:
        """(N, 3, H, W) in 0 .. 1 -> what the generator does not give back, (N, 192, h, w)."""
        whole = self.codec.encode(pictures)
        return whole - self.generator(whole)

    def shown(self, residue: torch.Tensor, pictures: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """Residues shuffled, each in an order of its own, and decoded: (N, 3, H, W) in 0 .. 1."""
        orders = np.stack([rng.permutation(residue.shape[1]) for _ in residue])  # (N, 192)
        shuffled = residue.gather(1, torch.from_numpy(orders)[:, :, None, None].expand_as(residue))
        return self._seen(shuffled, pictures)

    def _seen(self, frequencies: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        return (self.codec.picture(frequencies, *like.shape[2:]) + GREY).clamp(0, 1)

    @torch.inference_mode()
    def release(self, video: Video, rng: np.random.Generator) -> Video:
        """uint8 (T, H, W, 3). Raises DataError for frames smaller than 8 x 8 px, Diverged when they hold a NaN."""
        made = []
        for start in range(0, len(video), FRAMES_AT_ONCE):
            pictures = as_pictures(video.frames[start:start + FRAMES_AT_ONCE])
            shown = self.shown(self.residue(pictures), pictures, rng)
            if not torch.isfinite(shown).all():
                raise Diverged("the generator gave values that are not finite")
            made.append(as_frames(shown))
        return Video(np.concatenate(made), video.fps)

    def state(self) -> Mapping[str, np.ndarray]:
        return {"design": self._design, **packed(generator=self.generator)}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Raises DataError for weights of another architecture or with a NaN."""
        if "design" not in state:
            raise DataError("The state does not say which generator it holds.", "It is of another method.",
                            "Fit minusface again.")
        factor, *widths = (int(number) for number in state["design"])
        self._build(factor, widths)
        fill(self.generator, part_of(state, "generator"), "minusface's generator")
