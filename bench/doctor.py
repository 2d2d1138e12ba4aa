"""`veilbench doctor`: is this machine fit for a run, and what protects the data on it."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench import registry, store
from bench.errors import UserError


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    what: str
    ok: bool
    text: str


def examine(workdir: Path) -> list[Finding]:
    """All findings, in a fixed order; a check that raises is a finding, not a crash."""
    checks: list[tuple[str, Callable[[], str]]] = [
        ("cores", _cores), ("memory", _memory), ("disk", lambda: _disk(workdir)), ("torch", _torch),
        ("packages", _packages), ("video", _video), ("detector", _detector), ("plug-ins", _plugins),
        ("isolation", _isolation), ("database", lambda: _database(workdir))]
    findings = []
    for what, check in checks:
        try:
            findings.append(Finding(what, True, check()))
        except UserError as error:
            findings.append(Finding(what, False, str(error)))
        except Exception as error:
            findings.append(Finding(what, False, f"{type(error).__name__}: {error}"))
    return findings


def _cores() -> str:
    return f"{os.cpu_count()} cores; a stage uses one, --jobs sets how many run at a time"


def _memory() -> str:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    if total < 3.5:
        raise UserError(f"{total:.1f} GiB of memory.", "The demo needs up to 4 GiB with two jobs.", "Use --jobs 1.")
    return f"{total:.1f} GiB"


def _disk(workdir: Path) -> str:
    place = next(p for p in [workdir.resolve(), *workdir.resolve().parents] if p.exists())
    free = shutil.disk_usage(place).free / 2**30
    if free < 3:
        raise UserError(f"{free:.1f} GiB free at {place}.", "The demo needs about 1 GiB, a suite more.", "Free space.")
    return f"{free:.0f} GiB free at {place}"


def _torch() -> str:
    import torch

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no GPU, none is needed"
    return f"{torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {gpu}"


def _packages() -> str:
    import cv2

    if int(cv2.__version__.split(".")[0]) >= 5:
        raise UserError(f"OpenCV {cv2.__version__}.", "Version 5 lacks detectors that are needed.",
                        "Install `opencv-python-headless<5`.")
    names = ("torchvision", "timm", "facenet-pytorch", "pytorchvideo", "datasets", "duckdb", "av")
    return ", ".join(f"{n} {importlib.metadata.version(n)}" for n in names)


def _video() -> str:
    import tempfile

    import numpy as np

    import bench.video as video_io

    frames = np.arange(3 * 32 * 32 * 3, dtype=np.uint32).astype(np.uint8).reshape(3, 32, 32, 3)
    with tempfile.TemporaryDirectory() as folder:
        video_io.write_lossless(Path(folder) / "x.mkv", frames, 25)
        if not np.array_equal(video_io.read(Path(folder) / "x.mkv").frames, frames):
            raise UserError("FFV1 does not give back the same frames.", "Releases would not be what was released.",
                            "Reinstall the `av` package.")
    return "FFV1 gives back every bit"


def _detector() -> str:
    import numpy as np

    from bench.detect import FaceDetector

    found = FaceDetector().detect(np.full((1, 160, 160, 3), 127, np.uint8))
    if len(found[0]):
        raise UserError("MTCNN finds a face in a grey picture.", "", "Reinstall facenet-pytorch==2.5.3.")
    return "MTCNN loads from its wheel"


def _plugins() -> str:
    counts = [f"{len(registry.names(kind))} {kind}" for kind in registry.KINDS]
    return ", ".join(counts)


def _isolation() -> str:
    from bench.registry import Spec
    from bench.run import sandbox
    from bench.run.workers import method_facts

    isolation = sandbox.available()
    method_facts(Spec("original"))
    if not isolation.green:
        return f"{isolation.text} Releases made here are not green"
    return isolation.text


def _database(workdir: Path) -> str:
    path = workdir / "veilbench.duckdb"
    if not path.exists():
        return f"none yet at {path}"
    return f"{len(store.read_cells(path))} cells at {path}"
