"""The clip transformer, its published checkpoints, and the attackers cplr, vplr and redraw."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from bench import Context, Diverged, Sample, UserError, Video, registry, seeds
from bench.nets import clip_attackers
from bench.nets.clip_vit import SIZES, Block, ClipViT, ViTSize, as_vit_input, clips_of, sine_positions
from bench.nets.discriminant import fisher_head
from bench.nets.image import frame_classifier
from bench.nets.published import load_published
from bench.nets.training import use_threads

SMALL = ViTSize(16, 28, 14, width=32, depth=2, heads=4, hidden=48, pool_heads=2, embedding=24)


@pytest.fixture(autouse=True)
def one_thread():
    use_threads()
    torch.manual_seed(seeds.derive_torch(1, "clip-attack"))


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


def awake(size: ViTSize, classes: int = 5) -> ClipViT:
    """A network whose every part matters, unlike at the start; the same one each time."""
    torch.manual_seed(seeds.derive_torch(1, "awake"))
    model = ClipViT(size, classes).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.add_(noise(*value.shape) * (0.3 if name.endswith("gamma") else 0.1))
    return model


# ---- the network ---------------------------------------------------------------------------------------------------

def published_shapes(size: ViTSize, classes: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of an InternVideo2 encoder, as its public definition gives them."""
    c, hidden, out = size.width, size.hidden, size.embedding
    block = {"norm1.weight": (c,), "attn.qkv.weight": (3 * c, c), "attn.q_norm.weight": (c,),
             "attn.k_norm.weight": (c,), "attn.proj.weight": (c, c), "attn.proj.bias": (c,), "ls1.gamma": (c,),
             "norm2.weight": (c,), "mlp.fc1.weight": (hidden, c), "mlp.fc1.bias": (hidden,),
             "mlp.fc2.weight": (c, hidden), "mlp.fc2.bias": (c,), "ls2.gamma": (c,)}
    pool = {f"norm1_{x}.{y}": (c,) for x in "qkv" for y in ("weight", "bias")}
    pool |= {f"cross_attn.{x}.weight": (c, c) for x in "qkv"} | {f"cross_attn.{x}_bias": (c,) for x in "qkv"}
    pool |= {"cross_attn.proj.weight": (out, c), "cross_attn.proj.bias": (out,)}
    return {"cls_token": (1, 1, c), "pos_embed": (1, 1 + size.frames * size.grid**2, c),
            "patch_embed.proj.weight": (c, 3, 1, size.patch_px, size.patch_px), "patch_embed.proj.bias": (c,),
            **{f"blocks.{i}.{k}": v for i in range(size.depth) for k, v in block.items()},
            **{f"clip_projector.{k}": v for k, v in pool.items()},
            "fc_norm.weight": (out,), "fc_norm.bias": (out,), "head.weight": (classes, out), "head.bias": (classes,)}


@pytest.mark.parametrize("name, million", [("small", 23.8), ("base", 90.2), ("1B", 1021)])
def test_the_full_sizes_have_the_published_names_shapes_and_parameter_counts(name, million):
    assert (SIZES[name].frames, SIZES[name].side_px, SIZES[name].patch_px) == (16, 224, 14)
    with torch.device("meta"):
        model = ClipViT(replace(SIZES[name], frames=8), 1000)  # as published: 8 frames
    assert {k: tuple(v.shape) for k, v in model.state_dict().items()} == published_shapes(model.size, 1000)
    count = sum(p.numel() for p in model.parameters()) / 1e6
    assert count == pytest.approx(million, abs=0.06 if million < 1000 else 1)


