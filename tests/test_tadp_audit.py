"""The audit of TADP's own claim: its branches, its floors and its recurrent scale, through the trusted loop."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bench.nets.training import use_threads
from bench.privacy import mechanism
from bench.privacy.accounting import price
from bench.privacy.bits import SeededBits
from bench.privacy.contract import full_claim
from bench.privacy.mechanism import clip_rows
from bench.run.audit_trials import canary
from bench.run.stage_audit import Mechanism, Pair, _audit_pair
from bench.seeds import derive
from methods.tadp import TADP
from methods.tadp.scale import ScalePredictor

FRAMES, RELEASES, BETA = 16, 700, 0.02
SHORT = math.sqrt(0.5)


@pytest.fixture(scope="module")
def method() -> TADP:
    """TADP with a scale module that follows the history; nothing after the noise is needed to audit it."""
    use_threads()
    made = TADP()
    torch.manual_seed(4)
    made.scale = ScalePredictor(made.size.dim, made.floors)
    for head in made.scale.heads.values():
        torch.nn.init.normal_(head[2].weight, std=0.2)
    made.contextualizer = torch.nn.Identity()  # as if it were loaded
    return made


def audited(method: TADP):
    """(row of the report, tests of the noise) for two inputs far outside the clip, as far apart as the claim allows."""
    ends = [{b.name: clip_rows(canary(np.ones((FRAMES, b.dim)), b, sign), b, FRAMES)[0] for b in method.branches}
            for sign in (-1, 1)]
    loop = Mechanism(Pair("canary", *ends), method.branches, {}, lambda t, past, memory: method.plan(
        t, past, memory, {"canvas_px": 64, "profile": "tiny"}), SeededBits(derive(9, "noise")))
    row, _ = _audit_pair(loop, RELEASES, price(full_claim(method)), derive(9, "bits"), BETA)
    return row, {noise["branch"]: noise for noise in loop.noise_rows()}, loop.first_block[1].scales


def test_the_audit_does_not_refute_tadp(method):
    row, noise, scales = audited(method)
    assert not row["refuted"] and row["distance"] == pytest.approx(1.666030598, rel=1e-3)  # mu of epsilon 8
    assert 0.9 < row["mu"] < 1.666  # the inputs are told apart, never better than allowed
    for branch in method.branches:
        assert not noise[branch.name]["refuted"] and noise[branch.name]["ratio"] == pytest.approx(1, abs=0.03)
        assert (scales[branch.name] >= branch.floor).all() and np.ptp(scales[branch.name]) > 0


def test_the_audit_refutes_a_copy_with_noise_cut_by_root_two(method, monkeypatch):
    real = mechanism.gaussian_steps
    monkeypatch.setattr(mechanism, "gaussian_steps", lambda shape, std, *more: real(shape, std * SHORT, *more))
    row, noise, _ = audited(method)
    assert row["refuted"] and row["mu"] > 1.666
    for name in ("id", "expr"):
        assert noise[name]["refuted"] and noise[name]["ratio"] == pytest.approx(SHORT, abs=0.03)
