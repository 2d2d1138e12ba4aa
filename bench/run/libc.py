"""Functions of the C library that Python 3.11 does not offer, with its errors as OSError."""

from __future__ import annotations

import ctypes
import os
from functools import cache


def call(function: str, *arguments: int | bytes | None) -> int:
    """Call one function of the C library; integers are passed as machine words.

    Raises:
        OSError: it returned a negative number; the error is that of errno.
    """
    result = getattr(_library(), function)(*(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
