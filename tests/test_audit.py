"""The audit as it runs: right mechanisms pass at the nominal rate, each kind of broken one is caught by the same code.

`Simulated` draws a release by its exact sufficient statistics: 16 frames, two branches of 1,024 coordinates, each
row told by its projection on the difference of the inputs and the norm of the rest; C = (.25, .4), shares .3 / .7,
epsilon 2 at delta 1e-5. The numbers of releases are those at which the reference experiment catches each fault.
"""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from conftest import PLUGINS

from bench import registry
from bench.errors import ConfigError
from bench.privacy import mechanism
from bench.privacy.accounting import floors, price
from bench.privacy.bits import SeededBits
from bench.privacy.claims import BranchClaim, FullClaim
from bench.privacy.contract import Branch, Plan
from bench.privacy.conversions import mu_exact
from bench.privacy.mechanism import clip_rows, run_streams, unit_of
from bench.privacy.noise import discrete_laplace, randomized_response
from bench.registry import Spec
from bench.run import stage_audit
from bench.run import suite as suites
from bench.run.audit_plan import audit_stage, refuted_methods
from bench.run.audit_trials import audit_releases, canary, detectable, distance, releases_for_scale, scale_row
from bench.run.cache import WorkFolder, write_json
from bench.run.road import acted_on
from bench.run.stages import Job
from bench.run.workers import method_facts
from bench.seeds import derive

FRAMES, DIM = 16, 1024
NORMS = {"id": 0.25, "expr": 0.4}
FLOORS = floors(2, 1e-5, clip_norm=NORMS, share={"id": 0.3, "expr": 0.7}, frames=FRAMES)
PRICE = price(FullClaim("clip", branches=tuple(BranchClaim(b, "gaussian", NORMS[b], FLOORS[b]) for b in NORMS)))
SHORT = math.sqrt(0.5)


# ---- simulated mechanisms ----

@dataclass
class Simulated:
    """raw: norm over C that reaches the noise; shrink: factor on the scale; leak: relative change of the scale with
    the input; adaptive: the scale of a frame grows with what the frame before released."""

    rng: np.random.Generator
    raw: float = 1.0
    shrink: float = 1.0
    leak: float = 0.0
    adaptive: bool = False

    def __call__(self, bits):
        out = {}
        for name, c in NORMS.items():
            rows, extra = np.empty((len(bits), FRAMES, 2)), np.zeros(len(bits))
            for t in range(FRAMES):
                s = FLOORS[name] * self.shrink * (1 + extra) * (1 + self.leak * bits)
                rows[:, t, 0] = np.where(bits, c, -c) * self.raw + s * self.rng.normal(size=len(bits))
                rows[:, t, 1] = s * np.sqrt(self.rng.chisquare(DIM - 1, size=len(bits)))
                extra = 0.2 / (1 + np.exp(-rows[:, t, 0])) if self.adaptive else extra
            out[name] = rows
        return out


ENDS = [{b: np.tile([sign * c, 0.0], (FRAMES, 1)) for b, c in NORMS.items()} for sign in (-1, 1)]


def simulated(seed, n, **broken):
    """The audit of a simulated mechanism whose claim is epsilon 2."""
    return audit_releases(Simulated(derive(seed, "noise"), **broken), *ENDS, PRICE, n, derive(seed, "bits"),
                          spread=FLOORS)


def test_the_claim_is_that_of_the_reference():
    assert PRICE.mu == pytest.approx(mu_exact(2, 1e-5)) == pytest.approx(0.501552, abs=1e-6)
    assert distance(*ENDS, FLOORS) == pytest.approx(PRICE.mu)  # the inputs are as far apart as the claim allows


@pytest.mark.parametrize("adaptive", [False, True])
def test_right_mechanisms_are_refuted_at_the_nominal_rate_only(adaptive):
    found = [simulated(seed, 400, adaptive=adaptive) for seed in range(40)]
    assert sum(t.refuted for t in found) <= 6  # P(Bin(40, .05) > 6) = .0034
    assert sum(t.joint.refutes_mu(PRICE.mu) or t.joint.refutes_epsilon(2) for t in found) <= 6
    assert np.mean([t.right / t.trials for t in found]) > 0.52  # the audit is not blind
    assert all(t.n == 400 and t.trials == 200 for t in found)


