"""Stage `audit`: is the claim of an enforced method true of what the harness executes?

    audit/audit.json   claim, price, what every pair of inputs showed, the size of the noise, the verdict

Pairs of inputs are fixed before the first release: two people, a person and a grey picture, and a pair far outside
the clip, which only a mechanism that forgets to clip would notice. For pixels they are two videos that differ in as
many pixels as the claim covers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from bench import seeds
from bench.data.clips import Clips
from bench.errors import DataError
from bench.privacy.accounting import Price
from bench.privacy.audit import BETA, SCALE_ALARM
from bench.privacy.bits import SeededBits
from bench.privacy.claims import FullClaim
from bench.privacy.contract import Branch
from bench.privacy.mechanism import Transcript, clip_rows, run_streams, unit_of
from bench.privacy.power import bit_critical
from bench.registry import Spec
from bench.run.audit_trials import (
    Trials,
    allowed,
    audit_releases,
    canary,
    detectable,
    distance,
    proven,
    releases_for_scale,
    scale_row,
)
from bench.run.cache import write_json
from bench.run.enforced import PublicWorker, all_branches, clip_length, priced, raw_rows, short_claim
from bench.run.sandbox import available
from bench.run.stage_encode import padded_clip
from bench.run.stage_release import PARTS
from bench.run.stages import Job
from bench.run.stream_audit import WORDS as STREAM_WORDS
from bench.run.stream_audit import StreamMechanism, run_stream_audit
from bench.run.views import fitted_state

GREY = 128
WORDS = {"people": "two people with the same label", "grey": "a person and a grey picture",
         "canary": "two inputs far outside the clip",
         "pixels": "a face, some pixels black or white", "grey_pixels": "a grey picture, the same pixels",
         **STREAM_WORDS}


@dataclass(frozen=True)
class Pair:
    """Two inputs: clipped whole steps {branch: int64 (rows, dim)}, fixed before any release."""

    name: str
    first: dict[str, np.ndarray]
    second: dict[str, np.ndarray]


def run_audit(job: Job) -> None:
    """config: method, variant, profile, seed, facts, releases; inputs: clips (or streams), and fit when fitted."""
    if "streams" in job.inputs:
        return run_stream_audit(job, _audit_pair, _write)
    clips, facts = Clips(job.inputs["clips"]), job.config["facts"]
    branches, fixed = all_branches(facts, clips.info["canvas_px"])
    claim, cost = priced(facts)
    pairs, found = pairs_of(job, clips, branches, claim), []
    noise: list[dict[str, Any]] = []
    beta = max(BETA - SCALE_ALARM * len(branches), BETA / 2) / len(pairs)  # a true claim is refuted with BETA at most
    with _planner(job, clips) as planner:
        for i, pair in enumerate(pairs):
            n = (job.config["releases"] + i) // len(pairs)  # shares that differ by one at most
            job.report(f"{n} releases: {WORDS[pair.name]}")
            mechanism = Mechanism(pair, branches, fixed, planner, SeededBits(_rng(job, "noise", pair.name)))
            found.append(_audit_pair(mechanism, n, cost, _rng(job, "bits", pair.name), beta))
            noise = noise or mechanism.noise_rows()  # one test a branch: its alarm is counted once
    _write(job, clips.info["name"], cost, found, noise, beta)


def _rng(job: Job, *names: str) -> np.random.Generator:
    spec = Spec(job.config["method"], job.config["variant"])
    return seeds.derive(int(job.config["seed"]), "audit", str(spec), *names)


@contextmanager
def _planner(job: Job, clips: Clips) -> Iterator[Any]:
    """The method's `plan` in a process of its own, started after encoding has ended; None where it does not plan."""
    if not job.config["facts"]["plans"]:
        yield None
        return
    with PublicWorker(Spec(job.config["method"], job.config["variant"]), job.config["profile"],
                      available()) as worker:
        worker.load_state(fitted_state(job.inputs))
        yield worker.planner(job.config["facts"], clips.info["canvas_px"])


# ---- the inputs ----------------------------------------------------------------------------------------------------

