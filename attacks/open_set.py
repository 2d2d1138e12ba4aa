"""Open set: released clips compared with clear pictures of people, among them people whom nobody knows."""

import numpy as np
import torch

from bench import Column, Match, ThreatModel, attack
from bench.nets.adaface import EMBEDDING, FrameEmbedder, Matcher, embed_frames, mean_of_units
from bench.nets.image import as_input, jitter
from bench.nets.iresnet import IResNet, aligned_faces, as_face_input, load_adaface
from bench.nets.training import Recipe, load_matching, train_classifier
from bench.sampling import spread

TINY = "resnet10t"  # architecture of the evaluation asset that it starts from


def _rate(name, far, title, better="lower", role="privacy"):
    return Column(id=name, unit="rate", better=better, low=0, high=1, role=role, params={"far": far},
                  title=f"{title} {far:g}", source="TADP 4.1.8; PROTOCOL 7")


@attack("open_set")
class OpenSet(Match):
    """Learns a face embedding on a method's released development clips and compares released clips of test people with
    templates of their original enrolment clips: an attacker who holds a photograph album and has adapted to the
    method. A clip is the mean of its frames' unit vectors; scores are cosines. `eer`: where wrong and missed matches
    are equally frequent, .5 = cannot tell, higher is more private. `tar`: share of same-person pairs accepted at a
    false accept rate; `dir`: share of enrolled people's clips found in a gallery of half the test people; for both,
    lower is more private. Thresholds come from development people, so the false accept rate that test people really
    had stands beside (`realised_far`). Trained with AdaFace's head (margin .4, h .333, scale 64, running statistics
    of norms). `tiny`: timm's resnet10t started from the evaluation identity asset, whole canvas, RGB. `paper`: the
    published IR-50 (`weights`, `sha256`) on faces aligned by five points, 112 x 112 px; a clip in which no face is
    found counts as no match. Templates are clear and the matcher has seen protected clips only: part of what it
    misses is that gap. Source: TADP 4.1.8; AdaFace: Kim, Jain and Liu, CVPR 2022.
    """

    threat = ThreatModel(
        knows="original enrolment clips of every test person, released clips of development people with their names",
        reads="clip", trained_on="released development", decoding="isolated")
    columns = (
        Column(id="eer", unit="rate", better="higher", low=0, high=1, role="privacy", statistic="eer",
               title="Equal error rate of an adapted face matcher", source="TADP 4.1.8"),
        *(_rate("tar", far, "Same person accepted at a false accept rate of") for far in (0.1, 0.01, 0.001)),
        *(_rate("dir", far, "Enrolled person found at a false alarm rate of") for far in (0.1, 0.01)),
        *(_rate("realised_far", far, "Other people accepted where the threshold aimed at", "none", "descriptive")
          for far in (0.1, 0.01)),
    )
    assets = ("identity_eval",)

    def __init__(self, *, epochs: int = 4, frames_per_clip: int = 2, embedded_frames: int = 8, rate: float = 1e-3,
                 architecture: str = "ir50", weights: str = "", sha256: str = ""):
        self.epochs, self.rate, self.frames_per_clip = epochs, rate, frames_per_clip
        self.embedded_frames, self.architecture, self.weights, self.sha256 = (embedded_frames, architecture, weights,
                                                                              sha256)
        self.bgr = False  # does the network read BGR? That of the tiny profile reads RGB

    def fit(self, development, people, assets, ctx):
        torch.manual_seed(ctx.torch_seed("weights"))
        self._start(people, ctx.profile, assets)
        rng = ctx.rng("frames")
        first = self._draw(development, 0, rng)
        if len(first[1]) < 2:
            ctx.report("no face found in the development clips: the published network is used as it is")
            return
        recipe = Recipe(epochs=self.epochs, prepare=self._prepare, augment=jitter, rate=self.rate,
                        loss=self.model.loss)
        train_classifier(self.model, lambda epoch: self._draw(development, epoch, rng) if epoch else first, recipe,
                         ctx.torch_seed("order"), report=ctx.report)
        norms = embed_frames(self.model.backbone, self._prepare(first[0][:256])).norm(dim=1)
        ctx.report(f"norms of frame embeddings: {norms.min():.1f} to {norms.max():.1f}, median {norms.median():.1f}; "
                   f"the head's running mean {self.model.head.mean:.1f}, deviation {self.model.head.deviation:.1f}")

    def _start(self, people, profile, assets):
        """The network before training: the evaluation asset, or published weights."""
        self.profile = profile
        if profile == "tiny":
            self.model = Matcher(FrameEmbedder(TINY), people)
            load_matching(self.model.backbone.trunk, dict(assets["identity_eval"]))
            return
        network, self.bgr = load_adaface(self.weights, self.sha256, self.architecture)
        self.model = Matcher(network, people)

    def _draw(self, development, epoch, rng):
        """Frames of every clip of this epoch's draw, one from each of equally long stretches, and whose they are."""
        faces, targets = [], []
        for sample in development:
            frames = sample.draw(epoch).frames
            stretch = len(frames) / self.frames_per_clip
            index = ((np.arange(self.frames_per_clip) + rng.random(self.frames_per_clip)) * stretch).astype(int)
            faces.append(self._faces(frames[index]))
            targets += [sample.person] * len(faces[-1])
        return torch.from_numpy(np.concatenate(faces)), torch.tensor(targets, dtype=torch.int64)

    def _faces(self, frames):
        """What the network looks at: the canvas as it is, or aligned faces (fewer where none is found)."""
        return frames if self.profile == "tiny" else aligned_faces(frames)

    def _prepare(self, faces):
        return as_input(faces) if self.profile == "tiny" else as_face_input(faces, self.bgr)

    def embed(self, video):
        faces = self._faces(video.frames[spread(len(video), 0, len(video), self.embedded_frames)])
        if not len(faces):
            return np.full(EMBEDDING, np.nan)
        return mean_of_units(embed_frames(self.model.backbone, self._prepare(torch.from_numpy(faces)))).numpy()

    def state(self):
        return {**{name: tensor.numpy() for name, tensor in self.model.state_dict().items()},
                "reads_bgr": np.array(self.bgr)}

    def load(self, state, people, ctx):
        self.profile, self.bgr = ctx.profile, bool(state["reads_bgr"])
        self.model = Matcher(FrameEmbedder(TINY) if ctx.profile == "tiny" else IResNet(self.architecture), people)
        self.model.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in state.items()
                                    if name != "reads_bgr"})
