"""Controlled keeps its must-keep list: exact Haar bands, controllers that rest, a compensator blind to originals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from learning import context, numbers, people, read_by

from bench import Video, registry, seeds
from bench.errors import DataError, Diverged
from bench.nets.development import as_pictures, some_of
from bench.nets.wavelet import join_bands, split_bands


def frames(n=2, height=16, width=16, seed=1) -> np.ndarray:
    return seeds.derive(seed, "frames").integers(0, 256, (n, height, width, 3), dtype=np.uint8)


NETS = ("low", "high", "compensator")


@pytest.fixture(scope="module")
def module():
    """The method with sizes that train in a second."""
    import methods.controlled as code

    kept = code.SIZES["tiny"]
    code.SIZES["tiny"] = dataclasses.replace(kept, low=2, high=2, compensator=4, frames_per_video=2, batch=8,
                                             start=None, controller="test_resnet", epochs=(4, 12, 6, 8, 6, 12),
                                             rates=(1e-2, 4e-3, 3e-3, 3e-3, 1e-2, 1e-2))
    yield code
    code.SIZES["tiny"] = kept


def fitted(spec="controlled", *, log=None, data=None, assets=None):
    made = registry.build("methods", spec)
    made.fit(data or people(3), assets or {}, context("controlled", log=log))
    return made


class Record:
    """What a fit did: its log, which networks each stage moved, what the compensator read and was given to read."""

    def __init__(self):
        self.log, self.moved, self.read, self.given = [], {}, [], None

    def ends(self, stage):
        text = next(t for t in self.log if t.startswith(stage + ":"))
        return [float(v) for v in text.rpartition(": ")[2].split(" -> ")]


@pytest.fixture(scope="module")
def run(module):
    """One fit of the whole method, watched; the fitted method and its record."""
    made, record = registry.build("methods", "controlled"), Record()
    learn, compensate = module._Teacher.learn, module.Controlled._compensate

    def watched(self, stage, what, network, *rest):
        known = {**{f"network {k}": v for k, v in made.networks.items()},
                 **{f"controller {k}": v for k, v in made.controllers.items()}}
        before = {k: numbers(v) for k, v in known.items()}
        learn(self, stage, what, network, *rest)
        record.moved[what] = {k for k, v in known.items()
                              if any((before[k][n] != a).any() for n, a in numbers(v).items())}

    def spied(self, teacher, suppressed, expressions):
        record.given = suppressed
        read_by(self.networks["compensator"], record.read)
        compensate(self, teacher, suppressed, expressions)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module._Teacher, "learn", watched)
        patch.setattr(module.Controlled, "_compensate", spied)
        made.fit(people(3), {}, context("controlled", log=record.log))
    return made, record


@pytest.fixture
def made(run):
    """The fitted method, as good as new."""
    again = registry.build("methods", "controlled")
    again.load({k: v.copy() for k, v in run[0].state().items()})
    return again


# ---- Haar ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("height, width", [(16, 16), (15, 10), (8, 13), (1, 1)])
def test_the_bands_join_to_the_very_same_numbers(height, width):
    x = torch.from_numpy(frames(2, height, width)).permute(0, 3, 1, 2).float()
    low, high = split_bands(x)
    assert low.shape == (2, 3, -(-height // 2), -(-width // 2)) and high.shape == (2, 3, *low.shape[1:])
    assert torch.equal(join_bands(low, high, height, width), x)  # halves of whole numbers: no rounding at all


def test_the_bands_are_those_of_haar():
    """One pixel of value 1 at each place of a 2 x 2 cell, by the four orthonormal vectors; lengths are kept."""
    x = torch.eye(4).reshape(4, 1, 2, 2)
    low, high = split_bands(x)
    vectors = torch.cat([low.reshape(4, 1), high.reshape(4, 3)], 1)  # (place, band)
    assert torch.equal(vectors, torch.tensor([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2)
    assert torch.equal(vectors @ vectors.T, torch.eye(4))


# ---- the method ----------------------------------------------------------------------------------------------------

def test_two_networks_make_the_two_bands_and_the_inverse_wavelet_joins_them(made):
    seen, given = {name: [] for name in NETS}, frames(2)
    for name, network in made.networks.items():
        read_by(network, seen[name])
    assert len({id(network) for network in made.networks.values()}) == 3
    made.release(Video(given), seeds.derive(1))
    low, high = split_bands(as_pictures(given))
    torch.testing.assert_close(seen["low"][0], low / 2)
    torch.testing.assert_close(seen["high"][0], (high.reshape(6, 3, 8, 8) + 1) / 2)
    for network in made.networks.values():  # networks that copy give the original back
        network.forward = lambda x: x
    np.testing.assert_array_equal(made.release(Video(given), seeds.derive(1)).frames, given)


def test_one_network_moves_in_each_stage_and_controllers_rest(run):
    fit, record = run
    moved = record.moved
    assert moved["low: stage 1"] == {"network low"} and moved["high: stage 1"] == {"network high"}
    assert moved["compensator: stage 2"] == {"network compensator"}
    assert not any("controller" in name for names in moved.values() for name in names)  # once they are there
    assert set(fit.controllers) == {"low", "high", "expression"}
    assert not any(p.requires_grad or m.training for m in fit.controllers.values() for p in m.parameters())


def test_stage_one_turns_the_sign_and_stage_two_does_not(run, module):
    fit, record = run
    for band in ("low", "high"):
        first, last = record.ends(f"{band}: stage 1")
        assert last < first <= 0  # minus a cross entropy, with no bound below
    first, last = record.ends("compensator: stage 2")
    assert 0 <= last < first


@pytest.mark.parametrize("name", ["low", "high"])
def test_a_controller_knows_people_less_on_what_stage_one_made(run, module, name):
    fit, data = run[0], people(3).train
    bands = module._bands(as_pictures(np.concatenate([item.video.frames[:1] for item in data])))[name]
    who = torch.tensor([item.identity // 10 for item in data]).repeat_interleave(len(bands) // len(data))
    with torch.no_grad():
        before, after = (torch.nn.functional.cross_entropy(fit.controllers[name](module.scaled(b)), who)
                         for b in (bands, fit.networks[name](bands)))
    assert after > before


def test_the_compensator_learns_from_what_stage_one_made_and_from_no_original(run):
    fit, record = run
    drawn = np.concatenate([item.video.frames for item in people(3).train])
    allowed, originals = as_pictures(record.given), as_pictures(drawn)

    def marks(pictures):
        return {tuple(p.flatten().tolist()) for x in (pictures, pictures.flip(3)) for p in x}
    read = marks(torch.cat(record.read))
    assert read <= marks(allowed) and not read & marks(originals)


def test_a_release_hides_the_original_from_the_compensator(made):
    read: list[torch.Tensor] = []
    read_by(made.networks["compensator"], read)
    given, other = frames(2), frames(2, seed=2)
    made.release(Video(given), seeds.derive(1))
    torch.testing.assert_close(torch.cat(read), as_pictures(made._suppressed(given)))
    for name in ("low", "high"):  # where stage 1 gives one and the same picture, the release is one and the same
        made.networks[name].forward = lambda x: torch.full_like(x, 0.5)
    np.testing.assert_array_equal(made.release(Video(given), seeds.derive(1)).frames,
                                  made.release(Video(other), seeds.derive(1)).frames)


def test_the_variant_without_compensation_is_stage_one(made):
    first = registry.build("methods", "controlled@stage1")
    first.load({k: np.array([*v[:2], 0]) if k == "design" else v for k, v in made.state().items()
                if not k.startswith("compensator")})
    video = Video(frames(3, 15, 17), 24.0)
    one, final = first.release(video, seeds.derive(1)), made.release(video, seeds.derive(2))
    np.testing.assert_array_equal(one.frames, made._suppressed(video.frames))
    assert final.fps == 24.0 and final.frames.shape == video.frames.shape and (final.frames != one.frames).any()
    np.testing.assert_array_equal(made.release(video, seeds.derive(3)).frames, final.frames)  # nothing is random
    assert not getattr(type(made), "random_release", False)


def test_the_variant_fits_without_a_compensator_and_the_same_each_time(module):
    one, other = (fitted("controlled@stage1") for _ in range(2))
    assert set(one.networks) == {"low", "high"} and set(one.controllers) == {"low", "high"}
    assert all((one.state()[k] == v).all() for k, v in other.state().items())


def test_no_more_videos_are_read_than_the_size_says():
    drawn = some_of(list(range(40)), 7, seeds.derive(1, "some"))
    assert len(set(drawn)) == 7 and drawn == sorted(drawn) and drawn != list(range(7))
    assert some_of(list(range(7)), 7, None) == list(range(7))  # nothing is drawn where all are read


def test_both_profiles_hold_a_configuration():
    import methods.controlled as module

    paper = module.SIZES["paper"]
    assert set(module.SIZES) == {"tiny", "paper"}
    assert (paper.low, paper.high, paper.controller, paper.epochs[2], paper.rates[2]) == (64, 64, "resnet50", 300, 1e-4)
    with torch.device("meta"):
        assert sum(p.numel() for p in module.SigmoidUNet(paper.low).parameters()) == 17_267_523


# ---- wrong input ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("label", ["identity", "expression"])
def test_a_split_without_its_labels_is_refused(module, label):
    data = people(2)
    for item in data.train:
        delattr(item, label)
    with pytest.raises(DataError, match=f"no label '{label}'"):
        fitted(data=data)
    with pytest.raises(DataError, match="have the label 'expression' 0"):
        fitted(data=people(2, labels=1))
    assert {"identity", "expression"} == registry.get("methods", "controlled").needs


def test_weights_of_another_architecture_variant_or_with_a_nan_are_refused(made):
    state = dict(made.state())
    name = next(k for k in state if k.endswith("weight"))
    with pytest.raises(DataError, match="not of this variant"):
        registry.build("methods", "controlled@stage1").load(state)
    with pytest.raises(DataError, match="not of this variant"):
        made.load({k: v for k, v in state.items() if k != "design"})
    with pytest.raises(DataError, match="network low do not fit"):
        made.load({**state, "design": np.array([4, 2, 4])})
    with pytest.raises(DataError, match="not finite"):
        made.load({**state, name: np.full_like(state[name], np.inf)})


def test_the_expression_controller_starts_from_the_shared_network(module, monkeypatch):
    monkeypatch.setitem(module.SIZES, "tiny", dataclasses.replace(module.SIZES["tiny"], start="feature_method"))
    torch.manual_seed(0)
    start = module.frame_classifier("test_resnet", 5).state_dict()
    arrays = {k: v.numpy() for k, v in start.items()}  # as the harness gives them
    controller = registry.build("methods", "controlled")._started(module.SIZES["tiny"], 3, {"feature_method": arrays})
    own = controller.state_dict()
    fitting = [k for k in start if start[k].shape == own[k].shape]
    assert len(fitting) > 0.9 * len(own) and all(torch.equal(start[k], own[k]) for k in fitting)
    with pytest.raises(DataError, match="feature_method does not fit"):
        fitted(assets={"feature_method": {"other": np.zeros(1)}})


def test_a_nan_and_training_without_progress_are_said(module, made, monkeypatch):
    made.networks["low"].last.bias.data[:] = float("nan")
    with pytest.raises(Diverged, match="not finite"):
        made.release(Video(frames(2)), seeds.derive(1))
    with monkeypatch.context() as patch:
        patch.setattr(module, "split_bands", lambda x: tuple(b * float("nan") for b in split_bands(x)))
        with pytest.raises(Diverged, match="the loss of low: copying became nan"):
            fitted("controlled@stage1")
    monkeypatch.setattr(module, "mirrored", lambda drawn, rng: torch.zeros(len(drawn), 3, 16, 16))
    monkeypatch.setattr(module.SigmoidUNet, "forward", lambda self, x: x * 0 + 0 * self.last.weight.sum())
    with pytest.raises(Diverged, match="low: copying made no progress"):
        fitted("controlled@stage1")
