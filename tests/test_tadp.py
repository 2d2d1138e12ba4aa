"""TADP as one method: its claim, its fit on small random networks, its road from released values to frames."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import ROOT

from bench import Context, Video, registry, seeds
from bench.data.clips import Row
from bench.errors import ConfigError, DataError, Diverged, UserError
from bench.nets.coders import DIM, ClipCoder, FrameAutoencoder, FrameCoder
from bench.nets.training import use_threads
from bench.privacy.accounting import price
from bench.privacy.bits import SeededBits
from bench.privacy.claim_table import claim_to
from bench.privacy.contract import full_claim
from bench.privacy.mechanism import clip_rows, replay_scales, run_streams
from bench.privacy.simulate import simulator
from bench.registry import Spec
from bench.run.enforced import clip_length
from bench.run.released import Released
from bench.run.stage_encode import padded_clip
from bench.run.stage_enforced import streams_of
from bench.run.stage_release import Item, _clips_of
from methods.tadp import TADP
from methods.tadp.sizes import BRANCHES

PUBLIC = {"canvas_px": 64, "profile": "tiny", "fps": 25.0, "frames": 32}


# ---- claim ---------------------------------------------------------------------------------------------------------

def cost(method: TADP, **more):
    return price(replace(full_claim(method), **more))


GOLDEN = [c for c in json.loads((ROOT / "tests" / "golden" / "golden_tadp.json").read_text()) if c["T"] == 16]


@pytest.mark.parametrize("case", GOLDEN, ids=lambda c: c["name"])
def test_golden_prices_through_its_own_claim(case):
    method = TADP()  # its rows are in units of C
    method.branches = tuple(replace(b, floor=case[f"s_{b.name}"] / case[f"C_{b.name}"]) for b in method.branches)
    found = cost(method, clips=case["K"], delta=case["delta"])
    assert found.rho == pytest.approx(case["rho"], rel=1e-9) and found.mu == pytest.approx(case["mu"], rel=1e-9)
    assert found.epsilon_mironov == pytest.approx(case["eps_mironov"], rel=1e-9)
    assert found.epsilon_cks == pytest.approx(case["eps_cks"], rel=1e-9)
    assert found.epsilon == pytest.approx(case["eps_exact"], rel=1e-9)


@pytest.mark.parametrize("variant, epsilon", [(None, 8), ("eps2", 2), ("eps4", 4), ("eps16", 16), ("a2", 8), ("a6", 8),
                                              ("eps8-rho10", 8), ("eps8-rho50", 8), ("t8", 8), ("t32", 8)])
def test_a_clip_costs_what_the_variant_says(variant, epsilon):
    assert cost(registry.build("methods", Spec("tadp", variant))).epsilon == pytest.approx(epsilon, rel=1e-6)


def test_the_default_divides_three_to_seven_and_counts_all_16_frames():
    method = TADP()
    part = {b.name: (2 / b.floor) ** 2 / 2 * 16 for b in method.branches}
    total = 1.666030598**2 / 2  # mu of an exact epsilon of 8 at 1e-5
    assert part == pytest.approx({"id": 0.3 * total, "expr": 0.7 * total}, rel=1e-6)
    rho10 = {b.name: b.floor for b in TADP(share_id=0.1).branches}
    assert (rho10["id"] / rho10["expr"]) ** 2 == pytest.approx(9)


def test_the_mironov_twin_calibrates_by_mironov():
    found = cost(registry.build("methods", "tadp@mironov"))
    assert found.epsilon_mironov == pytest.approx(8, rel=1e-6) and found.rho == pytest.approx(1.049136201, rel=1e-6)
    assert found.epsilon < 8


@pytest.mark.parametrize("variant", ["a1", "no_noise"])
def test_a_branch_in_clear_prices_to_infinity(variant):
    assert cost(registry.build("methods", Spec("tadp", variant))).epsilon == math.inf


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, 1e-30])
def test_a_claim_that_no_floor_can_meet_is_refused(epsilon):
    with pytest.raises(UserError):
        TADP(epsilon=epsilon)
    with pytest.raises(UserError):
        TADP(share_id=1.0)


def test_an_unknown_variant_lists_them():
    with pytest.raises(ConfigError) as error:
        registry.build("methods", "tadp@a9")
    assert all(name in str(error.value) for name in TADP.variants)


# ---- fit -----------------------------------------------------------------------------------------------------------

@dataclass
class Dev:
    """A development video as `fit` gets it."""

    frames: np.ndarray
    expression: int
    identity: int

    @property
    def video(self) -> Video:
        return Video(self.frames)


def people(count: int, lengths=(32, 40), first: int = 0) -> list[Dev]:
    rng = seeds.derive(5, "tadp", str(count), str(first))
    return [Dev(rng.integers(0, 256, (length, 64, 64, 3), dtype=np.uint8), k % 6, first + k)
            for k in range(count) for length in lengths]


def networks() -> dict:
    """Untrained shared networks with codebooks."""
    torch.manual_seed(11)
    rng = seeds.derive(6, "books")
    made = {}
    for name, coder in (("identity_code_method", FrameCoder(24)), ("expression_code_method", ClipCoder(6))):
        rows = 0.05 * rng.normal(size=(12, DIM)).astype(np.float32)  # as short as features of untrained networks
        made[name] = {**coder.state_dict(), "codebook": torch.from_numpy(rows)}
    made["expression_frame_method"] = FrameCoder(6).state_dict()
    state = FrameAutoencoder().state_dict()
    one = torch.ones(4, 1, 1)
    return {**made, "autoencoder_method": {**state, "latent_mean": 0 * one, "latent_deviation": one}}


def fitted(variant: str | None = None, *, data=None, assets=None, windows: int = 6, **more) -> TADP:
    use_threads()
    method = registry.build("methods", Spec("tadp", variant)) if not more else TADP(**more)
    method.size = replace(method.size, epochs=1, windows=windows, batch=2, reading=1, reading_batch=8)
    data = data or SimpleNamespace(train=people(4), calibration=people(5, (32, 40), 50))
    context = Context(rng=lambda *n: seeds.derive(7, *n), torch_seed=lambda *n: seeds.derive_torch(7, *n),
                      report=lambda text: None, simulate=simulator(method, 3))
    method.fit(data, assets or networks(), context)
    return method


def loaded(method: TADP, variant: str | None = None) -> TADP:
    """The method from its state. A few steps of training say little, so scales and pictures are made to speak up."""
    again, state = registry.build("methods", Spec("tadp", variant)), {k: np.array(v) for k, v in method.state().items()}
    state["trained.context.project.weight"] *= 300
    for name in (k for k in state if k.startswith("trained.scale.heads") and k.endswith("2.weight")):
        state[name] += np.linspace(-0.5, 0.5, state[name].size, dtype=np.float32)
    again.load(state)
    return again


@pytest.fixture(scope="module")
def default() -> TADP:
    return fitted()


def clip_of(seed: int) -> np.ndarray:
    return seeds.derive(seed, "clip").integers(0, 256, (16, 64, 64, 3), dtype=np.uint8)


def released(method: TADP, clips: list[np.ndarray], seed: int = 1):
    """A release of these clips by the trusted loop; its planner and the transcript."""
    raw = [method.encode(c) for c in clips]
    values = {b.name: np.stack([clip_rows(r[b.name], b, 16)[0] for r in raw]) for b in method.branches}

    def planner(t, past, memory):
        return method.plan(t, past, memory, PUBLIC)

    return planner, run_streams(values, method.branches, planner, SeededBits(seeds.derive(seed, "noise")))


def per_clip(transcript) -> list[dict]:
    count = len(next(iter(transcript.released.values())))
    return [{n: v[k] for n, v in transcript.released.items()} for k in range(count)]


def test_two_fits_are_the_same_bytes_and_go_through_their_state(default):
    again = fitted()
    assert set(again.state()) == set(default.state())
    for name, value in default.state().items():
        np.testing.assert_array_equal(value, again.state()[name], err_msg=name)
    _, transcript = released(loaded(default), [clip_of(1), clip_of(2)])
    one, other = (loaded(default).render(per_clip(transcript), PUBLIC, "assembled") for _ in range(2))
    assert one.shape == (32, 64, 64, 3) and one.dtype == np.uint8 and one.tobytes() == other.tobytes()


def test_another_raw_clip_under_the_same_transcript_gives_the_same_bytes(default):
    method = loaded(default)
    _, transcript = released(method, [clip_of(1), clip_of(2)])
    first = method.render(per_clip(transcript), PUBLIC, "assembled")
    for other in (clip_of(3), np.zeros((16, 64, 64, 3), np.uint8)):
        method.encode(other)
        assert method.render(per_clip(transcript), PUBLIC, "assembled").tobytes() == first.tobytes()
    _, second = released(method, [clip_of(1), clip_of(2)], seed=2)
    assert method.render(per_clip(second), PUBLIC, "assembled").tobytes() != first.tobytes()


def test_scales_are_replayed_bit_by_bit_and_never_under_the_floor(default):
    method = loaded(default)
    planner, transcript = released(method, [clip_of(k) for k in range(8)])
    replayed = replay_scales(transcript.released, method.branches, planner)
    for branch in method.branches:
        scales = transcript.scales[branch.name]
        np.testing.assert_array_equal(scales, replayed[branch.name])
        assert (scales > branch.floor).all() and not transcript.raised
        assert np.ptp(scales[:, 0]) == 0 and np.ptp(scales[:, 1:]) > 0, "the first from h_0, later ones from history"


def test_simulated_and_released_scales_agree(default):
    method = loaded(default)
    _, transcript = released(method, [clip_of(1), clip_of(2)])
    past = {b: v[:, 0] for b, v in transcript.released.items()}
    first = method.plan(0, {}, {}, PUBLIC)
    plan = method.plan(1, past, first.memory, PUBLIC)
    method._fitting = True
    tensors = method.plan(1, {k: torch.tensor(v, dtype=torch.float32) for k, v in past.items()},
                          method.plan(0, {}, {}, PUBLIC).memory, PUBLIC)
    for branch in BRANCHES:
        np.testing.assert_allclose(plan.scale[branch], tensors.scale[branch].detach(), rtol=1e-6)


def test_memory_starts_anew_for_an_isolated_clip(default):
    method = loaded(default)
    _, transcript = released(method, [clip_of(1), clip_of(2)])
    clips = per_clip(transcript)
    whole = method.render(clips, PUBLIC, "assembled")
    np.testing.assert_allclose(method.render(clips[:1], PUBLIC, "isolated"), whole[:16], atol=1)
    assert (method.render(clips[1:], PUBLIC, "isolated") != whole[16:]).any()
    no_memory = loaded(fitted("a8"), "a8")
    whole = no_memory.render(clips, PUBLIC, "assembled")
    np.testing.assert_allclose(no_memory.render(clips[1:], PUBLIC, "isolated"), whole[16:], atol=1)


def test_variants_differ_in_state_and_three_in_parameters(default):
    size = {v: sum(a.size for k, a in fitted(v, windows=2).state().items() if k.startswith(("trained.", "codebook:")))
            for v in ("a2", "a3", "a5", "a6", "a7", "a8")}
    full = sum(a.size for k, a in default.state().items() if k.startswith(("trained.", "codebook:")))
    assert size["a2"] == size["a5"] == full
    assert size["a3"] == full - 2 * 12 * DIM and size["a7"] < full and size["a8"] < full and size["a6"] < full
    assert not any("scale" in k for k in fitted("a6", windows=2).state())
    assert loaded(fitted("a6", windows=2), "a6").plan(0, {}, {}, PUBLIC).scale == {}


def test_training_reaches_every_trained_part_and_no_frozen_one(default):
    state, start = default.state(), networks()
    for asset, prefix in (("identity_code_method", "encoder.id."), ("expression_code_method", "encoder.expr.")):
        for name, value in start[asset].items():
            if name != "codebook":
                np.testing.assert_array_equal(state[prefix + name], value, err_msg=name)
    for name, value in start["autoencoder_method"].items():
        if name.startswith("decoder."):
            np.testing.assert_array_equal(state[name], value)
    grads = {k for k, p in default._modules().named_parameters() if p.grad is not None and p.grad.any()}
    for part in ("scale.gru", "scale.project", "scale.heads.id.2", "scale.heads.expr.2", "context.fuse", "context.clip",
                 "context.memory.gru", "context.memory.pool", "context.mix", "context.project"):
        assert any(k.startswith(part) for k in grads), part


def test_the_threshold_is_the_95th_percentile_of_unpadded_calibration_frames(default):
    items = people(5, (32, 40), 50)
    method, rows = loaded(default), []
    for frames in (item.frames for item in items):
        padded = np.concatenate([frames, np.repeat(frames[-1:], -len(frames) % 16, axis=0)])  # as a release pads
        clips = [method.encode(padded[k:k + 16])["expr"] for k in range(0, len(padded), 16)]
        rows.append(np.concatenate(clips)[:len(frames)] * default.clip["expr"])
    norms = np.linalg.norm(np.concatenate(rows), axis=1)
    assert default.clip["expr"] == pytest.approx(np.percentile(norms, 95), rel=1e-5)
    assert 0.03 < (norms > default.clip["expr"]).mean() < 0.07


def test_a_video_shorter_than_a_clip_is_padded(default):
    data = SimpleNamespace(train=people(3, (5, 20)), calibration=people(9, (12, 20), 50))
    method = loaded(fitted(data=data, windows=3))
    _, transcript = released(method, [np.repeat(clip_of(1)[:5], [1, 1, 1, 1, 12], axis=0)])
    assert method.render(per_clip(transcript), {**PUBLIC, "frames": 5}, "isolated").shape == (16, 64, 64, 3)


@pytest.mark.parametrize("frames", [8, 32])
def test_clips_of_another_length_cost_the_same_and_train(frames):
    claim = full_claim(TADP(frames=frames))
    assert price(claim).epsilon == pytest.approx(8, rel=1e-6)
    assert claim.horizon == f"1 clip of {frames} frames" != full_claim(TADP()).horizon, "T is in the key of a cell"
    data = SimpleNamespace(train=people(3), calibration=people(20, (20,), 50))
    method = fitted(frames=frames, windows=2, data=data)
    rows = {b: np.zeros((frames, DIM)) for b in BRANCHES}
    assert method.render([rows, rows], PUBLIC, "assembled").shape == (2 * frames, 64, 64, 3)


@pytest.mark.parametrize("frames, expected", [(8, 5), (16, 3), (32, 2)])
def test_the_harness_cuts_clips_of_the_claimed_length(frames, expected):
    method = TADP(frames=frames)
    facts = {"full_claim": claim_to(full_claim(method))}
    assert clip_length(facts) == frames and clip_length(None) == 16
    row = Row("v", "p", "happy", "test", "probe", 37, 25.0, "0.mkv", "", 0, "{}", "{}")
    video = np.arange(37, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 3), np.uint8)
    clips = [padded_clip(video, k, frames) for k in range(expected)]
    assert all(len(c) == frames for c in clips) and clips[-1][-1, 0, 0, 0] == 36
    np.testing.assert_array_equal(np.concatenate(clips)[:37], video)
    config = {"decoding": "isolated", "facts": facts}
    items = [Item(row, 0, clip, "x") for clip in (-1, *_clips_of(row, config))]
    streams = streams_of(items, [{"video": "v", "clip": k} for k in range(expected)], frames)
    assert [list(streams.atom[list(streams.of(i))]) for i in range(len(items))] == \
        [list(range(expected)), *([k] for k in range(expected))]
    assert Released(Path(), 37, 0, -1, "v", "p", "happy", "test", "probe", clip_frames=frames).clips == expected


def test_what_lies_between_is_shown_from_released_values_only(default):
    method = loaded(default)
    _, transcript = released(method, [clip_of(1), clip_of(2)])
    found = method.inspect(per_clip(transcript), PUBLIC)
    assert set(found) == set(method.inspects) and method.probed == "expr"
    assert {f"codebook:{b}" for b in BRANCHES} <= set(method.state())
    assert [a.shape for a in found["quantized"]] == [(16, DIM)] * 2
    assert [a.shape for a in found["context"]] == [(16, method.size.width)] * 2
    for branch in BRANCHES:
        assert [a.shape for a in found[f"assignment:{branch}"]] == [(16, 12)] * 2
        np.testing.assert_allclose(np.stack(found[f"assignment:{branch}"]).sum(-1), 1, rtol=1e-5)
    assert "assignment:id" not in loaded(fitted("a3", windows=2), "a3").inspect(per_clip(transcript), PUBLIC)


# ---- wrong input ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("calibration", [people(1, (32,) * 30), people(4, (32,)), []])
def test_too_few_calibration_people_are_refused(calibration):
    if not calibration:
        calibration = people(1, (16,))
    with pytest.raises(DataError, match="calibration people"):
        fitted(data=SimpleNamespace(train=people(2), calibration=calibration))


@pytest.mark.parametrize("fill", [0.0, math.nan])
def test_features_without_a_norm_are_refused(fill):
    assets = networks()
    for name in ("project.weight", "project.bias"):
        assets["expression_code_method"][name] = torch.full_like(assets["expression_code_method"][name], fill)
    with pytest.raises(DataError, match="'expr' have norm"):
        fitted(assets=assets)


def test_a_frame_that_encodes_to_nan_becomes_a_fixed_vector(default):
    state = {k: np.array(v) for k, v in default.state().items()}
    method = TADP()
    method.load(state)
    method._state["encoder.expr.project.bias"] = np.full(DIM, np.nan, np.float32)
    rows, bad = clip_rows(method.encode(clip_of(1))["expr"], method.branches[1], 16)
    assert bad and not rows.any()


def test_another_codebook_or_other_weights_are_refused(default):
    for name in ("codebook:expr", "decoder.net.0.weight", "encoder.id.project.weight"):
        state = {k: np.array(v) for k, v in default.state().items()}
        state[name] = state[name] * 1.001
        with pytest.raises(DataError, match="SHA-256"):
            TADP().load(state)


def test_a_loss_that_is_not_finite_is_divergence():
    assets = networks()
    assets["autoencoder_method"]["latent_mean"] = torch.full((4, 1, 1), math.nan)
    with pytest.raises(Diverged, match="epoch 1"):
        fitted(assets=assets)


def test_the_paper_size_asks_for_published_weights():
    with pytest.raises(UserError, match="weights missing"):
        fitted(size="paper")
