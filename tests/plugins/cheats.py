"""A method that tries to carry one bit of an atom around the noise, by every road we know of, and releases its guesses.

An atom is uint8 (16, 8, 8, 3): bit * 255 everywhere, but for its number and a mode in the first pixel. `encode` leaves
the bit in every channel; `plan` and `render` look for it there. Slot i of the first frame of the release is the guess
of cheat NAMES[i]: 0, 255, or 127 for no answer. In mode FORGE, `encode` also answers in the name of the next atom.
"""

import ctypes
import mmap
import os
import socket
import struct
import sys
import threading
from pathlib import Path

import numpy as np

from bench import Branch, FullClaim, Plan, PrivateMethod, method

NORMAL, CRASH, FORGE, PEEK = range(4)  # what to do with the atom; stands in its first pixel
NO_ANSWER = 127
FLOOR, LOW = 1000.0, 2.0**-35  # noise that hides a row of norm 1; a bit that float32 noise cannot hide
BRANCHES = ("honest", "scaled", "extra", "huge", "nan", "low")
FORGED = 7.0
KEPT: dict = {}  # a global of the module


# ---- channels: put(method, unit, bit) leaves the bit, get(method, unit) -> 0, 1 or an error -------------------------

def in_files(folder):
    """Channel: a file in the folder that folder(method) names."""
    def put(m, k, bit):
        (folder(m) / f"{m.tag}-{k}").write_text(str(bit))

    def get(m, k):
        return int((folder(m) / f"{m.tag}-{k}").read_text())
    return put, get


def in_bytes(place):
    """Channel: byte `unit` of the memory that place(method) gives, an address or a writable buffer."""
    def put(m, k, bit):
        where = place(m)
        if isinstance(where, int):
            ctypes.memset(where + k, bit + 1, 1)
        else:
            where[k] = bit + 1

    def get(m, k):
        where = place(m)
        return (ctypes.string_at(where + k, 1)[0] if isinstance(where, int) else where[k]) - 1
    return put, get


def in_table(table):
    """Channel: a dictionary."""
    return lambda m, k, bit: table(m).__setitem__(k, bit), lambda m, k: table(m)[k]


def in_server(address):
    """Channel: a thread that tells the bit to whoever connects to address(method, unit)."""
    def listen(m, k, bit):
        family, name = address(m, k)
        server = socket.socket(family)
        server.bind(name)
        server.listen()

        def answer():
            while True:
                with server.accept()[0] as peer:
                    peer.sendall(bytes([bit]))
        threading.Thread(target=answer, daemon=True).start()

    def ask(m, k):
        family, name = address(m, k)
        with socket.socket(family) as s:
            s.settimeout(2)
            s.connect(name)
            return s.recv(1)[0]
    return listen, ask


def variable(m, k):
    return f"CHEAT_{m.tag}_{k}"


def segment(m):
    """Address of a System V segment that outlives its processes."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    number = libc.shmget(m.tag, 4096, 0o1666)
    address = libc.shmat(number, None, 0) if number >= 0 else None
    if address is None or address == 2**64 - 1:
        raise OSError(ctypes.get_errno(), "no segment")
    return address


def times(m):
    """Two bits per unit, kept in the seconds and nanoseconds of the plug-in's modification time."""
    seconds, rest = divmod(os.stat(__file__).st_mtime_ns, 10**9)
    return ((seconds - 10**9) << 28 | rest) if 10**9 <= seconds < 10**9 + 2**28 else 0


def put_time(m, k, bit):
    code = times(m) | (bit + 1) << 2 * k
    ns = ((code >> 28) + 10**9) * 10**9 + (code & (1 << 28) - 1)
    os.utime(__file__, ns=(ns, ns))


def get_time(m, k):
    return (times(m) >> 2 * k & 3) - 1


def keys(operation, *arguments):
    number = {"add": 248, "control": 250}[operation]  # x86_64
    libc = ctypes.CDLL(None, use_errno=True)
    words = (ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)
    answer = libc.syscall(ctypes.c_long(number), *words)
    if answer < 0:
        raise OSError(ctypes.get_errno(), "keyring")
    return answer


def put_key(m, k, bit):
    key = keys("add", b"user", b"cheat-%d-%d" % (m.tag, k), bytes([bit]), 1, -4)  # the user's keyring
    keys("control", 15, key, 120)  # gone after two minutes


def get_key(m, k):
    key = keys("control", 10, -4, b"user", b"cheat-%d-%d" % (m.tag, k), 0)
    value = ctypes.create_string_buffer(1)
    keys("control", 11, key, value, 1)
    return value.raw[0]


def put_memory(m, k, bit):
    with open(f"/proc/{m.harness[0]}/mem", "r+b", buffering=0) as file:
        file.seek(m.harness[1] + k)
        file.write(bytes([bit + 1]))


def get_memory(m, k):
    with open(f"/proc/{m.harness[0]}/mem", "rb", buffering=0) as file:
        file.seek(m.harness[1] + k)
        return file.read(1)[0] - 1


def put_pipe(m, k, bit):
    os.closerange = lambda *ends: None
    if "pipe" not in KEPT:
        KEPT["pipe"] = os.pipe()
    os.write(KEPT["pipe"][1], bytes([k, bit]))


def get_pipe(m, k):
    os.set_blocking(KEPT["pipe"][0], False)
    found = os.read(KEPT["pipe"][0], 256)
    return dict(zip(found[::2], found[1::2]))[k]


def offset(m):
    if "offset" not in KEPT:
        KEPT["offset"] = os.open(__file__, os.O_RDONLY)
    return KEPT["offset"]


def get_offset(m, k):
    found, bit = divmod(os.lseek(offset(m), 0, os.SEEK_CUR) - 1, 2)
    return bit if found == k else None


