"""Pricing against dp-accounting's RDP accountant on the same 16 cases, in one run."""

import json
import time
from pathlib import Path

import pytest

from bench.privacy.accounting import gaussian_rho, price
from bench.privacy.claims import BranchClaim, FullClaim
from bench.privacy.conversions import epsilon_cks

pytestmark = pytest.mark.perf
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "golden_tadp.json").read_text())
CLAIMS = [FullClaim("clip", frames=g["T"], clips=g["K"], delta=g["delta"],
                    branches=tuple(BranchClaim(b, "gaussian", g[f"C_{b}"], g[f"s_{b}"]) for b in ("id", "expr")))
          for g in GOLDEN]


def seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def full():
    """All conversions, checks and sentences."""
    return [price(c) for c in CLAIMS]


def rdp_only():
    """What the RDP accountant gives, and no more: the composed curve and its epsilon at delta."""
    return [epsilon_cks(gaussian_rho(c.branches, c.frames, c.clips), c.delta) for c in CLAIMS]


def test_pricing_takes_less_than_a_millisecond():
    each = min(seconds(full) for _ in range(50)) / len(CLAIMS)
    print(f"price: {each * 1e6:.0f} us a claim, all conversions")
    assert each < 1e-3


@pytest.mark.filterwarnings("ignore")
def test_a_hundred_times_faster_than_the_rdp_accountant():
    dpa = pytest.importorskip("dp_accounting")

    def event(g):
        both = [dpa.GaussianDpEvent(g[f"s_{b}"] / (2 * g[f"C_{b}"])) for b in ("id", "expr")]
        return dpa.SelfComposedDpEvent(dpa.ComposedDpEvent(both), g["T"] * g["K"])

    events = [event(g) for g in GOLDEN]

    def theirs():
        return [dpa.rdp.RdpAccountant().compose(e).get_epsilon(g["delta"]) for e, g in zip(events, GOLDEN)]

    assert all(a <= b for a, b in zip(rdp_only(), theirs()))
    slow, fast, whole = [], [], []
    for _ in range(8):  # in turn, so that a busy machine slows all of them
        slow.append(seconds(theirs))
        fast += [seconds(rdp_only) for _ in range(40)]
        whole += [seconds(full) for _ in range(40)]
    print(f"16 cases: {min(slow) * 1e3:.1f} ms; same bound {min(fast) * 1e3:.3f} ms, {min(slow) / min(fast):.0f} times "
          f"faster; with all conversions {min(whole) * 1e3:.3f} ms, {min(slow) / min(whole):.0f} times")
    assert min(slow) / min(fast) >= 100
