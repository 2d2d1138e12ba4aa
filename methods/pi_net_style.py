"""A latent clustered by attributes, noise by distance in every frame, a public decoder: metric privacy of one image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from bench import CLIP_FRAMES, DataError, Diverged, FullClaim, Video, method
from bench.nets.coders import LATENT, FrameAutoencoder, as_coder_input
from bench.nets.crop_faces import faces_only
from bench.privacy.claims import BranchClaim
from bench.privacy.declared import DeclaredMethod, Event

AUTOENCODER = "autoencoder_method"
FRAMES_PER_VIDEO = 4
RADIUS = 0.5  # of the sphere of latents: the two farthest images lie at distance 1
MARGIN = 1.0
WIDTH = LATENT[0] * LATENT[1] * LATENT[2]  # of a code w of the public autoencoder


@method("pi_net_style")
class PINetStyle(DeclaredMethod):
    """A public encoder gives each frame a code w. A learned map M takes it to a point p of a sphere in n dimensions,
    noise is added there, the noisy point goes back to the sphere (post-processing), a second map R leads to a code
    w' = R(p), and the public decoder, frozen like the encoder, paints it. Training draws images of the same attributes
    together: |R(p) - w|^2 + CE(class of w) + CE(class of R(p)) + semi-hard triplet loss on p with margin 1, a class
    being one combination of the binary attributes. Those labels are read in `fit`.

    The guarantee is metric: Pr[K(x) in S] <= exp(epsilon d(x, x')) Pr[K(x') in S], where d is the Euclidean distance
    of p and p' in diameters of the sphere; two images at distance 1 are the farthest there are. Each frame has noise
    of density proportional to exp(-epsilon |z| / Delta), Delta the diameter: the direction is uniform, the length
    Gamma(n, Delta / epsilon). The frames of a clip add up: by default 2 a frame, 32 for a clip each frame of which
    moves by 1; images nearer together cost less. It says nothing of people, hence a section of its own. The claim is
    declared, not enforced: the method adds the noise itself.

    A frame in which no face is found is never passed on: a grey one takes its place before M and gets noise like any
    other, since to mark it in the release would be one more answer about it, and unpaid. So a clip still costs 32, d is
    the distance of what M reads, and two images that look alike cost up to 2 where a face is found in one of them
    alone. The detector looks at some frames of a clip and concludes on those between: exchanging one image may change
    those too. How many frames were greyed stands in the organiser's log and nowhere else.

    Source: Chen et al., Perceptual Indistinguishability-Net (PI-Net), CVPR 2021. The official code (TensorFlow 1, its
    StyleGAN2 part for non-commercial use, no licence file) lacks the noise function: its law stated here is our
    inference from the definition of the guarantee. Kept: latent clustered by attributes with a triplet loss, noise by
    distance in the latent, new for every frame, public decoder. Scaled: an autoencoder of 64 px frames for StyleGAN2,
    8 dimensions for 512. Left out: the discriminator on w. Ours: Delta is one diameter, not a distance per class; the
    way back to the sphere.
    """

    fits = True
    needs = frozenset({"attributes"})
    assets = (AUTOENCODER,)
    variants = {"eps8": {"epsilon": 8.0}, "eps128": {"epsilon": 128.0}, "eps512": {"epsilon": 512.0},
                "eps2048": {"epsilon": 2048.0}, "paper": {"dim": 512, "hidden": 512, "epochs": 200}}

    def __init__(self, *, epsilon: float = 32.0, dim: int = 8, hidden: int = 128, epochs: int = 40,
                 batch: int = 128, rate: float = 2e-3):
        self.dim, self.hidden, self.epochs, self.batch, self.rate = dim, hidden, epochs, batch, rate
        self.terms = FullClaim(unit="image_metric", branches=(
            BranchClaim("latent", "exponential", clip_norm=RADIUS, epsilon=epsilon / CLIP_FRAMES, dim=dim),))
        self._state: Mapping[str, np.ndarray] = {}
        self._networks: tuple[FrameAutoencoder, Maps] | None = None

    # ---- fit -------------------------------------------------------------------------------------------------------

    def fit(self, data: Any, assets: Mapping[str, Mapping[str, np.ndarray]], ctx: Any) -> None:
        """Trains M and R on development frames; encoder and decoder stay as they are.

        Raises DataError where the people have no attributes, or all the same; Diverged on a non-finite loss.
        """
        arrays = {f"public.{k}": np.asarray(v) for k, v in assets[AUTOENCODER].items()}
        classes, kinds = attribute_classes([item.attributes for item in data.train])
        torch.manual_seed(ctx.torch_seed("weights"))
        maps = Maps(self.dim, self.hidden, kinds)
        arrays |= {f"maps.{k}": v.numpy() for k, v in maps.state_dict().items()}
        self._build(arrays)
        rng = ctx.rng("frames")
        frames = [some[rng.choice(len(some), min(FRAMES_PER_VIDEO, len(some)), replace=False)]
                  for some in (item.video.frames for item in data.train)]
        labels = np.repeat(classes, [len(f) for f in frames])
        codes = torch.cat([self.codes(f) for f in frames])
        self._train(codes, torch.from_numpy(labels), ctx)
        maps = self._parts()[1]
        self._state = arrays | {f"maps.{k}": v.numpy() for k, v in maps.state_dict().items()}

    def _train(self, codes: torch.Tensor, labels: torch.Tensor, ctx: Any) -> None:
        maps, rng = self._parts()[1].train().requires_grad_(True), ctx.rng("batches")
        optimizer = torch.optim.Adam(maps.parameters(), lr=self.rate, betas=(0.9, 0.99))
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.epochs)
        for epoch in range(self.epochs):
            total = 0.0
            order = torch.from_numpy(rng.permutation(len(codes)))
            for some in order.split(self.batch):
                loss = maps.loss(codes[some], labels[some])
                if not torch.isfinite(loss):
                    raise Diverged(f"pi_net_style: the loss of epoch {epoch + 1} is not finite.", "", "")
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += float(loss.detach()) * len(some) / len(codes)
            schedule.step()
            if epoch % 10 == 9 or epoch + 1 == self.epochs:
                ctx.report(f"epoch {epoch + 1}/{self.epochs}: loss {total:.3f}")
        maps.eval().requires_grad_(False)

    def state(self) -> Mapping[str, np.ndarray]:
        return self._state

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        self._state = dict(state)
        self._build(self._state)

    def _build(self, arrays: Mapping[str, np.ndarray]) -> None:
        def part(prefix: str) -> dict[str, torch.Tensor]:
            return {k[len(prefix):]: torch.from_numpy(np.array(v)) for k, v in arrays.items() if k.startswith(prefix)}

        public = part("public.")
        self.mean, self.deviation = public.pop("latent_mean"), public.pop("latent_deviation")
        network, maps = FrameAutoencoder(), Maps(self.dim, self.hidden, len(arrays["maps.head.weight"]))
        try:
            network.load_state_dict(public)
            maps.load_state_dict(part("maps."))
        except RuntimeError as error:
            raise DataError("These are no weights of pi_net_style at this size.", str(error).splitlines()[0],
                            "Fit the method again.") from None
        self._networks = network.eval().requires_grad_(False), maps.eval().requires_grad_(False)

    def _parts(self) -> tuple[FrameAutoencoder, Maps]:
        assert self._networks is not None, "load comes first"
        return self._networks

    # ---- release ---------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def release(self, video, ctx):
        frames, lost = faces_only(video.frames)
        if lost:
            print(f"pi_net_style: no face in {lost} of {len(frames)} frames: grey before the noise")
        points = self.points(self.codes(frames)).numpy().astype(np.float64)  # (16, n), length 1/2
        noisy = points + ctx.noise.draw(Event("latent", len(points)))
        return Video(self.paint(noisy, video.frames.shape[1]), video.fps)

    @torch.inference_mode()
    def codes(self, frames: np.ndarray) -> torch.Tensor:
        """(N, 256): standardised codes of the public encoder for uint8 frames (N, H, W, 3)."""
        found = self._parts()[0].encoder(as_coder_input(torch.from_numpy(np.array(frames))))
        return ((found - self.mean) / self.deviation).flatten(1)

    def points(self, codes: torch.Tensor) -> torch.Tensor:
        """(N, n) on the sphere of RADIUS."""
        return RADIUS * self._parts()[1].point(codes)

    @torch.inference_mode()
    def paint(self, noisy: np.ndarray, side_px: int) -> np.ndarray:
        """uint8 (N, side, side, 3) from noisy points (N, n): back to the sphere, to a code, through the decoder."""
        network, maps = self._parts()
        towards = noisy / np.maximum(np.linalg.norm(noisy, axis=1, keepdims=True), 1e-12)
        codes = maps.back(torch.from_numpy(towards).float()).view(-1, *LATENT)
        frames = network.decoder(codes * self.deviation + self.mean)  # (N, 3, 64, 64)
        if side_px != frames.shape[-1]:
            frames = F.interpolate(frames, size=(side_px, side_px), mode="bilinear", align_corners=False)
        return (frames.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).contiguous().numpy()


class Maps(nn.Module):
    """M: codes (N, 256) -> points (N, n) of length 1. R: back. A class reader of codes, which training alone uses."""

    def __init__(self, dim: int, hidden: int, classes: int):
        super().__init__()
        self.forth = nn.Sequential(nn.Linear(WIDTH, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU())
        self.project = nn.Linear(hidden, dim)
        self.head = nn.Linear(hidden, classes)
        self.back = nn.Sequential(nn.Linear(dim, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(),
                                  nn.Linear(hidden, WIDTH))

    def point(self, codes: torch.Tensor) -> torch.Tensor:
        return F.normalize(self.project(self.forth(codes)), dim=1)

    def loss(self, codes: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Reconstruction of w, its class, the class of the reconstruction, clusters of points."""
        points = self.point(codes)
        made = self.back(points)
        named = F.cross_entropy(self.head(self.forth(codes)), labels) + F.cross_entropy(
            self.head(self.forth(made)), labels)
        return F.mse_loss(made, codes) + named + semi_hard(points, labels)


