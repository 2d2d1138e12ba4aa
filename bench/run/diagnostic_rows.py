"""The stages of diagnostics: of enforced methods only, and only where a suite names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench import registry
from bench.diagnostics import Anatomy, Assignments, Diagnostic, Probe, Repeat, Reread
from bench.measures import Column, Identify
from bench.registry import Spec
from bench.run.anatomy import anatomy_of
from bench.run.cache import digest_json
from bench.run.road import Road
from bench.run.stages import Stage

if TYPE_CHECKING:
    from bench.run.rows import Builder

TEST = ["enrolment", "probe"]  # what is released again for a diagnostic: test people alone
READ_FACTS = ("full_claim", "branches", "encodes", "plans", "memory_between_clips", "inspects", "probed")


def diagnostic_scores(builder: Builder, attack: Spec, road: Road) -> list[Stage]:
    """Scores of one diagnostic; none where the method has nothing to measure, or the row is a second run."""
    cls = registry.get("attacks", attack.name)
    made: Diagnostic = cls(**{**registry.settings("attacks", attack), **builder.suite.budget.get(str(attack), {})})
    anatomy = anatomy_of(road.facts, builder.suite.canvas_px)
    columns = made.columns_of(anatomy)
    if not columns or (builder.again and isinstance(made, (Probe, Reread, Repeat, Assignments))):
        return []
    if isinstance(made, Reread):
        return [_reread(builder, attack, made, reader, road, anatomy, columns) for reader in made.readers]
    if isinstance(made, Repeat):
        return [_repeated(builder, attack, made, reader, road, columns) for reader in made.readers]
    if isinstance(made, Assignments):
        release = _many(builder, made, road)
        return [_score(builder, attack, "assign", road, columns, {"release": release, **_fit(road)},
                       draws=release.config["draws"])]
    inputs = {"release": road.assembled, "encode": road.assembled.inputs["encode"]}
    if isinstance(made, Probe):
        seeds = list(made.seeds)
        return [_score(builder, attack, "probe", road, columns, {**inputs, **_fit(road)}, seeds=seeds)]
    return [_score(builder, attack, "diagnose", road, columns, inputs)]


def _fit(road: Road) -> dict[str, Stage]:
    """The fitted method, for stages that run its `inspect`."""
    return {k: v for k, v in road.assembled.inputs.items() if k == "fit"}


def _config(builder: Builder, attack: Spec, road: Road, seed: int) -> dict[str, Any]:
    return {**builder.attack_config(attack, seed), "numbers_seed": builder.suite.data_seed,
            "method": road.method.name, "method_variant": road.method.variant,
            "facts": {k: road.facts[k] for k in READ_FACTS if k in road.facts}}


def _score(builder: Builder, attack: Spec, kind: str, road: Road, columns: tuple[Column, ...],
           inputs: dict[str, Stage], **more: Any) -> Stage:
    plugins = (("attacks", attack.name), ("methods", road.method.name))
    stage = builder.stage(kind, f"{kind} {attack} on {road.method}", _config(builder, attack, road, builder.seed),
                          {**inputs, "clips": builder.clips}, plugins)
    return builder.score(road, columns, {f"trials:{builder.seed}": stage}, attack=str(attack), decoding="assembled",
                         digest=builder.attack_digest(attack), **{"seeds": [builder.seed], **more})


def _many(builder: Builder, made: Repeat | Assignments, road: Road) -> Stage:
    """Many releases of the test videos, or of one of each person, label and role."""
    return builder.release(road.method, road.facts, "release often", parts=TEST, draws=made.draws, subset=made.subset)


def _reader(builder: Builder, name: str, road: Road, seed: int) -> Stage:
    """The network that an ordinary column of the row was measured with."""
    spec = Spec.parse(name)
    if spec.name in registry.names("metrics"):
        return builder.measured(spec, road, seed)
    cls = registry.get("attacks", spec.name)
    assert issubclass(cls, Identify)
    return builder.trained(Spec(cls.trains_like or spec.name, spec.variant), road, seed)


def _reread(builder: Builder, attack: Spec, made: Reread, reader: str, road: Road, anatomy: Anatomy,
            columns: tuple[Column, ...]) -> Stage:
    """One reader on every intervention, with each of its seeds."""
    spec = Spec.parse(reader)
    decoding = "assembled"
    if spec.name in registry.names("attacks"):
        decoding = registry.get("attacks", spec.name).threat.decoding
    changed = {f"on:{name}": _changed(builder, road, name, decoding) for name in made.interventions(anatomy)}
    trials = {}
    for seed in builder.suite.seeds:
        config = {**_config(builder, attack, road, seed), "reader": reader,
                  "reader_budget": builder.suite.budget_of(reader)}
        inputs = {"reader": _reader(builder, reader, road, seed), "clips": builder.clips, **changed}
        trials[f"trials:{seed}"] = builder.stage("reread", f"reread {reader} on changed {road.method}", config, inputs,
                                                 (("attacks", attack.name), _plugin(spec)))
    return builder.score(road, [c for c in columns if c.id == spec.name], trials, attack=str(attack), draws=1,
                         decoding=decoding, reader=_plugin(spec), **_of_reader(builder, attack, spec))


def _changed(builder: Builder, road: Road, intervention: str, decoding: str) -> Stage:
    """Test clips released once, with changed inputs; clips each for themselves only where that makes a difference."""
    if not road.facts["memory_between_clips"]:
        decoding = "assembled"
    return builder.release(road.method, road.facts, f"change {intervention} of", parts=TEST, draws=1,
                           decoding=decoding, intervention=intervention)


def _repeated(builder: Builder, attack: Spec, made: Repeat, reader: str, road: Road,
              columns: tuple[Column, ...]) -> Stage:
    spec, release, seed = Spec.parse(reader), _many(builder, made, road), builder.suite.seeds[0]
    config = {**_config(builder, attack, road, seed), "reader": reader,
              "reader_budget": builder.suite.budget_of(reader)}
    inputs = {"reader": _reader(builder, reader, road, seed), "release": release, "clips": builder.clips}
    stage = builder.stage("repeat", f"repeat {reader} on {road.method}", config, inputs,
                          (("attacks", attack.name), _plugin(spec)))
    return builder.score(road, columns, {f"trials:{seed}": stage}, attack=str(attack), decoding="assembled",
                         draws=made.draws, seeds=[seed], reader=_plugin(spec), **_of_reader(builder, attack, spec))


def _plugin(reader: Spec) -> tuple[str, str]:
    return ("metrics" if reader.name in registry.names("metrics") else "attacks"), reader.name


def _of_reader(builder: Builder, attack: Spec, reader: Spec) -> dict[str, Any]:
    """The digest with the reader's source and budget in it, and the evaluator's name."""
    kind, name = _plugin(reader)
    digest = digest_json([builder.attack_digest(attack), registry.source_digest(kind, name), str(reader),
                          builder.suite.budget_of(str(reader))])
    return {"digest": digest, "evaluator": reader.variant if kind == "metrics" else None}
