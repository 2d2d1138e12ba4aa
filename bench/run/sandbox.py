"""Isolation of the processes that run method code: the strongest level that this machine has, for root and plain users.

    level  layers                                           green
    1      bubblewrap, Landlock, seccomp, rlimits           yes
    2      read-only mounts (where the system lets),
           Landlock, seccomp, rlimits                       yes    the default: no package, no privilege
    3      bubblewrap, seccomp, late filter, rlimits        yes    a kernel without Landlock
    4      namespaces, Landlock, rlimits                    no     an architecture without a filter table
    5      process split only                               no     not Linux

`available` finds the level, `launcher` starts the process, and inside it `confine` locks before method code is
imported; `seal` adds the late filter after everything is loaded. Landlock and seccomp bind one thread and what it
starts later, hence the assertion that there is one. Set OMP_NUM_THREADS and OPENBLAS_NUM_THREADS to 1 and import
numpy (and torch, which needs a temporary folder) before `confine`. What a process inherits stays open to it: file
descriptors, memory of the parent it was forked from, environment; the caller sees to these.
"""

from __future__ import annotations

import json
import math
import os
import resource
import site
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from bench.errors import ConfigError, EnvironmentFault
from bench.registry import ROOT
from bench.run import bubblewrap, landlock, libc, mounts, seccomp

VARIABLE = "VEILBENCH_ISOLATION"
_BWRAP, _LANDLOCK, _SECCOMP = (1, 3), (1, 2, 4), (1, 2, 3)  # levels that have the layer
_SYSTEM = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo",
           "/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/sys/devices/system/cpu/online")
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38
_NEW_NAMESPACES = 0x10000000 | 0x40000000 | 0x08000000  # CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWIPC
_FILES = 256  # RLIMIT_NOFILE
_TRIAL = ("import sys; sys.path.insert(0, sys.argv[1]); from bench.run.sandbox import _trial; "
          "_trial(int(sys.argv[2]))")
_TRIAL_S = 30.0
_CLOSED = "Method code sees no dataset, network or other process and leaves no file or message; open: "
_TIMING = "the duration of a run, timing of CPU caches and the page cache, load and free memory of the machine."
_TRACES = " The system notes when a listed file was last read, and later processes can see it."
_OPEN = {
    1: _CLOSED + _TIMING,
    2: _CLOSED + "names, sizes and times of files elsewhere, " + _TIMING,
    3: _CLOSED + _TIMING,
    4: "Method code sees no dataset and no network; open: keyring, file metadata, file locks, new processes, limits "
       "of other processes, names, sizes and times of files elsewhere, " + _TIMING,
    5: "Method code runs in a process of its own and nothing holds it there; open: files, network, other processes.",
}

T = TypeVar("T")


class SandboxError(EnvironmentFault):
    """A layer that the isolation level promises could not be put in force."""


@dataclass(frozen=True)
class Isolation:
    """A level, and the layers in force at it in the order in which they are set."""

    level: int
    layers: tuple[str, ...]

    @property
    def green(self) -> bool:
        """Whether a release made at this level may be called private by construction."""
        return self.level <= 3

    @property
    def text(self) -> str:
        """One line for people, with what remains open."""
        traces = _TRACES if self.level in (2, 4) and mounts.LAYER not in self.layers else ""
        return f"level {self.level} ({', '.join(self.layers) or 'process split only'}): {_OPEN[self.level]}{traces}"

    def as_dict(self) -> dict[str, Any]:
        return {"level": self.level, "green": self.green, "layers": list(self.layers), "text": self.text}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Isolation:
        """The value that `as_dict` wrote. Raises KeyError, TypeError or ValueError on anything else."""
        if entry["level"] not in _OPEN:
            raise ValueError(f"isolation level {entry['level']!r}, wanted 1 to {len(_OPEN)}")
        return cls(int(entry["level"]), tuple(map(str, entry["layers"])))


# ---- which level ---------------------------------------------------------------------------------------------------

