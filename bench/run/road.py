"""What a column of a board reads, and what a row is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.registry import Spec
from bench.run.stages import Stage

AGAIN = "again"  # ends the variant that a row which is run again is shown under
_ENFORCED = ("full_claim", "branches", "encodes", "plans", "memory_between_clips")
Leads = Mapping[str, tuple[Spec, Mapping[str, Any]]]  # row -> the row, with its facts, whose encoded clips it releases


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


def acted_on(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Of the facts of a method whose noise the harness draws, those that its stages act on."""
    return {name: facts[name] for name in _ENFORCED}


def asked(method: str, variant: str | None) -> Spec:
    """The method behind a row, which may be one that was run again."""
    return Spec(method, (variant or "").removesuffix(AGAIN) or None)