def pairs_of(job: Job, clips: Clips, branches: tuple[Branch, ...], claim: FullClaim) -> list[Pair]:
    """Pairs that the claim says cannot be told apart, of development people that the seed picks."""
    length = clip_length(job.config["facts"])
    one, other = _atoms(clips, _rng(job, "pairs"), length)
    grey = np.full_like(one, GREY)
    if claim.pixels is not None:
        ends = [_flipped(frames, claim, value) for frames in (one, grey) for value in (0, claim.pixels.levels)]
        black, white, grey_black, grey_white = _encoded(job, ends, branches)
        return [Pair("pixels", black, white), Pair("grey_pixels", grey_black, grey_white)]
    person, another, blank = _encoded(job, [one, other, grey], branches)
    low, high = (_clipped({k.name: canary(person[k.name], k, sign) for k in branches}, branches, length)
                 for sign in (-1, 1))
    return [Pair("people", person, another), Pair("grey", person, blank), Pair("canary", low, high)]


def _encoded(job: Job, atoms: list[np.ndarray], branches: tuple[Branch, ...]) -> list[dict[str, np.ndarray]]:
    """Clipped whole steps of each clip, read as in a release."""
    spec, facts = Spec(job.config["method"], job.config["variant"]), job.config["facts"]
    return [_clipped(rows, branches, clip_length(facts))
            for rows in raw_rows(spec, facts, fitted_state(job.inputs), atoms)]


def _clipped(rows: Mapping[str, Any], branches: tuple[Branch, ...], length: int) -> dict[str, np.ndarray]:
    return {k.name: clip_rows(rows.get(k.name), k, k.rows_of(length))[0] for k in branches}


