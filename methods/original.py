"""The video as it is: what an attack sees when nothing protects the person."""

from __future__ import annotations

import numpy as np

from bench import Anonymizer, Video, method


@method("original")
class Original(Anonymizer):
    """Releases the video unchanged: released(t) = input(t). It promises nothing and hides nothing. It is the positive
    control: an attack that fails here is too weak to say anything about any other row, and the expression accuracy
    here is the ceiling that other methods can hope for. Source: ours, as the control of every attack.
    """

    control = "positive"

    def release(self, video: Video, rng: np.random.Generator) -> Video:
        """A copy of the input, uint8 (T, H, W, 3); `rng` is not read."""
        return Video(video.frames.copy(), video.fps)
