"""What the tests of the core share: the blocks dataset, one finished run on it, and the command line."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported anywhere

import pytest  # noqa: E402

from bench import registry  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
PLUGINS = Path(__file__).resolve().parent / "plugins"
SUITE = PLUGINS / "blocks.toml"
EXTRA = ("blocks", "blocks_public", "troubled", "faulty", "learner", "two_parts", "stripes", "colours")
MENDABLE = '''"""A method that a test edits."""

from bench import Anonymizer, Video, method


@method("mendable")
class Mendable(Anonymizer):
    """Shifts grey levels."""

    def release(self, video, rng):
        {body}
'''


@dataclass
class Answer:
    """What a command did: exit code and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session", autouse=True)
def plugins(tmp_path_factory) -> Path:
    """The plug-in files of the tests, for this process and its children; returns one that a test may edit.

    Set after collection: the contract tests run over what the repository holds.
    """
    mendable = tmp_path_factory.mktemp("plugin") / "mendable.py"
    mendable.write_text(MENDABLE.format(body="return Video(video.frames // 2, video.fps)"), encoding="utf-8")
    files = [*(PLUGINS / f"{name}.py" for name in EXTRA), mendable]
    os.environ[registry.EXTRA] = os.pathsep.join(map(str, files))
    registry._locations.cache_clear()
    return mendable


@pytest.fixture
def cli(monkeypatch, capsys, tmp_path):
    """Run a command in this process, in an empty folder."""
    from bench.cli import main

    def call(*words: object) -> Answer:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["veilbench", *map(str, words)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        return Answer(code, *capsys.readouterr())

    return call


def environment(**more: str) -> dict[str, str]:
    """For a process of its own: the project can be imported from anywhere."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def start(*words: object, cwd: Path, **more: str) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    return subprocess.Popen([sys.executable, "-c", "from bench.cli import main; main()", *map(str, words)], cwd=cwd,
                            env=environment(**more), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def descendants(pid: int) -> set[tuple[int, str]]:
    """(pid, start time) of every process below this one."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
    found, grown = {pid}, True
    while grown:
        more = {p for p, parent in parents.items() if parent in found} - found
        found, grown = found | more, bool(more)
    return {(p, started(p)) for p in found - {pid}}


def started(pid: int) -> str:
    """When a process started, "" when it is gone or only waits to be collected."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def alive_after(processes: set[tuple[int, str]], seconds: float) -> list[int]:
    """Those of the processes that still live after this long at most."""
    deadline = time.monotonic() + seconds
    while True:
        left = [pid for pid, since in processes if since and started(pid) == since]
        if not left or time.monotonic() > deadline:
            for pid in left:  # nothing may outlive the test
                os.kill(pid, signal.SIGKILL)
            return left
        time.sleep(0.1)


@pytest.fixture(scope="session")
def road(tmp_path_factory, plugins) -> Path:
    """Work folder of one finished run of SUITE, made once for all test processes. Copy it to change it."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    work, log = base / "road", base / "road.log"
    with open(base / "road.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not log.is_file():
            run = start("run", SUITE, "--workdir", work, "--jobs", 2, cwd=base)
            out, err = run.communicate(timeout=900)
            log.write_text(f"{run.returncode}\n{out}\n{err}", encoding="utf-8")
    text = log.read_text(encoding="utf-8")
    if not text.startswith("0\n"):
        pytest.fail(f"the run on blocks failed: {text[-3000:]}")
    return work


@pytest.fixture
def copied(road, tmp_path) -> Path:
    """A copy of the finished work folder, for a test that changes it."""
    return Path(shutil.copytree(road, tmp_path / "work"))


@pytest.fixture(scope="session")
def small(tmp_path_factory, plugins) -> Path:
    """The blocks dataset prepared at 16 px, seed 3. Read-only."""
    from bench.data.clips import write_clips

    folder = tmp_path_factory.mktemp("small") / "clips"
    write_clips(registry.build("datasets", "blocks"), None, 3, 16, folder, lambda text: None)
    return folder


@pytest.fixture
def one_thread():
    """Torch as a stage runs it, and afterwards as it was."""
    import torch

    from bench.nets.training import use_threads

    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    use_threads()
    yield
    torch.set_num_threads(before[0])
    torch.use_deterministic_algorithms(before[1])
