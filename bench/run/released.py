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
    memory: bool = True  # may a clip of a whole video depend on the video's other clips?
    clip_frames: int = CLIP_FRAMES  # of the clips that the method releases

    @property
    def clips(self) -> int:
        """Clips in this file; the last one may be short."""
        return -(-self.frames // self.clip_frames)

    def clips_read(self, reads: str) -> int:
        """How many clips somebody may have read about who reads one "frame", one "clip" or the whole "video"."""
        return self.clips if reads == "video" or self.memory else 1

    def read(self) -> Video:
        """The frames, exactly as released. Raises DataError when the file has another number of frames."""
        video = video_io.read(self.path)
        if len(video) != self.frames:
            raise DataError(f"{self.path.name} has {len(video)} frames, its manifest says {self.frames}.", "",
                            "Release it again.")
        return video


def open_release(folder: Path, *, parts: Sequence[str] = (), role: str | None = None,
                 draw: int | None = None, intervention: str | None = None) -> list[Released]:
    """Files of a release stage, joined with its id map, sorted by source video.

    Raises DataError for a folder whose inputs were changed, unless the caller asks for that very `intervention`.
    """
    check_intervention(folder / "release", intervention)
    known = {r["id"]: r for r in pq.read_table(folder / "vault" / "idmap.parquet").to_pylist()}
    facts = json.loads((folder / "release" / "release.json").read_text(encoding="utf-8"))
    memory, length = facts.get("memory", True), facts.get("clip_frames", CLIP_FRAMES)
    found = []
    for record in pq.read_table(folder / "release" / "manifest.parquet").to_pylist():
        who = known[record["id"]]
        if (not parts or who["part"] in parts) and role in (None, who["role"]) and draw in (None, record["draw"]):
            found.append(Released(folder / "release" / "media" / record["file"], record["frames"], record["draw"],
                                  record["clip"], who["video"], who["person"], who["label"], who["part"],
                                  who["role"], record.get("first_stream", 0), record.get("streams", 0), memory,
                                  length))
    return sorted(found, key=lambda r: (r.video, r.draw, r.clip))


def check_intervention(release: Path, wanted: str | None = None) -> None:
    """Raises DataError unless release.json names just this intervention (None: none): all others are not to be read."""
    found = json.loads((release / "release.json").read_text(encoding="utf-8")).get("intervention")
    if found != wanted:
        raise DataError(f"The folder {release.name} holds " + (f"the diagnostic {found!r}" if found else "a release")
                        + f", {wanted or 'a release'} was wanted.",
                        "Changed inputs give nobody's release: it is never shown, published, imported or ranked.",
                        "Use the folder of the ordinary release.")


def isolation_of(folder: Path) -> dict[str, Any] | None:
    """The isolation that was in force when an enforced method was released; None for the other lanes."""
    found = json.loads((folder / "release" / "release.json").read_text(encoding="utf-8")).get("isolation")
    return found if isinstance(found, dict) else None


def people_of(items: Sequence[Released]) -> list[str]:
    return sorted({item.person for item in items})


def batches(items: Sequence[Released]) -> Iterator[tuple[Released, Video]]:
    """One video at a time, so that memory does not grow with the release."""
    for item in items:
        yield item, item.read()


def cut(video: Video) -> list[Video]:
    """The clips of a video, 16 frames each, the last one as short as its unpadded part."""
    return [Video(video.frames[start:start + CLIP_FRAMES], video.fps) for start in range(0, len(video), CLIP_FRAMES)]


def isolated(items: Sequence[Released]) -> Iterator[tuple[Released, int, Video]]:
    """(item, clip number, clip) for files that are clips and for whole videos, which are cut."""
    for item in items:
        clips = [item.read()] if item.clip >= 0 else cut(item.read())
        for number, clip in enumerate(clips):
            yield item, max(item.clip, 0) + number, clip


def drawn(items: Sequence[Released], *, by_clip: bool) -> Iterator[tuple[Released, int, tuple[Video, ...]]]:
    """(item of the first draw, clip number or -1, videos of all draws): each input once, its draws together."""
    groups: dict[tuple[str, int], list[Released]] = {}
    for item in items:
        groups.setdefault((item.video, item.clip), []).append(item)
    for group in groups.values():
        first, videos = group[0], [item.read() for item in sorted(group, key=lambda i: i.draw)]
        if by_clip and first.clip < 0:
            for number, clips in enumerate(zip(*map(cut, videos), strict=True)):
                yield first, number, clips
        else:
            yield first, first.clip, tuple(videos)
