"""`synthfaces_public`: the 24 made people on whom every shared network is trained; none of them is ever measured."""

from __future__ import annotations

from typing import ClassVar

from bench.data.faces.adapter import PUBLIC, TAKES, MadeFaces
from bench.registry import dataset


@dataset("synthfaces_public")
class SynthFacesPublic(MadeFaces):
    """Public people: encoders, codebooks, decoders and evaluators learn from them."""

    title: ClassVar[str] = "SynthFaces public people (made, 24 people)"

    def takes(self) -> dict[str, int]:
        return dict.fromkeys(PUBLIC, TAKES)
