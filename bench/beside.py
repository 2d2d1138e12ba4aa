"""Numbers from elsewhere beside the measured ones: what a paper reports, or another database. They never rank."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.blocks import Block
from bench.display import Cell, column_name, missing
from bench.errors import ConfigError, DataError, nearest

NEEDED = ("method", "column", "value", "source")
OPTIONAL = ("variant", "dataset", "lo", "hi")
NUMBERS = ("value", "lo", "hi")


def reported(path: Path) -> list[dict[str, Any]]:
    """Rows of a CSV file with `method, column, value, source` and, where known, `variant, dataset, lo, hi`.

    column: as a table heads it, `fer@r3d`; rates in 0 .. 1.  source: where the number stands.  Raises DataError.
    """
    if not path.is_file():
        raise DataError(f"There is no file {path}.", "", f"Give a CSV file with the columns {', '.join(NEEDED)}.")
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        heads = [name.strip() for name in reader.fieldnames or ()]
        reader.fieldnames = heads
        unknown = [name for name in heads if name not in NEEDED + OPTIONAL]
        lacking = [name for name in NEEDED if name not in heads]
        if lacking or unknown:
            problem = f"lacks {', '.join(lacking)}" if lacking else f"has the unknown columns {', '.join(unknown)}"
            raise DataError(f"The reported numbers {path.name} {problem}.", "",
                            f"Its first line names {', '.join(NEEDED)}; {', '.join(OPTIONAL)} may stand beside.")
        return [_read(path, number, row) for number, row in enumerate(reader, 2)]


def _read(path: Path, line: int, row: dict[str, str | None]) -> dict[str, Any]:
    texts = {name: (row.get(name) or "").strip() for name in NEEDED + OPTIONAL}
    for name in NEEDED:
        if not texts[name]:
            raise DataError(f"Line {line} of {path.name} has no {name}.", "A number without it means nothing.",
                            "Fill it in or take the line out.")
    found: dict[str, Any] = {name: text or None for name, text in texts.items()}
    for name in NUMBERS:
        try:
            found[name] = float(texts[name]) if texts[name] else None
        except ValueError:
            found[name] = math.nan
        if found[name] is not None and not math.isfinite(found[name]):
            raise DataError(f"Line {line} of {path.name}: {name} is {texts[name]!r}.", "It has to be a finite number.",
                            "Write rates as 0.83, not as 83 %.")
    return found


def with_reported(blocks: Sequence[Block], rows: Sequence[dict[str, Any]]) -> list[Block]:
    """Each block with one more row for each method and source that reports one of its columns.

    Raises ConfigError for a column that no block has, naming the nearest.
    """
    known = {column_name(cell) for block in blocks for cell in block.columns}
    for row in rows:
        if row["column"] not in known:
            raise ConfigError(f"No column of this table is called {row['column']!r}.", nearest(row["column"], known),
                              "Name columns as the table heads them, without arrow and unit.")
    return [_grown(block, rows) for block in blocks]


def _grown(block: Block, rows: Sequence[dict[str, Any]]) -> Block:
    datasets = {cell["dataset"] for cell in block.cells()}
    names = [column_name(cell) for cell in block.columns]
    groups: dict[tuple[str, str | None, str], dict[str, dict[str, Any]]] = {}
    for row in rows:
        if row["column"] in names and (row["dataset"] is None or not datasets or row["dataset"] in datasets):
            groups.setdefault((row["method"], row["variant"], row["source"]), {})[row["column"]] = row
    made = []
    for (method, variant, source), have in groups.items():
        base = {"method": method, "variant": variant, "dataset": next(iter(datasets), None), "lane": "reported",
                "unit": "as reported", "source": "reported", "status": "ok", "text": source, "epsilon": None}
        cells = tuple(_reported_cell(base, column, have.get(name)) for name, column in zip(names, block.columns,
                                                                                           strict=True))
        made.append((f"{method}{'@' + variant if variant else ''} (reported: {source})", cells))
    return replace(block, rows=(*block.rows, *made))


def _reported_cell(base: Cell, column: Cell, row: dict[str, Any] | None) -> Cell:
    cell = {**missing(base, column), **base}
    if row is None:
        return {**cell, "status": "undefined: not reported"}
    return {**cell, **{name: row[name] for name in NUMBERS}}


def against(blocks: Sequence[Block], other: Iterable[Block], name: str) -> list[Block]:
    """Each row followed by the same row of the same table over another database, where that has it."""
    theirs = {(block.caption, label): (block, cells) for block in other for label, cells in block.rows}
    made = []
    for block in blocks:
        rows: list[tuple[str, tuple[Cell, ...]]] = []
        for label, cells in block.rows:
            rows.append((label, cells))
            if (block.caption, label) in theirs:
                found, values = theirs[block.caption, label]
                have = {column_name(c): v for c, v in zip(found.columns, values, strict=True)}
                rows.append((f"{label} in {name}", tuple(
                    have.get(column_name(c)) or missing(cells[0], c) for c in block.columns)))
        made.append(replace(block, rows=tuple(rows)))
    return made
