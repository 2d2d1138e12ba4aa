"""From a suite to stages. Nothing runs here; every stage's digest is known before the first one starts."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from bench import registry
from bench.errors import UserError
from bench.registry import Spec
from bench.run.cache import WorkFolder, digest_json, write_json
from bench.run.enforced import short_claim
from bench.run.report_rows import ReportBuilder, is_traffic
from bench.run.road import Leads
from bench.run.rows import Builder
from bench.run.stages import Stage
from bench.run.suite import CANVAS_PX, Suite
from bench.run.suite_check import check, check_shared
from bench.run.workers import family_facts

CONTROLS = ("original", "blackout", "vtpm_style", "public_median")  # of the faces, then of the traffic track


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
    methods = [Spec.parse(m) for m in _with_controls(request.methods, suite)]
    attacks, metrics = _selected(request, suite)
    for method in methods:
        registry.locate("methods", method.name)
    check(suite, attacks, metrics)
    facts = _known(methods, work)
    builder = ReportBuilder(suite, request.root) if is_traffic(suite.dataset) else \
        Builder(suite, request.root, leads=_leads(suite, methods, work))
    scores = [stage for method in methods
              for stage in builder.row(method, facts[str(method)], *_carried(suite, method, attacks, metrics))]
    if suite.again and isinstance(builder, Builder) and (again := Spec.parse(suite.again)) in methods:
        scores += Builder(suite, request.root, again=True).row(again, facts[str(again)], attacks, metrics)
    stages: dict[str, Stage] = {}
    for score in scores:
        stages |= {s.digest: s for s in score.all()}
    return Plan(list(stages.values()), scores, facts, suite)


def _with_controls(wanted: Sequence[str], suite: Suite) -> list[str]:
    """The methods asked for, with the suite's controls before them: a column without controls proves nothing."""
    if not wanted:
        return list(suite.methods)
    controls = [m for m in suite.methods if m in CONTROLS]
    return list(dict.fromkeys([*controls, *wanted]))


def _selected(request: Request, suite: Suite) -> tuple[list[Spec], list[Spec]]:
    narrowed = bool(request.attacks or request.metrics)
    attacks = request.attacks if narrowed else suite.attacks
    metrics = request.metrics if narrowed else suite.metrics
    return [Spec.parse(a) for a in attacks], [Spec.parse(m) for m in metrics]


def _carried(suite: Suite, method: Spec, attacks: list[Spec], metrics: list[Spec]) -> tuple[list[Spec], list[Spec]]:
    """The attacks and metrics of one row: all of them, or those that the suite's `only` leaves it."""
    lists = [names for pattern, names in suite.only.items() if fnmatchcase(str(method), pattern)]
    if not lists:
        return attacks, metrics
    kept = {name for names in lists for name in names}
    return [a for a in attacks if str(a) in kept], [m for m in metrics if str(m) in kept]


def _leads(suite: Suite, methods: Sequence[Spec], work: WorkFolder) -> Leads:
    """The row whose encoded clips each of these rows releases, where the suite names one. Raises ConfigError."""
    pairs = [(name, Spec.parse(lead)) for lead, names in suite.encoded.items() for name in names]
    found = {name: (lead, known_facts(lead, work)) for name, lead in pairs if Spec.parse(name) in methods}
    for name, (lead, facts) in found.items():
        check_shared(suite, name, known_facts(Spec.parse(name), work), str(lead), facts)
    return found


def known_facts(spec: Spec, work: WorkFolder) -> dict[str, Any]:
    """Facts about a method, asked of a worker once per source digest, for all variants of it at once."""
    if not (path := _facts_file(spec, work)).is_file():
        for found, facts in family_facts(spec).items():
            with contextlib.nullcontext() if found == spec else contextlib.suppress(UserError):
                claim = {"claim": short_claim(facts)} if facts.get("full_claim") else {}
                write_json(_facts_file(found, work), facts | claim)
    return json.loads(path.read_text(encoding="utf-8"))


def _facts_file(spec: Spec, work: WorkFolder) -> Path:
    key = digest_json([str(spec), registry.source_digest("methods", spec.name)])
    return work.root / "facts" / f"{key[:20]}.json"


def unknown(suite: Suite, methods: Sequence[str], work: WorkFolder) -> list[str]:
    """Names of the methods of a request, without their variants, that a worker will be asked about."""
    specs = map(Spec.parse, _with_controls(methods, suite))
    return list(dict.fromkeys(s.name for s in specs if s.name in registry.names("methods")
                              and not _facts_file(s, work).is_file()))


def _known(specs: Sequence[Spec], work: WorkFolder) -> dict[str, dict[str, Any]]:
    """The facts of these rows. Two workers start at a time: most of it is waiting for their imports."""
    first = {spec.name: spec for spec in reversed(specs)}
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda spec: known_facts(spec, work), first.values()))
    return {str(spec): known_facts(spec, work) for spec in specs}


def asset_stage(suite: Suite, name: str) -> Stage:
    """The stage that gives one shared network."""
    return Builder(suite, None).asset(name)


def dataset_stage(suite: Suite, root: Path | None) -> Stage:
    """The stage that prepares the suite's dataset."""
    return ReportBuilder(suite, root).streams if is_traffic(suite.dataset) else Builder(suite, root).clips


def with_options(suite: Suite, *, dataset: str | None = None, seeds: Sequence[int] = (),
                 profile: str | None = None) -> Suite:
    """The suite with what the command line changes."""
    changes: dict[str, Any] = {}
    if dataset:
        registry.locate("datasets", dataset)
        changes["dataset"] = dataset
    if seeds:
        changes["seeds"] = list(seeds)
    if profile and profile != suite.profile:
        changes |= {"profile": profile, "canvas_px": CANVAS_PX[profile]}
    return suite.model_copy(update=changes)


def narrowed(plan: Plan, wanted: Sequence[Stage]) -> Plan:
    """The same plan with only these scores and what they need."""
    stages: dict[str, Stage] = {}
    for score in wanted:
        stages |= {s.digest: s for s in score.all()}
    return replace(plan, stages=list(stages.values()), scores=list(wanted))
