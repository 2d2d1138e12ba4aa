"""MINT-V2X: simulated vehicles around roadside units, from a copy of your own; for stress tests of controllers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

from bench import dataset
from bench.data.recordings import Faults, Found, RecordedDataset, Recording, component, repeated
from bench.traffic import CHUNK_FRAMES, COMPONENTS, FPS

MOVING_MPS = 0.5  # as in sumo_crossing
RADIUS_M = 250.0  # of the circle around a unit; ours
THIRDS = 3  # two public, one tested
MOST_CHUNKS = 10 * 43_200  # ten days
NAMES = {"time": ("time", "timestamp", "time_s", "sim_time", "t"),
         "vehicle": ("vehicle", "vehicle_id", "veh_id", "node_id"),
         "unit": ("rsu", "rsu_id", "serving_rsu", "serving_rsu_id", "connected_rsu", "nearest_rsu"),
         "distance": ("distance", "rsu_distance", "distance_to_rsu", "rsu_dist", "distance_m"),
         "speed": ("speed", "velocity", "speed_mps", "speed_ms", "velocity_mps")}
NUMBERS = ("time", "distance", "speed")


@dataclass(frozen=True)
class Records:
    """Records at two a second inside the circles. sample: (n,) from the start of the run; vehicle, unit: (n,) names."""

    sample: np.ndarray
    vehicle: np.ndarray
    unit: np.ndarray
    moving: np.ndarray
    samples: int  # of the whole run


@dataset("mint_v2x")
class MintV2X(RecordedDataset):
    """One record a vehicle and instant: time, vehicle, roadside unit, distance to it, speed. Each unit is a camera that
    sees the vehicles within 250 m of it twice a second; one that is faster than 0.5 m/s is moving. The run is cut into
    contiguous thirds: the first two are public, the last is tested; a public episode that shows a vehicle of the last
    third is left out. There is no video and nothing of people, signs or weather: these are missing. Simulated, and so
    good for stress tests of controllers only: it says nothing of anybody's privacy.
    """

    title: ClassVar[str] = "MINT-V2X (your own copy, simulated)"
    licence: ClassVar[str] = "as its authors say"
    layout: ClassVar[str] = ("ROOT/*.csv or ROOT/*.parquet, all of one run, with columns for time (s), vehicle, unit, "
                             "distance (m) and speed (m/s); ROOT/columns.json may name them: {\"time\": \"...\", ...}")

    def read(self, root: Path, report: Callable[[str], None]) -> Found:
        """All tables of the folder, as one run."""
        found = Found()
        paths = sorted(p for p in root.rglob("*") if p.suffix in (".csv", ".parquet") and p.is_file())
        if not paths:
            found.problems.append("it has no .csv and no .parquet file")
        tables = [_table(path, Faults(path.relative_to(root).as_posix()), _given(root, found.problems), found.problems)
                  for path in paths]
        if not found.problems:
            records = _records(pa.concat_tables([t for t in tables if t is not None]), found.problems)
        if not found.problems:
            found.recordings = list(_recordings(records))
            found.notes = [f"A unit counts the vehicles within {RADIUS_M:g} m. Thirds of the run are contiguous, the "
                           "last is tested."]
        return found


# ---- files ---------------------------------------------------------------------------------------------------------

def _given(root: Path, problems: list[str]) -> Mapping[str, str]:
    """Names of columns that the user gives."""
    path = root / "columns.json"
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        found, fault = None, f"columns.json is broken JSON ({error})"
    else:
        fault = f"columns.json is no table from {', '.join(NAMES)} to names of columns"
    if not isinstance(found, dict) or set(found) - set(NAMES) or not all(isinstance(v, str) for v in found.values()):
        if fault not in problems:
            problems.append(fault)
        return {}
    return found


def _table(path: Path, faults: Faults, given: Mapping[str, str], problems: list[str]) -> pa.Table | None:
    """The five columns of one file under the names of NAMES; None and a problem where that cannot be."""
    table = None
    try:
        head = pq.read_schema(path).names if path.suffix == ".parquet" else csv.open_csv(path).schema.names
        chosen = {key: _column(head, key, given) for key in NAMES}
        if missing := [f"{key} ({given.get(key) or ' or '.join(NAMES[key])})" for key in NAMES if not chosen[key]]:
            faults.add(f"has no column for {', '.join(missing)}; it has {', '.join(head)[:300]}")
        else:
            table = _read(path, list(chosen.values())).rename_columns(list(NAMES))
            _check(table, faults)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        faults.add(f"cannot be read ({str(error).splitlines()[0]})")
    problems += list(faults)
    return None if table is None or list(faults) else _typed(table)


def _column(head: list[str], key: str, given: Mapping[str, str]) -> str:
    """The column of a file that stands for `key`, as it is given or as it is usually called; "" without one."""
    return next((c for c in head if (c == given[key] if key in given else c.strip().lower() in NAMES[key])), "")


def _read(path: Path, names: list[str]) -> pa.Table:
    if path.suffix == ".parquet":
        return pq.read_table(path, columns=names)
    return csv.read_csv(path, convert_options=csv.ConvertOptions(include_columns=names)).select(names)


def _check(table: pa.Table, faults: Faults) -> None:
    """Numbers where there must be some, finite, and neither distance nor speed below 0; names everywhere."""
    if not len(table):
        faults.add("has no record")
        return
    for name in NAMES:
        column = table.column(name)
        if column.null_count:
            faults.add(f"lacks the {name} of {column.null_count} of {len(table)} records")
        elif name in NUMBERS:
            if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
                faults.add(f"has a column for {name} that is not all numbers ({column.type})")
                continue
            values = column.to_numpy()
            if not np.isfinite(values).all() or (name != "time" and (values < 0).any()):
                faults.add(f"has a {name} that is negative or not finite")


def _typed(table: pa.Table) -> pa.Table:
    """Numbers as float64, names as text, so that the files of a run fit together."""
    kinds = {name: pa.float64() if name in NUMBERS else pa.string() for name in NAMES}
    return pa.table({name: table.column(name).cast(kind) for name, kind in kinds.items()})


# ---- streams -------------------------------------------------------------------------------------------------------

def _records(table: pa.Table, problems: list[str]) -> Records:
    """What is in the circles at the sampled instants: those within a tenth of a sample of them."""
    time = table.column("time").to_numpy()
    ticks = (time - time.min()) * FPS
    samples = int(np.floor(ticks.max() + 1e-6)) + 1
    if samples > MOST_CHUNKS * CHUNK_FRAMES:
        problems.append(f"its run lasts {np.ptp(time):g} s; is the time in seconds?")
    near = np.abs(ticks - np.rint(ticks)) < 0.1
    table, sample = table.filter(pa.array(near)), np.rint(ticks[near]).astype(np.int64)
    encoded = pc.dictionary_encode(table.column("vehicle")).combine_chunks()
    vehicle = np.asarray(encoded.indices)
    for when, who in repeated(np.stack([sample, vehicle], axis=1))[:1]:
        problems.append(f"vehicle {encoded.dictionary[int(who)]} has two records at {when / FPS + time.min():g} s")
    if len(set(sample.tolist())) < samples // 2:
        problems.append(f"its records do not stand at two instants a second: {len(set(sample.tolist()))} of {samples}")
    inside = table.column("distance").to_numpy() <= RADIUS_M
    return Records(sample[inside], vehicle[inside], np.array(table.column("unit").to_pylist(), dtype=object)[inside],
                   table.column("speed").to_numpy()[inside] > MOVING_MPS, samples)


def _recordings(records: Records) -> Iterator[Recording]:
    """One recording a unit and third."""
    length = records.samples // CHUNK_FRAMES // THIRDS  # chunks of a third
    known = np.zeros((length, len(COMPONENTS)), bool)
    known[:, :2] = True
    chunk = records.sample // CHUNK_FRAMES
    for unit in sorted(set(records.unit.tolist())):
        for third in range(THIRDS):
            mine = np.flatnonzero((records.unit == unit) & (chunk // max(1, length) == third))
            seen: Counter[Any] = Counter(
                (int(records.vehicle[k]), int(chunk[k]) - third * length,
                 component("moving" if records.moving[k] else "stopped")) for k in mine)
            objects = np.array([[*key, count] for key, count in sorted(seen.items())], np.int64).reshape(-1, 4)
            steps = np.zeros(known.shape, np.int16)
            np.add.at(steps, (objects[:, 1], objects[:, 2]), objects[:, 3].astype(np.int16))
            yield Recording(f"unit{unit}/third{third + 1}", third < THIRDS - 1, steps, known, objects)
