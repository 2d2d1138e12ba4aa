"""TADP's parts one by one: scale module, quantizer, temporal modules, losses, windows, full-size loaders."""

from __future__ import annotations

import hashlib
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from bench.errors import ConfigError, DataError, WeightsMissing
from bench.nets import published_faces as faces
from bench.nets.coders import FrameDecoder
from methods.tadp import losses
from methods.tadp.quantize import SoftQuantizer
from methods.tadp.scale import ScalePredictor
from methods.tadp.sizes import BRANCHES, SIZES, size_of
from methods.tadp.temporal import AttentionPool, Contextualizer, VideoMemory, positions
from methods.tadp.training import WINDOW, Source, Trainer, rendered, windows

FLOORS = {"id": 2.0, "expr": 0.5}
SMALL = SIZES["tiny"]


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


# ---- scale ---------------------------------------------------------------------------------------------------------

def test_the_scale_module_has_985346_parameters_at_paper_size():
    assert parameters(ScalePredictor(SIZES["paper"].dim, FLOORS)) == 985_346


@torch.no_grad()
def test_it_starts_just_above_the_floor_whatever_was_released():
    module, h, past = ScalePredictor(4, FLOORS), None, None
    for _ in range(5):
        scale, h = module(past, h)
        for name, floor in FLOORS.items():
            np.testing.assert_allclose(scale[name], floor * 1.0067153, rtol=1e-6)  # 1 + ln(1 + e^-5)
        past = torch.full((3, 8), 7.0)
    assert math.isclose(math.log1p(math.exp(-5)), 0.0067153, rel_tol=1e-5)


def test_state_starts_at_zero_and_weights_are_xavier():
    module = ScalePredictor(4, FLOORS)
    _, h = module(None, None)
    assert h.shape == (1, 256) and not h.any()
    weight = module.project.weight.detach()  # uniform in +- sqrt(6 / (in + out))
    bound = math.sqrt(6 / sum(weight.shape))
    assert weight.abs().max() <= bound and weight.abs().max() > 0.95 * bound
    assert not module.heads["id"][2].weight.any() and float(module.heads["id"][2].bias.detach()) == -5


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**16), st.floats(-1e6, 1e6), st.floats(0.01, 30), st.integers(1, 20))
def test_no_history_and_no_weights_bring_the_scale_under_its_floor(seed, size, spread, steps):
    generator = torch.Generator().manual_seed(seed)
    module, h, past = ScalePredictor(2, FLOORS), None, None
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(spread * torch.randn(p.shape, generator=generator))
        for _ in range(steps):
            scale, h = module(past, h)
            for name, floor in FLOORS.items():
                assert (scale[name] >= floor).all() and torch.isfinite(scale[name]).all()
            past = size * torch.randn(2, 4, generator=generator)


def test_the_scale_follows_the_history_once_it_is_trained():
    module = ScalePredictor(2, FLOORS)
    with torch.no_grad():
        module.heads["id"][2].weight.fill_(1.0)
        first = module(torch.ones(1, 4), torch.zeros(1, 256))[0]["id"]
        other = module(-torch.ones(1, 4), torch.zeros(1, 256))[0]["id"]
    assert first != other


# ---- quantizer -----------------------------------------------------------------------------------------------------

def test_soft_quantization_by_hand():
    entries = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    quantizer = SoftQuantizer(entries, rescale=2.0, temperature=0.5)
    row = torch.tensor([0.5, 0.25])  # rescaled: (1, .5) against (0, 0), (2, 0), (0, 4)
    weights = np.exp(-np.array([1.25, 1.25, 1 + 3.5**2]) / 0.5)
    np.testing.assert_allclose(quantizer.assignment(row), weights / weights.sum(), rtol=1e-5)
    np.testing.assert_allclose(quantizer(row), weights @ (2 * entries.numpy()) / weights.sum(), rtol=1e-5)


