"""Event claims as they are executed: Table 8, sensitivity, filters, policies in lock-step, reports, scores."""

from __future__ import annotations

from fractions import Fraction as F

import numpy as np
import pytest

from bench import ConfigError, EventClaim, PluginError, registry, seeds
from bench.privacy.accounting import price
from bench.privacy.bits import SeededBits
from bench.privacy.contract import CHUNK_STEPS, Branch, Plan, full_claim
from bench.privacy.filters import ChunkLoadFilter, TotalFilter, WindowGuard
from bench.privacy.windows import clip_chunks, release_windows, replayed, window_sums
from bench.report_measures import Reports
from bench.report_scores import asked_age, coverage, covered, macro_f1, mae, state_f1, utility
from bench.reports import ages, filled, text
from bench.run.stage_reports import _spoke
from bench.traffic import COMPONENTS, EXPERTS, PRIORITIES, SLOTS, WINDOW_CHUNKS, columns, requests, windows

POLICIES = ("public_median", "uniform_dp", "task_dp", "periodic_dp_reuse", "hand_rule", "uniform_dp@max", "task_dp@max",
            "periodic_dp_reuse@turn", "uniform_dp@k5", "task_dp@eps2", "hand_rule@box")
PEDESTRIAN = Branch("pedestrian", dim=2, norm="l1", clip=24, noise="discrete_laplace")


def bits(name="x"):
    return SeededBits(seeds.derive(1, "test-traffic", name))


def episodes(count, name="fields"):
    """Made chunk steps (count, 300, 12): counts that drift, states that stay."""
    rng = seeds.derive(2, "test-traffic", name)
    level = np.exp(rng.normal(0, 0.5, (count, 1, 4)) + 0.3 * np.sin(np.arange(300)[:, None] / 40 + np.arange(4)))
    counts = rng.poisson(level * np.array([18, 25, 15, 4.0]))
    labels = [np.eye(4, dtype=int)[np.repeat(rng.integers(4, size=(count, 5)), 60, axis=1)] * CHUNK_STEPS
              for _ in range(2)]
    return np.concatenate([counts, *labels], axis=2)


def fitted(name):
    method = registry.build("methods", name)
    method.fit(type("Public", (), {"steps": episodes(20, "public")})(), {}, None)
    return method


def released(method, count=6, draw="a"):
    """(transcript, public facts, sums) of `count` made episodes."""
    event, steps = full_claim(method).event, episodes(count)
    sums = {b.name: window_sums(clip_chunks(steps[..., columns(b.name)] / CHUNK_STEPS, b, CHUNK_STEPS)[0], event)
            for b in method.branches}
    asked = requests(3, "made", count, SLOTS)
    public = {"asked": asked.expert.tolist(), "priority": asked.priority.tolist()}
    made = release_windows(sums, method.branches, lambda t, past, memory: method.plan(t, past, memory, public), event,
                           bits(draw))
    return made, public, sums


# ---- what a policy may not say ----

@pytest.mark.parametrize("terms, message", [
    ({"changed": 31}, "cannot change so many chunks"), ({"changed": 0}, "cannot change so many chunks"),
    ({"changed": 301, "accountant": "max"}, "Give 1 to 300"), ({"budget": "0.33"}, "no multiple of 1/40")])
def test_terms_that_no_window_could_keep_are_refused(terms, message):
    with pytest.raises(ConfigError, match=message):
        registry.get("methods", "uniform_dp")(**terms)


@pytest.mark.parametrize("wrong", [np.full((2, 4), 0.1), np.ones((2, 3), int), np.full((2, 4), -1)])
def test_spends_that_are_no_fortieths_are_refused(wrong):
    method = fitted("uniform_dp")
    method.spends = lambda view: wrong
    with pytest.raises(PluginError, match=r"It gives fortieths of epsilon.*\(2, 4\)"):
        method.plan(0, {}, {}, {"asked": [[0] * SLOTS] * 2, "priority": [[1] * SLOTS] * 2})


@pytest.mark.parametrize("name, spend, idle", [("uniform_dp", 0, True), ("uniform_dp", 40, True),
                                               ("uniform_dp", 4, False), ("public_median", 0, False)])
