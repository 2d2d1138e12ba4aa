"""Results that travel: every table of a database as parquet under a hashed manifest, and back into a work folder."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from bench.errors import DataError
from bench.run.cache import WorkFolder, write_json
from bench.store import READABLE, SCHEMA_VERSION, TABLES, write_tables


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
        raise DataError(f"{source} is no export: it has no manifest.json.", "", "Make one with `veilbench db export`.")
    manifest = json.loads(path.read_text(encoding="utf-8"))
    wrong = [n for n in (f"{t}.parquet" for t in TABLES)
             if not (source / n).is_file() or _sha(source / n) != manifest["files"].get(n)]
    if wrong or manifest["schema"] not in READABLE:
        raise DataError(f"The export {source} does not match its manifest: {', '.join(wrong) or 'other schema'}.",
                        "A changed export is not what was measured.", "Fetch it again.")
    target = work.root / "imports" / _sha(path)[:20]
    shutil.copytree(source, target, dirs_exist_ok=True)
    return target


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
