"""Diagnostics of the vault: closed forms on made values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from bench import Anatomy, Branch, Noise, Opened, PluginError, registry, seeds
from bench.run.anatomy import Pool, anatomy_of, keys_of

T, DIM = 16, 512


def branch(law="gaussian", scale=2.0, drawn=1.0, *, signal=None, norm=0.5, floor=None, clip=1.0) -> Opened:
    """Noise of `drawn` times the stated scale."""
    rng = seeds.derive(5, "diagnostics", str(law), str(scale), str(drawn))
    if law == "discrete_laplace":
        q = math.exp(-1 / (scale * drawn))
        residual = (rng.geometric(1 - q, (T, DIM)) - rng.geometric(1 - q, (T, DIM))).astype(float)
    else:
        residual = rng.normal(0, scale * drawn, (T, DIM))
    signal = np.full((T, DIM), 0.5 / math.sqrt(DIM)) if signal is None else signal
    return Opened(signal, residual, Noise(law, np.full(T, scale)), scale if floor is None else floor,
                  np.full(T, norm), clip)


def measured(name, **branches):
    return registry.build("attacks", name).measure(branches)


@pytest.mark.parametrize("law, scale", [("gaussian", 2.0), ("gaussian", 40.0), ("discrete_laplace", 3.0),
                                        ("discrete_laplace", 600.0)])
def test_right_noise_has_ratio_one_and_noise_too_small_shows(law, scale):
    spread = 4 * math.sqrt((2 if law == "gaussian" else 5) / (T * DIM))  # four standard errors of a mean of squares
    assert measured("noise_scale", a=branch(law, scale))["noise_ratio"] == pytest.approx(1, abs=spread)
    assert measured("noise_scale", a=branch(law, scale, 1 / math.sqrt(2)))["noise_ratio"] == pytest.approx(
        0.5, abs=spread)


@pytest.mark.parametrize("scale", [0.5, 3.0, 100.0])
def test_the_variance_of_discrete_laplace_noise_is_that_of_scipy(scale):
    residual = np.full((T, DIM), math.sqrt(stats.dlaplace(1 / scale).var()))
    given = Opened(residual, residual, Noise("discrete_laplace", np.full(T, scale)), scale, np.ones(T), 1.0)
    assert measured("noise_scale", a=given)["noise_ratio"] == pytest.approx(1, rel=1e-9)


def test_a_label_or_a_branch_in_clear_has_no_noise_to_compare():
    for law in ("randomized_response", None):
        assert math.isnan(measured("noise_scale", a=branch(law))["noise_ratio"])


def test_scales_clipping_and_noise_against_signal():
    found = measured("scales", a=branch(scale=6.0, floor=2.0, norm=0.5), b=branch(scale=2.0, floor=2.0, norm=1.5))
    assert found["scale_ratio"] == pytest.approx((3 + 1) / 2) and found["clipping_rate"] == 0.5
    alone = measured("scales", a=branch(scale=2.0))
    assert alone["noise_to_signal"] == pytest.approx(2 * math.sqrt(DIM) / 0.5, rel=0.02)  # |n| is near s sqrt(d)


def test_frames_without_a_signal_and_failed_encodings_are_left_out():
    signal = np.full((T, DIM), 1 / math.sqrt(DIM))
    signal[3:] = 0
    partly = measured("scales", a=branch(scale=2.0, signal=signal))["noise_to_signal"]
    assert partly == pytest.approx(2 * math.sqrt(DIM), rel=0.1)
    empty = measured("scales", a=branch(signal=np.zeros((T, DIM)), norm=math.nan))
    assert math.isnan(empty["noise_to_signal"]) and math.isnan(empty["clipping_rate"])
    assert empty["scale_ratio"] == 1


def test_branch_by_branch_numbers_are_those_of_numpy_over_all_frames():
    plugin, rng = registry.build("attacks", "scales"), seeds.derive(6, "pooled")
    parts = [Opened(rng.normal(size=(t, 4)), rng.normal(0, 3, (t, 4)), Noise("gaussian", rng.uniform(2, 5, t)), 2.0,
                    np.ones(t), 1.0) for t in (16, 16, 3)]
    pool = Pool()
    for person, part in zip((1, 2, 2), parts):
        pool.add(person, plugin.values({"a": part, "label": branch("randomized_response")}))
    columns = keys_of(plugin, Anatomy({"a": "gaussian", "label": "randomized_response"}, "a"), pooled=True)
    assert len(columns) == 14 and all(c.params == {"branch": "a"} and c.role == "diagnostic" for c in columns.values())
    rows = {(r.column, r.person): r.value for r in pool.trials(plugin, columns, 1)}
    scale, noise, signal = (np.concatenate(x) for x in (
        [p.noise.scale for p in parts], [np.linalg.norm(p.residual, axis=1) for p in parts],
        [np.linalg.norm(p.clipped, axis=1) for p in parts]))
    for name, wanted in (("scale_mean", scale.mean()), ("scale_std", scale.std()), ("scale_min", scale.min()),
                         ("scale_max", scale.max()), ("noise_norm", noise.mean()), ("noise_norm_std", noise.std()),
                         ("signal_norm", signal.mean()), ("signal_norm_std", signal.std()),
                         ("ratio_median", np.median(noise / signal)), ("ratio_p5", np.quantile(noise / signal, 0.05)),
                         ("ratio_p95", np.quantile(noise / signal, 0.95)), ("floor", 2.0), ("clipped_share", 0.0),
                         ("loss_share", 1.0)):
        assert rows[f"{name}[branch=a]", 0] == pytest.approx(wanted)  # everybody
    assert rows["scale_max[branch=a]", 2] == parts[0].noise.scale.max()  # without person 2


def test_shares_of_the_loss_are_those_of_squared_clip_over_floor():
    plugin, pool = registry.build("attacks", "scales"), Pool()
    parts = {"id": (2.0, 3.0, 0.5), "expr": (1.0, 1.0, 2.0), "label": None}  # clip norm, floor, norm of every row
    given = {n: branch("randomized_response") if v is None else
             Opened(np.ones((4, 2)), np.ones((4, 2)), Noise("gaussian", np.full(4, v[1])), v[1], np.full(4, v[2]), v[0])
             for n, v in parts.items()}
    given["label"] = branch("randomized_response")
    pool.add(1, plugin.values(given))
    pool.add(2, plugin.values(given))
    wanted = keys_of(plugin, Anatomy({"id": "gaussian", "expr": "gaussian"}, "expr"), pooled=True)
    rows = {r.column: r.value for r in pool.trials(plugin, wanted, 1) if r.person == 0}
    assert rows["loss_share[branch=id]"] == pytest.approx((4 / 9) / (4 / 9 + 1))
    assert rows["loss_share[branch=expr]"] == pytest.approx(1 / (4 / 9 + 1))
    assert (rows["clipped_share[branch=id]"], rows["clipped_share[branch=expr]"]) == (0, 1)


# ---- stability -----------------------------------------------------------------------------------------------------

def test_agreement_of_draws():
    plugin = registry.get("attacks", "stability")(draws=4)
    assert plugin.agreement(np.array([2, 2, 2, 2]), 1) == {"fer_mean": 0, "modal_agreement": 1, "pairwise_agreement": 1}
    assert plugin.agreement(np.array([0, 0, 1, 2]), 0) == {"fer_mean": 0.5, "modal_agreement": 0.5,
                                                          "pairwise_agreement": pytest.approx(1 / 6)}
    assert math.isnan(plugin.agreement(np.array([1]), 1)["pairwise_agreement"])
    assert {c.key for c in plugin.columns_of(Anatomy({"a": "gaussian"}, "a"))} >= {"fer_mean[R=4]", "modal_std[R=4]"}


def test_the_deviation_over_draws_is_that_of_the_mean_of_person_means():
    plugin, pool, rng = registry.get("attacks", "stability")(draws=5), Pool(), seeds.derive(7, "draws")
    right = rng.integers(0, 2, (9, 5))
    owners = [1, 1, 1, 1, 1, 2, 3, 3, 3]
    for person, row in zip(owners, right):
        pool.add(person, plugin.values({"predicted": row, "truth": 1}))
    rows = {(r.column, r.person): r.value
            for r in pool.trials(plugin, keys_of(plugin, Anatomy({"a": None}, "a"), pooled=True), 1)}
    draws = np.mean([right[:5].mean(0), right[5:6].mean(0), right[6:].mean(0)], axis=0)
    assert rows["fer_std[R=5]", 0] == pytest.approx(np.std(draws, ddof=1))
    assert rows["fer_std[R=5]", 1] == pytest.approx(np.std((right[5] + right[6:].mean(0)) / 2, ddof=1))
    mode = (right.sum(1) > 2.5).astype(int)
    agree = (right == mode[:, None]).astype(float)
    wanted = np.mean([agree[:5].mean(0), agree[5:6].mean(0), agree[6:].mean(0)], axis=0)
    assert rows["modal_std[R=5]", 0] == pytest.approx(np.std(wanted, ddof=1))


# ---- quantization --------------------------------------------------------------------------------------------------

def quantized(chances, codebook):
    plugin, pool = registry.get("attacks", "quantization")(draws=len(chances)), Pool()
    anatomy = Anatomy({"id": "gaussian", "expr": "gaussian"}, "expr", ("context", "assignment:expr"))
    plugin.load({"expr": codebook})
    pool.add(1, plugin.values({"expr": chances}))
    return {r.column: r.value for r in pool.trials(plugin, keys_of(plugin, anatomy, pooled=True), 1) if r.person == 0}


def test_uniform_and_certain_assignments_and_the_norms_of_entries():
    codebook = np.array([[3.0, 4.0], [0.0, 1.0], [0.0, 0.0], [6.0, 8.0]])
    flat = quantized(np.full((3, 7, 4), 0.25), codebook)
    assert flat["entropy[branch=expr]"] == pytest.approx(math.log(4))
    assert flat["max_probability[branch=expr]"] == 0.25
    assert flat["entry_norm[branch=expr]"] == 4  # norms 5, 1, 0, 10
    assert flat["entry_norm_std[branch=expr]"] == pytest.approx(math.sqrt(15.5))
    sure = np.zeros((4, 2, 4))
    sure[:, 0, 1] = 1  # the first frame: always the same entry
    sure[np.arange(4), 1, [0, 0, 2, 3]] = 1  # the second: one pair of six
    found = quantized(sure, codebook)
    assert found["entropy[branch=expr]"] == 0 and found["max_probability[branch=expr]"] == 1
    assert found["top1_agreement[branch=expr]"] == pytest.approx((1 + 1 / 6) / 2)
    assert stats.entropy([0.5, 0.25, 0.25, 0]) == pytest.approx(
        quantized(np.tile([0.5, 0.25, 0.25, 0], (2, 3, 1)), codebook)["entropy[branch=expr]"])


def test_a_method_without_a_codebook_has_no_such_row():
    assert registry.build("attacks", "quantization").columns_of(Anatomy({"a": "gaussian"}, "a", ("context",))) == ()


# ---- probes --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e4])
def test_a_probe_reads_a_plain_label_in_any_unit_and_nothing_from_noise(unit, one_thread):
    from bench.nets.linear_probe import linear_probe, probe_scores

    rng = seeds.derive(8, "probe", str(unit))
    labels = np.arange(240) % 3
    plain = (np.eye(6)[labels] + rng.normal(0, 0.15, (240, 6))) * unit + 5 * unit
    noise = rng.normal(0, unit, (240, 6))
    for features, low, high in ((plain, 0.9, 1.0), (noise, 1 / 3 - 0.2, 1 / 3 + 0.2)):
        model = linear_probe(features[None, :120], labels[:120], (features[120:160], labels[120:160]), 3, 42)
        assert low <= (probe_scores(model, features[160:]).argmax(1) == labels[160:]).mean() <= high
        again = linear_probe(features[None, :120], labels[:120], (features[120:160], labels[120:160]), 3, 42)
        np.testing.assert_array_equal(probe_scores(model, features), probe_scores(again, features))


def test_what_can_be_read_of_a_method():
    method = Anatomy({"id": "gaussian", "expr": "gaussian"}, "expr", ("quantized", "assignment:id", "context"))
    assert method.stages == ("clipped", "noisy", "quantized", "context") and method.assigned == ("id",)
    keys = [c.key for c in registry.build("attacks", "stages").columns_of(method)]
    assert keys == [f"probe[stage={s}]" for s in method.stages]
    made = registry.build("attacks", "interventions")
    assert made.interventions(method) == ("shuffle:id", "shuffle:expr", "shuffle:all", "zero")
    assert made.interventions(Anatomy({"latent": "gaussian"}, "latent")) == ("shuffle:latent", "zero")
    facts = {"encodes": "method", "branches": [Branch("a", 2, floor=1.0).as_dict()]}
    assert anatomy_of(facts, 64) == Anatomy({"a": "gaussian"}, "a")
    for wrong in ({"probed": "b"}, {"inspects": ["assignment:b"]}, {"inspects": ["noisy"]}):
        with pytest.raises(PluginError, match="the branches are"):
            anatomy_of({**facts, **wrong}, 64)
