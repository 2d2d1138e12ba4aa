"""What a suite asks of its plug-ins, checked before anything runs: contracts, columns, networks, budgets, `via`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from bench import registry
from bench.asset_list import ASSETS
from bench.diagnostics import Assignments, Diagnostic, Probe, Repeat, Reread
from bench.distinguishers import Distinguisher
from bench.errors import ConfigError, PluginError, nearest
from bench.measures import (
    Column,
    Compare,
    Evaluator,
    Identify,
    Match,
    Metric,
    Recover,
    SetMetric,
    VideoMetric,
)
from bench.registry import Spec
from bench.report_measures import ReportMetric, Stream
from bench.run.enforced import clip_length
from bench.run.report_rows import is_traffic
from bench.run.suite import Suite

WRITES: dict[type, tuple[str, ...]] = {
    Match: ("fit", "embed", "state", "load"), Recover: ("fit", "recover", "state", "load"), Compare: ("score",),
    Probe: ("scores",), Repeat: ("agreement",), Assignments: ("load",), VideoMetric: ("values",),
    SetMetric: ("embed", "distance"), Evaluator: ("fit", "predict", "state", "load"), Stream: ("auc",),
    Distinguisher: ("fit", "score")}
STATISTICS: dict[type, tuple[str, ...]] = {SetMetric: ("jackknife",), Evaluator: ("mean", "uar"),
                                           Diagnostic: ("mean", "jackknife"), ReportMetric: ("mean", "jackknife")}
IDS: dict[type, tuple[str, ...]] = {Identify: ("top1",), Compare: ("top1",), Match: ("eer", "tar", "dir",
                                                                                     "realised_far"), Stream: ("auc",)}
WORDS: dict[str, tuple[str, ...]] = {"better": ("higher", "lower", "none"),
                                     "role": ("privacy", "utility", "descriptive", "diagnostic")}


def check(suite: Suite, attacks: Sequence[Spec], metrics: Sequence[Spec]) -> None:
    """Refuse what could not be measured, or would be ignored in silence. Raises ConfigError or PluginError."""
    used = [("attacks", s) for s in attacks] + [("metrics", s) for s in metrics]
    used += [(_kind(suite, spec), spec) for spec in map(Spec.parse, suite.via)]
    _check_track(suite, used)
    for kind, spec in used:
        registry.settings(kind, spec)
        check_plugin(kind, spec)
        _check_budget(suite, kind, spec)
    _check_via(suite)
    _check_only(suite)
    _check_encoded(suite)
    _check_budget_names(suite)
    if suite.again and suite.again not in suite.methods:
        raise ConfigError(f"The suite {suite.name} runs {suite.again!r} again, which is none of its methods.",
                          nearest(suite.again, suite.methods), "Mend `again` in the suite file.")


def _check_track(suite: Suite, used: Iterable[tuple[str, Spec]]) -> None:
    """Raises ConfigError where an attack or a metric measures what the dataset does not hold."""
    traffic = is_traffic(suite.dataset)
    for kind, spec in used:
        plugin = registry.get(kind, spec.name)
        if (isinstance(plugin, type) and issubclass(plugin, (Stream, ReportMetric))) != traffic:
            made, found = ("videos of faces", "reports") if not traffic else ("reports of traffic", "videos")
            raise ConfigError(f"{spec} measures {found}, and {suite.dataset} gives {made}.",
                              "Faces and traffic are two tracks with measurements of their own.",
                              f"Take the suite {'traffic-mini' if traffic else 'demo'} (`veilbench list suites` has "
                              f"more), or a dataset and {kind} of one track.")


# ---- plug-ins ------------------------------------------------------------------------------------------------------

def check_plugin(kind: str, spec: Spec) -> None:
    """That an attack or metric has its functions, its columns and no network of the methods. Raises PluginError."""
    plugin = registry.get(kind, spec.name)
    said = f"The {registry.DECORATORS[kind]} {spec.name!r}"
    if kind == "attacks" and not hasattr(plugin, "threat"):
        raise PluginError(f"{said} has no threat model.", "What an attacker knows is printed beside its number.",
                          "Write `threat = ThreatModel(knows=..., reads=..., trained_on=...)` in the class.")
    absent = [name for base, name in _wanted(plugin) if getattr(plugin, name) is getattr(base, name)]
    if absent:
        raise PluginError(f"{said} does not write {', '.join(f'`{name}`' for name in absent)}.",
                          "The harness calls it.", "Define it in the class.")
    networks = plugin.assets_of(spec.variant) if hasattr(plugin, "assets_of") else getattr(plugin, "assets", ())
    evaluation = [name for name in ASSETS if name.endswith("_eval")]
    if wrong := [name for name in networks if name not in evaluation]:
        raise PluginError(f"{said} names {wrong[0]!r} in `assets`, which is no network of attackers and evaluators.",
                          nearest(wrong[0], evaluation), "Mend `assets`; those that end in _method belong to methods.")
    _check_columns(said, plugin)


def _wanted(plugin: Any) -> Iterable[tuple[type, str]]:
    """(base class, name) of every function that an author writes."""
    if _is(plugin, Identify):
        own = () if plugin.trains_like else ("fit", "state")
        return [(Identify, n) for n in (*own, "load", "score_draws" if plugin.threat.reads == "draws" else "score")]
    found = [(base, name) for base, names in WRITES.items() if _is(plugin, base) for name in names]
    if _is(plugin, Diagnostic) and not found and not _is(plugin, Reread):
        kinds = {column.statistic for column in plugin.columns}
        found += [(Diagnostic, "measure")] * ("mean" in kinds)
        found += [(Diagnostic, name) for name in ("values", "pooled") if "jackknife" in kinds]
    if _is(plugin, ReportMetric):
        kinds = {column.statistic for column in plugin.columns}
        found += [(ReportMetric, name) for name, kind in (("values", "mean"), ("number", "jackknife")) if kind in kinds]
    return found


def _check_columns(said: str, plugin: Any) -> None:
    if _is(plugin, Recover):
        return  # what it made is read by others
    columns: tuple[Column, ...] = (*plugin.columns, *getattr(plugin, "recovered_columns", ()))
    if not plugin.columns:
        raise PluginError(f"{said} declares no column.", "A number without unit and direction cannot be published.",
                          "Write `columns = (Column(...),)` in the class; mind the comma.")
    if len({c.key for c in columns}) < len(columns):
        raise PluginError(f"{said} has two columns of one id.", "A number is filed under its id and params.",
                          "Rename one, or tell them apart by `params`.")
    for column in columns:
        _check_column(said, plugin, column)
    if _is(plugin, SetMetric) and len(plugin.columns) > 1:
        raise PluginError(f"{said} declares {len(plugin.columns)} columns.", "`distance` gives one number.",
                          "Keep one; another distance is another metric.")


def _check_column(said: str, plugin: Any, column: Column) -> None:
    """Words that are known, a number that the harness makes for this kind of plug-in."""
    ids: tuple[str, ...] = next((names for base, names in IDS.items() if _is(plugin, base)), (column.id,))
    statistics: tuple[str, ...] = next((names for base, names in STATISTICS.items() if _is(plugin, base)), ("mean",))
    if _is(plugin, Match):
        statistics = ("eer",) if column.id == "eer" else ("mean",)
    for word, known in {**WORDS, "id": ids, "statistic": statistics}.items():
        if (value := getattr(column, word)) not in known:
            raise PluginError(f"{said} has a column with {word}={value!r}, which is not possible there.",
                              "The harness would have no number for it.", f"Possible: {', '.join(map(repr, known))}.")
    if _is(plugin, Match) and column.id != "eer" and not 0 < (column.params or {}).get("far", 0) < 1:
        raise PluginError(f"{said} has the column {column.key} without its false accept rate.",
                          "A threshold is fixed at a rate.", 'Give it params={"far": 0.1}, or another rate in 0 .. 1.')


def _is(plugin: Any, *kinds: type) -> bool:
    return isinstance(plugin, type) and issubclass(plugin, kinds)


# ---- fields of the suite -------------------------------------------------------------------------------------------

def _kind(suite: Suite, spec: Spec) -> str:
    """Is a name of `via` an attack or a metric?"""
    for kind in ("attacks", "metrics"):
        if spec.name in registry.names(kind):
            return kind
    known = [*registry.names("attacks"), *registry.names("metrics")]
    raise ConfigError(f"The suite {suite.name} names {str(spec)!r} in `via`, which is no attack and no metric.",
                      nearest(spec.name, known), "Mend the suite file.")


def _check_via(suite: Suite) -> None:
    """What can read a recovered release: it holds test people's clips alone, and no transcript."""
    for spec in map(Spec.parse, suite.via):
        if _is(registry.get(_kind(suite, spec), spec.name), Recover, Compare, Diagnostic, Evaluator):
            raise ConfigError(f"The suite {suite.name} names {str(spec)!r} in `via`, which cannot read what a recovery "
                              "attack made.", "A recovered release holds clips of test people and nothing to train on.",
                              "Name attacks that identify or match, or metrics that are no evaluators.")


