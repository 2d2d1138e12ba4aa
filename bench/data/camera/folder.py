"""A camera's folder: what is public about it, its videos, and counts made by hand.

    <camera>/*.mp4          recordings that are released (mkv, avi, mov, flv, webm too)
    <camera>/NAME.csv       optional: true counts of NAME.mp4, a row a chunk
    <camera>/public/*.mp4   recordings that anybody may see: methods are fitted on them
    <camera>/empty/*        pictures (png, jpg) or videos of the same view that anybody may see, better without people
    <camera>/camera.toml    optional: people, person_px, vehicle_px, sign, view_px, see experts.Camera
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from bench.data.camera.experts import EMPTY_FRAMES, Camera
from bench.errors import DataError, UserError, nearest
from bench.traffic import CHUNK_FRAMES, COMPONENTS, EXPERTS, columns
from bench.video import iter_frames, probe

SUFFIXES = (".mp4", ".mkv", ".avi", ".mov", ".flv", ".webm")
PICTURES = (".png", ".jpg", ".jpeg")
MAKE_EMPTY = "Save some pictures of the same view on which nobody is to be protected, best an empty street, as " \
             "{folder}/*.png; a public recording serves as well, its passers-by are ignored where most pictures " \
             "show the street. Without them only people = \"hog\" in camera.toml works, and vehicles are not read."
_KEYS = {"people": str, "person_px": (int, float, list), "vehicle_px": (int, float, list, bool), "sign": str,
         "view_px": list}


def videos(folder: Path) -> list[Path]:
    """Video files that lie right in a folder, sorted."""
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(p for p in found if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))


def camera_of(folder: Path) -> Camera:
    """The camera of a folder. Raises DataError that says which setting is wrong, or how to make public pictures."""
    folder = Path(folder)
    said = _settings(folder / "camera.toml")
    empty = _empty(folder / "empty")
    if empty is None and said.get("people") != "hog":
        raise DataError(f"There is no public background: {folder / 'empty'} holds no picture.",
                        "Experts see one chunk of 2 s at a time, so what belongs to the street must be learnt "
                        "elsewhere, from pictures that may be seen.", MAKE_EMPTY.format(folder=folder / "empty"))
    try:
        return Camera(empty, **said)
    except (TypeError, ValueError) as error:
        raise DataError(f"{folder / 'camera.toml'} cannot be used ({error}).", "", "Mend the setting.") from error


def _settings(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is no TOML ({error}).", "", "Mend it, or leave it out.") from error
    for key, value in said.items():
        if key not in _KEYS:
            raise DataError(f"{path} sets {key!r}, which is not known of a camera.", "", nearest(key, _KEYS))
        if not isinstance(value, _KEYS[key]):  # type: ignore[arg-type]
            raise DataError(f"{path}: {key} = {value!r} is of another kind.", "", "See README.md for each setting.")
    for key in ("person_px", "vehicle_px"):
        if key in said:
            said[key] = _pair(path, key, said[key])
    if "view_px" in said:
        said["view_px"] = tuple(_whole(path, "view_px", said["view_px"], 4))
    return said


def _pair(path: Path, key: str, value: Any) -> tuple[float, float] | None:
    """One area for the whole picture, or (top, bottom); false: none comes."""
    if value is False and key == "vehicle_px":
        return None
    two = value if isinstance(value, list) else [value, value]
    if len(two) != 2 or not all(type(v) in (int, float) for v in two):
        raise DataError(f"{path}: {key} = {value!r}.", "It is an area in pixels.",
                        "Give one number, or two: of one at the top of the picture and at its bottom.")
    return float(two[0]), float(two[1])


def _whole(path: Path, key: str, value: list, count: int) -> list[int]:
    if len(value) != count or not all(type(v) is int and v >= 0 for v in value):
        raise DataError(f"{path}: {key} = {value!r}.", "", f"Give {count} whole numbers: left, top, width, height.")
    return value


def _empty(folder: Path) -> np.ndarray | None:
    """Public pictures, uint8 (n, H, W, 3), at most as many as a background is learnt on; None without any."""
    found: list[np.ndarray] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.suffix.lower() in PICTURES:
            image = cv2.imread(str(path), cv2.IMREAD_COLOR)
            if image is None:
                raise DataError(f"{path} cannot be read as a picture.", "", "Save it again, or leave it out.")
            found.append(cv2.cvtColor(image, cv2.COLOR_BGR2RGB))
        elif path.suffix.lower() in SUFFIXES:
            seconds = max(1, float(probe(path).duration))
            found += list(iter_frames(path, fps=min(1.0, EMPTY_FRAMES / seconds)))[:EMPTY_FRAMES]
    if len({picture.shape for picture in found}) > 1:
        raise DataError(f"The pictures in {folder} have different sizes.", "They show one view.",
                        "Keep those of the size of the videos.")
    spread = np.linspace(0, len(found) - 1, min(len(found), EMPTY_FRAMES)).round().astype(int)
    return np.stack([found[k] for k in spread]) if found else None


# ---- counts made by hand -------------------------------------------------------------------------------------------

def truth_of(path: Path, count: int) -> np.ndarray:
    """True steps int16 (count, 12) from NAME.csv, -1 where nothing is said; all of them where there is no file.

    Columns: chunk, then any of moving, stopped, walking, waiting (whole numbers) and sign, weather (words).
    Raises DataError with file and line.
    """
    out = np.full((count, len(COMPONENTS)), -1, np.int16)
    if not path.is_file():
        return out
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        named = {"sign": "signs", "weather": "environment"}
        known = ("chunk", *COMPONENTS[:4], *named)
        if wrong := [name for name in rows.fieldnames or ["nothing"] if name not in known]:
            raise DataError(f"{path} has a column {wrong[0]!r}.", "", nearest(wrong[0], known))
        if "chunk" not in (rows.fieldnames or ()):
            raise DataError(f"{path} has no column 'chunk'.", "A row speaks of one chunk of 2 s, counted from 0.",
                            f"Columns: {', '.join(known)}.")
        for line, row in enumerate(rows, 2):
            try:
                _take(out, row, named)
            except UserError:
                raise
            except (ValueError, TypeError, IndexError) as error:
                raise DataError(f"{path}, line {line}: {error}.", "A count is a whole number that is not negative, a "
                                "mean over frames is made here; a state is one of the schema's.", "Mend the line.") \
                    from error
    return out


def _take(out: np.ndarray, row: dict[str, str], named: dict[str, str]) -> None:
    chunk = _count("chunk", row["chunk"])
    if chunk >= len(out):
        raise ValueError(f"chunk {chunk} lies behind the last one, {len(out) - 1}")
    for key, text in row.items():
        if key is None or text is None:
            raise ValueError("it has another number of columns than the first line")
        if key in COMPONENTS[:4] and text.strip():
            out[chunk, COMPONENTS.index(key)] = _count(key, text) * CHUNK_FRAMES
        elif key in named and text.strip():
            states = next(e for e in EXPERTS if e.name == named[key]).components
            if text.strip() not in states:
                raise ValueError(f"{key} = {text.strip()!r}, known: {', '.join(states)}")
            part = columns(named[key])
            out[chunk, part] = CHUNK_FRAMES * np.eye(len(states), dtype=np.int16)[states.index(text.strip())]


def _count(key: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"{key} = {text.strip()!r}")
    if int(text) > 1000:
        raise ValueError(f"{key} = {text.strip()} is more than anybody counts in one picture")
    return int(text)


def labels_without_video(folder: Path) -> Iterator[str]:
    """Files of counts whose video is not there."""
    stems = {p.stem for p in videos(folder)}
    yield from (p.name for p in sorted(folder.glob("*.csv")) if p.stem not in stems)
