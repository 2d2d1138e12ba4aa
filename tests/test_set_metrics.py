"""fd_id, mmd_id and fvd: what they embed, what their distances do, and what they say without weights."""

from __future__ import annotations

import hashlib
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from bench import Context, SetMetric, Video, registry, weights
from bench.errors import DataError, Undefined, WeightsMissing
from bench.nets import features
from bench.nets.image import as_input, frame_classifier
from bench.nets.training import use_threads
from bench.nets.video import SIZES, as_clip_input, x3d
from bench.run.views import load_tensors
from bench.sampling import spread
from bench.seeds import derive, derive_torch

NAMES = ("fd_id", "mmd_id", "fvd")
CLIPS = 6
CONTEXT = Context(lambda *n: derive(3, *n), lambda *n: derive_torch(3, *n))


@pytest.fixture(scope="module")
def assets() -> dict[str, dict[str, torch.Tensor]]:
    use_threads()
    return {name: {k: torch.from_numpy(v) for k, v in load_tensors(weights.verified(name)).items()}
            for name in ("identity_eval", "expression_eval")}


@pytest.fixture(scope="module")
def loaded(assets) -> dict[str, SetMetric]:
    found = {name: registry.build("metrics", name) for name in NAMES}
    for plugin in found.values():
        plugin.load(assets, CONTEXT)
    return found


def clip(number: int, noise: float = 0.0, frames: int = 16) -> Video:
    """A face-like blob that moves, its own colour, with noise on top; read-only."""
    draw = derive(number, "blob")
    rows, columns = np.mgrid[:64, :64]
    colour, centre, size = draw.integers(80, 220, 3), draw.integers(24, 40, 2), draw.integers(10, 20)
    shape = np.stack([(rows - centre[0]) ** 2 + (columns - centre[1] - t / 2) ** 2 < size**2 for t in range(frames)])
    video = 60.0 + shape[..., None] * (colour - 60.0) + noise * draw.normal(size=(frames, 64, 64, 3))
    video = np.clip(video, 0, 255).astype(np.uint8)
    video.flags.writeable = False
    return Video(video, 25.0)


@pytest.fixture(scope="module")
def sets(loaded) -> dict[str, dict[float, np.ndarray]]:
    """Features of CLIPS clips of 8 frames under growing noise."""
    return {name: {noise: np.stack([loaded[name].embed(clip(i, noise, 8)) for i in range(CLIPS)])
                   for noise in (0, 8, 80)} for name in NAMES}


# ---- features ------------------------------------------------------------------------------------------------------

def test_frame_embeddings_are_what_the_identity_head_reads(assets):
    state, frames = assets["identity_eval"], clip(1, 8).frames
    found = features.frame_embedder(state)(frames)
    model = frame_classifier("resnet10t", len(state["fc.bias"]))
    model.load_state_dict(state)
    with torch.inference_mode():
        logits = (model.eval()(as_input(torch.from_numpy(frames.copy()))) - state["fc.bias"]).numpy()  # (16, P)
    ours = found @ state["fc.weight"].numpy().T  # the same but for the length of each embedding
    assert found.shape == (16, 512) and found.dtype == np.float32
    assert np.linalg.norm(found, axis=1) == pytest.approx(1, abs=1e-5)
    assert (ours * logits).sum(1) == pytest.approx(np.linalg.norm(ours, axis=1) * np.linalg.norm(logits, axis=1),
                                                   rel=1e-5)


def test_long_videos_are_embedded_in_parts(assets, monkeypatch):
    embed, frames = features.frame_embedder(assets["identity_eval"]), clip(2, 8, frames=19).frames
    whole = embed(frames)
    monkeypatch.setattr(features, "BATCH", 7)
    assert embed(frames) == pytest.approx(whole, abs=1e-5)
    assert embed(frames[:1]) == pytest.approx(whole[:1], abs=1e-5)


