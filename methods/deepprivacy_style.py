"""A face made from its surroundings alone, by a generator that never sees the face: after DeepPrivacy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from bench import CLIP_FRAMES, Anonymizer, Context, Diverged, Video, method
from bench.detect import fill_and_smooth
from bench.nets.crop_faces import crop_box, found_faces, looked_at
from bench.nets.descent import Descent, Pace
from bench.nets.development import as_frames, as_pictures, draw_frames
from bench.nets.inpaint import SIZES, Critic, Inpainter, InpaintSize, box_masks
from bench.nets.inpaint_published import Published
from bench.nets.states import fill, packed, part_of

ENLARGED = 1.35  # side of the mask over the side of the detected box, which ends above the chin and inside the jaw
BATCH = 12
CLOSE = 4.0  # weight of the L1 inside the mask beside the critic
PROFILES = tuple(SIZES)
AT_ONCE = 16


@method("deepprivacy_style")
class DeepPrivacyStyle(Anonymizer):
    """Detects the face, sets its box, enlarged by 1.35, to nothing and has a generator fill the hole from what is left:
    released = (1 - m) x + m G((1 - m) x, m, z). G is a U-Net that is given the surroundings, the mask and a random
    vector z, one for a whole video, so that the made face stays one face; the pixels of the filmed face never reach
    it, neither here nor in training. Expression is lost with them, save what the surroundings tell. A frame without a
    found face is masked where the neighbouring frames of its clip have it, a clip without any where the harness cut
    its crop around the face. It promises nothing: hair, ears, clothes and background stay, and tell people apart; box
    and pose leave a trace.
    Source: after Hukkelås et al., DeepPrivacy, ISVC 2019, and DeepPrivacy2, WACV 2023 (hukkelas/deep_privacy2,
    Apache-2.0 but for its StyleGAN parts, whose licence is non-commercial; written anew). Kept: detect, mask, generate
    from context by an inpainting generator with an adversarial loss, composite. Scaled: five levels of 16 to 96
    channels in `tiny`. Ours by inference: hinge loss with spectral normalisation, L1 in the hole (weight 4) so that
    small training budgets give a face at all, no pose key points, a random vector that is added at the coarsest level
    in place of style modulation. A published generator can be brought as TorchScript (path, sha256).
    """

    fits = True
    random_release: ClassVar[bool] = True  # another latent vector is another face

    def __init__(self, *, steps: int = 700, videos: int = 300, frames_per_video: int = 2, path: str = "",
                 sha256: str = ""):
        self.steps, self.videos, self.frames_per_video = steps, videos, frames_per_video
        self.path, self.sha256 = path, sha256
        self.generator: Any = None  # an Inpainter, or a Published one, after fit or load

    # ---- learning --------------------------------------------------------------------------------------------------

    def fit(self, data: Any, assets: Mapping[str, Any], ctx: Context) -> None:
        """No label is read. Raises Diverged when the made faces are no nearer to faces than a grey hole."""
        if self.path or self.sha256:
            self.generator = Published.brought(self.path, self.sha256)
            return
        rng = ctx.rng("frames")
        chosen = np.sort(rng.permutation(len(data.train))[:self.videos])
        pictures, masks = masked([data.train[i] for i in chosen], self.frames_per_video, rng)
        torch.manual_seed(ctx.torch_seed("weights"))
        self.generator = Inpainter(SIZES[ctx.profile])
        learn(self.generator, Critic(SIZES[ctx.profile]), pictures, masks, self.steps, rng, ctx.report)
        held = np.sort(rng.permutation(len(data.calibration))[:48])
        self._check(*masked([data.calibration[i] for i in held], 1, rng), rng, ctx.report)

    @torch.inference_mode()
    def _check(self, frames: np.ndarray, masks: np.ndarray, rng: np.random.Generator, report: Any) -> None:
        pictures, holes = as_pictures(frames), torch.from_numpy(masks)
        made = self.generator.eval()(pictures, holes, latents(self.generator, len(frames), rng))
        error = float(in_hole(made, pictures, holes))
        grey = float(in_hole(torch.full_like(pictures, 0.5), pictures, holes))
        report(f"held-out frames: mean error in the hole {error:.3f}, {grey:.3f} for grey")
        if not error < grey:
            raise Diverged(f"made faces are no nearer to faces (mean error {error:.3f}) than grey is ({grey:.3f}) "
                           f"after {self.steps} steps")

    # ---- release ---------------------------------------------------------------------------------------------------

    def state(self) -> Mapping[str, np.ndarray]:
        if isinstance(self.generator, Published):
            return {"published": self.generator.file}
        size = next(i for i, p in enumerate(PROFILES) if SIZES[p] == self.generator.size)
        return {"size": np.array([size]), **packed(generator=self.generator)}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Raises DataError when the arrays are of another architecture or of a file with another digest."""
        if "published" in state:
            self.generator = Published(np.asarray(state["published"]), self.sha256)
            return
        size: InpaintSize = SIZES[PROFILES[int(state["size"][0])]]
        self.generator = fill(Inpainter(size), part_of(state, "generator"), "deepprivacy_style's generator")

    def release(self, video: Video, rng: np.random.Generator) -> Video:
        """uint8 (T, H, W, 3); from `rng` comes one latent vector for all frames."""
        masks = box_masks(face_boxes(video.frames), video.frames.shape[1], ENLARGED)
        return Video(filled(self.generator, video.frames, masks, latents(self.generator, 1, rng)), video.fps)


