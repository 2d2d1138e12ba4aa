"""Runs a plan on this machine: each stage in a process of its own, `jobs` at a time.

A failed stage keeps its reason and log, its dependants are skipped, its siblings go on. Killing the run loses only
the stages that were running: each child ends when its parent is gone, and a stage appears whole or not at all.
"""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import platform
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import cv2

from bench import __version__, registry
from bench.errors import Diverged, Undefined, UserError, WeightsMissing
from bench.run.cache import WorkFolder, write_json
from bench.run.stages import Job, Stage, function, identity

PACKAGES = ("torch", "torchvision", "timm", "facenet-pytorch", "pytorchvideo", "numpy", "scipy", "scikit-learn",
            "scikit-image", "opencv-python-headless", "av", "datasets", "duckdb")


@dataclass(frozen=True)
class Event:
    """Something that happened to a stage: cached, started, progress, done, failed or skipped."""

    what: str
    stage: Stage
    seconds: float = 0.0
    text: str = ""


@dataclass
class Outcome:
    """How a run ended, by stage digest."""

    done: set[str] = field(default_factory=set)
    cached: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)  # digest -> reason, of stages that ran
    skipped: dict[str, str] = field(default_factory=dict)  # digest -> reason, of stages that could not


@dataclass
class _Running:
    stage: Stage
    process: Any
    pipe: Connection
    started: float
    answer: dict[str, Any] | None = None


class LocalExecutor:
    """Runs stages in child processes of this machine. `on_event` is called from this process, in order."""

    def __init__(self, work: WorkFolder, jobs: int, on_event: Callable[[Event], None]):
        self.work, self.jobs, self.on_event = work, max(1, jobs), on_event
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, "1")  # a stage uses one core; `jobs` of them run at a time
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["bench.run.preload"])
        self.running: dict[str, _Running] = {}
        self.outcome = Outcome()

    def run(self, stages: list[Stage]) -> Outcome:
        """Run what is not done yet. On KeyboardInterrupt the running stages are ended, then it is raised again."""
        waiting: list[Stage] = []
        for stage in stages:
            if self.work.is_done(stage.kind, stage.digest):
                self.outcome.cached.add(stage.digest)
                self.on_event(Event("cached", stage))
            else:
                waiting.append(stage)
        try:
            while waiting or self.running:
                waiting = self._start_ready(waiting)
                if self.running:
                    self._collect()
        finally:
            for entry in self.running.values():
                _end(entry.process)
        return self.outcome

    def _start_ready(self, waiting: list[Stage]) -> list[Stage]:
        left = []
        finished = self.outcome.done | self.outcome.cached
        for stage in waiting:
            broken = [self._public_reason(s) for s in stage.inputs.values() if self._reason(s)]
            if broken:
                self.outcome.skipped[stage.digest] = broken[0]
                self._record_failure(stage, broken[0], skipped=True)
                self.on_event(Event("skipped", stage, text=broken[0]))
            elif len(self.running) < self.jobs and all(s.digest in finished for s in stage.inputs.values()):
                self._start(stage)
            else:
                left.append(stage)
        return left

    def _reason(self, stage: Stage) -> str:
        return self.outcome.failed.get(stage.digest) or self.outcome.skipped.get(stage.digest) or ""

    def _public_reason(self, stage: Stage) -> str:
        """What dependants, cells and the site say. Faults of source videos name people and files: those stay here."""
        if stage.kind == "clips" and stage.digest in self.outcome.failed:
            return "the dataset could not be prepared; `veilbench status` says why"
        return self._reason(stage)

    def _start(self, stage: Stage) -> None:
        ours, theirs = self.context.Pipe(duplex=False)
        payload = {"kind": stage.kind, "config": dict(stage.config), "digest": stage.digest,
                   "identity": identity(stage), "title": stage.title,
                   "plugins": os.environ.get(registry.EXTRA, ""),
                   "inputs": {k: str(self.work.stage(s.kind, s.digest).resolve()) for k, s in stage.inputs.items()}}
        root = str(self.work.root.resolve())  # workers stand in "/": no path may depend on where this process stands
        process = self.context.Process(target=_child, args=(json.dumps(payload), root, theirs))
        process.start()
        theirs.close()
        self.running[stage.digest] = _Running(stage, process, ours, time.monotonic())
        self.on_event(Event("started", stage))

    def _collect(self) -> None:
        handles: dict[Any, _Running] = {entry.pipe: entry for entry in self.running.values()}
        for pipe in wait(list(handles)):
            entry = handles[pipe]
            try:
                message = json.loads(entry.pipe.recv_bytes())
            except (EOFError, OSError):
                self._finish(entry)
                continue
            if "progress" in message:
                self.on_event(Event("progress", entry.stage, text=message["progress"]))
            else:
                entry.answer = message

    def _finish(self, entry: _Running) -> None:
        entry.process.join()
        entry.pipe.close()
        del self.running[entry.stage.digest]
        seconds = time.monotonic() - entry.started
        if entry.answer and entry.answer.get("ok"):
            self.outcome.done.add(entry.stage.digest)
            self.on_event(Event("done", entry.stage, seconds))
            return
        reason = (entry.answer or {}).get("reason") or _death(entry.process.exitcode)
        self.outcome.failed[entry.stage.digest] = reason
        self._record_failure(entry.stage, reason, undefined=bool((entry.answer or {}).get("undefined")))
        self.on_event(Event("failed", entry.stage, seconds, reason))

    def _record_failure(self, stage: Stage, reason: str, *, skipped: bool = False, undefined: bool = False) -> None:
        undefined = undefined or any(self._is_undefined(s) for s in stage.inputs.values())
        try:
            write_json(self.work.failure(stage.kind, stage.digest), {
                "kind": stage.kind, "title": stage.title, "digest": stage.digest, "config": dict(stage.config),
                "reason": reason, "skipped": skipped, "undefined": undefined, "time": time.time(),
                "log_tail": [] if skipped else self.work.log_tail(stage.kind, stage.digest)})
        except OSError:  # a full disk must not hide the reason, which is shown and returned anyway
            pass

    def _is_undefined(self, stage: Stage) -> bool:
        path = self.work.failure(stage.kind, stage.digest)
        return self._reason(stage) != "" and path.is_file() and json.loads(path.read_text())["undefined"]


