"""Read-only folders that hold just what a stage's threat model grants, and tensors on disk."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save_file

import bench.video as video_io
from bench import seeds
from bench.data.clips import Clips
from bench.errors import PluginError
from bench.run.cache import write_json
from bench.types import LABELS, Video

PUBLIC_STREAMS = "streams.safetensors"


def save_tensors(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write arrays as safetensors; no pickle."""
    save_file({k: np.asarray(v, order="C") for k, v in tensors.items()} or {"empty": np.zeros(0, np.uint8)}, path)


def state_of(plugin: Any, name: str) -> dict[str, np.ndarray]:
    """What a fitted plug-in keeps. Raises PluginError when `state` gives anything but named arrays of numbers."""
    state = plugin.state()
    if not isinstance(state, Mapping):
        raise PluginError(f"`state` of {name} gave {type(state).__name__}, not a mapping of names to arrays.",
                          "What is fitted is kept as arrays and given back to `load`.",
                          "Return a dict such as {\"weights\": array}; an empty one where nothing is fitted.")
    arrays = {key: np.asarray(value) for key, value in state.items()}
    if wrong := [key for key, value in arrays.items() if not isinstance(key, str) or value.dtype.kind not in "biuf"]:
        raise PluginError(f"`state` of {name} gave {wrong[0]!r}, which is no named array of numbers.",
                          "States are stored as tensors.", "Turn it into an array of numbers or booleans.")
    return arrays


def load_tensors(path: Path) -> dict[str, np.ndarray]:
    """Arrays of a safetensors file; float16, as shipped networks are stored, comes back as float32."""
    found = load(path.read_bytes())  # not mapped: a locked-in process may not share memory
    return {k: v.astype(np.float32) if v.dtype == np.float16 else v for k, v in found.items() if k != "empty"}


def fitted_state(inputs: Mapping[str, Path]) -> dict[str, np.ndarray]:
    """What the `fit` stage among a stage's inputs gave; empty for a method that does not fit."""
    return load_tensors(inputs["fit"] / "state.safetensors") if "fit" in inputs else {}


def asset_tensors(inputs: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    """The shared networks among a stage's inputs ("asset:NAME"), each as torch tensors by name."""
    import torch

    return {name.partition(":")[2]: {k: torch.from_numpy(np.array(v)) for k, v in
                                     load_tensors(folder / "weights.safetensors").items()}
            for name, folder in inputs.items() if name.startswith("asset:")}


class DevelopmentVideo:
    """One development video with the labels that the method declared in `needs`; any other label raises."""

    def __init__(self, folder: Path, record: Mapping[str, Any], needs: frozenset[str]):
        self._path, self._record, self._needs = folder / record["file"], record, needs

    @property
    def video(self) -> Video:
        return video_io.read(self._path)

    def __getattr__(self, name: str) -> Any:
        if name not in LABELS:
            raise AttributeError(name)
        if name not in self._needs:
            raise PluginError(f"fit reads the label {name!r}, which the method does not declare.",
                              "The board shows which labels a method was trained with.",
                              f'Add "{name}" to `needs`, or do without it.')
        return self._record[name]


class DevelopmentData:
    """Development people's videos, in two parts: `train` and `calibration`."""

    def __init__(self, folder: Path, needs: frozenset[str]):
        records = json.loads((folder / "view.json").read_text(encoding="utf-8"))
        self._videos = {part: [DevelopmentVideo(folder, r, needs) for r in records if r["part"] == part]
                        for part in ("train", "calibration")}

    @property
    def train(self) -> list[DevelopmentVideo]:
        return self._videos["train"]

    @property
    def calibration(self) -> list[DevelopmentVideo]:
        return self._videos["calibration"]

    def __iter__(self) -> Iterator[DevelopmentVideo]:
        return iter(self.train + self.calibration)


class PublicStreams:
    """Public episodes of a traffic dataset. steps: int16 (N, chunks, 12), quarters; asked, priority: int (N, T)."""

    def __init__(self, folder: Path):
        found = load_tensors(folder / PUBLIC_STREAMS)
        self.steps, self.asked, self.priority = found["steps"], found["asked"], found["priority"]


def development(folder: Path, needs: frozenset[str]) -> DevelopmentData | PublicStreams:
    """What a method may fit on: the videos of development people, or public episodes."""
    return PublicStreams(folder) if (folder / PUBLIC_STREAMS).is_file() else DevelopmentData(folder, needs)


def write_public_streams(prepared: Path, out: Path) -> Path:
    """A folder with the public episodes of a prepared traffic dataset, nothing of the others."""
    out.mkdir(parents=True)
    with np.load(prepared / "streams.npz") as found:
        public = found["public"]
        save_tensors(out / PUBLIC_STREAMS, {name: found[name][public] for name in ("steps", "asked", "priority")})
    (out / PUBLIC_STREAMS).chmod(0o444)
    return out


def write_development_view(clips: Clips, needs: list[str], seed: int, out: Path) -> Path:
    """A folder with development videos under random names and only the labels in `needs`, as class numbers."""
    rows = clips.rows("train", "calibration")
    people = {p: i for i, p in enumerate(sorted({r.person for r in rows}))}
    order = seeds.derive(seed, "development-view").permutation(len(rows))
    records = []
    out.mkdir(parents=True)
    for number, row in zip(order, rows):
        labels = {"expression": clips.labels.index(row.label), "identity": people[row.person],
                  "attributes": json.loads(row.attributes), "same_video": int(number)}
        file = f"{number:05d}.mkv"
        link(clips.folder / "media" / row.file, out / file)
        records.append({"file": file, "part": row.part, **{k: v for k, v in labels.items() if k in needs}})
    write_json(out / "view.json", sorted(records, key=lambda r: r["file"]))
    for path in out.iterdir():
        path.chmod(0o444)
    return out


def link(source: Path, target: Path) -> None:
    """A copy that shares no inode with the prepared data, so that nobody can write through it."""
    shutil.copyfile(source, target)
    os.utime(target, (0, 0))
