"""Reading a release folder as an attacker or metric is granted it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import bench.video as video_io
from bench.errors import DataError
from bench.types import CLIP_FRAMES, Video


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
    first_stream: int = 0  # of an enforced method: where its clips stand in the transcript
    streams: int = 0

    @property
    def clips_read(self) -> int:
        """How many clips an attacker who reads this file may have read about: a renderer sees all of a video."""
        return 1 if self.clip >= 0 else -(-self.frames // CLIP_FRAMES)

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
                                  who["role"], record.get("first_stream", 0), record.get("streams", 0)))
    return sorted(found, key=lambda r: (r.video, r.draw, r.clip))


def isolation_of(folder: Path) -> dict[str, Any] | None:
    """The isolation that was in force when an enforced method was released; None for the other lanes."""
    found = json.loads((folder / "release" / "release.json").read_text(encoding="utf-8")).get("isolation")
    return found if isinstance(found, dict) else None


def clips_read(items: Sequence[Released], trials: int = 1) -> dict[str, int]:
    """{clips that a trial reads about: number of trials}, for ceilings."""
    counts: dict[str, int] = {}
    for item in items:
        counts[str(item.clips_read)] = counts.get(str(item.clips_read), 0) + trials
    return counts


def people_of(items: Sequence[Released]) -> list[str]:
    return sorted({item.person for item in items})


def batches(items: Sequence[Released]) -> Iterator[tuple[Released, Video]]:
    """One video at a time, so that memory does not grow with the release."""
    for item in items:
        yield item, item.read()
