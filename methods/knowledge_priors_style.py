"""Identity suppressed with what videos say by themselves, then expression restored: after Knowledge Priors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from bench import Anonymizer, Context, DataError, Diverged, Video, method
from bench.nets.descent import Descent, Pace
from bench.nets.development import as_frames, as_pictures, draw_frames, moved
from bench.nets.image import as_input, frame_classifier, jitter
from bench.nets.judges import Judge, scaled, trunk
from bench.nets.states import fill, frozen, packed, part_of
from bench.nets.training import Recipe, load_matching, train_classifier
from bench.nets.unet import UNet

WIDTHS = {"tiny": 8, "paper": 64}  # channels of the finest level of both U-Nets
VIDEOS, FRAMES = 6, 2  # of a batch: two frames of each video
BETAS = (0.9, 0.99)  # of Adam, for both players
HEAT = 0.1  # temperature of the contrastive loss
WEIGHTS = {"alike": 1.0, "prior": 2.0, "keep": 1.0, "expression": 1.0}
PROGRESS = 0.05  # area under the curve that suppression must take from a recogniser
SHOWN = 2  # frames of each video from which the classifier learns
HELD = 48  # calibration videos that the claim is tried on


@method("knowledge_priors_style")
class KnowledgePriorsStyle(Anonymizer):
    """Two U-Nets, frame by frame: released = h(g(x)). The first, g, hides identity without any identity label. It
    learns from two priors: two frames of one video show one person, frames of two videos are taken for two people.
    A recogniser d is trained on changed pictures, contrastively: same-video pairs near, all others far
    (temperature .1). In turn g makes every other frame of the batch equally likely as the partner (cross entropy to
    the uniform distribution), and keeps the cosine between a changed frame and the unchanged frames of its video, under
    an identity network of public people, at or below the mean over frames of other videos; an L1 to the input holds
    it near. Then g rests and h restores expression: cross entropy of a frozen expression classifier, while the
    same identity terms go on, so that nothing is given back. At the end the claim is tried on calibration people: if
    the public identity network still tells same-video from other pairs as well as before, the fit has failed. It
    promises nothing: a recogniser that learns on released frames may find what these two did not.
    Source: after the abstract of Knowledge Priors, arXiv:2603.21387; no code is public and no licence applies. Kept: no
    identity label, pairs from videos alone, two stages, a check that tries to refute. Scaled: U-Nets of width 8 in
    `tiny`. Ours by inference: every loss and weight, the networks, that the classifier reads single frames. Videos of
    one person count as different people where two fall into one batch.
    """

    fits = True
    needs = frozenset({"same_video", "expression"})
    assets = ("identity_method", "feature_method")

    def __init__(self, *, steps: int = 180, restore_steps: int = 150, frames_per_video: int = 4,
                 classifier_epochs: int = 2):
        self.steps, self.restore_steps = steps, restore_steps
        self.frames_per_video, self.classifier_epochs = frames_per_video, classifier_epochs
        self.suppress: UNet
        self.restore: UNet

    # ---- learning --------------------------------------------------------------------------------------------------

    def fit(self, data: Any, assets: Mapping[str, Any], ctx: Context) -> None:
        """Raises DataError without two videos of two frames, Diverged when identity is no better hidden than before."""
        rng = ctx.rng("frames")
        groups = with_pairs(data.train)
        frames = draw_frames(groups, self.frames_per_video, rng)  # (V, K, S, S, 3)
        labels = expressions(groups)
        prior = Judge(trunk("resnet14t", assets["identity_method"], "identity_method"))
        torch.manual_seed(ctx.torch_seed("weights"))
        self.suppress, self.restore = (UNet(WIDTHS[ctx.profile]) for _ in range(2))
        recogniser = trunk("resnet14t", assets["identity_method"], "identity_method")
        lesson = _Lesson(frames, labels, prior, recogniser, rng, ctx.report)
        lesson.learn("suppression", self.suppress, self.suppress, None, self.steps)
        frozen(self.suppress)
        expression = self._classifier(frames, labels, assets["feature_method"], ctx)
        both = nn.Sequential(self.suppress, self.restore)
        lesson.learn("restoration", both, self.restore, expression, self.restore_steps)
        self._falsify(with_pairs(data.calibration)[:HELD], prior, rng, ctx.report)

    def _classifier(self, frames: np.ndarray, labels: np.ndarray, start: Mapping[str, Any], ctx: Context) -> nn.Module:
        """A frozen classifier of the expression of a frame, from the weights of feature_method on."""
        model = frame_classifier("resnet10t", int(labels.max()) + 1)
        load_matching(model, {k: torch.from_numpy(np.array(v)) for k, v in start.items()})
        shown = frames[:, :SHOWN]
        inputs = torch.from_numpy(shown.reshape(-1, *shown.shape[2:]))
        targets = torch.from_numpy(np.repeat(labels, shown.shape[1]))
        recipe = Recipe(epochs=self.classifier_epochs, prepare=as_input, augment=jitter)
        train_classifier(model, lambda epoch: (inputs, targets), recipe, ctx.torch_seed("classifier"),
                         report=lambda text: ctx.report(f"expression classifier, {text}"))
        return frozen(model)

    def _falsify(self, videos: list[Any], prior: Judge, rng: np.random.Generator, report: Any) -> None:
        """Try to refute that identity is hidden: same-video pairs told from others, before and after."""
        first, second = np.moveaxis(draw_frames(videos, 2, rng), 1, 0)  # (V, S, S, 3) each
        with torch.inference_mode():
            one, other = prior.embed(as_pictures(first)), prior.embed(as_pictures(second))
            hidden = prior.embed(as_pictures(self._changed(first)))
        before, after = area_under_curve((one @ other.T).numpy()), area_under_curve((hidden @ other.T).numpy())
        report(f"same video or not, area under the curve: {before:.3f} before, {after:.3f} after, .5 is chance")
        if not after < before - PROGRESS:
            raise Diverged(f"the public identity network tells same-video pairs from others as before "
                           f"(area under the curve {before:.3f}, then {after:.3f})")

    # ---- release ---------------------------------------------------------------------------------------------------

    def state(self) -> Mapping[str, np.ndarray]:
        return packed(suppress=self.suppress, restore=self.restore)

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Raises DataError when the arrays are of another architecture."""
        width = len(state["suppress/last.weight"][0]) if "suppress/last.weight" in state else WIDTHS["tiny"]
        self.suppress, self.restore = UNet(width), UNet(width)
        fill(self.suppress, part_of(state, "suppress"), "knowledge_priors_style's first network")
        fill(self.restore, part_of(state, "restore"), "knowledge_priors_style's second network")

    def release(self, video: Video, rng: np.random.Generator) -> Video:
        """uint8 (T, H, W, 3), every frame for itself; `rng` is not read."""
        return Video(self._changed(video.frames), video.fps)

    @torch.inference_mode()
    def _changed(self, frames: np.ndarray) -> np.ndarray:
        parts = as_pictures(frames).split(16)
        return np.concatenate([as_frames(self.restore(self.suppress(p[None]))[0]) for p in parts])


