"""Twelve people of one colour each, two labels told by which way a bar lies and moves; 17 to 32 frames of 64 x 64."""

import numpy as np

from bench import Dataset, Prepared, Source, dataset
from bench.seeds import derive

PEOPLE = tuple(f"person-{name}" for name in ("anna", "bela", "cleo", "dora", "egon", "fred", "gina", "hugo", "ines",
                                             "jana", "karl", "lena"))
LABELS = ("flat", "tall")
COLOURS = ((230, 40, 40), (40, 230, 40), (40, 40, 230), (230, 230, 40), (230, 40, 230), (40, 230, 230),
           (240, 140, 40), (130, 40, 230), (130, 130, 130), (30, 30, 30), (235, 235, 235), (30, 110, 60))


@dataset("blocks")
class Blocks(Dataset):
    """A coloured square (who) with a dark and light bar (which label) that moves; a little noise over all."""

    title = "Blocks (made)"
    licence = "Apache-2.0"
    publishable = True
    public = "blocks_public"
    people = PEOPLE
    takes = 4

    def __init__(self):
        self.seed = 0

    def sources(self, root, seed):
        self.seed = seed
        return [Source(f"source-{person}-{label}-{take}", person, label, {"parity": i % 2})
                for i, person in enumerate(self.people) for label in LABELS for take in range(self._takes(i))]

    def _takes(self, position):
        return self.takes - 2 * (position % 2)  # 2 or 4 videos of a label

    def load(self, source, canvas_px):
        person, rng = self.people.index(source.person), derive(self.seed, self.name, source.id)
        count = int(rng.integers(17, 33))
        frames = np.full((count, canvas_px, canvas_px, 3), COLOURS[person], float)  # (T, S, S, 3)
        start = int(rng.integers(canvas_px))
        for t in range(count):
            lines = (np.arange(8) + start + 2 * t) % canvas_px
            stripes = 255.0 * (np.arange(8) % 2)
            if source.label == "flat":
                frames[t][lines] = stripes[:, None, None]  # (8, S, 3)
            else:
                frames[t][:, lines] = stripes[:, None]  # (S, 8, 3)
        frames += rng.normal(0, 6, frames.shape)
        return Prepared(np.clip(frames, 0, 255).astype(np.uint8), 25.0,
                        {"fps": 25.0, "width": canvas_px, "height": canvas_px, "rotation": 0, "frames": count})
