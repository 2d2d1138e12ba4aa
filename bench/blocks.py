"""What a table is made of: rows of cells under columns, and the lines below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.display import DASH, Cell, column_name, counted, epsilon_text, finite, method_name, missing, span
from bench.ranking import board_key


@dataclass(frozen=True)
class Block:
    """One table: rows of cells under columns, and the lines printed below it. rows[i][1][j] belongs to columns[j].

    limits: what the claim allows is printed beside every number.
    """

    caption: str
    columns: tuple[Cell, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    footer: tuple[str, ...]
    limits: bool = False

    def cells(self) -> list[Cell]:
        return [cell for _, cells in self.rows for cell in cells]


def footer(cells: Sequence[Cell]) -> tuple[str, ...]:
    """n, people, seeds, draws, profile and the digest line of these cells."""
    seeds = sorted({s for cell in cells for s in cell.get("seeds") or ()})
    digests = {f"{column_name(c)} {str(c['digest'])[:10]}": None for c in cells if c.get("digest")}
    splits = sorted({str(c["split"])[:10] for c in cells if c.get("split")})
    profiles = sorted({str(c["profile"]) for c in cells})
    units = " and ".join(sorted({counted(cell) for cell in cells})) or "people"
    return (f"n {span([c.get('n') for c in cells])}, {units} {span([c.get('people') for c in cells])}, "
            f"seeds {', '.join(map(str, seeds)) or DASH}, draws {span([c.get('draws') for c in cells])}, "
            f"profile {', '.join(profiles)}",
            f"digests: {'; '.join([f'split {s}' for s in splits] + list(digests)) or DASH}")


def by_board(cells: Sequence[Cell]) -> dict[tuple[str, str, str], list[Cell]]:
    """{(track, dataset, profile): its cells}: faces before traffic, else in order of first appearance."""
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(board_key(cell), []).append(cell)
    return dict(sorted(groups.items(), key=lambda item: item[0][0]))


def row_of(cell: Cell) -> tuple:
    """What cells of one row have in common."""
    return (cell["method"], cell.get("variant"), cell["lane"], cell["unit"], cell["epsilon"])


def row_label(cell: Cell) -> str:
    """`dp_latent (enforced, epsilon 8)`; of an event claim by both accountants, `epsilon 4: sum 4, max 0.4`."""
    both, details = "", cell.get("details") or {}
    if finite(details.get("epsilon_sum")) and finite(details.get("epsilon_max")):
        both = f": sum {epsilon_text(details['epsilon_sum'])}, max {epsilon_text(details['epsilon_max'])}"
    return f"{method_name(cell)} ({cell['lane']}, epsilon {epsilon_text(cell['epsilon'])}{both})"


def matrix(caption: str, cells: Sequence[Cell], notes: Sequence[str] = ()) -> Block:
    """One row per method and variant, one column per measurement, gaps as missing cells; notes above the footer."""
    columns: dict[str, Cell] = {}
    rows: dict[tuple, dict[str, Cell]] = {}
    for cell in cells:
        columns.setdefault(column_name(cell), cell)
        rows.setdefault(row_of(cell), {})[column_name(cell)] = cell
    filled = []
    for have in rows.values():
        sample = next(iter(have.values()))
        line = tuple(have[key] if key in have else missing(sample, column) for key, column in columns.items())
        filled.append((row_label(sample), line))
    return Block(caption, tuple(columns.values()), tuple(filled), (*notes, *footer(cells)))