def with_pairs(videos: Any) -> list[Any]:
    """Videos that give a pair: two frames or more, each video once.

    Raises DataError when fewer than two are left, for there would be no pair of the same or of different people.
    """
    found: dict[Any, Any] = {}
    for item in videos:
        if len(item.video) > 1:
            found.setdefault(item.same_video, item)
    if len(found) < 2:
        raise DataError(f"{len(found)} development videos have two frames or more.",
                        "Pairs of one person are two frames of one video, pairs of two people are frames of two.",
                        "Give at least two videos that are longer than one frame, to train and to calibrate.")
    return list(found.values())


def expressions(videos: list[Any]) -> np.ndarray:
    """int64 (V,). Raises DataError without the label, and where all videos have one."""
    try:
        found = np.array([int(item.expression) for item in videos])
    except (AttributeError, KeyError, TypeError):
        found = np.zeros(0, int)
    if len(np.unique(found)) < 2:
        raise DataError("The development videos do not show two expressions or more.",
                        "The second network learns to restore the expression from its label.",
                        "Use a dataset with expression labels.")
    return found


def area_under_curve(cosines: np.ndarray) -> float:
    """Probability that a same-video pair (the diagonal of (V, V)) has a higher cosine than another pair; ties halve."""
    same = np.diag(cosines)[:, None]
    others = cosines[~np.eye(len(cosines), dtype=bool)][None]
    return float(((same > others) + 0.5 * (same == others)).mean())


