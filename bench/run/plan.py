"""From a suite to stages. Nothing runs here; every stage's digest is known before the first one starts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench import asset_list, registry, weights
from bench.errors import ConfigError, DataError
from bench.registry import Spec
from bench.run.cache import WorkFolder, digest_json, write_json
from bench.run.enforced import loss_of, short_claim
from bench.run.stages import Stage
from bench.run.suite import Suite
from bench.run.workers import method_facts
from bench.types import Column, Compare

ENFORCED_FACTS = ("full_claim", "branches", "encodes", "plans")  # what the stages of an enforced method act on


@dataclass(frozen=True)
class Request:
    """What the command line asked for; empty fields mean "as the suite says"."""

    suite: Suite
    methods: Sequence[str] = ()
    attacks: Sequence[str] = ()
    metrics: Sequence[str] = ()
    root: Path | None = None


@dataclass(frozen=True)
class Plan:
    """All stages in an order in which each comes after its inputs, and the scores they lead to."""

    stages: list[Stage]
    scores: list[Stage]
    facts: dict[str, dict[str, Any]]
    suite: Suite


def make_plan(request: Request, work: WorkFolder) -> Plan:
    """Plan every stage of a request. Raises ConfigError for unknown names before anything runs."""
    suite = request.suite
    methods = [Spec.parse(m) for m in _with_controls(request, suite)]
    attacks, metrics = _selected(request, suite)
    for method in methods:
        registry.locate("methods", method.name)
    for kind, specs in (("attacks", attacks), ("metrics", metrics)):
        for spec in specs:
            registry.settings(kind, spec)
    facts = {str(spec): known_facts(spec, work) for spec in methods}
    builder = Builder(suite, request.root)
    scores = [stage for method in methods for stage in builder.row(method, facts[str(method)], attacks, metrics)]
    stages: dict[str, Stage] = {}
    for score in scores:
        stages |= {s.digest: s for s in score.all()}
    return Plan(list(stages.values()), scores, facts, suite)


def _with_controls(request: Request, suite: Suite) -> list[str]:
    """The methods asked for, with the suite's controls before them: a column without controls proves nothing."""
    if not request.methods:
        return list(suite.methods)
    controls = [m for m in suite.methods if m in ("original", "blackout")]
    return list(dict.fromkeys([*controls, *request.methods]))


def _selected(request: Request, suite: Suite) -> tuple[list[Spec], list[Spec]]:
    narrowed = bool(request.attacks or request.metrics)
    attacks = request.attacks if narrowed else suite.attacks
    metrics = request.metrics if narrowed else suite.metrics
    return [Spec.parse(a) for a in attacks], [Spec.parse(m) for m in metrics]


def known_facts(spec: Spec, work: WorkFolder) -> dict[str, Any]:
    """Facts about a method, asked of a worker once per source digest."""
    key = digest_json([str(spec), registry.source_digest("methods", spec.name)])
    path = work.root / "facts" / f"{key[:20]}.json"
    if not path.is_file():
        facts = method_facts(spec)
        write_json(path, facts | ({"claim": short_claim(facts)} if facts["lane"] == "enforced" else {}))
    return json.loads(path.read_text(encoding="utf-8"))


def asset_stage(suite: Suite, name: str) -> Stage:
    """The stage that gives one shared network."""
    return Builder(suite, None).asset(name)


