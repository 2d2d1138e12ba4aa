"""The AdaFace head against hand-computed logits, its published networks, alignment, and the attack that uses them."""

from __future__ import annotations

import hashlib
import math

import cv2
import numpy as np
import pytest
import skimage.data
import torch
from safetensors.torch import save_file
from skimage.transform import estimate_transform
from torch.nn import functional as F

from bench import Context, DataError, Sample, Video, registry, seeds
from bench.errors import WeightsMissing
from bench.nets import iresnet
from bench.nets.adaface import EMBEDDING, EPS, AdaFaceHead, FrameEmbedder, embed_frames, mean_of_units
from bench.nets.image import frame_classifier
from bench.nets.training import use_threads


def head(dim=2, people=3, **more) -> AdaFaceHead:
    """Two people along the axes, the others along the diagonal; norms of mean 10 and deviation 3 - eps."""
    made = AdaFaceHead(dim, people, **more)
    with torch.no_grad():
        made.kernel.copy_(torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])[:, :people])
        made.mean.fill_(10.0)
        made.deviation.fill_(3.0 - EPS)
    return made.eval()


def at(degrees: float, norm: float) -> torch.Tensor:
    return norm * torch.tensor([[math.cos(math.radians(degrees)), math.sin(math.radians(degrees))]],
                               dtype=torch.float64)


# ---- the head ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("norm, zhat", [(0.9, -1.0), (10.0, 0.0), (19.1, 1.0), (10.0 + 3 * 0.5 / 0.333, 0.5)])
@pytest.mark.parametrize("degrees", [30.0, 60.0, 100.0])
def test_logits_by_hand(norm, zhat, degrees):
    """h (k - 10) / 3 with h = .333: norms .9 and 19.1 are clipped to -1 and 1."""
    m, s, theta = 0.4, 64.0, math.radians(degrees)
    logits = head().double()(at(degrees, norm), torch.tensor([0]))[0]
    assert logits[0].item() == pytest.approx(s * (math.cos(theta - m * zhat) - m - m * zhat), abs=1e-4)
    assert logits[1].item() == pytest.approx(s * math.cos(math.radians(90 - degrees)), abs=1e-4)
    assert logits[2].item() == pytest.approx(s * math.cos(math.radians(45 - degrees)), abs=1e-4)


def test_the_three_margins_have_their_names():
    """zhat = -1 is ArcFace's angular margin alone, 0 CosFace's alone, 1 spares the angle and subtracts 2 m."""
    theta = math.radians(50)
    low, middle, high = (head().double()(at(50, norm), torch.tensor([0]))[0, 0].item() / 64
                         for norm in (0.5, 10.0, 80.0))
    assert low == pytest.approx(math.cos(theta + 0.4), abs=1e-6)
    assert middle == pytest.approx(math.cos(theta) - 0.4, abs=1e-6)
    assert high == pytest.approx(math.cos(theta - 0.4) - 0.8, abs=1e-6)


def test_angles_stay_inside_half_a_turn():
    """At 0 degrees the cosine is held at 1 - eps, then theta - m zhat below eps is held at eps."""
    logits = head().double()(at(0, 80.0), torch.tensor([0]))[0]
    assert logits[0].item() / 64 == pytest.approx(math.cos(EPS) - 0.8, abs=1e-9)
    away = head().double()(at(180, 0.5), torch.tensor([0]))[0, 0].item() / 64
    assert away == pytest.approx(math.cos(min(math.acos(-1 + EPS) + 0.4, math.pi - EPS)), abs=1e-9)


def test_statistics_follow_the_norms_in_training_only():
    made = AdaFaceHead(4, 2)
    assert (made.mean.item(), made.deviation.item()) == (20.0, 100.0)
    batch = F.normalize(torch.arange(1.0, 13).reshape(3, 4), dim=1) * torch.tensor([[5.0], [10.0], [200.0]])
    norms = np.array([5.0, 10.0, 100.0])  # clipped to 100
    made.train()(batch, torch.tensor([0, 1, 1]))
    assert made.mean.item() == pytest.approx(0.99 * 20 + 0.01 * norms.mean(), rel=1e-6)
    assert made.deviation.item() == pytest.approx(0.99 * 100 + 0.01 * norms.std(ddof=1), rel=1e-6)
    before = made.mean.item(), made.deviation.item()
    made.eval()(batch, torch.tensor([0, 1, 1]))
    assert (made.mean.item(), made.deviation.item()) == before
    made.train()(batch[:1], torch.tensor([0]))  # one sample has no deviation
    assert made.mean.item() != before[0] and made.deviation.item() == before[1]
    assert {"mean", "deviation", "kernel"} == set(made.state_dict())


