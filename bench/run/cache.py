"""The work folder: one folder per finished stage, named by a digest of everything that made it.

    lock                      held by the one run that may write
    stages/<kind>/<digest>/   output of a stage, with stage.json; it appears by rename, whole or not at all
    tmp/                      stages being written; emptied by the next run
    failed/<kind>-<digest>.json, logs/<kind>-<digest>.log     what went wrong, kept until the stage succeeds
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import WorkFolderError

LOG_TAIL_LINES = 40


def canonical(value: Any) -> str:
    """JSON with sorted keys: the text that digests are made of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def digest_json(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()


@dataclass(frozen=True)
class WorkFolder:
    """Paths inside one work folder; nothing is created before `open_for_writing`."""

    root: Path

    def stage(self, kind: str, digest: str) -> Path:
        return self.root / "stages" / kind / digest[:20]

    def is_done(self, kind: str, digest: str) -> bool:
        return (self.stage(kind, digest) / "stage.json").is_file()

    def log(self, kind: str, digest: str) -> Path:
        return self.root / "logs" / f"{kind}-{digest[:20]}.log"

    def failure(self, kind: str, digest: str) -> Path:
        return self.root / "failed" / f"{kind}-{digest[:20]}.json"

    def read_stage(self, kind: str, digest: str) -> dict[str, Any]:
        return json.loads((self.stage(kind, digest) / "stage.json").read_text(encoding="utf-8"))

    def log_tail(self, kind: str, digest: str) -> list[str]:
        path = self.log(kind, digest)
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        return text.splitlines()[-LOG_TAIL_LINES:]

    def finished(self, kind: str) -> Iterator[dict[str, Any]]:
        """stage.json of every finished stage of a kind, with its folder, in a stable order."""
        base = self.root / "stages" / kind
        for path in sorted(base.glob("*/stage.json")):
            yield {**json.loads(path.read_text(encoding="utf-8")), "folder": path.parent}

    def failures(self, kind: str = "") -> Iterator[dict[str, Any]]:
        """Records of failed stages, in a stable order."""
        for path in sorted((self.root / "failed").glob(f"{kind}*.json")):
            yield json.loads(path.read_text(encoding="utf-8"))

    @contextmanager
    def open_for_writing(self) -> Iterator[None]:
        """Create the folder, hold its lock, clear what a killed run left. Raises WorkFolderError when it is in use."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            handle = open(self.root / "lock", "a+", encoding="utf-8")
        except OSError as error:
            raise WorkFolderError(f"The work folder {self.root} cannot be written: {error.strerror}.",
                                  "Every stage is kept there.", "Give another one with --workdir.") from error
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                handle.seek(0)
                raise WorkFolderError(
                    f"The work folder {self.root} is in use by process {handle.read().strip() or '?'}.",
                    "Two runs in one folder would write the same stages.",
                    "Wait for it to end, or give another folder with --workdir.") from error
            handle.truncate(0)
            handle.write(str(os.getpid()))
            handle.flush()
            shutil.rmtree(self.root / "tmp", ignore_errors=True)
            for name in ("tmp", "stages", "failed", "logs"):
                (self.root / name).mkdir(exist_ok=True)
            yield

    def in_use(self) -> bool:
        """Does a run hold the lock now?"""
        try:
            with open(self.root / "lock", encoding="utf-8") as handle:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def commit(self, kind: str, digest: str, made: Path, record: dict[str, Any]) -> Path:
        """Move a whole output into place and forget earlier failures of the stage."""
        write_json(made / "stage.json", record)
        target = self.stage(kind, digest)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.rename(made, target)
        self.failure(kind, digest).unlink(missing_ok=True)
        return target


def write_json(path: Path, value: Any) -> None:
    """Write JSON aside and rename it, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(path.suffix + ".part")
    aside.write_text(json.dumps(value, indent=1, sort_keys=True, default=str) + "\n", encoding="utf-8")
    os.replace(aside, path)