class Builder:
    """Builds the stages of one suite; equal stages are the same by digest."""

    def __init__(self, suite: Suite, root: Path | None):
        self.suite, self.seed = suite, suite.data_seed  # attacker seeds never change a release
        self.clips = self._clips(suite.dataset, root)
        public = registry.get("datasets", suite.dataset).public
        self.public = self._clips(public, None)

    def _clips(self, dataset: str, root: Path | None) -> Stage:
        adapter = registry.get("datasets", dataset)
        if adapter.needs_root and root is None:
            raise ConfigError(f"The dataset {dataset} needs a folder.", "It is not made on the fly.",
                              "Name it with --root DIR.")
        config = {"dataset": dataset, "root": str(root.resolve()) if root and adapter.needs_root else None,
                  "seed": self.suite.data_seed, "canvas_px": self.suite.canvas_px,
                  "fingerprint": fingerprint(root) if root and adapter.needs_root else None}
        return self._stage("clips", f"prepare {dataset}", config, plugins=(("datasets", dataset),))

    def _stage(self, kind: str, title: str, config: dict[str, Any], inputs: dict[str, Stage] | None = None,
               plugins: tuple[tuple[str, str], ...] = ()) -> Stage:
        return Stage(kind, title, config, inputs or {}, plugins, _seconds(self.suite, kind, title))

    def asset(self, name: str) -> Stage:
        asset_list.check_name(name)
        known = weights.shipped().get(name)
        if known and self.suite.data_seed == weights.SEED and name not in self.suite.budget:
            return self._stage("asset", f"asset {name}", {"asset": name, "shipped": known.sha256})
        config = {"asset": name, "seed": self.suite.data_seed, "budget": self.suite.budget.get(name, {})}
        return self._stage("asset", f"asset {name}", config, {"clips": self.public})

    def fitted(self, method: Spec, facts: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Stage]]:
        """Configuration and inputs of a stage that runs the method: the clips, and its fit when it fits."""
        base = {"method": method.name, "variant": method.variant, "profile": self.suite.profile, "seed": self.seed}
        inputs = {"clips": self.clips}
        if facts["fits"]:
            needed = {name: self.asset(name) for name in facts["assets"]}
            inputs["fit"] = self._stage("fit", f"fit {method}", {**base, "needs": facts["needs"]},
                                        {"clips": self.clips, **needed}, (("methods", method.name),))
        return base, inputs

    def release(self, method: Spec, facts: dict[str, Any]) -> Stage:
        (base, inputs), plugins = self.fitted(method, facts), (("methods", method.name),)
        config = {**base, "parts": ["development", "calibration", "enrolment", "probe"], "draws": self.suite.draws,
                  "decoding": self.suite.decoding}
        if facts["lane"] != "enforced":
            return self._stage("release", f"release {method}", config, inputs, plugins)
        said = {k: facts[k] for k in ENFORCED_FACTS}
        encode = self._stage("encode", f"encode {method}", {**base, "parts": config["parts"], "facts": said}, inputs,
                             plugins)
        return self._stage("enforced", f"release {method}", {**config, "facts": said}, {**inputs, "encode": encode},
                           plugins)

    def row(self, method: Spec, facts: dict[str, Any], attacks: list[Spec], metrics: list[Spec]) -> list[Stage]:
        """Score stages of one method."""
        release = self.release(method, facts)
        return [*(score for a in attacks for score in self._attack_scores(a, method, facts, release)),
                *(self._metric_score(m, method, facts, release) for m in metrics)]

    def _attack_scores(self, attack: Spec, method: Spec, facts: dict[str, Any], release: Stage) -> list[Stage]:
        """One score; none where the attack reads a transcript and the method has none."""
        cls = registry.get("attacks", attack.name)
        if issubclass(cls, Compare):
            return [self._compare_score(attack, method, facts, release)] if facts["lane"] == "enforced" else []
        return [self._attack_score(attack, cls, method, facts, release)]

    def _compare_score(self, attack: Spec, method: Spec, facts: dict[str, Any], release: Stage) -> Stage:
        cls, budget = registry.get("attacks", attack.name), self.suite.budget.get(str(attack), {})
        config = {"attack": attack.name, "variant": attack.variant, "budget": budget, "profile": self.suite.profile,
                  "seed": self.seed, "numbers_seed": self.suite.data_seed,
                  "facts": {k: facts[k] for k in ENFORCED_FACTS}}
        stage = self._stage("compare", f"compare {attack} on {method}", config,
                            {"release": release, "encode": release.inputs["encode"], "clips": self.clips},
                            (("attacks", attack.name),))
        return self._score(method, facts, cls.columns, {f"trials:{self.seed}": stage}, attack=str(attack),
                           decoding=cls.threat.decoding, seeds=[self.seed],
                           digest=digest_json([registry.source_digest("attacks", attack.name), str(attack), budget]))

    def _attack_score(self, attack: Spec, cls: Any, method: Spec, facts: dict[str, Any], release: Stage) -> Stage:
        plugins, budget = (("attacks", attack.name),), self.suite.budget.get(str(attack), {})
        needed = {f"asset:{name}": self.asset(name) for name in cls.assets}
        trials = {}
        for seed in self.suite.seeds:
            config = {"attack": attack.name, "variant": attack.variant, "budget": budget,
                      "profile": self.suite.profile, "seed": seed}
            on_release = cls.threat.trained_on != "original enrolment"
            source = {"release": release} if on_release else {"clips": self.clips}
            title = f"train {attack}" + (f" on {method}" if on_release else " on originals")
            train = self._stage("train", title, config, {**source, **needed}, plugins)
            trials[f"trials:{seed}"] = self._stage(
                "attack", f"attack {attack} on {method}", {**config, "numbers_seed": self.suite.data_seed},
                {"train": train, "release": release}, plugins)
        return self._score(method, facts, cls.columns, trials, attack=str(attack),
                           digest=digest_json([registry.source_digest("attacks", attack.name), str(attack), budget]))

    def _metric_score(self, metric: Spec, method: Spec, facts: dict[str, Any], release: Stage) -> Stage:
        plugin = registry.get("metrics", metric.name)
        budget = self.suite.budget.get(str(metric), {})
        needed = {f"asset:{name}": self.asset(name) for name in getattr(plugin, "assets", ())}
        seeds = self.suite.seeds if needed else self.suite.seeds[:1]
        trials = {}
        for seed in seeds:
            config = {"metric": metric.name, "variant": metric.variant, "budget": budget,
                      "profile": self.suite.profile, "seed": seed, "numbers_seed": self.suite.data_seed}
            trials[f"trials:{seed}"] = self._stage("metric", f"metric {metric} on {method}", config,
                                                   {"release": release, "clips": self.clips, **needed},
                                                   (("metrics", metric.name),))
        return self._score(method, facts, plugin.columns, trials, evaluator=metric.variant, metric=metric.name,
                           digest=digest_json([registry.source_digest("metrics", metric.name), str(metric), budget]),
                           seeds=seeds)

    def _score(self, method: Spec, facts: dict[str, Any], columns: Sequence[Column], trials: dict[str, Stage],
               **more: Any) -> Stage:
        kind, name = ("attacks", more["attack"]) if "attack" in more else ("metrics", more["metric"])
        plugins = {f"{k}/{n}": registry.source_digest(k, n)
                   for k, n in (("methods", method.name), (kind, Spec.parse(name).name))}
        config = {"method": method.name, "variant": method.variant, "dataset": self.suite.dataset,
                  "profile": self.suite.profile, "lane": facts["lane"], "claim": facts["claim"],
                  "control": facts["control"], "attack": None, "evaluator": None, "via": "direct",
                  "decoding": self.suite.decoding, "draws": self.suite.draws, "seeds": self.suite.seeds,
                  "loss": loss_of(facts) if facts["lane"] == "enforced" else None,
                  "suite": self.suite.name, "plugins": plugins, "columns": [asdict(c) for c in columns], **more}
        label = more.get("attack") or more["metric"] + (f"@{more['evaluator']}" if more.get("evaluator") else "")
        return self._stage("score", f"score {label} on {method}", config, {"clips": self.clips, **trials})


