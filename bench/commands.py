"""What the commands do: open the work folder, plan, run, index, show. Called by cli.py only."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import console, exchange, registry, store
from bench.beside import reported as read_reported
from bench.errors import ConfigError, DataError, WorkFolderError
from bench.run import suite as suites
from bench.run.cache import WorkFolder, write_json
from bench.run.executors import LocalExecutor, Outcome
from bench.run.plan import Plan, Request, asset_stage, dataset_stage, make_plan, unknown, with_options
from bench.tables import FIGURES, TABLES
from bench.tables import table as render_table


@dataclass(frozen=True)
class Selection:
    """What the command line narrows or changes."""

    methods: list[str] = field(default_factory=list)
    attacks: list[str] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)
    dataset: str | None = None
    root: Path | None = None
    seeds: list[int] = field(default_factory=list)
    profile: str | None = None


def database(workdir: Path) -> Path:
    return workdir / "veilbench.duckdb"


def run_suite(name: str, workdir: Path, chosen: Selection | None = None, *, jobs: int = 2,
              display_kind: str | None = None, dry_run: bool = False, hint: bool = True) -> int:
    """Run a suite and index it; returns the exit code."""
    chosen = chosen or Selection()
    suite = with_options(suites.load(name), dataset=chosen.dataset, seeds=chosen.seeds, profile=chosen.profile)
    work = WorkFolder(workdir)
    with contextlib.nullcontext() if dry_run else work.open_for_writing():
        _check_database(workdir)
        quiet = display_kind in ("json", "none")
        if not quiet and len(new := unknown(suite, chosen.methods, work)) > 1:
            print(f"{suite.name}: asking {len(new)} methods what they need and claim.", flush=True)
        plan = make_plan(Request(suite, chosen.methods, chosen.attacks, chosen.metrics, chosen.root), work)
        todo = [s for s in plan.stages if not work.is_done(s.kind, s.digest)]
        if not quiet:
            print(f"{suite.name}: {console.estimate(plan, todo)}.", flush=True)
        if dry_run:
            for stage in plan.stages:
                print(f"{'done' if work.is_done(stage.kind, stage.digest) else 'todo'}  {stage.title}")
            return 0
        write_json(work.root / "suites" / f"{suite.name}.json", suite.model_dump())
        outcome = execute(work, plan, jobs, display_kind)
        store.rebuild(work, database(workdir))
    if hint and not quiet:
        where = "" if workdir == Path("runs") else f" --workdir {workdir}"
        print(f"Next: `veilbench status{where}`" if outcome.failed else
              f"Next: `veilbench table summary{where}`, `veilbench site build{where}`", flush=True)
    return 1 if _real_failures(work, plan, outcome) else 0


def _check_database(workdir: Path) -> None:
    """Fail before anything runs when the index cannot be read; nobody's file is overwritten in silence."""
    if database(workdir).exists():
        with store.opened(database(workdir)):
            pass


def execute(work: WorkFolder, plan: Plan, jobs: int, display_kind: str | None) -> Outcome:
    """Run a plan's stages, show them, write the run's record."""
    began, clock = time.time(), time.monotonic()
    words = [Path(w).name if Path(w).is_absolute() else w for w in sys.argv[1:]]  # exported: no path of this machine
    record = {"started": began, "suite": plan.suite.name, "command": " ".join(["veilbench", *words]),
              "stages": len(plan.stages)}
    path = work.root / "runs" / f"{began:.3f}-{os.getpid()}.json"
    write_json(path, {**record, "finished": None, "status": "interrupted", "failed": 0})
    try:
        with console.display(display_kind, len(plan.stages)) as on_event:
            outcome = LocalExecutor(work, jobs, on_event).run(plan.stages)
    except KeyboardInterrupt:  # typer ends the command with 130 and says nothing
        print("veilbench: stopped. Finished stages are kept; the same command goes on from there.", file=sys.stderr)
        raise
    write_json(path, {**record, "finished": time.time(), "failed": len(outcome.failed),
                      "status": "failed" if outcome.failed else "done"})
    if display_kind not in ("json", "none"):
        for line in console.summary(plan, outcome, time.monotonic() - clock):
            print(line, flush=True)
    return outcome


def _real_failures(work: WorkFolder, plan: Plan, outcome: Outcome) -> bool:
    """Did anything fail that should not have? A measurement without meaning on this data is no failure."""
    stages = {s.digest: s for s in plan.stages}
    return any(not json.loads(work.failure(stages[d].kind, d).read_text(encoding="utf-8"))["undefined"]
               if work.failure(stages[d].kind, d).is_file() else True for d in outcome.failed)


def print_table(name: str, workdir: Path, format: str, dataset: str | None = None, *,
                reported: Path | None = None, against: Path | None = None, out: Path | None = None) -> None:
    """Print a table of the indexed cells, with a paper's own numbers or another database's beside, if wanted.

    A figure is written into `out` (by default `figures` of the work folder) and what it shows is printed.
    """
    if name in FIGURES:
        if format != "md" or reported or against:
            raise ConfigError(f"{name} is a picture.", "It has no cells to write in another format or to put beside.",
                              "Give --dataset and --out alone.")
        return _print_figure(name, workdir, out or workdir / "figures", dataset)
    if out is not None and name in TABLES:
        raise ConfigError(f"{name} is a table and is printed.", "--out is where the files of a figure go.",
                          f"Write `veilbench table {name} > FILE`.")
    cells = _on(store.read_cells(database(workdir)), dataset)
    rows = read_reported(reported) if reported else []
    other = (against.name, _on(store.read_cells(against, mark_stale=False), dataset)) if against else None
    print(render_table(name, cells, format=format, reported=rows, other=other,
                       artifacts=exchange.read_artifacts(database(workdir)), fitted=_fitted(name, workdir, cells)),
          end="")


