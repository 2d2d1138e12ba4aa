"""The prepared folder: every video on the canvas, losslessly coded, under a hashed manifest.

    dataset.json       name, labels, licence, canvas, split digest, manifest digest
    manifest.parquet   one row a video (a Hugging Face `datasets` table; this file is its only owner)
    media/00000.mkv    FFV1, bit-exact
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import bench.video as video_io
from bench.data import splits
from bench.errors import DataError
from bench.types import CLIP_FRAMES, Dataset, Source, Video

POOL_FROM = 100  # videos from which two processes share the work
PARTS = ("public", "train", "calibration", "test")
_HASHED = ("video", "person", "label", "part", "role", "frames", "sha256")


@dataclass(frozen=True)
class Row:
    """One prepared video. `person` and `label` are names; role is "enrolment", "probe" or ""."""

    video: str
    person: str
    label: str
    part: str
    role: str
    frames: int
    fps: float
    file: str
    sha256: str
    centre_boxes: int
    attributes: str
    native: str

    @property
    def clips(self) -> int:
        """Number of 16-frame clips, the last one padded."""
        return -(-self.frames // CLIP_FRAMES)


class Clips:
    """A prepared dataset, opened for reading."""

    def __init__(self, folder: Path):
        import datasets  # slow to import and needed only here

        self.folder = Path(folder)
        self.info: dict[str, Any] = json.loads((self.folder / "dataset.json").read_text(encoding="utf-8"))
        self.table = datasets.Dataset(pq.read_table(self.folder / "manifest.parquet"))

    @property
    def labels(self) -> list[str]:
        return self.info["labels"]

    def rows(self, *parts: str, role: str | None = None) -> list[Row]:
        """Rows of these parts (all when none is named), in manifest order."""
        found = [Row(**record) for record in self.table.to_list()]
        return [r for r in found if (not parts or r.part in parts) and (role is None or r.role == role)]

    def landmarks(self, row: Row) -> np.ndarray | None:
        """True landmarks, float32 (T, K, 2) px, of a made public person; None elsewhere."""
        path = (self.folder / "media" / row.file).with_suffix(".npy")
        return np.load(path) if path.is_file() else None

    def video(self, row: Row) -> Video:
        return video_io.read(self.folder / "media" / row.file)


def write_clips(adapter: Dataset, root: Path | None, seed: int, canvas_px: int, out: Path,
                report: Callable[[str], None]) -> None:
    """Prepare a whole dataset into `out`. Raises DataError that names every unusable video."""
    sources = adapter.sources(root, seed)
    public = adapter.name == adapter.public
    parts = {s.person: "public" for s in sources} if public else splits.split_people(s.person for s in sources)
    if not public:
        splits.check_committed(adapter.name, parts)
    roles = splits.assign_roles(sources, parts)
    _check_probes(sources, parts, roles)
    (out / "media").mkdir(parents=True)
    rows = list(_prepare(adapter, sources, parts, roles, canvas_px, out, report))
    _write_manifest(adapter, rows, splits.split_digest(parts, roles), canvas_px, seed, out)


def _check_probes(sources: Sequence[Source], parts: dict[str, str], roles: dict[str, str]) -> None:
    probed = {s.person for s in sources if roles.get(s.id) == "probe"}
    lonely = sorted(p for p, part in parts.items() if part == "test" and p not in probed)
    if lonely:
        raise DataError(f"Test people without a probe video: {', '.join(lonely)}.",
                        "Enrolment and probe alternate inside each label, so one video of a label gives no probe.",
                        "Give each person at least two videos of one label.")


def _prepare(adapter: Dataset, sources: Sequence[Source], parts: dict[str, str], roles: dict[str, str],
             canvas_px: int, out: Path, report: Callable[[str], None]) -> Iterator[Row]:
    problems: list[str] = []
    for i, (source, made) in enumerate(zip(sources, _load_all(adapter, sources, canvas_px, out))):
        if isinstance(made, DataError):
            problems.append(f"{source.id}: {made.what}")
            continue
        yield Row(video=source.id, person=source.person, label=source.label, part=parts[source.person],
                  role=roles.get(source.id, ""), attributes=json.dumps(dict(source.attributes), sort_keys=True), **made)
        if (i + 1) % 50 == 0 or i + 1 == len(sources):
            report(f"{i + 1}/{len(sources)} videos")
    if problems:
        raise DataError(f"{len(problems)} of {len(sources)} videos cannot be used: {'; '.join(problems[:20])}.",
                        "A dataset with silent gaps would not be the dataset.",
                        "Mend these files or move them out of the root.")


def _load_all(adapter: Dataset, sources: Sequence[Source], canvas_px: int,
              out: Path) -> Iterator[dict[str, Any] | DataError]:
    """What `_load` gives for each source, in order; a large dataset is made by two processes."""
    jobs = [(adapter, source, canvas_px, out / "media" / f"{i:05d}.mkv") for i, source in enumerate(sources)]
    if len(jobs) < POOL_FROM:
        yield from map(_load, jobs)
        return
    with multiprocessing.get_context("fork").Pool(min(2, os.cpu_count() or 1)) as pool:
        yield from pool.imap(_load, jobs, chunksize=4)


def _load(job: tuple[Dataset, Source, int, Path]) -> dict[str, Any] | DataError:
    """Prepare one video and write it; the fields of its Row that it alone knows, or why it cannot be used."""
    adapter, source, canvas_px, path = job
    try:
        made = adapter.load(source, canvas_px)
    except DataError as error:
        return error
    video_io.write_lossless(path, made.frames, made.fps)
    if made.landmarks is not None:
        np.save(path.with_suffix(".npy"), made.landmarks)
    return {"frames": len(made.frames), "fps": float(made.fps), "file": path.name,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "centre_boxes": made.centre_boxes,
            "native": json.dumps(dict(made.native), sort_keys=True, default=str)}


def _write_manifest(adapter: Dataset, rows: list[Row], split: str, canvas_px: int, seed: int, out: Path) -> None:
    import datasets

    datasets.Dataset.from_list([vars(r) for r in rows]).to_parquet(out / "manifest.parquet")
    info = {"name": adapter.name, "title": adapter.title, "licence": adapter.licence, "split": split, "seed": seed,
            "publishable": adapter.publishable, "canvas_px": canvas_px, "labels": sorted({r.label for r in rows}),
            "people": len({r.person for r in rows}), "videos": len(rows), "frames": sum(r.frames for r in rows),
            "centre_boxes": sum(r.centre_boxes for r in rows), "manifest": manifest_digest(rows)}
    (out / "dataset.json").write_text(json.dumps(info, indent=1), encoding="utf-8")


def manifest_digest(rows: Sequence[Row]) -> str:
    """SHA-256 over who, what and the bytes of every video."""
    total = hashlib.sha256()
    for row in rows:
        total.update("\x1f".join(str(getattr(row, name)) for name in _HASHED).encode() + b"\n")
    return total.hexdigest()


def check_clips(folder: Path) -> list[str]:
    """What is wrong with a prepared folder: missing or changed files, a changed manifest, crossing people."""
    clips = Clips(folder)
    rows, problems = clips.rows(), []
    if manifest_digest(rows) != clips.info["manifest"]:
        problems.append("manifest.parquet differs from its digest")
    for row in rows:
        path = clips.folder / "media" / row.file
        if not path.is_file():
            problems.append(f"{row.file} is missing")
        elif hashlib.sha256(path.read_bytes()).hexdigest() != row.sha256:
            problems.append(f"{row.file} differs from its digest")
    crossing = {r.person for r in rows if r.part == "test"} & {r.person for r in rows if r.part != "test"}
    problems += [f"person {p} stands in two parts" for p in sorted(crossing)]
    return problems
