"""`synthfaces_public`: the 24 made people on whom every shared network is trained; none of them is ever measured."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from bench.data.faces.adapter import PUBLIC, TAKES, MadeFaces, names_of
from bench.registry import dataset
from bench.types import Prepared, Source


@dataset("synthfaces_public")
class SynthFacesPublic(MadeFaces):
    """Public people: encoders, codebooks, decoders and evaluators learn from them."""

    title: ClassVar[str] = "SynthFaces public people (made, 24 people)"

    def load(self, source: Source, canvas_px: int = 64) -> Prepared:
        """As every made video, with its true landmarks: a shared network may learn from them."""
        return replace(super().load(source, canvas_px), landmarks=self._made().landmarks(names_of(source), canvas_px))

    def takes(self) -> dict[str, int]:
        return dict.fromkeys(PUBLIC, TAKES)