@pytest.mark.parametrize("frames", [16, 5, 1])
def test_clip_features_stand_before_the_projection(assets, frames):
    """The rest of the head makes the network's own logits of them."""
    state, video, size = assets["expression_eval"], clip(1, 8, frames).frames, SIZES["tiny"]
    found = features.clip_embedder(state)(video)
    model = x3d(len(state["blocks.5.proj.bias"]), size)
    model.load_state_dict(state)
    head = model.eval().blocks[5]
    with torch.inference_mode():
        chosen = torch.from_numpy(video[spread(frames, 0, frames, size.frames)])
        expected = model(as_clip_input(chosen[None], size.side_px))[0]
        column = torch.from_numpy(found)[None, :, None, None, None]
        ours = head.proj(head.pool.post_act(head.pool.post_conv(column)).flatten(1))[0]
    assert found.shape == (216,) and found.dtype == np.float32
    assert ours.numpy() == pytest.approx(expected.numpy(), abs=1e-4)


def test_tensors_of_another_network_are_refused(assets):
    with pytest.raises(RuntimeError, match="size mismatch"):
        features.frame_embedder(assets["identity_eval"] | {"conv1.0.weight": torch.zeros(1)})
    with pytest.raises(RuntimeError):
        features.clip_embedder(assets["expression_eval"], SIZES["paper"])


# ---- metrics -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", NAMES)
def test_embeddings_are_the_same_bytes_every_time(name, assets, loaded):
    again = registry.build("metrics", name)
    again.load(assets, CONTEXT)
    for video in (clip(1), clip(2, frames=3)):
        first = loaded[name].embed(video)
        assert first.ndim == 1 and np.isfinite(first).all()
        assert first.tobytes() == loaded[name].embed(video).tobytes() == again.embed(video).tobytes()
    assert (loaded[name].embed(clip(1)) != loaded[name].embed(clip(3))).any()


