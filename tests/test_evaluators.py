"""The utility networks: what they read, how they start, how large the published ones are, that they learn."""

from __future__ import annotations

import socket

import numpy as np
import pytest
import torch
from torch import nn
from torchvision.models.video import r3d_18

from bench import CLIP_FRAMES, Context, Sample, Video, registry, seeds
from bench.errors import WeightsMissing
from bench.nets.evaluators import NETWORKS, R3D, TransformerSize, timesformer
from bench.nets.video import as_clip_input

OTHERS = ("r3d", "timesformer", "videomae")  # x3d starts from an asset: tests/test_contract.py
KINETICS = 400
SIDE = 64


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Whoever asks the network for weights fails."""
    def refused(*names):
        raise AssertionError(f"something asked for {names}")

    monkeypatch.setattr(socket, "getaddrinfo", refused)
    monkeypatch.setattr(socket.socket, "connect", refused)


def context(seed=3, profile="tiny") -> Context:
    return Context(rng=lambda *names: seeds.derive(seed, *names), report=lambda text: None, profile=profile,
                   torch_seed=lambda *names: seeds.derive_torch(seed, *names))


def built(name: str, classes: int = 3, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return NETWORKS[name].build(classes, NETWORKS[name].sizes["tiny"]).eval()


def clips(name: str, n: int = 2) -> torch.Tensor:
    """(N, 3, T, S, S), smooth noise."""
    size = NETWORKS[name].sizes["tiny"]
    made = seeds.derive(1, "evaluators").integers(0, 256, (n, size.frames, SIDE, SIDE, 3)).astype(np.uint8)
    return as_clip_input(torch.from_numpy(made), size.side_px)


# ---- what they read ------------------------------------------------------------------------------------------------

def test_the_variants_are_the_networks_and_x3d_is_the_headline():
    fer = registry.get("metrics", "fer")
    assert set(fer.variants) == set(NETWORKS) and fer.headline == "x3d"
    assert fer().network == fer(**fer.variants["x3d"]).network == "x3d"
    assert fer.assets_of("x3d") == fer.assets_of(None) == fer.assets == ("expression_eval",)
    for name in OTHERS:
        assert fer(**fer.variants[name]).network == name and fer.assets_of(name) == ()


@pytest.mark.parametrize("name", NETWORKS)
def test_clips_go_in_and_logits_come_out(name):
    with torch.inference_mode():
        out = built(name, 5)(clips(name))
    assert out.shape == (2, 5) and torch.isfinite(out).all() and not torch.equal(out[0], out[1])


@pytest.mark.parametrize("name, frames", [("x3d", 4), ("r3d", 8), ("timesformer", 8), ("videomae", 8)])
def test_each_reads_equally_spaced_frames_of_every_clip(name, frames):
    evaluator = registry.build("metrics", f"fer@{name}")
    evaluator.size = NETWORKS[name].sizes["tiny"]
    video = np.zeros((2 * CLIP_FRAMES + 5, 4, 4, 3), np.uint8)
    video += np.arange(len(video), dtype=np.uint8)[:, None, None, None]  # each frame shows its number
    read = evaluator._clips(Video(video))[:, :, 0, 0, 0].numpy()
    step = CLIP_FRAMES / frames
    middles = np.floor((np.arange(frames) + 0.5) * step)
    assert read.shape == (3, frames)
    np.testing.assert_array_equal(read[:2], [middles, CLIP_FRAMES + middles])
    assert set(read[2]) <= set(range(32, 37)) and (np.diff(read[2].astype(int)) >= 0).all()  # never past the end


def test_every_epoch_reads_its_own_draw():
    frames = [np.full((CLIP_FRAMES, 8, 8, 3), value, np.uint8) for value in (10, 20, 30)]
    sample = Sample(Video(frames[0]), label=0, redraws=(Video(frames[1]), Video(frames[2])))
    evaluator = registry.build("metrics", "fer@x3d")
    evaluator.size = NETWORKS["x3d"].sizes["tiny"]
    seen = [int(evaluator._draw([sample], epoch, seeds.derive(1, "e"))[0].unique()) for epoch in range(4)]
    assert seen == [10, 20, 30, 10]


def test_no_network_reads_the_frames_of_another_clip_or_their_order_less_than_it_should():
    """Order of frames matters to R3D and VideoMAE from the start, to TimeSformer once it learns."""
    with torch.inference_mode():
        for name in OTHERS:
            model, given = built(name), clips(name)
            alone = torch.cat([model(c[None]) for c in given])
            torch.testing.assert_close(model(given), alone, rtol=1e-4, atol=1e-5)  # a clip does not see its batch
            changed = not torch.allclose(model(given.flip(2)), alone, rtol=1e-4, atol=1e-5)
            assert changed == (name != "timesformer")


# ---- how they start ------------------------------------------------------------------------------------------------

def test_an_untrained_timesformer_is_the_space_only_one():
    """On T equal frames the class token of a frame is that of all, so the library's space-only model is its peer."""
    from transformers import TimesformerConfig, TimesformerForVideoClassification

    model, size = built("timesformer"), NETWORKS["timesformer"].sizes["tiny"]
    assert all(not layer.temporal_dense.weight.any() and not layer.temporal_dense.bias.any()
               for layer in model.timesformer.encoder.layer)
    peer = TimesformerForVideoClassification(TimesformerConfig(
        image_size=size.side_px, patch_size=size.patch_px, num_frames=1, num_labels=3, hidden_size=size.width,
        num_hidden_layers=size.layers, num_attention_heads=size.heads, intermediate_size=4 * size.width,
        attention_type="space_only")).eval()
    missing = peer.load_state_dict(model.state_dict(), strict=False)
    assert not missing.missing_keys and all("tempor" in k or "time_emb" in k for k in missing.unexpected_keys)
    frame = clips("timesformer")[:, :, :1]  # (N, 3, 1, S, S)
    with torch.inference_mode():
        expected = peer(frame.transpose(1, 2)).logits
        torch.testing.assert_close(model(frame.repeat(1, 1, size.frames, 1, 1)), expected, rtol=1e-4, atol=1e-5)