def test_a_method_that_releases_nothing_is_no_private_method(name, spend, idle):
    """Nothing spent, or more than a window allows; with a budget of nothing that is as claimed."""
    method = fitted(name)
    method.spends = lambda view: np.full((len(view.asked), 4), spend)
    made, _, _ = released(method)
    event = full_claim(method).event
    if idle:
        with pytest.raises(PluginError, match="released nothing in any window of 6 streams"):
            _spoke(registry.Spec(name), method.branches, event, made)
    else:
        _spoke(registry.Spec(name), method.branches, event, made)
        assert np.isnan(made.released["traffic"]).all() == (name == "public_median")


# ---- the mechanism ----

@pytest.mark.parametrize("k, spend, expected", [(2, "0.1", 8), (2, "0.4", 2), (5, "0.1", 20), (5, "0.4", 5)])
def test_table_8_is_what_is_executed(k, spend, expected):
    """Pedestrian vector, J = 30, C = 6: scale of the noise on the mean, exactly."""
    event = EventClaim(WINDOW_CHUNKS, k, (6,), (F(2, 5),))
    made = release_windows({"pedestrian": np.zeros((1, 1, 2), np.int64)}, (PEDESTRIAN,),
                           lambda t, past, memory: Plan(spend={"pedestrian": [spend]}), event, bits())
    assert made.scales["pedestrian"][0, 0] / (WINDOW_CHUNKS * CHUNK_STEPS) == expected
    assert made.spends["pedestrian"] == [[F(spend)]]


def test_noise_of_a_window_has_the_law_it_is_priced_by():
    event, n = EventClaim(WINDOW_CHUNKS, 2, (6,), (F(2, 5),)), 20_000
    made = release_windows({"pedestrian": np.zeros((n, 1, 2), np.int64)}, (PEDESTRIAN,),
                           lambda t, past, memory: Plan(spend={"pedestrian": ["0.4"] * n}), event, bits("law"))
    b = 240.0
    drawn = made.released["pedestrian"].ravel()
    r = np.exp(-1 / b)
    expected, spread = 2 * r / (1 - r * r), np.sqrt(2) * b  # mean |x| of the law; sd of |x| is about b
    assert abs(np.abs(drawn).mean() - expected) < 5 * b / np.sqrt(drawn.size)
    assert abs(drawn.mean()) < 5 * spread / np.sqrt(drawn.size)


@pytest.mark.parametrize("branch, cap", [
    (Branch("traffic", dim=2, norm="l1", clip=80, noise="discrete_laplace"), 20),
    (Branch("traffic", dim=2, norm="box", clip=80, noise="discrete_laplace"), 20),
    (Branch("signs", dim=4, norm="l1", clip=4, noise="discrete_laplace"), 1)])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_k_changed_chunks_never_move_a_window_by_more_than_2kc(branch, cap, k):
    rng, event = seeds.derive(4, branch.name, branch.norm, k), EventClaim(30, k, (cap,), (F(1),))
    odd = np.array([0, -3, 1e300, np.nan, np.inf, cap, cap / 2, 0.3, 1e-9])
    worst = 0
    for _ in range(300):
        before = rng.choice(odd, size=(1, 30, branch.dim))
        after = before.copy()
        after[:, rng.permutation(30)[:k]] = rng.choice(odd, size=(1, k, branch.dim))
        sums = [window_sums(clip_chunks(v, branch, CHUNK_STEPS)[0], event) for v in (before, after)]
        worst = max(worst, int(np.abs(sums[0] - sums[1]).sum()))
    assert worst <= branch.sensitivity * k <= 2 * k * cap * CHUNK_STEPS
    assert worst > 0.4 * branch.sensitivity * k  # the bound is not idle


def test_a_failed_chunk_is_a_fixed_vector_and_the_denominator_stays():
    values = np.ones((1, 30, 2))
    values[0, 3] = np.nan
    steps, failed = clip_chunks(values, PEDESTRIAN, CHUNK_STEPS)
    assert failed.sum() == 1 and failed[0, 3]
    assert window_sums(steps, EventClaim(30, 2, (6,), (F(1),)))[0, 0].tolist() == [29 * 4, 29 * 4]


