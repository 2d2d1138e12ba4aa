"""The differentiable release loop: the clip of a release, its law, its floor, and gradients for both networks."""

import numpy as np
import pytest
import torch
from scipy import stats
from test_clip_rows import BALL, DIAMOND, KINDS, LABEL, rng, seeded
from test_privacy_noise import ALPHA, generator

from bench import Branch, Plan, PluginError, PrivateMethod
from bench.privacy.mechanism import clip_rows, run_streams, unit_of
from bench.privacy.simulate import _clip_class, simulate, simulator
from bench.run.worker_main import Session

SPENT = Branch("count", dim=2, norm="l1", clip=5, noise="discrete_laplace")
names = {"ids": lambda k: f"{k.norm} {k.noise}"}


class Scripted(PrivateMethod):
    """Branches and a plan, nothing else."""

    def __init__(self, *branches, plan=None):
        self.branches = branches
        if plan:
            self.plan = plan


def sizes(branch, count=500):
    """float64 (count, dim): rows far inside, near the edge, far outside, and some that are no numbers."""
    draws = rng("sizes", branch.name, branch.norm)
    rows = draws.standard_normal((count, branch.dim)) * branch.clip * 10.0 ** draws.uniform(-4, 4, (count, 1))
    rows[:8] *= 1e305
    rows[8, 0], rows[9, 0], rows[10] = np.nan, np.inf, 5e-324
    return rows


# ---- clip ----

@pytest.mark.parametrize("branch", KINDS, **names)
def test_forward_is_the_clip_of_a_release_bit_for_bit(branch):
    with np.errstate(over="ignore"):
        rows = sizes(branch).reshape(50, 10, branch.dim)
    steps, _ = clip_rows(rows.reshape(500, -1), branch, 500)
    twin = _clip_class().apply(torch.from_numpy(rows), branch)
    assert twin.dtype == torch.float64 and twin.numpy().tobytes() == (steps * unit_of(branch)).tobytes()
    half = torch.from_numpy(np.nan_to_num(rows, posinf=0)).float()
    steps, _ = clip_rows(half.numpy().reshape(500, -1), branch, 500)
    expected = (steps * unit_of(branch)).astype(np.float32).reshape(50, 10, -1)
    assert np.array_equal(_clip_class().apply(half, branch).numpy(), expected)


def backward(rows, branch, weight):
    values = torch.from_numpy(rows).requires_grad_()
    return torch.autograd.grad((_clip_class().apply(values, branch) * weight).sum(), values)[0]


def finite_difference(rows, branch, weight, h=0.01):
    """Central differences of the weighted clipped values, coordinate by coordinate."""
    out = np.zeros_like(rows)
    for i in range(branch.dim):
        shift = np.zeros(branch.dim)
        shift[i] = h
        up, down = (clip_rows(rows + s * shift, branch, len(rows))[0] * unit_of(branch) for s in (1, -1))
        out[:, i] = ((up - down) * weight.numpy()).sum(axis=1) / (2 * h)
    return out


@pytest.mark.parametrize("branch", [BALL, Branch("b", dim=4, norm="box", clip=2.0, floor=1.0)], **names)
def test_backward_is_the_gradient_of_the_projection(branch):
    rows = rng("fd").normal(0.5, 1.2, (400, 4)) * rng("far").uniform(0.3, 4, (400, 1))
    edge = np.abs(np.linalg.norm(rows, axis=1) - 2.5) if branch.norm == "l2" else \
        np.minimum(np.abs(rows), np.abs(rows - 2)).min(axis=1)
    rows = rows[edge > 0.05]
    weight = torch.from_numpy(rng("weight").normal(0, 1, rows.shape))
    ours, theirs = backward(rows, branch, weight).numpy(), finite_difference(rows, branch, weight)
    assert np.abs(ours - theirs).max() < 2e-3 and np.abs(ours).max() > 1
    moved = np.abs(ours - weight.numpy()) > 1e-9
    assert 0.1 < moved.mean() < 0.9  # some inside, some outside


def test_backward_outside_the_other_balls():
    weight = torch.ones(4, 4, dtype=torch.float64)
    rows = np.array([[1.0, -2, 3, 4], [10, -10, 1, 0], [30, 0, 0, 0], [np.nan, 1, 1, 1]])
    assert backward(rows, DIAMOND, weight).tolist() == [[1] * 4, [0] * 4, [0] * 4, [0] * 4]
    assert backward(np.array([[5.0], [5.2], [-0.1], [2.4]]), LABEL, weight[:, :1]).ravel().tolist() == [1, 0, 0, 1]
    huge = backward(np.array([[1e308, 1e308, 0, 0], [1e-310, 0, 0, 0], [0, 0, 0, 0], [np.inf] * 4]), BALL, weight)
    assert torch.isfinite(huge).all() and huge[1:].tolist() == [[1] * 4, [1] * 4, [0] * 4]


