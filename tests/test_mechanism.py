"""The release loop: noise has its law, plans see released values only, scales keep their floor, budgets hold."""

from fractions import Fraction as F

import numpy as np
import pytest
from scipy import stats
from test_clip_rows import BALL, BOX, CLEAR, DIAMOND, LABEL, rng, seeded
from test_privacy_noise import ALPHA, laplace_fit

from bench.errors import ConfigError, PluginError
from bench.privacy.bits import OsBits
from bench.privacy.contract import Branch, Plan
from bench.privacy.filters import ChunkLoadFilter, TotalFilter
from bench.privacy.mechanism import clip_rows, replay_scales, run_streams, unit_of

SPENT = Branch("count", dim=4, norm="l1", clip=20, noise="discrete_laplace")
OTHER = Branch("expr", dim=2, clip=1.0, floor=0.5)
FIXED = (BALL, OTHER, DIAMOND, BOX, LABEL, CLEAR)


def clipped(branches, streams, steps, *names):
    """{branch: whole steps (B, T, dim)} of random rows."""
    out = {}
    for k in branches:
        rows = rng(k.name, *names).normal(1, k.clip, (streams * steps, k.dim))
        out[k.name] = clip_rows(rows, k, len(rows))[0].reshape(streams, steps, k.dim)
    return out


class Counted:
    """Bits that say how many words they gave."""

    benchmark_only = True

    def __init__(self, bits):
        self.bits, self.given = bits, 0

    def words(self, n):
        self.given += n
        return self.bits.words(n)


# ---- what comes out ----

def test_every_branch_gives_whole_steps_and_its_noise():
    values = clipped(FIXED, 3, 5)
    out = run_streams(values, FIXED, None, seeded("every"))
    for k in FIXED:
        released, noise, unit = out.released[k.name], out.residuals[k.name], unit_of(k)
        assert released.shape == noise.shape == (3, 5, k.dim) and out.scales[k.name].shape == (3, 5)
        assert released.dtype == np.float64 and noise.dtype == np.int64
        steps = np.rint(released / unit)
        assert np.array_equal(steps * unit, released) and np.array_equal(steps.astype(int), values[k.name] + noise)
        assert noise.any() == (k is not CLEAR)
    expected = {"id": 1.5, "expr": 0.5, "count": 100.0, "sum": 2040.0, "label": 1.5, "pose": 0.0}
    assert {n: set(s.ravel()) for n, s in out.scales.items()} == {n: {s} for n, s in expected.items()}
    assert out.raised == 0 and out.spends == {} and set(out.released["label"].ravel()) <= set(range(6))


def test_seeded_bits_repeat_and_those_of_the_system_do_not():
    values = clipped(FIXED, 2, 3)
    first, again, other = (run_streams(values, FIXED, None, seeded(n)) for n in ("a", "a", "b"))
    fresh = [run_streams(values, FIXED, None, OsBits()) for _ in range(2)]
    for name in values:
        assert first.released[name].tobytes() == again.released[name].tobytes()
    for name in ("id", "expr", "count", "sum"):
        assert not np.array_equal(first.released[name], other.released[name])
        assert not np.array_equal(fresh[0].released[name], fresh[1].released[name])


def fits_normal(draws):
    """p-value of a chi-square test on 50 cells of equal probability."""
    cells = np.clip((stats.norm.cdf(draws) * 50).astype(int), 0, 49)
    return stats.chisquare(np.bincount(cells.ravel(), minlength=50)).pvalue


def test_residuals_follow_the_law_of_the_claimed_scale():
    branches = (Branch("id", dim=50, clip=2.5, floor=1.5), Branch("count", dim=50, norm="l1", clip=20,
                noise="discrete_laplace", epsilon=F(20)), LABEL)
    values = clipped(branches, 100, 8)
    out = run_streams(values, branches, lambda t, past, memory: Plan({"id": np.arange(1, 101) / 10.0}), seeded("law"))
    assert out.scales["id"][:, 3].tolist() == np.maximum(np.arange(1, 101) / 10.0, 1.5).tolist()
    normal = out.residuals["id"] * unit_of(branches[0]) / out.scales["id"][:, :, None]
    assert fits_normal(normal) > ALPHA and fits_normal(normal * 1.05) < ALPHA
    assert laplace_fit(out.residuals["count"].ravel(), 2.0) > ALPHA
    assert laplace_fit(out.residuals["count"].ravel(), 2.1) < ALPHA
    kept = int((out.residuals["label"] == 0).sum())
    odds = np.exp(1.5) / (np.exp(1.5) + 5)
    assert stats.binomtest(kept, 800, odds).pvalue > ALPHA and stats.binomtest(kept, 800, odds / 1.5).pvalue < ALPHA
    for values_of in ("id", "count"):  # noise knows nothing of the value
        assert abs(np.corrcoef(values[values_of].ravel(), out.residuals[values_of].ravel())[0, 1]) < 5 / 200


