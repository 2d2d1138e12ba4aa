"""A grey canvas: what an attack sees when there is nothing to see."""

from __future__ import annotations

import numpy as np

from bench import Anonymizer, Video, method

GREY = 127  # 8-bit level


@method("blackout")
class Blackout(Anonymizer):
    """Paints every pixel of every frame the same grey: released(t) = 127. Nothing of the picture is left; the number
    of frames, their size and their rate still are, because they count as public here. It is the negative control: an
    attack that beats chance on this row has found a leak in the benchmark, and what is left of the expression
    accuracy is guessing. Source: ours, as the control of every attack.
    """

    control = "negative"

    def release(self, video: Video, rng: np.random.Generator) -> Video:
        """uint8 (T, H, W, 3), all 127; `rng` is not read."""
        return Video(np.full_like(video.frames, GREY), video.fps)
