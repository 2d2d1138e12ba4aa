"""Reports that make no formal promise: exact fields in words, and the gate that looks first."""

from __future__ import annotations

import numpy as np
import pytest
from test_traffic import bits, episodes

from bench import PluginError, registry, seeds
from bench import spoken as spoken_module
from bench.privacy.contract import CHUNK_STEPS, full_claim
from bench.privacy.windows import clip_chunks, release_windows, window_sums
from bench.run.stage_reports import CLEAR, _replayed, said_in
from bench.spoken import WORDS, Talk, detail, observed, reward
from bench.traffic import EXPERTS, SLOTS, columns, requests, windows


class Public:
    steps = episodes(20, "public")


@pytest.fixture(scope="module")
def talkers():
    """Both agents, trained for a short while, and what training reported."""
    lines, streams, out = [], spoken_module.STREAMS, {}
    spoken_module.STREAMS = 512
    ctx = type("Context", (), {"torch_seed": lambda self, *names: seeds.derive_torch(3, *names),
                               "report": lambda self, line: lines.append(line)})()
    for name in ("rl_moe", "rl_moe_field_removal"):
        method = registry.build("methods", name)
        method.rollouts = 30
        method.fit(Public(), {}, ctx)
        again = registry.build("methods", name)
        again.load({k: np.asarray(v) for k, v in method.state().items()})
        out[name] = again
    spoken_module.STREAMS = streams
    return out, lines


def facts_of(count):
    asked = requests(3, "made", count, SLOTS)
    return {"asked": asked.expert.tolist(), "priority": asked.priority.tolist()}


def rendered(method, count=6, decoding="assembled"):
    values = episodes(count)
    sums = {b.name: window_sums(clip_chunks(values[..., columns(b.name)] / CHUNK_STEPS, b, CHUNK_STEPS)[0], CLEAR)
            for b in method.branches}
    made = release_windows(sums, method.branches, None, CLEAR, bits())
    assert all((made.residuals[n] == 0).all() for n in sums), "no noise is drawn"
    return method.render([{n: v[k] for n, v in made.released.items()} for k in range(count)], facts_of(count), decoding)


def test_detail_by_hand(talkers):
    method = talkers[0]["rl_moe"]
    method.thirds = np.array([[1, 4, 9.0]] * 4)
    exact = np.array([[3.4, 8.6, .2, 1.6, .1, .2, .3, .4, .55, .45, 0, 0]])
    said = method.said(exact, np.array([[1, 2, 2, 1]]))[0]
    assert said.tolist() == [4, 9, 0, 2, 0, .25, .25, .5, 1, 0, 0, 0]
    assert np.isnan(method.said(exact, np.array([[0, 3, 3, 0]]))[0]).tolist() == [True] * 2 + [False] * 6 + [True] * 4
    assert (method.said(exact, np.full((1, 4), 3)) == exact).all()
    assert detail(np.array([14, 1]), np.array([1, 3])).tolist() == [[2, 3, 2, 2], [1, 1, 1, 0]]
    method.load({k: np.asarray(v) for k, v in method.state().items()})


def test_rewards_by_hand():
    """All exact: relevance 1, coverage .2, brevity .1; all silent: nothing; only the asked: 1 + .2 / 4 - .1 / 4."""
    truth = np.concatenate([np.ones((3, 4)), np.eye(4)[[0, 1, 2]], np.eye(4)[[3, 2, 1]]], axis=1)
    said, levels = truth.copy(), np.array([[3] * 4, [0] * 4, [0, 0, 3, 0]])
    for n in (1, 2):
        for m, expert in enumerate(EXPERTS):
            if not levels[n, m]:
                said[n, columns(expert.name)] = np.nan
    np.testing.assert_allclose(reward(truth, said, np.array([0, 1, 2]), levels), [1.1, 0, 1.025])
    assert WORDS.tolist() == sorted(WORDS) and WORDS[0] == 0


def test_training_pays_and_says_more_of_what_is_asked(talkers):
    methods, lines = talkers
    first, *_, last = (float(line.rpartition(" ")[2]) for line in lines[:4])
    assert last > first + 0.1
    method, game = methods["rl_moe"], Talk(methods["rl_moe"], windows(episodes(20, "other")), 5)
    seen, _ = game.reset()
    levels = detail(spoken_module.logits(method.weights, seen).argmax(axis=1), game.asked)
    own = levels[np.arange(len(levels)), game.asked]
    assert own.min() >= 1 and own.mean() >= (levels.sum(axis=1) - own).mean() / 3


def test_reports_are_exact_or_coarser_and_removed_fields_stay_at_the_public_median(talkers):
    methods, truth = talkers[0], windows(episodes(6))
    shown = rendered(methods["rl_moe"])
    asked = np.array(facts_of(6)["asked"])
    for m, expert in enumerate(EXPERTS):
        part = columns(expert.name)
        error = np.abs(shown[..., part] - truth[..., part])[asked == m]
        assert error.mean() < (0.3 if expert.label else 0.15 * expert.cap)
    removed = rendered(methods["rl_moe_field_removal"])
    gone = methods["rl_moe_field_removal"].gone
    assert (removed[..., gone] == methods["rl_moe_field_removal"].prior[gone]).all()
    assert [b.name for b in methods["rl_moe_field_removal"].branches] == ["traffic", "signs", "environment"]
    assert observed(truth[0], asked[0], asked[0]).shape == (10, spoken_module.OBSERVED)


def test_a_silent_expert_is_not_fresh(talkers, monkeypatch):
    """Exact on what is asked, silent on the rest: fresh is the asked expert alone, unless its fields are removed."""
    def scores(weights, seen):
        return np.tile(np.arange(16) == 4 * 3, (len(seen), 1))

    monkeypatch.setattr(spoken_module, "logits", scores)
    asked = np.array(facts_of(6)["asked"])[..., None] == np.arange(4)
    for name, method in talkers[0].items():
        said = rendered(method, decoding="isolated")
        assert (said_in(said) == (asked & (np.arange(4) != 1) if method.removed else asked)).all(), name
        shown = rendered(method)
        assert (shown[~np.isnan(said)] == said[~np.isnan(said)]).all() and not np.isnan(shown).any()


# ---- the gate ----

class InProcess:
    """A worker whose plan runs here."""

    spec = "raw_gate"

    def __init__(self, method):
        self.method = method

    def plan(self, t, past, memory, public):
        return self.method.plan(t, past, memory, public)


def test_the_raw_gate_spends_by_the_stream_and_its_replay_finds_other_spends():
    method = registry.build("methods", "raw_gate")
    method.fit(Public(), {}, None)
    values, public, event = episodes(64), facts_of(64), full_claim(method).event
    sums = {b.name: window_sums(clip_chunks(values[..., columns(b.name)] / CHUNK_STEPS, b, CHUNK_STEPS)[0], event)
            for b in method.branches}
    seen = {**public, "raw": windows(values).tolist()}
    made = release_windows(sums, method.branches, lambda t, past, memory: method.plan(t, past, memory, seen), event,
                           bits())
    assert any(e for own in made.spends["signs"] for e in own)
    facts = {k: np.array(v) for k, v in public.items()}
    assert not _replayed(InProcess(method), made, method.branches, event, facts, np.zeros((64, SLOTS, 12)),
                         strict=False)
    with pytest.raises(PluginError, match="differ on replay"):
        _replayed(InProcess(method), made, method.branches, event, facts, np.zeros((64, SLOTS, 12)), strict=True)
    assert registry.get("methods", "raw_gate").lane == "declared"