def test_trusted_readers_bring_their_scale():
    branch = Branch("cells", dim=3, norm="box", clip=255, noise="discrete_laplace")
    out = run_streams(clipped((branch,), 2, 40), (branch,), None, seeded("fixed"), fixed_scale={"cells": F(7, 2)})
    assert (out.scales["cells"] == 3.5).all() and laplace_fit(out.residuals["cells"].ravel(), 3.5) > ALPHA
    with pytest.raises(PluginError, match="epsilon"):
        run_streams(clipped((branch,), 2, 2), (branch,), None, seeded("fixed"))


# ---- plans ----

def test_a_scale_under_the_floor_is_raised_and_counted():
    given = np.array([0.75, 1.5, 3.0, 0.0, -2.0, 1e300])
    out = run_streams(clipped((BALL, OTHER), 6, 4), (BALL, OTHER), lambda t, p, m: Plan({"id": given}), seeded("floor"))
    assert (out.scales["id"].T == [1.5, 1.5, 3.0, 1.5, 1.5, 2.5 * 2**30]).all() and out.raised == 3 * 4
    assert (out.scales["expr"] == 0.5).all() and np.isfinite(out.released["id"]).all()


@pytest.mark.parametrize("scale", [[np.nan, 1.0], [np.inf, 1.0], [1.0], [[1.0, 1.0]], np.nan, []])
def test_a_scale_that_is_none_stops_the_release(scale):
    with pytest.raises(PluginError, match="'id'"):
        run_streams(clipped((BALL,), 2, 2), (BALL,), lambda t, p, m: Plan({"id": np.array(scale)}), seeded("nan"))


def test_one_scale_is_that_of_all_streams():
    out = run_streams(clipped((BALL,), 3, 2), (BALL,), lambda t, p, m: Plan({"id": np.array(2.0)}), seeded("one"))
    assert (out.scales["id"] == 2.0).all() and out.raised == 0


def watched(seen):
    def plan(t, past, memory):
        seen.append((t, {k: v.copy() for k, v in past.items()}, dict(memory)))
        total = sum(np.abs(np.nan_to_num(v)).mean(axis=1) for v in past.values()) if past else np.ones(4)
        return Plan({"id": 1.0 + total, "expr": 0.3 * total + memory.get("last", 0.0)}, memory={"last": 0.1 * total})
    return plan


def test_a_plan_sees_the_released_rows_of_the_last_step_only():
    branches, seen = (BALL, OTHER, DIAMOND, LABEL, CLEAR), []
    out = run_streams(clipped(branches, 4, 6), branches, watched(seen), seeded("past"))
    assert [t for t, _, _ in seen] == list(range(6)) and seen[0][1] == {} == seen[0][2]
    for t, past, memory in seen[1:]:
        assert set(past) == set(out.released) and set(memory) == {"last"}
        for name, rows in past.items():
            assert np.array_equal(rows, out.released[name][:, t - 1])
    clear = run_streams(clipped(branches, 4, 6, "other data"), branches, watched(told := []), seeded("past"))
    assert [t for t, _, _ in told] == list(range(6))
    assert not np.array_equal(clear.scales["id"][:, 1:], out.scales["id"][:, 1:])  # they follow what was released
    assert np.array_equal(clear.scales["id"][:, 0], out.scales["id"][:, 0])  # and nothing else


def test_replay_gives_the_same_scales_bit_for_bit():
    branches = (BALL, OTHER, DIAMOND)
    out = run_streams(clipped(branches, 4, 6), branches, watched([]), seeded("replay"))
    again = replay_scales(out.released, branches, watched([]))
    assert set(again) == {"id", "expr"} and len(np.unique(out.scales["id"])) > 12
    for name, scales in again.items():
        assert scales.tobytes() == out.scales[name].tobytes()
    draws = rng("hidden")

    def chance(t, past, memory):
        return Plan({"id": draws.uniform(2, 3, 4)})

    out = run_streams(clipped(branches, 4, 6), branches, chance, seeded("replay"))
    assert not np.array_equal(replay_scales(out.released, branches, chance)["id"], out.scales["id"])