def test_temporal_attention_enters_with_its_projection_only():
    model, given = built("timesformer"), clips("timesformer")
    with torch.inference_mode():
        before = model(given)
        for layer in model.timesformer.encoder.layer:
            layer.temporal_attention.attention.qkv.weight.mul_(3.0)
        torch.testing.assert_close(model(given), before, rtol=0, atol=0)  # multiplied by zero
        nn.init.eye_(model.timesformer.encoder.layer[0].temporal_dense.weight)
        assert not torch.allclose(model(given), before, rtol=1e-4, atol=1e-5)


def test_the_projection_learns_from_the_first_step():
    model = built("timesformer")
    nn.functional.cross_entropy(model(clips("timesformer")), torch.tensor([0, 1])).backward()
    assert all(layer.temporal_dense.weight.grad.abs().max() > 0 for layer in model.timesformer.encoder.layer)


def test_timesformer_reads_the_class_token():
    model, given = built("timesformer"), clips("timesformer")
    with torch.inference_mode():
        tokens = model.timesformer(given.transpose(1, 2)).last_hidden_state
        torch.testing.assert_close(model.classifier(tokens[:, 0]), model(given))
        assert tokens.shape == (2, 1 + 8 * 4 * 4, NETWORKS["timesformer"].sizes["tiny"].width)


def test_videomae_has_tubelets_of_two_fixed_positions_and_mean_pooling():
    model, given = built("videomae"), clips("videomae")
    embeddings = model.videomae.embeddings
    assert tuple(embeddings.patch_embeddings.projection.kernel_size) == (2, 16, 16)
    assert "position_embeddings" not in dict(embeddings.named_parameters()), "fixed, never learnt"
    table = embeddings.position_embeddings[0].double()  # (8 / 2 * 4 * 4, width)
    place, unit = torch.arange(64.0).double()[:, None], torch.arange(0, table.shape[1], 2).double()[None]
    angle = place / 10000 ** (unit / table.shape[1])
    torch.testing.assert_close(table[:, 0::2], angle.sin(), rtol=0, atol=1e-5)
    torch.testing.assert_close(table[:, 1::2], angle.cos(), rtol=0, atol=1e-5)
    with torch.inference_mode():
        tokens = model.videomae(given.transpose(1, 2)).last_hidden_state
        assert tokens.shape[1] == 64
        torch.testing.assert_close(model.classifier(model.fc_norm(tokens.mean(1))), model(given))


