"""pi_net_style and video_dprp_style: their laws of noise, their must-keep parts, what they refuse."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from bench import Context, DataError, Diverged, Video, registry, seeds
from bench.nets import crop_faces
from bench.nets.coders import FrameAutoencoder
from bench.privacy.accounting import price
from bench.privacy.bits import SeededBits
from bench.privacy.declared import Noise, ReleaseContext, declared_claim, release_clips
from bench.registry import Spec
from bench.run.workers import method_facts
from methods.pi_net_style import RADIUS, attribute_classes, semi_hard
from methods.video_dprp_style import COVARIANCE, PROJECTION, VideoDPRPStyle, symmetric

DRAWS = 200


@pytest.fixture(autouse=True)
def faces(monkeypatch):
    """The pictures of this file are no faces: by default every frame counts as one; `faces(3)` loses frame 3."""
    def lose(*lost: int) -> None:
        boxes = np.zeros((16, 4))
        boxes[list(lost)] = np.nan
        monkeypatch.setattr(crop_faces, "found_faces", lambda frames: boxes[:len(frames)].copy())
    lose()
    return lose


def bits(*names) -> SeededBits:
    return SeededBits(seeds.derive(8, "declared methods", *names))


def context(method, *names) -> ReleaseContext:
    """Fresh noise by `names`, the same public chance always."""
    return ReleaseContext(Noise(declared_claim(method), bits(*names)), lambda *more: seeds.derive(4, *more))


def whole(method, video: Video, *names) -> np.ndarray:
    made = release_clips(method, video, lambda *more: seeds.derive(4, *more[1:]), lambda k: bits(*names, k), "tiny")
    return made.frames


# ---- video_dprp_style ----------------------------------------------------------------------------------------------

def talking(frames=16, side=32, seed=1) -> Video:
    rng = seeds.derive(seed, "talking")
    made = np.broadcast_to(rng.integers(0, 256, (1, side, side, 3)), (frames, side, side, 3)).copy()
    made[:, :, side // 2:] = 255 - made[:, :, side // 2:]
    return Video((made + rng.integers(0, 20, made.shape)).clip(0, 255).astype(np.uint8))


class Recorded(VideoDPRPStyle):
    """Keeps the two noisy values that the rest of a release is made from."""

    def rebuilt(self, projected, covariance, matrix):
        self.seen = projected, covariance, matrix
        return super().rebuilt(projected, covariance, matrix)


def test_the_released_projection_and_covariance_vary_as_declared():
    """Over 200 draws: variance of every coordinate of both, chi-squared with 199 degrees of freedom."""
    method, video = Recorded(grid=2, columns=4, components=3), talking()
    std = {b.name: b.noise_std for b in method.terms.branches}
    seen = []
    for draw in range(DRAWS):
        method.release(video, context(method, draw))
        seen.append(method.seen)
    matrix, clean = seen[0][2], method.rows(video.frames)
    assert all(np.array_equal(matrix, s[2]) for s in seen)  # the projection itself is public
    projected, covariance = np.stack([s[0] for s in seen]), np.stack([s[1] for s in seen])
    upper = np.triu_indices(12)
    scales = np.where(upper[0] == upper[1], 1, 1 / np.sqrt(2)) * std[COVARIANCE]
    for name, drawn, want, mean in ((PROJECTION, projected.reshape(DRAWS, -1), std[PROJECTION], clean @ matrix),
                                    (COVARIANCE, covariance[:, *upper], scales, (clean.T @ clean)[upper])):
        ratio = drawn.var(axis=0, ddof=1) / want**2
        total = (DRAWS - 1) * ratio.sum()
        freedom = (DRAWS - 1) * ratio.size
        assert abs(total - freedom) < 4 * np.sqrt(2 * freedom), name
        assert np.abs(ratio - 1).max() < 6 * np.sqrt(2 / (DRAWS - 1)), name
        off = (drawn.mean(axis=0) - mean.ravel()) / (want / np.sqrt(DRAWS))
        assert stats.chi2(off.size).sf((off**2).sum()) > 1e-3, name  # around what was to be released
    np.testing.assert_array_equal(covariance, covariance.swapaxes(1, 2))


def test_the_sensitivities_hold_and_are_nearly_reached():
    """Rows of X R and whole covariances of any two clips, extreme ones among them, lie within the declared ball."""
    method = VideoDPRPStyle(grid=2, columns=4, components=4)
    ball = {b.name: b.clip_norm for b in method.terms.branches}
    matrix = method.matrix(seeds.derive(1, "matrix"))
    assert np.linalg.norm(matrix, 2) == pytest.approx(1) and matrix.shape == (12, 4)
    extremes = [np.full((16, 8, 8, 3), v, np.uint8) for v in (0, 255)]
    checks = np.zeros((16, 8, 8, 3), np.uint8)
    checks[:, :4] = 255
    clips = [method.rows(c) for c in (*extremes, checks, *(talking(seed=s).frames for s in range(6)))]
    rows = np.stack([c @ matrix for c in clips])  # (clips, 16, k)
    grams = [c.T @ c for c in clips]
    assert np.linalg.norm(np.stack(clips), axis=2).max() <= method.clip * (1 + 1e-12)
    assert np.linalg.norm(rows, axis=2).max() <= ball[PROJECTION] * (1 + 1e-12)
    apart = [np.linalg.norm(a - b) for a in grams for b in grams]
    assert 0.99 * 2 * ball[COVARIANCE] < max(apart) <= 2 * ball[COVARIANCE] * (1 + 1e-12)


def test_symmetric_noise_keeps_its_length():
    values = seeds.derive(2, "symmetric").normal(size=21)
    made = symmetric(values, 6)
    np.testing.assert_array_equal(made, made.T)
    assert np.linalg.norm(made) == pytest.approx(np.linalg.norm(values))
    assert np.count_nonzero(made) == 36


@pytest.mark.parametrize("variant, epsilon", [(None, 8), ("eps2", 2), ("eps5", 5), ("eps16", 16), ("paper", 8)])
def test_the_two_noises_share_one_exact_budget(variant, epsilon):
    claim = declared_claim(registry.build("methods", Spec("video_dprp_style", variant)))
    assert price(claim).epsilon == pytest.approx(epsilon, abs=1e-6) and (claim.unit, claim.delta) == ("clip", 1e-5)
    assert [b.rows for b in claim.branches] == [None, 1]


def test_without_noise_to_speak_of_the_clip_is_rebuilt_from_its_singular_vectors():
    """16 frames that span few directions come back; one budget of a million is next to no noise."""
    method = VideoDPRPStyle(epsilon=1e6, grid=4, columns=24, components=2)
    towards = seeds.derive(3, "two").uniform(-60, 60, (2, 1, 4, 4, 3))
    mix = np.linspace(0, 1, 16)[:, None, None, None]
    small = 127.5 + mix * towards[0] + (1 - mix) * towards[1]  # (16, 4, 4, 3): two directions
    video = Video(np.rint(small).astype(np.uint8))
    noisy = VideoDPRPStyle(grid=4, columns=24, components=2)
    error = {m: np.abs(whole(m, video, "rebuilt").astype(int) - video.frames).mean() for m in (method, noisy)}
    assert error[method] < 8 and error[noisy] > 25


def test_a_clip_with_more_directions_than_columns_is_refused():
    with pytest.raises(registry.ConfigError, match="do not go together"):
        VideoDPRPStyle(grid=2, columns=4, components=5)


# ---- pi_net_style --------------------------------------------------------------------------------------------------

PEOPLE, SIDE = 8, 64


def face(person: int, take: int) -> np.ndarray:
    """uint8 (16, 64, 64, 3): a colour and a stripe a person, a little noise a take."""
    rng, colour = seeds.derive(person, "colour"), seeds.derive(person, "take", take)
    made = np.broadcast_to(rng.integers(40, 216, 3), (16, SIDE, SIDE, 3)).astype(float)
    made[:, 8 * person:8 * person + 8] = rng.integers(0, 256, 3)
    return (made + colour.normal(0, 4, made.shape)).clip(0, 255).astype(np.uint8)


def development(attributes=lambda person: {"beard": person % 2, "glasses": person // 2 % 2}):
    items = [SimpleNamespace(video=Video(face(person, take)), attributes=attributes(person))
             for person in range(PEOPLE) for take in range(3)]
    return SimpleNamespace(train=items, calibration=[])


def fitted(data=None, **settings):
    torch.manual_seed(0)
    network = FrameAutoencoder().eval()
    scale = {"latent_mean": np.zeros((4, 1, 1), np.float32), "latent_deviation": np.full((4, 1, 1), 0.1, np.float32)}
    assets = {"autoencoder_method": {k: v.numpy() for k, v in network.state_dict().items()} | scale}
    method = registry.get("methods", "pi_net_style")(**{"epochs": 60, "batch": 48, "hidden": 64, **settings})
    ctx = Context(rng=lambda *more: seeds.derive(9, "pi", *more), report=lambda text: None,
                  torch_seed=lambda *more: seeds.derive_torch(9, "pi", *more))
    method.fit(data or development(), assets, ctx)
    return method


@pytest.fixture(scope="module")
def trained():
    return fitted()


def loaded(trained, **settings):
    method = registry.get("methods", "pi_net_style")(**{"hidden": 64, **settings})
    method.load(trained.state())
    return method


def test_the_noise_of_a_frame_is_isotropic_with_a_gamma_length(trained):
    """What leaves the latent, less what went in: over 200 releases of one clip, 3,200 frames."""
    method, video, kept = loaded(trained, epsilon=32.0), Video(face(1, 0)), []
    method.paint = lambda noisy, side: kept.append(noisy) or np.zeros((16, SIDE, SIDE, 3), np.uint8)
    for draw in range(DRAWS):
        method.release(video, context(method, "law", draw))
    clean = method.points(method.codes(video.frames)).numpy()
    np.testing.assert_allclose(np.linalg.norm(clean, axis=1), RADIUS, rtol=1e-5)
    noise = np.concatenate([k - clean for k in kept])  # (3200, 8)
    length = np.linalg.norm(noise, axis=1)
    assert stats.kstest(length, stats.gamma(8, scale=1 / 2.0).cdf).pvalue > 1e-3  # 2 an image, Delta = 1
    direction = noise / length[:, None]
    assert stats.chi2(8).sf(len(noise) * 8 * (direction.mean(axis=0) ** 2).sum()) > 1e-3
    assert stats.kstest((1 + direction[:, 3]) / 2, stats.beta(3.5, 3.5).cdf).pvalue > 1e-3
    steps = noise.reshape(DRAWS, 16, 8)
    lagged = (steps[:, :-1] * steps[:, 1:]).sum(2).mean()  # new noise in each frame
    assert abs(lagged) < 5 * (length**2).mean() / np.sqrt(8 * 3000)


@pytest.mark.parametrize("variant, epsilon", [(None, 32), ("eps8", 8), ("eps512", 512), ("paper", 32)])
def test_the_claim_is_metric_and_adds_up_over_frames(variant, epsilon):
    facts = method_facts(Spec("pi_net_style", variant))
    claim = facts["claim"]
    assert (facts["lane"], claim["unit"], claim["adjacency"]) == ("declared", "image_metric", "metric")
    assert float(claim["epsilon"]) == pytest.approx(epsilon)
    branch = facts["full_claim"]["claim"]["branch"][0]
    assert (branch["noise"], branch["clip_norm"]) == ("exponential", RADIUS)
    assert "inference" in facts["doc"] and facts["needs"] == ["attributes"]


def test_people_are_harder_to_tell_apart_with_less_epsilon(trained):
    """Nearest mean of released enrolment clips, eight people: near all at 1e5, near chance at 1."""
    rates = {}
    for epsilon in (1.0, 1e5):
        method = loaded(trained, epsilon=epsilon)
        kept = np.stack([whole(method, Video(face(p, 5)), p, 5)[::4].mean(0).ravel() for p in range(PEOPLE)])
        hits = [int(((kept - frame.ravel()) ** 2).sum(1).argmin()) == p for p in range(PEOPLE) for take in (6, 7)
                for frame in whole(method, Video(face(p, take)), p, take)[::2]]
        rates[epsilon] = float(np.mean(hits))
    assert rates[1e5] > 0.8 and rates[1.0] < 0.35 and rates[1e5] - rates[1.0] > 0.4


def test_attributes_cluster_in_the_latent(trained):
    items = development().train
    points = np.concatenate([trained.points(trained.codes(i.video.frames[:1])).numpy() for i in items])
    classes, count = attribute_classes([i.attributes for i in items])
    apart = np.linalg.norm(points[:, None] - points[None], axis=2)
    same = classes[:, None] == classes[None]
    assert count == 4 and apart[same].mean() < 0.5 * apart[~same].mean()


def test_semi_hard_takes_the_nearest_that_lies_farther():
    angles = torch.tensor([0.0, 30.0, 50.0, 20.0, 180.0]) * torch.pi / 180
    points = torch.stack([angles.cos(), angles.sin()], 1)
    labels = torch.tensor([0, 0, 1, 1, 2])

    def apart(a, b):
        return float(2 - 2 * torch.cos(angles[a] - angles[b]))
    chosen = {(0, 1): 2, (1, 0): 4, (2, 3): 0, (3, 2): 4}  # (1, 0): those of class 1 are nearer than 30 degrees
    want = np.mean([max(0.0, 1 + apart(a, p) - apart(a, n)) for (a, p), n in chosen.items()])
    assert float(semi_hard(points, labels)) == pytest.approx(want, rel=1e-5)
    assert float(semi_hard(points, torch.zeros(5, dtype=torch.long))) == 0


def test_encoder_and_decoder_stay_public_and_the_state_is_the_method(trained):
    torch.manual_seed(0)
    for name, tensor in FrameAutoencoder().state_dict().items():
        np.testing.assert_array_equal(trained.state()[f"public.{name}"], tensor.numpy())
    one, other = (whole(loaded(trained), Video(face(2, 1)), "state") for _ in range(2))
    assert one.tobytes() == other.tobytes() and one.shape == (16, SIDE, SIDE, 3)
    assert not np.array_equal(one[0], one[1])
    large = Video(np.repeat(np.repeat(face(2, 1), 2, 1), 2, 2))
    assert whole(loaded(trained), large, "state").shape == (16, 128, 128, 3)


@pytest.mark.parametrize("attributes, said", [
    (lambda person: {}, "do not all carry"), (lambda person: {"beard": 1}, "same attributes"),
    (lambda person: {"beard": 1} if person else {"glasses": 1}, "do not all carry")])
def test_people_without_attributes_are_refused(attributes, said):
    with pytest.raises(DataError, match=said):
        fitted(development(attributes))


def test_training_that_becomes_no_number_says_so():
    with pytest.raises(Diverged, match="loss of epoch 1 is not finite"):
        fitted(epochs=1, rate=1e30)


def test_weights_of_another_size_are_refused(trained):
    with pytest.raises(DataError, match="no weights of pi_net_style"):
        loaded(trained, hidden=32)


# ---- a frame without a face ----------------------------------------------------------------------------------------

def test_what_shows_no_face_is_grey_and_counted(monkeypatch):
    monkeypatch.undo()  # the detector itself
    adapter = registry.build("datasets", "synthfaces_public")
    face = adapter.load(adapter.sources(None, 42)[0], 64).frames[:16].copy()
    face[9:] = seeds.derive(7, "no face").integers(0, 256, face[9:].shape)
    made, lost = crop_faces.faces_only(face)
    assert lost == 7 and (made[9:] == 127).all()
    np.testing.assert_array_equal(made[:9], face[:9])
    assert not (face[9:] == 127).all()  # the input stays


@pytest.mark.parametrize("name", ["pi_net_style", "video_dprp_style"])
def test_nothing_of_a_frame_without_a_face_is_passed_on_and_the_release_does_not_mark_it(name, trained, faces, capsys):
    """The same noise on two clips that differ in lost frames alone gives the same bytes; every frame has its noise."""
    method = loaded(trained) if name == "pi_net_style" else VideoDPRPStyle(grid=4, columns=8, components=2)
    clip, other = face(1, 0), face(1, 0)
    other[[3, 9]] = face(4, 2)[[3, 9]]
    seen = [whole(method, Video(c), "seen") for c in (clip, other)]
    faces(3, 9)
    lost = [whole(method, Video(c), "seen") for c in (clip, other)]
    assert "no face in 2 of 16 frames" in capsys.readouterr().out
    assert seen[0].tobytes() != seen[1].tobytes() and lost[0].tobytes() == lost[1].tobytes() != seen[0].tobytes()
    again = whole(method, Video(clip), "other noise")
    assert all(f.std() > 1 for f in lost[0][[3, 9]]) and not np.array_equal(lost[0][[3, 9]], again[[3, 9]])
