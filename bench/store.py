"""The index (owner of duckdb): runs, artifacts, trials, cells, claims, exclusions, environment.

It is made anew from the work folder, aside, and renamed when whole; nothing in it exists only there. Published
numbers are SQL over `trials`; intervals are stored with the cell. One process writes: the one that holds the lock.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from bench import registry
from bench.errors import ConfigError, WorkFolderError, nearest
from bench.run.cache import WorkFolder, canonical
from bench.run.cells import failed_cells, undefined_cells, value_of
from bench.run.evidence import behind, claim_rows, withdrawn
from bench.run.stages import KINDS
from bench.run.trials import SCHEMA as TRIAL_SCHEMA

SCHEMA_VERSION = 3
READABLE = (2, 3)  # of exports; what an older one lacks is empty
TABLES = ("runs", "artifacts", "trials", "cells", "claims", "exclusions", "environment")
_CELL = pa.schema([
    *[(n, pa.string()) for n in ("id", "method", "variant", "dataset", "profile", "lane", "unit", "adjacency",
        "horizon", "attack", "metric", "evaluator", "via", "decoding", "metric_unit", "better", "role", "title",
        "status", "source", "digest", "split", "text", "control", "seeds", "params", "details", "person_values",
        "score", "plugins", "suite", "column", "track")],
    *[(n, pa.float64()) for n in ("epsilon", "delta", "value", "lo", "hi", "chance", "ceiling", "finished")],
    *[(n, pa.int64()) for n in ("n", "people", "draws")], ("statistic", pa.string()), ("superseded", pa.bool_())])
_JSON = ("seeds", "params", "details", "person_values", "plugins")
_SCHEMAS = {
    "runs": pa.schema([("started", pa.float64()), ("finished", pa.float64()), ("suite", pa.string()),
                       ("command", pa.string()), ("status", pa.string()), ("stages", pa.int64()),
                       ("failed", pa.int64())]),
    "artifacts": pa.schema([("kind", pa.string()), ("digest", pa.string()), ("title", pa.string()),
                            ("seconds", pa.float64()), ("peak_mb", pa.float64()), ("finished", pa.float64()),
                            ("identity", pa.string())]),
    "trials": pa.schema([("score", pa.string()), *TRIAL_SCHEMA]),
    "cells": _CELL,
    "claims": pa.schema([*[(n, pa.string()) for n in ("method", "variant", "lane", "unit", "adjacency", "horizon",
                                                      "isolation", "noise", "audit")],
                         ("delta", pa.float64()), ("epsilon", pa.float64())]),
    "exclusions": pa.schema([("row", pa.string()), ("reason", pa.string())]),
    "environment": pa.schema([("digest", pa.string()), ("json", pa.string())]),
}
Cell = dict[str, Any]


# ---- writing -------------------------------------------------------------------------------------------------------

def rebuild(work: WorkFolder, path: Path) -> dict[str, int]:
    """Make the database anew from the work folder; returns rows per table. Call it under the folder's lock."""
    tables = _collect(work)
    aside = path.with_suffix(".duckdb.part")
    aside.unlink(missing_ok=True)
    with duckdb.connect(str(aside)) as con:
        con.execute("CREATE TABLE meta (schema_version INTEGER)")
        con.execute("INSERT INTO meta VALUES (?)", [SCHEMA_VERSION])
        for name, rows in tables.items():
            _create(con, name, rows)
    os.replace(aside, path)
    path.with_suffix(".duckdb.wal").unlink(missing_ok=True)
    return {name: table.num_rows for name, table in tables.items()}


def _create(con: duckdb.DuckDBPyConnection, name: str, rows: pa.Table) -> None:
    con.register("incoming", rows)
    con.execute(f"CREATE TABLE {name} AS SELECT * FROM incoming")
    con.unregister("incoming")


def _collect(work: WorkFolder) -> dict[str, pa.Table]:
    """All rows that the folders hold, own stages and imports."""
    artifacts = [record for kind in sorted(p.name for p in (work.root / "stages").glob("*") if p.is_dir())
                 for record in work.finished(kind)]
    known = behind(work)
    cells = [withdrawn(cell, known) for cell in _cells(work)]
    own = {
        "runs": _runs(work),
        "artifacts": [{**{k: a[k] for k in ("kind", "digest", "title", "seconds", "peak_mb", "finished")},
                       "identity": canonical(_without_root(a["identity"]))} for a in artifacts],
        "cells": cells, "claims": claim_rows(cells, known),
        "exclusions": [{"row": _place(c), "reason": c["status"]} for c in cells if c["status"] != "ok"],
        "environment": _distinct([{"digest": hashlib.sha256(canonical(a["environment"]).encode()).hexdigest(),
                                   "json": canonical(a["environment"])} for a in artifacts], ("digest", "json")),
    }
    tables = {name: pa.Table.from_pylist(rows, schema=_SCHEMAS[name]) for name, rows in own.items()}
    tables["trials"] = _trials(work, {c["score"] for c in cells if c["score"]})
    for folder in sorted((work.root / "imports").glob("*")):
        for name in TABLES:
            tables[name] = pa.concat_tables([tables[name], _imported(folder / f"{name}.parquet", _SCHEMAS[name])])
    tables["cells"] = _newest_marked(tables["cells"])
    return {name: tables[name] for name in TABLES}


