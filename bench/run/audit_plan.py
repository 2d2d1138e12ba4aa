"""Planning an audit, and what finished audits say about the methods of a work folder."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from bench.errors import ConfigError
from bench.privacy.checks import count
from bench.registry import Spec
from bench.run.cache import WorkFolder
from bench.run.enforced import priced
from bench.run.report_rows import ReportBuilder, is_traffic
from bench.run.road import acted_on
from bench.run.rows import Builder
from bench.run.stages import Stage
from bench.run.suite import Suite

RELEASES = 10_000  # in all, where --releases is not given; under four minutes on two slow cores with the data
OF_PIXELS = 4_000  # the same for a trusted reader: thousands of exact discrete draws each
STREAMS = "sumo_crossing"  # where an event claim is audited, unless --dataset names another traffic dataset
FEWEST, MOST = 40, 1_000_000


def audit_stage(method: Spec, facts: dict[str, Any], suite: Suite, root: Path | None,
                releases: int | None = None) -> Stage:
    """The stage that audits one method; clips and fit before it. Raises ConfigError where there is nothing to audit."""
    _check_claim(method, facts)
    if releases is None:
        releases = RELEASES if facts["encodes"] == "method" else OF_PIXELS
    count("--releases", releases, FEWEST, MOST)
    base, inputs = _fitted(method, facts, suite, root)
    config = {**base, "facts": acted_on(facts), "releases": releases}
    return Stage("audit", f"audit {method}", config, inputs, (("methods", method.name),))


def _fitted(method: Spec, facts: dict[str, Any], suite: Suite,
            root: Path | None) -> tuple[dict[str, Any], dict[str, Stage]]:
    """Configuration and inputs of the audit: clips, or the streams that an event claim is about; the fit."""
    if priced(facts)[0].unit != "event":
        return Builder(suite, root).fitted(method, facts)
    if not is_traffic(suite.dataset):
        suite = suite.model_copy(update={"dataset": STREAMS})
    release = ReportBuilder(suite, root).release(method, facts)
    base = {k: release.config[k] for k in ("method", "variant", "profile", "seed")}
    return base, {k: s for k, s in release.inputs.items() if k in ("streams", "fit")}


def _check_claim(method: Spec, facts: dict[str, Any]) -> None:
    if facts["lane"] == "declared":
        raise ConfigError(f"The claim of {method} is declared, not enforced.",
                          "Its noise is not drawn by the harness, so that an audit of the harness says nothing of it.",
                          f"`veilbench account {method}` says what the declared events cost.")
    if facts["lane"] != "enforced":
        raise ConfigError(f"There is nothing to audit: {method} makes no formal claim.",
                          "An audit tests whether a promised epsilon holds, and here epsilon is infinite.",
                          f"Attack it instead: `veilbench run demo --method {method}`.")
    cost = priced(facts)[1]
    if not math.isfinite(cost.epsilon):
        raise ConfigError(f"There is nothing to audit: the claim of {method} has infinite epsilon.",
                          cost.assumptions[0] if cost.assumptions else "", "Give every branch its noise.")


def refuted_methods(work: WorkFolder) -> dict[str, dict[str, Any]]:
    """{method spec: {refuted, bound, claim, n, source}} of the newest finished audit of each method.

    bound: lower bound on epsilon, claim: the epsilon claimed, n: releases. source: digest of the method that was
    audited; an audit says nothing of another source.
    """
    newest: dict[str, dict[str, Any]] = {}
    for record in sorted(work.finished("audit"), key=lambda r: r["finished"]):
        found = json.loads((record["folder"] / "audit.json").read_text(encoding="utf-8"))
        newest[str(Spec(found["method"], found["variant"]))] = {
            "refuted": found["refuted"], "bound": found["bound"], "claim": found["claim"]["epsilon"],
            "n": found["n"], "source": record["identity"]["plugins"].get(f"methods/{found['method']}")}
    return newest
