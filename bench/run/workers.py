"""Method code runs in a process of its own; the harness talks to it in arrays and JSON and never imports it.

The worker is started with a scrubbed environment in the root directory, gets frames and a derived random number,
and can only answer. A worker that raises, hangs, dies or answers with the wrong shape becomes a PluginError.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from bench.errors import PluginError
from bench.registry import EXTRA, ROOT, Spec
from bench.run import wire
from bench.run.sandbox import Isolation, launcher
from bench.types import Video

START_S = 120.0
CALL_S = 300.0
FIT_S = 3600.0
LOG_BYTES = 1 << 20
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "VIRTUAL_ENV", "LD_LIBRARY_PATH", EXTRA)
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from bench.run.worker_main import main; main()"


def worker_environment(readable: Sequence[Path] | None = None) -> dict[str, str]:
    """A scrubbed environment: no variable of the caller's but those that Python and a plug-in path need.

    readable: of a locked-in worker; it hears of no plug-in file that it could not read.
    """
    kept = {k: v for k, v in os.environ.items() if k in _KEPT}
    if readable is not None and EXTRA in kept:
        kept[EXTRA] = os.pathsep.join(p for p in kept[EXTRA].split(os.pathsep) if Path(p) in readable)
    return kept | {
        "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0"}


def _copy_log(fd: int) -> None:
    """What a locked-in method prints, to our standard error: LOG_BYTES at most, the rest is read and dropped."""
    left = LOG_BYTES
    with contextlib.suppress(OSError):
        while part := os.read(fd, 1 << 16):
            os.write(2, part[:left])
            left = max(0, left - len(part))


class MethodWorker:
    """One process that runs one method. Use as a context manager.

    Its standard error goes to the caller's, which in a stage is the stage's log.
    """

    def __init__(self, spec: Spec, profile: str, *, call_s: float = CALL_S, isolation: Isolation | None = None,
                 readable: Sequence[Path] = (), preload: Sequence[str] = ()):
        self.spec, self.profile, self.call_s, self.isolation = spec, profile, call_s, isolation
        self.readable, self.preload = list(readable), list(preload)
        self.process: subprocess.Popen[bytes] | None = None
        self.log: threading.Thread | None = None

    def __enter__(self) -> Self:
        argv = [sys.executable, "-I", "-c", _BOOT, str(ROOT)]
        if self.isolation is not None:
            argv.append(json.dumps({"isolation": self.isolation.as_dict(), "preload": self.preload,
                                    "readable": [str(p) for p in self.readable]}))
            argv = launcher(self.isolation, argv, self.readable)
        locked = self.isolation is not None  # it may write no file, so that its log is a pipe read here
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", close_fds=True,
                                        stderr=subprocess.PIPE if locked else None,
                                        env=worker_environment(self.readable if locked else None))
        if self.process.stderr is not None:
            self.log = threading.Thread(target=_copy_log, args=(self.process.stderr.fileno(),), daemon=True)
            self.log.start()
        try:
            self.call({"op": "load", "name": self.spec.name, "variant": self.spec.variant, "profile": self.profile},
                      timeout_s=START_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        process = self.process
        if process is None:
            return
        process.kill()
        process.wait()
        if self.log is not None:
            self.log.join(5.0)  # it ends with the process; a closed number could be another pipe's next
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                pipe.close()

    def call(self, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None,
             timeout_s: float | None = None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Send one request, wait for its answer. Raises PluginError on every kind of failure."""
        timeout_s = timeout_s or self.call_s
        assert self.process and self.process.stdin and self.process.stdout
        try:
            wire.send(self.process.stdin.fileno(), header, arrays, timeout_s)
            answer, results = wire.receive(self.process.stdout.fileno(), timeout_s)
        except wire.WireTimeout:
            self.process.kill()
            raise PluginError(f"The method {self.spec} did not answer '{header['op']}' within {timeout_s:.0f} s.",
                              "It hangs or is too slow; its process was ended.", "Run it alone on one video.") from None
        except Exception as error:  # whatever a method may write on the wire
            self.process.kill()
            code = self.process.wait()
            raise PluginError(f"The process of the method {self.spec} ended during '{header['op']}' "
                              f"({'signal ' + str(-code) if code < 0 else f'exit code {code}'}).",
                              str(error), "The stage's log holds what it printed.") from None
        if "refused" in answer:
            what, why, remedy = answer["refused"]
            raise PluginError(f"The method {self.spec} cannot be used: {what}", why, remedy)
        if "error" in answer:
            raise PluginError(f"The method {self.spec} failed in '{header['op']}': {answer['error']}.",
                              answer.get("where", ""), "Mend the method; nothing was published.")
        return answer, results

    def release(self, video: Video, seed: int) -> Video:
        """Run `release` on one video. The answer has the same frames, size and rate, or PluginError is raised."""
        answer, arrays = self.call({"op": "release", "fps": video.fps, "seed": str(seed)}, {"frames": video.frames})
        frames = arrays.get("frames")
        if frames is None or frames.dtype != np.uint8 or frames.shape != video.frames.shape:
            got = "nothing" if frames is None else f"{frames.dtype} {frames.shape}"
            raise PluginError(f"The method {self.spec} returned {got}, wanted uint8 {video.frames.shape}.",
                              "A release has as many frames as its source, of the same size.",
                              "Return a Video of uint8 frames in the shape that came in.")
        if answer.get("fps") != video.fps:
            raise PluginError(f"The method {self.spec} changed fps from {video.fps} to {answer.get('fps')}.",
                              "A release keeps the rate of its source.", "Return Video(frames, video.fps).")
        return Video(frames, video.fps)

    def fit(self, development: Path, assets: Mapping[str, Path], seed: int) -> dict[str, np.ndarray]:
        """Run `fit` on a folder of development videos; returns the fitted state as arrays."""
        _, state = self.call({"op": "fit", "development": str(development), "seed": str(seed),
                              "assets": {k: str(v) for k, v in assets.items()}}, timeout_s=FIT_S)
        for name, array in state.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise PluginError(f"The fitted method {self.spec} holds values that are not finite in {name!r}.",
                                  "Training diverged.", "Its cells are invalid until it trains.")
        return state

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        self.call({"op": "state"}, dict(state))


def method_facts(spec: Spec) -> dict[str, Any]:
    """lane, needs, claim, assets, control and documentation of a method, asked of a worker: nothing is imported."""
    with MethodWorker(spec, "tiny") as worker:
        return worker.call({"op": "facts"})[0]


def family_facts(spec: Spec) -> dict[Spec, dict[str, Any]]:
    """The facts of a method and of all its variants that can be built, from one worker: its start takes seconds.

    Raises PluginError when `spec` itself can't be built.
    """
    with MethodWorker(spec, "tiny") as worker:
        found = {spec: worker.call({"op": "facts"})[0]}
        for other in (Spec(spec.name, variant) for variant in (None, *found[spec]["variants"])):
            with contextlib.suppress(PluginError):
                worker.call({"op": "load", "name": other.name, "variant": other.variant, "profile": "tiny"})
                found.setdefault(other, worker.call({"op": "facts"})[0])
    return found
