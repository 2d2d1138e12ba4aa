"""A method that answers wrongly, for every way in which a worker must not be believed.

The first pixel of an atom says what `encode` does; public["profile"] is the name of what `plan` and `render` do.
"""

import os
import random
import signal
import struct
import sys
import time
from pathlib import Path

import numpy as np

from bench import Branch, FullClaim, Plan, PrivateMethod, method

GOOD = np.full((16, 4), 0.25)
SPECIAL = (np.inf, -np.inf, np.nan, 5e-324, 0.0, -0.0, 1e308, 1.0)
MAGNITUDES = np.concatenate([10.0 ** np.linspace(-320, 307, 48), SPECIAL, -(10.0 ** np.linspace(-12, 307, 8))])


def raw(head, body=b""):
    """Bytes straight onto the pipe of results, in place of an answer."""
    def write():
        os.write(3, struct.pack("<Q", len(head)) + head + body)
        os._exit(0)
    return write


def fails(error):
    def raise_it():
        raise error
    return raise_it


def late():
    import colorsys

    return {"rows": GOOD * colorsys.rgb_to_hls(1.0, 1.0, 1.0)[1]}


def beside():
    sys.path.insert(0, str(Path(__file__).parent))
    import beside_the_plugin

    return {"rows": GOOD * beside_the_plugin.ONE}


ENCODE = {
    "good": lambda: {"rows": GOOD}, "late": late, "magnitudes": lambda: {"rows": MAGNITUDES.reshape(16, 4)},
    "unknown branch": lambda: {"other": GOOD}, "no branch": dict, "wider": lambda: {"rows": np.ones((16, 5))},
    "fewer rows": lambda: {"rows": np.ones((15, 4))}, "more rows": lambda: {"rows": np.ones((17, 4))},
    "flat": lambda: {"rows": np.ones(4)}, "empty": lambda: {"rows": np.ones((0, 4))}, "scalar": lambda: {"rows": 1.0},
    "words": lambda: {"rows": np.full((16, 4), "1")}, "objects": lambda: {"rows": np.full((16, 4), None)},
    "complex": lambda: {"rows": GOOD * 1j}, "all nan": lambda: {"rows": GOOD * np.nan}, "no mapping": lambda: 5,
    "raises": fails(RuntimeError("raw values")), "leaves": fails(SystemExit(0)),
    "interrupts": fails(KeyboardInterrupt()),
    "ends": lambda: os._exit(0), "dies": lambda: os.kill(os.getpid(), signal.SIGKILL), "beside": beside,
    "no memory": lambda: {"rows": np.ones(2**40)},
    "header is a number": raw(b"5"), "header is a word": raw(b'"rows"'), "header is a list": raw(b"[]"),
    "header is deep": raw(b"[" * 50000), "header is no text": raw(b"\xff\xfe"), "header is nothing": raw(b""),
    "arrays is a number": raw(b'{"arrays": 5}'), "no arrays": raw(b"{}"),
    "name is a list": raw(b'{"arrays": [[[], "uint8", []]]}', b"1"),
    "infinite shape": raw(b'{"arrays": [["rows", "uint8", [Infinity]]]}'),
    "vast shape": raw(b'{"arrays": [["rows", "uint8", [%d]]]}' % 2**70),
    "negative shape": raw(b'{"arrays": [["rows", "uint8", [-1]]]}'),
    "wrapping shape": raw(b'{"arrays": [["rows", "uint8", [4294967296, 4294967296, 3]]]}'),
    "objects on the wire": raw(b'{"arrays": [["rows", "object", [1]]]}', bytes(8)),
    "cut short": raw(b'{"arrays": [["rows", "float64", [16, 4]]]}', bytes(8)),
    "no nonce": raw(b'{"arrays": [["rows", "float64", [16, 4]]]}', GOOD.tobytes()),
    "a nonce that is a list": raw(b'{"nonce": [], "arrays": [["rows", "float64", [16, 4]]]}', GOOD.tobytes()),
    "hangs": lambda: time.sleep(600),
}


@method("careless")
class Careless(PrivateMethod):
    """Answers wrongly."""

    terms = FullClaim(unit="clip", delta=1e-5)

    def __init__(self):
        self.branches = (Branch("rows", dim=4, norm="l2", clip=1.0, floor=2.0),)

    def load(self, state):
        self.dataset = Path(bytes(state["dataset"]).decode())

    def encode(self, atom):
        return list(ENCODE.values())[atom[0, 0, 0, 0]]()

    def plan(self, t, past, memory, public):
        scale = np.full(public.get("streams", 64), 3.0)
        what = public["profile"]
        if what == "nan":
            scale[0] = np.nan
        if what == "infinite":
            scale[0] = np.inf
        if what == "shape":
            scale = scale[1:]
        self.both(what)
        scale[0] += {"chance": random.random, "clock": time.time, "under": lambda: -2.5}.get(what, float)()
        return Plan(scale={"rows": scale}, memory={})

    def render(self, transcripts, public, decoding):
        what = public["profile"]
        frames = np.zeros((16, public["canvas_px"], public["canvas_px"], 3), np.uint8)
        self.both(what)
        if what == "urandom":
            frames[0, 0, 0, 0] = os.urandom(1)[0]
            frames[0].reshape(-1)[1:9] = np.frombuffer(os.urandom(8), np.uint8)
        if what == "remembers":  # shows what it rendered before
            frames[0, 0, 0, 0] = self.__dict__.get("last", 0)
            self.last = int(abs(transcripts[0]["rows"][0, 0]) * 1000) % 251 + 1
        if what == "address":
            frames[0].reshape(-1)[:8] = np.frombuffer(struct.pack("<q", id(object())), np.uint8)
        return frames

    def both(self, what):
        """Faults that plan and render share."""
        if what == "reads":
            assert self.dataset.read_bytes() == b"raw"
        if what == "lists":
            assert os.listdir(self.dataset.parent)
        if what == "hangs":
            time.sleep(600)
        if what == "late":
            late()
        if what == "beside":
            beside()
