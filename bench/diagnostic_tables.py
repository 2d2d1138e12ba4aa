"""Diagnostics as small tables: one a method and diagnostic, a row for each branch, stage or intervention."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bench.display import Cell, diagnostic, drawn, method_name, missing, status_text
from bench.excess import with_losses
from bench.ranking import board_key


@dataclass(frozen=True)
class DiagnosticTable:
    """rows[i][1][j] belongs to columns[j]; a column is a cell without parameters, a row's name is its parameters."""

    board: tuple[str, str, str]
    method: str
    attack: str
    columns: tuple[Cell, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]


def diagnostic_tables(cells: Iterable[Cell]) -> list[DiagnosticTable]:
    """Tables of the diagnostic cells among these, in order of first appearance."""
    groups: dict[tuple[tuple[str, str, str], str, str], list[Cell]] = {}
    for cell in cells:
        if diagnostic(cell):
            groups.setdefault((board_key(cell), method_name(cell), str(cell.get("attack"))), []).append(cell)
    return [_table(*key, group) for key, group in groups.items()]


def _table(board: tuple[str, str, str], method: str, attack: str, cells: list[Cell]) -> DiagnosticTable:
    columns: dict[tuple, Cell] = {}
    rows: dict[str, dict[tuple, Cell]] = {}
    for cell in cells:
        key = (cell["metric"], cell.get("evaluator"))
        columns.setdefault(key, {**cell, "params": None, "decoding": "assembled"})
        rows.setdefault(_words(cell), {})[key] = cell
    lines = []
    for words, have in rows.items():
        sample = next(iter(have.values()))
        lines.append((words, tuple(have.get(key) or {**missing(sample, column), "params": sample.get("params")}
                                   for key, column in columns.items())))
    return DiagnosticTable(board, method, attack, tuple(columns.values()), tuple(lines))


def _words(cell: Cell) -> str:
    return ", ".join(f"{k} {v}" for k, v in sorted((cell.get("params") or {}).items()))


def views(cells: Iterable[Cell], method: str) -> list[dict[str, Any]]:
    """The tables of one method as its page draws them."""
    return [{"title": table.attack, "dataset": table.board[1], "columns": [_heading(c) for c in table.columns],
             "rows": [(words, [_view(cell) for cell in line]) for words, line in table.rows]}
            for table in diagnostic_tables(with_losses(cells)) if table.method == method]


def _heading(cell: Cell) -> dict[str, str]:
    evaluator = f"@{cell['evaluator']}" if cell.get("evaluator") else ""
    return {"name": f"{cell['metric']}{evaluator}", "title": str(cell.get("title") or "")}


def _view(cell: Cell) -> dict[str, str]:
    return {**drawn(cell), "reason": status_text(cell), "loss": str(cell.get("loss") or "")}
