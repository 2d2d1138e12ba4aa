"""Tables of cells as Markdown, CSV, LaTeX and JSON. A further table is one function in TABLES.

A builder turns cells into blocks (caption, columns, rows, footer); four writers know nothing of what a table means.
Markdown and LaTeX round to two significant digits of the interval's half-width; CSV and JSON keep every digit. Rates
stay in 0 .. 1 in all four.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench.beside import against, with_reported
from bench.blocks import Block, by_board, footer, matrix
from bench.budget_tables import with_configuration, with_costs
from bench.diagnostic_tables import diagnostic_tables
from bench.display import (
    ARROWS,
    DASH,
    DIRECTIONS,
    ONE_TABLE,
    WORDS,
    Cell,
    column_name,
    command,
    counted,
    decimals,
    diagnostic,
    exceeds,
    families,
    family,
    finite,
    guess_words,
    interval,
    method_name,
    number,
    public,
    status_text,
)
from bench.errors import ConfigError, nearest
from bench.excess import with_losses
from bench.paper_tables import PAPER_FIGURES as FIGURES
from bench.paper_tables import PAPER_TABLES
from bench.ranking import attack_state
from bench.traffic_tables import TRAFFIC_TABLES


def summary(cells: Sequence[Cell]) -> list[Block]:
    """One row per method (and variant), one column per metric; one block per track, dataset and profile."""
    groups = by_board([cell for cell in cells if not diagnostic(cell)])
    return [*(matrix(f"Summary: {dataset}, {profile} profile, {track} track", group, _weak(group))
              for (track, dataset, profile), group in groups.items()), *diagnostics(cells)]


def _weak(cells: Sequence[Cell]) -> list[str]:
    """The columns whose attack is too weak, one line each."""
    return [f"{key}: {state}" for key in dict.fromkeys(map(column_name, cells))
            if (state := attack_state(c for c in cells if column_name(c) == key)) != "ok"]


def diagnostics(cells: Sequence[Cell]) -> list[Block]:
    """One table a method and diagnostic: a row for each branch, stage or intervention. Never ranked."""
    return [Block(f"{table.attack} of {table.method} on {table.board[1]}", table.columns, table.rows,
                  footer([cell for _, line in table.rows for cell in line if cell.get("digest")]))
            for table in diagnostic_tables(cells)]


SHORT = 40  # characters of a status that fit into a cell
TO_MEASURE = "to measure: "
TABLES: dict[str, Callable[[Sequence[Cell]], list[Block]]] = {
    "summary": summary, "diagnostics": diagnostics, **PAPER_TABLES, **TRAFFIC_TABLES}


def title(name: str) -> str:
    """One line on what a table shows."""
    made = TABLES[name]
    return getattr(made, "caption", "") or (made.__doc__ or "").splitlines()[0]


# ---- cells as text -------------------------------------------------------------------------------------------------

def _measured(cell: Cell) -> str:
    """`0.423 [0.331, 0.515], chance 0.111, n 432, 9 people`, or the status of a cell without a number."""
    if cell.get("metric_unit") == WORDS:
        return str(cell["text"])
    if not finite(cell.get("value")):
        return DASH if cell.get("status") == "missing" else f"{DASH} ({_short(status_text(cell))})"
    text = f"{number(cell['value'], decimals(cell))} {interval(cell)}".strip()
    if finite(cell.get("chance")):
        text += f", chance {number(cell['chance'], 3)}"
    if finite(cell.get("n")):
        text += f", n {cell['n']}"
    if finite(cell.get("people")):
        text += f", {cell['people']} {counted(cell)}"
    return text + (f" ({_short(status_text(cell))})" if status_text(cell) else "")


def _limit(cell: Cell) -> str:
    """`, allowed ≤ 0.349`, and whether the whole interval lies beyond it."""
    if not finite(cell.get("ceiling")):
        return ""
    return f", allowed {'≥' if cell['metric'] == 'eer' else '≤'} {number(cell['ceiling'], 3)}" + (
        ": EXCEEDS ITS CLAIM" if exceeds(cell) else "")


def _short(status: str) -> str:
    """`invalid` of `invalid: a long reason`: the reason is a note below the table, once."""
    return status if len(status) <= SHORT else status.partition(":")[0]


def _note(cell: Cell) -> str:
    """What stands below the table about this cell: the command that would fill it, its reason, a guess or a loss."""
    if cell.get("status") == "missing":
        return f"{TO_MEASURE}{command(cell)}"
    reason = status_text(cell) if len(status_text(cell)) > SHORT and cell.get("metric_unit") != WORDS else ""
    more = "; ".join(filter(None, (*guess_words(cell), cell.get("loss"))))
    return "; ".join(filter(None, (reason, more and f"{method_name(cell)}, {column_name(cell)}: {more}")))


def _header(cell: Cell) -> str:
    if cell.get("metric_unit") == WORDS:
        return str(cell["title"])
    unit = cell.get("metric_unit") or ""
    better = cell.get("better") or "none"
    arrow = f" {ARROWS[better]}" if ARROWS[better] else ""
    return f"{column_name(cell)}{arrow} ({', '.join(filter(None, (unit, DIRECTIONS[better])))})"


def _grid(block: Block) -> tuple[list[list[str]], list[str]]:
    """The cells of a block as text, and the notes to them, numbered from 1 in the text."""
    notes: dict[str, int] = {}
    grid = []
    for label, cells in block.rows:
        line = [label]
        for cell in cells:
            text = _measured(cell) + (_limit(cell) if block.limits else "")
            if (note := _note(cell)):
                text += f" [{notes.setdefault(note, len(notes) + 1)}]"
            line.append(text)
        grid.append(line)
    return grid, list(notes)


def _narrow(blocks: Sequence[Block]) -> list[Block]:
    """For a reader: a block with many columns as one block a family, the lines below it under the last."""
    parts = []
    for block in blocks:
        if len(block.columns) <= ONE_TABLE:
            parts.append(block)
            continue
        titles = families(block.columns[0])
        kept = {name: [i for i, c in enumerate(block.columns) if family(c) == name] for name in titles}
        made = [replace(block, caption=f"{block.caption}. {titles[name]}", footer=(),
                        columns=tuple(block.columns[i] for i in index),
                        rows=tuple((label, tuple(cells[i] for i in index)) for label, cells in block.rows))
                for name, index in kept.items() if index]
        parts += [*made[:-1], replace(made[-1], footer=block.footer)]
    return parts


# ---- writers -------------------------------------------------------------------------------------------------------

_MD = str.maketrans({c: f"\\{c}" for c in "\\`*_[]<>|"} | {"\n": " "})
_TEX = str.maketrans({"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
                      "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--",
                      "−": "$-$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "∞": r"$\infty$", "≥": r"$\geq$",
                      "≤": r"$\leq$", "<": r"\textless{}",
                      ">": r"\textgreater{}", "[": "{[}", "]": "{]}", "\n": " "})


def _markdown(blocks: Sequence[Block]) -> str:
    parts = []
    for block in _narrow(blocks):
        grid, notes = _grid(block)
        head = ["method", *map(_header, block.columns)]
        lines = [f"### {block.caption.translate(_MD)}", "", _pipe(head), _pipe(["---"] * len(head), raw=True)]
        lines += [_pipe(row) for row in grid]
        lines += ["", *(f"- \\[{i}\\] {_marked(note)}" for i, note in enumerate(notes, 1))]
        lines += [f"- {line.translate(_MD)}" for line in block.footer]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _marked(note: str) -> str:
    """A note in Markdown, its command as code."""
    text, found, code = note.partition(TO_MEASURE)
    if text or not found:
        return note.translate(_MD)
    return f"{TO_MEASURE}`` {code} ``" if "`" in code else f"{TO_MEASURE}`{code}`"


def _pipe(texts: Iterable[str], raw: bool = False) -> str:
    return f"| {' | '.join(text if raw else text.translate(_MD) for text in texts)} |"


def _latex(blocks: Sequence[Block]) -> str:
    """Plain `tabular` in `table`, no package needed."""
    parts = []
    for block in _narrow(blocks):
        grid, notes = _grid(block)
        head = ["method", *map(_header, block.columns)]
        rows = [" & ".join(text.translate(_TEX) for text in row) + r" \\" for row in (head, *grid)]
        below = "\n\n".join(line.translate(_TEX) for line in (
            *(f"[{i}] {note}" for i, note in enumerate(notes, 1)), *block.footer))
        parts.append("\n".join([
            r"\begin{table}", rf"\caption{{{block.caption.translate(_TEX)}}}",
            rf"\begin{{tabular}}{{l{'r' * len(block.columns)}}}", r"\hline", rows[0], r"\hline", *rows[1:], r"\hline",
            r"\end{tabular}", "", rf"{{\footnotesize {below}}}", r"\end{table}"]))
    return "\n\n".join(parts) + "\n"


def _csv(blocks: Sequence[Block]) -> str:
    """One line per method, every digit; value, lo, hi, chance, n, people, status, digest, to_measure per column."""
    keys = ("value", "lo", "hi", "chance", *(("ceiling",) if any(block.limits for block in blocks) else ()), "n",
            "people", "status", "digest")
    names = list(dict.fromkeys(column_name(c) for block in blocks for c in block.cells()))
    head = ["method", "variant", "dataset", "profile", "lane", "unit", "adjacency", "epsilon", "delta", "draws",
            "seeds"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*head, *(f"{name} {key}" for name in names for key in (*keys, "to_measure"))])
    for block in blocks:
        for _, cells in block.rows:
            rows = {column_name(cell): public(cell) for cell in cells}
            first = next((row for row in rows.values() if row["status"] != "missing"), next(iter(rows.values())))
            line = [" ".join(map(str, first[key] or [])) if key == "seeds" else first[key] for key in head]
            for name in names:
                row = rows.get(name, {})
                if row.get("metric_unit") == WORDS:
                    row["value"] = row["text"]
                line += [*(row.get(key) for key in keys), row.get("text") if row.get("status") == "missing" else ""]
            writer.writerow(line)
    return out.getvalue()


def _json(blocks: Sequence[Block]) -> str:
    return json.dumps([public(cell) for block in blocks for cell in block.cells()], indent=1, allow_nan=False) + "\n"


FORMATS: dict[str, Callable[[Sequence[Block]], str]] = {
    "md": _markdown, "csv": _csv, "latex": _latex, "json": _json}


def table(name: str, cells: Iterable[Cell], *, format: str = "md", reported: Sequence[dict[str, Any]] = (),
          other: tuple[str, Iterable[Cell]] | None = None, artifacts: Sequence[dict[str, Any]] = (),
          fitted: Mapping[Any, Any] | None = None) -> str:
    """The table `name` of TABLES over these cells, in a format of FORMATS.

    reported: rows of `bench.beside.reported`, shown below the measured ones.  other: a name and the cells of another
    database, row by row below this one's.  artifacts: what stages took (`exchange.read_artifacts`), for the tables
    that show costs.  fitted: what states say (`bench.fitted.configurations`), for tables that show it.

    json: a list of cells with exactly the fields of DESIGN 5, gaps included (status "missing", `text` = the command
    that would fill them); an infinite epsilon is the string "inf", since JSON has no infinity and null would read as
    unknown. Raises ConfigError for an unknown name or format, naming the nearest.
    """
    if name not in TABLES:
        raise ConfigError(f"There is no table called {name!r}.", nearest(name, [*TABLES, *FIGURES]),
                          "`veilbench list tables` shows all of them.")
    if format not in FORMATS:
        raise ConfigError(f"There is no table format {format!r}.", nearest(format, FORMATS),
                          f"Give --format one of {', '.join(FORMATS)}.")
    blocks = TABLES[name](with_losses(cells))
    if other is not None:
        blocks = against(blocks, TABLES[name](with_losses(other[1])), other[0])
    if getattr(TABLES[name], "costs", False):
        blocks = with_costs(blocks, artifacts)
    if getattr(TABLES[name], "fitted", False):
        blocks = with_configuration(blocks, fitted or {})
    return FORMATS[format](with_reported(blocks, reported) if reported else blocks)
