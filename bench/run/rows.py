"""The stages of one row of a board: prepare, fit, release, attack, recover, measure, score.

Equal stages are the same by digest, so that whatever several columns need is planned once. What a release is asked
for (parts, draws, decoding) follows from the suite and from what the plug-ins read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import asset_list, registry, weights
from bench.diagnostics import Diagnostic
from bench.errors import ConfigError, DataError
from bench.measures import Column, Compare, Evaluator, Match, Recover, SetMetric
from bench.registry import Spec
from bench.run.cache import digest_json
from bench.run.diagnostic_rows import diagnostic_scores
from bench.run.enforced import loss_of
from bench.run.road import AGAIN, Leads, Road, acted_on
from bench.run.set_rows import features
from bench.run.stages import Stage
from bench.run.suite import Suite

PARTS = ["development", "calibration", "enrolment", "probe"]
REPEAT = 1_000_000  # added to every seed of a row that is run again


class Builder:
    """Builds the stages of one suite."""

    def __init__(self, suite: Suite, root: Path | None, *, again: bool = False, leads: Leads | None = None):
        self.again, self.seed = again, suite.data_seed  # attacker seeds never change a release
        self.suite, self.leads = suite, leads or {}
        if again:
            self.seed += REPEAT
            self.suite = suite.model_copy(update={"seeds": [seed + REPEAT for seed in suite.seeds]})
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
        return self.stage("clips", f"prepare {dataset}", config, plugins=(("datasets", dataset),))

    def stage(self, kind: str, title: str, config: dict[str, Any], inputs: dict[str, Stage] | None = None,
               plugins: tuple[tuple[str, str], ...] = ()) -> Stage:
        return Stage(kind, title, config, inputs or {}, plugins, _seconds(self.suite, kind, title))

    def asset(self, name: str) -> Stage:
        asset_list.check_name(name)
        known = weights.shipped().get(name)
        if known and self.suite.data_seed == weights.SEED and name not in self.suite.budget:
            return self.stage("shipped", f"asset {name}", {"asset": name, "shipped": known.sha256})
        config = {"asset": name, "seed": self.suite.data_seed, "budget": self.suite.budget.get(name, {})}
        return self.stage("asset", f"asset {name}", config, {"clips": self.public})

    def assets(self, plugin: Any, variant: str | None = None) -> dict[str, Stage]:
        names = plugin.assets_of(variant) if hasattr(plugin, "assets_of") else getattr(plugin, "assets", ())
        return {f"asset:{name}": self.asset(name) for name in names}

    # ---- releases --------------------------------------------------------------------------------------------------

    def fitted(self, method: Spec, facts: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Stage]]:
        """Configuration and inputs of a stage that runs the method: the clips, and its fit when it fits."""
        base = {"method": method.name, "variant": method.variant, "profile": self.suite.profile, "seed": self.seed}
        inputs = {"clips": self.clips}
        if facts["fits"]:
            needed = {name: self.asset(name) for name in facts["assets"]}
            inputs["fit"] = self.stage("fit", f"fit {method}", {**base, "needs": facts["needs"]},
                                        {"clips": self.clips, **needed}, (("methods", method.name),))
        return base, inputs

    def release(self, method: Spec, facts: Mapping[str, Any], title: str = "release", **request: Any) -> Stage:
        """A release as it is asked for; by default all parts, the suite's draws, assembled."""
        (base, inputs), plugins = self.fitted(method, facts), (("methods", method.name),)
        draws = self.suite.draws if is_random(facts) else 1  # without chance every draw is the same
        config = {**base, "parts": PARTS, "draws": draws, "decoding": "assembled", **request}
        if facts["lane"] != "enforced":
            return self.stage("release", f"{title} {method}", config, inputs, plugins)
        kind = "intervene" if "intervention" in request else "enforced"
        if lead := self.leads.get(str(method)):
            config["encoded_by"] = str(lead[0])
        encode = self.encoded(*(lead or (method, facts)))
        return self.stage(kind, f"{title} {method}", {**config, "facts": acted_on(facts)},
                          {**inputs, "encode": encode}, plugins)

    def encoded(self, method: Spec, facts: Mapping[str, Any]) -> Stage:
        """The clipped un-noised values of every clip, of a method whose noise the harness draws."""
        base, inputs = self.fitted(method, facts)
        return self.stage("encode", f"encode {method}", {**base, "parts": PARTS, "facts": acted_on(facts)}, inputs,
                          (("methods", method.name),))

    def road(self, method: Spec, facts: Mapping[str, Any]) -> Road:
        """The releases of a method. Without memory across clips one folder serves both decodings."""
        assembled = self.release(method, facts)
        isolated = self.release(method, facts, "release clips of", decoding="isolated") \
            if facts["memory_between_clips"] else assembled
        draws = assembled.config["draws"]
        return Road(method, facts, assembled, isolated, draws if isinstance(draws, int) else max(draws.values()))

    def _redrawn(self, road: Road) -> Stage:
        """Many releases of one probe clip a person and label; where nothing is random, the ordinary release."""
        if not is_random(road.facts):
            return road.assembled
        return self.release(road.method, road.facts, "release again", parts=["probe"], decoding="isolated",
                            draws=self.suite.redraws, subset="one")

    # ---- columns ---------------------------------------------------------------------------------------------------

    def row(self, method: Spec, facts: Mapping[str, Any], attacks: Sequence[Spec],
            metrics: Sequence[Spec]) -> list[Stage]:
        """Score stages of one method: direct columns, then those of each recovered release."""
        road = self.road(method, facts)
        scores = [score for a in attacks for score in self._attack_scores(a, road)]
        scores += [self._metric_score(m, road) for m in metrics]
        for attack in attacks:
            if issubclass(registry.get("attacks", attack.name), Recover):
                scores += self._recovered(attack, road)
        return scores

    def _recovered(self, attack: Spec, road: Road) -> list[Stage]:
        """The columns of the suite's `via` list on what a recovery attack made of the released clips."""
        derived = self._derived(attack, road)
        scores: list[Stage] = []
        for name in self.suite.via:
            spec = Spec.parse(name)
            if spec.name in registry.names("attacks"):
                scores += self._attack_scores(spec, derived)
            else:
                scores.append(self._metric_score(spec, derived))
        return scores

    def _derived(self, attack: Spec, road: Road) -> Road:
        plugins, config = (("attacks", attack.name),), self.attack_config(attack, self.suite.seeds[0])
        cls = registry.get("attacks", attack.name)
        learn = self.stage("learn", f"train {attack} on {road.method}", config,
                            {"release": road.isolated, "clips": self.clips, **self.assets(cls)}, plugins)
        made = self.stage("derive", f"apply {attack} to {road.method}", {**config, "subset": self.suite.recovered},
                           {"train": learn, "release": road.isolated}, plugins)
        return Road(road.method, road.facts, made, made, road.draws, str(attack),
                    (attack.name, self.attack_digest(attack)), road.isolated)

    def attack_config(self, attack: Spec, seed: int, road: Road | None = None) -> dict[str, Any]:
        budget = self.suite.budget_of(str(attack), recovered=bool(road and road.behind))
        return {"attack": attack.name, "variant": attack.variant, "budget": budget, "profile": self.suite.profile,
                "seed": seed}

    def attack_digest(self, attack: Spec, road: Road | None = None) -> str:
        budget = self.suite.budget_of(str(attack), recovered=bool(road and road.behind))
        return digest_json([registry.source_digest("attacks", attack.name), str(attack), budget])

    def _attack_scores(self, attack: Spec, road: Road) -> list[Stage]:
        """The scores of one attack; none where it reads a transcript and the method has none, or only derives."""
        cls = registry.get("attacks", attack.name)
        if issubclass(cls, Recover):
            return []
        if issubclass(cls, (Compare, Diagnostic)) and (road.facts["lane"] != "enforced" or road.behind):
            return []
        if issubclass(cls, Diagnostic):
            return diagnostic_scores(self, attack, road)
        if issubclass(cls, Compare):
            return [self._compare_score(attack, road)]
        if issubclass(cls, Match):
            return [self._match_score(attack, cls, road)]
        return [self._identify_score(attack, cls, road)]

    def _compare_score(self, attack: Spec, road: Road) -> Stage:
        cls = registry.get("attacks", attack.name)
        config = {**self.attack_config(attack, self.seed), "numbers_seed": self.suite.data_seed,
                  "facts": acted_on(road.facts)}
        stage = self.stage("compare", f"compare {attack} on {road.method}", config,
                            {"release": road.assembled, "encode": road.assembled.inputs["encode"], "clips": self.clips},
                            (("attacks", attack.name),))
        return self.score(road, cls.columns, {f"trials:{self.seed}": stage}, attack=str(attack),
                           decoding=cls.threat.decoding, seeds=[self.seed], digest=self.attack_digest(attack))

    def _identify_score(self, attack: Spec, cls: Any, road: Road) -> Stage:
        plugins, decoding = (("attacks", attack.name),), cls.threat.decoding
        release = road.read_by(decoding)
        probes = self._redrawn(road) if cls.threat.reads == "draws" and not road.behind else release
        trials = {}
        for seed in self.suite.seeds:
            train = self.trained(Spec(cls.trains_like or attack.name, attack.variant), road, seed)
            trials[f"trials:{seed}"] = self.stage(
                "attack", f"attack {attack} on {road.name}",
                {**self.attack_config(attack, seed, road), "numbers_seed": self.suite.data_seed},
                {"train": train, "release": probes}, plugins)
        more = {"draws": probes.config["draws"]} if probes is not release else {}
        return self.score(road, cls.columns, trials, attack=str(attack), digest=self.attack_digest(attack, road),
                           decoding="isolated" if road.behind else decoding, **more)

    def trained(self, attack: Spec, road: Road, seed: int) -> Stage:
        """The fitted attacker: on the released enrolment part, or on originals, once for all methods."""
        cls = registry.get("attacks", attack.name)
        on_release = cls.threat.trained_on != "original enrolment"
        source = {"release": road.read_by(cls.threat.decoding)} if on_release else {"clips": self.clips}
        title = f"train {attack}" + (f" on {road.name}" if on_release else " on originals")
        return self.stage("train", title, self.attack_config(attack, seed, road), {**source, **self.assets(cls)},
                           (("attacks", attack.name),))

    def _match_score(self, attack: Spec, cls: Any, road: Road) -> Stage:
        """Embeddings learned on direct development releases; a recovered release changes the probes alone."""
        plugins, direct = (("attacks", attack.name),), road.direct or road.isolated
        trials = {}
        for seed in self.suite.seeds:
            config = self.attack_config(attack, seed)
            train = self.stage("train_match", f"train {attack} on {road.method}", config,
                                {"release": direct, **self.assets(cls)}, plugins)
            inputs = {"train": train, "release": direct, "clips": self.clips}
            trials[f"trials:{seed}"] = self.stage(
                "match", f"attack {attack} on {road.name}", {**config, "numbers_seed": self.suite.data_seed},
                inputs | ({"probes": road.isolated} if road.behind else {}), plugins)
        return self.score(road, cls.columns, trials, attack=str(attack), decoding="isolated",
                           digest=self.attack_digest(attack))

    def _metric_score(self, metric: Spec, road: Road) -> Stage:
        plugin = registry.get("metrics", metric.name)
        budget, retrained = self.suite.budget.get(str(metric), {}), _is(plugin, Evaluator)
        inputs: dict[str, Stage] = {"release": road.assembled, "clips": self.clips}
        columns, reader = tuple(plugin.columns), None
        if not _is(plugin, SetMetric):
            inputs |= self.assets(plugin, metric.variant) | ({"direct": road.direct} if road.direct else {})
        else:
            columns += tuple(plugin.recovered_columns) if road.behind else ()
            inputs |= features(self, metric, road)
            reader = ("metrics", plugin.embeds_like) if plugin.embeds_like else None
        seeds = self.suite.seeds if retrained else self.suite.seeds[:1]
        trials = {f"trials:{seed}": self.measured(metric, road, seed, inputs) for seed in seeds}
        used = [metric.name, *([reader[1]] if reader else [])]
        return self.score(road, columns, trials, evaluator=metric.variant, metric=metric.name, seeds=seeds,
                           decoding="isolated" if road.behind else "assembled", reader=reader,
                           digest=digest_json([*(registry.source_digest("metrics", name) for name in used),
                                               str(metric), budget]))

    def measured(self, metric: Spec, road: Road, seed: int, inputs: Mapping[str, Stage] | None = None) -> Stage:
        """The stage of a metric; of an evaluator it also holds the network that it trained."""
        config = {"metric": metric.name, "variant": metric.variant, "budget": self.suite.budget.get(str(metric), {}),
                  "profile": self.suite.profile, "seed": seed, "numbers_seed": self.suite.data_seed}
        plugin = registry.get("metrics", metric.name)
        inputs = inputs or {"release": road.assembled, "clips": self.clips, **self.assets(plugin, metric.variant)}
        return self.stage("metric", f"metric {metric} on {road.name}", config, dict(inputs),
                          (("metrics", metric.name),))

    def score(self, road: Road, columns: Sequence[Column], trials: dict[str, Stage], *, digest: str,
              reader: tuple[str, str] | None = None, **more: Any) -> Stage:
        """The score of one attack or metric. reader: a further plug-in, whose network the attack used."""
        kind, name = ("attacks", more["attack"]) if "attack" in more else ("metrics", more["metric"])
        used = [("methods", road.method.name), (kind, Spec.parse(name).name), *([reader] if reader else [])]
        if road.behind:
            used.append(("attacks", road.behind[0]))
            digest = digest_json([digest, road.behind[1]])
        facts, variant = road.facts, road.method.variant
        config = {"method": road.method.name, "variant": f"{variant or ''}{AGAIN}" if self.again else variant,
                  "dataset": self.suite.dataset, "profile": self.suite.profile, "lane": facts["lane"],
                  "claim": facts["claim"], "control": "repeat" if self.again else facts["control"], "attack": None,
                  "evaluator": None, "via": road.via, "draws": road.draws, "seeds": self.suite.seeds,
                  "loss": loss_of(facts) if facts.get("full_claim") else None, "suite": self.suite.name,
                  "plugins": {f"{k}/{n}": registry.source_digest(k, n) for k, n in used},
                  "columns": [asdict(c) for c in columns], "digest": digest, **more}
        label = more.get("attack") or more["metric"] + (f"@{more['evaluator']}" if more.get("evaluator") else "")
        return self.stage("score", f"score {label} on {road.name}", config, {"clips": self.clips, **trials})


def is_random(facts: Mapping[str, Any]) -> bool:
    """Do two releases of one video differ? Where there is a claim always, else when the method says so."""
    return facts["lane"] != "none" or facts.get("random_release", False)


def _is(plugin: Any, kind: type) -> bool:
    return isinstance(plugin, type) and issubclass(plugin, kind)


def _seconds(suite: Suite, kind: str, title: str) -> float:
    """The suite's measured seconds of a stage: by its title without the method, else by its kind."""
    return suite.seconds.get(re.split(" on | to ", title)[0], suite.seconds.get(kind, 0.0))


def fingerprint(root: Path) -> str:
    """SHA-256 over names, sizes and times of the files below a root: what was there when the run was planned."""
    if not root.is_dir():
        raise DataError(f"There is no folder {root}.", "The dataset is read from it.", "Check --root.")
    files = [(p.relative_to(root).as_posix(), p.stat().st_size, p.stat().st_mtime_ns)
             for p in sorted(root.rglob("*")) if p.is_file()]
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()