@pytest.mark.parametrize("n, broken", [
    (10_000, {"shrink": SHORT}), (500, {"raw": 3.0}), (200, {"leak": 0.01}),
], ids=["noise too small by sqrt 2", "clip forgotten, 3C", "scale read from raw data, 1 %"])
def test_each_broken_mechanism_is_caught(n, broken):
    for seed in range(3):
        found = simulated(seed, n, **broken)
        assert found.refuted and found.bit.mu > PRICE.mu and found.bit.epsilon_of_mu > 2
        assert not simulated(seed, n).refuted or seed  # the same number of releases passes a right one


def test_a_larger_beta_gives_larger_bounds_and_one_half_of_the_releases_is_counted():
    strict = audit_releases(Simulated(derive(1, "a")), *ENDS, PRICE, 300, derive(1, "b"), spread=FLOORS, beta=0.001)
    loose = audit_releases(Simulated(derive(1, "a")), *ENDS, PRICE, 300, derive(1, "b"), spread=FLOORS, beta=0.2)
    assert strict.right == loose.right and strict.bit.mu < loose.bit.mu and strict.trials == 150


def test_what_could_be_detected_grows_with_the_releases():
    seen = [detectable(PRICE, n) for n in (100, 1000, 10_000)]
    assert seen == sorted(seen, reverse=True) and seen[-1] > 2
    assert detectable(PRICE, 3) == math.inf


# ---- the trusted loop, whole and broken ----

LATENT = Branch("latent", dim=8, clip=1.0, floor=floors(8, 1e-5, clip_norm={"latent": 1.0}, share={"latent": 1.0},
                                                        frames=FRAMES)["latent"])


def looped(n, *, branch=LATENT, clip=clip_rows, shrink=1.0, peek=0.0, seed=0):
    """The audit of the real loop, with inputs far outside the clip. shrink: of the noise; peek: of the scale."""
    raw = [canary(np.ones((FRAMES, branch.dim)), branch, sign) for sign in (-1, 1)]
    expected = [clip_rows(rows, branch, FRAMES)[0] for rows in raw]
    given = [clip(rows, branch, FRAMES)[0] for rows in raw]
    bits, seen = SeededBits(derive(seed, "loop")), {}
    executed = Branch(branch.name, branch.dim, clip=branch.clip, floor=branch.floor * shrink)

    def release(which):
        def planner(t, past, memory):
            return Plan({branch.name: np.where(which, 1 + peek, 1) * branch.floor * shrink})

        out = run_streams({branch.name: np.where(which[:, None, None], given[1], given[0])}, (executed,), planner, bits)
        seen.setdefault("first", (which, out))
        return out.released

    ends = [{branch.name: steps * unit_of(branch)} for steps in expected]
    cost = price(FullClaim("clip", branches=(branch.as_claim(FRAMES),)))
    found = audit_releases(release, *ends, cost, n, derive(seed, "bits"), spread={branch.name: branch.floor})
    which, out = seen["first"]
    few = releases_for_scale([branch], FRAMES)
    known = np.where(which[:few, None, None], ends[1][branch.name], ends[0][branch.name])
    stated = np.full((few, FRAMES), branch.floor)
    return found, scale_row(branch, out.released[branch.name][:few], known, stated)


def unclipped(rows, branch, count):
    return np.rint(np.asarray(rows) / unit_of(branch)).astype(np.int64), False


def test_the_trusted_loop_passes_and_keeps_its_noise():
    found, noise = looped(2000)
    assert not found.refuted and not noise["refuted"] and noise["ratio"] == pytest.approx(1, abs=0.03)
    assert found.bit.mu > 1.2  # of 1.67: nearly all that the claim allows


def test_a_loop_that_draws_too_little_noise_is_caught_by_guesses_and_by_its_noise():
    found, noise = looped(2000, shrink=SHORT)
    assert found.refuted and noise["refuted"] and noise["ratio"] == pytest.approx(SHORT, abs=0.03)