def test_what_is_left_after_the_last_window_is_dropped_and_too_few_are_refused():
    event = EventClaim(30, 2, (6,), (F(1),) * 2)
    steps = np.ones((1, 75, 2), np.int64)
    assert window_sums(steps, event).tolist() == [[[30, 30], [30, 30]]]
    with pytest.raises(PluginError, match="has no 2 windows"):
        window_sums(steps[:, :59], event)


def test_a_window_that_asks_for_more_than_its_limit_or_the_budget_releases_nothing():
    event = EventClaim(30, 2, (6,), (F(2, 5),) * 4, budget=F(4, 5))
    asks = ["0.5", "0.4", "0.4", "0.1"]
    made = release_windows({"pedestrian": np.full((1, 4, 2), 7)}, (PEDESTRIAN,),
                           lambda t, past, memory: Plan(spend={"pedestrian": [asks[t]]}), event, bits())
    assert made.spends["pedestrian"] == [[0, F(2, 5), F(2, 5), 0]]
    assert np.isnan(made.released["pedestrian"][0]).all(axis=1).tolist() == [True, False, False, True]


def test_guards_pass_every_window_on_to_the_filter():
    guard = WindowGuard((F(1), F(1), F(1)), ChunkLoadFilter(1, 30, 15))  # each chunk lies in two windows
    assert [guard.admit(e) for e in ("2", "0.6", "0.6", "0.1")] == [False, True, False, False]
    assert guard.inner.next_window == 4
    total = WindowGuard((F(1),), TotalFilter(5))
    assert total.admit(1) and not total.admit(1), "windows after the list may not spend"


def test_plans_of_event_claims_give_no_scales():
    with pytest.raises(PluginError, match="gave scales"):
        release_windows({"pedestrian": np.zeros((1, 1, 2), np.int64)}, (PEDESTRIAN,),
                        lambda t, past, memory: Plan(scale={"pedestrian": np.ones(1)}),
                        EventClaim(30, 2, (6,), (F(1),)), bits())


# ---- claims ----

@pytest.mark.parametrize("name, total, most", [
    ("public_median", 0, 0), ("uniform_dp", 4, .4), ("task_dp", 4, .4), ("periodic_dp_reuse", 4, .8),
    ("hand_rule", 4, .8), ("uniform_dp@max", 40, 4), ("task_dp@eps2", 2, .2), ("uniform_dp@k5", 4, .4)])
def test_both_prices_of_the_baselines(name, total, most):
    cost = price(full_claim(registry.build("methods", name)))
    assert (cost.epsilon_sum, cost.epsilon_max) == pytest.approx((total, most), abs=1e-12)
    assert cost.epsilon == (cost.epsilon_max if name.endswith("@max") else cost.epsilon_sum)


@pytest.mark.parametrize("change, message", [
    ({"clip": 84.0}, "moves by up to"), ({"noise": None}, "needs discrete Laplace"), ({"epsilon": F(1)}, "needs")])
def test_branches_outside_the_event_terms_are_refused(change, message):
    method = registry.build("methods", "task_dp")
    first = {**vars(method.branches[0]), **change}
    method.branches = (Branch(**first), *method.branches[1:])
    with pytest.raises(PluginError, match=message):
        full_claim(method)


def test_a_box_of_four_coordinates_is_no_simplex():
    method = registry.build("methods", "task_dp")
    wide = Branch("signs", dim=4, norm="box", clip=4, noise="discrete_laplace")
    method.branches = (*method.branches[:2], wide, method.branches[3])
    with pytest.raises(PluginError, match="signs"):
        full_claim(method)


# ---- policies ----

@pytest.mark.parametrize("name", POLICIES)
def test_policies_keep_their_limits_and_replay(name):
    method = fitted(name)
    made, public, _ = released(method)
    event = full_claim(method).event
    spent = [[sum(made.spends[b.name][n][t] for b in method.branches) for t in range(SLOTS)] for n in range(6)]
    assert all(e <= most for own in spent for e, most in zip(own, event.spends, strict=True))
    if method.accountant == "sum":
        assert all(sum(own) <= method.budget for own in spent)
    again = replayed(made.released, method.branches, lambda t, past, memory: method.plan(t, past, memory, public),
                     event)
    assert again == made.spends
    shown = method.render([{n: v[k] for n, v in made.released.items()} for k in range(6)], public, "assembled")
    assert shown.shape == (6, SLOTS, 12) and np.isfinite(shown).all() and (shown >= 0).all()
    assert all((shown[..., columns(e.name)] <= e.cap).all() for e in EXPERTS if e.cap > 6 or e.label)