def _end(process: Any) -> None:
    """Kill a stage and the worker it may have started: they share a process group once the stage runs."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()
    process.join()


def _death(code: int | None) -> str:
    if code == -9:
        return "the stage was killed (out of memory, or by hand)"
    return f"the stage's process ended with {f'signal {-code}' if code and code < 0 else f'exit code {code}'}"


# ---- in the child --------------------------------------------------------------------------------------------------

def _child(payload: str, root: str, pipe: Connection) -> None:
    """One stage: redirect output to its log, run, commit, answer."""
    os.setsid()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    work, stage = WorkFolder(Path(root)), json.loads(payload)
    os.environ[registry.EXTRA] = stage["plugins"]  # the fork server may be older than the last --plugin
    log = work.log(stage["kind"], stage["digest"])
    log.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    made = work.root / "tmp" / "none"
    try:
        made = Path(tempfile.mkdtemp(prefix=f"{stage['kind']}-", dir=work.root / "tmp"))  # a name nobody can guess
        made.chmod(0o755)
        _run_stage(work, stage, made, pipe)
        answer: dict[str, Any] = {"ok": True}
    except BaseException as error:
        if not isinstance(error, UserError):  # that one says all; the log ends with what the method printed
            traceback.print_exc()
        answer = {"ok": False, "reason": _reason(error, stage["identity"]["plugins"]),
                  "undefined": isinstance(error, (Undefined, WeightsMissing))}
        shutil.rmtree(made, ignore_errors=True)
    sys.stdout.flush()
    sys.stderr.flush()
    pipe.send_bytes(json.dumps(answer).encode())
    pipe.close()


def _end_with_parent() -> None:
    """End this process, and the worker it may have started, when the run that asked for it is gone."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.killpg(0, signal.SIGKILL)


def _run_stage(work: WorkFolder, stage: Mapping[str, Any], made: Path, pipe: Connection) -> None:
    def report(text: str) -> None:
        print(text, flush=True)
        pipe.send_bytes(json.dumps({"progress": text}).encode())

    cv2.setNumThreads(1)
    _check_plugins(stage["identity"]["plugins"])
    began = time.time()
    function(stage["kind"])(Job(stage["config"], {k: Path(v) for k, v in stage["inputs"].items()}, made, report))
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    peak_kb, cpu_s = max(u.ru_maxrss for u in used), sum(u.ru_utime + u.ru_stime for u in used)
    work.commit(stage["kind"], stage["digest"], made, {
        "schema": 1, "kind": stage["kind"], "title": stage["title"], "digest": stage["digest"],
        "identity": stage["identity"], "seconds": round(time.time() - began, 3), "cpu_s": round(cpu_s, 3),
        "peak_mb": round(peak_kb / 1024, 1), "finished": time.time(),
        "environment": environment()})


def _check_plugins(planned: Mapping[str, str]) -> None:
    """Refuse a plug-in that was edited after the run was planned: its result would carry another source's digest."""
    for label, digest in planned.items():
        kind, name = label.split("/")
        if registry.source_digest(kind, name) != digest:
            raise UserError(f"The source behind {label} changed while the run was going.",
                            "The result would carry the digest of what was planned.", "Run the same command again.")


def environment() -> dict[str, Any]:
    """Versions that the bytes of a result may depend on."""
    return {"veilbench": __version__, "python": platform.python_version(), "machine": platform.machine(),
            "system": platform.system(), "packages": {name: version(name) for name in PACKAGES}}


def _reason(error: BaseException, plugins: Iterable[str] = ()) -> str:
    """One sentence for the board. `plugins`: "kind/name" of those whose code the stage ran."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "the disk is full; nothing was kept of this stage. Free space, then run the same command again"
    if isinstance(error, Diverged):
        return f"diverged: {error}"
    if isinstance(error, (UserError, Undefined)):
        return str(error)
    return f"{type(error).__name__}: {error}{_place(error, plugins)}"


def _place(error: BaseException, plugins: Iterable[str]) -> str:
    """" (blur.py, line 12)": the last line of a plug-in that the error passed through, "" where there is none.

    The file's name alone: reasons are published, and say nothing of this machine's folders.
    """
    files = {registry.source_file(*label.split("/")) for label in plugins}
    folders = {file.parent for file in files if file.name == "__init__.py"}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path in files or folders & set(path.parents):
            return f" ({path.name}, line {frame.lineno})"
    return ""
