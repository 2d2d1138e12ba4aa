"""What passes between the harness and a worker: a JSON header and raw arrays. Nothing is ever unpickled.

A message is: 8-byte length, header (JSON), then the bytes of each array named in header["arrays"].
"""

from __future__ import annotations

import io
import json
import math
import os
import select
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

MAX_HEADER = 16 * 2**20
MAX_ARRAYS = 4 * 2**30  # bytes of one message
DTYPES = ("uint8", "bool", "int32", "int64", "float16", "float32", "float64")


class WireClosed(Exception):
    """The other side is gone."""


class WireTimeout(Exception):
    """The other side did not answer before the deadline."""


def send(fd: int, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None,
         timeout_s: float | None = None) -> None:
    """Write one message. Raises WireClosed when the other side is gone, WireTimeout when it does not read."""
    parts = {name: np.asarray(array, order="C") for name, array in (arrays or {}).items()}
    for name, array in parts.items():
        if array.dtype.name not in DTYPES:
            raise TypeError(f"array {name!r} has dtype {array.dtype}, which does not travel; use one of {DTYPES}")
    shapes = [[name, array.dtype.name, list(array.shape)] for name, array in parts.items()]
    text = json.dumps({**header, "arrays": shapes}).encode()
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    if deadline is not None:
        os.set_blocking(fd, False)
    try:
        _write(fd, struct.pack("<Q", len(text)) + text, deadline)
        for array in parts.values():
            _write(fd, array.reshape(-1).view(np.uint8).data if array.size else b"", deadline)
    except BrokenPipeError as error:
        raise WireClosed from error


def _write(fd: int, data: bytes | memoryview, deadline: float | None) -> None:
    view = memoryview(data)
    while view:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([], [fd], [], left)[1]:
                raise WireTimeout
        try:
            view = view[os.write(fd, view[:1 << 20]):]
        except BlockingIOError:  # the pipe filled up since
            continue


def receive(fd: int, timeout_s: float | None = None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read one message; arrays are read-only. Raises WireClosed or WireTimeout."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    return _message(lambda count: _read(fd, count, deadline))


def parse(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The message at the start of these bytes. Raises WireClosed when it is cut short."""
    stream = io.BytesIO(data)

    def read(count: int) -> bytes:
        part = stream.read(count)
        if len(part) < count:
            raise WireClosed("cut short")
        return part
    return _message(read)


def _message(read: Callable[[int], bytes]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    (length,) = struct.unpack("<Q", read(8))
    if length > MAX_HEADER:
        raise WireClosed(f"a header of {length} bytes is no header")
    header = json.loads(read(length))
    arrays, left = {}, MAX_ARRAYS
    for name, dtype, shape in header.pop("arrays"):
        if dtype not in DTYPES or any(int(n) < 0 for n in shape):
            raise WireClosed(f"array {name!r} has dtype {dtype} and shape {shape}")
        count = math.prod(int(n) for n in shape) * np.dtype(dtype).itemsize
        left -= count
        if left < 0:
            raise WireClosed(f"a message of more than {MAX_ARRAYS} bytes")
        arrays[name] = np.frombuffer(read(count), dtype=dtype).reshape(shape)
    return header, arrays


def _read(fd: int, count: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < count:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                raise WireTimeout
        part = os.read(fd, min(count - len(data), 1 << 20))
        if not part:
            raise WireClosed
        data += part
    return bytes(data)
