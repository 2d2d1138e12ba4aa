"""MobileFaceSwap: kernels from the source identity, a mask, no face without a look, the published sizes."""

from __future__ import annotations

import hashlib
import inspect
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from bench import Context, DataError, Diverged, Video, registry, seeds
from bench.data.clips import Clips, write_clips
from bench.data.public_faces import pictures
from bench.errors import ConfigError, WeightsMissing
from bench.nets.descent import Descent, Pace
from bench.nets.features import frame_embedder
from bench.nets.image import frame_classifier
from bench.nets.states import fill, packed
from bench.nets.swap import SIZES, KernelPredictor, SwapNet, blended, sized
from bench.nets.swap_published import load_published, renamed
from bench.run.views import load_tensors
from bench.weights import verified

pytestmark = pytest.mark.usefixtures("one_thread")
FaceSwap = registry.get("methods", "face_swap")
module = inspect.getmodule(FaceSwap)


def context() -> Context:
    return Context(rng=lambda *names: seeds.derive(3, *names), torch_seed=lambda *names: seeds.derive_torch(3, *names),
                   report=lambda text: None)


def codes(count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (F.normalize(torch.randn(count, 512, generator=generator), dim=1),
            torch.randn(count, 512, 4, 4, generator=generator))


def networks(profile: str = "tiny", side: int = 32) -> tuple[KernelPredictor, SwapNet]:
    torch.manual_seed(0)
    size = sized(profile, side)
    return KernelPredictor(size).eval(), SwapNet(size).eval()


def count(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.fixture(scope="module")
def face() -> np.ndarray:
    """uint8 (17, 64, 64, 3): a made public person."""
    adapter = registry.build("datasets", "synthfaces_public")
    return adapter.load(adapter.sources(None, 42)[0], 64).frames[:17]


def unfitted(side: int = 64) -> object:
    method = FaceSwap()
    predictor, net = networks(side=side)
    vector, features = codes(1)
    method.load({"size": np.array([0, side]), "source/vector": vector.numpy(), "source/map": features.numpy(),
                 **packed(predictor=predictor, net=net)})
    return method


# ---- what makes it this method -------------------------------------------------------------------------------------

def test_two_sources_give_different_kernels_in_every_stage():
    predictor, _ = networks()
    with torch.no_grad():
        kernels = predictor(*codes(2))
    assert len(kernels.depth) == len(kernels.point) == 9
    for stage in (*kernels.depth, *kernels.point):
        assert (stage[0] - stage[1]).abs().max() > 1e-4
    for point in kernels.point:
        torch.testing.assert_close(point.square().sum(2), torch.ones(point.shape[:2]))  # demodulated


def test_the_same_frame_comes_out_differently_for_two_sources():
    predictor, net = networks()
    frames = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        one, two = (net(frames, predictor(*codes(1, seed)))[0] for seed in (0, 1))
    assert (one - two).abs().max() > 1e-3


def test_kernels_of_a_batch_are_those_of_its_pictures():
    predictor, net = networks()
    frames = torch.rand(3, 3, 32, 64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        together, mask = net(frames, predictor(*codes(3)))
        for i in range(3):
            alone = predictor(*(c[i:i + 1] for c in codes(3)))
            torch.testing.assert_close(net(frames[i:i + 1], alone)[0][0], together[i], rtol=1e-4, atol=1e-5)
    assert mask.shape == (3, 1, 32, 64) and 0 <= mask.min() and mask.max() <= 1


def test_a_stage_is_a_depthwise_and_a_pointwise_convolution():
    predictor, net = networks()
    x = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        kernels = predictor(*codes(1))
        depth = F.conv2d(x, kernels.depth[0][0][:, None], net.depth_bias[0], stride=2, padding=1, groups=3)
        wanted = F.leaky_relu(F.conv2d(depth, kernels.point[0][0][:, :, None, None], net.point_bias[0]), 0.1)
        torch.testing.assert_close(net._stage(x, kernels, 0, 2), wanted, rtol=1e-4, atol=1e-5)
    assert [k.shape[-1] for k in kernels.depth] == [4] * 5 + [3] * 4


def test_outside_the_mask_the_frame_stays():
    one, other = torch.rand(2, 1, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    mask = torch.zeros(1, 1, 4, 4)
    mask[..., 2:] = 1
    torch.testing.assert_close(blended(one, other, mask), torch.cat([one[..., :2], other[..., 2:]], 3))


def test_paper_size_has_the_published_number_of_parameters():
    """Predicted: kernels and biases of nine stages, by hand 411,664 + 3,363. Static: last layers and mask, 84,798."""
    net = SwapNet(SIZES["paper"])
    widths = [3, 32, 64, 128, 256, 512]
    stages = [*zip(widths, widths[1:], [16] * 5, strict=False),
              (512, 256, 9), (512, 128, 9), (256, 64, 9), (128, 32, 9)]
    dynamic = sum(a * k + a + a * b + b for a, b, k in stages)
    assert dynamic == 415_027
    assert [*SIZES["paper"].down, *SIZES["paper"].up] == [(a, b) for a, b, _ in stages]
    biases = count(net.depth_bias) + count(net.point_bias)
    assert biases == 3_363 and count(net) - biases == 84_798


# ---- no face, no frame ---------------------------------------------------------------------------------------------

def test_a_frame_without_a_face_is_black_and_counted(face, monkeypatch, capsys):
    boxes = np.tile([10.0, 10, 50, 50], (17, 1))
    boxes[[3, 16]] = np.nan
    monkeypatch.setattr(module, "found_faces", lambda frames: boxes.copy())
    method = unfitted()
    out = method.release(Video(face, 25.0), seeds.derive(1)).frames
    assert not out[[3, 16]].any() and all(out[t].any() for t in range(17) if t not in (3, 16))
    assert method.counts[module.BLACK] == 2 and "2 of 17" in capsys.readouterr().out
    method.release(Video(face, 25.0), seeds.derive(1))
    assert method.counts[module.BLACK] == 4


def test_the_detector_decides_and_noise_is_no_face(face):
    method = unfitted()
    noise = seeds.derive(1, "noise").integers(0, 256, (3, 64, 64, 3)).astype(np.uint8)
    assert not method.release(Video(noise, 25.0), seeds.derive(1)).frames.any() and method.counts[module.BLACK] == 3
    assert method.release(Video(face, 25.0), seeds.derive(1)).frames.reshape(17, -1).any(1).all()
    assert method.counts[module.BLACK] == 3


def test_a_source_picture_without_a_face_is_refused(face):
    with pytest.raises(DataError, match="No face is found"):
        module.source_face(np.zeros((2, 1, 64, 64, 3), np.uint8), 1)
    with pytest.raises(ConfigError, match="no public person number 2"):
        module.source_face(np.stack([face[:1]] * 2), 2)
    np.testing.assert_array_equal(module.source_face(np.stack([face[:1]] * 2), 1), face[0])


# ---- learning ------------------------------------------------------------------------------------------------------

SOURCE = (230, 120, 40)


def coloured(colour: tuple[int, int, int], frames: int, seed: int) -> np.ndarray:
    """uint8 (frames, 32, 32, 3): an oval of one colour on noise."""
    video = seeds.derive(seed, "coloured").integers(0, 80, (frames, 32, 32, 3)).astype(np.uint8)
    rows, columns = np.mgrid[:32, :32] - 15.5
    video[:, (rows / 14) ** 2 + (columns / 11) ** 2 < 1] = colour
    return video


def development() -> SimpleNamespace:
    videos = [SimpleNamespace(video=Video(coloured((40, 90 + 20 * i, 220), 4, i), 25.0)) for i in range(6)]
    return SimpleNamespace(train=videos[:4], calibration=videos[4:])


def assets() -> dict[str, dict[str, np.ndarray]]:
    """Two public people, and networks of the right architecture; the first learned nothing."""
    torch.manual_seed(1)
    people = np.stack([coloured(c, 3, 9) for c in (SOURCE, (60, 220, 60))])
    return {"source_faces_method": {"pictures": people},
            "identity_method": {k: v.numpy() for k, v in frame_classifier("resnet14t", 2).state_dict().items()},
            "feature_method": {k: v.numpy() for k, v in frame_classifier("resnet10t", 2).state_dict().items()}}


class Colour:
    """Stands in for the networks that judge: who somebody is, is the colour in the middle of the picture."""

    width = 3

    def maps(self, batch: torch.Tensor) -> list[torch.Tensor]:
        pooled = F.adaptive_avg_pool2d(batch - 0.5, 4)
        return [batch - 0.5] * 2 + [pooled] * 3

    def vector(self, maps: list[torch.Tensor]) -> torch.Tensor:
        return F.normalize(maps[-1][:, :, 1:3, 1:3].mean((2, 3)), dim=1)

    def embed(self, batch: torch.Tensor) -> torch.Tensor:
        return self.vector(self.maps(batch))


@pytest.fixture
def ovals(monkeypatch):
    """Every picture counts as a face, where the ovals lie."""
    monkeypatch.setattr(module, "looked_at", lambda frames: np.tile([4.0, 2, 28, 30], (len(frames), 1)))


def test_the_mask_learns_an_ellipse_about_the_found_face_and_nothing_where_none_is(monkeypatch):
    boxes = np.array([[4.0, 2, 28, 30], [np.nan] * 4])
    monkeypatch.setattr(module, "looked_at", lambda frames: boxes)
    frames = seeds.derive(2, "frames").integers(0, 256, (2, 32, 32, 3)).astype(np.uint8)
    targets = module.as_targets(frames, 32)
    np.testing.assert_array_equal(module.as_frames(targets[:, :3]), frames)
    mask = targets[0, 3]
    assert not targets[1, 3].any() and mask[16, 16] == 1 and mask[0, 0] == mask[31, 31] == 0
    area = np.pi * 12 * 14 * module.ENLARGED ** 2  # of the whole ellipse; a few pixels of it lie beyond the canvas
    assert 0.93 * area < float(mask.sum()) < 1.02 * area
    assert 0 < float(mask[16, 1]) < 1, "its rim is soft"
    assert module.as_targets(frames, 64).shape == (2, 4, 64, 64)


def lesson_of(predictor: KernelPredictor, net: SwapNet) -> object:
    people = assets()["source_faces_method"]["pictures"]
    return module._Lesson(predictor, net, sized("tiny", 32), Colour(), Colour(), people)


def test_a_swapped_frame_is_nearer_to_the_source_than_to_the_filmed_under_a_network_it_never_saw(monkeypatch, ovals):
    monkeypatch.setattr(module, "WEIGHTS", module.WEIGHTS | {"features": 0.1})
    torch.manual_seed(0)
    predictor, net = KernelPredictor(sized("tiny", 32), 3), SwapNet(sized("tiny", 32))
    lesson, filmed = lesson_of(predictor, net), development()
    targets = module.as_targets(np.concatenate([item.video.frames for item in filmed.train]), 32)
    lesson.learn(targets, 0, 100, seeds.derive(1), print)
    with torch.no_grad():
        kernels = predictor.eval()(*lesson.code(0, 0))
    frames = np.concatenate([item.video.frames for item in filmed.calibration])
    lesson.check(frames, kernels, lesson.vectors[0, 0], print)
    embed = frame_embedder({k: torch.from_numpy(v) for k, v in load_tensors(verified("identity_eval")).items()})
    now, before = embed(module.swap(net, kernels, frames, 32)), embed(frames)
    source = embed(coloured(SOURCE, 3, 9))[:1]
    assert (now @ source.T).mean() > (now * before).sum(1).mean()
    assert (now @ source.T).mean() > (before @ source.T).mean()


def test_an_example_lies_where_the_face_of_the_frame_lies(monkeypatch):
    boxes = np.array([[8.0, 10, 32, 40], [24, 26, 54, 50]])
    monkeypatch.setattr(module, "looked_at", lambda frames: boxes)
    masks = module.as_targets(np.zeros((2, 64, 64, 3), np.uint8), 64)[:, 3:]
    faces = masks.expand(-1, 4, -1, -1)  # pictures of nothing but their own ellipse
    torch.testing.assert_close(module.placed(faces, faces), faces[:, :3], atol=1e-4, rtol=0)
    moved = module.placed(faces, faces.flip(0))
    assert (moved - faces[:, :3]).abs().mean() > 0.1 > 0.02 > (moved - faces.flip(0)[:, :3]).abs().mean()
    none = torch.zeros(1, 4, 64, 64)
    assert module.placed(faces[:1], none).isfinite().all(), "a frame without a face, where the example is not painted"


def test_at_first_the_network_learns_from_pictures_of_the_source(monkeypatch, ovals):
    monkeypatch.setattr(module, "SHOWN", 1.0)
    torch.manual_seed(0)
    predictor, net = KernelPredictor(sized("tiny", 32), 3), SwapNet(sized("tiny", 32))
    lesson, colours = lesson_of(predictor, net), seeds.derive(3, "colours").integers(60, 250, (30, 3))
    frames = np.concatenate([coloured(tuple(colour), 1, i) for i, colour in enumerate(colours)])
    lesson.learn(module.as_targets(frames[:24], 32), 0, 100, seeds.derive(1), print)
    held, middle = module.as_pictures(frames[24:]), (slice(None), slice(None), slice(10, 22), slice(10, 22))
    with torch.no_grad():
        drawn, mask = net.eval()(held, predictor.eval()(*lesson.code(0, 0)))
    wanted = torch.tensor(SOURCE)[:, None, None] / 255
    assert (drawn[middle] - wanted).abs().mean() < 0.3 * (held[middle] - wanted).abs().mean()
    assert mask[..., 10:22, 10:22].mean() > 0.6 > 0.4 > mask[..., :2, :2].mean()


def test_a_network_that_passes_the_frame_on_made_no_progress(ovals):
    torch.manual_seed(0)
    predictor, net = KernelPredictor(sized("tiny", 32), 3).eval(), SwapNet(sized("tiny", 32))
    with torch.no_grad():
        net.mask_last.bias.fill_(-50.0)
    lesson = lesson_of(predictor, net)
    frames = np.concatenate([item.video.frames for item in development().calibration])
    with torch.no_grad():
        kernels = predictor(*lesson.code(0, 0))
    np.testing.assert_array_equal(module.swap(net, kernels, frames, 32), frames)
    with pytest.raises(Diverged, match="nearer to the filmed person"):
        lesson.check(frames, kernels, lesson.vectors[0, 0], print)


@pytest.fixture(scope="module")
def fitted():
    """A method after a few steps, where every picture counts as a face and every end as good."""
    patch = pytest.MonkeyPatch()
    patch.setattr(module, "looked_at", lambda frames: np.tile([4.0, 2, 28, 30], (len(frames), 1)))
    patch.setattr(module._Lesson, "check", lambda *rest: None)
    method = FaceSwap(steps=3)
    method.fit(development(), assets(), context())
    patch.undo()
    return method


def test_the_state_holds_no_picture_and_gives_the_same_bytes_again(fitted):
    state = fitted.state()
    assert all(a.shape[-3:] != (32, 32, 3) for a in state.values())
    one, two = FaceSwap(), FaceSwap()
    one.load(state)
    two.load(dict(one.state()))
    frames = coloured((40, 90, 220), 5, 4)
    for size in (32, 50):  # the method reads other canvases at its own size
        given = np.stack([f[:, :32] if size == 32 else np.kron(f, np.ones((2, 2, 1), np.uint8))[:size, :size]
                          for f in frames])
        out = module.swap(one.net, one.kernels, given, 32)
        assert out.shape == given.shape and (out == module.swap(two.net, two.kernels, given, 32)).all()


def test_a_step_to_nowhere_says_so():
    layer = torch.nn.Linear(2, 1)
    descent = Descent("it", [(layer, 1.0)], Pace(rate=1.0), 3)
    with pytest.raises(Diverged, match="the loss of it became nan"):
        descent.step(layer(torch.tensor([[np.nan, 1.0]])).sum())
    with pytest.raises(Diverged, match="the gradient of it"):
        descent.step((layer.weight - layer.weight.detach()).abs().sqrt().sum())  # 0, with an endless slope


def test_weights_of_another_architecture_or_that_are_not_numbers_are_refused(monkeypatch, fitted):
    monkeypatch.setattr(module, "looked_at", lambda frames: np.ones((len(frames), 4)))
    mixed = assets()
    with pytest.raises(DataError, match="identity_method do not fit"):
        FaceSwap(steps=1).fit(development(), mixed | {"identity_method": mixed["feature_method"]}, context())
    mixed["feature_method"]["fc.bias"][:] = np.nan
    with pytest.raises(DataError, match="fc.bias is not finite"):
        FaceSwap(steps=1).fit(development(), mixed, context())
    state = dict(fitted.state())
    state["net/mask_last.weight"] = state["net/mask_last.weight"][:, :1]
    with pytest.raises(DataError, match="mask_last.weight is"):
        FaceSwap().load(state)


# ---- sources and published weights ---------------------------------------------------------------------------------

def test_pictures_are_first_frames_of_each_public_person(tmp_path):
    write_clips(registry.build("datasets", "blocks_public"), None, 3, 16, tmp_path / "clips", lambda text: None)
    clips = Clips(tmp_path / "clips")
    made = pictures(clips, 2)["pictures"]
    people = sorted({row.person for row in clips.rows()})
    assert made.shape == (len(people), 2, 16, 16, 3) and made.dtype == np.uint8
    for i, person in enumerate(people):
        firsts = [clips.video(row).frames[0].tobytes() for row in clips.rows() if row.person == person]
        assert {p.tobytes() for p in made[i]} <= set(firsts)


def published() -> dict[str, torch.Tensor]:
    """Random tensors under the names and in the layout of the published dictionary, written down by hand."""
    generator, found = torch.Generator().manual_seed(5), {}

    def add(name, *shape):
        found[name] = 0.1 * torch.randn(*shape, generator=generator)

    def norm(name, channels):
        for part in ("weight", "bias", "_mean"):
            add(f"{name}.{part}", channels)
        found[f"{name}._variance"] = torch.rand(channels, generator=generator) + 0.5

    def conv(name, out, given, side):
        add(f"{name}.weight", out, given, side, side)
        add(f"{name}.bias", out)

    down, up = [(3, 32), (32, 64), (64, 128), (128, 256), (256, 512)], [(512, 256), (512, 128), (256, 64), (128, 32)]
    for kind, stages in (("Encoder", down), ("Decoder", up)):
        for i, (a, b) in enumerate(stages):
            add(f"{kind}Modulation.{i}.weight", b, a, 1, 1)
            add(f"{kind}Modulation.{i}.style.weight", 512, a)  # a linear layer of Paddle: (in, out)
            add(f"{kind}Modulation.{i}.style.bias", a)
    conv("predictor.first", 512, 512, 4), conv("predictor.first_decoder", 512, 512, 2)
    norm("predictor.norm", 512), norm("predictor.decoder_norm", 512)
    for kind, widths in (("encoder", [512, 256, 128, 64, 32, 3]), ("decoder", [512, 512, 512, 256, 128])):
        for i, (a, b) in enumerate(zip(widths, widths[1:], strict=False)):
            conv(f"predictor.{kind}.{i}.conv", b, a, 3), norm(f"predictor.{kind}.{i}.norm", b)
            conv(f"predictor.{kind}.{i}.weight", b, b, 3)
    conv("final.1", 8, 32, 1), norm("final.2", 8), conv("final.4", 3, 8, 3), norm("final.5", 3)
    conv("final.7", 3, 3, 3)
    for i, (a, b) in enumerate([(512, 128), (128, 64), (64, 32), (32, 8), (8, 2)]):
        conv(f"mask.{i}.1", a, 1, 3), conv(f"mask.{i}.2", b, a, 1), norm(f"mask.{i}.3", b)
    conv("mask.5", 1, 2, 3)
    return found


def test_published_weights_are_read_under_their_names_and_in_their_layout(tmp_path):
    tensors, path = published(), tmp_path / "MobileFaceSwap_224.safetensors"
    assert all(renamed(name) for name in tensors)
    save_file(tensors, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    predictor, net = KernelPredictor(SIZES["paper"]), SwapNet(SIZES["paper"])
    load_published(str(path), digest, predictor, net)
    identity, features = codes(1)
    with torch.no_grad():
        kernels = predictor(identity, features)
        for i, name in ((1, "EncoderModulation.1"), (7, "DecoderModulation.2")):
            scale = identity @ tensors[f"{name}.style.weight"] + tensors[f"{name}.style.bias"]
            weight = tensors[f"{name}.weight"][..., 0, 0] * (1 + scale)
            torch.testing.assert_close(kernels.point[i][0], F.normalize(weight, dim=1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(net.final[4].running_var, tensors["final.5._variance"])
    assert not any(b.any() for b in (*net.depth_bias, *net.point_bias))
    with pytest.raises(DataError, match="SHA-256"):
        load_published(str(path), "0" * 64, predictor, net)
    del tensors["mask.5.weight"]
    save_file(tensors, path)
    with pytest.raises(DataError, match="mask_last.weight is missing"):
        load_published(str(path), hashlib.sha256(path.read_bytes()).hexdigest(), predictor, net)


def test_published_weights_that_nobody_brought(face):
    with pytest.raises(WeightsMissing, match="mobilefaceswap_224"):
        FaceSwap(path="nowhere.safetensors", sha256="0" * 64).fit(
            None, {"source_faces_method": {"pictures": face[None, :1]}}, context())


def test_every_tensor_must_fit():
    layer = torch.nn.Linear(2, 1)
    with pytest.raises(DataError, match="bias is missing; more is unknown"):
        fill(layer, {"weight": np.zeros((1, 2)), "more": np.zeros(1)}, "it")
