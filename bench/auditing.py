"""The command `audit`: test the claim of an enforced method as executed, and say what was found in plain words."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench import registry
from bench.account_words import WIDTH
from bench.commands import execute
from bench.errors import ConfigError, PluginError
from bench.registry import Spec
from bench.run import suite as suites
from bench.run.audit_plan import MOST, audit_stage
from bench.run.cache import WorkFolder
from bench.run.plan import Plan, known_facts, with_options

FORMATS = ("text", "json")


def audit(method: str, workdir: Path, *, releases: int | None = None, dataset: str | None = None,
          root: Path | None = None, form: str = "text") -> tuple[int, list[str]]:
    """Audit a method; returns the exit code (1: the claim is refuted) and the lines to print.

    Raises ConfigError where there is nothing to audit, PluginError where the audit could not be made.
    """
    if form not in FORMATS:
        raise ConfigError(f"There is no format {form!r}.", "", "Use --format text or --format json.")
    spec = Spec.parse(method)
    registry.locate("methods", spec.name)
    suite = with_options(suites.load("demo"), dataset=dataset)
    work = WorkFolder(workdir)
    with work.open_for_writing():
        stage = audit_stage(spec, known_facts(spec, work), suite, root, releases)
        plan = Plan(stage.all(), [], {}, suite)
        outcome = execute(work, plan, 1, "none" if form == "json" else None)
    if outcome.failed:
        raise PluginError(f"The audit of {spec} could not be made: {next(iter(outcome.failed.values()))}",
                          "Its claim is neither refuted nor tested.", "`veilbench status` shows the end of the log.")
    found = json.loads((work.stage("audit", stage.digest) / "audit.json").read_text(encoding="utf-8"))
    text = [json.dumps(found, indent=1, sort_keys=True)] if form == "json" else list(lines(found))
    return int(found["refuted"]), text


# ---- words ---------------------------------------------------------------------------------------------------------

def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """An audit for a reader."""
    name = f"{found['method']}{'@' + found['variant'] if found['variant'] else ''}"
    yield f"{name}: {found['n']:,} releases of {len(found['pairs'])} pairs of inputs on {found['dataset']}, fixed " \
          "before the first release"
    yield ""
    yield f"claim       {_claim(found)}"
    yield f"bound       epsilon is at least {found['bound']:.3g}" + (
        f", mu at least {found['bound_mu']:.3g}" if found["bound_mu"] is not None else "") + \
        f" ({found['confidence']:.0%} confidence over all pairs together)"
    yield f"detectable  {_detectable(found)}"
    yield from (_noise(row) for row in found["scale"])
    yield ""
    yield f"{'pair of inputs':<38}{'releases':>9}{'guessed right':>20}{'epsilon >=':>12}"
    for pair in found["pairs"]:
        right = f"{pair['right']:,} of {pair['trials']:,}"
        yield f"{pair['words']:<38}{pair['n']:>9,}{right:>20}{pair['epsilon']:>12.3g}"
    yield ""
    yield from textwrap.wrap(verdict_words(found), WIDTH)


def _claim(found: Mapping[str, Any]) -> str:
    claim, mu = found["claim"], found["price"]["mu"]
    pure = found["price"]["delta"] == 0
    return f"epsilon {float(claim['epsilon']):.4g}" + (", pure" if pure else f" at delta {claim['delta']:g}") + (
        f", mu {mu:.3g}" if mu is not None else "") + f"; unit {claim['unit']}, {claim['horizon']}"


def _detectable(found: Mapping[str, Any]) -> str:
    if found["detectable"] != "inf":
        return f"a true epsilon of {found['detectable']:.3g} or more would be refuted by 9 in 10 such audits"
    share = found["allowed_right"]  # of right guesses; all of them must be right more often than by luck
    needed = 2 * len(found["pairs"]) * math.log(found["beta_pair"]) / math.log(share) if share < 1 else math.inf
    return "nothing by guessing: even if all guesses are right, that may be luck under such a claim" + (
        f"\n            (--releases {math.ceil(needed / 1000) * 1000} could refute it)" if needed < MOST else "")


def _noise(row: Mapping[str, Any]) -> str:
    return f"noise       {row['branch']}: {row['ratio']:.4f} of the claimed size ({row['test']} on {row['n']:,} " \
           f"draws, p = {row['p']:.2g}; a shortfall of {row['resolves']:.1%} would show" + (
               "; BELOW ITS FLOOR)" if row["under_floor"] else ")")


def verdict_words(found: Mapping[str, Any]) -> str:
    """The outcome for a privacy officer: what an attacker could do, what the claim allows, what follows."""
    best = max(found["pairs"], key=lambda p: p["right"] / p["trials"])
    could = f"An observer who knows both inputs and the method told them apart in " \
            f"{best['right'] / best['trials']:.1%} of {best['trials']:,} tries. A coin is right in 50 %, the claim " \
            f"allows {found['allowed_right']:.2%}, {_luck(best)}."
    if not found["refuted"]:
        return f"NOT REFUTED. {could} The noise is as large as claimed. This does not prove the claim: an audit " \
               "can refute a claim, never prove it, and it tests the harness with seeded noise on these inputs only."
    short = [row["branch"] for row in found["scale"] if row["refuted"]]
    noise = f" The noise of {', '.join(short)} is smaller than claimed." if short else ""
    return f"REFUTED. {could}{noise} What is released reveals more than the claim promises: do not rely on it, and " \
           "publish nothing with it, until the fault is found."


def _luck(pair: Mapping[str, Any]) -> str:
    share = pair["refuted_from"] / pair["trials"]
    return f"and from {share:.1%} on it is no longer luck" if share <= 1 else \
        "and so few tries cannot contradict it: here the size of the noise is what was tested"
