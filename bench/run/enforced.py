"""The harness side of an enforced method: encode in one process, plan and render in another, later one.

Method code never sees a raw value and a released one in the same process, and the harness never imports a method.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bench import registry
from bench.errors import PluginError
from bench.privacy.accounting import Price, claimed, price
from bench.privacy.claim_file import claim_from
from bench.privacy.claims import FullClaim
from bench.privacy.contract import Branch, Plan
from bench.registry import Spec
from bench.run import wire
from bench.run.preload_method import modules_behind
from bench.run.sandbox import Isolation, default_readable, launcher
from bench.run.workers import MethodWorker, worker_environment

ENCODE_S = 120.0
BLOCK = 64  # streams in lock-step; fixed, since sums inside a method may depend on the size of a batch
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


def short_claim(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The claim stored with every row of the board, infinity as text."""
    short = asdict(claimed(*priced(facts)))
    return {k: (str(v) if v == float("inf") else v) for k, v in short.items()}


def branches_of(facts: Mapping[str, Any]) -> tuple[Branch, ...]:
    return tuple(Branch.from_dict(b) for b in facts["branches"])


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
                                            stdout=subprocess.PIPE, cwd="/", env=worker_environment(),
                                            pass_fds=(theirs,))
        finally:
            os.close(theirs)
        try:
            self._send({}, self.state)
            self._control(120.0)
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
        wire.send(self.process.stdin.fileno(), header, arrays)

    def _control(self, seconds: float) -> dict[str, Any]:
        assert self.process.stdout
        try:
            return wire.receive(self.process.stdout.fileno(), seconds)[0]
        except (wire.WireTimeout, wire.WireClosed) as error:
            raise PluginError(f"The encode process of {self.spec} ended or does not answer.", type(error).__name__,
                              "Run `veilbench doctor`; the stage's log holds what it printed.") from None

    def encode(self, atom: np.ndarray) -> dict[str, np.ndarray] | None:
        """Rows of one atom, uint8 (16, H, W, 3), from a process that sees nothing else."""
        nonce = os.urandom(16).hex()
        self._send({"nonce": nonce}, {"atom": atom})
        answer: tuple[dict[str, Any], dict[str, np.ndarray]] | None
        try:
            answer = self._answer()
        except (wire.WireClosed, wire.WireTimeout, ValueError, KeyError, TypeError):
            answer = None
        self._control(self.call_s + 30.0)
        while select.select([self._results], [], [], 0)[0] and os.read(self._results, 1 << 20):
            pass  # a child that wrote more than one answer reaches nobody: it is dead, the pipe is emptied
        return answer[1] if answer and answer[0].get("nonce") == nonce else None

    def _answer(self) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
        """The child's message, or None when it died without one (then the control pipe speaks first)."""
        assert self.process.stdout
        ready = select.select([self._results, self.process.stdout.fileno()], [], [], self.call_s)[0]
        return wire.receive(self._results, self.call_s) if self._results in ready else None


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
