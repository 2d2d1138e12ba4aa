"""The learned controller: its filter, its rehearsals, its training, and what it may never do."""

from __future__ import annotations

from fractions import Fraction as F
from itertools import product

import numpy as np
import pytest
import torch
from test_traffic import episodes, released

from bench import Diverged, registry, seeds
from bench.beliefs import BINS, Belief, Beliefs
from bench.nets import frozen_policy, ppo
from bench.privacy.accounting import price
from bench.privacy.contract import CHUNK_STEPS, full_claim
from bench.privacy.windows import replayed
from bench.rehearsal import Answer, Rehearsal, quality
from bench.reports import UNIT
from bench.traffic import EXPERTS, SLOTS, WINDOW_CHUNKS, columns, windows
from methods import br_moe
from methods.br_moe.controller import FEATURES, LEVELS, observed, reward

NAMES = ("br_moe", "br_moe@max", "br_moe@notask", "br_moe@counts", "br_moe@hmm", "br_moe@eps2", "br_moe@eps8",
         "br_moe@max-counts-box")


class Public:
    steps = episodes(20, "public")


def context(report=lambda text: None):
    return type("Context", (), {"torch_seed": lambda self, *names: seeds.derive_torch(3, *names),
                                "report": staticmethod(report)})()


def untrained(name, seed=0):
    """A controller with random weights: large ones, so that it does all sorts of things."""
    method = registry.build("methods", registry.Spec.parse(name))
    super(br_moe.BRMoE, method).fit(Public(), {}, None)
    torch.manual_seed(seed)
    net = ppo.network(FEATURES, len(method.controls.table), 64)
    method.weights = {k: 4 * v.detach().double().numpy() for k, v in net.state_dict().items()}
    return method


# ---- the filter ----

def chain(seed=1):
    rng = seeds.derive(seed, "beliefs")
    found = Beliefs()
    found.fit(windows(episodes(30, "chain")), windows(episodes(30, "chain")))
    return found, rng


def test_the_filter_of_states_is_the_posterior_by_enumeration():
    """Three windows, every path of four states; the middle window is not released."""
    beliefs, rng = chain()
    a, scale = beliefs.arrays, np.full((1, 4), 0.4)
    values = np.full((3, 1, 12), np.nan)
    values[0, 0, 4:8], values[2, 0, 4:8] = rng.normal(0.25, 0.5, 4), rng.normal(0.25, 0.5, 4)
    belief = beliefs.start(1)
    for t in range(3):
        belief = beliefs.seen(belief if t == 0 else beliefs.ahead(belief), values[t], scale)
    total = np.zeros(4)
    for path in product(range(4), repeat=3):
        weight = a["state_first"][0, path[0]] * a["state_move"][0, path[0], path[1]] * \
            a["state_move"][0, path[1], path[2]]
        for t in (0, 2):
            weight *= np.exp(-np.abs(values[t, 0, 4:8] - a["state_shown"][0, path[t]]).sum() / 0.4)
        total[path[2]] += weight
    np.testing.assert_allclose(belief.states[0, 0], total / total.sum(), rtol=1e-9)


def test_a_belief_follows_a_clear_release_and_ignores_pure_noise():
    beliefs, rng = chain()
    start = beliefs.start(5)
    values = np.repeat(beliefs.arrays["middle"][:, 7][None], 5, axis=0)
    values = np.concatenate([values, np.full((5, 8), 0.25)], axis=1)
    clear = beliefs.seen(start, values, np.full((5, 4), 1e-6))
    low, high = beliefs.arrays["edges"][:, 5], beliefs.arrays["edges"][:, 10]
    assert ((beliefs.medians(clear)[:, :4] >= low) & (beliefs.medians(clear)[:, :4] <= high)).all()
    noise = beliefs.seen(start, values, np.full((5, 4), 1e9))
    np.testing.assert_allclose(noise.counts, start.counts, atol=1e-6)
    for belief in (start, clear, noise, beliefs.ahead(clear)):
        np.testing.assert_allclose(belief.counts.sum(axis=2), 1)
        np.testing.assert_allclose(belief.states.sum(axis=2), 1)