def test_a_loop_that_forgets_to_clip_is_caught():
    found, _ = looped(500, clip=unclipped)
    assert found.refuted and found.bit.mu > 2


def test_a_scale_that_peeks_at_the_input_is_caught_although_it_never_falls_below_its_floor():
    wide = Branch("latent", dim=1024, clip=1.0, floor=40.0)
    found, noise = looped(320, branch=wide, peek=0.02)
    assert found.refuted and not noise["refuted"]
    assert not looped(320, branch=wide)[0].refuted


# ---- canaries and the size of the noise ----

@pytest.mark.parametrize("branch, span", [
    (Branch("b", dim=6, clip=2.0, floor=1.0), 4.0),
    (Branch("b", dim=6, norm="box", clip=5, floor=1.0), 5 * math.sqrt(6)),
    (Branch("b", dim=6, norm="l1", clip=7, noise="discrete_laplace", epsilon=1), 14.0),
    (Branch("b", dim=1, norm="label", clip=6, noise="randomized_response", epsilon=1), 5.0)])
def test_a_canary_lies_far_outside_and_clips_to_the_diameter(branch, span):
    rows = derive(1, "rows").normal(size=(FRAMES, branch.dim))
    ends = [canary(rows, branch, sign) for sign in (-1, 1)]
    clipped = [clip_rows(end, branch, FRAMES)[0] * unit_of(branch) for end in ends]
    assert np.linalg.norm(clipped[1] - clipped[0], axis=1) == pytest.approx(span, rel=1e-4)
    assert np.linalg.norm(ends[1], axis=1).min() > 2.9 * np.linalg.norm(clipped[1], axis=1).max()
    assert np.isfinite(canary(np.full((FRAMES, branch.dim), np.nan), branch, 1)).all()


def gaussian_noise(seed, std, releases=1):
    return derive(seed, "one").normal(0, std, size=(releases, FRAMES, DIM))


def test_one_release_always_shows_noise_too_small_by_root_two():
    branch, stated = Branch("b", dim=DIM, floor=7.3), np.full((1, FRAMES), 7.3)
    zero = np.zeros((1, FRAMES, DIM))
    short = [scale_row(branch, gaussian_noise(s, 7.3 * SHORT), zero, stated) for s in range(60)]
    right = [scale_row(branch, gaussian_noise(s, 7.3), zero, stated) for s in range(60)]
    assert all(r["refuted"] for r in short) and sum(r["refuted"] for r in right) <= 1
    assert short[0]["n"] == FRAMES * DIM and short[0]["resolves"] == pytest.approx(0.017, abs=5e-4)
    assert releases_for_scale([branch], FRAMES) == 1 and releases_for_scale([LATENT], FRAMES) == 64


def test_a_stated_scale_under_the_floor_is_a_fault_by_itself():
    branch = Branch("b", dim=DIM, floor=7.3)
    row = scale_row(branch, gaussian_noise(1, 5.0), np.zeros((1, FRAMES, DIM)), np.full((1, FRAMES), 5.0))
    assert row["p"] > 0.001 and row["under_floor"] and row["refuted"]


def test_discrete_noise_is_measured_by_its_own_laws():
    cells = Branch("b", dim=64, norm="l1", clip=30, noise="discrete_laplace", epsilon=1)
    shape, bits = (4, FRAMES, 64), SeededBits(derive(3, "laws"))
    given, stated = np.full(shape, 9.0), np.full(shape[:2], 60.0)
    rows = [scale_row(cells, given + discrete_laplace(shape, scale, bits), given, stated) for scale in (60, "42.4")]
    assert [r["refuted"] for r in rows] == [False, True] and rows[1]["ratio"] == pytest.approx(SHORT, abs=0.04)
    label = Branch("b", dim=1, norm="label", clip=6, noise="randomized_response", epsilon=1)
    given = np.full((64, FRAMES, 1), 2)
    rows = [scale_row(label, randomized_response(given, 6, e, bits), given, stated) for e in (1, "1.4")]
    assert [r["refuted"] for r in rows] == [False, True] and rows[1]["ratio"] < 0.95


# ---- the stage ----