def test_a_cold_quantizer_picks_the_nearest_entry_and_a_hot_one_none():
    entries = torch.eye(4)
    row = torch.tensor([0.2, 0.9, 0.1, 0.0])
    assert SoftQuantizer(entries, 1.0, 1e-3).assignment(row)[1] > 0.999
    np.testing.assert_allclose(SoftQuantizer(entries, 1.0, 1e6).assignment(row), 0.25, atol=1e-5)


def test_quantization_never_leaves_the_hull_and_trains_nothing():
    generator = torch.Generator().manual_seed(1)
    entries = torch.randn(9, 3, generator=generator)
    quantizer = SoftQuantizer(entries, 1.0, 0.5)
    far = quantizer(1e4 * torch.randn(50, 3, generator=generator))
    assert (far <= entries.max(0).values + 1e-4).all() and (far >= entries.min(0).values - 1e-4).all()
    assert not list(quantizer.parameters())


# ---- temporal modules ----------------------------------------------------------------------------------------------

def test_attention_starts_as_a_mean_and_positions_tell_frames_apart():
    x = torch.arange(12.0).reshape(1, 4, 3)
    np.testing.assert_allclose(AttentionPool(3)(x).detach(), x.mean(1))
    table = positions(16, 8)
    assert table.shape == (16, 8) and len({tuple(row.tolist()) for row in table}) == 16
    np.testing.assert_allclose(table[0], [0, 1] * 4)


@torch.no_grad()
def test_the_memory_reads_earlier_clips_and_only_the_end_of_the_last():
    memory = VideoMemory(8).eval()
    generator = torch.Generator().manual_seed(2)
    clips = torch.randn(1, 3, 16, 8, generator=generator)
    m = memory(clips)
    np.testing.assert_allclose(memory(clips[:, :1])[:, 0], m[:, 0], atol=1e-6)  # reset: nothing before the window
    later = clips.clone()
    later[:, 2] += 1
    np.testing.assert_allclose(memory(later)[:, :2], m[:, :2], atol=1e-6)  # causal
    swapped = clips.clone()
    swapped[:, 0, :12] = clips[:, 0, :12].flip(1)  # the same pool and the same last four frames
    np.testing.assert_allclose(memory(swapped), m, atol=1e-5)
    ending = clips.clone()
    ending[:, 0] = clips[:, 0].flip(1)  # the same pool, another boundary
    assert (memory(ending)[:, 1] - m[:, 1]).abs().max() > 1e-3


@torch.no_grad()
def test_a_clip_alone_is_the_first_clip_of_a_video():
    model = Contextualizer(SMALL).eval()
    generator = torch.Generator().manual_seed(3)
    rows = {b: torch.randn(1, 3, 16, SMALL.dim, generator=generator) for b in BRANCHES}
    whole = model.remembered(model.context(rows))
    alone = model.remembered(model.context({b: v[:, :1] for b, v in rows.items()}))
    np.testing.assert_allclose(alone[:, 0], whole[:, 0], atol=1e-5)
    second = model.remembered(model.context({b: v[:, 1:2] for b, v in rows.items()}))
    assert (second[:, 0] - whole[:, 1]).abs().max() > 1e-4


@torch.no_grad()
def test_without_its_parts_the_context_forgets():
    generator = torch.Generator().manual_seed(4)
    rows = {b: torch.randn(1, 2, 16, SMALL.dim, generator=generator) for b in BRANCHES}
    changed = {b: v.clone() for b, v in rows.items()}
    changed["expr"][:, 0, 0] += 1  # one frame of the first clip
    for transformer, memory, inside, across in ((True, True, True, True), (False, True, True, True),
                                                (True, False, True, False), (False, False, False, False)):
        model = Contextualizer(SMALL, transformer=transformer, memory=memory).eval()
        moved = (model.remembered(model.context(rows)) - model.remembered(model.context(changed))).abs().amax((0, 3))
        assert moved[0, 0] > 1e-6
        assert bool((moved[0, 1:] > 1e-7).any()) == inside and bool((moved[1] > 1e-7).any()) == across
    counts = [parameters(Contextualizer(SMALL, transformer=t, memory=m)) for t, m in ((1, 1), (0, 1), (1, 0))]
    assert counts[1] < counts[0] and counts[2] < counts[0]