def available(force: int | None = None) -> Isolation:
    """The best level of this machine, or the one that `force` or the environment variable asks for.

    Each level is tried once per process, in a child that is thrown away.

    Raises:
        ConfigError: the level asked for is no level.
        EnvironmentFault: the level asked for cannot be had here.
    """
    asked = os.environ.get(VARIABLE, "") if force is None else str(force)
    if not asked:
        return next(found for level in _OPEN if isinstance(found := _tried(level), Isolation))
    if asked not in map(str, _OPEN):
        raise ConfigError(f"There is no isolation level {asked!r}.", "", f"{VARIABLE} takes 1 to {len(_OPEN)}.")
    found = _tried(int(asked))
    if isinstance(found, Isolation):
        return found
    raise EnvironmentFault(f"Isolation level {asked} was asked for and cannot be had here: {found}.",
                           "A weaker level must be a person's decision.",
                           f"Unset {VARIABLE}; `veilbench doctor` says what this machine has.")


@cache
def _tried(level: int) -> Isolation | str:
    """The level with its layers, or why it cannot be had."""
    if level == 5:
        return Isolation(5, ())
    if not sys.platform.startswith("linux"):
        return f"{sys.platform} is not Linux"
    if level in _BWRAP and not bubblewrap.program():
        return "bubblewrap (bwrap) is not installed"
    if level in _LANDLOCK and not landlock.abi():
        return "this kernel has no Landlock"
    if level in _SECCOMP and not seccomp.machine():
        return "there is no seccomp table for this architecture"
    argv = launcher(Isolation(level, ()), [sys.executable, "-I", "-c", _TRIAL, str(ROOT), str(level)],
                    default_readable())
    try:
        done = subprocess.run(argv, env=_trial_environment(), cwd="/", stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, timeout=_TRIAL_S)
        return Isolation(level, tuple(json.loads(done.stdout)))
    except subprocess.TimeoutExpired:
        return f"the trial did not end within {_TRIAL_S:.0f} s"
    except ValueError:
        lines = done.stderr.strip().splitlines() or [f"the trial ended with code {done.returncode}"]
        return lines[-1][:500]


def _trial_environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LD_LIBRARY_PATH")}
    return kept | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
                   "PYTHONDONTWRITEBYTECODE": "1"}


def _trial(level: int) -> None:
    """In the child: lock, see that the locks hold, print the layers."""
    import socket

    read_only = level == 2 and _may_remount()
    isolation = Isolation(level, ())
    confine(isolation, default_readable(), cpu_s=10, memory_bytes=2**32)
    if level in _LANDLOCK:
        _must_fail("Landlock", lambda: os.open("/proc/self/status", os.O_RDONLY))
    if level in _SECCOMP:
        _must_fail("seccomp", lambda: socket.socket())
    layers = {"bubblewrap": level in _BWRAP, mounts.LAYER: read_only,
              "namespaces": level == 4, "rlimits": True,
              f"landlock abi {landlock.abi()}": level in _LANDLOCK, "seccomp": level in _SECCOMP,
              "late filter": level == 3}
    if level == 3:
        seal(isolation)
        _must_fail("the late filter", lambda: os.stat("/"))
    os.write(1, json.dumps([name for name, there in layers.items() if there]).encode())


def _may_remount() -> bool:
    try:
        mounts.make_read_only()
    except OSError:
        return False
    return True


def _must_fail(layer: str, attempt: Callable[[], object]) -> None:
    try:
        attempt()
    except PermissionError:
        return
    raise SandboxError(f"{layer} was put in force and does not hold.", "", "Report it with the kernel's version.")


# ---- how to start --------------------------------------------------------------------------------------------------

def default_readable() -> list[Path]:
    """Existing paths that Python, its packages and this project's code are read from; never the whole checkout.

    Of the interpreter's prefixes only the program folders are listed, so that data below a prefix stays closed. Each
    path is given as Python spells it and, where links lead elsewhere, as the file system does. Packages that are
    installed as a link to a source folder are not listed: their folder may hold data, so the caller names it.
    """
    return list(_default_readable())


