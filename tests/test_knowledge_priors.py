"""Knowledge Priors style: pairs from videos alone, no identity label, two stages, a claim that is tried."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from bench import Context, DataError, Diverged, PluginError, Video, registry, seeds
from bench.nets.image import frame_classifier
from bench.nets.judges import Judge, trunk
from bench.nets.states import packed
from bench.nets.unet import UNet
from bench.run.views import DevelopmentVideo

pytestmark = pytest.mark.usefixtures("one_thread")
Method = registry.get("methods", "knowledge_priors_style")
module = inspect.getmodule(Method)
SIDE = 32


class Item:
    """A development video that has no identity to give."""

    def __init__(self, number: int, frames: int = 4):
        self.same_video, self.expression = number, number % 3
        still = seeds.derive(1, number).integers(0, 256, (SIDE, SIDE, 3))
        self.video = Video(np.clip(still + 3 * np.arange(frames)[:, None, None, None], 0, 255).astype(np.uint8))

    @property
    def identity(self) -> int:
        raise AssertionError("an identity label was read")


def development(train: int = 5, frames: int = 4) -> SimpleNamespace:
    return SimpleNamespace(train=[Item(i, frames) for i in range(train)], calibration=[Item(100 + i) for i in range(4)])


def context() -> Context:
    return Context(rng=lambda *names: seeds.derive(3, *names), torch_seed=lambda *names: seeds.derive_torch(3, *names),
                   report=lambda text: None)


def assets() -> dict[str, dict[str, np.ndarray]]:
    torch.manual_seed(1)
    return {f"{name}_method": {k: v.numpy() for k, v in frame_classifier(word, 2).state_dict().items()}
            for name, word in (("identity", "resnet14t"), ("feature", "resnet10t"))}


def lesson(frames: np.ndarray, labels: np.ndarray) -> object:
    tensors = assets()["identity_method"]
    networks = [trunk("resnet14t", tensors, "it") for _ in range(2)]
    return module._Lesson(frames, labels, Judge(networks[0]), networks[1], seeds.derive(1), lambda text: None)


def grey_videos(count: int = 6) -> np.ndarray:
    """uint8 (count, 4, S, S, 3): video v is all of grey level 20 + 30 v."""
    levels = (20 + 30 * np.arange(count)).astype(np.uint8)
    return np.broadcast_to(levels[:, None, None, None, None], (count, 4, SIDE, SIDE, 3)).copy()


# ---- what makes it this method -------------------------------------------------------------------------------------

def test_pairs_are_two_frames_of_one_video_and_two_videos_never_mix():
    teacher = lesson(grey_videos(), np.arange(6))
    for _ in range(5):
        batch, labels = teacher._batch()
        level = batch.mean((1, 2, 3))
        torch.testing.assert_close(level[::2], level[1::2])
        assert len(set(np.round(level[::2].tolist(), 4))) == 6, "each video once"
        order = level[::2].argsort()
        assert labels[::2][order].tolist() == list(range(6)) and (labels[::2] == labels[1::2]).all()


def test_two_frames_of_a_pair_are_different_frames():
    frames = grey_videos()
    frames += (np.arange(4, dtype=np.uint8) * 3)[None, :, None, None, None]
    batch, _ = lesson(frames, np.arange(6))._batch()
    level = batch.mean((1, 2, 3))
    assert ((level[::2] - level[1::2]).abs() > 0.005).all()


def test_the_fit_reads_no_identity_and_only_what_it_declares():
    assert Method.needs == {"same_video", "expression"}
    record = {"file": "x", "identity": 4, "same_video": 1, "expression": 0}
    with pytest.raises(PluginError, match="'identity'"):
        _ = DevelopmentVideo(Path("."), record, Method.needs).identity
    with pytest.raises(Diverged):  # items raise where their identity is asked for; they are not
        Method(steps=1, restore_steps=1, classifier_epochs=1).fit(development(), assets(), context())


def test_the_first_network_rests_while_the_second_learns():
    teacher = lesson(grey_videos(), np.arange(6) % 3)
    torch.manual_seed(2)
    first, second = UNet(2), UNet(2)
    expression = frame_classifier("resnet10t", 3).eval()
    before = {k: v.clone() for k, v in first.state_dict().items()}
    classifier = {k: v.clone() for k, v in expression.state_dict().items()}
    start = {k: v.clone() for k, v in second.state_dict().items()}
    teacher.learn("restoration", torch.nn.Sequential(first.requires_grad_(False), second), second, expression, 2)
    assert all(torch.equal(v, before[k]) for k, v in first.state_dict().items())
    assert all(torch.equal(v, classifier[k]) for k, v in expression.state_dict().items())
    assert any(not torch.equal(v, start[k]) for k, v in second.state_dict().items())


def test_the_prior_network_is_never_trained_and_the_recogniser_is():
    teacher = lesson(grey_videos(), np.arange(6))
    prior = {k: v.clone() for k, v in teacher.prior.network.state_dict().items()}
    recogniser = {k: v.clone() for k, v in teacher.recogniser.state_dict().items()}
    torch.manual_seed(2)
    change = UNet(2)
    teacher.learn("suppression", change, change, None, 2)
    assert all(torch.equal(v, prior[k]) for k, v in teacher.prior.network.state_dict().items())
    assert any(not torch.equal(v, recogniser[k]) for k, v in teacher.recogniser.state_dict().items())


# ---- losses --------------------------------------------------------------------------------------------------------

def test_partners_by_hand():
    """Three unit vectors: cosines 0 (1, 2), 1 (1, 3), 0 (2, 3); over .1 they are 0, 10, 0."""
    vectors = torch.tensor([[1.0, 0], [0, 1], [1, 0]])
    p = module.partners(vectors).exp()
    e = np.exp(10)
    wanted = [[0, 1 / (1 + e), e / (1 + e)], [0.5, 0, 0.5], [e / (1 + e), 1 / (1 + e), 0]]
    torch.testing.assert_close(p, torch.tensor(wanted, dtype=torch.float32), atol=1e-6, rtol=1e-4)


def test_nothing_is_lost_when_every_frame_is_as_near_and_known_to_nobody():
    """A simplex: equal cosines between all frames leave the recogniser blind, and the first loss is 0."""
    teacher = lesson(grey_videos(), np.arange(6))
    count = 6
    simplex = torch.nn.functional.normalize(torch.eye(count) - 1 / count, dim=1)
    teacher._seen = lambda batch: simplex
    teacher.prior = SimpleNamespace(embed=lambda batch: simplex[:, :0])
    batch = torch.rand(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    assert float(teacher._loss(batch, batch, torch.zeros(count), None)) == pytest.approx(0, abs=1e-5)
    teacher._seen = lambda batch: torch.eye(3).repeat_interleave(2, 0)  # pairs stand out
    assert float(teacher._loss(batch, batch, torch.zeros(count), None)) > 1


def test_a_known_face_costs_what_it_stands_above_strangers():
    teacher = lesson(grey_videos(), np.arange(6))
    clear, changed = torch.eye(2).repeat_interleave(2, 0), torch.tensor([[0.8, 0.6]] * 2 + [[0.6, 0.8]] * 2)
    teacher.prior = SimpleNamespace(embed=lambda batch: clear if batch is first else changed)
    first, second = torch.zeros(4, 3, 2, 2), torch.ones(4, 3, 2, 2)
    assert float(teacher._known(first, second)) == pytest.approx(0.8 - 0.6)


def test_area_under_the_curve_agrees_with_another_library():
    cosines = seeds.derive(1, "auc").normal(size=(12, 12)).round(1)  # with ties
    peer = roc_auc_score(np.eye(12).ravel(), cosines.ravel())
    assert module.area_under_curve(cosines) == pytest.approx(peer)
    assert module.area_under_curve(np.eye(3)) == 1 and module.area_under_curve(np.zeros((3, 3))) == 0.5


# ---- states and wrong input ----------------------------------------------------------------------------------------

def networks(width: int = 8) -> dict[str, np.ndarray]:
    torch.manual_seed(4)
    made = {"suppress": UNet(width), "restore": UNet(width)}
    for net in made.values():
        torch.nn.init.normal_(net.last.weight, 0, 0.05)
    return packed(**made)


def test_the_state_gives_the_same_bytes_frame_by_frame():
    method, again = Method(), Method()
    method.load(networks())
    again.load(dict(method.state()))
    video = Video(seeds.derive(1).integers(0, 256, (5, 40, 40, 3)).astype(np.uint8), 24.0)
    out = method.release(video, seeds.derive(1))
    assert out.frames.shape == video.frames.shape and out.fps == 24.0 and (out.frames != video.frames).any()
    np.testing.assert_array_equal(out.frames, again.release(video, seeds.derive(2)).frames)
    alone = method.release(Video(video.frames[2:3]), seeds.derive(1)).frames[0].astype(int)
    assert np.abs(alone - out.frames[2]).max() <= 1  # another batch size may round the last bit


def test_a_person_with_one_video_gives_pairs_but_a_frame_alone_does_not():
    assert len(module.with_pairs([Item(0), Item(1), Item(2, frames=1)])) == 2
    with pytest.raises(DataError, match="1 development videos have two frames"):
        module.with_pairs([Item(0), Item(1, frames=1)])
    with pytest.raises(DataError, match="0 development videos"):
        Method(steps=1).fit(development(frames=1), assets(), context())


def test_videos_without_an_expression_are_refused():
    same = [SimpleNamespace(expression=2)] * 3
    for videos in (same, [SimpleNamespace()] * 2, [SimpleNamespace(expression=None)] * 2):
        with pytest.raises(DataError, match="two expressions"):
            module.expressions(videos)


def test_weights_of_another_architecture_or_that_are_not_numbers_are_refused():
    mixed = assets()
    with pytest.raises(DataError, match="identity_method do not fit"):
        Method(steps=1).fit(development(), mixed | {"identity_method": mixed["feature_method"]}, context())
    mixed["identity_method"]["fc.bias"][:] = np.inf
    with pytest.raises(DataError, match="fc.bias is not finite"):
        Method(steps=1).fit(development(), mixed, context())
    state = networks() | {"restore/last.bias": np.zeros(4, np.float32)}
    with pytest.raises(DataError, match="last.bias is"):
        Method().load(state)


def test_a_loss_that_is_no_number_says_so():
    teacher = lesson(grey_videos(), np.arange(6))
    change = UNet(2)
    with torch.no_grad():
        change.last.bias.fill_(torch.nan)
    with pytest.raises(Diverged, match="suppression"):
        teacher.learn("suppression", change, change, None, 1)