def test_positions_are_sines_and_cosines_of_frame_column_and_row():
    width, frames, grid = 32, 3, 2
    found = sine_positions(width, frames, grid).reshape(frames, grid, grid, width).numpy()
    for t, y, x in np.ndindex(frames, grid, grid):
        row = []
        for position, channels in ((t, 8), (x, 12), (y, 12)):
            angles = [position / 10000 ** (i / (channels / 2)) for i in range(channels // 2)]
            row += [np.sin(a) for a in angles] + [np.cos(a) for a in angles]
        np.testing.assert_allclose(found[t, y, x], row, atol=1e-6)
    assert not ClipViT(SMALL, 2).pos_embed[0, 0].any(), "the class token stands nowhere"


def test_attention_is_the_softmax_formula_with_normalised_queries_and_keys():
    attention = awake(SMALL).blocks[0].attn.double()
    tokens = noise(2, 7, 32).double()
    query, key, value = (tokens @ w.T for w in attention.qkv.weight.split(32))

    def normed(x, weight):
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight

    query, key = normed(query, attention.q_norm.weight), normed(key, attention.k_norm.weight)
    parts = [(query[..., s] @ key[..., s].mT / 8**0.5).softmax(-1) @ value[..., s]
             for s in (slice(h * 8, h * 8 + 8) for h in range(4))]
    want = torch.cat(parts, -1) @ attention.proj.weight.T + attention.proj.bias
    torch.testing.assert_close(attention(tokens), want, rtol=1e-9, atol=1e-9)


def test_every_patch_of_every_frame_attends_to_every_other():
    block = awake(SMALL).blocks[0]
    tokens = noise(1, 2 * 4, 32).requires_grad_()  # two frames of 2 x 2 patches
    for i in range(8):
        gradient, = torch.autograd.grad(block(tokens)[0, i].sum(), tokens)
        assert (gradient[0].abs().sum(-1) > 0).all()


def test_patches_may_change_place_and_time_when_positions_are_taken_away():
    """True of joint attention with attention pooling; not of one that reads space and time in turn."""
    model, clips = awake(SMALL), noise(1, 3, 16, 28, 28)
    moved = clips.clone()
    moved[:, :, 2, :14, :14], moved[:, :, 9, 14:, :14] = clips[:, :, 9, 14:, :14], clips[:, :, 2, :14, :14]
    assert (model(moved) - model(clips)).abs().max() > 1e-4
    torch.nn.init.zeros_(model.pos_embed)
    torch.testing.assert_close(model(moved), model(clips), rtol=1e-4, atol=1e-5)


def test_a_token_is_one_patch_of_one_frame():
    embed, clips = ClipViT(SMALL, 2).patch_embed, noise(1, 3, 16, 28, 28)
    changed = clips.clone()
    changed[:, :, 5, 14:, :14] += 1
    different = (embed(changed) - embed(clips)).abs().sum(-1)[0] > 0
    assert different.nonzero().flatten().tolist() == [5 * 4 + 2]


def test_a_block_adds_almost_nothing_at_the_published_start():
    block, tokens = Block(SMALL), noise(1, 9, 32)
    assert (block(tokens) - tokens).abs().max() < 1e-3
    torch.nn.init.zeros_(block.ls1.gamma)
    torch.nn.init.zeros_(block.ls2.gamma)
    torch.testing.assert_close(block(tokens), tokens, rtol=0, atol=0)


# ---- input ---------------------------------------------------------------------------------------------------------

def numbered(frames: int, side: int = 8) -> Video:
    """Frame t is grey of value t."""
    return Video(np.broadcast_to(np.arange(frames, dtype=np.uint8)[:, None, None, None], (frames, side, side, 3)))


@pytest.mark.parametrize("frames, count, want", [
    (16, 16, [list(range(16))]), (16, 8, [[1, 3, 5, 7, 9, 11, 13, 15]]), (5, 16, [[0, 1, 2, 3] + [4] * 12]),
    (1, 8, [[0] * 8]), (20, 8, [[1, 3, 5, 7, 9, 11, 13, 15], [17] + [19] * 7]), (33, 4, [[2, 6, 10, 14],
                                                                                       [18, 22, 26, 30], [32] * 4])])
def test_a_video_is_cut_into_clips_and_a_short_one_filled_with_its_last_frame(frames, count, want):
    found = clips_of(numbered(frames), count)
    assert found.shape == (len(want), count, 8, 8, 3) and found[..., 0, 0, 0].tolist() == want


def test_input_has_standard_colours_and_the_side_that_the_network_reads():
    grey = as_vit_input(torch.full((2, 4, 32, 32, 3), 255, dtype=torch.uint8), 64)
    assert grey.shape == (2, 3, 4, 64, 64)
    want = (1 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    torch.testing.assert_close(grey[1, :, 2, 5, 7], want)
    same = noise(1, 2, 64, 64, 3).mul(40).add(128).byte()
    back = as_vit_input(same, 64)[0, 0, 1] * 0.229 + 0.485
    torch.testing.assert_close(back * 255, same[0, 1, ..., 0].float(), rtol=1e-4, atol=1e-3)


# ---- published checkpoints -----------------------------------------------------------------------------------------

def checkpoint(tmp_path, frames=8, *, name="weights.pth", drop=(), wrap=lambda s: s, half=False, change=None):
    """A checkpoint as published ones are built, of a small shape: (path, digest, its tensors)."""
    state = awake(replace(SMALL, frames=frames), 400).state_dict()
    state = {k: v.half() if half else v for k, v in state.items() if k not in drop} | (change or {})
    path = tmp_path / name
    save_file(state, path) if name.endswith(".safetensors") else torch.save(wrap(state), path)
    return path, hashlib.sha256(path.read_bytes()).hexdigest(), state


def test_a_checkpoint_of_16_frames_loads_whole_but_for_the_classifier(tmp_path):
    path, digest, state = checkpoint(tmp_path, 16, name="weights.safetensors")
    model = ClipViT(SMALL, 3)
    before = model.head.weight.clone()
    assert load_published(path, digest.upper(), model) == ["head.bias", "head.weight"]
    for name, value in model.state_dict().items():
        if not name.startswith("head"):
            torch.testing.assert_close(value, state[name], rtol=0, atol=0)
    torch.testing.assert_close(model.head.weight, before, rtol=0, atol=0)


def test_eight_frames_become_sixteen_by_straight_lines(tmp_path):
    path, digest, state = checkpoint(tmp_path)
    model = ClipViT(SMALL, 3)
    load_published(path, digest, model)
    old, new = state["pos_embed"][0, 1:].reshape(8, 4, 32), model.pos_embed[0, 1:].reshape(16, 4, 32)
    before, after = torch.cat([old[:1], old[:-1]]), torch.cat([old[1:], old[-1:]])
    torch.testing.assert_close(new[0::2], 0.75 * old + 0.25 * before)  # frame centres lie a quarter apart
    torch.testing.assert_close(new[1::2], 0.75 * old + 0.25 * after)
    torch.testing.assert_close(model.pos_embed[:, 0], state["pos_embed"][:, 0], rtol=0, atol=0)


def test_the_wrapping_of_training_scripts_and_teachers_decoders_do_not_matter(tmp_path):
    plain, digest, _ = checkpoint(tmp_path, half=True, drop=("fc_norm.weight", "fc_norm.bias"))
    model, other = ClipViT(SMALL, 3), ClipViT(SMALL, 3)
    assert "fc_norm.bias" in load_published(plain, digest, model)
    path, digest, _ = checkpoint(tmp_path, name="other.pth", half=True, drop=("fc_norm.weight", "fc_norm.bias"),
                                 wrap=lambda s: {"module": {f"encoder.{k}": v for k, v in s.items()}, "epoch": 3},
                                 change={"clip_decoder.0.head.weight": torch.zeros(2, 2)})
    load_published(path, digest, other)
    for name, value in model.state_dict().items():
        if not name.startswith("head"):
            torch.testing.assert_close(value, other.state_dict()[name], rtol=0, atol=0)


@pytest.mark.parametrize("drop, change, message", [
    (("blocks.1.ls2.gamma",), {}, "blocks.1.ls2.gamma is missing"),
    (("pos_embed",), {}, "pos_embed is missing"),
    ((), {"cls_token": torch.zeros(1, 1, 31)}, r"cls_token is \(1, 1, 31\), not \(1, 1, 32\)"),
    ((), {"pos_embed": torch.zeros(1, 8, 32)}, "8 positions"),
    ((), {"blocks.0.mlp.fc1.weight": torch.zeros(8, 32)}, "fc1.weight is"),
    (tuple(ClipViT(SMALL, 1).state_dict()), {}, "; and 39 more")])
def test_a_checkpoint_with_gaps_is_refused_and_says_which(tmp_path, drop, change, message):
    path, digest, _ = checkpoint(tmp_path, drop=drop, change=change)
    with pytest.raises(UserError, match=message):
        load_published(path, digest, ClipViT(SMALL, 3))


def test_other_bytes_no_file_no_name_and_more_than_tensors_are_refused(tmp_path):
    path, digest, _ = checkpoint(tmp_path)
    for given, sha, message in ((path, "0" * 64, "have SHA-256"), (tmp_path / "none.pth", digest, "no file"),
                                ("", "", "weights missing"), (path, "", "weights missing")):
        with pytest.raises(UserError, match=message):
            load_published(given, sha, ClipViT(SMALL, 3))
    for name, content in (("a.pth", {"model": {"x": registry.Spec("x")}}), ("b.pth", b"no pickle"),
                          ("c.safetensors", b"no header at all")):
        if isinstance(content, bytes):
            (tmp_path / name).write_bytes(content)
        else:
            torch.save(content, tmp_path / name)
        with pytest.raises(UserError, match="cannot be read"):
            load_published(tmp_path / name, hashlib.sha256((tmp_path / name).read_bytes()).hexdigest(),
                           ClipViT(SMALL, 3))


# ---- the attackers -------------------------------------------------------------------------------------------------

PEOPLE = 3


def context(profile="tiny", seed=9) -> Context:
    return Context(rng=lambda *names: seeds.derive(seed, *names), report=lambda text: None, profile=profile,
                   torch_seed=lambda *names: seeds.derive_torch(seed, *names))


def start() -> dict[str, dict[str, torch.Tensor]]:
    return {"clip_identity_eval": ClipViT(SIZES["tiny"], 24).state_dict(),
            "identity_eval": frame_classifier("resnet10t", 24).state_dict()}


def noisy(frames: int, *names) -> Video:
    return Video(seeds.derive(1, *names).integers(0, 256, (frames, 64, 64, 3)).astype(np.uint8))


def enrolment(draws=1) -> list[Sample]:
    return [Sample(noisy(16, p, 0), person=p, redraws=tuple(noisy(16, p, d) for d in range(1, draws)))
            for p in range(PEOPLE)]


def fitted(name: str, seed=9, **settings):
    attack = registry.get("attacks", name)(**settings)
    attack.fit(enrolment(), PEOPLE, start(), context(seed=seed))
    return attack


def test_each_epoch_reads_another_draw(monkeypatch):
    seen = []
    monkeypatch.setattr(clip_attackers, "train_classifier",
                        lambda model, data, recipe, seed, report: seen.extend(data(e) for e in range(3)))
    samples = enrolment(draws=2)
    registry.get("attacks", "cplr")(epochs=3).fit(samples, PEOPLE, start(), context())
    for epoch, (clips, people) in enumerate(seen):
        want = torch.cat([clips_of(s.draw(epoch), SIZES["tiny"].frames) for s in samples])
        assert torch.equal(clips, want) and people.tolist() == [0, 1, 2]
    assert torch.equal(seen[0][0], seen[2][0]) and not torch.equal(seen[0][0], seen[1][0])


def test_a_long_sample_gives_all_its_clips():
    attack = registry.get("attacks", "cplr")()
    attack.model = ClipViT(SIZES["tiny"], PEOPLE)
    clips, people = attack._draw([Sample(noisy(40, "a"), person=2), Sample(noisy(9, "b"), person=0)], 0)
    assert len(clips) == 4 and people.tolist() == [2, 2, 2, 0]


@pytest.fixture
def untrained(monkeypatch):
    """Attackers as they start."""
    monkeypatch.setattr(clip_attackers, "train_classifier", lambda *args, **more: None)


def test_cplr_starts_from_the_asset(untrained):
    begun = start()
    attack = registry.get("attacks", "cplr")()
    attack.fit(enrolment(), PEOPLE, begun, context())
    for name, value in begun["clip_identity_eval"].items():
        if not name.startswith("head"):
            np.testing.assert_array_equal(attack.state()[name], value)


def test_the_first_head_is_the_discriminant_of_peers():
    peer = LinearDiscriminantAnalysis(solver="lsqr")
    targets = torch.arange(4).repeat(30)
    features = noise(120, 6) @ noise(6, 6) + 2 * noise(4, 6)[targets]
    weight, bias = fisher_head(features, targets, 4, ridge=0, floor=0)
    found = (features @ weight.T + bias).softmax(1).numpy()
    np.testing.assert_allclose(found, peer.fit(features.numpy(), targets.numpy()).predict_proba(features.numpy()),
                               atol=2e-5)


def test_features_that_tell_nobody_apart_give_no_discriminant():
    same = noise(1, 6).repeat(12, 1) + 1e-6 * noise(12, 6)
    weight, bias = fisher_head(same, torch.arange(3).repeat(4), 3)
    assert weight.abs().max() < 0.01 and bias.abs().max() < 0.01


def test_before_training_the_discriminant_already_names_the_enrolled(untrained):
    attack = fitted("cplr")
    scores = np.concatenate([attack.score(sample.video) for sample in enrolment()])
    assert scores.argmax(1).tolist() == [0, 1, 2]


def test_a_clip_and_its_mirror_are_read_alike(untrained):
    attack, video = fitted("cplr"), noisy(16, "probe")
    np.testing.assert_allclose(attack.score(video), attack.score(Video(video.frames[:, :, ::-1].copy())), rtol=1e-5)
    np.testing.assert_allclose(np.exp(attack.score(video)).sum(), 1, rtol=1e-5)


def test_the_same_seed_gives_the_same_bytes():
    begun = start()
    states = []
    for seed in (1, 1, 2):
        attack = registry.get("attacks", "cplr")(epochs=1)
        attack.fit(enrolment(), PEOPLE, begun, context(seed=seed))
        states.append(attack.state())
    one, two, other = states
    assert all(one[k].tobytes() == two[k].tobytes() for k in one)
    assert any(one[k].tobytes() != other[k].tobytes() for k in one)


def test_vplr_adds_the_clips_of_the_fitted_cplr():
    cplr, vplr = fitted("cplr", epochs=1), registry.get("attacks", "vplr")()
    vplr.load(cplr.state(), PEOPLE, context())
    video = noisy(40, "probe")
    clips = [cplr.score(Video(video.frames[k: k + 16])) for k in (0, 16, 32)]
    assert [c.shape for c in clips] == [(1, PEOPLE)] * 3
    assert vplr.score(video).shape == (1, PEOPLE)
    np.testing.assert_allclose(vplr.score(video), sum(clips), rtol=1e-5)
    np.testing.assert_array_equal(vplr.score(Video(video.frames[:16])), clips[0])
    np.testing.assert_allclose(np.exp(clips[1]).sum(), 1, rtol=1e-5)


def test_redraw_of_one_release_is_plr_and_of_more_their_mean():
    plr, redraw = fitted("plr", epochs=1), registry.get("attacks", "redraw")()
    redraw.load(plr.state(), PEOPLE, context())
    draws = [noisy(16, "draw", d) for d in range(3)]
    np.testing.assert_array_equal(redraw.score_draws(draws[:1]), plr.score(draws[0]))
    found = redraw.score_draws(draws)
    assert found.shape == (8, PEOPLE)
    np.testing.assert_allclose(found, sum(plr.score(d) for d in draws) / 3, rtol=1e-5)
    np.testing.assert_allclose(redraw.score_draws(draws[::-1]), found, rtol=1e-5)


def test_grey_clips_tell_nobody_apart():
    grey = Video(np.full((16, 64, 64, 3), 127, np.uint8))
    attack = registry.get("attacks", "cplr")(epochs=2)
    attack.fit([Sample(grey, person=p) for p in range(PEOPLE) for _ in range(2)], PEOPLE, start(), context())
    scores = attack.score(grey)
    assert np.ptp(scores) < 1.0, "no person is much likelier than another"
    np.testing.assert_array_equal(scores, attack.score(Video(grey.frames[:7])))


def test_a_diverging_attacker_says_so():
    broken = start()
    broken["clip_identity_eval"]["cls_token"] *= float("nan")
    with pytest.raises(Diverged, match="nan"):
        registry.get("attacks", "cplr")(epochs=1).fit(enrolment(), PEOPLE, broken, context())


def test_the_full_size_needs_published_weights_and_an_unknown_one_is_refused(tmp_path):
    cls = registry.get("attacks", "cplr")
    with pytest.raises(UserError, match="weights missing: internvideo2"):
        cls(size="small").fit(enrolment(), PEOPLE, {}, context("paper"))
    with pytest.raises(UserError, match="no clip transformer"):
        cls(size="6B")


def test_the_full_size_starts_from_a_checkpoint_and_goes_through_its_state(tmp_path, monkeypatch, untrained):
    monkeypatch.setitem(SIZES, "small", SMALL)
    path, digest, state = checkpoint(tmp_path)
    attack = registry.get("attacks", "cplr")(size="small", weights=str(path), sha256=digest)
    attack.fit(enrolment(), PEOPLE, {}, context("paper"))
    np.testing.assert_array_equal(attack.state()["blocks.1.mlp.fc2.weight"], state["blocks.1.mlp.fc2.weight"])
    again = registry.get("attacks", "vplr")()
    again.load(attack.state(), PEOPLE, context("paper"))
    assert again.model.size == SMALL
    np.testing.assert_array_equal(again.score(noisy(16, "x")), attack.score(noisy(16, "x")))
