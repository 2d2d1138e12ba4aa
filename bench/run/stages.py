"""What a stage is: a pure function from input folders and a JSON configuration to one output folder.

KINDS names the file of each; a stage's digest covers that file and every module of ours that it imports.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from bench import registry, seeds
from bench.run.cache import digest_json
from bench.types import Context

KINDS = {
    "clips": "bench.run.stage_clips:run_clips",
    "asset": "bench.run.stage_assets:run_asset", "shipped": "bench.run.stage_shipped:run_shipped",
    "fit": "bench.run.stage_fit:run_fit", "release": "bench.run.stage_release:run_release",
    "encode": "bench.run.stage_encode:run_encode", "enforced": "bench.run.stage_enforced:run_enforced",
    "train": "bench.run.stage_attack:run_train", "attack": "bench.run.stage_attack:run_attack",
    "learn": "bench.run.stage_recover:run_learn", "derive": "bench.run.stage_recover:run_derive",
    "train_match": "bench.run.stage_match:run_train_match", "match": "bench.run.stage_match:run_match",
    "diagnose": "bench.run.stage_diagnose:run_diagnose",
    "probe": "bench.run.stage_probe:run_probe", "assign": "bench.run.stage_probe:run_assign",
    "intervene": "bench.run.stage_intervene:run_intervene",
    "reread": "bench.run.stage_intervene:run_reread", "repeat": "bench.run.stage_intervene:run_repeat",
    "compare": "bench.run.stage_transcript:run_compare",
    "embed": "bench.run.stage_sets:run_embed",
    "metric": "bench.run.stage_metric:run_metric", "score": "bench.run.stage_score:run_score",
    "audit": "bench.run.stage_audit:run_audit",
    "streams": "bench.run.stage_reports:run_prepare", "gather": "bench.run.stage_reports:run_gather",
    "report": "bench.run.stage_reports:run_report", "event": "bench.run.stage_report_measures:run_event",
    "report_metric": "bench.run.stage_report_measures:run_report_metric",
}


@dataclass(frozen=True)
class Job:
    """What a stage function gets: configuration, finished input folders, an empty folder to fill."""

    config: Mapping[str, Any]
    inputs: Mapping[str, Path]
    out: Path
    report: Callable[[str], None]

    def context(self, *names: str | int) -> Context:
        """Randomness and budget for the plug-in of this stage."""
        seed = int(self.config["seed"])
        return Context(rng=lambda *more: seeds.derive(seed, *names, *more),
                       torch_seed=lambda *more: seeds.derive_torch(seed, *names, *more),
                       profile=self.config["profile"], budget=self.config.get("budget", {}), report=self.report)


@dataclass(frozen=True)
class Stage:
    """One planned stage. Two stages with the same digest are the same stage."""

    kind: str
    title: str
    config: Mapping[str, Any]
    inputs: Mapping[str, Stage] = field(default_factory=dict)
    plugins: tuple[tuple[str, str], ...] = ()  # (kind, name) whose source goes into the digest
    seconds: float = 0.0  # measured estimate, for display only

    @property
    def digest(self) -> str:
        return _digest(self)

    def all(self) -> list[Stage]:
        """This stage and everything before it, inputs first, each once."""
        found: dict[str, Stage] = {}
        for stage in self.inputs.values():
            found |= {s.digest: s for s in stage.all()}
        return [*found.values(), self] if self.digest not in found else list(found.values())


_digests: dict[int, tuple[Stage, str]] = {}


def _digest(stage: Stage) -> str:
    if id(stage) not in _digests:
        _digests[id(stage)] = (stage, digest_json(identity(stage)))
    return _digests[id(stage)][1]


def identity(stage: Stage) -> dict[str, Any]:
    """Everything that makes a stage what it is; its digest is the digest of this."""
    return {"kind": stage.kind, "config": dict(stage.config), "code": code_digest(stage.kind),
            "plugins": {f"{kind}/{name}": registry.source_digest(kind, name) for kind, name in stage.plugins},
            "inputs": {name: s.digest for name, s in sorted(stage.inputs.items())}}


@cache
def code_digest(kind: str) -> str:
    """SHA-256 of the stage's code and the modules of ours behind it."""
    module = KINDS[kind].partition(":")[0]
    return registry.digest_of([registry.ROOT.joinpath(*module.split(".")).with_suffix(".py")])


def function(kind: str) -> Callable[[Job], None]:
    """The stage's function; imports its module."""
    module, _, name = KINDS[kind].partition(":")
    return getattr(importlib.import_module(module), name)