# ---- one law ----

def both(branches, values, plan, *, streams=20_000, **more):
    """Released values and scales of the release and of its twin, for the same clipped values."""
    rows = {k.name: np.tile(np.asarray(values[k.name], float), (streams, 1, 1)) for k in branches}
    steps = {k.name: clip_rows(rows[k.name].reshape(-1, k.dim), k, rows[k.name].size // k.dim)[0].reshape(
        rows[k.name].shape) for k in branches}
    planner = (lambda t, past, memory: plan(t, past, memory, {})) if plan else None
    real = run_streams(steps, branches, planner, seeded("law", branches[0].name), **more)
    released, scales = simulate(Scripted(*branches, plan=plan), {k: torch.from_numpy(v) for k, v in rows.items()}, {},
                                generator=generator("law", branches[0].name))
    return real, {k: v.numpy() for k, v in released.items()}, {k: v.numpy() for k, v in scales.items()}


def same_counts(a, b):
    """p-value: two samples of whole numbers are of one law; cells with few draws are joined."""
    low, high = np.quantile(np.concatenate([a, b]), [0.002, 0.998])
    cells = [np.bincount((np.clip(v, low, high) - low).astype(int), minlength=int(high - low) + 1) for v in (a, b)]
    return stats.chi2_contingency(np.array(cells)[:, np.sum(cells, axis=0) > 10]).pvalue


def test_gaussian_streams_with_history():
    def plan(t, past, memory, public):
        return Plan({"id": 1.0 + abs(past["id"][:, 0])} if past else {}, memory={"t": t})

    branch = Branch("id", dim=2, clip=2.5, floor=1.5)
    real, released, scales = both((branch,), {"id": [[3, -1], [0.5, 9], [0, 1]]}, plan)
    for t in range(3):
        for i in range(2):
            assert stats.ks_2samp(real.released["id"][:, t, i], released["id"][:, t, i]).pvalue > ALPHA
    assert (scales["id"][:, 0] == 1.5).all() and (scales["id"] >= 1.5).all() and real.raised > 1000
    assert stats.ks_2samp(real.scales["id"][:, 2], scales["id"][:, 2]).pvalue > ALPHA
    assert stats.ks_2samp(real.released["id"][:, 1, 0] * 1.1, released["id"][:, 1, 0]).pvalue < ALPHA  # can fail


def test_laplace_labels_and_clear_values():
    branches = (DIAMOND, LABEL, Branch("pose", dim=1, clip=3.0, noise=None))
    small = Branch("count", dim=4, norm="l1", clip=20, noise="discrete_laplace", epsilon=16)
    real, released, scales = both((small, *branches[1:]), {"count": [[9, 1, 40, 0]], "label": [[2]], "pose": [[1.7]]},
                                  None)
    for i in range(4):
        theirs, ours = real.released["count"][:, 0, i], released["count"][:, 0, i]
        assert same_counts(theirs, ours) > ALPHA and same_counts(theirs + 1, ours) < ALPHA
    assert same_counts(real.released["label"].ravel(), released["label"].ravel()) > ALPHA
    assert np.bincount(released["label"].ravel().astype(int)).argmax() == 2
    assert np.array_equal(real.released["pose"], released["pose"])
    assert all(np.array_equal(real.scales[k], scales[k]) for k in scales)


def test_spends_and_what_nothing_was_spent_on():
    method = Scripted(SPENT, plan=lambda t, past, memory, public: Plan(spend={"count": [["0.5", "0"], ["2/5", 4]][t]}))
    raw = {"count": torch.ones(2, 2, 2, requires_grad=True)}
    released, scales = simulate(method, raw, {}, generator=generator("spend"), changed=2)
    assert scales["count"][0].tolist() == [40.0, 50.0] and scales["count"][1, 1] == 5.0
    assert released["count"][1, 0].isnan().all() and released["count"][0].isfinite().all()
    grad = torch.autograd.grad(released["count"].nansum(), raw["count"])[0]
    assert torch.isfinite(grad).all() and grad[0].eq(1).all() and grad[1, 0].eq(0).all()
    spend = torch.tensor([0.5, 2.0], requires_grad=True)
    method.plan = lambda t, past, memory, public: Plan(spend={"count": spend})
    released, _ = simulate(method, raw, {}, generator=generator("spend"))
    assert (torch.autograd.grad(released["count"].square().sum(), spend)[0] < 0).all()  # more spent, less noise


