"""The face of a public person in place of the filmed one: MobileFaceSwap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from bench import Anonymizer, ConfigError, Context, DataError, Diverged, Video, method
from bench.nets.crop_faces import found_faces, looked_at
from bench.nets.descent import Descent, Pace
from bench.nets.development import as_frames, as_pictures, draw_frames, moved
from bench.nets.judges import Judge, trunk, unlike
from bench.nets.states import fill, packed, part_of
from bench.nets.swap import IDENTITY, SIZES, KernelPredictor, Kernels, SwapNet, SwapSize, blended, sized
from bench.nets.swap_published import IDENTITY_PX, load_published, script_codes

WEIGHTS = {"example": 10.0, "identity": 3.0, "style": 0.2, "features": 1.0}  # of the four losses
SOURCES, TARGETS = 4, 4  # people of a batch, and pictures that each is put on; the last shows that very person
ENLARGED, RIM = 1.2, 0.2  # ellipse that teaches the mask, over the detected box; width of its soft rim, of its radius
PREDICTOR = 0.02  # its share of the rate: a kernel is a sum over some hundred inputs, so that all of it moves at once
SHOWN = 0.3  # share of the steps in which the network learns from examples alone
PACE = Pace(rate=5e-3, betas=(0.9, 0.99))
PICTURES_AT_ONCE = 32
PROFILES = tuple(SIZES)
BLACK = "frames without a face, blacked out"


@method("face_swap")
class FaceSwap(Anonymizer):
    """Puts the face of one public person on every frame: released = m * G(x; K(s)) + (1 - m) * x. The kernels K of
    the small network G are predicted from the identity s of the source person, depthwise kernels from the feature map
    of an identity network and the 1 x 1 kernels between them by weight modulation, W (1 + A e) scaled to unit rows;
    pose, expression and light come from the frame x, and m is a mask that G also gives. Every frame is swapped for
    itself. A frame in which no face is found is blacked out and counted, where the published program passes it on.
    It promises nothing: what is kept of the frame may still tell who it was, above all to a recogniser that was
    trained on swapped frames, and outside the mask the frame stays as it is.
    Source: Xu et al., MobileFaceSwap, AAAI 2022; inference code Seanseattle/MobileFaceSwap (Apache-2.0; written anew).
    Kept: one source who is independent of the filmed people (a picture of a public person, no person of any split),
    predicted kernels, the mask, the number of parameters at paper size. Scaled: channels in `tiny`. Ours by inference,
    for no training code is public and no teacher was at hand: what stands for its swapped faces, the picture of the
    person, of six, whose feature maps are nearest to those of the frame, laid onto the face that was found there (L1
    inside an ellipse about it, 10; the frame itself where it shows that person), alone at first; the losses beside
    it, 3 (1 - cos) between the identities of output and source, both taken from the mean of public people, squared
    distance of the means and deviations of early identity features (.2), distance of feature maps to those of the
    frame (1); the mask, which learns that ellipse; the crop of the harness in place of an alignment to five points.
    Published weights are read as safetensors (path, sha256) with the identity network as TorchScript beside them.
    """

    fits = True
    assets = ("source_faces_method", "identity_method", "feature_method")
    variants = {"other": {"source": 1}}

    def __init__(self, *, source: int = 0, steps: int = 700, frames_per_video: int = 2, path: str = "",
                 sha256: str = "", identity_path: str = "", identity_sha256: str = ""):
        self.source, self.steps, self.frames_per_video = source, steps, frames_per_video
        self.published = (path, sha256, identity_path, identity_sha256)
        self.counts = {BLACK: 0}  # over all videos released so far
        self.predictor: KernelPredictor
        self.net: SwapNet
        self.size: SwapSize
        self.code: tuple[torch.Tensor, torch.Tensor]  # (1, d) and (1, d, h, w) of the source picture

    # ---- learning --------------------------------------------------------------------------------------------------

    def fit(self, data: Any, assets: Mapping[str, Any], ctx: Context) -> None:
        """Raises DataError for a source picture without a face, Diverged when swapped frames do not become alike it."""
        pictures = np.asarray(assets["source_faces_method"]["pictures"])  # (P, K, S, S, 3)
        face = source_face(pictures, self.source)
        torch.manual_seed(ctx.torch_seed("weights"))
        if any(self.published):
            path, sha256, *identity = self.published
            self._build(SIZES["paper"], IDENTITY)
            load_published(path, sha256, self.predictor, self.net)
            self.code = script_codes(*identity, face[None])
            return
        judges = Judge(trunk("resnet14t", assets["identity_method"], "identity_method")), Judge(
            trunk("resnet10t", assets["feature_method"], "feature_method"))
        self._build(sized(ctx.profile, pictures.shape[2]), judges[0].width)
        lesson = _Lesson(self.predictor, self.net, self.size, *judges, pictures)
        rng = ctx.rng("frames")
        targets = draw_frames(data.train, self.frames_per_video, rng)
        lesson.learn(as_targets(targets.reshape(-1, *targets.shape[2:]), self.size.side_px), self.source, self.steps,
                     rng, ctx.report)
        self.code = lesson.code(self.source, 0)
        held = draw_frames(data.calibration, 1, rng)[:64, 0]
        lesson.check(held, self._kernels(), lesson.vectors[self.source, 0], ctx.report)

    def _build(self, size: SwapSize, identity: int) -> None:
        self.size, self.predictor, self.net = size, KernelPredictor(size, identity), SwapNet(size)

    def state(self) -> Mapping[str, np.ndarray]:
        """Both networks and the identity of the source: no picture of anybody."""
        profile = next(p for p in PROFILES if SIZES[p].encoder == self.size.encoder)
        return {"size": np.array([PROFILES.index(profile), self.size.side_px]),
                "source/vector": self.code[0].numpy(), "source/map": self.code[1].numpy(),
                **packed(predictor=self.predictor, net=self.net)}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """The kernels are predicted here, once. Raises DataError when the arrays are of another architecture."""
        profile, side = (int(v) for v in state["size"])
        code = part_of(state, "source")
        self._build(sized(PROFILES[profile], side), code["vector"].shape[1])
        fill(self.predictor, part_of(state, "predictor"), "face_swap's predictor")
        fill(self.net, part_of(state, "net"), "face_swap's network")
        self.code = code["vector"], code["map"]
        self.kernels = self._kernels()

    @torch.inference_mode()
    def _kernels(self) -> Kernels:
        return self.predictor.eval()(*self.code)

    # ---- release ---------------------------------------------------------------------------------------------------

    def release(self, video: Video, rng: np.random.Generator) -> Video:
        """uint8 (T, H, W, 3): swapped frames, black ones where no face was found; `rng` is not read."""
        found = np.isfinite(found_faces(video.frames)[:, 0])
        out = np.zeros_like(video.frames)
        if found.any():
            out[found] = swap(self.net, self.kernels, video.frames[found], self.size.side_px)
        if not found.all():
            self.counts[BLACK] += int((~found).sum())
            print(f"face_swap: no face in {(~found).sum()} of {len(found)} frames, {self.counts[BLACK]} so far: black")
        return Video(out, video.fps)


def source_face(pictures: np.ndarray, source: int) -> np.ndarray:
    """Picture 0 (S, S, 3) of a public person. Raises ConfigError for nobody, DataError for a picture without a face."""
    if not 0 <= source < len(pictures):
        raise ConfigError(f"There is no public person number {source}.", f"There are {len(pictures)}, from 0 on.",
                          "Name one of them as `source`.")
    face = pictures[source, 0]
    if not np.isfinite(looked_at(face[None])).all():
        raise DataError(f"No face is found in the picture of public person {source}.",
                        "The source identity is read from it.", "Name another `source`.")
    return face


@torch.inference_mode()
def swap(net: SwapNet, kernels: Kernels, frames: np.ndarray, side_px: int) -> np.ndarray:
    """uint8 (N, H, W, 3) swapped and blended at their own size; the network reads them at side_px."""
    parts = []
    for part in as_pictures(frames).split(PICTURES_AT_ONCE):
        swapped, mask = net.eval()(_resized(part, side_px, side_px), kernels)
        height, width = part.shape[2:]
        parts.append(as_frames(blended(part, _resized(swapped, height, width), _resized(mask, height, width))))
    return np.concatenate(parts)


def as_targets(frames: np.ndarray, side_px: int) -> torch.Tensor:
    """uint8 (N, S, S, 3) -> (N, 4, side, side) in 0 .. 1: the picture, and an ellipse about the face found in it.

    Soft at its rim; nothing where no face is found.
    """
    boxes, at = looked_at(frames), np.arange(frames.shape[1]) + 0.5
    middle, half = (boxes[:, :2] + boxes[:, 2:]) / 2, ENLARGED * (boxes[:, 2:] - boxes[:, :2]) / 2
    away = [(at - m[:, None]) / h[:, None] for m, h in zip(middle.T, half.T, strict=True)]  # x, y: (N, S)
    inside = (1 - np.hypot(away[0][:, None], away[1][:, :, None])) / RIM + 0.5
    masks = torch.from_numpy(np.nan_to_num(inside.clip(0, 1))[:, None]).float()
    return _resized(torch.cat([as_pictures(frames), masks], 1), side_px, side_px)


def placed(faces: torch.Tensor, onto: torch.Tensor) -> torch.Tensor:
    """Pictures (N, 3, S, S) of `faces`, moved and scaled so that their ellipses lie on those of `onto` (N, 4, S, S)."""
    (middle, radius), (there, wide) = _ellipse(faces[:, 3]), _ellipse(onto[:, 3])  # (N, 2) each
    scale = radius / wide
    theta = torch.cat([torch.diag_embed(scale), (middle - scale * there)[:, :, None]], 2)
    grid = F.affine_grid(theta, list(onto[:, :3].shape), align_corners=False)
    return F.grid_sample(faces[:, :3], grid, padding_mode="border", align_corners=False)


def _ellipse(mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Middle and spread (N, 2) of masks (N, S, S) along x and y, of canvases that reach from -1 to 1."""
    at = (2 * torch.arange(mask.shape[1]) + 1) / mask.shape[1] - 1
    share = torch.stack([mask.sum(1), mask.sum(2)], 1) / (mask.sum((1, 2))[:, None, None] + 1e-6)  # (N, 2, S)
    middle = (share * at).sum(2)
    return middle, ((share * (at - middle[:, :, None]).square()).sum(2) + 1e-4).sqrt()


