"""The worker's side: import one method, answer requests on stdin and stdout until stdin closes.

What the method prints goes to standard error; the answer pipe is out of its reach by accident, not by force
(isolation is the sandbox's business).
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bench import registry, seeds
from bench.errors import UserError
from bench.privacy.accounting import claimed, price
from bench.privacy.bits import Bits, OsBits, SeededBits
from bench.privacy.claim_table import claim_to
from bench.privacy.contract import PrivateMethod, full_claim
from bench.privacy.declared import DeclaredMethod, declared_claim, release_clips
from bench.privacy.simulate import simulator
from bench.run import wire
from bench.types import Context, Video

CPU_S, MEMORY_BYTES = 4 * 3600, 12 * 2**30
Answer = tuple[dict[str, Any], dict[str, np.ndarray]]


class Session:
    """One method in one process."""

    def __init__(self) -> None:
        self.method: Any = None  # a bench.Method, after `load`
        self.profile, self.row = "tiny", ""
        self.isolation: Any = None  # a sandbox.Isolation in a locked-in worker

    def load(self, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Answer:
        spec = registry.Spec(header["name"], header["variant"])
        self.profile, self.row = header["profile"], str(spec)
        self.method = registry.build("methods", spec)
        return {"ok": True}, {}

    def facts(self, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Answer:
        cls = type(self.method)
        short = self.method.claim
        private: dict[str, Any] = {}
        if isinstance(self.method, DeclaredMethod):
            terms = declared_claim(self.method)
            short, private = claimed(terms, price(terms)), {"full_claim": claim_to(terms)}
        claim = {k: (str(v) if v == float("inf") else v) for k, v in asdict(short).items()}
        if isinstance(self.method, PrivateMethod):
            private = {"full_claim": claim_to(full_claim(self.method)), "atom": cls.atom,
                       "branches": [b.as_dict() for b in self.method.branches],
                       "encodes": self.method.encode if isinstance(self.method.encode, str) else "method",
                       "plans": cls.plan is not PrivateMethod.plan, "probed": cls.probed,
                       "inspects": list(self.method.inspects)}
        return {**private, "lane": cls.lane, "needs": sorted(cls.needs), "assets": list(cls.assets), "fits": cls.fits,
                "memory_between_clips": cls.memory_between_clips, "control": cls.control, "claim": claim,
                "random_release": bool(getattr(self.method, "random_release", False)),  # of a method without a claim
                "doc": cls.__doc__ or "", "variants": sorted(cls.variants)}, {}

    def state(self, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Answer:
        self.method.load(arrays)
        if self.isolation is not None and self.isolation.level == 3:
            from bench.run.sandbox import seal

            seal(self.isolation)
        return {"ok": True}, {}

    def fit(self, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Answer:
        from bench.run.views import development, load_tensors, state_of

        seed = int(header["seed"])
        private = isinstance(self.method, PrivateMethod)
        context = Context(rng=lambda *names: seeds.derive(seed, *names), profile=self.profile,
                          torch_seed=lambda *names: seeds.derive_torch(seed, *names),
                          report=lambda text: print(text, file=sys.stderr, flush=True),
                          simulate=simulator(self.method, seeds.derive_torch(seed, "simulate")) if private else None)
        data = development(Path(header["development"]), type(self.method).needs)
        self.method.fit(data, {k: load_tensors(Path(v)) for k, v in header["assets"].items()}, context)
        return {"ok": True}, state_of(self.method, type(self.method).__name__)

    def release(self, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Answer:
        video = Video(arrays["frames"], header["fps"])
        if isinstance(self.method, DeclaredMethod):
            result = self._declared(video, int(header["seed"]), header.get("noise") == "os")
        else:
            result = self.method.release(video, np.random.Generator(np.random.PCG64(int(header["seed"]))))
        if not isinstance(result, Video):
            raise TypeError(f"release returned {type(result).__name__}, not a Video")
        return {"fps": result.fps}, {"frames": result.frames}

    def counts(self, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Answer:
        """Frames that a method without a claim says it had to treat apart, by what it did, over all releases so far.

        Of a method with a claim always none: a count is an answer about the videos, and no noise hides it.
        """
        found = getattr(self.method, "counts", None) if type(self.method).lane == "none" else None
        return {"counts": {str(name): int(count) for name, count in (found or {}).items()}}, {}

    def _declared(self, video: Video, seed: int, operating_system: bool) -> Video:
        """Clip by clip, with noise that no other release has: two that shared it would give their difference away."""
        def bits(clip: int) -> Bits:
            return OsBits() if operating_system else SeededBits(seeds.derive(seed, "protective-noise", self.row, clip))

        def rng(*names: str | int) -> np.random.Generator:
            return seeds.derive(seed, "chance", *names)
        return release_clips(self.method, video, rng, bits, self.profile)

    def plan(self, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Answer:
        past, memory = ({k.partition(":")[2]: v for k, v in arrays.items() if k.startswith(kind)}
                        for kind in ("past:", "memory:"))
        plan = self.method.plan(header["t"], past, memory, header["public"])
        arrays = {f"scale:{k}": np.asarray(v, dtype=np.float64) for k, v in plan.scale.items()}
        spends = {k: [str(e) for e in v] for k, v in plan.spend.items()}
        return {"spend": spends}, arrays | {f"memory:{k}": np.asarray(v) for k, v in plan.memory.items()}

    def render(self, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Answer:
        return {"ok": True}, {"frames": self.method.render(_clips(header, arrays), header["public"],
                                                           header["decoding"])}

    def inspect(self, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Answer:
        found = self.method.inspect(_clips(header, arrays), header["public"])
        return {"ok": True}, {f"{i}:{name}": np.asarray(rows) for name, clips in found.items()
                              for i, rows in enumerate(clips)}


def _clips(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Released values of each clip of one source."""
    clips: list[dict[str, np.ndarray]] = [{} for _ in range(header["clips"])]
    for key, rows in arrays.items():
        number, _, name = key.partition(":")
        clips[int(number)][name] = rows
    return clips