def test_norms_carry_no_gradient():
    """Cosines do not change with the length of an embedding, and the margin must not either: gradients are tangent."""
    made = head().double()
    embedding = at(30, 12.0).requires_grad_()
    made(embedding, torch.tensor([0])).sum().backward()
    assert embedding.grad is not None and embedding.grad.abs().max() > 1e-3
    assert abs((embedding.grad * embedding).sum().item()) < 1e-9


def test_a_clip_is_the_mean_of_its_unit_vectors():
    frames = torch.tensor([[100.0, 0.0], [0.0, 1.0]])  # a clear and a poor frame weigh the same
    np.testing.assert_allclose(mean_of_units(frames), [math.sqrt(0.5)] * 2, rtol=1e-6)


# ---- published networks --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name, count", [("ir18", 24_020_352), ("ir50", 43_585_600), ("ir101", 65_150_912)])
def test_parameter_counts(name, count):
    with torch.device("meta"):
        assert sum(p.numel() for p in iresnet.IResNet(name).parameters()) == count


def test_names_and_shapes_of_the_published_layout():
    with torch.device("meta"):
        shapes = {k: tuple(v.shape) for k, v in iresnet.IResNet("ir18").state_dict().items()}
    assert shapes["input_layer.0.weight"] == (64, 3, 3, 3) and shapes["input_layer.2.weight"] == (64,)
    assert shapes["body.2.shortcut_layer.0.weight"] == (128, 64, 1, 1)
    assert shapes["body.7.res_layer.4.weight"] == (512, 512, 3, 3) and "body.8.res_layer.0.weight" not in shapes
    assert "body.0.shortcut_layer.0.weight" not in shapes  # 64 to 64 channels: only strided
    assert shapes["output_layer.3.weight"] == (512, 25088) and "output_layer.4.weight" not in shapes
    assert shapes["output_layer.4.running_var"] == (512,)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """An IR-18 with seeded weights as the AdaFace repository and as CVLFace store it: {name: (path, sha256)}."""
    folder = tmp_path_factory.mktemp("weights")
    torch.manual_seed(seeds.derive_torch(1, "published"))
    tensors = iresnet.IResNet("ir18").state_dict()
    torch.save({"state_dict": {**{f"model.{k}": v for k, v in tensors.items()}, "head.kernel": torch.zeros(512, 3)},
                "epoch": 25}, folder / "a.ckpt")
    save_file({f"model.net.{k}": v for k, v in tensors.items()}, folder / "c.safetensors")
    return {p.stem: (p, hashlib.sha256(p.read_bytes()).hexdigest()) for p in folder.iterdir()}


def test_both_published_forms_load_to_the_same_network(published):
    first, bgr = iresnet.load_adaface(*published["a"], "ir18")
    second, other = iresnet.load_adaface(*published["c"], "ir18")
    assert bgr and not other, "the AdaFace repository's networks read BGR, CVLFace's RGB"
    assert all(torch.equal(a, b) for a, b in zip(first.state_dict().values(), second.state_dict().values()))
    found = embed_frames(first, torch.zeros(2, 3, 112, 112))
    assert found.shape == (2, 512) and torch.equal(found[0], found[1])


def test_no_other_file_is_loaded(published, tmp_path):
    path, digest = published["a"]
    with pytest.raises(DataError, match="have SHA-256"):
        iresnet.load_adaface(path, "0" * 64, "ir18")
    with pytest.raises(WeightsMissing, match="weights missing: adaface_ir50"):
        iresnet.load_adaface(tmp_path / "none.ckpt", digest)
    small = tmp_path / "small.safetensors"
    save_file({"model.input_layer.0.weight": torch.zeros(64, 3, 3, 3)}, small)
    with pytest.raises(DataError, match="does not hold the weights of ir18"):
        iresnet.load_adaface(small, hashlib.sha256(small.read_bytes()).hexdigest(), "ir18")


def test_a_file_that_could_run_code_is_refused(tmp_path):
    path = tmp_path / "code.ckpt"
    torch.save({"state_dict": {}, "hook": registry.Spec("a")}, path)
    with pytest.raises(DataError, match="holds more than tensors"):
        iresnet.load_adaface(path, hashlib.sha256(path.read_bytes()).hexdigest(), "ir18")