@pytest.mark.parametrize("name", ["fd_id", "mmd_id"])
def test_a_clip_is_one_unit_vector_of_identity(name, assets, loaded):
    video = clip(4, 8)
    fewer = registry.get("metrics", name)(frames=4)
    fewer.load(assets, CONTEXT)
    every = features.frame_embedder(assets["identity_eval"])(video.frames)
    for metric, read in ((loaded[name], every), (fewer, every[[2, 6, 10, 14]])):
        found, mean = metric.embed(video), read.mean(axis=0)
        assert np.linalg.norm(found) == pytest.approx(1, abs=1e-6)
        assert found == pytest.approx(mean / np.linalg.norm(mean), abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_more_noise_is_further_away(name, loaded, sets):
    own = sets[name]
    near, far = (loaded[name].distance(own[0], own[noise], own[0]) for noise in (8, 80))
    same = loaded[name].distance(own[0], own[0], own[0])
    assert same < near < far
    for column in (*loaded[name].columns, *loaded[name].recovered_columns):
        assert column.low <= same and far <= column.high and column.statistic == "jackknife"


@pytest.mark.parametrize("name", NAMES)
def test_a_shift_of_the_features_grows_the_distance(name, loaded, sets):
    rows = sets[name][0]
    found = [loaded[name].distance(rows, rows + step * rows.std(), rows) for step in (0, 1, 2, 4)]
    assert found == sorted(found) and found[0] < found[3]


@pytest.mark.parametrize("name", NAMES)
def test_a_set_against_itself(name, loaded, sets):
    """Fréchet: 0. Unbiased MMD: the mean of k over different pairs minus the mean over all, never above 0."""
    rows = sets[name][8]
    found = loaded[name].distance(rows, rows, sets[name][0])
    if name == "mmd_id":
        pairs = np.linalg.norm(sets[name][0][:, None] - sets[name][0], axis=2)[np.triu_indices(CLIPS, 1)]
        kernel = np.exp(-np.linalg.norm(rows[:, None] - rows, axis=2) ** 2 / (2 * np.median(pairs) ** 2))
        different = (kernel.sum() - CLIPS) / (CLIPS * (CLIPS - 1))
        assert found == pytest.approx(2 * different - 2 * kernel.mean(), abs=1e-6) and found < 0
    else:
        assert found == pytest.approx(0, abs=1e-6)


def test_the_bandwidth_comes_from_the_originals_alone(loaded, sets):
    own = sets["mmd_id"]
    metric = loaded["mmd_id"]
    assert metric.distance(own[0], own[80], own[0]) != metric.distance(own[0], own[80], own[80])
    assert metric.distance(own[8], own[80], own[0]) == pytest.approx(metric.distance(own[80], own[8], own[0]))


@pytest.mark.parametrize("name", NAMES)
def test_few_clips_are_undefined_and_unequal_numbers_refused(name, loaded, sets):
    rows = sets[name][0]
    with pytest.raises(Undefined):
        loaded[name].distance(rows[:1], rows[:1], rows)
    with pytest.raises(Undefined):
        loaded[name].distance(np.full_like(rows, np.nan), rows, rows)
    if name == "mmd_id":
        assert np.isfinite(loaded[name].distance(rows[:4], rows, rows))  # unbiased at any two sizes
    else:
        with pytest.raises(ValueError, match="4 and 6"):
            loaded[name].distance(rows[:4], rows, rows)


def test_columns_say_which_way_is_better():
    for name in NAMES:
        plugin = registry.get("metrics", name)
        assert [c.id for c in plugin.columns] == [name]
        assert (plugin.columns[0].better, plugin.columns[0].role) == (
            ("lower", "utility") if name == "fvd" else ("none", "descriptive"))
        assert [c.id for c in plugin.recovered_columns] == ([] if name == "fvd" else [f"{name}_pr"])


# ---- published networks --------------------------------------------------------------------------------------------

class FakeArcFace(nn.Module):
    """Gives each channel's mean, so that order and scale of the input can be read off."""

    def forward(self, x):
        if x.shape[1:] != (3, 112, 112):
            raise RuntimeError("wants (N, 3, 112, 112)")
        return x.mean((2, 3))


class FakeI3D(nn.Module):
    """Takes the arguments of the published one; gives one corner value a channel and frame."""

    def forward(self, x, rescale: bool = True, resize: bool = True, return_features: bool = False):
        if rescale or resize or not return_features or x.shape != (1, 3, 16, 224, 224):
            raise RuntimeError("wants (1, 3, 16, 224, 224), scaled and resized")
        return x[:, :, :, 0, 0].flatten(1)


def written(module: nn.Module, path) -> dict[str, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, its files are what is published
        torch.jit.script(module).save(str(path))
    return {"path": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


@pytest.mark.parametrize("name, variant", [("fd_id", "arcface"), ("mmd_id", "arcface"), ("fvd", "i3d")])
def test_no_file_is_loaded_but_the_one_with_the_given_digest(name, variant, assets, tmp_path):
    plugin = registry.get("metrics", name)
    for where in ({}, {"path": str(tmp_path / "nowhere.pt"), "sha256": "0" * 64}):
        with pytest.raises(WeightsMissing, match=f"^weights missing: {variant}"):
            plugin(**plugin.variants[variant], **where).load(assets, CONTEXT)
    other = tmp_path / "other.pt"
    other.write_bytes(b"never loaded")
    for digest, error in (("", WeightsMissing), ("0" * 64, DataError)):
        with pytest.raises(error, match="SHA-256"):
            plugin(network=variant, path=str(other), sha256=digest).load(assets, CONTEXT)


@pytest.mark.parametrize("name", ["fd_id", "mmd_id"])
def test_arcface_reads_rgb_in_minus_one_to_one(name, tmp_path):
    metric = registry.get("metrics", name)(network="arcface", **written(FakeArcFace(), tmp_path / "arcface.pt"))
    metric.load({}, CONTEXT)
    colours = np.array([[255, 0, 0], [51, 102, 204]], np.uint8)
    found = metric.embed(Video(np.broadcast_to(colours[:, None, None], (2, 64, 64, 3)), 25.0))
    unit = (colours / 127.5 - 1) / np.linalg.norm(colours / 127.5 - 1, axis=1)[:, None]
    assert found == pytest.approx(unit.sum(0) / np.linalg.norm(unit.sum(0)), abs=1e-5)


@pytest.mark.parametrize("frames", [16, 11])
def test_i3d_reads_sixteen_frames_in_order(tmp_path, frames):
    metric = registry.get("metrics", "fvd")(network="i3d", **written(FakeI3D(), tmp_path / "i3d.pt"))
    metric.load({}, CONTEXT)
    values = np.arange(frames * 3, dtype=np.uint8).reshape(frames, 3) * 5
    found = metric.embed(Video(np.broadcast_to(values[:, None, None], (frames, 64, 64, 3)), 25.0))
    expected = values[spread(frames, 0, frames, 16)].T.ravel() / 127.5 - 1  # (3 * 16,), channels first
    assert found == pytest.approx(expected, abs=1e-5)