def _check_budget(suite: Suite, kind: str, spec: Spec) -> None:
    """A budget holds arguments of the constructor."""
    plugin, via = registry.get(kind, spec.name), suite.budget.get(str(spec), {}).get("via", {})
    if via and not (isinstance(via, dict) and _is(plugin, Identify)):
        raise ConfigError(f'The suite {suite.name} gives [budget."{spec}"] the field via = {via!r:.60}.',
                          "It is a table of what differs when an attack that identifies learns on a recovered release.",
                          "Write it like via = { epochs = 9 }, or take it out.")
    asked = suite.budget_of(str(spec), recovered=True)
    known = [] if isinstance(plugin, Metric) else list(inspect.signature(plugin).parameters)
    if wrong := [name for name in asked if name not in known]:
        raise ConfigError(f'The suite {suite.name} gives [budget."{spec}"] the setting {wrong[0]!r}, which '
                          f"{spec.name} does not have.", nearest(wrong[0], known), "Mend the suite file.")


def _check_budget_names(suite: Suite) -> None:
    """A budget that no plug-in reads would be ignored in silence. One of a plug-in that is not run may stand."""
    everything = [*suite.attacks, *suite.metrics, *suite.via]
    plugins = {*registry.names("attacks"), *registry.names("metrics")}
    for name, asked in suite.budget.items():
        spec = Spec.parse(name)
        if name in ASSETS and set(asked) - {"epochs"}:
            raise ConfigError(f"The suite {suite.name} gives the shared network {name} a budget of {sorted(asked)}.",
                              "Its other sizes are fixed.", "Only `epochs` can be set.")
        if name not in ASSETS and spec.name not in plugins:
            raise ConfigError(f"The suite {suite.name} has a budget for {name!r}, which is no attack, metric or "
                              "shared network.", nearest(spec.name, [*plugins, *ASSETS]), "Mend the suite file.")
        others = [other for other in everything if Spec.parse(other).name == spec.name]
        if others and name not in others:
            raise ConfigError(f"The suite {suite.name} has a budget for {name!r} but runs {' and '.join(others)}.",
                              "A budget is for exactly one spelling.", f'Write [budget."{others[0]}"].')