@torch.inference_mode()
def filled(generator: Any, frames: np.ndarray, masks: np.ndarray, latent: torch.Tensor) -> np.ndarray:
    """uint8 (T, S, S, 3) with what the masks (T, 1, S, S) cover made anew, outside them the input, bit for bit."""
    parts = []
    for start in range(0, len(frames), AT_ONCE):
        pictures, holes = as_pictures(frames[start:start + AT_ONCE]), torch.from_numpy(masks[start:start + AT_ONCE])
        parts.append(as_frames(generator.eval()(pictures, holes, latent.expand(len(pictures), -1))))
    return np.where(masks.transpose(0, 2, 3, 1) > 0, np.concatenate(parts), frames)


def face_boxes(frames: np.ndarray) -> np.ndarray:
    """(T, 4) px, never NaN: where each clip's face is found, its nearest found box, or the harness's crop box."""
    boxes = found_faces(frames)
    for start in range(0, len(boxes), CLIP_FRAMES):
        clip = boxes[start:start + CLIP_FRAMES]
        clip[:] = fill_and_smooth(clip) if np.isfinite(clip).any() else crop_box(frames.shape[1])
    return boxes


def masked(videos: list[Any], each: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Frames uint8 (N, S, S, 3) of development videos and the masks (N, 1, S, S) of their faces."""
    frames = draw_frames(videos, each, rng)
    frames = frames.reshape(-1, *frames.shape[2:])
    boxes = looked_at(frames)
    boxes = np.where(np.isfinite(boxes), boxes, crop_box(frames.shape[1]))
    return frames, box_masks(boxes, frames.shape[1], ENLARGED)


def latents(generator: Any, count: int, rng: np.random.Generator) -> torch.Tensor:
    """(count, z) standard normal."""
    return torch.from_numpy(rng.standard_normal((count, generator.size.latent)).astype(np.float32))


def in_hole(made: torch.Tensor, real: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    """Mean absolute difference over masked pixels."""
    return ((made - real).abs() * masks).sum() / (3 * masks.sum()).clamp(min=1)


def learn(generator: nn.Module, critic: nn.Module, frames: np.ndarray, masks: np.ndarray, steps: int,
          rng: np.random.Generator, report: Any) -> None:
    """Hinge losses in turn; the L1 in the hole fades to a quarter, so that the critic decides in the end."""
    mine = Descent("the generator", [(generator, 1.0)], Pace(rate=1e-3, betas=(0.0, 0.99)), steps)
    theirs = Descent("the critic", [(critic, 1.0)], Pace(rate=2e-3, betas=(0.0, 0.99)), steps)
    generator.train(), critic.train()
    for step in range(steps):
        index = rng.integers(len(frames), size=BATCH)
        real, holes = as_pictures(frames[index]), torch.from_numpy(masks[index])
        if rng.random() < 0.5:
            real, holes = real.flip(3), holes.flip(3)
        made = generator(real, holes, latents(generator, BATCH, rng))
        theirs.step(F.relu(1 - critic(real, holes)).mean() + F.relu(1 + critic(made.detach(), holes)).mean())
        close = CLOSE * (1 - 0.75 * step / steps)
        mine.step(close * in_hole(made, real, holes) - critic(made, holes).mean())
        if (step + 1) % 100 == 0:
            report(f"step {step + 1}/{steps}: generator {mine.recent:.3f}, critic {theirs.recent:.3f}")
