"""The release loop once more, differentiable: what a method calls while it is fitted, never for a release.

Values are clipped by the clip of a release; noise follows the same law and comes from a torch generator. Gradients
reach the encoder through the clip and the scale network through the noise. Torch is imported when a method trains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from bench.errors import PluginError
from bench.privacy.checks import exact
from bench.privacy.contract import Branch, Plan, PrivateMethod
from bench.privacy.mechanism import clip_rows, unit_of
from bench.privacy.noise import simulate_noise

if TYPE_CHECKING:
    import torch

Tensors = dict[str, "torch.Tensor"]


def simulate(method: PrivateMethod, raw: Mapping[str, torch.Tensor], public: Mapping[str, Any], *,
             generator: torch.Generator, changed: int = 1) -> tuple[Tensors, Tensors]:
    """What a release of B streams would give: (released {branch: (B, T, dim)}, scales {branch: (B, T)}).

    raw: {branch: float (B, T, dim)}, before clipping. `plan` gets tensors and may give tensors: scales (B,), spends
    (B,) or words, memory. Every spend is admitted; a spend of 0 gives NaN, as in a release. changed: see run_streams.
    Raises PluginError where raw or plan do not fit the branches.
    """
    import torch

    shape = _shape(method.branches, raw)
    clean = {k.name: _clip_class().apply(raw[k.name], k) for k in method.branches}
    released: dict[str, list[torch.Tensor]] = {k.name: [] for k in method.branches}
    scales: dict[str, list[torch.Tensor]] = {k.name: [] for k in method.branches}
    past: dict[str, Any] = {}
    memory: Mapping[str, Any] = {}
    for t in range(shape[1]):
        plan = method.plan(t, past, memory, public)
        memory = plan.memory
        for k in method.branches:
            noisy, scale = _noisy(k, clean[k.name][:, t], plan, generator, changed)
            released[k.name].append(noisy)
            scales[k.name].append(scale)
        past = {k.name: released[k.name][-1] for k in method.branches}
    return ({n: torch.stack(v, dim=1) for n, v in released.items()},
            {n: torch.stack(v, dim=1) for n, v in scales.items()})


def simulator(method: PrivateMethod, seed: int) -> Callable[..., tuple[Tensors, Tensors]]:
    """`simulate` of one method, as `fit` gets it: call(raw, public). One seeded generator for each device."""
    generators: dict[Any, torch.Generator] = {}

    def call(raw: Mapping[str, torch.Tensor], public: Mapping[str, Any], *,
             changed: int = 1) -> tuple[Tensors, Tensors]:
        import torch

        device = raw[method.branches[0].name].device
        if device not in generators:
            generators[device] = torch.Generator(device).manual_seed(seed)
        return simulate(method, raw, public, generator=generators[device], changed=changed)

    return call


def _shape(branches: tuple[Branch, ...], raw: Mapping[str, torch.Tensor]) -> tuple[int, int]:
    """(B, T), the same for all branches."""
    found = {k.name: tuple(raw[k.name].shape) if k.name in raw else () for k in branches}
    first = next(iter(found.values()))[:2]
    wrong = [f"{k.name} {found[k.name]}" for k in branches if found[k.name] != (*first, k.dim) or len(first) < 2]
    if wrong:
        raise PluginError(f"raw does not fit the branches: {', '.join(wrong)}.",
                          "Every branch is a tensor (streams, steps, dim), streams and steps the same.", "Mend `fit`.")
    return first[0], first[1]


# ---- clip ----------------------------------------------------------------------------------------------------------

@lru_cache(maxsize=1)
def _clip_class() -> Any:
    """The clip as a torch function: forward is `clip_rows`, backward the gradient of the projection."""
    import torch

    class Clip(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, values: torch.Tensor, branch: Branch) -> torch.Tensor:
            ctx.branch = branch
            ctx.save_for_backward(values)
            rows = values.detach().to("cpu", torch.float64).reshape(-1, branch.dim).numpy()
            steps, _ = clip_rows(rows, branch, len(rows))
            return torch.from_numpy(steps * unit_of(branch)).reshape(values.shape).to(values)

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
            values, = ctx.saved_tensors
            return _clip_gradient(values.double(), grads[0].double(), ctx.branch).to(values), None

    return Clip


def _clip_gradient(values: torch.Tensor, grad: torch.Tensor, branch: Branch) -> torch.Tensor:
    """Gradient before the clip, (..., dim), from that after it; rows that are not finite get none.

    l2: identity in the ball, (C / |x|)(I - x x^T / |x|^2) outside. l1: identity in the ball, none outside. Box and
    label: identity for each coordinate in its range.
    """
    import torch

    good = torch.isfinite(values).all(-1, keepdim=True)
    x = torch.where(good, values, 0.0)
    if branch.norm == "l2":
        largest = x.abs().amax(-1, keepdim=True).clamp_min(1e-300)
        length = torch.linalg.vector_norm(x / largest, dim=-1, keepdim=True).clamp_min(1.0)  # no square overflows
        along = x / largest / length
        across = (grad - along * (along * grad).sum(-1, keepdim=True)) * (branch.clip / largest / length)
        passed = torch.where(largest * length <= branch.clip, grad, across)
    elif branch.norm == "l1":
        passed = torch.where(x.abs().sum(-1, keepdim=True) <= branch.clip, grad, 0.0)
    else:
        top = branch.clip - (branch.norm == "label")
        passed = torch.where((x >= 0) & (x <= top), grad, 0.0)
    return torch.where(good, passed, 0.0)


# ---- noise ---------------------------------------------------------------------------------------------------------

def _noisy(branch: Branch, clean: torch.Tensor, plan: Plan, generator: torch.Generator,
           changed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One branch of one step: clean (B, dim) -> noisy (B, dim) and scales (B,)."""
    import torch

    full = torch.ones_like(clean[:, 0])
    if branch.noise == "gaussian":
        scale = _floored(plan.scale.get(branch.name), branch, full)
        return simulate_noise(clean, "gaussian", scale[:, None], generator=generator), scale
    if branch.noise == "discrete_laplace" and branch.epsilon is None and branch.name in plan.spend:
        spend = _spends(plan.spend[branch.name], branch, full)
        paid = spend > 0
        scale = float(branch.sensitivity * changed) / torch.where(paid, spend, 1.0)
        noisy = simulate_noise(clean, "discrete_laplace", scale[:, None], generator=generator)
        return torch.where(paid[:, None], noisy, torch.nan), torch.where(paid, scale, torch.nan)
    if branch.noise == "discrete_laplace":
        scale = full * float(branch.scale)
        return simulate_noise(clean, "discrete_laplace", scale[:, None], generator=generator), scale
    if branch.noise == "randomized_response":
        epsilon = float(branch.epsilon or 0)
        return _response(clean, int(branch.clip), epsilon, generator), full * epsilon
    return clean, full * 0.0


