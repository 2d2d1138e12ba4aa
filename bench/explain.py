"""Where a number comes from, and making it again."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import registry, store
from bench.commands import database, execute
from bench.display import command, public
from bench.errors import ConfigError, WorkFolderError
from bench.publish import chain
from bench.registry import Spec
from bench.run import suite as suites
from bench.run.cache import WorkFolder, write_json
from bench.run.plan import Request, make_plan, narrowed, with_options
from bench.run.road import asked

REUSED = ("clips", "asset", "shipped")  # prepared data, shared networks: their digests are checked, none is made again


def explain_lines(workdir: Path, wanted: str, format: str) -> Iterator[str]:
    """Text or JSON about one cell: its number, its key, its stages from the data on."""
    if format not in ("text", "json"):
        raise ConfigError(f"There is no format {format!r}.", "", "Use --format text or --format json.")
    cell = store.find_cell(store.read_cells(database(workdir)), wanted)
    stages = list({r["digest"]: r for r in chain(WorkFolder(workdir), "score", cell["score"])}.values())
    if format == "json":
        yield json.dumps({"cell": {"id": cell["id"], **public(cell)}, "stages": stages}, indent=1, default=str)
        return
    yield from _number(cell)
    yield f"suite     {cell['suite']}   seeds {cell['seeds']}   split {str(cell['split'])[:12]}"
    yield f"plug-ins  {', '.join(f'{k} {v[:12]}' for k, v in sorted(cell['plugins'].items()))}"
    if not stages:
        yield f"stages    none in this work folder{'' if cell['status'] == 'ok' else ' (' + cell['status'] + ')'}"
    for record in stages:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record["finished"]))
        cost = f"{record['seconds']:>7.1f} s  {record['peak_mb']:>6.0f} MB"
        yield f"{record['kind']:<8}  {record['digest'][:20]}  {cost}  {when}  {record['title']}"
    if stages:
        packages = stages[-1]["environment"]["packages"]
        yield f"versions  {', '.join(f'{k} {v}' for k, v in packages.items())}"
    if cell["value"] is not None:
        yield _again(cell, workdir)


def _again(cell: store.Cell, workdir: Path) -> str:
    """The command that makes the number again; one that was imported has no stages here to start from."""
    own = " --plugin FILE" if cell["method"] not in registry.names("methods") else ""
    where = "" if workdir == Path("runs") else f" --workdir {workdir}"
    if WorkFolder(workdir).is_done("score", cell["score"]):
        return f"Make it again: `veilbench reproduce {cell['id']}{own}{where}`"
    return f"It was measured elsewhere and imported. Measure it here: `{command(cell)}{own}{where}`"


def _number(cell: store.Cell) -> Iterator[str]:
    name = f"{cell['method']}{'@' + cell['variant'] if cell['variant'] else ''}"
    yield f"{cell['id']}  {name} on {cell['dataset']}: {cell['title']}"
    if cell["value"] is None:
        told = "" if not cell["text"] or cell["text"] in cell["status"] else f" ({cell['text']})"
        yield f"status    {cell['status']}{told}"
        return
    interval = "no interval" if cell["lo"] is None else f"95 % interval {cell['lo']:.6g} .. {cell['hi']:.6g}"
    yield f"value     {cell['value']:.6g} {cell['metric_unit']}, {interval}, chance {cell['chance']}"
    yield f"from      {cell['n']} trials of {cell['people']} people, {cell['draws']} draw(s); status {cell['status']}"
    yield (f"key       lane {cell['lane']}, unit {cell['unit']}, epsilon {cell['epsilon']}, delta {cell['delta']}, "
           f"profile {cell['profile']}, decoding {cell['decoding']}, via {cell['via']}")


def reproduce_cell(workdir: Path, wanted: str, jobs: int, display_kind: str | None) -> tuple[bool, str]:
    """Run the cell's stages again in WORKDIR/reproduce/ID and compare value and interval to the last bit."""
    cell = store.find_cell(store.read_cells(database(workdir)), wanted)
    if not cell["score"] or not WorkFolder(workdir).is_done("score", cell["score"]):
        raise WorkFolderError(f"The stages of {cell['id']} are not in {workdir}.",
                              "It was imported, or never measured.",
                              "Reproduce it where it was measured, or run its suite here.")
    fresh = WorkFolder(workdir / "reproduce" / cell["id"])
    shutil.rmtree(fresh.root, ignore_errors=True)
    with fresh.open_for_writing():
        again = _run_again(WorkFolder(workdir), fresh, cell, jobs, display_kind)
    same = all(_equal(cell[k], again.get(k)) for k in ("value", "lo", "hi", "n", "people"))
    text = (f"{'Reproduced' if same else 'DIFFERS'}: {cell['id']} was {cell['value']} [{cell['lo']}, {cell['hi']}], "
            f"is now {again.get('value')} [{again.get('lo')}, {again.get('hi')}].")
    return same, text


def _equal(a: Any, b: Any) -> bool:
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isclose(a, b, rel_tol=0, abs_tol=0))


def _run_again(work: WorkFolder, fresh: WorkFolder, cell: store.Cell, jobs: int,
               display_kind: str | None) -> dict[str, Any]:
    record = work.read_stage("score", cell["score"])
    config = record["identity"]["config"]
    base = with_options(suites.recall(work.root, config["suite"]), dataset=config["dataset"], seeds=cell["seeds"],
                        profile=config["profile"])
    clips = work.read_stage("clips", record["identity"]["inputs"]["clips"])["identity"]["config"]
    root = Path(clips["root"]) if clips["root"] else None
    column = config["attack"] or str(Spec(config["metric"], config["evaluator"]))
    attacks, metrics = ([column], []) if config["attack"] else ([], [column])
    if config["via"] != "direct":  # the column is one of those on what the recovery attack made
        base, attacks, metrics = base.model_copy(update={"via": [column]}), [config["via"]], []
    method = str(asked(config["method"], config["variant"]))
    base = base.model_copy(update={"again": method if config["control"] == "repeat" else None})
    plan = make_plan(Request(base, [method], attacks, metrics, root), fresh)
    place = ("method", "variant", "via", "attack")
    score = next(s for s in plan.scores if all(s.config[k] == config[k] for k in place))
    plan = narrowed(plan, [score])
    for stage in plan.stages:
        if stage.kind in REUSED and work.is_done(stage.kind, stage.digest):
            target = fresh.stage(stage.kind, stage.digest)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(work.stage(stage.kind, stage.digest).resolve())
    outcome = execute(fresh, plan, jobs, display_kind)
    if outcome.failed:
        return {}
    write_json(fresh.root / "reproduced.json", {"cell": cell["id"], "score": score.digest})
    cells = json.loads((fresh.stage("score", score.digest) / "cells.json").read_text(encoding="utf-8"))
    return next(c for c in cells if c["id"] == cell["id"])