def semi_hard(points: torch.Tensor, labels: torch.Tensor, margin: float = MARGIN) -> torch.Tensor:
    """Mean over anchors and positives of max(0, margin + d(a, p)^2 - d(a, n)^2); n is the nearest other-class point
    that lies farther than p, or the farthest one where none does. 0 where a batch has no pair. Schroff et al. 2015.
    """
    apart = 2 - 2 * points @ points.T  # (N, N), squared distances of unit vectors
    same = labels[:, None] == labels[None]
    other = torch.where(same, torch.nan, apart)  # distances to other classes
    farther = torch.where(other[:, None, :] > apart[:, :, None], other[:, None, :], torch.inf).amin(2)  # (a, p)
    farthest = torch.where(same, -torch.inf, apart).amax(1, keepdim=True)
    negative = torch.where(torch.isinf(farther), farthest, farther)
    pairs = same & ~torch.eye(len(labels), dtype=torch.bool) & torch.isfinite(negative)
    losses = (margin + apart - negative)[pairs]
    return losses.clamp_min(0).mean() if len(losses) else points.sum() * 0


def attribute_classes(attributes: list[Mapping[str, int]]) -> tuple[np.ndarray, int]:
    """Class of each video: sum of bit_i 2^i over its attributes in alphabetical order; and how many there can be.

    Raises DataError where a video has none, others than the first one, or where all videos are alike.
    """
    names = sorted(attributes[0]) if attributes else []
    if not names or any(sorted(a) != names for a in attributes):
        raise DataError("The development videos do not all carry the same binary attributes.",
                        "pi_net_style gathers faces by their attributes.",
                        "Use a dataset with attributes, such as synthfaces.")
    classes = np.array([sum(int(bool(a[n])) << i for i, n in enumerate(names)) for a in attributes], dtype=np.int64)
    if len(set(classes.tolist())) < 2:
        raise DataError("All development videos have the same attributes.", "There is nothing to tell apart.", "")
    return classes, 1 << len(names)