def _place(cell: Cell) -> str:
    """Row and column of a cell in words: `blur@8 plr top1 via recover_unet`."""
    column = str(registry.Spec(cell["column"], cell["evaluator"]))
    via = "" if cell["via"] == "direct" else f"via {cell['via']}"
    return " ".join(filter(None, [str(registry.Spec(cell["method"], cell["variant"])), cell["attack"], column, via]))


def _imported(path: Path, schema: pa.Schema) -> pa.Table:
    """A table of an export; a column that an older schema did not have is empty (of a cell: its metric's name)."""
    table = pq.read_table(path)
    for field in schema:
        if field.name not in table.column_names:
            fill = table["metric"] if field.name == "column" else pa.nulls(table.num_rows, field.type)
            table = table.append_column(field, fill)
    return table.select(schema.names).cast(schema)


def _without_root(identity: dict[str, Any]) -> dict[str, Any]:
    """A stage's identity as it may leave this machine: where a dataset lay is nobody's business."""
    config = identity["config"]
    return {**identity, "config": {**config, "root": Path(config["root"]).name}} if config.get("root") else identity


def _runs(work: WorkFolder) -> list[dict[str, Any]]:
    return [json.loads(p.read_text(encoding="utf-8")) for p in sorted((work.root / "runs").glob("*.json"))]


def _distinct(rows: list[dict[str, Any]], fields: Any) -> list[dict[str, Any]]:
    seen = {tuple(row[f] for f in fields): {f: row[f] for f in fields} for row in rows}
    return [seen[key] for key in sorted(seen, key=str)]


def _cells(work: WorkFolder) -> Iterator[Cell]:
    """Every cell that was ever scored or failed here."""
    found: list[Cell] = []
    for record in work.finished("score"):
        config = record["identity"]["config"]
        for cell in json.loads((record["folder"] / "cells.json").read_text(encoding="utf-8")):
            found.append(_flat(cell, config, record["digest"], record["finished"]))
    for failure in work.failures("score"):
        make = undefined_cells if failure["undefined"] else failed_cells
        found += [_flat(c, failure["config"], failure["digest"], failure["time"])
                  for c in make(failure["config"], failure["reason"])]
    yield from sorted(found, key=lambda c: (c["id"], c["finished"]))


def _newest_marked(cells: pa.Table) -> pa.Table:
    """Of each id, own or imported, the newest cell stands and all others are superseded; one of two equal ones."""
    rows = cells.to_pylist()
    newest: dict[str, Cell] = {}
    for row in rows:
        if row["id"] not in newest or row["finished"] > newest[row["id"]]["finished"]:
            newest[row["id"]] = row
    return pa.Table.from_pylist([{**r, "superseded": r is not newest[r["id"]]} for r in rows], schema=_CELL)


def _flat(cell: Cell, config: dict[str, Any], score: str, finished: float) -> Cell:
    statistic = next(c["statistic"] for c in config["columns"] if c["id"] == cell["metric"])
    full = {**cell, "score": score, "finished": finished, "statistic": statistic, "plugins": config["plugins"],
            "suite": config["suite"]}
    return {k: canonical(v) if k in _JSON else v for k, v in full.items()}


def _trials(work: WorkFolder, scores: set[str]) -> pa.Table:
    parts = [pa.table({name: pa.array([], field.type) for name, field in zip(_SCHEMAS["trials"].names,
                                                                            _SCHEMAS["trials"])})]
    for record in work.finished("score"):
        for name, digest in sorted(record["identity"]["inputs"].items()):
            if not name.startswith("trials:") or record["digest"] not in scores:
                continue
            for kind in KINDS:
                if (path := work.stage(kind, digest) / "trials.parquet").is_file():
                    table = pq.read_table(path, schema=TRIAL_SCHEMA)
                    parts.append(table.add_column(0, "score", pa.array([record["digest"]] * table.num_rows)))
    return pa.concat_tables(parts).cast(_SCHEMAS["trials"])


# ---- reading -------------------------------------------------------------------------------------------------------