@cache
def _default_readable() -> tuple[Path, ...]:
    prefixes = {Path(p) for p in (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)}
    wanted = [prefix / part for prefix in sorted(prefixes) for part in ("bin", "lib", "lib64", "pyvenv.cfg")]
    wanted += [Path(os.__file__).parent, *map(Path, site.getsitepackages()), *map(Path, _SYSTEM)]
    wanted += [ROOT / "bench", ROOT / "methods"]
    found = dict.fromkeys(p for path in wanted for p in (path, path.resolve()) if os.path.exists(p))
    around = [p for p in found if ROOT.is_relative_to(p.resolve())]
    if around and ROOT not in (Path(p).resolve() for p in site.getsitepackages()):
        raise SandboxError(f"The checkout {ROOT} lies in {around[0]}, where Python's packages are read from.",
                           "Data in the checkout would be open to method code.", "Move the checkout elsewhere.")
    return tuple(p for p in found if found.keys().isdisjoint(p.parents))


def launcher(isolation: Isolation, argv: list[str], readable: list[Path]) -> list[str]:
    """The command line that starts a worker; levels 1 and 3 put bubblewrap before it."""
    return bubblewrap.command(argv, readable) if isolation.level in _BWRAP else list(argv)


# ---- inside the worker ---------------------------------------------------------------------------------------------

def confine(isolation: Isolation, readable: Sequence[Path], *, cpu_s: int, memory_bytes: int,
            late: bool = False) -> None:
    """Lock this process to the readable paths; irreversible. At level 5 nothing is done.

    Args:
        isolation: from `available`; at levels 1 and 3 the process was started by `launcher`.
        readable: `default_readable()` and the plug-in's file; computed by the parent when it forks.
        cpu_s: CPU seconds from now on; the kernel ends the process after them.
        memory_bytes: address space in all, what is mapped already included (torch alone takes 3 GiB).
        late: also `seal`, when everything is loaded already.

    Raises:
        SandboxError: a layer of the level is not in force. The process must end then.
    """
    if isolation.level == 5:
        return
    _step("one thread", _assert_one_thread)
    _step("no_new_privs", lambda: libc.call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _step("rlimits", lambda: _limit(cpu_s, memory_bytes))
    if mounts.LAYER in isolation.layers:
        _step(mounts.LAYER, mounts.make_read_only)
    if isolation.level == 4:
        _step("namespaces", lambda: libc.call("unshare", _NEW_NAMESPACES))
    if isolation.level in _LANDLOCK:
        _step("Landlock", lambda: landlock.restrict(readable))
    if isolation.level in _SECCOMP:
        writing = isolation.level in _LANDLOCK
        _step("seccomp", lambda: seccomp.install(seccomp.deny_list(seccomp.machine(), os.getpid(), writing=writing)))
    if late:
        seal(isolation)


def seal(isolation: Isolation) -> None:
    """The late filter: from here on no system call that takes a path. Level 3 promises it once the method is loaded.

    Levels 4 and 5 have no filters; nothing is done there. Code that ran before could have replaced this function: who
    must be sure counts Seccomp_filters in /proc/<pid>/status from outside. Raises SandboxError.
    """
    if isolation.level in _SECCOMP:
        _step("the late filter", lambda: seccomp.install(seccomp.late_list(seccomp.machine())))


def shield() -> None:
    """For a parent that forks confined children: keep its memory, environment and descriptors from them by /proc.

    Landlock does this already; at level 3 it is needed until `seal`. The filters are assembled here once, which spares
    each child a millisecond. Raises SandboxError.
    """
    _step("not dumpable", lambda: libc.call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0))
    if name := seccomp.machine():
        for writing in (False, True):
            seccomp.deny_list(name, os.getpid(), writing=writing)
        seccomp.late_list(name)


def _step(name: str, action: Callable[[], T]) -> T:
    try:
        return action()
    except (OSError, ValueError, KeyError) as error:
        raise SandboxError(f"The sandbox's layer '{name}' could not be put in force: {error}.",
                           "Method code must not run with less than its release will say.",
                           f"Look at `veilbench doctor`; {VARIABLE} asks for a weaker level.") from error


def _assert_one_thread() -> None:
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise OSError(f"the process has {threads} threads, and locks bind only the one that sets them")


def _limit(cpu_s: int, memory_bytes: int) -> None:
    seconds = math.ceil(cpu_s + time.process_time() - 0.1)  # the kernel counts from the start of the process
    for kind, value in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, memory_bytes), (resource.RLIMIT_CORE, 0),
                        (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_NOFILE, _FILES)):
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