class _Lesson:
    """Two players in turn on pairs from videos: a recogniser of changed pictures, and the U-Net that misleads it."""

    def __init__(self, frames: np.ndarray, labels: np.ndarray, prior: Judge, recogniser: nn.Module,
                 rng: np.random.Generator, report: Any):
        self.frames, self.labels, self.prior, self.rng, self.report = frames, labels, prior, rng, report
        self.recogniser: Any = recogniser.requires_grad_(True)

    def learn(self, name: str, change: nn.Module, learner: nn.Module, expression: nn.Module | None,
              steps: int) -> None:
        """change: from input to what is released.  learner: the part of it that learns."""
        mine = Descent(name, [(learner, 1.0)], Pace(rate=2e-3, betas=BETAS), steps)
        theirs = Descent(f"the recogniser against {name}", [(self.recogniser, 1.0)], Pace(rate=5e-4, betas=BETAS),
                         steps)
        for step in range(steps):
            frames, labels = self._batch()
            made = change(frames[None])[0]  # (V x 2, 3, S, S)
            partner = partners(self._seen(made.detach()))
            own = torch.arange(len(made)) ^ 1  # frames of one video lie side by side
            theirs.step(F.nll_loss(partner, own))
            mine.step(self._loss(frames, made, labels, expression))
            if (step + 1) % 50 == 0:
                self.report(f"{name}, step {step + 1}/{steps}: loss {mine.recent:.3f}, recogniser {theirs.recent:.3f} "
                            f"(blind: {np.log(len(made) - 1):.3f})")

    def _batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Two frames each of VIDEOS videos, moved alike, and the expressions (V x 2,)."""
        count = min(VIDEOS, len(self.frames))
        videos = self.rng.choice(len(self.frames), count, replace=False)
        pairs = np.stack([self.frames[v][self.rng.choice(self.frames.shape[1], FRAMES, replace=False)]
                          for v in videos])
        batch = moved(as_pictures(pairs.reshape(-1, *pairs.shape[2:])), self.rng).clamp(0, 1)
        return batch, torch.from_numpy(self.labels[videos]).repeat_interleave(FRAMES)

    def _seen(self, batch: torch.Tensor) -> torch.Tensor:
        """(N, d) unit embeddings by the recogniser, whose running statistics stay those it started with."""
        features = self.recogniser.eval().forward_features(scaled(batch))
        return F.normalize(self.recogniser.forward_head(features, pre_logits=True), dim=1)

    def _loss(self, frames: torch.Tensor, made: torch.Tensor, labels: torch.Tensor,
              expression: nn.Module | None) -> torch.Tensor:
        alike = -partners(self._seen(made)).masked_fill(torch.eye(len(made), dtype=torch.bool), 0).sum(1)
        alike = (alike / (len(made) - 1)).mean() - np.log(len(made) - 1)  # 0 when every frame is as near
        loss = (WEIGHTS["alike"] * alike + WEIGHTS["prior"] * self._known(frames, made)
                + WEIGHTS["keep"] * (made - frames).abs().mean())
        if expression is not None:
            loss = loss + WEIGHTS["expression"] * F.cross_entropy(expression(scaled(made)), labels)
        return loss

    def _known(self, frames: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
        """How far same-video cosines of changed with unchanged frames lie above those of different videos."""
        with torch.no_grad():
            clear = self.prior.embed(frames)
        cosines = self.prior.embed(made) @ clear.T  # (N, N)
        video = torch.arange(len(made)) // FRAMES
        level = cosines[video[:, None] != video].mean().detach()
        return F.relu(cosines[video[:, None] == video] - level).mean()


def partners(vectors: torch.Tensor) -> torch.Tensor:
    """Log-probabilities (N, N) that frame j is the partner of frame i, by cosine over HEAT; never itself: -inf."""
    cosines = vectors @ vectors.T / HEAT
    return F.log_softmax(cosines.masked_fill(torch.eye(len(vectors), dtype=torch.bool), -torch.inf), dim=1)
