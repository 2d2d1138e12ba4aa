"""The committed counts and tracks: packed small, checked against their digests when they are read.

    counts.npz     counts uint8 (600, 1200, 4), differences from frame to frame
    tracks.npz     for some episodes: what was in view, one row an object and frame, differences inside each object
    digests.json   SHA-256 of the unpacked arrays, the version of SUMO
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bench.errors import DataError

FOLDER = Path(__file__).resolve().parent
EPISODES, PUBLIC = 600, 400  # the first 400 are public
TRACKED = (*range(4), *range(PUBLIC, PUBLIC + 20))  # with tracks: some public ones to calibrate on, 20 test ones
_COLUMNS = 7  # of a track, see simulate.TRACK


def digest(array: np.ndarray) -> str:
    """SHA-256 over shape, type and bytes."""
    head = f"{array.shape} {array.dtype.str} ".encode()
    return hashlib.sha256(head + np.ascontiguousarray(array).tobytes()).hexdigest()


def digests(counts: np.ndarray, tracks: Mapping[int, np.ndarray], version: str) -> dict:
    return {"sumo": version, "counts": digest(counts),
            "tracks": {str(e): digest(t) for e, t in sorted(tracks.items())}}


def write(folder: Path, counts: np.ndarray, tracks: Mapping[int, np.ndarray], version: str) -> None:
    """Pack into `folder`; the same arrays give the same bytes."""
    np.savez_compressed(folder / "counts.npz", delta=np.diff(counts, axis=1, prepend=np.uint8(0)))
    packed: dict[str, Any] = {f"e{e}": _packed(t) for e, t in sorted(tracks.items())}
    np.savez_compressed(folder / "tracks.npz", **packed)
    text = json.dumps(digests(counts, tracks, version), indent=1)
    (folder / "digests.json").write_text(text + "\n", encoding="utf-8")


def _packed(track: np.ndarray) -> np.ndarray:
    """Differences down the rows, columns apart: int16 (7, n)."""
    return np.diff(track.astype(np.int16), axis=0, prepend=np.zeros((1, _COLUMNS), np.int16)).T.copy()


def _unpacked(packed: np.ndarray) -> np.ndarray:
    return np.cumsum(packed.T, axis=0, dtype=np.int16).astype(np.int32)


@cache
def counts() -> np.ndarray:
    """uint8 (600, 1200, 4): moving, stopped, walking, waiting in every frame. Raises DataError when changed."""
    with np.load(FOLDER / "counts.npz") as found:
        values = np.cumsum(found["delta"], axis=1, dtype=np.uint8)
    _check("counts.npz", digest(values), _known()["counts"])
    values.flags.writeable = False
    return values


@cache
def tracks(episode: int) -> np.ndarray:
    """int32 (n, 7), columns simulate.TRACK, sorted by object, then frame. Raises DataError when changed or absent."""
    if episode not in TRACKED:
        raise DataError(f"Episode {episode} has no committed tracks.", "Only some episodes can be drawn without SUMO.",
                        f"Choose one of {', '.join(map(str, TRACKED))}.")
    with np.load(FOLDER / "tracks.npz") as found:
        values = _unpacked(found[f"e{episode}"])
    _check("tracks.npz", digest(values), _known()["tracks"][str(episode)])
    values.flags.writeable = False
    return values


def _known() -> dict:
    return json.loads((FOLDER / "digests.json").read_text(encoding="utf-8"))


def _check(name: str, found: str, wanted: str) -> None:
    if found != wanted:
        raise DataError(f"{name} is not the committed one.", f"Its digest is {found[:16]}, not {wanted[:16]}.",
                        "Restore it from the repository.")