@contextmanager
def opened(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """The database for reading. Raises WorkFolderError when it is missing, damaged or of another schema."""
    if not path.is_file():
        raise WorkFolderError(f"There is no database {path}.", "Nothing has been run in this work folder.",
                              "Start with `veilbench demo`, or `veilbench db rebuild` when stages are there.")
    remedy = "Make it anew from the stages, which are untouched: `veilbench db rebuild`."
    try:
        con = duckdb.connect(str(path), read_only=True)
    except duckdb.Error as error:
        first = str(error).splitlines()[0]
        raise WorkFolderError(f"The database {path} cannot be opened: {first}", "It is damaged or in use.",
                              remedy) from error
    try:
        try:
            found = con.execute("SELECT schema_version FROM meta").fetchall()
        except duckdb.Error:
            found = []
        if found != [(SCHEMA_VERSION,)]:
            raise WorkFolderError(f"The database {path} has schema {found[0][0] if found else 'unknown'}, this "
                                  f"version reads {SCHEMA_VERSION}.", "Its columns would be misread.", remedy)
        yield con
    finally:
        con.close()


def read_cells(path: Path, *, mark_stale: bool = True) -> list[Cell]:
    """Current cells as dicts with the fields of DESIGN 5 (and key, role, control, person_values)."""
    with opened(path) as con:
        rows = con.sql("SELECT * FROM cells WHERE NOT superseded ORDER BY dataset, method, variant NULLS FIRST, "
                       "attack NULLS LAST, metric, evaluator").to_arrow_table().to_pylist()
    cells = [{k: json.loads(v) if k in _JSON and v else v for k, v in row.items()} for row in rows]
    for cell in cells:
        cell["person_values"] = {int(k): v for k, v in (cell["person_values"] or {}).items()}
        if mark_stale and cell["status"] == "ok" and (changed := _changed(cell["plugins"])):
            cell["status"], cell["text"] = "stale", f"{changed} changed since; run the suite again"
    return cells


def _changed(plugins: dict[str, str]) -> str:
    """The first plug-in whose source is not what it was, or ""."""
    for label, digest in sorted(plugins.items()):
        kind, name = label.split("/")
        try:
            if registry.source_digest(kind, name) != digest:
                return label
        except ConfigError:
            continue  # a plug-in of another machine: its number stands as it was measured
    return ""


def find_cell(cells: list[Cell], wanted: str) -> Cell:
    """A cell by id (or its beginning), or by METHOD[@VARIANT]/[ATTACK/]METRIC[@EVALUATOR]."""
    names = {"/".join(p for p in (f"{c['method']}{'@' + c['variant'] if c['variant'] else ''}", c["attack"],
                                  f"{c['metric']}{'@' + c['evaluator'] if c['evaluator'] else ''}") if p): c
             for c in cells}
    hits = [c for c in cells if len(wanted) >= 4 and c["id"].startswith(wanted)] or [
        c for name, c in names.items() if name == wanted]
    if len(hits) != 1:
        raise ConfigError(f"{'No cell is' if not hits else 'Several cells are'} called {wanted!r}.",
                          nearest(wanted, names), "`veilbench table summary --format json` lists all.")
    return hits[0]


# ---- checking -------------------------------------------------------------------------------------------

_RECOMPUTED = """
    WITH person AS (SELECT score, "column", person, avg(value) AS m FROM trials
                    WHERE value IS NOT NULL AND NOT isnan(value) GROUP BY ALL),
         recall AS (SELECT score, "column", truth, avg(value) AS m FROM trials WHERE truth >= 0 GROUP BY ALL)
    SELECT c.id, c.method, c.metric, c.value, c.statistic, c.score, c."column",
           CASE c.statistic
           WHEN 'uar' THEN (SELECT avg(m) FROM recall r WHERE r.score = c.score AND r."column" = c."column")
           WHEN 'jackknife' THEN (SELECT max(m) FROM person p WHERE p.score = c.score AND p."column" = c."column"
                                  AND p.person = 0)
           ELSE (SELECT avg(m) FROM person p WHERE p.score = c.score AND p."column" = c."column") END
    FROM cells c WHERE c.value IS NOT NULL"""


def _again(con: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, str, str, float, float | None]]:
    """(cell, method, metric, stored value, value of its trials); an equal error rate is no SQL and is counted here."""
    for cell, method, metric, value, statistic, score, column, again in con.execute(_RECOMPUTED).fetchall():
        if statistic == "eer":
            rows = con.execute('SELECT person, truth, value FROM trials WHERE score = ? AND "column" = ?',
                               [score, column]).fetchnumpy()
            again = value_of(rows, statistic, 0)
        yield cell, method, metric, value, again


def check(work: WorkFolder, path: Path) -> list[str]:
    """Everything that is wrong with the database: values that SQL does not give again, rows that the folders lack."""
    problems = []
    with opened(path) as con:
        for cell, method, metric, value, again in _again(con):
            if again is None or not math.isclose(value, again, rel_tol=1e-9, abs_tol=1e-9):
                problems.append(f"cell {cell} ({method}, {metric}) is {value}, its trials give {again}")
        expected = _collect(work)
        for name in TABLES:
            stored = con.sql(f"SELECT * FROM {name}").to_arrow_table()
            if _bag(stored) != _bag(expected[name]):
                problems.append(f"table {name} differs from the work folder ({stored.num_rows} rows, folder "
                                f"{expected[name].num_rows})")
    return problems


def _bag(table: pa.Table) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in table.to_pylist())


def write_tables(path: Path, out: Path) -> list[Path]:
    """Every table of a database as a parquet file in `out`."""
    with opened(path) as con:
        for name in TABLES:
            pq.write_table(con.sql(f"SELECT * FROM {name}").to_arrow_table(), out / f"{name}.parquet")
    return [out / f"{name}.parquet" for name in TABLES]
