"""SPAct with a reader that must tell apart different times of one video."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from bench import CLIP_FRAMES, DataError, method
from bench.nets.adversarial import SIZES, SelfSupervisedAnonymizer, clip_at, seen_clips
from bench.nets.clip_readers import ClipReader
from bench.nets.contrastive import Stream
from bench.nets.minimax import Acts
from bench.nets.nested_unet import NestedUNet, load_published

MARGIN = 1.0
TRIPLET_WEIGHT = 0.1
READERS = {"tiny": "x3d", "paper": "i3d"}
PUBLISHED_PX = 224  # side at which the published anonymizer was trained


@method("ted_spad")
class TedSpad(SelfSupervisedAnonymizer):
    """Plays the game of SPAct (anonymizer f_A, label-free privacy network f_B, reader f_T, moves in turn with frozen
    opponents, f_A first trained to copy) with another reader: beside naming the expression, f_T must keep times apart.

        f_A descends  L_A = - L_B + 0.7 L_T           f_B descends L_B = NT-Xent of two views of one frame, tau 0.1
        f_T descends  L_T = cross entropy + 0.1 max(0, |e(a) - e(p)| - |e(a) - e(n)| + 1)

    e is a unit vector of 128 from f_T and two more layers; a is a clip, the positive p the same frames of it seen
    otherwise (crop, mirror, colour), the negative n a clip of the same video at another time. So f_A must leave what
    changes over time. It promises nothing: as in SPAct, it hides what one opponent found. Fitting reads expressions and
    no identity.

    Kept of the method: the above with its weights, margin and embedding; the anonymizer learns at 0.4 of the others'
    rate. `paper`: U-Net++ on a ResNet-18 without a sigmoid, ResNet-50, I3D on a ResNet-50, all started at random, 224
    px, 16 frames, batches of 8 videos and 12 frames, rate 1e-5. `tiny` scales as `spact` does: its U-Net with a
    sigmoid, its privacy network, the shared X3D as reader, 4 videos a batch, 90 rounds, larger rates. Ours by
    inference: faces and expressions in place of photographs and actions; a and n never share a frame; a, p and n pass
    f_T in one batch; the number of steps, rates in `tiny`, gradients cut at norm 5.

    Source: Fioresi, Dave and Shah, TeD-SPAD, ICCV 2023; official code under the MIT licence. Its published anonymizer
    can be used as it is: give the checkpoint (`weights`) and its SHA-256 (`sha256`), then `fit` trains nothing. It was
    trained on scenes of actions, not on faces. Written anew, no code copied.
    """

    needs = frozenset({"expression"})
    assets = ("expression_method",)
    sizes = {"tiny": replace(SIZES["tiny"], clips=4, rounds=90, anonymizer_rate=8e-4, privacy_rate=2e-3),
             "paper": replace(SIZES["paper"], side_px=224, view_px=224, clips=8, views=12, anonymizer_rate=4e-6,
                              privacy_rate=1e-5, reader_rate=1e-5)}

    def __init__(self, *, privacy_weight: float = 1.0, utility_weight: float = 0.7, weights: str = "",
                 sha256: str = ""):
        super().__init__(privacy_weight=privacy_weight, utility_weight=utility_weight)
        self.weights, self.sha256 = weights, sha256

    def fit(self, data, assets, ctx) -> None:
        """Train, or take the published anonymizer. Raises WeightsMissing or DataError when that is not whole."""
        if not self.weights:
            super().fit(data, assets, ctx)
            return
        self.side_px, self.anonymizer = PUBLISHED_PX, NestedUNet()
        load_published(self.weights, self.sha256, self.anonymizer)
        self.anonymizer.eval()

    def check(self, development) -> None:
        if all(len(video) < 2 for video in development.videos):
            raise DataError("No development video has two frames.", "The method compares two times of one video.",
                            "Use longer videos, or `spact`.")

    def new_anonymizer(self, profile: str) -> nn.Module:
        return NestedUNet() if profile == "paper" else super().new_anonymizer(profile)

    def anonymizer_of(self, tensors: Mapping[str, torch.Tensor]) -> nn.Module:
        return NestedUNet() if "encoder.conv1.weight" in tensors else super().anonymizer_of(tensors)

    def reader(self, classes: int, profile: str, start: Mapping[str, torch.Tensor]) -> ClipReader:
        return ClipReader(READERS[profile], classes, start=start if profile == "tiny" else None, embeds=True)

    def reader_loss(self, acts: Acts) -> torch.Tensor:
        """L_T: cross entropy of the anchor plus the weighted triplet."""
        logits, features = self.read(torch.cat([acts.clips, acts.again, acts.later]))
        anchor, positive, negative = features.chunk(3)
        triplet = F.triplet_margin_loss(anchor, positive, negative, margin=MARGIN)
        return self.cross_entropy(logits[:len(acts.clips)], acts.expressions) + TRIPLET_WEIGHT * triplet

    def draw_acts(self, development, rng: np.random.Generator, views: Stream, sizes) -> Acts:
        """Anchors, positives (the same frames, seen otherwise) and negatives (other frames) of random videos."""
        usable = [i for i, video in enumerate(development.videos) if len(video) >= 2]
        numbers = rng.choice(usable, sizes.clips)
        now, later = [], []
        for i in numbers:
            frames = development.videos[i]
            first, second, length = two_times(len(frames), rng)
            now.append(clip_at(frames, first, length, sizes.frames, rng))
            later.append(clip_at(frames, second, length, sizes.frames, rng))
        return Acts(seen_clips(now, views), torch.from_numpy(development.labels["expression"][numbers]),
                    seen_clips(now, views), seen_clips(later, views))


def two_times(frames: int, rng: np.random.Generator) -> tuple[int, int, int]:
    """First frames of two stretches of one video that share no frame, in random order, and their length (16 or less).

    frames: of the video, at least 2.
    """
    length = min(CLIP_FRAMES, frames // 2)
    early = int(rng.integers(frames - 2 * length + 1))
    late = int(rng.integers(early + length, frames - length + 1))
    return (early, late, length) if rng.random() < 0.5 else (late, early, length)
