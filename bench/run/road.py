"""What a column of a board reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.registry import Spec
from bench.run.stages import Stage


@dataclass(frozen=True)
class Road:
    """What a column reads: the releases of one method, direct ones or those that a recovery attack derived."""

    method: Spec
    facts: Mapping[str, Any]
    assembled: Stage
    isolated: Stage
    draws: int
    via: str = "direct"
    behind: tuple[str, str] | None = None  # (plug-in, its digest) of the recovery attack
    direct: Stage | None = None  # the release that a derived one was made from

    def read_by(self, decoding: str) -> Stage:
        return self.isolated if decoding == "isolated" else self.assembled

    @property
    def name(self) -> str:
        return str(self.method) if self.behind is None else f"{self.method} via {self.via}"