def test_the_gradient_of_a_label_is_that_of_its_mean():
    raw = {"label": torch.tensor([[[2.0]], [[4.0]], [[7.0]]], requires_grad=True)}  # the last is out of range
    released, _ = simulate(Scripted(LABEL), raw, {}, generator=generator("label"))
    grad = torch.autograd.grad(released["label"].sum(), raw["label"])[0].ravel()
    kept = (np.exp(1.5) - 1) / (np.exp(1.5) + 5)  # how much likelier the true label is than each other one
    assert grad.tolist() == pytest.approx([kept, kept, 0], rel=1e-6)


# ---- training ----

class Toy(PrivateMethod):
    """A linear encoder and a scale network that reads the past and its own memory."""

    def __init__(self, floor=0.5):
        torch.manual_seed(3)
        self.branches = (Branch("id", dim=3, clip=1.0, floor=floor), LABEL)
        self.encoder, self.cell, self.head = torch.nn.Linear(5, 3), torch.nn.GRUCell(4, 6), torch.nn.Linear(6, 1)

    def plan(self, t, past, memory, public):
        if not past:
            return Plan(memory={"h": torch.zeros(public["streams"], 6)})
        h = self.cell(torch.cat([past["id"], past["label"]], dim=1), memory["h"])
        return Plan({"id": 0.6 + torch.nn.functional.softplus(self.head(h)[:, 0])}, memory={"h": h})

    def loss(self, run):
        frames = torch.from_numpy(rng("toy").normal(0, 1, (4, 6, 5))).float()
        hidden = self.encoder(frames)
        released, scales = run({"id": hidden, "label": 2 + hidden[..., :1]}, {"streams": 4})
        return released["id"].square().mean() + released["label"].mean() + scales["id"].mean()


def test_gradients_reach_encoder_and_scale_network():
    toy = Toy()
    toy.loss(simulator(toy, 5)).backward()
    for part in (toy.encoder, toy.cell, toy.head):
        assert all(torch.isfinite(p.grad).all() and p.grad.abs().sum() > 0 for p in part.parameters())
    kept = Toy(floor=50.0)  # a plan under the floor learns nothing from it
    kept.loss(simulator(kept, 5)).backward()
    assert not kept.head.weight.grad.any() and kept.encoder.weight.grad.abs().sum() > 0


def test_the_seed_decides_all_draws():
    toy, run = Toy(), simulator(Toy(), 5)
    first, second = (toy.loss(run).item() for _ in range(2))
    assert toy.loss(simulator(toy, 5)).item() == first != second and toy.loss(simulator(toy, 6)).item() != first


@pytest.mark.parametrize("raw", [{}, {"id": torch.zeros(2, 3, 5)}, {"id": torch.zeros(3, 4)},
                                 {"id": torch.zeros(2, 3, 4), "label": torch.zeros(2, 2, 1)}])
def test_raw_values_that_do_not_fit(raw):
    with pytest.raises(PluginError, match="raw"):
        simulate(Scripted(BALL, LABEL), raw, {}, generator=generator("x"))


@pytest.mark.parametrize("scale", [[1.0, float("nan")], [1.0], [[1.0, 1.0]]])
def test_scales_that_do_not_fit(scale):
    method = Scripted(BALL, plan=lambda t, past, memory, public: Plan({"id": torch.tensor(scale)}))
    with pytest.raises(PluginError, match="'id'"):
        simulate(method, {"id": torch.zeros(2, 3, 4)}, {}, generator=generator("x"))


def test_the_worker_hands_it_to_fit(tmp_path):
    class Fitted(Toy):
        def fit(self, data, assets, ctx):
            self.found = self.loss(ctx.simulate).item()

        def state(self):
            return {"loss": np.array([self.found])}

    (tmp_path / "view.json").write_text("[]")
    session, losses = Session(), []
    for seed in (1, 1, 2):
        session.method = Fitted()
        losses.append(session.fit({"seed": seed, "development": tmp_path, "assets": {}}, {})[1]["loss"])
    assert losses[0] == losses[1] != losses[2]
