"""The stages of one row of the traffic board: prepare, gather, fit, report, attack, measure, score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import registry
from bench.distinguishers import Distinguisher
from bench.errors import ConfigError
from bench.measures import Column
from bench.registry import Spec
from bench.run.cache import digest_json
from bench.run.enforced import full_claim
from bench.run.road import acted_on
from bench.run.rows import fingerprint
from bench.run.stages import Stage
from bench.run.suite import Suite


def is_traffic(dataset: str) -> bool:
    """Does the dataset hold streams of a fixed camera, and not videos of faces?"""
    return getattr(registry.get("datasets", dataset), "track", "face") == "traffic"


def claim_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The claim as it stands with a row. Events of more chunks are another thing to protect: K is part of its key."""
    full = full_claim(facts)
    if full is None or full.event is None:
        return dict(facts["claim"])
    return {**facts["claim"], "horizon": f"{facts['claim']['horizon']}, K = {full.event.changed_chunks}"}


class ReportBuilder:
    """Builds the stages of one suite on a traffic dataset."""

    def __init__(self, suite: Suite, root: Path | None):
        self.suite, self.seed = suite, suite.data_seed
        adapter = registry.get("datasets", suite.dataset)
        if adapter.needs_root and root is None:
            raise ConfigError(f"The dataset {suite.dataset} needs a folder.", "It is not made on the fly.",
                              "Name it with --root DIR.")
        config = {"dataset": suite.dataset, "seed": self.seed, "root": str(root.resolve()) if root else None,
                  "fingerprint": fingerprint(root) if root and adapter.needs_root else None}
        self.streams = self._stage("streams", f"prepare {suite.dataset}", config, {}, ("datasets", suite.dataset))

    def _stage(self, kind: str, title: str, config: dict[str, Any], inputs: dict[str, Stage],
               plugin: tuple[str, str] | None = None) -> Stage:
        return Stage(kind, title, config, inputs, (plugin,) if plugin else (), self.suite.seconds.get(kind, 0.0))

    def release(self, method: Spec, facts: Mapping[str, Any]) -> Stage:
        """The reports of a method on all test episodes. Raises ConfigError for a method of faces."""
        if "atom" not in facts or facts["atom"] != "chunk":
            raise ConfigError(f"{method} does not release reports of a traffic stream.",
                              f"{self.suite.dataset} is a dataset of the traffic track.",
                              "Choose a method of that track, or another dataset.")
        plugin, said = ("methods", method.name), acted_on(facts)
        base = {"method": method.name, "variant": method.variant, "profile": self.suite.profile, "seed": self.seed}
        inputs = {"streams": self.streams}
        inputs["gather"] = self._stage("gather", f"gather {method}", {**base, "facts": said}, dict(inputs), plugin)
        if facts["fits"]:
            inputs["fit"] = self._stage("fit", f"fit {method}", {**base, "needs": facts["needs"]},
                                        {"streams": self.streams}, plugin)
        draws = self.suite.draws if isinstance(self.suite.draws, int) else max(self.suite.draws.values())
        config = {**base, "draws": draws, "lane": facts["lane"], "facts": said}
        return self._stage("report", f"report {method}", config, inputs, plugin)

    def row(self, method: Spec, facts: Mapping[str, Any], attacks: Sequence[Spec],
            metrics: Sequence[Spec]) -> list[Stage]:
        """Score stages of one method."""
        release = self.release(method, facts)
        return [self._measured("attacks", "event", a, method, facts, release) for a in attacks] + \
            [self._measured("metrics", "report_metric", m, method, facts, release) for m in metrics]

    def _measured(self, kind: str, stage: str, spec: Spec, method: Spec, facts: Mapping[str, Any],
                  release: Stage) -> Stage:
        cls: Any = registry.get(kind, spec.name)
        word = "attack" if kind == "attacks" else "metric"
        config = {word: spec.name, "variant": spec.variant, "profile": self.suite.profile, "seed": self.seed,
                  "numbers_seed": self.seed, "lane": facts["lane"], "facts": acted_on(facts)}
        if issubclass(cls, Distinguisher):
            config["control"] = facts["control"]
        made = self._stage(stage, f"{word} {spec} on {method}", config, {"release": release, "streams": self.streams},
                           (kind, spec.name))
        digest = digest_json([registry.source_digest(kind, spec.name), str(spec)])
        more = {"attack": str(spec)} if kind == "attacks" else {"metric": spec.name, "evaluator": spec.variant}
        columns: Sequence[Column] = registry.get(kind, spec.name).columns
        return self._score(method, facts, columns, made, release, digest, kind, spec, more)

    def _score(self, method: Spec, facts: Mapping[str, Any], columns: Sequence[Column], made: Stage, release: Stage,
               digest: str, kind: str, spec: Spec, more: dict[str, Any]) -> Stage:
        used = (("methods", method.name), (kind, spec.name))
        config = {"method": method.name, "variant": method.variant, "dataset": self.suite.dataset,
                  "profile": self.suite.profile, "lane": facts["lane"], "claim": claim_of(facts),
                  "control": facts["control"], "attack": None, "evaluator": None, "via": "direct", "track": "traffic",
                  "draws": release.config["draws"], "seeds": [self.seed], "loss": None, "suite": self.suite.name,
                  "decoding": "assembled", "plugins": {f"{k}/{n}": registry.source_digest(k, n) for k, n in used},
                  "columns": [asdict(c) for c in columns], "digest": digest, **more}
        return self._stage("score", f"score {spec} on {method}", config,
                           {"clips": self.streams, f"trials:{self.seed}": made})