@pytest.mark.parametrize("name", POLICIES)
def test_a_stream_plans_alone_as_it_does_in_a_block(name):
    method = fitted(name)
    made, public, _ = released(method)
    for k in (0, 4):
        own = {n: v[k:k + 1] for n, v in made.released.items()}
        facts = {name: [public[name][k]] for name in ("asked", "priority")}
        alone = replayed(own, method.branches, lambda t, past, memory, facts=facts: method.plan(t, past, memory, facts),
                         full_claim(method).event)
        assert {n: v[0] for n, v in alone.items()} == {n: v[k] for n, v in made.spends.items()}


def test_the_fixed_schedules_spend_what_they_say():
    made, public, _ = released(fitted("uniform_dp"))
    assert {e for own in made.spends.values() for row in own for e in row} == {F(1, 10)}
    made, public, _ = released(fitted("task_dp"))
    for m, expert in enumerate(EXPERTS):
        wanted = [[F(2, 5) * (a == m) for a in row] for row in public["asked"]]
        assert made.spends[expert.name] == wanted
    made, _, _ = released(fitted("periodic_dp_reuse"))
    assert made.spends["signs"][0] == [F(1, 5), 0] * 5
    made, _, _ = released(fitted("periodic_dp_reuse@turn"))
    assert made.spends["traffic"][0] == [F(4, 5), 0, 0, 0, 0, 0, 0, 0, F(4, 5), 0]


def test_the_hand_rule_is_silent_when_idle_and_when_it_knows():
    method = fitted("hand_rule")
    made, public, _ = released(method, count=40)
    priority = np.array(public["priority"])
    spent = np.array([[sum(made.spends[e.name][n][t] for e in EXPERTS) for t in range(SLOTS)] for n in range(40)])
    assert not spent[priority == 0].any()
    assert set(spent[priority == 1]) <= {0, F(2, 5)} and set(spent[priority == 3]) <= {0, F(4, 5)}
    view_last = np.full((1, 12), np.nan)
    view_last[0, columns("signs")] = [0, 0, 0, 1.0]
    view = type("V", (), {"last": view_last, "age": np.ones((1, 4)), "asked": np.array([2])})()
    method.stay = np.array([0, 0, 0.99, 0.99])
    assert method._known(view)[0]
    view.age = np.full((1, 4), 200)
    assert not method._known(view)[0], "what was known fades"


def test_public_median_releases_nothing_and_shows_the_median():
    method = fitted("public_median")
    made, public, _ = released(method)
    assert all(np.isnan(v).all() for v in made.released.values())
    shown = method.render([{n: v[0] for n, v in made.released.items()}], public, "assembled")
    public_windows = windows(episodes(20, "public")).reshape(-1, 12)
    assert (shown[..., :4] == np.median(public_windows, axis=0)[:4]).all()
    frequent = np.bincount(public_windows[:, 4:8].argmax(axis=1), minlength=4).argmax()
    assert shown[0, 0, 4:8].argmax() == frequent and shown[0, 0, 4:8].sum() == pytest.approx(1)


def test_the_example_of_the_documents_is_a_policy(monkeypatch):
    import re
    from pathlib import Path

    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    text = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    block = next(b for b in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "vehicles_only" in b)
    space = {"__name__": "example"}
    exec(compile(block, "CONTRIBUTING.md", "exec"), space)
    method = space["VehiclesOnly"]()
    method.prior = np.zeros(12)
    made, _, _ = released(method)
    assert made.spends["traffic"][0] == [F(2, 5), 0] * 5 and price(full_claim(method)).epsilon_sum == 4
    assert not any(e for own in made.spends["signs"] for e in own)


# ---- reports ----

