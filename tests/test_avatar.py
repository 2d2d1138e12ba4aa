"""The two avatars at their ceilings: a reader without error, the real mechanism, fit, acting, wrong input."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from bench import Branch, ConfigError, Context, DataError, FullClaim, LabelClaim, PluginError, PrivateMethod, registry
from bench.avatar import acted
from bench.nets.avatar import unpadded_shares
from bench.nets.clip_expression import FRAMES, ClipExpressionNet, chosen_frames, unpadded
from bench.nets.training import use_threads
from bench.privacy import ceilings
from bench.privacy.accounting import price
from bench.privacy.bits import SeededBits
from bench.privacy.contract import full_claim
from bench.privacy.mechanism import clip_rows, run_streams
from bench.registry import Spec
from bench.run.enforced import EncodeWorker, PublicWorker
from bench.run.sandbox import available
from bench.seeds import derive, derive_torch

N, SIDE = 6, 64
PUBLIC = {"fps": 25.0, "canvas_px": SIDE, "profile": "tiny"}
REACHED = {1: 0.986, 2: 0.975, 8: 0.942, 16: 0.936}  # of Theorem 8's bound, n = 6, delta 1e-5; one integral each


def built(spec: str, **more):
    method = registry.build("methods", spec) if not more else registry.get("methods", spec)(**more)
    frames = np.zeros((N, 32, SIDE, SIDE, 3), np.uint8) + np.arange(N, dtype=np.uint8)[:, None, None, None, None] * 8
    frames[:, 16:] += 4
    method.load({"avatar": frames})
    return method


def label_of(video: np.ndarray) -> int:
    return int(video[0, 0, 0, 0]) // 8


def released(method, rows: np.ndarray, seed: int = 3) -> np.ndarray:
    """(B, 1, dim) of the real mechanism for B raw rows (B, dim), every one its own clip."""
    branch = method.branches[0]
    steps = clip_rows(rows, branch, len(rows))[0]
    return run_streams({branch.name: steps[:, None]}, method.branches, None, SeededBits(derive(seed, "avatar"))
                       ).released[branch.name]


def corner(method, label: int) -> np.ndarray:
    """What leaves a clip when the reader is certain of `label`."""
    method.probabilities = lambda atom: np.eye(N)[label]
    return next(iter(method.encode(None).values()))


# ---- avatar_dp -----------------------------------------------------------------------------------------------------

def perfect(epsilon: float) -> tuple[float, float, float]:
    """(accuracy of corners plus noise by quadrature, Theorem 8's bound, accuracy by the library) at this epsilon."""
    method = built("avatar_dp", epsilon=float(epsilon))
    sent = np.concatenate([corner(method, k) for k in range(N)])
    apart = np.linalg.norm(sent[:, None] - sent[None], axis=2)[np.triu_indices(N, 1)]
    assert apart == pytest.approx(math.sqrt(2 * N / (N - 1)), rel=1e-6) and np.abs(sent.sum(0)).max() < 1e-6
    shift = float(apart.mean()) / method.branches[0].floor / math.sqrt(2)  # the best coordinate leads by this
    value = quad(lambda z: stats.norm.pdf(z - shift) * stats.norm.cdf(z) ** (N - 1), -12, 12 + shift)[0]
    cost = price(full_claim(method))
    bound = ceilings.uar(ceilings.Loss.of(cost, norm_clipped=True), N)
    assert bound.theorem.startswith("Theorem 8") and cost.epsilon == pytest.approx(epsilon, rel=1e-9)
    return value, bound.bound, ceilings.top1_simplex(float(apart.mean()) / method.branches[0].floor, N)


@pytest.mark.parametrize("epsilon", REACHED)
def test_a_reader_without_error_reaches_this_much_of_the_ceiling(epsilon):
    value, bound, library = perfect(epsilon)
    assert value / bound == pytest.approx(REACHED[epsilon], abs=6e-4)
    assert library == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("epsilon", [2, 8])
def test_the_real_mechanism_and_the_decoder_reach_it(epsilon):
    method, truth = built("avatar_dp", epsilon=float(epsilon)), np.arange(6000) % N
    noisy = released(method, np.concatenate([corner(method, k) for k in range(N)])[truth])
    right = np.mean([label_of(method.render([{"expression": rows}], {**PUBLIC, "frames": 16}, "isolated")) == k
                     for rows, k in zip(noisy, truth)])
    expected = perfect(epsilon)[0]
    assert abs(right - expected) < 4 * math.sqrt(expected * (1 - expected) / len(truth))


def test_two_clips_are_decoded_together_as_one_of_twice_the_budget():
    method, truth = built("avatar_dp"), np.arange(4000) % N
    sent = np.concatenate([corner(method, k) for k in range(N)])[np.repeat(truth, 2)]
    noisy = released(method, sent).reshape(len(truth), 2, 1, N)
    right = np.mean([label_of(method.render([{"expression": r} for r in rows], {**PUBLIC, "frames": 32}, "assembled"))
                     == k for rows, k in zip(noisy, truth)])
    shift = math.sqrt(2) * math.sqrt(N / (N - 1)) / method.branches[0].floor
    expected = quad(lambda z: stats.norm.pdf(z - shift) * stats.norm.cdf(z) ** (N - 1), -12, 12 + shift)[0]
    assert abs(right - expected) < 4 * math.sqrt(expected * (1 - expected) / len(truth))


def test_a_wavering_reader_sends_the_best_vector_of_the_ball():
    """No vector of the ball has a larger expected inner product with the corner of the truth."""
    method, draw = built("avatar_dp"), np.random.default_rng(1)
    corners = np.concatenate([corner(method, k) for k in range(N)])
    for _ in range(20):
        probabilities = draw.dirichlet(np.full(N, 0.5))
        method.probabilities = lambda atom, p=probabilities: p
        sent = method.encode(None)["expression"][0]
        others = draw.standard_normal((500, N))
        others /= np.linalg.norm(others, axis=1, keepdims=True)
        assert 0.999 < np.linalg.norm(sent) < 1 and (others @ corners.T @ probabilities).max() <= \
            corners @ sent @ probabilities + 1e-6
        assert sent.argmax() == probabilities.argmax()
    method.probabilities = lambda atom: np.full(N, 1 / N)
    assert not method.encode(None)["expression"].any()


# ---- avatar_rr -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("epsilon", [1, 2, 8])
def test_randomised_response_keeps_the_label_exactly_as_often_as_it_may(epsilon):
    method, truth = built("avatar_rr", epsilon=epsilon), np.arange(30_000) % N
    out = released(method, np.concatenate([corner(method, k) for k in range(N)])[truth])[:, 0, 0].astype(int)
    keep = math.exp(epsilon) / (math.exp(epsilon) + N - 1)
    cost = price(full_claim(method))
    assert cost.epsilon == cost.epsilon_pure == epsilon and cost.delta == 0 and cost.mu is None
    assert ceilings.uar(ceilings.Loss.of(cost), N).bound == pytest.approx(keep, abs=1e-12)
    assert stats.binomtest(int((out == truth).sum()), len(truth), keep).pvalue > 1e-4
    moved = np.bincount((out - truth)[out != truth] % N, minlength=N)[1:]
    assert epsilon == 8 or stats.chisquare(moved).pvalue > 1e-4


def test_clips_of_one_video_vote_and_the_earlier_breaks_a_tie():
    method = built("avatar_rr")

    def decided(labels, frames):
        return label_of(method.render([{"label": np.array([[float(k)]])} for k in labels], {**PUBLIC, "frames": frames},
                                      "assembled"))

    assert decided([4, 1], 32) == 4 and decided([1, 4], 32) == 1
    assert decided([4, 1, 1], 48) == 1 and decided([4, 1, 1], 40) == 1
    assert decided([4, 1], 24) == 4 and decided([1, 4, 2], 40) == 1


# ---- one row a clip ------------------------------------------------------------------------------------------------

def scripted(*branches, **terms) -> PrivateMethod:
    method = PrivateMethod()
    method.branches, method.terms = branches, FullClaim(**{"unit": "clip", **terms})
    return method


def test_rows_of_a_clip_are_priced_one_by_one():
    one, all_rows = (price(full_claim(scripted(Branch("a", dim=2, floor=4.0, rows=r)))).rho for r in (1, 16))
    assert one == pytest.approx(0.125) and all_rows == pytest.approx(16 * one)
    label = {"dim": 1, "norm": "label", "clip": 6, "noise": "randomized_response", "epsilon": 1}
    assert price(full_claim(scripted(Branch("a", **label, rows=1)))).epsilon == 1
    assert price(full_claim(scripted(Branch("a", **label)))).epsilon == 16
    said = LabelClaim(classes=6, epsilon=1, labels=1)
    assert full_claim(scripted(Branch("a", **label, rows=1), unit="label", label=said)).label == said
    with pytest.raises(PluginError, match="16 rows"):
        full_claim(scripted(Branch("a", **label), unit="label", label=said))
    assert Branch.from_dict(Branch("a", **label, rows=1).as_dict()).rows == 1


def test_wrong_rows_are_refused():
    for rows in (0, 33, 1.5):
        with pytest.raises(ConfigError, match="rows"):
            Branch("a", dim=2, floor=1.0, rows=rows)
    with pytest.raises(PluginError, match="same rows"):
        full_claim(scripted(Branch("a", dim=2, floor=1.0), Branch("b", dim=2, floor=1.0, rows=1)))
    steps, bad = clip_rows(np.ones((16, 2)), Branch("a", dim=2, floor=1.0, rows=1), 1)
    assert bad and not steps.any()  # as many rows as declared, or none of them


# ---- fit, encode, acting -------------------------------------------------------------------------------------------

def patterned(label: int, draw, frames: int = 20) -> np.ndarray:
    """A bright square whose place names the label, on noise."""
    video = draw.integers(0, 60, (frames, SIDE, SIDE, 3)).astype(np.uint8)
    video[:, 20:40, 4 + 16 * label:20 + 16 * label] += 150
    return video


class Labelled:
    """Development data as `fit` gets it: a video and its expression, nothing else."""

    def __init__(self, labels, seed: int):
        draw = np.random.default_rng(seed)
        self.items = [SimpleNamespace(video=SimpleNamespace(frames=patterned(k, draw)), expression=k) for k in labels]

    def __iter__(self):
        return iter(self.items)


def context() -> Context:
    return Context(rng=lambda *names: derive(9, *names), torch_seed=lambda *names: derive_torch(9, *names),
                   report=lambda text: None)


def assets(labels: int = 6) -> dict:
    import torch

    torch.manual_seed(0)
    return {"clip_expression_method": {k: v.numpy() for k, v in ClipExpressionNet(6).state_dict().items()},
            "avatar_method": {"frames": np.zeros((labels, 32, SIDE, SIDE, 3), np.uint8)}}


@pytest.fixture(scope="module")
def fitted():
    use_threads()
    method = registry.get("methods", "avatar_rr")(classes=3, epochs=8)
    method.fit(Labelled([0, 1, 2] * 8, 1), assets(), context())
    again = registry.get("methods", "avatar_rr")(classes=3)
    again.load(method.state())
    return again


def test_the_reader_learns_expressions_and_goes_through_its_state(fitted):
    probe = Labelled([0, 1, 2] * 2, 2)
    found = [int(fitted.encode(item.video.frames[:16])["label"][0, 0]) for item in probe]
    assert found == [item.expression for item in probe]


def test_padding_is_not_read(fitted):
    clip = patterned(1, np.random.default_rng(4), 16)
    padded = np.concatenate([clip[:9], np.repeat(clip[8:9], 7, axis=0)])
    assert unpadded(padded) == 9 and unpadded(clip) == 16 and unpadded(np.repeat(clip[:1], 16, axis=0)) == 1
    np.testing.assert_array_equal(fitted.probabilities(padded), fitted.probabilities(padded[:9]))


@pytest.mark.parametrize("length", [1, 5, 8, 9, 16])
def test_chosen_frames_lie_in_the_clip_in_order(length):
    for phase in (0.0, 0.5, 0.999):
        places = chosen_frames(length, phase)
        assert len(places) == FRAMES and (np.diff(places) >= 0).all() and 0 <= places[0] and places[-1] < length


def test_too_many_labels_are_refused():
    method = registry.get("methods", "avatar_dp")()
    with pytest.raises(ConfigError, match="has 7"):
        method.fit(Labelled([0, 6], 1), assets(), context())
    with pytest.raises(ConfigError, match="acts 4"):
        method.fit(Labelled([0, 1], 1), assets(4), context())


@pytest.mark.parametrize("name", ["avatar_dp", "avatar_rr"])
def test_a_release_follows_from_released_values_alone(name):
    method, branch = built(name), registry.build("methods", name).branches[0]
    rows = [{branch.name: np.full((1, branch.dim), 2.0)} for _ in range(3)]
    one = method.render(rows, {**PUBLIC, "frames": 40}, "assembled")
    assert one.shape == (48, SIDE, SIDE, 3) and one.dtype == np.uint8
    assert one.tobytes() == method.render(rows, {**PUBLIC, "frames": 40, "fps": 30.0}, "assembled").tobytes()
    assert (one[:16] % 8 == 0).all() and (one[16:] % 8 == 4).all()  # the onset comes once
    with pytest.raises(ConfigError, match="32 px"):
        method.render(rows, {**PUBLIC, "frames": 40, "canvas_px": 32}, "assembled")


def test_shares_of_clips_that_are_not_padding():
    assert unpadded_shares(3, 40).tolist() == [1, 1, 0.5] and unpadded_shares(1, 16).tolist() == [1]


# ---- the avatar itself ---------------------------------------------------------------------------------------------

class Faces:
    """Prepared public people; a video's value is its number."""

    labels = ["anger", "happy"]

    def __init__(self, *rows):
        self._rows = [SimpleNamespace(video=f"{p}_{label}_{i}", person=p, label=label, frames=f, value=i,
                                      attributes='{"glasses": 1}' if p == "0" else "{}")
                      for i, (p, label, f) in enumerate(rows)]

    def rows(self, part):
        return self._rows if part == "public" else []

    def video(self, row):
        return SimpleNamespace(frames=np.full((row.frames, 4, 4, 3), row.value, np.uint8))


def test_the_avatar_is_one_public_person():
    faces = Faces(("b", "anger", 32), ("a", "happy", 40), ("a", "anger", 20), ("a", "anger", 33), ("b", "happy", 32),
                  ("0", "anger", 32), ("0", "happy", 32))
    frames = acted(faces)["frames"]
    assert frames.shape == (2, 32, 4, 4, 3) and frames[:, 0, 0, 0, 0].tolist() == [3, 1]  # not the one with glasses


@pytest.mark.parametrize("rows", [(), (("a", "anger", 32),), (("a", "anger", 32), ("a", "happy", 31))])
def test_an_avatar_that_cannot_act_is_refused(rows):
    with pytest.raises(DataError):
        acted(Faces(*rows))


# ---- locked in -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["avatar_dp", "avatar_rr"])
def test_it_reads_and_acts_in_the_locked_in_workers(name):
    """What the encode and the public process give is what the method gives here, bit for bit."""
    use_threads()
    cls, start = registry.get("methods", name), assets()
    method = cls()
    method.load({"avatar": start["avatar_method"]["frames"]}
                | {f"reader:{k}": v for k, v in start["clip_expression_method"].items()})
    clip = patterned(2, np.random.default_rng(5), 16)
    with EncodeWorker(Spec(name), method.state(), available()) as worker:
        rows = worker.encode(clip)
    branch = method.branches[0].name
    assert set(rows) == {branch} and rows[branch].tobytes() == np.asarray(method.encode(clip)[branch]).tobytes()
    with PublicWorker(Spec(name), "tiny", available()) as public:
        public.load_state(method.state())
        video = public.render([rows, rows], {**PUBLIC, "frames": 27}, "assembled")
    assert video.tobytes() == method.render([rows, rows], {**PUBLIC, "frames": 27}, "assembled")[:27].tobytes()