def test_the_median_of_an_even_belief_is_the_public_median():
    beliefs, _ = chain()
    even = Belief(np.full((1, 4, BINS), 1 / BINS), np.full((1, 2, 4), 0.25))
    public = np.median(windows(episodes(30, "chain")).reshape(-1, 12)[:, :4], axis=0)
    np.testing.assert_allclose(beliefs.medians(even)[0, :4], public, atol=1e-9)


@pytest.mark.parametrize("name", ["task_dp", "uniform_dp"])
def test_filtered_reports_are_closer_to_the_truth(name):
    errors = []
    for variant in (name, f"{name}@hmm"):
        method = registry.build("methods", registry.Spec.parse(variant))
        method.fit(Public(), {}, None)
        made, public, _ = released(method, count=60)
        shown = method.render([{n: v[k] for n, v in made.released.items()} for k in range(60)], public, "assembled")
        errors.append(np.abs(shown - windows(episodes(60)))[..., :4].mean())
    assert errors[1] < 0.8 * errors[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_is_planned_without_its_neighbours(name):
    """Two windows of three streams: together, and each alone."""
    method, rng = untrained(name), seeds.derive(5, "neighbours")
    public = {"asked": rng.integers(4, size=(3, SLOTS)), "priority": rng.choice([0, 1, 3], size=(3, SLOTS))}
    past = {e.name: rng.uniform(0, e.cap * WINDOW_CHUNKS * CHUNK_STEPS, (3, e.dim)) for e in EXPERTS}
    past["traffic"][1:], past["pedestrian"][1:] = np.nan, np.nan  # not released

    def planned(b):
        mine = {k: v[b] for k, v in public.items()}
        first = method.plan(0, {}, {}, mine)
        second = method.plan(1, {k: v[b] for k, v in past.items()}, first.memory, mine)
        return {k: first.spend[k] + second.spend[k] for k in first.spend}

    together = planned([0, 1, 2])
    for b in range(3):
        alone = planned([b])
        assert {k: [v[b], v[3 + b]] for k, v in together.items()} == alone


# ---- rehearsal ----

def test_a_rehearsal_shows_what_a_release_shows():
    """The same schedule in both: errors of the reports have the same mean, up to chance."""
    method = registry.build("methods", "task_dp")
    method.fit(Public(), {}, None)
    game = Rehearsal(method, episodes(60), 3000, 7)
    view, found = game.reset(), []
    while view is not None:
        answer, view = game.step(method.spends(view))
        found.append(np.abs(answer.shown - answer.truth)[:, :4].mean())
    made, public, _ = released(method, count=60)
    shown = method.render([{n: v[k] for n, v in made.released.items()} for k in range(60)], public, "assembled")
    wanted = np.abs(shown - windows(episodes(60)))[..., :4].mean()
    assert np.mean(found) == pytest.approx(wanted, rel=0.15)


def test_a_rehearsal_refuses_what_a_release_refuses():
    method = registry.build("methods", "hand_rule")
    method.fit(Public(), {}, None)
    game, rng = Rehearsal(method, Public.steps, 400, 3), np.random.default_rng(1)
    view, total = game.reset(), np.zeros(400)
    while view is not None:
        t, left = view.t, view.left.copy()
        wanted = rng.integers(0, 12, (400, 4))
        answer, view = game.step(wanted)
        over = (wanted.sum(axis=1) > left) | (wanted.sum(axis=1) * UNIT > method.limits()[t])
        assert not answer.fresh[over].any() and (answer.fresh == (wanted > 0))[~over].all()
        total += (answer.fresh * wanted).sum(axis=1)
    assert (total * float(UNIT) <= float(method.budget) + 1e-9).all() and total.max() > 0


# ---- training ----

class Locks:
    """Three locks in a row; one of four keys opens each, another one is forbidden; the clue is in the observation."""

    def reset(self):
        self.rng, self.t = getattr(self, "rng", np.random.default_rng(0)), 0
        return self._seen()

    def _seen(self):
        self.key = self.rng.integers(4, size=128)
        self.closed = (self.key + 1 + self.rng.integers(3, size=128)) % 4
        return np.eye(4)[self.key], np.arange(4) != self.closed[:, None]

    def step(self, actions):
        assert (actions != self.closed).all(), "a forbidden action was taken"
        gain, self.t = (actions == self.key).astype(float), self.t + 1
        return gain, None if self.t == 3 else self._seen()


def test_ppo_learns_to_open_locks_and_never_takes_a_forbidden_key():
    weights, returns = ppo.train(Locks(), 4, 4, ppo.Recipe(rollouts=30, batch=128), seed=1)
    assert returns[0] < 1.5 and np.mean(returns[-3:]) > 2.8  # one of three allowed keys by chance; three at best
    assert (frozen_policy.logits(weights, np.eye(4)).argmax(axis=1) == np.arange(4)).all()


def test_plain_logits_are_those_of_the_network():
    torch.manual_seed(2)
    net = ppo.network(7, 5, 16)
    rows = np.random.default_rng(1).normal(size=(9, 7))
    weights = {k: v.detach().double().numpy() for k, v in net.state_dict().items()}
    played = frozen_policy.logits(weights, rows)
    np.testing.assert_allclose(played, net(torch.from_numpy(rows).float()).detach(), atol=1e-5)


def test_ppo_says_when_it_diverges():
    class Broken(Locks):
        def step(self, actions):
            gain, seen = super().step(actions)
            return gain * np.nan, seen

    with pytest.raises(Diverged, match="loss"):
        ppo.train(Broken(), 4, 4, ppo.Recipe(rollouts=2), seed=1)


@pytest.fixture(scope="module")
def trained():
    """(controller trained for a short while on made public episodes, what it reported)."""
    method = registry.build("methods", "br_moe")
    method.rollouts, lines, streams = 15, [], br_moe.STREAMS
    br_moe.STREAMS = 256
    method.fit(Public(), {}, context(lines.append))
    br_moe.STREAMS = streams
    return method, lines


def played(method, streams=600, seed=99):
    """Mean return of the frozen policy on made episodes that it was not trained on."""
    game = Rehearsal(method, episodes(40, "other"), streams, seed)
    view, total = game.reset(), 0.0
    while view is not None:
        answer, view = game.step(method.spends(view))
        total += reward(answer).mean()
    return total


def test_training_improves_on_the_starting_policy(trained):
    method, lines = trained
    first = float(lines[0].rpartition(" ")[2])
    assert first + 0.05 < played(method) and len(lines) == 3


def test_the_state_carries_the_policy(trained):
    method, _ = trained
    again = registry.build("methods", "br_moe")
    again.load({k: np.asarray(v) for k, v in method.state().items()})
    assert played(again, 50) == played(method, 50)


# ---- what it may never do ----

@pytest.mark.parametrize("name", NAMES)
def test_whatever_the_weights_the_budget_holds_and_replays(name):
    method = untrained(name)
    made, public, _ = released(method, count=40)
    levels = {0, *(F(n, 40) for n in LEVELS[method.accountant])}
    spent = [[sum(made.spends[b.name][n][t] for b in method.branches) for t in range(SLOTS)] for n in range(40)]
    assert {e for own in spent for e in own} <= levels
    assert all(sum(own) <= method.budget if method.accountant == "sum" else max(own) <= method.budget
               for own in spent)
    again = replayed(made.released, method.branches, lambda t, past, memory: method.plan(t, past, memory, public),
                     full_claim(method).event)
    assert again == made.spends, "spends follow from released values and public facts"
    paid = price(full_claim(method))
    assert (paid.epsilon_sum if method.accountant == "sum" else paid.epsilon_max) == method.budget
    if "counts" in name:
        assert not any(e for own in made.spends["signs"] + made.spends["environment"] for e in own)


def test_two_streams_with_the_same_releases_are_treated_alike():
    """The truth is no argument of the policy: with the noise and the sums swapped for others, the plan is the same."""
    method = untrained("br_moe")
    made, public, _ = released(method, count=6)
    again = replayed({n: v.copy() for n, v in made.released.items()}, method.branches,
                     lambda t, past, memory: method.plan(t, past, memory, public), full_claim(method).event)
    assert again == made.spends
    changed = {n: v + (1000 if n == "traffic" else 0) for n, v in made.released.items()}
    other = replayed(changed, method.branches, lambda t, past, memory: method.plan(t, past, memory, public),
                     full_claim(method).event)
    assert other != made.spends, "what was released does steer it"


def test_without_task_conditioning_the_request_changes_nothing():
    view = Rehearsal(untrained("br_moe@notask"), Public.steps, 8, 1).reset()
    for name, same in (("br_moe@notask", True), ("br_moe", False)):
        method = untrained(name)
        first = observed(view, method, tasks=method.tasks)
        other = observed(type(view)(**{**vars(view), "asked": (view.asked + 1) % 4}), method, tasks=method.tasks)
        assert (first == other).all() == same and first.shape == (8, FEATURES) and np.isfinite(first).all()
    assert (method.controls.table.sum(axis=2).max(axis=1) > 0).sum() == 12
    fixed = untrained("br_moe@notask").controls.table
    assert (fixed == fixed[:, :1]).all(), "no action of it depends on the request"


def test_without_reuse_a_report_is_missing():
    method = untrained("br_moe@noreuse")
    made, public, _ = released(method, count=6)
    shown = method.render([{n: v[k] for n, v in made.released.items()} for k in range(6)], public, "assembled")
    for expert in EXPERTS:
        assert (np.isnan(shown[..., columns(expert.name)]) == np.isnan(made.released[expert.name])).all()


def test_rewards_by_hand():
    """Priority 3, sign right and fresh: 3 (1 + .1) - .05 / 4; idle: only brevity; missing: nothing."""
    truth, shown = np.zeros((4, 12)), np.zeros((4, 12))
    truth[:, 4], shown[:, 4] = 1, 1
    shown[1, 0] = 10  # a pair of counts wrong by 10 and 0, cap 20: quality .75, two windows old
    shown[3] = np.nan
    fresh = np.zeros((4, 4), dtype=bool)
    fresh[0, 2] = fresh[2] = True
    age = np.array([[0, 0, 0, 0], [2, 0, 0, 0], [0, 0, 0, 0], [-1, -1, -1, -1]])
    answer = Answer(truth, shown, fresh, age, np.array([2, 0, 2, 1]), np.array([3, 1, 0, 3]))
    assert quality(answer).tolist() == [1, 0.75, 1, 0]
    np.testing.assert_allclose(reward(answer) * SLOTS, [3.3 - 0.0125, 0.825, -0.05, 0])
    old = Answer(truth, shown, fresh, age + 1, answer.asked, answer.priority)
    assert reward(old)[1] * SLOTS == pytest.approx(0.75), "older than two windows is not covered"


def test_caps_and_scales_of_the_controller_are_those_of_its_claim():
    method = untrained("br_moe@k5")
    made, _, _ = released(method, count=30)
    scales, spends = made.scales["pedestrian"], made.spends["pedestrian"]
    for n in range(30):
        for t in range(SLOTS):
            if spends[n][t]:
                wanted = 2 * 5 * 6 / (WINDOW_CHUNKS * float(spends[n][t]))  # 2 K C / (J e)
                assert scales[n, t] / (WINDOW_CHUNKS * 4) == pytest.approx(wanted)