def _seconds(suite: Suite, kind: str, title: str) -> float:
    """The suite's measured seconds of a stage: by its title without the method, else by its kind."""
    return suite.seconds.get(title.split(" on ")[0], suite.seconds.get(kind, 0.0))


def fingerprint(root: Path) -> str:
    """SHA-256 over names, sizes and times of the files below a root: what was there when the run was planned."""
    if not root.is_dir():
        raise DataError(f"There is no folder {root}.", "The dataset is read from it.", "Check --root.")
    files = [(p.relative_to(root).as_posix(), p.stat().st_size, p.stat().st_mtime_ns)
             for p in sorted(root.rglob("*")) if p.is_file()]
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()


def with_options(suite: Suite, *, dataset: str | None = None, seeds: Sequence[int] = (),
                 profile: str | None = None) -> Suite:
    """The suite with what the command line changes."""
    changes: dict[str, Any] = {}
    if dataset:
        registry.locate("datasets", dataset)
        changes["dataset"] = dataset
    if seeds:
        changes["seeds"] = list(seeds)
    if profile == "paper":
        raise ConfigError("The paper profile cannot run yet.", "It starts its attackers and evaluators from published "
                          "networks, and no loader for them is part of this version.", "Use --profile tiny.")
    if profile:
        changes["profile"] = profile
    return suite.model_copy(update=changes)


def narrowed(plan: Plan, wanted: Sequence[Stage]) -> Plan:
    """The same plan with only these scores and what they need."""
    stages: dict[str, Stage] = {}
    for score in wanted:
        stages |= {s.digest: s for s in score.all()}
    return replace(plan, stages=list(stages.values()), scores=list(wanted))
