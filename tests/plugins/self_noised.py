"""A declared method, honest or with one fault: paints the mean colour of each frame with noise that it adds itself."""

import numpy as np

from bench import FullClaim, Video, method
from bench.privacy.claims import BranchClaim
from bench.privacy.declared import DeclaredMethod, Event

LAWS = {"gaussian": {"clip_norm": 1.0, "noise_std": 0.05}, "exponential": {"clip_norm": 1.0, "epsilon": 40},
        "discrete_laplace": {"clip_norm": 2, "scale": 1, "norm": "box"}}


@method("self_noised")
class SelfNoised(DeclaredMethod):
    """Mean colour of a frame plus noise."""

    variants = {**{fault: {"fault": fault} for fault in ("none", "few", "many", "unknown", "shape", "writes", "zero")},
                "metric": {"law": "exponential"}, "clear": {"law": None}, "frame": {"unit": "frame"},
                "wide": {"dim": None}, "long": {"frames": 32}, "response": {"law": "randomized_response"}}

    def __init__(self, *, fault: str = "", law: str | None = "gaussian", unit: str = "", dim: int | None = 3,
                 frames: int = 16):
        self.fault = fault
        more = {"epsilon": 1} if law == "randomized_response" else LAWS.get(law or "", {})
        branch = BranchClaim("colour", law, dim=dim, **more)
        unit = unit or ("image_metric" if law == "exponential" else "clip")
        self.terms = FullClaim(unit, branches=(branch,), frames=frames)

    def release(self, video, ctx):
        if self.fault == "none":
            return video
        if self.fault == "writes":
            video.frames[0] = 0
        rows = video.frames.mean(axis=(1, 2)) / 255.0 - 0.5  # (16, 3)
        name, count = "color" if self.fault == "unknown" else "colour", len(rows) - (self.fault == "few")
        noise = np.zeros(rows.shape)
        noise[:count] = ctx.noise.draw(Event(name, 0 if self.fault == "zero" else count))
        if self.fault == "many":
            ctx.noise.draw(Event(name, 1))
        paint = np.clip((rows + noise + 0.5) * 255, 0, 255).astype(np.uint8)
        frames = np.broadcast_to(paint[:, None, None], video.frames.shape).copy()
        return Video(frames[:3] if self.fault == "shape" else frames, video.fps)
