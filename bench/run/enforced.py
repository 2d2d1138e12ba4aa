"""The harness side of an enforced method: encode in one process, plan and render in another, later one.

Method code never sees a raw value and a released one in the same process, and the harness never imports a method.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from bench import registry
from bench.errors import PluginError
from bench.privacy.accounting import Price, claimed, price
from bench.privacy.claim_file import claim_from
from bench.privacy.claims import FullClaim
from bench.privacy.contract import READERS, Branch, Plan
from bench.privacy.mechanism import Planner, cell_sums
from bench.registry import Spec
from bench.run import wire
from bench.run.preload_method import modules_behind
from bench.run.sandbox import Isolation, available, default_readable, launcher
from bench.run.workers import START_S, MethodWorker, worker_environment
from bench.types import CLIP_FRAMES

ENCODE_S = 120.0
ANSWER_BYTES = 2**30  # of one atom; more is read and dropped
BLOCK = 64  # streams in lock-step; fixed, since sums inside a method may depend on the size of a batch
CELLS = "cells"  # branch of the trusted reader "pixels"
_ENCODE_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from bench.run.encode_main import main; main()"


def full_claim(facts: Mapping[str, Any]) -> FullClaim | None:
    """The claim of a method's facts, None without one."""
    return claim_from(facts["full_claim"]) if facts.get("full_claim") else None


def priced(facts: Mapping[str, Any]) -> tuple[FullClaim, Price]:
    """Claim and price of an enforced method, computed here and nowhere else."""
    claim = full_claim(facts)
    if claim is None:
        raise PluginError("An enforced method without a claim.", "", "Set `terms` and `branches`.")
    return claim, price(claim)


def clip_length(facts: Mapping[str, Any] | None) -> int:
    """Frames of the clips that a method releases: T of its claim; 16 without one."""
    claim = full_claim(facts or {})
    return claim.frames if claim is not None and claim.unit == "clip" else CLIP_FRAMES