def _check_only(suite: Suite) -> None:
    """Rows that carry a part of the columns: known rows, known columns."""
    for pattern, names in suite.only.items():
        if not any(fnmatchcase(method, pattern) for method in suite.methods):
            raise ConfigError(f"The suite {suite.name} restricts {pattern!r} in `only`, which is none of its rows.",
                              nearest(pattern, suite.methods), "Mend the suite file.")
        known = [*suite.attacks, *suite.metrics]
        for name in names:
            if name not in known:
                raise ConfigError(f"The suite {suite.name} leaves {name!r} to {pattern!r} in `only`, which is none of "
                                  "its attacks and metrics.", nearest(name, known), "Mend the suite file.")


def _check_encoded(suite: Suite) -> None:
    """Rows that release another row's encoded clips: each has one such row, of its own method and no follower."""
    led = [name for names in suite.encoded.values() for name in names]
    for lead, names in suite.encoded.items():
        if not names:
            raise ConfigError(f"The suite {suite.name} gives the encoded clips of {lead!r} to nobody in `encoded`.",
                              "The line would do nothing.", "List the rows that release them, or remove the line.")
        for name in (lead, *names):
            said = f"The suite {suite.name} gives {name!r} the encoded clips of {lead!r} in `encoded`"
            if name not in suite.methods:
                raise ConfigError(f"The suite {suite.name} names {name!r} in `encoded`, which is none of its rows.",
                                  nearest(name, suite.methods), "Add it to `methods`, or mend the name.")
            if Spec.parse(name).name != Spec.parse(lead).name:
                raise ConfigError(f"{said}.", "Another method encodes in another way.", "Name variants of one method.")
        if lead in led:
            raise ConfigError(f"The suite {suite.name} lets {lead!r} both give and take encoded clips in `encoded`.",
                              "A row that gives them encodes them itself.", f"Take {lead!r} out of the lists.")
    if twice := sorted({name for name in led if led.count(name) > 1}):
        raise ConfigError(f"The suite {suite.name} names {twice[0]!r} twice in `encoded`.", "",
                          "Name it under the row whose clips it releases.")


def check_shared(suite: Suite, name: str, own: Mapping[str, Any], lead: str, given: Mapping[str, Any]) -> None:
    """That a row could release the encoded clips of another, from the facts of both. Raises ConfigError.

    The values themselves are compared when they are there, by `bench.run.stage_encode.check_encoded`.
    """
    said, remedy = f"The suite {suite.name} gives {name!r} the encoded clips of {lead!r} in `encoded`", \
        f"Take {name!r} out of the list."
    if not own.get("full_claim") or own["lane"] != "enforced":
        raise ConfigError(f"{said}.", f"It has none: its lane is {own['lane']!r}, and only methods of the lane "
                          "'enforced' encode a clip apart from its release.", remedy)
    lengths = clip_length(own), clip_length(given)
    if lengths[0] != lengths[1]:
        raise ConfigError(f"{said}.", f"Its clips have {lengths[0]} frames, those of {lead} have {lengths[1]}.", remedy)
    shapes = [{b["name"]: b for b in facts["branches"]} for facts in (own, given)]
    if own["encodes"] != given["encodes"] or shapes[0].keys() != shapes[1].keys():
        raise ConfigError(f"{said}.", f"Its branches are {', '.join(shapes[0]) or own['encodes']}, those of {lead} "
                          f"are {', '.join(shapes[1]) or given['encodes']}.", remedy)
