"""Trial rows: one row per trial of an attack or metric, the only thing that numbers are computed from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench import seeds

SCHEMA = pa.schema([("column", pa.string()), ("person", pa.int32()), ("video", pa.int32()), ("trial", pa.int32()),
                    ("draw", pa.int32()), ("seed", pa.int64()), ("value", pa.float64()), ("truth", pa.int32()),
                    ("predicted", pa.int32())])
ALL_PEOPLE = 0  # number of a row about everybody; people count from 1


@dataclass(frozen=True)
class Trial:
    """One trial. `person` and `video` are random integers; `truth` and `predicted` are class indices or -1."""

    column: str
    person: int
    video: int
    trial: int
    draw: int
    seed: int
    value: float
    truth: int = -1
    predicted: int = -1


def public_numbers(names: Sequence[str], seed: int, purpose: str) -> dict[str, int]:
    """Names -> random integers, the same for every method of a dataset, so that rows can be paired."""
    order = sorted(set(names))
    numbers = seeds.derive(seed, "public-numbers", purpose).permutation(len(order)) + 1
    return dict(zip(order, numbers.tolist()))


def write_trials(path: Path, rows: Sequence[Trial]) -> None:
    """Sorted, so that file order tells nothing."""
    records = sorted((vars(r) for r in rows), key=lambda r: (r["column"], r["person"], r["video"], r["trial"]))
    pq.write_table(pa.Table.from_pylist(records, schema=SCHEMA), path)


def read_trials(path: Path) -> dict[str, np.ndarray]:
    """Columns of SCHEMA as arrays."""
    table = pq.read_table(path, schema=SCHEMA)
    return {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}


def hit(scores: np.ndarray, truth: int) -> float:
    """1 when `truth` alone has the highest score, 1/k when it shares it with k - 1 others, else 0.

    That is the expected value of guessing among ties, so constant scores give chance exactly.

    >>> hit(np.array([.2, .2, .1]), 0), hit(np.array([.2, .2, .1]), 2)
    (0.5, 0.0)
    """
    best = scores == scores.max()
    return float(best[truth]) / float(best.sum())


def finite(scores: np.ndarray) -> bool:
    """No NaN and no infinity."""
    return bool(np.isfinite(scores).all())


def mean_defined(values: np.ndarray) -> float:
    """Mean of the defined values, NaN where there is none."""
    return float(np.nanmean(values)) if np.isfinite(values).any() else math.nan


def number(value: float) -> float | None:
    """As JSON knows it: None for NaN and infinity."""
    return float(value) if math.isfinite(value) else None


def as_record(value: Any) -> Any:
    """Plain JSON value of a numpy scalar."""
    return value.item() if isinstance(value, np.generic) else value
