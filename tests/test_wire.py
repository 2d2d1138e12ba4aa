"""JSON and arrays between two processes: everything arrives as it was sent, nothing else is accepted."""

from __future__ import annotations

import json
import os
import struct
import threading
import time

import numpy as np
import pytest

from bench.run import wire


@pytest.fixture
def pipe():
    ends = list(os.pipe())
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            pass


def through(pipe, header, arrays=None):
    """Send from a thread, so that more than a pipe's buffer fits."""
    sender = threading.Thread(target=wire.send, args=(pipe[1], header, arrays))
    sender.start()
    received = wire.receive(pipe[0], 20)
    sender.join()
    return received


@pytest.mark.parametrize("dtype", wire.DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3, 4)])
def test_arrays_come_through_bit_by_bit(pipe, dtype, shape):
    array = np.arange(int(np.prod(shape)), dtype=np.float64).reshape(shape).astype(dtype)
    header, arrays = through(pipe, {"op": "x", "text": "é"}, {"a": array})
    assert header == {"op": "x", "text": "é"}
    assert arrays["a"].dtype == array.dtype and arrays["a"].shape == shape
    assert arrays["a"].tobytes() == array.tobytes()


def test_large_transposed_and_special_values(pipe):
    frames = np.arange(3 * 2**20, dtype=np.uint32).astype(np.uint8).reshape(16, 256, 256, 3).transpose(0, 2, 1, 3)
    special = np.array([np.nan, np.inf, -np.inf, -0.0])
    _, arrays = through(pipe, {}, {"frames": frames, "special": special})
    np.testing.assert_array_equal(arrays["frames"], frames)
    assert arrays["special"].tobytes() == special.tobytes()


def test_received_arrays_are_read_only(pipe):
    _, arrays = through(pipe, {}, {"a": np.zeros(3, np.uint8)})
    with pytest.raises(ValueError, match="read-only"):
        arrays["a"][0] = 1


@pytest.mark.parametrize("array", [np.array([object()]), np.array(["text"]), np.array([1 + 2j]),
                                   np.zeros(2, "datetime64[s]")])
def test_other_kinds_of_array_do_not_travel(pipe, array):
    with pytest.raises(TypeError, match="does not travel"):
        wire.send(pipe[1], {}, {"a": array})


def raw(pipe, header: dict, body: bytes = b"") -> None:
    text = json.dumps(header).encode()
    os.write(pipe[1], struct.pack("<Q", len(text)) + text + body)


@pytest.mark.parametrize("entry", [["a", "object", [1]], ["a", "O", [1]], ["a", "uint8", [-1]],
                                   ["a", "float32", [2, -3]]])
def test_a_message_with_a_forbidden_array_is_refused(pipe, entry):
    raw(pipe, {"arrays": [entry]}, b"x" * 64)
    with pytest.raises(wire.WireClosed):
        wire.receive(pipe[0], 5)


def test_an_absurd_header_length_is_refused_at_once(pipe):
    os.write(pipe[1], struct.pack("<Q", 2**62))
    with pytest.raises(wire.WireClosed, match="no header"):
        wire.receive(pipe[0], 5)


def test_a_closed_pipe_is_noticed_on_both_sides(pipe):
    os.write(pipe[1], struct.pack("<Q", 100) + b"half a head")
    os.close(pipe[1])
    with pytest.raises(wire.WireClosed):
        wire.receive(pipe[0], 5)
    reader, writer = os.pipe()
    os.close(reader)
    with pytest.raises(wire.WireClosed):
        wire.send(writer, {"op": "x"})
    os.close(writer)


def test_silence_ends_at_the_deadline(pipe):
    began = time.monotonic()
    with pytest.raises(wire.WireTimeout):
        wire.receive(pipe[0], 0.2)
    assert 0.15 < time.monotonic() - began < 5


def test_a_trickle_does_not_extend_the_deadline(pipe):
    stop = threading.Event()

    def trickle():
        os.write(pipe[1], struct.pack("<Q", 10**6))
        while not stop.wait(0.02):
            os.write(pipe[1], b" ")

    sender = threading.Thread(target=trickle)
    sender.start()
    began = time.monotonic()
    try:
        with pytest.raises(wire.WireTimeout):
            wire.receive(pipe[0], 0.3)
    finally:
        stop.set()
        sender.join()
    assert time.monotonic() - began < 5