# ---- losses and windows --------------------------------------------------------------------------------------------

def test_losses_by_hand():
    mask = torch.tensor([1.0, 0.0])
    made, source = torch.zeros(2, 3, 2, 2), torch.ones(2, 3, 2, 2)
    assert losses.reconstruction_loss(made, source, mask) == 1
    assert losses.reconstruction_loss(made, torch.cat([made[:1], source[1:]]), mask) == 0  # padding does not count
    logits = torch.tensor([[0.0, 0.0], [50.0, 0.0]])
    assert losses.expression_loss(logits, torch.tensor([1, 1]), mask) == pytest.approx(math.log(2))
    assert losses.perceptual_loss([made, made], [source, 3 * source], mask) == pytest.approx((1 + 9) / 2)
    steps = torch.tensor([[[[0.0], [1.0]], [[4.0], [4.0]]]])  # (1 video, 2 clips, 2 frames, 1)
    assert losses.intra_loss({"id": steps, "expr": 2 * steps}) == pytest.approx((1 + 0) / 2 * (1 + 4))
    assert losses.inter_loss({"id": steps, "expr": 2 * steps}) == pytest.approx(9 * (1 + 4))
    assert losses.boundary_loss([source], [3 * source]) == pytest.approx(2)


def test_all_weights_are_a_half_and_the_inner_three_stand_under_another_half():
    one = torch.tensor(1.0)
    assert losses.Objective(one, one, one, one, one, one).total() == pytest.approx(0.5 * 3 + 0.5 * 0.5 * 3)
    assert losses.Objective(one, one, one, one).total() == pytest.approx(0.5 * 3 + 0.5 * 0.5)  # a single clip


def test_windows_are_consecutive_and_never_cross_a_video():
    counts = [2, 3, 1, 7, 2, 2]
    seen = set()
    for batch in windows(counts, SMALL, np.random.default_rng(1)):
        assert len({w.count for w in batch}) == 1 and len(batch) <= SMALL.batch
        for w in batch:
            assert 1 <= w.count <= WINDOW and w.first >= 0 and w.first + w.count <= counts[w.video]
            seen.add(w.count)
    assert seen >= {1, 2}
    index = rendered(SMALL, 16, np.random.default_rng(1))
    assert index[0] == 0 and index[-1] == 15 and len(index) == SMALL.rendered == len(set(index.tolist()))


def test_an_unknown_size_is_named():
    with pytest.raises(ConfigError, match="tiny, paper"):
        size_of("huge")


# ---- full size, with small random weights of the same classes --------------------------------------------------------

VAE = {"block_out_channels": [8, 16], "layers_per_block": 1, "latent_channels": 4, "norm_num_groups": 4,
       "down_block_types": ["DownEncoderBlock2D"] * 2, "up_block_types": ["UpDecoderBlock2D"] * 2,
       "scaling_factor": 0.13025, "sample_size": 32}


def saved(path, tensors):
    save_file({k: v.contiguous() for k, v in tensors.items()}, path)
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