def short_claim(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The claim stored with every row of the board, infinity as text."""
    short = asdict(claimed(*priced(facts)))
    return {k: (str(v) if v == float("inf") else v) for k, v in short.items()}


def all_branches(facts: Mapping[str, Any], canvas_px: int) -> tuple[tuple[Branch, ...], dict[str, Fraction]]:
    """Branches of an enforced method, and the Laplace scale of a trusted reader's, whose price is the claim's."""
    if facts["encodes"] == "method":
        return tuple(Branch.from_dict(b) for b in facts["branches"]), {}
    pixels = priced(facts)[0].pixels
    if facts["encodes"] not in READERS or pixels is None:
        raise PluginError(f"encode = {facts['encodes']!r} is no trusted reader of this claim.", "",
                          'Use encode = "pixels" with a pixels claim, or write the function.')
    side = -(-canvas_px // pixels.b)
    scale = pixels.scale or Fraction(pixels.m * pixels.levels) / pixels.draw_epsilon
    return (Branch(CELLS, dim=side * side * 3, norm="box", clip=pixels.levels * pixels.b**2,
                   noise="discrete_laplace", epsilon=Fraction(1)),), {CELLS: scale}


def loss_of(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a clip of the method costs an attacker who may swap it for any other; None where the unit is smaller."""
    claim, cost = priced(facts)
    if claim.unit != "clip" or not np.isfinite(cost.epsilon):
        return None
    ball = all(b.noise == "gaussian" and b.norm == "l2" for b in claim.branches)
    if cost.mu is None:
        return {"kind": "pure", "epsilon": cost.epsilon}
    return {"kind": "gaussian", "mu": cost.mu, "norm_clipped": ball}


def method_readable(spec: Spec) -> list[Path]:
    """What a locked-in worker may read: Python, this project's code, the plug-in's own files."""
    own = [p for p in registry.source_files("methods", spec.name) if not p.is_relative_to(registry.ROOT / "bench")]
    return [*default_readable(), *own]


def preloaded(spec: Spec, more: Sequence[str] = ()) -> list[str]:
    """Modules that a worker of this method imports before it is locked in."""
    return list(dict.fromkeys([*more, *modules_behind(registry.source_files("methods", spec.name))]))


class EncodeWorker:
    """The encode parent and its children. `encode` gives raw rows per branch, or None when the child failed."""

    def __init__(self, spec: Spec, state: Mapping[str, np.ndarray], isolation: Isolation, call_s: float = ENCODE_S):
        self.spec, self.state, self.isolation, self.call_s = spec, state, isolation, call_s

    def __enter__(self) -> EncodeWorker:
        readable = method_readable(self.spec)
        self._results, theirs = os.pipe()
        options = {"name": self.spec.name, "variant": self.spec.variant, "isolation": self.isolation.as_dict(),
                   "readable": [str(p) for p in readable], "call_s": self.call_s, "results_fd": theirs,
                   "preload": preloaded(self.spec)}
        argv = [sys.executable, "-I", "-c", _ENCODE_BOOT, str(registry.ROOT), json.dumps(options)]
        try:
            self.process = subprocess.Popen(launcher(self.isolation, argv, readable), stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, cwd="/", env=worker_environment(readable),
                                            pass_fds=(theirs,))
        finally:
            os.close(theirs)
        try:
            self._send({}, self.state)
            self._control(START_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()
        os.close(self._results)
        self.process.wait()

    def _send(self, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        assert self.process.stdin
        try:
            wire.send(self.process.stdin.fileno(), header, arrays, self.call_s + START_S)
        except (wire.WireClosed, wire.WireTimeout) as error:
            raise self._gone(error) from None

    def _control(self, seconds: float) -> None:
        assert self.process.stdout
        try:
            wire.receive(self.process.stdout.fileno(), seconds)
        except (wire.WireTimeout, wire.WireClosed) as error:
            raise self._gone(error) from None

    def _gone(self, error: Exception) -> PluginError:
        return PluginError(f"The encode process of {self.spec} ended or does not answer.", type(error).__name__,
                           "Run `veilbench doctor`; the stage's log holds what it printed.")

    def encode(self, atom: np.ndarray) -> dict[str, np.ndarray] | None:
        """Rows of one atom, uint8 (16, H, W, 3), from a process that sees nothing else."""
        nonce = os.urandom(16).hex()
        self._send({"nonce": nonce}, {"atom": atom})
        data = self._until_the_child_is_gone()
        try:
            header, rows = wire.parse(data)
            return rows if header.get("nonce") == nonce else None
        except Exception:  # method code chose these bytes: whatever they break becomes a fixed vector
            return None

    def _until_the_child_is_gone(self) -> bytes:
        """All that the child wrote. What follows its first message reaches nobody, the next atom least of all."""
        assert self.process.stdout
        control, data, deadline = self.process.stdout.fileno(), bytearray(), time.monotonic() + self.call_s + 30.0
        while True:
            left = max(0.0, deadline - time.monotonic())
            ready = select.select([self._results, control], [], [], left)[0]
            part = os.read(self._results, 1 << 20) if self._results in ready and left else b""
            if not part:  # the child has ended and its pipe is empty, or neither speaks any more
                self._control(30.0 if control in ready else 0.001)
                return bytes(data)
            data += part if len(data) < ANSWER_BYTES else b""


def raw_rows(spec: Spec, facts: Mapping[str, Any], state: Mapping[str, np.ndarray],
             atoms: Iterable[np.ndarray]) -> Iterator[Mapping[str, np.ndarray]]:
    """Unclipped rows of each clip, uint8 (16, H, W, 3): by the trusted reader, or by the method, locked in.

    Empty where the method's process failed. When the last one is taken, the encode process has ended.
    """
    if facts["encodes"] == "pixels":
        pixels = priced(facts)[0].pixels
        assert pixels is not None
        for atom in atoms:
            yield {CELLS: cell_sums(atom, pixels.b)}
        return
    with EncodeWorker(spec, state, available()) as worker:
        for atom in atoms:
            yield worker.encode(atom) or {}


class PublicWorker(MethodWorker):
    """Plans and renders from released values, in a locked-in process that is started after encoding has ended."""

    def __init__(self, spec: Spec, profile: str, isolation: Isolation, call_s: float = 300.0):
        super().__init__(spec, profile, call_s=call_s, isolation=isolation, readable=method_readable(spec),
                         preload=preloaded(spec))

    def plan(self, t: int, past: Mapping[str, np.ndarray], memory: Mapping[str, np.ndarray],
             public: Mapping[str, Any]) -> Plan:
        """One step for all streams of a block."""
        arrays = {f"past:{k}": v for k, v in past.items()} | {f"memory:{k}": v for k, v in memory.items()}
        answer, found = self.call({"op": "plan", "t": t, "public": dict(public)}, arrays)
        parts = {kind: {k.partition(":")[2]: v for k, v in found.items() if k.startswith(kind + ":")}
                 for kind in ("scale", "memory")}
        return Plan(parts["scale"], answer.get("spend", {}), parts["memory"])

    def planner(self, facts: Mapping[str, Any], canvas_px: int) -> Planner | None:
        """`plan` as the trusted loop asks for it; None where the method keeps every scale at its floor."""
        if not facts["plans"]:
            return None
        public = {"canvas_px": canvas_px, "profile": self.profile}
        return lambda t, past, memory: self.plan(t, past, memory, public)

    def render(self, transcripts: Sequence[Mapping[str, np.ndarray]], public: Mapping[str, Any],
               decoding: str) -> np.ndarray:
        """The video of one source; uint8 (frames, S, S, 3), padding cut off. Raises PluginError on another shape."""
        arrays = {f"{i}:{name}": rows for i, clip in enumerate(transcripts) for name, rows in clip.items()}
        _, found = self.call({"op": "render", "clips": len(transcripts), "public": dict(public),
                              "decoding": decoding}, arrays)
        frames, side, count = found.get("frames"), public["canvas_px"], public["frames"]
        if frames is None or frames.dtype != np.uint8 or frames.ndim != 4 or len(frames) < count \
                or frames.shape[1:] != (side, side, 3):
            got = "nothing" if frames is None else f"{frames.dtype} {frames.shape}"
            raise PluginError(f"render of {self.spec} returned {got}, wanted uint8 "
                              f"({count} or more, {side}, {side}, 3).",
                              "A release is a video on the canvas.", "Mend `render`.")
        return frames[:count]

    def inspect(self, transcripts: Sequence[Mapping[str, np.ndarray]], public: Mapping[str, Any],
                names: Sequence[str]) -> dict[str, list[np.ndarray]]:
        """{name: one float64 (steps, d) a clip}, what `inspect` says of released values. Raises PluginError."""
        arrays = {f"{i}:{name}": rows for i, clip in enumerate(transcripts) for name, rows in clip.items()}
        _, found = self.call({"op": "inspect", "clips": len(transcripts), "public": dict(public)}, arrays)
        if set(found) != {f"{i}:{name}" for i in range(len(transcripts)) for name in names}:
            raise PluginError(f"inspect of {self.spec} gave {sorted(found)[:6]}, wanted {sorted(names)} of each of "
                              f"{len(transcripts)} clips.", "", "Give what `inspects` names.")
        steps = len(next(iter(transcripts[0].values())))
        for key, rows in found.items():
            if rows.ndim != 2 or len(rows) != steps or not np.isfinite(rows).all():
                raise PluginError(f"inspect of {self.spec} gave {key.partition(':')[2]!r} of shape {rows.shape}, "
                                  f"finite: {bool(np.isfinite(rows).all())}; wanted finite ({steps}, d).",
                                  "A diagnostic reads one row a frame.", "Mend `inspect`.")
        return {name: [found[f"{i}:{name}"].astype(np.float64) for i in range(len(transcripts))] for name in names}
