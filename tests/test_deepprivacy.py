"""DeepPrivacy style: detect, mask, and a face made from the surroundings alone."""

from __future__ import annotations

import hashlib
import inspect
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bench import Context, DataError, Diverged, Video, registry, seeds
from bench.errors import WeightsMissing
from bench.nets.crop_faces import crop_box, found_faces
from bench.nets.inpaint import SIZES, Critic, Inpainter, box_masks
from bench.nets.inpaint_published import Published
from bench.nets.states import packed

pytestmark = pytest.mark.usefixtures("one_thread")
Method = registry.get("methods", "deepprivacy_style")
module = inspect.getmodule(Method)


def context() -> Context:
    return Context(rng=lambda *names: seeds.derive(3, *names), torch_seed=lambda *names: seeds.derive_torch(3, *names),
                   report=lambda text: None)


def generator() -> Inpainter:
    torch.manual_seed(1)
    return Inpainter(SIZES["tiny"]).eval()


def pictures(count: int = 2, side: int = 40, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Noise, masks of different boxes, latent vectors."""
    rng = torch.Generator().manual_seed(seed)
    boxes = np.array([[8.0, 6, 30, 33], [10, 10, 25, 38]])[np.arange(count) % 2]
    return (torch.rand(count, 3, side, side, generator=rng), torch.from_numpy(box_masks(boxes, side)),
            torch.randn(count, 32, generator=rng))


@pytest.fixture(scope="module")
def face():
    """A made public person: frames uint8 (T, 64, 64, 3) and true landmarks (T, K, 2)."""
    adapter = registry.build("datasets", "synthfaces_public")
    made = adapter.load(adapter.sources(None, 42)[0], 64)
    return made.frames[:18], made.landmarks[:18]


def loaded() -> object:
    method = Method()
    method.load({"size": np.array([0]), **packed(generator=generator())})
    return method


# ---- the filmed face never reaches the generator -------------------------------------------------------------------

def test_masked_pixels_change_nothing():
    real, masks, latent = pictures()
    with torch.no_grad():
        one = generator()(real, masks, latent)
        other = generator()(torch.where(masks > 0, torch.rand(real.shape, generator=torch.Generator().manual_seed(9)),
                                        real), masks, latent)
    assert torch.equal(one, other)
    assert torch.equal(one[(masks == 0).expand_as(one)], real[(masks == 0).expand_as(one)])


def test_what_is_made_depends_on_the_surroundings_and_on_the_latent_vector_only():
    real, masks, latent = pictures()
    real.requires_grad_(True), latent.requires_grad_(True)
    (generator()(real, masks, latent) * masks).sum().backward()
    assert not (real.grad * masks).any()
    assert (real.grad * (1 - masks)).abs().max() > 0 and latent.grad.abs().max() > 0


def test_the_release_keeps_the_surroundings_bit_for_bit_and_nothing_of_the_face(face, monkeypatch):
    frames, boxes = face[0], np.tile([10.0, 4, 50, 54], (18, 1))
    monkeypatch.setattr(module, "found_faces", lambda frames: boxes.copy())
    changed = frames.copy()
    inside = box_masks(boxes, 64, module.ENLARGED).transpose(0, 2, 3, 1) > 0
    changed[np.broadcast_to(inside, changed.shape)] = 200
    out, other = (loaded().release(Video(f, 24.0), seeds.derive(5)).frames for f in (frames, changed))
    np.testing.assert_array_equal(out, other)
    np.testing.assert_array_equal(np.where(inside, 0, out), np.where(inside, 0, frames))
    assert (out != frames).any((1, 2, 3)).all()


def test_the_mask_covers_the_landmarks_of_a_detected_face(face):
    frames, marks = face
    masks = box_masks(module.face_boxes(frames), 64, module.ENLARGED)[:, 0]
    for t in range(len(frames)):
        x, y = np.clip(np.floor(marks[t]).astype(int), 0, 63).T
        assert masks[t, y, x].mean() > 0.95
    assert masks.mean() < 0.9, "something must stay around it"


def test_a_clip_without_a_face_is_masked_where_the_harness_cut_it_out():
    noise = seeds.derive(1, "noise").integers(0, 256, (3, 64, 64, 3)).astype(np.uint8)
    assert np.isnan(found_faces(noise)).all()
    np.testing.assert_allclose(module.face_boxes(noise), np.tile(crop_box(64), (3, 1)))
    assert crop_box(64)[2] - crop_box(64)[0] == pytest.approx(64 / 1.3)


def test_a_lost_face_is_masked_where_its_neighbours_have_it_and_clips_stand_alone(monkeypatch):
    boxes = np.full((20, 4), np.nan)
    boxes[2] = [10, 10, 40, 40]
    monkeypatch.setattr(module, "found_faces", lambda frames: boxes.copy())
    found = module.face_boxes(np.zeros((20, 64, 64, 3), np.uint8))
    np.testing.assert_allclose(found[:16], np.tile([10, 10, 40, 40], (16, 1)))
    np.testing.assert_allclose(found[16:], np.tile(crop_box(64), (4, 1)))


def test_masks_by_hand():
    masks = box_masks(np.array([[1.0, 2, 3, 5], [2, 2, 4, 4]]), 6)
    wanted = np.zeros((2, 1, 6, 6))
    wanted[0, 0, 2:5, 1:3] = 1
    wanted[1, 0, 2:4, 2:4] = 1
    np.testing.assert_array_equal(masks, wanted)
    grown = box_masks(np.array([[2.0, 2, 4, 4]]), 6, 1.1)[0, 0]
    assert grown.sum() == 16 and grown[1:5, 1:5].all(), "a pixel that is touched is covered"


# ---- chance --------------------------------------------------------------------------------------------------------

def test_one_latent_vector_makes_one_face_a_video(monkeypatch):
    monkeypatch.setattr(module, "found_faces", lambda frames: np.tile([10.0, 10, 50, 50], (len(frames), 1)))
    still = Video(np.repeat(seeds.derive(2).integers(0, 256, (1, 64, 64, 3)).astype(np.uint8), 4, 0))
    out = loaded().release(still, seeds.derive(5)).frames
    assert np.ptp(out.astype(int), axis=0).max() <= 1
    np.testing.assert_array_equal(out, loaded().release(still, seeds.derive(5)).frames)
    assert (out != loaded().release(still, seeds.derive(6)).frames).any()


# ---- learning ------------------------------------------------------------------------------------------------------

def development(count: int = 4) -> SimpleNamespace:
    videos = [SimpleNamespace(video=Video(np.full((3, 32, 32, 3), 10 + 10 * i, np.uint8))) for i in range(count)]
    return SimpleNamespace(train=videos, calibration=videos)


def test_the_critic_teaches_the_generator(monkeypatch):
    """Without the L1, whatever changes the generator came through the critic."""
    monkeypatch.setattr(module, "CLOSE", 0.0)
    net, critic = generator(), Critic(SIZES["tiny"])
    start = [p.clone() for p in net.parameters()], [p.clone() for p in critic.parameters()]
    frames = seeds.derive(1).integers(0, 256, (4, 32, 32, 3)).astype(np.uint8)
    masks = box_masks(np.tile([8.0, 8, 24, 24], (4, 1)), 32)
    module.learn(net, critic, frames, masks, 2, seeds.derive(1), lambda text: None)
    for before, after in zip(start, (net, critic), strict=True):
        assert any(not torch.equal(a, b) for a, b in zip(before, after.parameters(), strict=True))


def test_a_fit_learns_the_colour_of_its_people_and_reads_no_label():
    method = Method(steps=40)
    method.fit(development(), {}, context())  # the items have nothing but a video
    assert not Method.needs and not Method.assets
    again = Method()
    again.load(dict(method.state()))
    dark = np.full((2, 32, 32, 3), 25, np.uint8)
    masks = box_masks(np.tile(crop_box(32), (2, 1)), 32)
    out = module.filled(again.generator, dark, masks, torch.zeros(1, 32))
    assert np.abs(out.astype(int) - 25).mean() < 60, "grey would be 102 away"


def test_a_generator_that_is_further_off_than_grey_is_no_generator():
    method = Method()
    method.generator = generator()
    with torch.no_grad():
        method.generator.last.bias.fill_(5.0)  # white
    frames, masks = np.full((2, 32, 32, 3), 20, np.uint8), box_masks(np.tile(crop_box(32), (2, 1)), 32)
    with pytest.raises(Diverged, match="no nearer to faces"):
        method._check(frames, masks, seeds.derive(1), lambda text: None)


def test_a_loss_that_is_no_number_says_so():
    net = generator()
    with torch.no_grad():
        net.last.bias.fill_(torch.nan)
    frames, masks = np.full((2, 32, 32, 3), 20, np.uint8), box_masks(np.tile(crop_box(32), (2, 1)), 32)
    with pytest.raises(Diverged, match="critic became nan"):
        module.learn(net, Critic(SIZES["tiny"]), frames, masks, 1, seeds.derive(1), lambda text: None)


def test_weights_of_another_architecture_are_refused():
    state = {"size": np.array([1]), **packed(generator=generator())}
    with pytest.raises(DataError, match="deepprivacy_style's generator do not fit"):
        Method().load(state)
    state["size"][:], state["generator/last.bias"] = 0, np.full(3, np.nan, np.float32)
    with pytest.raises(DataError, match="last.bias is not finite"):
        Method().load(state)


# ---- a published generator -----------------------------------------------------------------------------------------

class Peeking(torch.nn.Module):
    """Answers with what it was given: were the face in it, it would come back."""

    def forward(self, known: torch.Tensor, kept: torch.Tensor, latent: torch.Tensor) -> torch.Tensor:
        return known + latent[:, :3, None, None] * (1 - kept)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "face.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls TorchScript deprecated
        torch.jit.script(Peeking()).save(str(path))
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_published_generator_is_checked_and_sees_no_face_either(script):
    path, digest = script
    method = Method(path=str(path), sha256=digest)
    method.fit(development(), {}, context())
    again = Method(path=str(path), sha256=digest)
    again.load(dict(method.state()))
    frames = seeds.derive(1).integers(0, 256, (2, 64, 64, 3)).astype(np.uint8)
    masks = box_masks(np.tile([10.0, 4, 50, 54], (2, 1)), 64)
    hidden = np.where(masks.transpose(0, 2, 3, 1) > 0, np.uint8(7), frames)
    one, other = (module.filled(again.generator, f, masks, torch.ones(1, 512)) for f in (frames, hidden))
    np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(one[:, :, :9], frames[:, :, :9])
    with pytest.raises(DataError, match="SHA-256"):
        Method(path=str(path), sha256="0" * 64).fit(development(), {}, context())
    with pytest.raises(DataError, match="SHA-256"):
        Method(sha256="0" * 64).load(method.state())
    with pytest.raises(WeightsMissing, match="deepprivacy2_face"):
        Method(path="nowhere.pt", sha256=digest).fit(development(), {}, context())
    assert isinstance(again.generator, Published)