CHANNELS = {
    "self": in_table(lambda m: m.kept), "class attribute": in_table(lambda m: type(m).shared),
    "module global": in_table(lambda m: KEPT), "fitted state": in_bytes(lambda m: m.box.ctypes.data),
    "temporary file": in_files(lambda m: Path("/tmp")), "file next to it": in_files(lambda m: Path(__file__).parent),
    "/dev/shm": in_files(lambda m: Path("/dev/shm")),
    "environment": (lambda m, k, bit: os.environ.__setitem__(variable(m, k), str(bit)),
                    lambda m, k: int(os.environ[variable(m, k)])),
    "shared memory": in_bytes(segment),
    "shared mapping": in_bytes(lambda m: KEPT.setdefault("map", mmap.mmap(-1, 4096)) if "map" not in KEPT
                               else KEPT["map"]),
    "abstract socket": in_server(lambda m, k: (socket.AF_UNIX, f"\0cheat-{m.tag}-{k}")),
    "tcp": in_server(lambda m, k: (socket.AF_INET, ("127.0.0.1", 10000 + m.tag % 20000 + k))),
    "file time": (put_time, get_time), "keyring": (put_key, get_key), "harness memory": (put_memory, get_memory),
    "pipe": (put_pipe, get_pipe),
    "file offset": (lambda m, k, bit: os.lseek(offset(m), 1 + 2 * k + bit, 0), get_offset),
    "dataset": (lambda m, k, bit: None, lambda m, k: int((m.dataset / f"{k}").read_text())),
}
NAMES = (*CHANNELS, "plan reads self", "crash", "extra", "huge", "nan", "low", "honest")


def tried(action, *arguments):
    """What a channel gives, None when it raises."""
    try:
        return action(*arguments)
    except Exception:
        return None


@method("cheats")
class Cheats(PrivateMethod):
    """Every cheat at once, each with a slot of its own in the release."""

    shared: dict = {}
    terms = FullClaim(unit="clip", delta=1e-5)

    def __init__(self):
        self.branches = tuple(Branch(name, dim=4, norm="l2", clip=1.0, floor=FLOOR) for name in BRANCHES)
        self.kept: dict = {}

    def load(self, state):
        self.box = state["box"]
        self.tag, self.harness = int(state["tag"][0]), [int(n) for n in state["harness"]]
        self.dataset = Path(bytes(state["dataset"]).decode())

    def encode(self, atom):
        (k, mode, _), bit = atom[0, 0, 0].tolist(), int(atom[1, 0, 0, 0] > 127)
        if mode == CRASH and bit:
            raise RuntimeError("the bit is 1")
        if mode == CRASH:
            return {name: np.full((16, 4), 1e6) for name in BRANCHES}
        if mode == FORGE:
            self.forge(sys._getframe(1).f_locals)
        seen = sum(map(self.peek, range(64))) if mode == PEEK else 0
        found = [tried(get, self, k - 1) for _, get in CHANNELS.values()]
        for put, _ in CHANNELS.values():
            tried(put, self, k, bit)
        flat = np.zeros((16, 4))
        return {"honest": flat + 1e6 * (2 * bit - 1), "scaled": flat, "extra": np.zeros((16 + bit, 4)),
                "huge": flat + 1e308 * bit, "nan": flat + (np.nan if bit else 0.0), "low": flat + LOW * bit,
                "seen": np.array([seen]),
                "found": np.array([-1.0 if b is None else b for b in found])}

    def forge(self, caller):
        """Answers with the harness's own number for this atom, on every descriptor, before the real one."""
        rows = np.full((16, 4), FORGED).tobytes()
        head = b'{"nonce": "%s", "arrays": [["honest", "float64", [16, 4]]]}' % caller["header"]["nonce"].encode()
        for fd in range(64):
            for _ in range(3):
                tried(os.write, fd, struct.pack("<Q", len(head)) + head + rows)

    def peek(self, fd):
        tried(os.set_blocking, fd, False)
        return len(tried(os.read, fd, 4096) or b"")

    def plan(self, t, past, memory, public):
        if not memory:
            bits = [self.first(("self", "temporary file"), k) or 0 for k in public["units"]]
            memory = {"scale": FLOOR * (1.0 + 3.0 * np.array(bits, dtype=float))}
        return Plan(scale={"scaled": memory["scale"]}, memory=memory)

    def first(self, channels, k):
        return next((b for name in channels if (b := tried(CHANNELS[name][1], self, k)) is not None), None)

    def render(self, transcripts, public, decoding):
        frames = np.full((16, 8, 8, 3), NO_ANSWER, np.uint8)
        rows, k, flat = transcripts[0], public["unit"], frames[0].reshape(-1)
        if public["mode"] == CRASH:
            found = [None] * len(NAMES)
            found[NAMES.index("crash")] = int(not rows or rows["honest"].mean() <= 0)
        else:
            found = [tried(get, self, k) for _, get in CHANNELS.values()]
            found += [int(rows["scaled"].std() > 2 * FLOOR), None]
            found += [guess(rows[name], public["clips"]) for name in NAMES[-5:]]
        for i, bit in enumerate(found):
            flat[i] = {0: 0, 1: 255}.get(bit, NO_ANSWER)
        return frames


def guess(rows, clips):
    """The bit behind released rows: by shape, by values out of range, by the lowest bits; clipped rows by the mean."""
    if rows.shape != (16, 4) or not np.isfinite(rows).all() or np.abs(rows).max() > 1e100:
        return 1
    return int(np.mod(np.rint(rows / LOW), 2).mean() > 0.25 or (clips and rows.mean() > 0))
