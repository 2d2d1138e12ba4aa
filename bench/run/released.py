"""Reading a release folder as an attacker or metric is granted it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

import bench.video as video_io
from bench.errors import DataError
from bench.types import Video


@dataclass(frozen=True)
class Released:
    """One released file and, from the vault, what the harness grants about its source."""

    path: Path
    frames: int
    draw: int
    clip: int
    video: str
    person: str
    label: str
    part: str
    role: str

    def read(self) -> Video:
        """The frames, exactly as released. Raises DataError when the file has another number of frames."""
        video = video_io.read(self.path)
        if len(video) != self.frames:
            raise DataError(f"{self.path.name} has {len(video)} frames, its manifest says {self.frames}.", "",
                            "Release it again.")
        return video


def open_release(folder: Path, *, parts: Sequence[str] = (), role: str | None = None,
                 draw: int | None = None) -> list[Released]:
    """Files of a release stage, joined with its id map, sorted by source video."""
    known = {r["id"]: r for r in pq.read_table(folder / "vault" / "idmap.parquet").to_pylist()}
    found = []
    for record in pq.read_table(folder / "release" / "manifest.parquet").to_pylist():
        who = known[record["id"]]
        if (not parts or who["part"] in parts) and role in (None, who["role"]) and draw in (None, record["draw"]):
            found.append(Released(folder / "release" / "media" / record["file"], record["frames"], record["draw"],
                                  record["clip"], who["video"], who["person"], who["label"], who["part"],
                                  who["role"]))
    return sorted(found, key=lambda r: (r.video, r.draw, r.clip))


def people_of(items: Sequence[Released]) -> list[str]:
    return sorted({item.person for item in items})


def batches(items: Sequence[Released]) -> Iterator[tuple[Released, Video]]:
    """One video at a time, so that memory does not grow with the release."""
    for item in items:
        yield item, item.read()