# ---- faces ---------------------------------------------------------------------------------------------------------

def test_the_reference_points_are_pinned():
    np.testing.assert_allclose(iresnet.REFERENCE, [[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366],
                                                   [41.5493, 92.3655], [70.7299, 92.2041]], atol=1e-4)


def test_the_similarity_is_the_least_squares_one():
    draw = seeds.derive(3, "points")
    for _ in range(5):
        points = iresnet.REFERENCE * 2.3 + draw.normal(0, 4, (5, 2)) + 20
        np.testing.assert_allclose(iresnet.similarity(points),
                                   estimate_transform("similarity", points, iresnet.REFERENCE).params[:2], atol=1e-9)
    exact = iresnet.similarity(2 * iresnet.REFERENCE + 7)
    np.testing.assert_allclose(exact, [[0.5, 0, -3.5], [0, 0.5, -3.5]], atol=1e-12)


def test_alignment_brings_the_five_points_to_their_places():
    turn = math.radians(25)
    points = 1.6 * iresnet.REFERENCE @ [[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]] + [90, 10]
    frame = np.zeros((300, 300, 3), np.uint8)
    for number, (x, y) in enumerate(points):
        cv2.circle(frame, (round(x), round(y)), 5, (0, 50 + 40 * number, 0), -1)
    face = iresnet.align(frame, points)
    assert face.shape == (112, 112, 3) and face.dtype == np.uint8
    for number, (x, y) in enumerate(iresnet.REFERENCE):
        assert abs(int(face[round(y), round(x), 1]) - (50 + 40 * number)) <= 2


def test_the_colour_order_and_range_are_pinned():
    face = torch.zeros(1, 112, 112, 3, dtype=torch.uint8)
    face[..., 0], face[..., 1] = 255, 51  # red in RGB
    assert iresnet.as_face_input(face, bgr=True)[0, :, 0, 0].tolist() == pytest.approx([-1, -0.6, 1])
    assert iresnet.as_face_input(face, bgr=False)[0, :, 5, 9].tolist() == pytest.approx([1, -0.6, -1])


def test_no_face_in_grey_and_frames_without_one_are_left_out(monkeypatch):
    assert iresnet.five_points(np.full((112, 112, 3), 127, np.uint8)) is None
    frames = np.full((3, 120, 120, 3), 50, np.uint8)
    frames[1] = 90
    monkeypatch.setattr(iresnet, "five_points", lambda f: iresnet.REFERENCE if f[0, 0, 0] == 50 else None)
    found = iresnet.aligned_faces(frames)
    np.testing.assert_array_equal(found, frames[[0, 2], :112, :112])
    assert iresnet.aligned_faces(frames[1:2]).shape == (0, 112, 112, 3)


def test_a_real_face_is_found_and_brought_to_the_reference():
    """The points of an aligned face need no further turn, scale or shift; whose nose is long keeps it."""
    frame = skimage.data.astronaut()[:256, 96:352]
    (face,) = iresnet.aligned_faces(frame[None])
    again = iresnet.five_points(cv2.copyMakeBorder(face, 40, 40, 40, 40, cv2.BORDER_REPLICATE))
    assert again is not None
    np.testing.assert_allclose(iresnet.similarity(again - 40)[:, :2], np.eye(2), atol=0.06)
    np.testing.assert_allclose((again - 40).mean(0), iresnet.REFERENCE.mean(0), atol=2)
    np.testing.assert_allclose(again - 40, iresnet.REFERENCE, atol=8)  # and no point is another one's


# ---- the attack ----------------------------------------------------------------------------------------------------

PEOPLE = 3


def context(profile="tiny", report=lambda text: None) -> Context:
    return Context(rng=lambda *names: seeds.derive(9, *names), torch_seed=lambda *names: seeds.derive_torch(9, *names),
                   profile=profile, report=report)


def coloured(name: str, each: int, clear: bool = True) -> list[Sample]:
    """Clips whose colour names the person, or noise that names nobody; every other one has a second draw."""
    draw, samples = seeds.derive(1, name), []
    for person in range(PEOPLE):
        for number in range(each):
            clips = draw.integers(0, 60 if clear else 256, (2, 5 + number, 32, 32, 3))
            if clear:
                clips[..., person] += 180
            videos = [Video(clip.astype(np.uint8)) for clip in clips]
            samples.append(Sample(videos[0], person=person, redraws=tuple(videos[1:1 + number % 2])))
    return samples


