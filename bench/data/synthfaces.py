"""`synthfaces`: 100 made people with a committed split (25 test, 8 calibration, 67 train), six expressions."""

from __future__ import annotations

from typing import ClassVar

from bench.data.faces.adapter import SplitFaces
from bench.registry import dataset


@dataset("synthfaces")
class SynthFaces(SplitFaces):
    """Made talking faces, 32 frames a video and 40 in a quarter of them; 4 takes for test people, else 2."""

    title: ClassVar[str] = "SynthFaces (made, 100 people)"