CAREFUL = '''"""A method that is audited."""

from bench import Branch, FullClaim, Plan, PrivateMethod, method


@method("careful")
class Careful(PrivateMethod):
    """Releases the mean colour; its scale grows where the frame before was bright."""

    branches = (Branch("colour", dim=3, clip=1.0, floor=12.0),)
    terms = FullClaim(unit="clip")

    def encode(self, atom):
        return {"colour": atom.mean(axis=(1, 2)) / 255.0}

    def plan(self, t, past, memory, public):
        bright = past["colour"].sum(axis=1) if "colour" in past else 0.0
        return Plan({"colour": 12.0 * (1 + 0.2 * (bright > 0))} if t else {})

    def render(self, transcripts, public, decoding):
        raise NotImplementedError
'''


@pytest.fixture(scope="module")
def facts(tmp_path_factory, plugins):
    """Facts of a method with a process of its own, and of one that a trusted reader encodes."""
    path = tmp_path_factory.mktemp("careful") / "careful.py"
    path.write_text(CAREFUL, encoding="utf-8")
    patch = pytest.MonkeyPatch()
    patch.setenv(registry.EXTRA, f"{PLUGINS / 'blocks.py'}:{PLUGINS / 'blocks_public.py'}:{path}")
    registry._locations.cache_clear()
    yield {name: method_facts(Spec(name)) for name in ("careful", "dp_pix")}
    patch.undo()
    registry._locations.cache_clear()


@pytest.fixture
def audited(facts, small, tmp_path):
    """Run the stage in this process; returns audit.json."""
    def run(name, releases):
        out = tmp_path / f"audit-{len(list(tmp_path.iterdir()))}"
        out.mkdir()
        said = acted_on(facts[name])
        stage_audit.run_audit(Job({"method": name, "variant": None, "profile": "tiny", "seed": 42, "facts": said,
                                   "releases": releases}, {"clips": small}, out, lambda text: None))
        return json.loads((out / "audit.json").read_text(encoding="utf-8"))
    return run


def test_the_stage_passes_a_method_whose_scale_follows_the_history(audited):
    found = audited("careful", 400)
    assert not found["refuted"] and found["n"] == 400 and found["isolation"]["level"] >= 1
    assert [p["pair"] for p in found["pairs"]] == ["people", "grey", "canary"]
    far = {p["pair"]: p["distance"] for p in found["pairs"]}
    assert far["canary"] == pytest.approx(found["price"]["mu"], rel=1e-4) and far["people"] < far["canary"]
    assert found["bound"] == max(p["epsilon"] for p in found["pairs"]) < found["claim"]["epsilon"]
    assert found["scale"][0]["ratio"] == pytest.approx(1, abs=0.1)
    assert sum(p["n"] for p in found["pairs"]) == 400 and found["detectable"] > found["claim"]["epsilon"]


def test_the_stage_catches_a_harness_that_draws_too_little_or_forgets_to_clip(audited, monkeypatch):
    real = mechanism.gaussian_steps
    with monkeypatch.context() as patch:
        patch.setattr(mechanism, "gaussian_steps", lambda shape, std, *more: real(shape, std * SHORT, *more))
        found = audited("careful", 60)
    assert found["refuted"] and found["scale"][0]["ratio"] == pytest.approx(SHORT, abs=0.1)
    monkeypatch.setattr(stage_audit, "clip_rows", unclipped)
    found = audited("careful", 600)
    assert found["refuted"] and [p["refuted"] for p in found["pairs"]] == [False, False, True]
    assert not found["scale"][0]["refuted"]


def test_the_stage_audits_pixels_on_neighbours_of_the_claim(audited, monkeypatch):
    found = audited("dp_pix", 200)
    assert not found["refuted"] and found["isolation"] is None and found["price"]["epsilon_pure"] == 8
    assert found["bound_mu"] is None and found["detectable"] == "inf"
    far = math.sqrt(16 * 3) * 16 * 255 / (math.sqrt(2) * 16 * 255 * 48 / 8)  # 48 draws move by 16 * 255 each
    assert [p["distance"] for p in found["pairs"]] == pytest.approx([far, far])
    real = mechanism.discrete_laplace
    monkeypatch.setattr(mechanism, "discrete_laplace",
                        lambda shape, scale, bits: real(shape, scale * Fraction(7, 10), bits))
    assert audited("dp_pix", 60)["refuted"]


