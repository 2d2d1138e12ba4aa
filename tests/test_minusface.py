"""MinusFace keeps its must-keep list: exact frequencies, residue, fresh shuffles, a generator that rests in stage 2."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import scipy.fft
import torch
from learning import context, numbers, people, read_by

from bench import Video, registry, seeds
from bench.errors import DataError, Diverged
from bench.nets.arcface import ArcFaceHead
from bench.nets.block_dct import GREY, FrequencyCodec, from_blocks, to_blocks
from bench.nets.descent import Descent, Pace, batches
from bench.nets.development import classes
from bench.nets.feature_unet import FeatureUNet
from bench.nets.recogniser import Recogniser
from bench.nets.training import use_threads


def pictures(n=2, height=16, width=16, seed=1) -> torch.Tensor:
    return torch.from_numpy(seeds.derive(seed, "pictures").random((n, 3, height, width), dtype=np.float32))


@pytest.fixture(scope="module")
def small():
    """The method with sizes that train in a second or two."""
    import methods.minusface as module

    use_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(module.SIZES, "tiny", dataclasses.replace(
            module.SIZES["tiny"], factor=2, widths=(8, 16), frames_per_video=2, epochs=(12, 3), batch=8,
            generator_rate=1.0))
        yield module


def fitted(log=None):
    made = registry.build("methods", "minusface")
    made.fit(people(4), {}, context("minusface", log=log))
    return made


class Record:
    """What a fit did: its log, the generator before stage 2, what both recognisers read, what each step went down."""

    def __init__(self):
        self.log, self.generator, self.read, self.steps = [], {}, {192: [], 9: []}, []


@pytest.fixture(scope="module")
def run(small):
    """One fit, watched; the fitted method and its record."""
    record, builder, step, learn = Record(), small.Recogniser, Descent.step, small.MinusFace._learn_releases

    def built(channels, *rest):
        network = builder(channels, *rest)
        read_by(network, record.read[channels])
        return network

    def stepped(self, loss, *watched):
        record.steps.append([v.item() for v in (loss, *watched)])
        return step(self, loss, *watched)

    def second(self, *rest):
        record.generator = numbers(self.generator)
        learn(self, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small, "Recogniser", built)
        patch.setattr(Descent, "step", stepped)
        patch.setattr(small.MinusFace, "_learn_releases", second)
        return fitted(record.log), record


@pytest.fixture
def made(run):
    """The fitted method, as good as new."""
    again = registry.build("methods", "minusface")
    again.load({k: v.copy() for k, v in run[0].state().items()})
    return again


# ---- block DCT -----------------------------------------------------------------------------------------------------

def test_blocks_are_the_orthonormal_dct_of_scipy_and_come_back():
    x = pictures(2, 24, 16) * 255 - 128
    blocks = to_blocks(x)
    assert blocks.shape == (2, 192, 3, 2)
    wanted = scipy.fft.dctn(x[1, 2, 8:16, 8:16].double().numpy(), type=2, norm="ortho")
    np.testing.assert_allclose(blocks[1, 128:, 1, 1].reshape(8, 8), wanted, atol=1e-3)
    assert (from_blocks(to_blocks(x / 255)) - x / 255).abs().max() < 1e-5
    assert blocks.square().sum() == pytest.approx(x.square().sum().item(), rel=1e-5)  # lengths are kept
    with pytest.raises(ValueError, match="whole blocks"):
        to_blocks(x[:, :, :20])


@pytest.mark.parametrize("factor", [2, 4, 8])
def test_the_fast_codec_is_its_definition(factor):
    codec, x = FrequencyCodec(factor), pictures(2, 16, 24)
    frequencies = codec.encode(x)
    assert frequencies.shape == (2, 192, 16 * factor // 8, 24 * factor // 8)
    torch.testing.assert_close(frequencies, codec.enlarged(x - GREY), atol=1e-5, rtol=0)
    torch.testing.assert_close(codec.picture(frequencies, 16, 24), codec.shrunk(frequencies), atol=1e-5, rtol=0)


@pytest.mark.parametrize("factor", [2, 4, 8])
def test_the_inverse_of_the_enlarged_picture_is_exact(factor):
    """D(E(x)) shrinks an exactly restored enlargement, so it equals enlarging and shrinking alone."""
    codec, x = FrequencyCodec(factor), pictures()
    large = torch.nn.functional.interpolate(x, scale_factor=factor, mode="bilinear", align_corners=False)
    small = torch.nn.functional.interpolate(large, scale_factor=1 / factor, mode="bilinear", align_corners=False)
    assert (codec.picture(codec.encode(x), 16, 16) + GREY - small).abs().max() < 1e-5


def test_a_grey_picture_has_one_frequency_and_red_has_chroma():
    codec = FrequencyCodec(4)
    grey = codec.encode(torch.full((1, 3, 16, 16), 200 / 255))[0]  # (192, 8, 8)
    assert (grey[0] - 8 * (200 - 128) / 255).abs().max() < 1e-5 and grey[1:].abs().max() < 1e-5
    red = torch.zeros(1, 3, 16, 16)
    red[:, 0] = 1
    assert codec.encode(red)[0, 128].mean() == pytest.approx(8 * 0.5, abs=1e-5)  # Cr of pure red is at its end


@pytest.mark.parametrize("height, width", [(9, 13), (17, 8), (64, 65)])
@pytest.mark.parametrize("factor", [2, 4, 8])
def test_sides_that_are_no_whole_blocks_come_back_in_their_size(factor, height, width):
    codec = FrequencyCodec(factor)
    ramp = (torch.arange(height)[:, None] + torch.arange(width)).div(height + width).expand(1, 3, height, width)
    back = codec.picture(codec.encode(ramp), height, width) + GREY
    assert back.shape == ramp.shape
    inner = (slice(None), slice(None), slice(1, -1), slice(1, -1))  # enlarging and shrinking keep what is linear
    assert (back - ramp)[inner].abs().max() < 1e-5 and (back - ramp).abs().max() < 2 / (height + width)


def test_the_generator_of_the_paper_has_its_size():
    with torch.device("meta"):
        network = FeatureUNet(192, (64, 128, 256, 512, 1024))
    assert sum(p.numel() for p in network.parameters()) == 34_634_624


# ---- ArcFace -------------------------------------------------------------------------------------------------------

def test_arcface_widens_the_own_angle_by_the_margin():
    head = ArcFaceHead(2, 3)
    angles = torch.tensor([0.0, 1.0, 2.0])
    with torch.no_grad():
        head.kernel.copy_(torch.stack([angles.cos(), angles.sin()], 1) * 7)  # their lengths do not count
    own = torch.tensor([0.4, 2.9])  # the second stands further than pi - m from person 0
    logits = head(torch.stack([own.cos(), own.sin()], 1) * 3, torch.tensor([0, 0]))
    assert logits[0, 0].item() == pytest.approx(64 * math.cos(0.9), abs=1e-3)
    assert logits[1, 0].item() == pytest.approx(64 * (math.cos(2.9) - 0.5 * math.sin(0.5)), abs=1e-3)
    assert logits[0, 1].item() == pytest.approx(64 * math.cos(0.6), abs=1e-3)


# ---- the method ----------------------------------------------------------------------------------------------------

def test_residue_and_regeneration_make_the_original(made):
    x = pictures()
    with torch.no_grad():
        whole = made.codec.encode(x)
        residue, again = made.residue(x), made.generator(whole)
        assert (residue + again - whole).abs().max() < 1e-5
        seen = made.codec.picture(residue, 16, 16) + made.codec.picture(again, 16, 16)
    assert (seen - made.codec.picture(whole, 16, 16)).abs().max() < 1e-5  # in the picture too: decoding is linear
    assert again.abs().max() > 1e-3 and residue.abs().max() > 1e-3


class Counting:
    """Permutations that are known, in place of a generator."""

    def __init__(self, *orders):
        self.orders, self.asked = list(orders), 0

    def permutation(self, count):
        self.asked += 1
        return np.array(self.orders.pop(0)) if self.orders else np.arange(count)


def test_all_channels_are_shuffled_before_decoding_and_each_frame_anew(small):
    made, x = registry.build("methods", "minusface"), pictures(2)
    made.codec = FrequencyCodec(2)
    residue = made.codec.encode(x) * 0.1
    turn = np.arange(192)[::-1]
    rng = Counting(turn, np.arange(192))
    shown = made.shown(residue, x, rng)
    assert rng.asked == 2
    expected = torch.stack([residue[0].flip(0), residue[1]])  # colours are mixed: 192 channels, not 3 times 64
    torch.testing.assert_close(shown, (made.codec.picture(expected, 16, 16) + GREY).clamp(0, 1))


def test_a_release_is_random_frame_by_frame_and_repeats_with_its_seed(made):
    still = Video(np.repeat((pictures(1)[0].permute(1, 2, 0).numpy() * 255).astype(np.uint8)[None], 4, 0), 25.0)
    first, again, other = (made.release(still, seeds.derive(seed)).frames for seed in (1, 1, 2))
    assert first.shape == still.frames.shape and first.dtype == np.uint8
    np.testing.assert_array_equal(first, again)
    assert (first != other).any(axis=(1, 2, 3)).all()
    assert all((first[i] != first[j]).any() for i in range(4) for j in range(i))  # one frame four times, four pictures
    assert type(made).random_release and type(made).lane == "none"


def test_stage_two_leaves_the_generator_and_reads_shuffled_releases_alone(run):
    fit, record = run
    after, read = numbers(fit.generator), record.read[9]
    assert record.generator and all((record.generator[k] == after[k]).all() for k in after)
    assert not any(p.requires_grad for p in fit.generator.parameters())
    assert {tuple(x.shape[1:]) for x in read} == {(9, 16, 16)}  # three shuffles of each frame, 3 channels each
    assert all(0 <= x.min() and x.max() <= 1 for x in read)
    assert all((x[:, :3] != x[:, 3:6]).any() for x in read)


def test_stage_one_weighs_five_to_one_and_reads_residues_in_the_frequency_domain(run, small):
    """The loss that is stepped down is 5 |x - regeneration| + 1 ArcFace."""
    record = run[1]
    first = [row for row in record.steps if len(row) == 3]
    assert first and all(row[0] == pytest.approx(5 * row[1] + row[2], rel=1e-5) for row in first)
    assert {tuple(x.shape[1:]) for x in record.read[192]} == {(192, 4, 4)}
    assert (small.REGENERATION, small.RECOGNITION) == (5, 1)


def test_both_stages_report_and_the_state_gives_the_same_release(run, made):
    fit, record = run
    assert any("stage 1" in text for text in record.log) and any("stage 2" in text for text in record.log)
    video = Video(people(2).train[0].video.frames, 24.0)
    one, other = (m.release(video, seeds.derive(3)) for m in (fit, made))
    np.testing.assert_array_equal(one.frames, other.frames)
    assert one.fps == 24.0 and all(isinstance(v, np.ndarray) for v in fit.state().values())


def test_the_same_seed_fits_the_same_weights(run):
    first, second = run[0].state(), fitted().state()
    assert all((first[k] == second[k]).all() for k in first)


def test_both_profiles_hold_a_configuration():
    import methods.minusface as module

    assert set(module.SIZES) == {"tiny", "paper"}
    paper = module.SIZES["paper"]
    assert (paper.factor, paper.backbone, paper.batch, paper.epochs, paper.copies) == (8, "ir18", 64, (24, 24), 3)
    assert [paper.pace.rate * paper.pace.schedule((e + 0.5) / 24) for e in (0, 10, 18, 22)] == pytest.approx(
        [1e-2, 1e-3, 1e-4, 1e-5])
    with torch.device("meta"):
        network = Recogniser(192, 10, "ir18")
    assert network.stem[0].weight.shape == (64, 192, 3, 3) and network.head.kernel.shape == (10, 512)


# ---- wrong input ---------------------------------------------------------------------------------------------------

def test_a_split_without_people_is_refused(small):
    data = people(3)
    for item in data.train:
        del item.identity
    with pytest.raises(DataError, match="no label 'identity'"):
        registry.build("methods", "minusface").fit(data, {}, context("none"))
    with pytest.raises(DataError, match="have the label 'identity' 0"):
        registry.build("methods", "minusface").fit(people(1), {}, context("one"))
    with pytest.raises(DataError, match="No development videos"):
        classes([], "identity")


def test_frames_smaller_than_a_block_are_refused(made):
    with pytest.raises(DataError, match=r"7 x 16 px are smaller than a block of 8 x 8"):
        FrequencyCodec(8).encode(pictures(1, 7, 16))
    with pytest.raises(DataError, match="smaller than a block"):
        made.release(Video(np.zeros((2, 16, 6, 3), np.uint8)), seeds.derive(1))


def test_weights_of_another_architecture_or_with_a_nan_are_refused(made):
    state, again = dict(made.state()), registry.build("methods", "minusface")
    name = next(k for k in state if k != "design")
    with pytest.raises(DataError, match="does not say which generator"):
        again.load({k: v for k, v in state.items() if k != "design"})
    with pytest.raises(DataError, match="is missing"):
        again.load({k: v for k, v in state.items() if k != name})
    with pytest.raises(DataError, match="minusface's generator do not fit"):
        again.load({**state, "design": np.array([2, 8, 24])})
    with pytest.raises(DataError, match="more is unknown"):
        again.load({**state, "generator/more": np.zeros(3)})
    with pytest.raises(DataError, match="not finite"):
        again.load({**state, name: np.full_like(state[name], np.nan)})


def test_a_nan_in_training_and_in_the_release_is_said(made, monkeypatch):
    made.generator.last.weight.data[:] = float("nan")
    with pytest.raises(Diverged, match="not finite"):
        made.release(Video(np.zeros((2, 16, 16, 3), np.uint8)), seeds.derive(1))
    monkeypatch.setattr(FeatureUNet, "forward", lambda self, x: x * float("nan") * self.last.weight.sum())
    with pytest.raises(Diverged, match="the loss of stage 1 became nan"):
        fitted()


def test_training_without_progress_is_said(small, monkeypatch):
    size = small.SIZES["tiny"]
    monkeypatch.setitem(small.SIZES, "tiny", dataclasses.replace(
        size, epochs=(2, 1), pace=dataclasses.replace(size.pace, schedule=lambda share: 0.0)))
    monkeypatch.setattr(small, "mirrored", lambda frames, rng: small.as_pictures(np.full_like(frames, 90)))
    with pytest.raises(Diverged, match="no progress"):
        fitted()


def test_a_descent_moves_its_modules_alone_and_counts_its_rests():
    moved, resting = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    before = numbers(resting)
    x = torch.ones(4, 2)
    descent = Descent("the sum", [(moved, 1.0)], Pace(rate=0.05), 40)
    for _ in range(40):
        descent.step((moved(x) + resting(x) - 3).square().mean())
    descent.check()
    assert descent.ends()[1] < 0.1 * descent.ends()[0]
    assert all((before[k] == numbers(resting)[k]).all() for k in before)
    plan = batches(9, 4, 2, seeds.derive(1))
    assert [len(b) for b in plan] == [4, 4, 4, 4]  # the ninth would stand alone: batch norm wants two
    assert all(len(set(np.concatenate(plan[i:i + 2]))) == 8 for i in (0, 2))
    with pytest.raises(Diverged, match="too few"):
        batches(1, 4, 2, seeds.derive(1))
