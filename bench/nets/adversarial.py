"""What the adversarial anonymizers share: their batches, their state, the frame-by-frame release."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import cv2
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from bench.errors import DataError, Diverged
from bench.nets.clip_readers import ClipReader
from bench.nets.contrastive import FaceNet, nt_xent, seen, two_views
from bench.nets.development import as_frames, as_pictures, classes
from bench.nets.minimax import Acts, Faces, Game, Sizes
from bench.nets.sigmoid_unet import SigmoidUNet
from bench.nets.training import use_threads
from bench.types import CLIP_FRAMES, Anonymizer, Context, Video

SIZES = {
    "tiny": Sizes(frames=4, side_px=64, clips=6, views=16, view_px=48, reconstruct=100, introduce=40,
                  rounds=150, reconstruct_rate=3e-3, anonymizer_rate=1e-3, privacy_rate=1e-3, reader_rate=5e-4),
    "paper": Sizes(frames=16, side_px=112, clips=24, views=64, view_px=112, reconstruct=6000, introduce=6000,
                   rounds=60_000),  # 300 epochs of 9,537 videos, two batches a round
}
WIDTHS = {"tiny": 8, "paper": 64}  # channels of the U-Net's finest level
READERS = {"tiny": "x3d", "paper": "r3d"}
CLIP_CROP = 0.85  # smallest crop of a clip that the reader sees
RELEASED = 8  # frames that pass the network at once; always as many, so that a frame's bytes do not depend on others


class Development:
    """Training videos, uint8 (T, S, S, 3) with S at most `side_px`, beside the labels that a method declared.

    Raises DataError when a video has no such label, or when all have one and the same.
    """

    def __init__(self, samples: Sequence[Any], needs: frozenset[str], side_px: int):
        self.labels = {name: classes(samples, name) for name in sorted(needs)}
        self.videos = [fitted(sample.video.frames, side_px) for sample in samples]
        self.side_px = side_px

    def count(self, label: str) -> int:
        return int(self.labels[label].max()) + 1


class AdversarialAnonymizer(Anonymizer):
    """A method that plays the game of bench.nets.minimax and releases what its anonymizer makes of every frame.

    A method derives from it, says what it `needs` and how the privacy network learns: `privacy_network` and
    `privacy_loss`; the reader learns expressions by cross entropy. privacy_weight 0: a game without a privacy network.
    """

    fits = True
    sizes: ClassVar[Mapping[str, Sizes]] = SIZES

    def __init__(self, *, privacy_weight: float = 1.0, utility_weight: float = 1.0):
        self.privacy_weight, self.utility_weight = privacy_weight, utility_weight
        self.side_px = 0  # side at which the anonymizer reads a frame, after fit or load
        self.anonymizer: Any = None  # a torch Module, after fit or load
        self.game: Any = None  # the Game, after fit alone
        self.heard: list[float] = []  # cross entropy of the expression, of every move that read clips

    # ---- what a method says ------------------------------------------------------------------------------------

    def privacy_network(self, development: Development, profile: str) -> nn.Module:
        raise NotImplementedError

    def privacy_loss(self, faces: Faces, views: torch.Generator) -> torch.Tensor:
        raise NotImplementedError

    def new_anonymizer(self, profile: str) -> nn.Module:
        return SigmoidUNet(WIDTHS[profile])

    def reader(self, classes: int, profile: str, start: Mapping[str, torch.Tensor]) -> ClipReader:
        return ClipReader(READERS[profile], classes, start=start if profile == "tiny" else None)

    def reader_loss(self, acts: Acts) -> torch.Tensor:
        """L_T: cross entropy of the expression."""
        return self.cross_entropy(self.read(acts.clips)[0], acts.expressions)

    def draw_acts(self, development: Development, rng: np.random.Generator, views: torch.Generator,
                  sizes: Sizes) -> Acts:
        """Clips of random videos at a random time, each seen in one random way."""
        numbers = rng.integers(len(development.videos), size=sizes.clips)
        clips = [clip_at(development.videos[i], *_anywhere(len(development.videos[i]), rng), sizes.frames, rng)
                 for i in numbers]
        return Acts(seen_clips(clips, views), torch.from_numpy(development.labels["expression"][numbers]))

    # ---- the road ----------------------------------------------------------------------------------------------

    def fit(self, data: Any, assets: Mapping[str, Any], ctx: Context) -> None:
        use_threads()
        sizes = self.sizes[ctx.profile]
        development = Development(data.train, self.needs, sizes.side_px)
        self.check(development)
        torch.manual_seed(ctx.torch_seed("weights"))
        self.side_px, self.anonymizer = sizes.side_px, fast(self.new_anonymizer(ctx.profile))
        start = {k: torch.from_numpy(np.array(v)) for k, v in assets.get("expression_method", {}).items()}
        reader = self.reader(development.count("expression"), ctx.profile, start)
        privacy = self.privacy_network(development, ctx.profile) if self.privacy_weight else None
        self.game = self._game(development, privacy, reader, sizes, ctx)
        self.game.play()
        self._check_reader(development.count("expression"))
        self.anonymizer.eval()

    def check(self, development: Development) -> None:
        """Raise DataError when the videos are not what the method needs."""

    def _game(self, development: Development, privacy: nn.Module | None, reader: nn.Module, sizes: Sizes,
              ctx: Context) -> Game:
        streams = {name: torch.Generator().manual_seed(ctx.torch_seed(name)) for name in ("views", "clips")}
        draws = {name: ctx.rng(name) for name in ("frames", "clips")}
        return Game(self.anonymizer, privacy, reader, sizes=sizes, report=ctx.report,
                    privacy_loss=lambda faces: self.privacy_loss(faces, streams["views"]),
                    reader_loss=self.reader_loss,
                    faces=lambda: draw_faces(development, draws["frames"], sizes.views),
                    acts=lambda: self.draw_acts(development, draws["clips"], streams["clips"], sizes),
                    privacy_weight=self.privacy_weight, utility_weight=self.utility_weight)

    def read(self, clips: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and feature that the reader has of anonymized clips, (N, T, 3, S, S) in 0 .. 1."""
        n, t = clips.shape[:2]
        return self.game.reader(self.anonymizer(clips.flatten(0, 1)).unflatten(0, (n, t)))

    def cross_entropy(self, logits: torch.Tensor, expressions: torch.Tensor) -> torch.Tensor:
        """Kept in `heard`, by which the game is judged at its end."""
        loss = F.cross_entropy(logits, expressions)
        self.heard.append(loss.item())
        return loss

    def _check_reader(self, classes: int) -> None:
        last = self.heard[-max(1, len(self.heard) // 4):]
        if last and not np.mean(last) < math.log(classes):
            raise Diverged(f"the reader ended at a loss of {np.mean(last):.3f}, no better than a guess among {classes} "
                           f"expressions ({math.log(classes):.3f}): the game left nothing to read")

    @torch.inference_mode()
    def release(self, video: Video, rng: np.random.Generator) -> Video:
        """uint8 (T, H, W, 3), rounded to the nearest level; `rng` is not read. A canvas larger than the fitted side is
        made smaller (area) before the network and larger again (bilinear) after it.
        """
        side = video.frames.shape[1:3]
        frames = as_pictures(fitted(video.frames, self.side_px))  # (T, 3, S, S)
        missing = -len(frames) % RELEASED
        padded = torch.cat([frames, frames[-1:].expand(missing, -1, -1, -1)])
        made = torch.cat([self.anonymizer(part.contiguous(memory_format=torch.channels_last))
                          for part in padded.split(RELEASED)])[:len(frames)]
        if made.shape[2:] != side:
            made = F.interpolate(made, side, mode="bilinear", align_corners=False)
        return Video(as_frames(made), video.fps)

    def state(self) -> dict[str, np.ndarray]:
        return {"side_px": np.array([self.side_px]),
                **{f"anonymizer.{name}": tensor.numpy() for name, tensor in self.anonymizer.state_dict().items()}}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        use_threads()
        self.side_px = int(state["side_px"][0])
        tensors = {name.removeprefix("anonymizer."): torch.from_numpy(np.array(array)) for name, array in state.items()
                   if name.startswith("anonymizer.")}
        self.anonymizer = fast(self.anonymizer_of(tensors))
        try:
            self.anonymizer.load_state_dict(tensors)
        except RuntimeError as error:
            raise DataError(f"The fitted state does not fit the anonymizer: {str(error).splitlines()[-1].strip()}",
                            "It is of another architecture.", "Fit the method again.") from None
        self.anonymizer.eval()

    def anonymizer_of(self, tensors: Mapping[str, torch.Tensor]) -> nn.Module:
        """An untrained anonymizer of the architecture of these tensors."""
        return SigmoidUNet(len(tensors.get("first.0.weight", torch.zeros(WIDTHS["tiny"]))))


# ---- batches -------------------------------------------------------------------------------------------------------

class SelfSupervisedAnonymizer(AdversarialAnonymizer):
    """The opponent of privacy has no labels: it learns which two views show one frame, at temperature tau."""

    tau: ClassVar[float] = 0.1

    def privacy_network(self, development: Development, profile: str) -> nn.Module:
        return FaceNet(profile)

    def privacy_loss(self, faces: Faces, views: torch.Generator) -> torch.Tensor:
        """L_B: two views of each frame through the anonymizer; it reads frames (N, 3, S, S) and nothing else."""
        pair = two_views(faces.frames, views, self.game.sizes.view_px)
        first, second = (self.game.privacy(self.anonymizer(view)) for view in pair)
        return nt_xent(first, second, self.tau)


def draw_faces(development: Development, rng: np.random.Generator, count: int) -> Faces:
    """One random frame of each of `count` videos, all different where there are as many; people only if declared."""
    every = len(development.videos)
    numbers = rng.choice(every, count, replace=count > every)
    frames = np.stack([development.videos[i][rng.integers(len(development.videos[i]))] for i in numbers])
    people = development.labels.get("identity")
    return Faces(as_pictures(frames), None if people is None else torch.from_numpy(people[numbers]))


def clip_at(frames: np.ndarray, first: int, length: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` equally spaced frames of a stretch, from a random first one: uint8 (count, S, S, 3)."""
    return frames[first + ((np.arange(count) + rng.random()) * length / count).astype(int)]


def _anywhere(frames: int, rng: np.random.Generator) -> tuple[int, int]:
    """A random stretch of one clip's length: first frame, length."""
    length = min(CLIP_FRAMES, frames)
    return int(rng.integers(frames - length + 1)), length


def seen_clips(clips: Sequence[np.ndarray], views: torch.Generator) -> torch.Tensor:
    """uint8 clips (T, S, S, 3) of one shape -> float32 (N, T, 3, S, S), each seen in one random way, nothing erased."""
    batch = np.stack(clips)
    pictures = as_pictures(batch.reshape(-1, *batch.shape[2:])).unflatten(0, batch.shape[:2])
    return seen(pictures, views, batch.shape[2], smallest=CLIP_CROP, erase=False)


def fitted(frames: np.ndarray, side_px: int) -> np.ndarray:
    """uint8 (T, H, W, 3), shrunk so that no side is above `side_px` (area averages); small frames stay."""
    height, width = frames.shape[1:3]
    scale = side_px / max(height, width)
    if scale >= 1:
        return frames
    size = (max(1, round(width * scale)), max(1, round(height * scale)))  # OpenCV's order: width, height
    return np.stack([cv2.resize(frame, size, interpolation=cv2.INTER_AREA) for frame in frames])


def fast(module: nn.Module) -> nn.Module:
    """The same module with its kernels laid out as a CPU reads them best; its numbers stay."""
    return module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