def _lock_in() -> Any:
    """Isolation, when the harness asks for it in argv[2]: trusted packages first, then the lock, then the method."""
    if len(sys.argv) <= 2:
        return None
    from bench.run.preload_method import preload
    from bench.run.sandbox import Isolation, confine

    options = json.loads(sys.argv[2])
    preload(options["preload"])
    isolation = Isolation.from_dict(options["isolation"])
    confine(isolation, [Path(p) for p in options["readable"]], cpu_s=CPU_S, memory_bytes=MEMORY_BYTES)
    return isolation


def main() -> None:
    """Serve until the harness closes the pipe."""
    inward, outward = os.dup(0), os.dup(1)
    isolation = _lock_in()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a method that dies has said why
    session = Session()
    session.isolation = isolation
    while True:
        try:
            header, arrays = wire.receive(inward)
        except wire.WireClosed:
            return
        wire.send(outward, *_answer(getattr(session, header["op"]), header, arrays, session.row))


def _answer(operation: Callable[..., Answer], header: Mapping[str, Any], arrays: Mapping[str, np.ndarray],
            row: str) -> Answer:
    try:
        return operation(header, arrays)
    except UserError as error:
        return {"refused": [error.what, error.why, error.remedy]}, {}
    except BaseException as error:
        traceback.print_exc()
        where = _fault(traceback.extract_tb(error.__traceback__), row or header.get("name", ""))
        if "read-only" in str(error):
            error = ValueError("it writes to its input, which belongs to the harness; copy the frames first")
        return {"error": f"{type(error).__name__}: {error}"[:2000],
                "where": where}, {}


def _fault(frames: list[traceback.FrameSummary], row: str) -> str:
    """The last line of the method's own files that led to a fault, else the last line of all."""
    own = registry.source_file("methods", registry.Spec.parse(row).name)
    folder = own.parent if own.name == "__init__.py" else None
    mine = [f for f in frames if Path(f.filename) == own or (folder and Path(f.filename).is_relative_to(folder))]
    last = (mine or frames)[-1]
    return f"At {Path(last.filename).name}, line {last.lineno}."
