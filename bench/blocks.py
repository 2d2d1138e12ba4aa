"""What a table is made of: rows of cells under columns, and the lines below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.display import DASH, Cell, column_name, span


@dataclass(frozen=True)
class Block:
    """One table: rows of cells under columns, and the lines printed below it. rows[i][1][j] belongs to columns[j]."""

    caption: str
    columns: tuple[Cell, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    footer: tuple[str, ...]

    def cells(self) -> list[Cell]:
        return [cell for _, cells in self.rows for cell in cells]


def footer(cells: Sequence[Cell]) -> tuple[str, ...]:
    """n, people, seeds, draws, profile and the digest line of these cells."""
    seeds = sorted({s for cell in cells for s in cell.get("seeds") or ()})
    digests = {f"{column_name(c)} {str(c['digest'])[:10]}": None for c in cells if c.get("digest")}
    splits = sorted({str(c["split"])[:10] for c in cells if c.get("split")})
    profiles = sorted({str(c["profile"]) for c in cells})
    return (f"n {span([c.get('n') for c in cells])}, people {span([c.get('people') for c in cells])}, "
            f"seeds {', '.join(map(str, seeds)) or DASH}, draws {span([c.get('draws') for c in cells])}, "
            f"profile {', '.join(profiles)}",
            f"digests: {'; '.join([f'split {s}' for s in splits] + list(digests)) or DASH}")