def _floored(given: Any, branch: Branch, full: torch.Tensor) -> torch.Tensor:
    """Standard deviations (B,) that are never under the floor; gradients pass where the plan lies above it."""
    import torch

    floor = full * float(branch.floor or 0.0)
    if given is None:
        return floor
    scale = torch.as_tensor(given).to(full)
    scale = scale.expand_as(full) if scale.ndim == 0 else scale  # one for all streams: see run_streams
    if scale.shape != full.shape or not torch.isfinite(scale).all():
        raise PluginError(f"plan gave scales {tuple(scale.shape)} for branch {branch.name!r}, finite: "
                          f"{bool(torch.isfinite(scale).all())}; wanted {tuple(full.shape)} finite ones.",
                          "A scale is the standard deviation of the noise of one stream.", "Mend `plan`.")
    return torch.maximum(scale.clamp_max(2.0**30 * branch.clip), floor)


def _spends(given: Any, branch: Branch, full: torch.Tensor) -> torch.Tensor:
    """Spends (B,): a tensor as it is, words as a release reads them."""
    import torch

    if isinstance(given, torch.Tensor):
        spend = given.to(full)
    else:
        spend = torch.tensor([float(exact(f"spend of {branch.name!r}", e, 0.0, 1e6)) for e in given]).to(full)
    if spend.shape != full.shape or not torch.isfinite(spend).all():
        raise PluginError(f"plan gave spends {tuple(spend.shape)} for branch {branch.name!r}; wanted "
                          f"{tuple(full.shape)} finite ones.", "Every stream has one spend per step.", "Mend `plan`.")
    return spend


def _response(labels: torch.Tensor, classes: int, epsilon: float, generator: torch.Generator) -> torch.Tensor:
    """Labels (B, 1) through randomised response; the gradient is that of the mean label."""
    import torch

    hot = torch.nn.functional.one_hot(labels.detach().long(), classes).to(labels)  # (B, 1, classes)
    lean = torch.zeros(classes).to(labels)
    lean[0], lean[1] = -1.0, 1.0  # one label more moves the mean by one
    hot = hot + (labels - labels.detach())[..., None] * lean
    drawn = simulate_noise(hot, "randomized_response", epsilon, generator=generator)
    return drawn @ torch.arange(classes).to(labels)