@torch.no_grad()
def test_the_sdxl_decoder_loads_from_an_autoencoder_file(tmp_path):
    from diffusers import AutoencoderKL

    whole = AutoencoderKL(**VAE).eval()
    path, sha = saved(tmp_path / "vae.safetensors", whole.state_dict())
    decoder = faces.load_decoder(path, sha, VAE)
    latents = torch.linspace(-1, 1, 2 * 4 * 4 * 4).reshape(2, 4, 4, 4)
    made = decoder(latents)
    np.testing.assert_allclose(made, (whole.decode(latents).sample / 2 + 0.5).clamp(0, 1), atol=1e-6)
    assert made.shape == (2, 3, 8, 8)
    tensors = {k: torch.from_numpy(np.array(v)) for k, v in faces.arrays_of(decoder).items()}
    np.testing.assert_array_equal(faces.network_from(tensors)(latents), made)
    with pytest.raises(DataError, match="SHA-256"):
        faces.load_decoder(path, "0" * 64, VAE)
    with pytest.raises(DataError, match="does not fit"):
        faces.load_decoder(*saved(tmp_path / "part.safetensors", dict(list(whole.state_dict().items())[:-4])), VAE)


@torch.no_grad()
def test_the_affectnet_encoder_gives_1024_numbers_without_its_head(tmp_path):
    model = faces.ExpressionEncoder("resnet18", 8).eval()
    loaded = faces.load_expression(*saved(tmp_path / "a.safetensors", model.network.state_dict()), "resnet18")
    frames = torch.arange(64 * 64 * 3, dtype=torch.int64).remainder(251).to(torch.uint8).reshape(1, 64, 64, 3)
    feature = loaded(frames)
    assert feature.shape == (1, 1024) and torch.isfinite(feature).all()
    np.testing.assert_allclose(loaded(frames.flip(2))[:, :512], feature[:, 512:], atol=1e-4)  # mirror swaps the halves
    assert loaded.logits(loaded.maps(torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(1)))[-1]
                         ).shape == (1, 8)


def test_the_face_encoder_gives_1024_numbers_and_reads_rgb_files_only(tmp_path):
    model = faces.FaceEncoder("ir18").eval()
    names = {f"model.net.{k}": v for k, v in model.network.state_dict().items()}
    loaded = faces.load_face(*saved(tmp_path / "rgb.safetensors", names), "ir18")
    with torch.no_grad():
        assert loaded(torch.zeros(1, 32, 32, 3, dtype=torch.uint8)).shape == (1, 1024)
    with pytest.raises(DataError, match="blue, green, red"):
        faces.load_face(*saved(tmp_path / "bgr.safetensors", model.network.state_dict()), "ir18")


def test_codebooks_and_missing_files(tmp_path):
    book = faces.load_codebook(*saved(tmp_path / "b.safetensors", {"entries": torch.ones(5, 3)}), 3)
    assert book.shape == (5, 3) and book.dtype == np.float32
    for wrong in (torch.ones(5, 4), torch.full((5, 3), torch.nan)):
        with pytest.raises(DataError, match="codebook"):
            faces.load_codebook(*saved(tmp_path / "c.safetensors", {"entries": wrong}), 3)
    with pytest.raises(WeightsMissing, match="sdxl_vae"):
        faces.where("sdxl_vae")


def test_training_starts_from_the_mean_face():
    torch.manual_seed(3)
    method = SimpleNamespace(size=size_of("tiny"), contextualizer=Contextualizer(size_of("tiny")),
                             decoder=FrameDecoder().requires_grad_(False))
    for weights in method.decoder.parameters():
        weights.mul_(2)  # an untrained one paints grey whatever it is given
    face = method.decoder(0.7 * torch.randn(1, *method.size.latent))  # a picture that the decoder can paint
    frames = (face[0].permute(1, 2, 0).numpy() * 255).round().astype(np.uint8)[None].repeat(16, 0)
    sources = [Source(frames, 0, 16, {"id": np.zeros((1, 16, 8)), "expr": np.zeros((1, 16, 8))})]
    distances = []
    for _ in range(2):
        made = method.decoder(method.contextualizer.project.bias.detach().unflatten(0, method.size.latent)[None])
        distances.append(float((made - face).abs().mean()))
        Trainer(method, sources, None, None, {}).start()
    assert distances[1] < 0.5 * distances[0]