def test_the_narrow_r3d_is_torchvisions_at_full_width():
    torch.manual_seed(0)
    ours, theirs = R3D(64, 7).eval(), r3d_18(weights=None, num_classes=7).eval()
    theirs.load_state_dict(ours.state_dict())  # the same names and shapes, none left over
    given = clips("r3d", 1)[:, :, :4, ::2, ::2]
    with torch.inference_mode():
        torch.testing.assert_close(ours(given), theirs(given))


# ---- the published sizes -------------------------------------------------------------------------------------------

def parameters(name: str) -> int:
    with torch.device("meta"):
        model = NETWORKS[name].build(KINETICS, NETWORKS[name].sizes["paper"])
    assert all(p.is_meta for p in model.parameters())
    return sum(p.numel() for p in model.parameters())


def transformer_parameters(d: int, layers: int, block: int) -> int:
    """Layers plus the last norm and the head."""
    return layers * block + 2 * d + KINETICS * (d + 1)


def test_full_size_networks_have_the_published_numbers_of_parameters():
    d, patch = 768, 3 * 16 * 16
    attention, mlp, norm = 4 * d * d + 4 * d, 8 * d * d + 5 * d, 2 * d
    space = attention + mlp + 2 * norm
    divided = space + attention + d * d + d + norm  # temporal attention, its projection and its norm
    places = (14 * 14 + 1) * d + d + 8 * d  # patches and class token, the class token itself, frames
    assert parameters("r3d") == 33_371_472  # torchvision's table of r3d_18
    assert parameters("timesformer") == (patch + 1) * d + places + transformer_parameters(d, 12, divided)
    assert parameters("timesformer") == pytest.approx(121.57e6, rel=1e-3)
    assert parameters("videomae") == (2 * patch + 1) * d + transformer_parameters(d, 12, space - d)  # no key bias
    assert parameters("videomae") == pytest.approx(86.5e6, rel=1e-2)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_full_size_network_without_its_weights_says_so(name, monkeypatch, tmp_path):
    samples = [Sample(Video(np.zeros((CLIP_FRAMES, 8, 8, 3), np.uint8)), label=i) for i in range(2)]
    with pytest.raises(WeightsMissing, match=f"^weights missing: {NETWORKS[name].published}\\."):
        registry.build("metrics", f"fer@{name}").fit(samples, samples, 2, {}, context(profile="paper"))



# ---- they learn ----------------------------------------------------------------------------------------------------

def bars(part: str, each: int) -> list[Sample]:
    """A bright bar that lies (0) or stands (1), moves, and begins anywhere."""
    rng = seeds.derive(2, "bars", part)
    samples = []
    for label in (0, 1):
        for _ in range(each):
            frames = rng.integers(0, 40, (CLIP_FRAMES, SIDE, SIDE, 3))
            start = int(rng.integers(SIDE))
            for t in range(CLIP_FRAMES):
                lines = (start + 2 * t + np.arange(10)) % SIDE
                frames[(t, lines) if label == 0 else (t, slice(None), lines)] += 180
            samples.append(Sample(Video(frames.astype(np.uint8)), label=label))
    return samples


@pytest.mark.parametrize("name", OTHERS)
def test_it_tells_bars_that_lie_from_bars_that_stand(name):
    evaluator = registry.get("metrics", "fer")(network=name, epochs=16 if name == "videomae" else 6)
    evaluator.fit(bars("train", 12), bars("calibration", 4), 2, {}, context())
    test = bars("test", 8)
    right = np.mean([evaluator.predict(s.video).argmax() == s.label for s in test])
    assert right >= 0.9


def state(name: str, seed: int) -> bytes:
    evaluator = registry.get("metrics", "fer")(network=name, epochs=1)
    evaluator.fit(bars("train", 4), bars("calibration", 1), 2, {}, context(seed))
    arrays = [t.numpy().tobytes() for t in evaluator.model.state_dict().values()]
    return b"".join([*arrays, evaluator.predict(bars("test", 1)[0].video).tobytes()])


@pytest.mark.parametrize("name", OTHERS)
def test_the_same_seed_gives_the_same_bytes(name):
    first = state(name, 3)
    torch.manual_seed(999)
    assert state(name, 3) == first and state(name, 4) != first


def test_a_transformer_of_another_size_is_built_as_said():
    torch.manual_seed(0)
    model = timesformer(2, TransformerSize(frames=2, side_px=32, patch_px=8, width=24, layers=2, heads=2))
    assert len(model.timesformer.encoder.layer) == 2
    assert model(torch.zeros(1, 3, 2, 32, 32)).shape == (1, 2)