def _fitted(name: str, workdir: Path, cells: list[dict[str, Any]]) -> dict[Any, Any]:
    """What fitted states say of the rows of a table that shows it."""
    if not getattr(TABLES.get(name), "fitted", False):
        return {}
    from bench.fitted import configurations

    return configurations(WorkFolder(workdir), [c for c in cells if c["attack"] == "scales"])


def _print_figure(name: str, workdir: Path, out: Path, dataset: str | None) -> None:
    from bench.figures import draw

    for line in draw(name, _on(store.read_cells(database(workdir)), dataset), WorkFolder(workdir), out):
        print(line)


def _on(cells: list[dict[str, Any]], dataset: str | None) -> list[dict[str, Any]]:
    """The cells of one dataset, all without a name. Raises ConfigError where it was never measured."""
    found = [cell for cell in cells if dataset in (None, cell["dataset"])]
    if not found and dataset is not None:
        known = sorted({c["dataset"] for c in cells})
        raise ConfigError(f"There is no result on {dataset!r}.", f"Measured: {', '.join(known) or 'nothing'}.",
                          f"`veilbench run demo --dataset {dataset}` would measure it.")
    return found


def existing(workdir: Path) -> WorkFolder:
    if not (workdir / "stages").is_dir():
        raise WorkFolderError(f"{workdir} is no work folder.", "It has no stages.", "Start with `veilbench demo`.")
    return WorkFolder(workdir)


def prepare(name: str, root: Path | None, workdir: Path, display_kind: str | None) -> int:
    """Run the one stage that prepares a dataset; says what it lacks."""
    from bench.data.streams import said_of

    suite = suites.load("demo").model_copy(update={"dataset": registry.get("datasets", name).name})
    work = WorkFolder(workdir)
    with work.open_for_writing():
        stage = dataset_stage(suite, root)
        outcome = execute(work, Plan([stage], [], {}, suite), 1, display_kind)
    if not outcome.failed:
        folder = work.stage(stage.kind, stage.digest)
        if lacks := list(said_of(json.loads((folder / "dataset.json").read_text(encoding="utf-8")))):
            print(" ".join(lacks))
        print(f"Prepared in {folder}. Next: `veilbench data check {name}`.")
    return 2 if outcome.failed else 0


def train_weights(name: str, out: Path, workdir: Path, display_kind: str | None) -> int:
    """Train one asset and write it as float16; returns the exit code."""
    import numpy as np

    from bench.asset_list import check_name
    from bench.run.views import load_tensors, save_tensors

    check_name(name)
    suite = suites.load("demo").model_copy(update={"budget": {name: {}}})
    work = WorkFolder(workdir)
    with work.open_for_writing():
        stage = asset_stage(suite, name)
        outcome = execute(work, Plan(stage.all(), [], {}, suite), 1, display_kind)
    if outcome.failed:
        return 1
    tensors = load_tensors(work.stage(stage.kind, stage.digest) / "weights.safetensors")
    save_tensors(out, {k: v.astype(np.float16) if v.dtype == np.float32 else v for k, v in tensors.items()})
    print(f"Wrote {out}, SHA-256 {hashlib.sha256(out.read_bytes()).hexdigest()}")
    return 0


def _root_problems(name: str, root: Path) -> list[str]:
    """Problems of a folder that a dataset would be prepared from; nothing is written."""
    adapter = registry.build("datasets", name)
    if not adapter.needs_root:
        raise ConfigError(f"The dataset {name} reads no folder.", "It is made or comes with the project.",
                          "Leave --root out to check what is prepared.")
    if hasattr(adapter, "problems"):
        return adapter.problems(root)
    try:
        adapter.sources(root, suites.load("demo").data_seed)
    except DataError as error:
        return [error.what]
    return []


def check_data(name: str, workdir: Path, root: Path | None = None) -> list[str]:
    """Problems of every prepared copy of a dataset in the work folder; with a root, of that folder alone."""
    from bench.data.clips import check_clips
    from bench.data.streams import check_streams

    registry.locate("datasets", name)
    if root is not None:
        return _root_problems(name, root)
    work, found = existing(workdir), []
    for kind, check in (("clips", check_clips), ("streams", check_streams)):
        found += [(r["folder"], check) for r in work.finished(kind) if r["identity"]["config"]["dataset"] == name]
    if not found:
        raise DataError(f"{name} is not prepared in {workdir}.", "", f"Run `veilbench data prepare {name}`.")
    return [f"{folder.name}: {problem}" for folder, check in found for problem in check(folder)]


def status_lines(workdir: Path) -> Iterator[str]:
    """The last run, stages by kind, failures with reason and log tail."""
    work = existing(workdir)
    runs = [json.loads(p.read_text(encoding="utf-8")) for p in sorted((work.root / "runs").glob("*.json"))]
    for run in runs[-3:]:
        if run["finished"] is None and work.in_use():
            run["status"] = "running"
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run["started"]))
        ended = "" if run["finished"] is None else f", {run['failed']} failed"
        yield f"{when}  {run['status']:<11} {run['command']}  ({run['stages']} stages{ended})"
    for base in sorted((work.root / "stages").iterdir()):
        found = list(work.finished(base.name))
        yield f"{base.name:<8} {len(found)} done, {sum(r['seconds'] for r in found):.0f} s"
    failures = [f for f in work.failures() if not f["skipped"]]
    for failure in failures:
        yield f"\nfailed: {failure['title']}\n  reason: {failure['reason']}"
        yield from (f"  | {line}" for line in failure["log_tail"][-12:])
    yield "\nNo stage is failed." if not failures else "\nThe same `veilbench run` command tries failed stages again."
