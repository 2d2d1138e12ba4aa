"""The encode parent: loaded before any data, forks one child per atom before the method is loaded, then waits.

The parent never holds an atom: the child reads it from the pipe after the fork, locks itself in, loads the method,
encodes, answers on a pipe of its own and dies. So no atom leaves a trace that the next child could find.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench import registry
from bench.run import libc, wire
from bench.run.preload_method import preload
from bench.run.sandbox import Isolation, confine, seal, shield

RESULTS_FD = 3  # where a child answers; the parent never writes there
CPU_S, MEMORY = 120, 8 * 2**30


def main() -> None:
    """Serve until the harness closes the pipe. argv[2]: JSON with name, variant, isolation, readable, call_s."""
    options = json.loads(sys.argv[2])
    control = os.dup(1)
    os.dup2(2, 1)
    preload(options["preload"])
    registry.locate("methods", options["name"])  # lists the plug-ins once, not in every child; loads none
    if options["isolation"]["level"] < 5:
        shield()
    state = wire.receive(0)[1]
    wire.send(control, {"ready": True})
    while True:
        select.select([0], [], [])
        child = os.fork()
        if child == 0:
            os.close(control)
            _child(options, state)
        code = _wait(child, options["call_s"])
        if code == _END:
            return
        wire.send(control, {"exit": code})


_PR_SET_PDEATHSIG = 1
_END = 77  # exit code of a child that found the pipe closed


def _wait(child: int, seconds: float) -> int:
    """Exit code of the child, negative for a signal; it is killed at the deadline."""
    handle = os.pidfd_open(child)
    if not select.select([handle], [], [], seconds)[0]:
        os.kill(child, signal.SIGKILL)
    os.close(handle)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _child(options: Mapping[str, Any], state: Mapping[str, np.ndarray]) -> None:
    """One atom. Never returns; its standard error is lost, since a traceback could quote the atom."""
    code = 1
    try:
        if sys.platform.startswith("linux"):
            libc.call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # no child outlives the parent
        try:
            header, arrays = wire.receive(0)
        except wire.WireClosed:
            os._exit(_END)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.dup2(options["results_fd"], RESULTS_FD)
        os.closerange(RESULTS_FD + 1, 256)
        isolation = Isolation.from_dict(options["isolation"])
        confine(isolation, [Path(p) for p in options["readable"]], cpu_s=CPU_S, memory_bytes=MEMORY)
        method = registry.build("methods", registry.Spec(options["name"], options["variant"]))
        method.load(state)
        if isolation.level == 3:  # what it promises in place of Landlock
            seal(isolation)
        rows = method.encode(arrays["atom"])
        wire.send(RESULTS_FD, {"nonce": header["nonce"]}, {str(k): np.asarray(v) for k, v in dict(rows).items()})
        code = 0
    finally:
        os._exit(code)