def _resized(batch: torch.Tensor, height: int, width: int) -> torch.Tensor:
    if batch.shape[2:] == (height, width):
        return batch
    return F.interpolate(batch, (height, width), mode="bilinear", align_corners=False, antialias=True)


class _Lesson:
    """How predictor and network learn together, from pictures of public people and frames of development people."""

    def __init__(self, predictor: KernelPredictor, net: SwapNet, size: SwapSize, identity: Judge, feature: Judge,
                 pictures: np.ndarray):
        self.predictor, self.net, self.size = predictor, net, size
        self.identity, self.feature = identity, feature
        people, each = pictures.shape[:2]
        faces = as_targets(pictures.reshape(-1, *pictures.shape[2:]), size.side_px)
        self.pictures = faces[:, :3]
        with torch.no_grad():
            maps = [self._large(part) for part in self.pictures.split(PICTURES_AT_ONCE)]
            self.maps = torch.cat(maps).unflatten(0, (people, each))  # (P, K, d, h, w)
            seen = [self.identity.maps(part) for part in self.pictures.split(PICTURES_AT_ONCE)]
            self.vectors = torch.cat([self.identity.vector(m) for m in seen]).unflatten(0, (people, each))
            style = torch.cat([_style(m) for m in seen])
        self.middle = self.vectors.mean((0, 1))
        self.spread = style.std(0) + 1e-3
        self.style = style.unflatten(0, (people, each))  # (P, K, c)
        self.faces = faces.unflatten(0, (people, each))  # (P, K, 4, S, S)
        self.layouts = self._layout(faces).unflatten(0, (people, each))

    def _large(self, batch: torch.Tensor) -> torch.Tensor:
        """The last identity map of enlarged pictures, so that it has a few positions to read."""
        side = max(IDENTITY_PX, batch.shape[2])
        return self.identity.maps(_resized(batch, side, side))[-1]

    @torch.no_grad()
    def _layout(self, faces: torch.Tensor) -> torch.Tensor:
        """(N, d): what lies where in pictures (N, 4, S, S), as feature maps whose positions have unit length."""
        parts = [self.feature.maps(part)[3] for part in faces[:, :3].split(PICTURES_AT_ONCE)]
        return F.normalize(torch.cat(parts), dim=1).flatten(1)

    def apart(self, vectors: torch.Tensor) -> torch.Tensor:
        """Unit vectors (N, d) from the mean of all public people on, so that two people lie apart."""
        return F.normalize(vectors - self.middle, dim=1)

    def code(self, person: int, picture: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.vectors[person, picture][None].clone(), self.maps[person, picture][None].clone()

    def learn(self, targets: torch.Tensor, source: int, steps: int, rng: np.random.Generator, report: Any) -> None:
        """Three quarters of a batch put on the source of the release, the others any public person.

        At first the network learns from its examples alone. For the last two fifths of the steps the statistics of
        normalisation rest, as they do in a release.
        """
        descent = Descent("face_swap", [(self.predictor, PREDICTOR), (self.net, 1.0)], PACE, steps)
        layouts = self._layout(targets)
        self.predictor.train(), self.net.train()
        for step in range(steps):
            if step == 3 * steps // 5:
                self.predictor.eval(), self.net.eval()
            people = np.append(np.full(SOURCES - 1, source), rng.integers(len(self.vectors)))
            picture = rng.integers(self.vectors.shape[1], size=(2, SOURCES))
            chosen = rng.integers(len(targets), size=(SOURCES, TARGETS - 1))
            frames, own = targets[chosen], self.faces[people, picture[1]][:, None]
            nearest = torch.einsum("std,skd->stk", layouts[chosen], self.layouts[people]).argmax(2)
            examples = self.faces[torch.from_numpy(people)[:, None], nearest].flatten(0, 1)
            examples = placed(examples, frames.flatten(0, 1)).unflatten(0, nearest.shape)
            batch = torch.cat([torch.cat([frames, examples], 2), torch.cat([own, own[:, :, :3]], 2)], 1).flatten(0, 1)
            descent.step(self._loss(moved(batch, rng), people, picture[0], rng, step < SHOWN * steps))
            if (step + 1) % 100 == 0:
                report(f"step {step + 1}/{steps}: loss {descent.recent:.3f}")

    def _loss(self, batch: torch.Tensor, people: np.ndarray, picture: np.ndarray, rng: np.random.Generator,
              shown: bool) -> torch.Tensor:
        """batch: (SOURCES x TARGETS, 7, S, S), frame, ellipse and example; those of a person side by side."""
        target, face, example = batch[:, :3], batch[:, 3:4].clamp(max=1), batch[:, 4:]
        kernels = self.predictor(self.vectors[people, picture], self.maps[people, picture]).repeated(TARGETS)
        swapped, mask = self.net(target, kernels)
        taught = WEIGHTS["example"] * (face * (swapped - example).abs()).mean() + F.binary_cross_entropy(mask, face)
        if shown:
            return taught
        out = blended(target, swapped, face)
        seen = self.identity.maps(moved(out, rng))
        wanted = self.apart(self.vectors[people, picture]).repeat_interleave(TARGETS, 0)
        identity = 1 - (self.apart(self.identity.vector(seen)) * wanted).sum(1).mean()
        style = self.style[people, picture].repeat_interleave(TARGETS, 0)
        style_loss = F.smooth_l1_loss(_style(seen) / self.spread, style / self.spread)
        with torch.no_grad():
            before = self.feature.maps(target)
        features = sum(unlike(a, b) for a, b in zip(self.feature.maps(out)[2:4], before[2:4], strict=True))
        return (WEIGHTS["identity"] * identity + WEIGHTS["style"] * style_loss + WEIGHTS["features"] * features
                + taught)

    @torch.inference_mode()
    def check(self, frames: np.ndarray, kernels: Kernels, source: torch.Tensor, report: Any) -> None:
        """Raises Diverged unless held-out frames look more like the source than like themselves once swapped."""
        out = as_pictures(swap(self.net, kernels, frames, self.size.side_px))
        now, before = self.identity.embed(out), self.identity.embed(as_pictures(frames))
        near, own = float((now @ source).mean()), float((now * before).sum(1).mean())
        report(f"held-out frames, swapped: cosine {near:.3f} with the source, {own:.3f} with the frame before")
        if not near > own:
            raise Diverged(f"swapped frames stay nearer to the filmed person (cosine {own:.3f}) than to the source "
                           f"({near:.3f})")


def _style(maps: list[torch.Tensor]) -> torch.Tensor:
    """(N, 2 c): mean and deviation of the three finest maps over their positions."""
    return torch.cat([torch.cat([m.mean((2, 3)), m.std((2, 3))], 1) for m in maps[:3]], 1)
