"""The sandbox: every probe succeeds without it and fails within it, for this user and for nobody, at every level.

A host process (this file as a program) holds secrets and forks one child per probe, as the encode parent forks one
per atom; in the child the probe runs alone ("open") or after `confine` ("closed").
"""

from __future__ import annotations

import ctypes
import encodings.idna  # noqa: F401  # sockets load it, which nobody may not be able to
import fcntl
import json
import mmap
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache
from pathlib import Path

import pytest

from bench.errors import ConfigError, EnvironmentFault
from bench.registry import ROOT
from bench.run import landlock, libc, sandbox, seccomp

NOBODY = 65534
GREEN = (1, 2, 3)
SPUN = (0, 2)  # levels at which the CPU limit is tried, for it takes a second
MEMORY = 4 * 2**30
BOOT = ("import sys; sys.path[:0] = sys.argv[1:3]; import numpy, pytest, test_sandbox; "
        "test_sandbox.host(*sys.argv[3:])")
SECRET = ctypes.create_string_buffer(b"SECRET")
linux = pytest.mark.skipif(not seccomp.machine() or not landlock.abi(), reason="no Landlock or no seccomp table here")


def system(name: str, *arguments: int | bytes | None) -> int:
    """A system call by name."""
    column = seccomp.MACHINES[seccomp.machine()][0]
    return libc.call("syscall", (seccomp.DENIED | seccomp.CHECKED)[name][column], *arguments)


# ---- what must fail: raises OSError or MemoryError when it does ----------------------------------------------------

def read_dataset(facts):
    assert Path(facts["dataset"]).read_bytes() == b"SECRET"


def list_dataset(facts):
    assert os.listdir(Path(facts["dataset"]).parent)


def tcp(facts):
    socket.create_connection(("127.0.0.1", facts["tcp"]), 2).close()


def udp(facts):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.sendto(b"x", ("127.0.0.1", facts["udp"]))


def abstract_socket(facts):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("\0" + facts["abstract"])


def socket_pair(facts):
    socket.socketpair()


def parent_environ(facts):
    assert Path(f"/proc/{os.getppid()}/environ").read_bytes()


def parent_memory(facts):
    fd = os.open(f"/proc/{os.getppid()}/mem", os.O_RDONLY)
    assert os.pread(fd, 6, ctypes.addressof(SECRET)) == b"SECRET"


def parent_descriptors(facts):
    assert os.listdir(f"/proc/{os.getppid()}/fd")


def process_vm_readv(facts):
    here = ctypes.create_string_buffer(6)
    local = struct.pack("@PN", ctypes.addressof(here), 6)
    there = struct.pack("@PN", ctypes.addressof(SECRET), 6)
    assert system("process_vm_readv", os.getppid(), local, 1, there, 1, 0) == 6 and here.raw == b"SECRET"


def ptrace(facts):
    system("ptrace", 0x4206, os.getppid(), 0, 0)  # PTRACE_SEIZE


def signal_parent(facts):
    os.kill(os.getppid(), 0)


def open_pidfd(facts):
    os.close(os.pidfd_open(os.getppid()))


def limit_parent(facts):
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    resource.prlimit(os.getppid(), resource.RLIMIT_CORE, limits)


def renice_parent(facts):
    os.setpriority(os.PRIO_PROCESS, os.getppid(), os.getpriority(os.PRIO_PROCESS, os.getppid()))


def pin_parent(facts):
    os.sched_setaffinity(os.getppid(), os.sched_getaffinity(os.getppid()))


def parent_cpu_clock(facts):
    time.clock_gettime((~os.getppid() << 3) | 2)


def make_file(folder: str) -> None:
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        assert file.name


def shm_write(facts):
    make_file("/dev/shm")


def shm_read(facts):
    assert Path(facts["shm"]).read_bytes() == b"SECRET"


def tmp_write(facts):
    make_file("/tmp")


def tmp_read(facts):
    assert Path(facts["tmp"]).read_bytes() == b"SECRET"


def make_folder(facts):
    shutil.rmtree(tempfile.mkdtemp(dir="/tmp"))


def write_beside_listed_file(facts):
    make_file(str(Path(facts["own"]).parent))


def write_to_inherited_file(facts):
    os.write(facts["fd"], b"x")


def flags_of_inherited_file(facts):
    fcntl.fcntl(facts["fd"], fcntl.F_SETFL, os.O_APPEND)


def sysv_memory(facts):
    libc.call("shmctl", libc.call("shmget", 0, 4096, 0o1600), 0, None)