def _atoms(clips: Clips, rng: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray]:
    """One clip each, uint8 (length, H, W, 3), of two development people with the same label."""
    rows = clips.rows(*PARTS["development"])
    people = {label: sorted({r.person for r in rows if r.label == label}) for label in clips.labels}
    labels = [label for label in clips.labels if len(people[label]) > 1]
    if not labels:
        raise DataError("No label has two development people.", "An audit exchanges one of them for the other.",
                        "Add people, or audit with another --dataset.")
    label = labels[rng.integers(len(labels))]
    atoms = []
    for person in rng.choice(people[label], 2, replace=False):
        theirs = [r for r in rows if r.person == person and r.label == label]
        row = theirs[rng.integers(len(theirs))]
        atoms.append(padded_clip(clips.video(row).frames, int(rng.integers(-(-row.frames // length))), length))
    return atoms[0], atoms[1]


def _flipped(frames: np.ndarray, claim: FullClaim, value: int) -> np.ndarray:
    """The clip with m pixels set to `value` in all colours: of every frame, or of the first where m is the total.

    They fill the cell in the middle first, then its neighbours to the right and below.
    """
    pixels = claim.pixels
    assert pixels is not None
    out, (height, width) = frames.copy(), frames.shape[1:3]
    top, left = ((size // 2) // pixels.b * pixels.b for size in (height, width))
    order = sorted(((y - top) % height // pixels.b, (x - left) % width // pixels.b, y, x)
                   for y in range(height) for x in range(width))[:pixels.m]
    y, x = np.array([place[2:] for place in order]).T
    for t in range(len(out) if claim.adjacency == "per_frame" else 1):
        out[t, y, x] = value
    return out


# ---- releases ------------------------------------------------------------------------------------------------------

@dataclass
class Mechanism:
    """The trusted loop as a release function for one pair. Keeps its first block for the test of the noise."""

    pair: Pair
    branches: tuple[Branch, ...]
    fixed: Mapping[str, Fraction]
    planner: Any
    bits: SeededBits  # benchmark noise; independent of the bits that choose the input
    first_block: tuple[np.ndarray, Transcript] | None = None

    def __call__(self, bits: np.ndarray) -> dict[str, np.ndarray]:
        """Released values {branch: (B, rows, dim)} of the inputs that the bits (B,) choose."""
        values = {k.name: np.where(bits[:, None, None], self.pair.second[k.name], self.pair.first[k.name])
                  for k in self.branches}
        out = run_streams(values, self.branches, self.planner, self.bits, fixed_scale=self.fixed)
        self.first_block = self.first_block or (bits, out)
        return out.released

    def inputs(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Both clipped inputs in the units of the released values."""
        units = {k.name: unit_of(k) for k in self.branches}
        first, second = ({name: steps[name] * units[name] for name in units}
                         for steps in (self.pair.first, self.pair.second))
        return first, second

    def spread(self) -> dict[str, float]:
        """Standard deviation of each branch's noise, in the units of its released values; 1 for labels."""
        return {k.name: float(k.floor or 1) if k.noise == "gaussian" else
                math.sqrt(2) * float(self.fixed.get(k.name) or k.scale) if k.noise == "discrete_laplace" else 1.0
                for k in self.branches}

    def noise_rows(self) -> list[dict[str, Any]]:
        """One test a branch of the noise of the first releases."""
        assert self.first_block is not None
        (bits, out), (first, second) = self.first_block, self.inputs()
        few, rows = releases_for_scale(self.branches, len(first[self.branches[0].name])), []
        for k in self.branches:
            given = np.where(bits[:few, None, None], second[k.name], first[k.name])
            rows.append(scale_row(k, out.released[k.name][:few], given, out.scales[k.name][:few]))
        return rows


def _audit_pair(mechanism: Mechanism | StreamMechanism, n: int, cost: Price, rng: np.random.Generator,
                beta: float) -> tuple[dict[str, Any], Trials]:
    """One row of the report, and the trials behind it."""
    (first, second), spread, name = mechanism.inputs(), mechanism.spread(), mechanism.pair.name
    t = audit_releases(mechanism, first, second, cost, n, rng, spread=spread, beta=beta)
    gaussian, joint = cost.mu is not None, t.joint
    return {"pair": name, "words": WORDS[name], "distance": distance(first, second, spread), "n": t.n,
            "trials": t.trials, "right": t.right, "refuted_from": bit_critical(t.trials, allowed(cost), beta),
            "epsilon": proven(t.bit, cost), "mu": t.bit.mu if gaussian else None,
            "epsilon_any_mechanism": t.bit.epsilon, "refuted": t.refuted,
            "joint_epsilon": proven(joint, cost) if joint else None,
            "joint_mu": joint.mu if joint and gaussian else None}, t


# ---- report --------------------------------------------------------------------------------------------------------

def _write(job: Job, dataset: str, cost: Price, found: list[tuple[dict[str, Any], Trials]],
           noise: list[dict[str, Any]], beta: float) -> None:
    write_json(job.out / "audit.json", _report(job, dataset, cost, found, noise, beta))


def _report(job: Job, dataset: str, cost: Price, found: list[tuple[dict[str, Any], Trials]],
            noise: list[dict[str, Any]], beta: float) -> dict[str, Any]:
    """audit.json; infinity is the text "inf", rates are in 0 .. 1. bound: the largest of all pairs."""
    config, pairs = job.config, [row for row, _ in found]
    locked = config["facts"]["encodes"] == "method" or config["facts"]["plans"]
    seen = detectable(cost, min(t.trials for _, t in found), beta)
    best = max(pairs, key=lambda row: row["epsilon"])
    return {"schema": 1, "method": config["method"], "variant": config["variant"], "dataset": dataset,
            "claim": short_claim(config["facts"]),
            "price": {k: str(v) if v == math.inf else v for k, v in cost.as_dict().items()},
            "n": sum(t.n for _, t in found), "pairs": pairs, "bound": best["epsilon"], "bound_mu": best["mu"],
            "allowed_right": allowed(cost), "detectable": "inf" if math.isinf(seen) else seen,
            "confidence": 1 - BETA, "beta_pair": beta, "scale": noise,
            "refuted": any(t.refuted for _, t in found) or any(row["refuted"] for row in noise),
            "isolation": available().as_dict() if locked else None, "noise": "seeded", "seed": config["seed"]}
