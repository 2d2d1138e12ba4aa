"""The one clock of the speed tests."""

from __future__ import annotations

import time
from collections.abc import Callable


def seconds(function: Callable[[], object], repeats: int = 3) -> float:
    """The fastest of a few runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)