def sysv_memory_of_others(facts):
    attach = ctypes.CDLL(None, use_errno=True).shmat
    attach.restype = ctypes.c_ssize_t
    address = attach(facts["segment"], None, 0o10000)  # SHM_RDONLY
    if address == -1:
        raise OSError(ctypes.get_errno(), "shmat")
    assert ctypes.string_at(address, 6) == b"SECRET"


def posix_queue(facts):
    name = f"veilbench{os.getpid()}".encode()
    os.close(system("mq_open", name, os.O_CREAT | os.O_RDWR, 0o600, None))
    system("mq_unlink", name)


def keyring(facts):
    system("add_key", b"user", b"veilbench", b"x", 1, -2)


def utime(facts):
    os.utime(facts["own"], (12345, 12345))


def setxattr(facts):
    os.setxattr(facts["own"], "user.veilbench", b"x")


def chmod(facts):
    os.chmod(facts["own"], 0o644)


def flock(facts):
    with open(facts["own"], "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def record_lock(facts):
    with open(facts["own"], "rb") as file:
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def watch_file(facts):
    watch = libc.call("inotify_init")
    libc.call("inotify_add_watch", watch, facts["own"].encode(), 1)


def list_processes(facts):
    assert [p for p in os.listdir("/proc") if p.isdigit()]


def shared_mapping(facts):
    mmap.mmap(-1, 4096).close()


def memory_file(facts):
    os.close(os.memfd_create("x"))


def io_uring(facts):
    os.close(system("io_uring_setup", 1, bytes(120)))


def new_namespace(facts):
    system("unshare", 0x10000000)


def fork(facts):
    if not os.fork():
        os._exit(0)


def raw_clone(facts):
    if not system("clone", int(signal.SIGCHLD), 0, 0, 0, 0):
        os._exit(0)


def raw_clone3(facts):
    if not system("clone3", struct.pack("=11Q", 0, 0, 0, 0, int(signal.SIGCHLD), 0, 0, 0, 0, 0, 0), 88):
        os._exit(0)


def execute(facts):
    os.execv(shutil.which("true") or "/bin/true", ["true"])


def six_gigabytes(facts):
    mmap.mmap(-1, 6 * 2**30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000).close()  # MAP_NORESERVE


PROBES = {f.__name__: f for f in (
    read_dataset, list_dataset, tcp, udp, abstract_socket, socket_pair, parent_environ, parent_memory,
    parent_descriptors, process_vm_readv, ptrace, signal_parent, open_pidfd, limit_parent, renice_parent, pin_parent,
    parent_cpu_clock, shm_write, shm_read, tmp_write, tmp_read, make_folder, write_beside_listed_file,
    write_to_inherited_file, flags_of_inherited_file, sysv_memory, sysv_memory_of_others, posix_queue, keyring, utime,
    setxattr, chmod, flock, record_lock, watch_file, list_processes, shared_mapping, memory_file, io_uring,
    new_namespace, fork, raw_clone, raw_clone3, execute, six_gigabytes)}
# Some kernels, containers and file systems close these for everybody: then there is nothing to test.
HOST_MAY_CLOSE = {"parent_memory", "process_vm_readv", "ptrace", "posix_queue", "keyring", "setxattr", "io_uring",
                  "new_namespace", "sysv_memory", "sysv_memory_of_others", "raw_clone3", "open_pidfd"}


# ---- what must work ------------------------------------------------------------------------------------------------

def thread(facts):
    seen: list[int] = []
    threads = [threading.Thread(target=seen.append, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(seen) == [0, 1, 2]


def matmul(facts):
    import numpy as np

    a = np.arange(90000.0).reshape(300, 300)
    assert (a @ np.eye(300) == a).all()


def chance_and_time(facts):
    assert len(os.urandom(8)) == 8 and time.time() > 0 and time.process_time() > 0
    time.sleep(0.001)


def signal_itself(facts):
    os.kill(os.getpid(), 0)


def own_limits(facts):
    assert resource.getrlimit(resource.RLIMIT_CORE)


def urandom_device(facts):
    with open("/dev/urandom", "rb", buffering=0) as device:
        assert len(device.read(8)) == 8


def listed_file(facts):
    assert Path(facts["own"]).read_bytes() == b"own" and os.listdir(Path(facts["own"]).parent)


def map_listed_file(facts):
    with open(facts["own"], "rb") as file:
        assert mmap.mmap(file.fileno(), 3, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)[:] == b"own"


WORKING = {f.__name__: f for f in (thread, matmul, chance_and_time, signal_itself, own_limits)}
LISTED = {f.__name__: f for f in (urandom_device, listed_file, map_listed_file)}  # until the late filter


def stat_dataset(facts):
    assert os.stat(facts["dataset"]).st_size == 6


def trace_of_reading(facts):
    assert Path(facts["unread"]).read_bytes() == b"unread"
    if os.stat(facts["unread"]).st_atime == 10**9:
        raise OSError("no trace")


def spin(facts):
    while time.process_time() < 1.6:
        pass


ALL = {**PROBES, **WORKING, **LISTED, "stat_dataset": stat_dataset,
       "trace_of_reading": trace_of_reading, "spin": spin}


# ---- the host process ----------------------------------------------------------------------------------------------

def host(text: str) -> None:
    """Run the probes that argv names, one forked child each, and print what became of them as JSON."""
    order = json.loads(text)
    if order["uid"]:
        os.setgroups([])
        os.setresgid(order["uid"], order["uid"], order["uid"])
        os.setresuid(order["uid"], order["uid"], order["uid"])
        libc.call("prctl", 4, 1, 0, 0, 0)  # dumpable, as if it had been started by this user
    with tempfile.TemporaryFile(dir="/tmp") as file:
        facts = {**order["facts"], "fd": file.fileno()}
        readable = [*sandbox.default_readable(), *map(Path, order["readable"])]
        answers = {name: in_child(ALL[name], facts, order, readable) for name in order["probes"]}
    print(json.dumps(answers), flush=True)


def in_child(probe, facts, order, readable) -> list[str]:
    """["open", ms], or ["closed", why] when the probe raised what the kernel said, or ["broken", why]."""
    out, back = os.pipe()
    pid = os.fork()
    if not pid:
        text = b"broken\nraised"
        try:
            started = time.perf_counter()
            if order["level"]:
                sandbox.confine(sandbox.Isolation(order["level"], tuple(order["layers"])), readable, cpu_s=1,
                                memory_bytes=MEMORY, late=order["late"])
            text = f"open\n{1000 * (time.perf_counter() - started):.2f}".encode()
            probe(facts)
        except (OSError, MemoryError) as error:
            text = f"closed\n{type(error).__name__}: {error}".encode()
        except BaseException as error:
            text = f"broken\n{type(error).__name__}: {error}".encode()
        os.write(back, text)
        os._exit(0)
    os.close(back)
    with open(out, "rb") as pipe:
        text = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return ["closed", f"signal {os.WTERMSIG(status)}"]
    return text.split("\n", 1) if text else ["open", "0"]  # nothing: another program took its place


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    """Things to reach for: two folders that everybody may read, two servers, memory of this process."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.create_server(("127.0.0.1", 0)) as server, \
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp_server, socket.socket(socket.AF_UNIX) as abstract, \
            tempfile.NamedTemporaryFile(dir="/dev/shm") as shm:
        base = Path(folder)
        base.chmod(0o755)
        for name in ("data", "own0", f"own{NOBODY}"):
            (base / name).mkdir()
            (base / name / "file").write_bytes(b"SECRET" if name == "data" else b"own")
        if os.getuid() == 0:
            for path in (base / f"own{NOBODY}", base / f"own{NOBODY}" / "file"):
                os.chown(path, NOBODY, NOBODY)
        shm.write(b"SECRET")
        shm.flush()
        os.chmod(shm.name, 0o644)
        udp_server.bind(("127.0.0.1", 0))
        abstract.bind(f"\0veilbench{os.getpid()}")
        abstract.listen()
        segment = host_segment()
        yield {"dataset": str(base / "data" / "file"), "tmp": str(base / "data" / "file"), "shm": shm.name,
               "tcp": server.getsockname()[1], "udp": udp_server.getsockname()[1],
               "abstract": f"veilbench{os.getpid()}", "base": folder, "segment": segment}
        if segment >= 0:
            libc.call("shmctl", segment, 0, None)


def host_segment() -> int:
    """A System V segment with the secret in it, -1 where the machine has none."""
    try:
        segment = libc.call("shmget", 0, 4096, 0o1666)
    except OSError:
        return -1
    attach = ctypes.CDLL(None).shmat
    attach.restype = ctypes.c_void_p
    address = attach(segment, None, 0)
    ctypes.memmove(address, b"SECRET", 6)
    ctypes.CDLL(None).shmdt(ctypes.c_void_p(address))
    return segment


@pytest.fixture(scope="module")
def outcome(facts):
    """outcome(level, uid, late): what each probe came to; a text instead when this cannot be tried here."""
    @cache
    def run(level: int, uid: int, late: bool = False) -> dict[str, list[str]] | str:
        if level and not isinstance(found := sandbox._tried(level), sandbox.Isolation):
            return found
        if uid and os.getuid():
            return "only root can become another user"
        started_as = uid if level in (1, 3) else 0  # bubblewrap is started by the user itself
        if started_as and (why := unreadable(uid)):
            return why
        probes = [*WORKING, *LISTED, "stat_dataset"] if late else [n for n in ALL if n != "spin" or level in SPUN]
        own = f"{facts['base']}/own{uid}"
        unread = tempfile.NamedTemporaryFile(dir=own, delete=False)
        unread.write(b"unread")
        unread.close()
        os.chmod(unread.name, 0o644)
        os.utime(unread.name, (10**9, 10**9))
        layers = sandbox.available(level).layers if level else ()
        order = {"level": level, "layers": layers, "late": late or level == 3,
                 "uid": 0 if started_as else uid, "readable": [own], "probes": probes,
                 "facts": {**facts, "own": f"{own}/file", "unread": unread.name}}
        argv = [sys.executable, "-I", "-c", BOOT, str(ROOT), str(ROOT / "tests"), json.dumps(order)]
        readable = [*sandbox.default_readable(), Path(own), ROOT / "tests"]
        done = subprocess.run(sandbox.launcher(sandbox.Isolation(level or 5, ()), argv, readable), cwd="/",
                              capture_output=True, text=True, timeout=100, env=sandbox._trial_environment(),
                              **as_user(started_as))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    return lambda level, uid, late=False: run(level, uid, late and level != 3)  # level 3 is always late


def as_user(uid: int) -> dict:
    return {"user": uid, "group": uid, "extra_groups": []} if uid else {}


def unreadable(uid: int) -> str:
    """Why a user cannot start this Python with this project, ""."""
    try:
        done = subprocess.run([sys.executable, "-I", "-c", "import sys; sys.path[:0] = sys.argv[1:]; import bench",
                               str(ROOT)], cwd="/", capture_output=True, text=True, **as_user(uid))
    except OSError as error:
        return f"uid {uid} cannot start {sys.executable}: {error}"
    return done.stderr[-300:]


USERS = pytest.mark.parametrize("uid", [0, NOBODY], ids=["me", "nobody"])


# ---- tests ---------------------------------------------------------------------------------------------------------

@linux
@USERS
@pytest.mark.parametrize("level", GREEN)
def test_the_green_levels_can_be_tried(outcome, level, uid):
    found = outcome(level, uid)
    if isinstance(found, str):
        pytest.skip(found)
    assert set(PROBES) < set(found)
    assert min(float(ms) for what, ms in found.values() if what == "open") < 10, "ms; encode forks once per atom"


@linux
@USERS
@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_succeeds_outside_and_fails_within(outcome, probe, uid):
    outside = outcome(0, uid)
    if isinstance(outside, str):
        pytest.skip(outside)
    if outside[probe][0] == "closed" and probe in HOST_MAY_CLOSE:
        pytest.skip(f"this machine closes it for everybody: {outside[probe][1]}")
    assert outside[probe][0] == "open", outside[probe]
    within = {level: found[probe] for level in GREEN if isinstance(found := outcome(level, uid), dict)}
    assert within, "no green level on a machine with Landlock and seccomp"
    assert {level: what for level, (what, _) in within.items()} == dict.fromkeys(within, "closed"), within


@linux
@USERS
@pytest.mark.parametrize("late", [False, True])
def test_work_goes_on_within(outcome, uid, late):
    for level in GREEN:
        if isinstance(found := outcome(level, uid, late), dict):
            assert {n: found[n][0] for n in WORKING} == dict.fromkeys(WORKING, "open"), found
            wanted = "closed" if late or level == 3 else "open"
            assert {n: found[n][0] for n in LISTED} == dict.fromkeys(LISTED, wanted), found


@linux
@USERS
def test_stat_needs_bubblewrap_or_the_late_filter(outcome, uid):
    if isinstance(outcome(2, uid), str):
        pytest.skip(outcome(2, uid))
    assert outcome(0, uid)["stat_dataset"][0] == "open"
    assert outcome(2, uid)["stat_dataset"][0] == "open", "Landlock sees no stat: Isolation.text must be mended"
    assert outcome(2, uid, True)["stat_dataset"][0] == "closed"
    assert "names, sizes and times of files" in sandbox.Isolation(2, ()).text
    for level in (1, 3):
        assert isinstance(found := outcome(level, uid), str) or found["stat_dataset"][0] == "closed"


@linux
@USERS
def test_reading_leaves_no_trace_or_the_text_says_so(outcome, uid):
    outside = outcome(0, uid)
    if isinstance(outside, str) or outside["trace_of_reading"][0] == "closed":
        pytest.skip("this file system notes no time of reading, or no other user can be tried")
    for level in GREEN:
        if isinstance(found := outcome(level, uid), dict):
            noted = found["trace_of_reading"][0] == "open"
            assert noted is ("last read" in sandbox.available(level).text), level


@linux
@USERS
def test_the_kernel_ends_what_spins(outcome, uid):
    if isinstance(outcome(2, uid), str):
        pytest.skip(outcome(2, uid))
    assert outcome(0, uid)["spin"][0] == "open"
    assert outcome(2, uid)["spin"] in (["closed", f"signal {int(s)}"] for s in (signal.SIGXCPU, signal.SIGKILL))


@linux
def test_an_inherited_descriptor_is_closed_by_the_launch(tmp_path):
    (tmp_path / "secret").write_bytes(b"SECRET")
    with open(tmp_path / "secret", "rb") as file:
        os.set_inheritable(file.fileno(), True)
        code = f"import os; print(os.pread({file.fileno()}, 6, 0))"
        for close in (False, True):
            argv = sandbox.launcher(sandbox.available(), [sys.executable, "-I", "-S", "-c", code],
                                    sandbox.default_readable())
            done = subprocess.run(argv, close_fds=close, capture_output=True, text=True)
            assert ("SECRET" in done.stdout) is not close, done.stderr


@linux
def test_a_second_thread_is_refused():
    code = ("import sys, threading, time; sys.path.insert(0, sys.argv[1]); from bench.run import sandbox\n"
            "threading.Thread(target=time.sleep, args=(9,), daemon=True).start()\n"
            "sandbox.confine(sandbox.available(2), [], cpu_s=1, memory_bytes=2**32)")
    done = subprocess.run([sys.executable, "-I", "-c", code, str(ROOT)], env=sandbox._trial_environment(),
                          capture_output=True, text=True)
    assert done.returncode == 1 and "SandboxError" in done.stderr and "2 threads" in done.stderr


def test_a_promised_layer_that_fails_is_an_error(monkeypatch):
    def refuse(*arguments):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(libc, "call", refuse)
    monkeypatch.setattr(os, "listdir", lambda path: ["1"])
    with pytest.raises(sandbox.SandboxError, match="no_new_privs.*Function not implemented"):
        sandbox.confine(sandbox.Isolation(2, ()), [], cpu_s=1, memory_bytes=MEMORY)
    sandbox.confine(sandbox.Isolation(5, ()), [], cpu_s=1, memory_bytes=MEMORY)  # nothing is promised


def test_isolation_survives_json_and_says_what_is_open():
    for level in range(1, 6):
        isolation = sandbox.Isolation(level, ("rlimits", "seccomp"))
        entry = json.loads(json.dumps(isolation.as_dict()))
        assert sandbox.Isolation.from_dict(entry) == isolation
        assert entry["green"] is isolation.green is (level <= 3)
        assert "open: " in isolation.text and "seccomp" in isolation.text
    with pytest.raises(ValueError):
        sandbox.Isolation.from_dict({"level": 6, "layers": []})


def test_a_level_can_be_asked_for(monkeypatch):
    monkeypatch.setenv(sandbox.VARIABLE, "5")
    assert sandbox.available() == sandbox.Isolation(5, ()) and not sandbox.available().green
    monkeypatch.setattr(sandbox, "_tried", lambda level: sandbox.Isolation(level, ()) if level > 2 else "absent")
    assert sandbox.available(3).level == 3
    with pytest.raises(EnvironmentFault, match="absent"):
        sandbox.available(2)
    monkeypatch.setenv(sandbox.VARIABLE, "strong")
    with pytest.raises(ConfigError):
        sandbox.available()
    monkeypatch.delenv(sandbox.VARIABLE)
    assert sandbox.available().level == 3, "the best that is there"


def test_readable_is_never_the_checkout(tmp_path):
    readable = sandbox.default_readable()
    assert all(p.exists() for p in readable) and not any(ROOT.is_relative_to(p.resolve()) for p in readable)
    assert not any(str(p).startswith(("/proc", "/home", "/tmp")) and not p.is_relative_to(sys.prefix)
                   and not p.is_relative_to(sys.base_prefix) and not p.is_relative_to(ROOT) for p in readable)
    inside = {p.relative_to(ROOT).parts[0] for p in readable if p.is_relative_to(ROOT)}
    assert {"bench", "methods"} <= inside and not inside & {"tests", "runs", "site", "attacks", "metrics"}


def answer(program: bytes, arch: int, number: int, arguments: tuple[int, ...] = ()) -> int:
    """What a filter says to one system call: an interpreter of the six instructions that are used."""
    data = struct.pack("=iIQ6Q", number if number < 2**31 else number - 2**32, arch, 0,
                       *arguments, *(0,) * (6 - len(arguments)))
    lines, at, value = list(struct.iter_unpack("=HBBI", program)), 0, 0
    while True:
        code, yes, no, operand = lines[at]
        at += 1
        if code == 0x20:
            value = struct.unpack_from("=I", data, operand)[0]
        elif code == 0x54:
            value &= operand
        elif code == 0x06:
            return operand
        else:
            hit = {0x15: value == operand, 0x45: bool(value & operand), 0x35: value >= operand}[code]
            at += yes if hit else no


@pytest.mark.parametrize("name", seccomp.MACHINES)
def test_the_filters_say_what_the_tables_say(name):
    column, arch = seccomp.MACHINES[name]
    program, late = seccomp.deny_list(name, 77), seccomp.late_list(name)
    allow, deny, absent = 0x7FFF0000, 0x00050001, 0x00050000 | 38
    for table, filters in ((seccomp.DENIED, program), (seccomp.PATHS, late)):
        assert {answer(filters, arch, row[column]) for row in table.values() if row[column] is not None} == {deny}
    assert answer(program, 0x40000003, 20) == answer(program, arch, 0x40000000 | 39) == deny  # i386, x32
    number = {call: row[column] for call, row in seccomp.CHECKED.items()}
    cases = [("clone", (0x3D0F00,), allow), ("clone", (17,), deny), ("clone", (0x3D0F00 | 2**30,), deny),
             ("clone3", (), absent), ("mmap", (0, 9, 1, 0x22), allow), ("mmap", (0, 9, 1, 0x21), deny),
             ("mmap", (0, 9, 1, 0x03), deny), ("kill", (77, 9), allow), ("kill", (78, 9), deny), ("kill", (0,), deny),
             ("tgkill", (77, 77, 6), allow), ("prlimit64", (0, 4), allow), ("prlimit64", (77, 4), deny),
             ("fcntl", (3, 3), allow), ("fcntl", (3, 6), deny), ("fcntl", (3, 1036), deny),
             ("ioctl", (1, 0x5401), allow), ("ioctl", (1, 0x40086602), deny), ("clock_gettime", (1,), allow),
             ("clock_gettime", (2**32 - 14,), deny), ("prctl", (15,), allow), ("prctl", (62,), deny)]
    assert [answer(program, arch, number[call], values) for call, values, _ in cases] == [want for *_, want in cases]
    openat = seccomp.PATHS["openat"][column]
    reading = seccomp.deny_list(name, 77, writing=False)
    assert answer(program, arch, openat, (0, 0, 0o101)) == answer(reading, arch, openat, (0, 0, os.O_CLOEXEC)) == allow
    assert answer(reading, arch, openat, (0, 0, 0o101)) == answer(reading, arch, openat, (0, 0, 2)) == deny


HEADERS = {"x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "/usr/include/asm-generic/unistd.h"}


@pytest.mark.parametrize("name", HEADERS)
def test_the_numbers_are_those_of_the_kernel_headers(name):
    if not Path(HEADERS[name]).is_file():
        pytest.skip("the kernel's headers are not installed")
    words = [line.split() for line in Path(HEADERS[name]).read_text().splitlines() if line.startswith("#define __NR")]
    known = {w[1].replace("__NR3264_", "").replace("__NR_", "").replace("fstatat", "newfstatat")
             .replace("newnew", "new"): int(w[2]) for w in words if len(w) == 3 and w[2].isdigit()}
    column = seccomp.MACHINES[name][0]
    ours = {call: row[column] for table in (seccomp.DENIED, seccomp.PATHS, seccomp.CHECKED)
            for call, row in table.items()}
    shared = ours.keys() & known.keys()
    assert len(shared) > 150 and {c: ours[c] for c in shared} == {c: known[c] for c in shared}
