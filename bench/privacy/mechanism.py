"""The trusted loop: clip every atom to a grid, add noise, filter, keep the transcript. All protective noise of every
lane is drawn here: of enforced branches step by step, of declared ones in `declared_noise`.

Clipping is total: whatever a method returns becomes whole steps of a grid inside its ball, or a fixed vector. Values
are then sums of whole numbers, so that no rounding of floats decides what is released.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from bench.errors import PluginError, nearest
from bench.privacy.bits import Bits
from bench.privacy.checks import exact
from bench.privacy.claims import BranchClaim
from bench.privacy.contract import Branch, Plan
from bench.privacy.filters import ChunkLoadFilter, TotalFilter, WindowGuard
from bench.privacy.noise import GRID, discrete_laplace, gaussian, gaussian_steps, randomized_response
from bench.privacy.radial import isotropic_exponential

Filter = TotalFilter | ChunkLoadFilter | WindowGuard
Planner = Callable[[int, Mapping[str, np.ndarray], Mapping[str, np.ndarray]], Plan]
_LARGEST = 1e280  # larger magnitudes are cut; divided by the smallest clip and summed they stay finite


# ---- clip ----------------------------------------------------------------------------------------------------------

def unit_of(branch: Branch) -> float:
    """What one whole step is worth: 1 for whole numbers and labels, clip * 2^-20 for all others."""
    return branch.clip * GRID if branch.noise in ("gaussian", None) and branch.norm != "label" else 1.0


def clip_rows(rows: Any, branch: Branch, count: int) -> tuple[np.ndarray, bool]:
    """Whole steps int64 (count, dim) inside the branch's ball, and whether the rows had to be replaced.

    Total: a wrong shape or a value that is no number gives fixed rows; a row that is not finite gives a fixed row.
    """
    fixed = np.zeros((count, branch.dim), dtype=np.int64)
    try:
        if np.iscomplexobj(rows):
            return fixed, True
        with np.errstate(all="ignore"):
            values = np.asarray(rows, dtype=np.float64)
    except Exception:  # objects may raise anything when they are read as numbers
        return fixed, True
    if values.shape != fixed.shape:
        return fixed, True
    good = np.asarray(np.isfinite(values).all(axis=1))  # (count,)
    values = np.clip(np.where(good[:, None], values, 0.0), -_LARGEST, _LARGEST)
    steps = {"l2": _ball, "l1": _diamond, "box": _box, "label": _label}[branch.norm](values, branch)
    return np.where(good[:, None], steps, fixed), bool(not good.all())


def _ball(values: np.ndarray, branch: Branch) -> np.ndarray:
    """Rows inside the l2 ball, rounded toward zero, so that rounding never leaves it."""
    largest = np.maximum(np.abs(values).max(axis=1, keepdims=True), branch.clip)
    norm = np.linalg.norm(values / largest, axis=1, keepdims=True) * largest  # at most 1 each: no square overflows
    return np.trunc(values / np.maximum(norm, branch.clip) / GRID * (1 - 2.0**-50)).astype(np.int64)


def _diamond(values: np.ndarray, branch: Branch) -> np.ndarray:
    """Rows inside the l1 ball: scaled onto it, then rounded toward zero."""
    total = np.abs(values).sum(axis=1, keepdims=True)
    onto = np.where(total > branch.clip, values * branch.clip / np.maximum(total, branch.clip), values)
    whole = np.trunc(np.clip(onto, -branch.clip, branch.clip) / unit_of(branch)).astype(np.int64)
    over = np.abs(whole).sum(axis=1, keepdims=True) > int(round(branch.clip / unit_of(branch)))
    return np.where(over, 0, whole)


def _box(values: np.ndarray, branch: Branch) -> np.ndarray:
    return np.trunc(np.clip(values, 0.0, branch.clip) / unit_of(branch)).astype(np.int64)


def _label(values: np.ndarray, branch: Branch) -> np.ndarray:
    return np.clip(np.rint(values), 0, int(branch.clip) - 1).astype(np.int64)


def cell_sums(frames: np.ndarray, block: int) -> np.ndarray:
    """The trusted reader "pixels": uint8 (T, H, W, 3) -> int64 (T, cells * 3), sums of block x block pixels.

    The canvas is padded with zeros to whole cells; cells by row, then column, then colour.
    """
    t, height, width, channels = frames.shape
    padded = np.pad(frames, ((0, 0), (0, -height % block), (0, -width % block), (0, 0)))
    rows, columns = padded.shape[1] // block, padded.shape[2] // block
    cells = padded.reshape(t, rows, block, columns, block, channels).astype(np.int64)
    return cells.sum(axis=(2, 4)).reshape(t, -1)  # (T, cells * 3)


# ---- noise ---------------------------------------------------------------------------------------------------------

@dataclass
class Transcript:
    """What one block of B streams releases, and what stays in the vault.

    released: {branch: float64 (B, T, dim)}, NaN where a refused spend released nothing.  scales: {branch: (B, T)},
    the realised standard deviations or Laplace scales.  spends: {branch: B lists of T fractions}.  residuals:
    {branch: int64 (B, T, dim)}, noise in whole steps (vault).  raised: scales that lay under the floor.
    """

    released: dict[str, np.ndarray]
    scales: dict[str, np.ndarray]
    residuals: dict[str, np.ndarray]
    spends: dict[str, list[list[Fraction]]] = field(default_factory=dict)
    raised: int = 0


def run_streams(values: Mapping[str, np.ndarray], branches: Sequence[Branch], planner: Planner | None, bits: Bits, *,
                filters: Sequence[Filter] | None = None, fixed_scale: Mapping[str, Fraction] | None = None,
                changed: int = 1) -> Transcript:
    """Release B streams in lock-step. values: {branch: clipped whole steps, int64 (B, T, dim)}.

    planner(t, past, memory) -> Plan reads released rows only; None keeps every scale at its floor. filters: one per
    stream, for branches whose spends come from the plan: a refused step reads no data and releases NaN.
    fixed_scale: Laplace scales of trusted readers, whose price is the claim's. changed: atoms of one step that may
    change at once (K of an event), a factor of the sensitivity of what is spent.
    """
    first = values[branches[0].name]
    b, steps = first.shape[:2]
    out = Transcript({k.name: np.full(values[k.name].shape, np.nan) for k in branches},
                     {k.name: np.full((b, steps), np.nan) for k in branches},
                     {k.name: np.zeros(values[k.name].shape, dtype=np.int64) for k in branches})
    past: dict[str, np.ndarray] = {}
    plan = Plan()
    for t in range(steps):
        if planner is not None:
            plan = planner(t, past, plan.memory)
        admitted = _admit(plan, branches, filters, b, out)
        for branch in branches:
            _step(t, branch, values[branch.name][:, t], plan, admitted, bits, out, fixed_scale or {}, changed)
        past = {k.name: out.released[k.name][:, t] for k in branches}
    return out


def replay_scales(released: Mapping[str, np.ndarray], branches: Sequence[Branch],
                  planner: Planner) -> dict[str, np.ndarray]:
    """Scales (B, T) of the Gaussian branches that `planner` gives for a stored transcript {branch: (B, T, dim)}."""
    gaussian = [k for k in branches if k.noise == "gaussian"]
    b, steps = released[branches[0].name].shape[:2]
    out = {k.name: np.full((b, steps), np.nan) for k in gaussian}
    past: dict[str, np.ndarray] = {}
    plan = Plan()
    for t in range(steps):
        plan = planner(t, past, plan.memory)
        for branch in gaussian:
            out[branch.name][:, t] = _floored(plan.scale.get(branch.name), branch, b)[0]
        past = {k.name: released[k.name][:, t] for k in branches}
    return out


def replay_spends(released: Mapping[str, np.ndarray], branches: Sequence[Branch], planner: Planner,
                  filters: Sequence[Filter]) -> dict[str, list[list[Fraction]]]:
    """Admitted spends {branch: B lists of T} that `planner` and fresh filters give for a stored transcript."""
    b, steps = released[branches[0].name].shape[:2]
    out = Transcript({}, {}, {})
    past: dict[str, np.ndarray] = {}
    plan = Plan()
    for t in range(steps):
        plan = planner(t, past, plan.memory)
        _admit(plan, branches, filters, b, out)
        past = {k.name: released[k.name][:, t] for k in branches}
    return out.spends


def _step(t: int, branch: Branch, clean: np.ndarray, plan: Plan, admitted: Mapping[str, list[Fraction]], bits: Bits,
          out: Transcript, fixed_scale: Mapping[str, Fraction], changed: int) -> None:
    """One branch of one step: clean whole steps (B, dim) -> noisy values, residuals, realised scales."""
    name, unit = branch.name, unit_of(branch)
    if branch.noise == "gaussian":
        scale, raised = _floored(plan.scale.get(name), branch, len(clean))
        out.raised += raised
        noise = gaussian_steps(clean.shape, np.broadcast_to(scale[:, None], clean.shape), unit, bits)
        out.scales[name][:, t] = scale
    elif branch.noise == "discrete_laplace" and name in admitted:
        _spend(t, branch, clean, admitted[name], bits, out, changed)
        return
    elif branch.noise == "discrete_laplace":
        scale_of = fixed_scale.get(name) or branch.scale
        noise = discrete_laplace(clean.shape, scale_of, bits)
        out.scales[name][:, t] = float(scale_of)
    elif branch.noise == "randomized_response":
        noise = randomized_response(clean, int(branch.clip), branch.epsilon, bits) - clean
        out.scales[name][:, t] = float(branch.epsilon or 0)
    else:
        noise = np.zeros_like(clean)
        out.scales[name][:, t] = 0.0
    out.residuals[name][:, t] = noise
    out.released[name][:, t] = (clean + noise) * unit


def _floored(scale: Any, branch: Branch, b: int) -> tuple[np.ndarray, int]:
    """Standard deviations (B,) that are never under the floor; how many had to be raised."""
    floor = float(branch.floor or 0.0)
    if scale is None:
        return np.full(b, floor), 0
    given = np.asarray(scale, dtype=np.float64)
    given = np.full(b, given) if given.shape == () else given  # one for all streams: a first step knows no number
    if given.shape != (b,) or not np.isfinite(given).all():
        raise PluginError(f"plan gave scales {given.shape} for branch {branch.name!r}, finite: "
                          f"{bool(np.isfinite(given).all())}; wanted ({b},) finite ones.",
                          "A scale is the standard deviation of the noise of one stream.", "Mend `plan`.")
    given = np.minimum(given, 2.0**30 * branch.clip)  # larger noise destroys the value and overflows the grid
    return np.maximum(given, floor), int((given < floor).sum())


def _admit(plan: Plan, branches: Sequence[Branch], filters: Sequence[Filter] | None, b: int,
           out: Transcript) -> dict[str, list[Fraction]]:
    """Spends per branch after the filters; a stream whose whole step is refused spends nothing."""
    unknown = (set(plan.scale) | set(plan.spend)) - {k.name for k in branches}
    if unknown:
        raise PluginError(f"plan speaks of the branch {sorted(unknown)[0]!r}, which the method does not declare.",
                          "", nearest(sorted(unknown)[0], [k.name for k in branches]))
    names = [k.name for k in branches if k.noise == "discrete_laplace" and k.epsilon is None and k.name in plan.spend]
    if not names:
        return {}
    asked = {n: [exact(f"spend of {n!r}", e, 0.0, 1e6) for e in plan.spend[n]] for n in names}
    if filters is None or len(filters) != b or any(len(v) != b for v in asked.values()):
        raise PluginError(f"plan spends for {[len(v) for v in asked.values()]} streams, there are {b}.",
                          "Every stream has a filter and one spend per branch and step.", "Mend `plan`.")
    for i, guard in enumerate(filters):
        total = sum((asked[n][i] for n in names), Fraction(0))
        if not guard.admit(total):
            for n in names:
                asked[n][i] = Fraction(0)
    for n in names:
        out.spends.setdefault(n, [[] for _ in range(b)])
        for i in range(b):
            out.spends[n][i].append(asked[n][i])
    return asked


def _spend(t: int, branch: Branch, clean: np.ndarray, spends: list[Fraction], bits: Bits, out: Transcript,
           changed: int) -> None:
    """Discrete Laplace at sensitivity / spend, equal spends at once; nothing where nothing is spent."""
    for e in sorted(set(spends)):
        if not e:
            continue
        who = np.array([i for i, own in enumerate(spends) if own == e])
        scale = branch.sensitivity * changed / e
        noise = discrete_laplace(clean[who].shape, scale, bits)
        out.scales[branch.name][who, t] = float(scale)
        out.residuals[branch.name][who, t] = noise
        out.released[branch.name][who, t] = clean[who] + noise


# ---- noise that a method adds itself -------------------------------------------------------------------------------

def declared_noise(branch: BranchClaim, rows: int, bits: Bits) -> np.ndarray:
    """float64 (rows, dim): noise of the law and scale that a declared branch claims, for its method to add."""
    dim = branch.dim or 1
    if branch.noise == "gaussian":
        return gaussian((rows, dim), branch.noise_std or 0.0, branch.clip_norm or 0.0, bits)
    if branch.noise == "discrete_laplace":
        return discrete_laplace((rows, dim), branch.scale, bits).astype(np.float64)
    return isotropic_exponential(rows, dim, float(branch.epsilon or 0), bits)
