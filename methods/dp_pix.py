"""DP-Pix: pixelation with noise on the cell sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bench import FullClaim, PixelsClaim, PrivateMethod, method
from bench.privacy.accounting import pixel_scale


@method("dp_pix")
class DPPix(PrivateMethod):
    """Cuts every frame into cells of b x b pixels and releases the sum of each cell and colour plus discrete Laplace
    noise; divided by b^2 and cut to 0 .. 255 they fill the cell. The harness itself reads the pixels and draws the
    noise. Protected are any m = 16 pixels of every frame, in all colours: frames and colours add up to epsilon 8 for
    a clip of 16 frames, 1/6 for one frame and colour. Nobody's face is m pixels, so this claim shares
    no section with a claim about a clip. Source: Fan 2018, DP-Pix; the noise on sums is exact here, and the budget
    is that of the clip.
    """

    atom = "pixels"
    encode = "pixels"  # type: ignore[assignment]
    variants = {"m1": {"m": 1}, "m64": {"m": 64}}

    def __init__(self, *, m: int = 16, b: int = 8, epsilon: float = 8.0):
        self.terms = FullClaim(unit="pixels", pixels=PixelsClaim(m=m, b=b, scale=pixel_scale(m, epsilon, frames=16)))

    def render(self, transcripts: Sequence[Mapping[str, np.ndarray]], public, decoding) -> np.ndarray:
        """Cells by row, then column, then colour; the canvas may end inside a cell."""
        b, side = self.terms.pixels.b, public["canvas_px"]
        cells = -(-side // b)
        sums = np.concatenate([released["cells"] for released in transcripts])  # (16 * clips, cells^2 * 3)
        means = np.rint(np.clip(sums / b**2, 0, 255)).astype(np.uint8).reshape(-1, cells, cells, 3)
        return means.repeat(b, axis=1).repeat(b, axis=2)[:, :side, :side]  # (16 * clips, S, S, 3)