def test_missing_values_are_the_last_ones_then_the_prior():
    values = np.array([[np.nan, 1], [2, np.nan], [np.nan, np.nan]])
    assert filled(values, np.array([9.0, 8.0])).tolist() == [[9, 1], [2, 1], [2, 1]]


def test_ages_count_from_the_window_or_the_start():
    fresh = np.array([[[0], [1], [0], [0], [1]]], dtype=bool)
    assert ages(fresh)[0, :, 0].tolist() == [60, 0, 60, 120, 0]


def test_text_says_missing_and_old():
    report = np.array([3.4, 1.6, np.nan, np.nan, 0, .7, .3, 0, 0, 0, 1, 0.])
    old, heads = np.array([0, 0, 60, 60]), "About 3 vehicles moving and 2 standing. People: not reported."
    assert text(report, old, np.ones(4, bool)) == f"{heads} Sign: speed limit (60 s old). Weather: fog (60 s old)."
    assert text(report, old, np.array([1, 1, 0, 1], bool)) == \
        f"{heads} Sign: speed limit (nothing released yet). Weather: fog (60 s old)."


def test_requests_follow_the_protocol():
    asked = requests(42, "sumo_crossing", 2000, 10)
    assert np.allclose(np.bincount(asked.expert.ravel()) / 20000, 0.25, atol=0.015)
    assert np.allclose([(asked.priority == p).mean() for p in PRIORITIES], (.30, .45, .25), atol=0.015)


# ---- scores ----

def reports(**change):
    rng = seeds.derive(5, "reports")
    truth = np.concatenate([rng.uniform(0, 5, (7, 10, 4)), np.eye(4)[rng.integers(4, size=(7, 10))],
                            np.eye(4)[rng.integers(4, size=(7, 10))]], axis=2)
    base = {"truth": truth, "report": truth.copy(), "fresh": np.ones((7, 10, 4), bool),
            "asked": rng.integers(4, size=(7, 10)), "priority": rng.choice(PRIORITIES, (7, 10)),
            "episode": np.arange(7)}
    return Reports(**{**base, **change})


def test_a_perfect_report_scores_one_and_an_absurd_one_nothing():
    good = reports()
    assert utility(good, weighted=True) == utility(good, weighted=False) == 1
    assert mae(good, "traffic", "all").max() == 0 and state_f1(good, "signs") == 1
    bad = good.truth.copy()
    bad[..., :4] += 100
    bad[..., 4:8] = np.roll(good.truth[..., 4:8], 1, axis=2)
    bad[..., 8:] = np.roll(good.truth[..., 8:], 1, axis=2)
    assert utility(reports(report=bad), weighted=True) == 0
    assert utility(reports(report=np.full_like(bad, np.nan)), weighted=False) == 0


def test_errors_by_slots():
    r = reports()
    off = r.truth.copy()
    off[:, :, 0] += np.where(r.asked == 0, 4, 2)
    found = reports(report=off)
    assert np.allclose(mae(found, "traffic", "asked")[(r.asked == 0).any(axis=1)], 2)
    assert np.allclose(mae(found, "traffic", "all"), (1 + (r.asked == 0)).mean(axis=1))
    stale = np.zeros((7, 10, 4), bool)
    stale[:, 0] = True
    assert covered(reports(fresh=stale))[0, :, 0].tolist() == [True] * 3 + [False] * 7
    assert np.allclose(coverage(reports(fresh=stale)), 0.3)
    assert np.allclose(asked_age(reports(fresh=stale)), 270) and np.allclose(asked_age(reports()), 0)


def test_macro_f1_against_a_peer():
    from sklearn.metrics import f1_score

    rng = seeds.derive(6, "f1")
    truth, said, weight = rng.integers(4, size=300), rng.integers(4, size=300), rng.integers(1, 4, size=300)
    assert macro_f1(truth, said, 4) == pytest.approx(f1_score(truth, said, average="macro"))
    assert macro_f1(truth, said, 4, weight) == pytest.approx(f1_score(truth, said, average="macro",
                                                                      sample_weight=weight))
    assert np.isnan(macro_f1(np.array([]), np.array([]), 4)) and COMPONENTS[4:8] == EXPERTS[2].components