def learned(clear: bool = True, report=lambda text: None):
    use_threads()
    torch.manual_seed(seeds.derive_torch(2, "asset"))
    asset = frame_classifier("resnet10t", 4).state_dict()
    attack = registry.get("attacks", "open_set")(epochs=3)
    attack.fit(coloured("train", 4, clear), PEOPLE, {"identity_eval": asset}, context(report=report))
    return attack


@pytest.fixture(scope="module")
def matcher():
    said: list[str] = []
    return learned(report=said.append), said


def test_it_matches_clear_people_and_reports_norms(matcher):
    attack, said = matcher
    vectors = np.stack([attack.embed(s.video) for s in coloured("probe", 3)])
    assert vectors.shape == (3 * PEOPLE, EMBEDDING)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    cosines, person = vectors @ vectors.T, np.repeat(np.arange(PEOPLE), 3)
    same = person[:, None] == person
    assert cosines[same].min() > cosines[~same].max() + 0.2
    assert any(text.startswith("norms of frame embeddings") for text in said)


def test_it_goes_through_its_state_and_is_seeded(matcher):
    attack, _ = matcher
    other = registry.get("attacks", "open_set")()
    other.load({k: np.array(v) for k, v in attack.state().items()}, PEOPLE, context())
    video = coloured("again", 1)[1].video
    np.testing.assert_array_equal(other.embed(video), attack.embed(video))
    np.testing.assert_array_equal(learned().embed(video), attack.embed(video))


def test_it_cannot_tell_on_noise():
    attack = learned(clear=False)
    vectors = np.stack([attack.embed(s.video) for s in coloured("noise", 12, clear=False)])
    person = np.repeat(np.arange(PEOPLE), 12)
    cosines = vectors @ vectors.T
    upper = np.triu_indices(len(person), 1)
    same = (person[:, None] == person)[upper]
    gap = cosines[upper][same].mean() - cosines[upper][~same].mean()
    assert abs(gap) < 4 * cosines[upper].std() / math.sqrt(len(person))


def test_every_epoch_reads_its_own_draw():
    attack = registry.get("attacks", "open_set")(frames_per_clip=2)
    attack.profile = "tiny"
    videos = [Video(np.full((4, 8, 8, 3), value, np.uint8)) for value in (1, 2, 3)]
    sample = Sample(videos[0], person=1, redraws=tuple(videos[1:]))
    seen = [attack._draw([sample], epoch, seeds.derive(1, "x")) for epoch in range(4)]
    assert [set(frames.flatten().tolist()) for frames, _ in seen] == [{1}, {2}, {3}, {1}]
    assert all(targets.tolist() == [1, 1] for _, targets in seen)


def test_frames_are_spread_over_the_clip():
    attack = registry.get("attacks", "open_set")(frames_per_clip=4)
    attack.profile = "tiny"
    video = Video(np.arange(16, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 3), np.uint8))
    for seed in range(5):
        frames, _ = attack._draw([Sample(video, person=0)], 0, seeds.derive(seed, "x"))
        assert (frames[:, 0, 0, 0] // 4).tolist() == [0, 1, 2, 3]


def test_the_paper_profile_starts_from_published_weights(published, monkeypatch):
    cls, said = registry.get("attacks", "open_set"), []
    with pytest.raises(WeightsMissing, match="weights missing: adaface_ir50"):
        cls().fit([], 2, {}, context("paper"))
    path, digest = published["a"]
    attack = cls(architecture="ir18", weights=str(path), sha256=digest, embedded_frames=2)
    samples = [Sample(Video(np.full((4, 60, 60, 3), 127, np.uint8)), person=p) for p in range(2)]
    attack.fit(samples, 2, {}, context("paper", said.append))
    assert "no face found" in said[-1]
    assert np.isnan(attack.embed(samples[0].video)).all()
    monkeypatch.setattr(iresnet, "five_points", lambda frame: iresnet.REFERENCE / 2)
    again = cls(architecture="ir18", embedded_frames=2)
    again.load(attack.state(), 2, context("paper"))
    assert again.bgr
    np.testing.assert_array_equal(again.embed(samples[0].video), attack.embed(samples[0].video))
    assert np.linalg.norm(again.embed(samples[0].video)) == pytest.approx(1, rel=1e-5)


def test_the_embedding_layer_ends_as_in_the_published_networks():
    layer = FrameEmbedder("resnet10t").output_layer
    assert layer[0].out_features == EMBEDDING == 512 and not layer[1].affine