def test_a_pixels_claim_that_its_branches_do_not_back_is_refuted(facts, audited, monkeypatch):
    """A method that encodes by itself, with noise far too small for the m pixels that it claims."""
    quiet = {**facts["careful"]["branches"][0], "floor": 0.02}
    claim = {**facts["dp_pix"]["full_claim"]["claim"], "scale": "1000000"}  # epsilon 0.2
    monkeypatch.setitem(facts, "careful", {**facts["careful"], "branches": [quiet], "plans": False,
                                           "full_claim": {"claim": claim}})
    found = audited("careful", 400)
    assert found["refuted"] and [p["pair"] for p in found["pairs"]] == ["pixels", "grey_pixels"]


def test_an_audit_is_the_same_again(audited):
    assert audited("dp_pix", 80) == audited("dp_pix", 80)


# ---- plan, command ----

def demo_on_blocks():
    return suites.load("demo").model_copy(update={"dataset": "blocks"})


def test_the_plan_follows_releases_and_refuses_what_cannot_be_audited(facts):
    suite, spec, found = demo_on_blocks(), Spec("dp_pix"), facts["dp_pix"]
    one, two = (audit_stage(spec, found, suite, None, n) for n in (100, 200))
    assert one.digest != two.digest and [s.kind for s in one.all()] == ["clips", "audit"]
    assert audit_stage(spec, found | {"fits": True, "assets": []}, suite, None).inputs.keys() == {"clips", "fit"}
    for n in (39, 1_000_001, 50.5):
        with pytest.raises(ConfigError, match="--releases"):
            audit_stage(spec, found, suite, None, n)
    for changed, said in (({"lane": "none"}, "nothing to audit"), ({"lane": "declared"}, "declared, not enforced")):
        with pytest.raises(ConfigError, match=said):
            audit_stage(spec, found | changed, suite, None, 100)


def test_the_command_says_what_was_found_and_its_exit_code_is_the_verdict(facts, cli, tmp_path, small):
    work, words = WorkFolder(tmp_path / "work"), ("audit", "dp_pix", "--dataset", "blocks", "--releases", 60)
    words = (*words, "--workdir", work.root)
    clips = audit_stage(Spec("dp_pix"), facts["dp_pix"], demo_on_blocks(), None, 60).inputs["clips"]
    folder = shutil.copytree(small, work.stage("clips", clips.digest))  # as if it had been prepared before
    write_json(folder / "stage.json", {})
    answer = cli(*words, "--format", "json")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    again = cli(*words)
    assert again.code == 0 and found["n"] == 60 and "0 stages run, 2 were there already" in again.out
    for said in ("60 releases", "epsilon 8, pure", f"at least {found['bound']:.3g}", "NOT REFUTED", "never prove",
                 "--releases 45000", "mean size on"):
        assert said in again.out
    expected = {"refuted": False, "bound": found["bound"], "claim": 8.0, "n": 60,
                "source": registry.source_digest("methods", "dp_pix")}
    assert refuted_methods(work) == {"dp_pix": expected}
    path = next(work.root.glob("stages/audit/*/audit.json"))
    path.write_text(json.dumps(found | {"refuted": True}), encoding="utf-8")  # as a finished audit that failed
    refused = cli(*words)
    assert refused.code == 1 and "REFUTED. An observer" in refused.out and "NOT REFUTED" not in refused.out
    assert refuted_methods(work)["dp_pix"]["refuted"]


@pytest.mark.parametrize("words, said", [
    (("blur",), "nothing to audit"), (("blurr",), "Did you mean blur"), (("dp_pix", "--releases", 10), "--releases"),
    (("dp_pix", "--format", "xml"), "--format json"), (("dp_pix", "--dataset", "videofolder"), "--root DIR")])
def test_a_mistake_is_one_paragraph_and_exit_code_2(facts, cli, words, said):
    answer = cli("audit", *words)
    assert answer.code == 2 and said in answer.err and len(answer.err.strip().splitlines()) == 1
