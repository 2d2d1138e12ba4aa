"""The audit of event claims: a right mechanism passes, too little noise and a forgotten clip do not."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction as F

import numpy as np
import pytest

from bench import ConfigError, EventClaim, FullClaim, Plan
from bench.privacy.accounting import price
from bench.privacy.bits import SeededBits
from bench.privacy.contract import Branch
from bench.privacy.windows import release_windows
from bench.registry import Spec
from bench.run import stream_audit as audit
from bench.run import suite as suites
from bench.run.audit_plan import STREAMS, audit_stage
from bench.run.audit_trials import audit_releases
from bench.run.enforced import BLOCK
from bench.run.workers import method_facts
from bench.seeds import derive

CROWD = Branch("pedestrian", dim=2, norm="l1", clip=24, noise="discrete_laplace")
EVENT = EventClaim(30, 2, (F(6),), (F(1), F(1)), budget=F(1))
CLAIM = FullClaim(unit="event", adjacency="total", event=replace(EVENT, accountant="max"))
COST = price(CLAIM)
EPISODE = np.tile(np.array([5, 9, 4, 2, 4, 0, 0, 0, 4, 0, 0, 0]), (60, 1))


def spend_all(t, past, memory):
    """The whole budget in the first window."""
    return Plan(spend={"pedestrian": ["1" if t == 0 else "0"] * BLOCK})


def made(release=release_windows, pair=0, n=2048):
    found = audit.pairs_of(EPISODE, (CROWD,), EVENT, "total")[pair]
    mechanism = audit.StreamMechanism(found, (CROWD,), EVENT, spend_all, SeededBits(derive(1, "n")), release)
    trials = audit_releases(mechanism, *mechanism.inputs(), COST, n, derive(1, "b"), spread=mechanism.spread())
    return trials, mechanism.noise_rows()


def test_neighbours_differ_in_k_clipped_chunks():
    pair, _, every = audit.pairs_of(EPISODE, (CROWD,), EVENT, "per_window")
    assert (pair.second["pedestrian"] - pair.first["pedestrian"]).tolist() == [[-48, 48], [0, 0]]  # K C, in quarters
    assert (every.second["pedestrian"] - every.first["pedestrian"]).tolist() == [[-48, 48]] * 2
    assert pair.first["pedestrian"][1].tolist() == [4 * 30, 2 * 30], "elsewhere it is the episode"


def test_a_right_mechanism_is_not_refuted_and_the_guess_is_as_good_as_it_can_be():
    """Two coordinates that each move by half the reach: the best guess is right in 1 - e^-(e/2) (1 + e/4) / 2."""
    trials, noise = made()
    assert not trials.refuted and not any(row["refuted"] for row in noise)
    assert noise[0]["ratio"] == pytest.approx(1, abs=.1) and noise[0]["n"] == 16 * BLOCK * 2
    best = 1 - np.exp(-.5) * (1 + .25) / 2  # P(L + L' > 0) of two ratios of reach 1/2
    assert trials.right / trials.trials == pytest.approx(best, abs=4 * .5 / np.sqrt(trials.trials))


def short_of(factor):
    """Releases with noise that is `factor` of what it says."""
    def release(given, *rest):
        out = release_windows(given, *rest)
        return replace(out, released={n: np.where(np.isnan(v), v, given[n] + np.rint(factor * (v - given[n])))
                                      for n, v in out.released.items()})
    return release


def test_noise_that_is_too_small_is_refuted_by_its_size_and_a_tenth_of_it_by_guessing_too():
    half, noise = made(short_of(.5))
    assert noise[0]["refuted"] and noise[0]["ratio"] == pytest.approx(.5, abs=.06)
    tenth, noise = made(short_of(.1))
    assert tenth.refuted and noise[0]["refuted"] and tenth.right > half.right


def test_a_mechanism_that_forgets_to_clip_is_refuted():
    ends = audit.pairs_of(EPISODE, (CROWD,), EVENT, "total")[0]
    middle = (ends.first["pedestrian"] + ends.second["pedestrian"]) // 2

    def unclipped(given, *rest):
        """What differs between the inputs ten times over, as raw values far above the cap would be."""
        return release_windows({"pedestrian": middle + 10 * (given["pedestrian"] - middle)}, *rest)

    assert made(unclipped)[0].refuted


def test_the_stage_reads_streams_and_refuses_a_claim_that_is_only_declared():
    spec = Spec("task_dp", None)
    stage = audit_stage(spec, method_facts(spec), suites.load("demo"), None, 400)
    assert stage.kind == "audit" and set(stage.inputs) == {"streams", "fit"}
    assert stage.inputs["streams"].config["dataset"] == STREAMS
    with pytest.raises(ConfigError, match="declared, not enforced"):
        audit_stage(spec, method_facts(spec) | {"lane": "declared"}, suites.load("demo"), None)
