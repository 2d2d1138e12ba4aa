"""`synthfaces_demo`: 36 made people (9 test, 3 calibration, 24 train) that occur in no other dataset."""

from __future__ import annotations

from typing import ClassVar

from bench.data.faces.adapter import SplitFaces
from bench.registry import dataset


@dataset("synthfaces_demo")
class SynthFacesDemo(SplitFaces):
    """The small sister of synthfaces: the same recipe, other people, minutes instead of an hour."""

    title: ClassVar[str] = "SynthFaces demo (made, 36 people)"
