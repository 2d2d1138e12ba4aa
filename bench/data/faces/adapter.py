"""What the three made datasets share: who takes part, how videos are named, and how one is made from its name."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bench.data.faces.maker import EXPRESSIONS, FaceMaker, Truth
from bench.errors import DataError
from bench.types import Dataset, Prepared, Source

FPS = 25.0
TAKES, TEST_TAKES = 2, 4
PUBLIC = tuple(f"p{number:03d}" for number in range(24))
_SPLITS = Path(__file__).resolve().parent.parent / "splits"


@cache
def parts(name: str) -> dict[str, str]:
    """Part of every person of a dataset, from the committed file bench/data/splits/<name>.json."""
    return json.loads((_SPLITS / f"{name}.json").read_text(encoding="utf-8"))["parts"]


class MadeFaces(Dataset):
    """Videos that are drawn when asked for; the same (seed, person, label, take) is the same video, bit for bit.

    `sources(root, seed)` sets the seed of every later `load`; an instance made with `seed=` may load at once.
    """

    licence: ClassVar[str] = "Apache-2.0"
    publishable: ClassVar[bool] = True
    needs_root: ClassVar[bool] = False

    def __init__(self, *, seed: int | None = None):
        self._maker = None if seed is None else FaceMaker(seed)

    def takes(self) -> dict[str, int]:
        """Takes per expression of every person, in order."""
        raise NotImplementedError

    def sources(self, root: Any, seed: int) -> list[Source]:
        """All videos, by person, label and take. `root` is not read."""
        if self._maker is None or self._maker.seed != seed:
            self._maker = FaceMaker(seed)
        out = []
        for person, takes in self.takes().items():
            attributes = self._maker.person(person).attributes
            out += [Source(f"{person}_{label}_{take}", person, label, attributes)
                    for label in EXPRESSIONS for take in range(1, takes + 1)]
        return out

    def load(self, source: Source, canvas_px: int = 64) -> Prepared:
        """Draw one video on the canvas: crop of the true landmarks, margin 1.3, one box per 16-frame clip."""
        return self._prepared(self._made().canvas(names_of(source), canvas_px), canvas_px)

    def full_frame(self, source: Source, size_px: int = 160) -> Prepared:
        """The same performance as the camera saw it, the face not cropped: for detectors and `veilbench release`."""
        return self._prepared(self._made().full_frame(names_of(source), size_px), size_px)

    def truth(self, source: Source, canvas_px: int = 64) -> Truth:
        """Landmarks and forward flow of `load(source, canvas_px)`, see Truth."""
        return self._made().truth(names_of(source), canvas_px)

    def _made(self) -> FaceMaker:
        if self._maker is None:
            raise DataError(f"The dataset {self.name or type(self).__name__} has no seed yet.",
                            "A made video depends on the seed.",
                            "Call sources(root, seed) first, or build the dataset with seed=.")
        return self._maker

    @staticmethod
    def _prepared(frames: np.ndarray, px: int) -> Prepared:
        native = {"fps": FPS, "width": px, "height": px, "rotation": 0, "frames": len(frames)}
        return Prepared(frames=frames, fps=FPS, native=native)


class SplitFaces(MadeFaces):
    """A made dataset with a committed split: test people have more takes."""

    def takes(self) -> dict[str, int]:
        return {person: TEST_TAKES if part == "test" else TAKES for person, part in sorted(parts(self.name).items())}


def names_of(source: Source) -> tuple[str, str, int]:
    person, label, take = source.id.rsplit("_", 2)
    if (person, label) != (source.person, source.label) or label not in EXPRESSIONS or not take.isdecimal():
        raise DataError(f"{source.id!r} is not the id of a made video.", "Ids read person_label_take.",
                        "Take sources from the dataset's sources(root, seed).")
    return person, label, int(take)
