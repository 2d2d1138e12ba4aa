"""Results that travel: every table of a database as parquet under a hashed manifest, and back into a work folder."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench.errors import DataError
from bench.run.cache import WorkFolder, write_json
from bench.store import READABLE, SCHEMA_VERSION, TABLES, opened, write_tables


def export(database: Path, out: Path) -> list[Path]:
    """Write every table as parquet with a hashed manifest: what may be published. The vault is not in the database."""
    out.mkdir(parents=True, exist_ok=True)
    files = write_tables(database, out)
    write_json(out / "manifest.json", {"schema": SCHEMA_VERSION, "files": {f.name: _sha(f) for f in files}})
    return [*files, out / "manifest.json"]


def import_folder(work: WorkFolder, source: Path) -> Path:
    """Keep an export in the work folder, after checking its manifest. Raises DataError when anything differs."""
    path = source / "manifest.json"
    if not path.is_file():
        inside = sorted(p.parent.relative_to(source).as_posix() for p in source.glob("*/**/manifest.json"))
        raise DataError(f"{source} is no export: it has no manifest.json.",
                        f"There are exports inside it: {', '.join(inside)}." if inside else "",
                        "Import them one by one." if inside else "Make one with `veilbench db export`.")
    manifest = json.loads(path.read_text(encoding="utf-8"))
    wrong = [n for n in (f"{t}.parquet" for t in TABLES)
             if not (source / n).is_file() or _sha(source / n) != manifest["files"].get(n)]
    if wrong or manifest["schema"] not in READABLE:
        raise DataError(f"The export {source} does not match its manifest: {', '.join(wrong) or 'other schema'}.",
                        "A changed export is not what was measured.", "Fetch it again.")
    _check_cells(source)
    target = work.root / "imports" / _sha(path)[:20]
    target.mkdir(parents=True, exist_ok=True)
    for name in (*(f"{t}.parquet" for t in TABLES), path.name):  # nothing else that lies there
        shutil.copyfile(source / name, target / name)
    return target


def rows_of(folder: Path, table: str) -> int:
    """Rows of one table of an export."""
    return int(pq.read_metadata(folder / f"{table}.parquet").num_rows)


def _check_cells(source: Path) -> None:
    """Raises DataError where something measured on changed inputs is given out as a column of a release."""
    rows = pq.read_table(source / "cells.parquet").to_pylist()
    wrong = [r for r in rows if r["role"] != "diagnostic" and "intervention" in (json.loads(r["params"] or "{}") or {})]
    if wrong:
        raise DataError(f"The export {source} gives {len(wrong)} numbers of changed inputs out as {wrong[0]['role']}.",
                        "An intervention is nobody's release and is never ranked.", "Export again from the run itself.")


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_artifacts(path: Path) -> list[dict[str, Any]]:
    """What every stage of an index took."""
    fields = ("kind", "seconds", "peak_mb", "finished", "identity")
    with opened(path) as con:
        rows = con.execute(f"SELECT {', '.join(fields)} FROM artifacts").fetchall()
    return [dict(zip(fields, row, strict=True)) for row in rows]