# ---- budgets ----

def spending(words, streams=1, steps=12, filters=None, branches=(SPENT,), **more):
    """Release with one spend for every step and stream; returns the transcript and words drawn per step."""
    drawn, bits = [], Counted(seeded("spend"))

    def plan(t, past, memory):
        drawn.append(bits.given)
        return Plan(spend={"count": [words] * streams if isinstance(words, str) else words[t]})

    out = run_streams(clipped(branches, streams, steps), branches, plan, bits, filters=filters, **more)
    return out, np.diff([*drawn, bits.given])


def test_ten_tenths_fit_a_budget_of_one_and_the_eleventh_is_refused():
    guard = TotalFilter(1)
    out, drawn = spending("0.1", filters=[guard])
    assert out.spends["count"] == [[F(1, 10)] * 10 + [F(0)] * 2] and guard.spent == 1  # in floats: 0.9999999999999999
    for array in (out.released["count"], out.scales["count"]):
        assert np.isfinite(array[0, :10]).all() and np.isnan(array[0, 10:]).all()
    assert (out.scales["count"][0, :10] == 400).all() and not out.residuals["count"][0, 10:].any()
    assert (drawn[:10] > 0).all() and (drawn[10:] == 0).all()  # a refused step draws nothing


def test_a_chunk_stays_within_its_budget_for_ever():
    out, _ = spending("0.1", steps=40, filters=[ChunkLoadFilter(1, window_chunks=10, cadence_chunks=1)])
    assert out.spends["count"] == [[F(1, 10)] * 40] and np.isfinite(out.released["count"]).all()
    out, drawn = spending("0.1", steps=40, filters=[ChunkLoadFilter(1, window_chunks=11, cadence_chunks=1)])
    refused = [t for t, e in enumerate(out.spends["count"][0]) if not e]
    assert refused == [10, 21, 32] == np.flatnonzero(drawn == 0).tolist()  # ten of any eleven windows in a row
    assert np.isnan(out.released["count"][0, refused]).all()


def test_every_stream_has_its_own_budget():
    words = [["0.5", "1/3"]] * 4
    out, _ = spending(words, streams=2, steps=4, filters=[TotalFilter(1), TotalFilter(1)])
    assert out.spends["count"] == [[F(1, 2)] * 2 + [0, 0], [F(1, 3)] * 3 + [0]]
    assert np.isnan(out.released["count"][:, :, 0]).tolist() == [[False, False, True, True], [False] * 3 + [True]]
    assert out.scales["count"][:, 0].tolist() == [80.0, 120.0]


def test_two_branches_of_a_step_are_refused_together():
    other = Branch("more", dim=1, norm="box", clip=10, noise="discrete_laplace")

    def plan(t, past, memory):
        return Plan(spend={"count": ["0.3"], "more": ["0.3"]})

    guard = TotalFilter(1)
    out = run_streams(clipped((SPENT, other, BALL), 1, 3), (SPENT, other, BALL), plan, seeded("two"), filters=[guard])
    assert guard.spent == F(3, 5) and np.isnan(out.released["more"][0, 1:]).all()
    assert np.isnan(out.released["count"][0, 1:]).all() and np.isfinite(out.released["id"]).all()
    assert float(out.scales["more"][0, 0]) == pytest.approx(10 / 0.3, rel=1e-15)


@pytest.mark.parametrize("changed", [1, 2, 5])
def test_more_changed_atoms_need_more_noise(changed):
    wide = Branch("count", dim=300, norm="l1", clip=6, noise="discrete_laplace")
    out, _ = spending("4.8", filters=[TotalFilter(100)], branches=(wide,), changed=changed)
    assert (out.scales["count"] == 2.5 * changed).all()  # 2 K C / e
    noise = out.residuals["count"].ravel()
    assert laplace_fit(noise, 2.5 * changed) > ALPHA and laplace_fit(noise, 3.5 * changed) < ALPHA


@pytest.mark.parametrize("words, filters, error", [
    ("0.1", None, PluginError), ("0.1", [], PluginError), ([["0.1", "0.1"]] * 12, [TotalFilter(1)], PluginError),
    ("much", [TotalFilter(1)], ConfigError), ("-1", [TotalFilter(1)], ConfigError), ("nan", [TotalFilter(1)],
                                                                                     ConfigError)])
def test_spends_that_fit_no_filter(words, filters, error):
    with pytest.raises(error, match="spend"):
        spending(words, filters=filters)
