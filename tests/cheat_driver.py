"""A harness as a process of its own, so that it can be any user: it runs the plug-in `cheats` over secret bits.

At level 0 it is a harness without rules: one object encodes, plans and renders, rows are not clipped, noise is float32.
At levels 1 to 5 it is the real one. argv: sys.path entries, then JSON {"levels", "bits", "source", "seed"}.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench import registry, seeds
from bench.errors import EnvironmentFault
from bench.privacy.bits import SeededBits
from bench.privacy.contract import Branch
from bench.privacy.mechanism import clip_rows, run_streams
from bench.registry import Spec
from bench.run.enforced import EncodeWorker, PublicWorker
from bench.run.sandbox import Isolation, available

NORMAL, CRASH, FORGE, PEEK = range(4)  # as in the plug-in, which the harness never imports
BRANCHES = tuple(Branch(n, dim=4, norm="l2", clip=1.0, floor=1000.0)
                 for n in ("honest", "scaled", "extra", "huge", "nan", "low"))
FEW = 12  # bits at levels that are not green: enough to see that they leak
MEMORY = ctypes.create_string_buffer(64)  # memory of the harness, whose address the method is told


def atom(unit: int, mode: int, bit: int) -> np.ndarray:
    frames = np.full((16, 8, 8, 3), 255 * bit, np.uint8)
    frames[0, 0, 0] = (unit, mode, 0)
    return frames


def main() -> None:
    """Prints {level: what `unruly` or `isolated` returns, or why the level cannot be had}."""
    order = json.loads(sys.argv[3])
    os.environ["OMP_NUM_THREADS"] = "1"
    found: dict[int, Any] = {}
    for level in order["levels"]:
        started = time.monotonic()
        try:
            found[level] = one_level(level, order)
            found[level]["seconds"] = round(time.monotonic() - started, 1)
        except EnvironmentFault as fault:
            found[level] = str(fault)
    print(json.dumps(found))


def one_level(level: int, order: dict[str, Any]) -> dict[str, Any]:
    """A fresh plug-in file, dataset and tag, so that no level finds what another left."""
    isolation = available(level) if level else None
    bits = order["bits"] if isolation is None or isolation.green else order["bits"][:FEW]
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        plugin, dataset = Path(folder) / "cheats.py", Path(folder) / "dataset"
        shutil.copy(order["source"], plugin)
        dataset.mkdir()
        for k, bit in enumerate(bits, 1):
            (dataset / str(k)).write_text(str(bit))
        os.environ[registry.EXTRA] = str(plugin)
        registry._locations.cache_clear()
        tag = int(seeds.derive(os.getpid(), "tag", level).integers(10**6, 2**31 - 1))
        state = {"tag": np.array([tag]), "box": np.zeros(64, np.uint8),
                 "harness": np.array([os.getpid(), ctypes.addressof(MEMORY)]),
                 "dataset": np.frombuffer(str(dataset).encode(), np.uint8)}
        ctypes.memset(MEMORY, 0, len(MEMORY))
        try:
            if isolation is None:
                return unruly(bits, state, order["seed"])
            return isolated(bits, state, order["seed"], isolation)
        finally:
            clear(tag)


def clear(tag: int) -> None:
    """Remove what the cheats left on the machine; keys expire, sockets end with their processes."""
    for folder in ("/tmp", "/dev/shm"):
        for path in Path(folder).glob(f"{tag}-*"):
            path.unlink()
    libc = ctypes.CDLL(None)
    number = libc.shmget(tag, 0, 0)
    if number >= 0:
        libc.shmctl(number, 0, None)


def facts(unit: int, mode: int, clips: bool) -> dict[str, Any]:
    return {"unit": unit, "mode": mode, "clips": clips, "canvas_px": 8, "frames": 16, "fps": 25.0}


def unruly(bits: list[int], state: dict[str, np.ndarray], seed: int) -> dict[str, Any]:
    """What the same cheats come to without rules: guesses and what each unit saw of the one before."""
    cheat, rng = registry.build("methods", "cheats"), seeds.derive(seed, "noise")
    cheat.load(state)
    rows = {k: cheat.encode(atom(k, NORMAL, bit)) for k, bit in enumerate(bits, 1)}
    plan = cheat.plan(0, {}, {}, {"units": list(rows)})
    guesses = []
    for k in rows:
        released = {}
        for branch in BRANCHES:
            given = rows[k][branch.name]
            scale = plan.scale[branch.name][k - 1] if branch.name in plan.scale else branch.floor
            released[branch.name] = given + rng.normal(0, scale, given.shape).astype(np.float32)
        guesses.append(cheat.render([released], facts(k, NORMAL, False), "whole")[0].reshape(-1).tolist())
    crashes = []
    for k, bit in enumerate(bits, 1):
        try:
            given = cheat.encode(atom(k, CRASH, bit))["honest"]
            released = {"honest": given + rng.normal(0, 1000.0, given.shape).astype(np.float32)}
        except RuntimeError:
            released = {}
        crashes.append(cheat.render([released], facts(k, CRASH, False), "whole")[0].reshape(-1).tolist())
    return {"guesses": guesses, "crashes": crashes, "saw": [r["found"].tolist() for r in rows.values()]}


def isolated(bits: list[int], state: dict[str, np.ndarray], seed: int, isolation: Isolation) -> dict[str, Any]:
    """The real harness: every atom in a process of its own, then plan and render in another."""
    spec, noise = Spec("cheats"), SeededBits(seeds.derive(seed, "noise"))
    modes = [(k, mode, bit) for mode in ((NORMAL, CRASH) if isolation.green else (NORMAL,))
             for k, bit in enumerate(bits, 1)]
    units = [k for k, _, _ in modes]
    with EncodeWorker(spec, state, isolation) as worker:
        rows = [worker.encode(atom(*one)) for one in modes]
        forged = [worker.encode(atom(len(bits) + 1 + i, mode, 1)) for i, mode in enumerate((FORGE, NORMAL, PEEK))]
    clipped = {b.name: [clip_rows((r or {}).get(b.name), b, 16) for r in rows] for b in BRANCHES}
    with PublicWorker(spec, "tiny", isolation) as worker:
        worker.load_state(state)
        planner = lambda t, past, memory: worker.plan(t, past, memory, {"units": units})  # noqa: E731
        released = run_streams({n: np.stack([steps for steps, _ in v]) for n, v in clipped.items()}, BRANCHES,
                               planner, noise).released
        frames = [worker.render([{n: v[i] for n, v in released.items()}], facts(k, mode, True), "whole")
                  for i, (k, mode, _) in enumerate(modes)]
    flat = [f[0].reshape(-1).tolist() for f in frames]
    saw = [r["found"].tolist() if r else None for r in rows[:len(bits)]]
    return {"guesses": flat[:len(bits)], "crashes": flat[len(bits):], "saw": saw, "green": isolation.green,
            "bad": {n: [bad for _, bad in v] for n, v in clipped.items()},
            "forged": [r and {n: r[n].reshape(-1).tolist() for n in r} for r in forged]}
