"""Twenty made traffic episodes of ten windows: counts that drift, states that stay; twelve are public."""

import numpy as np

from bench import DataError, dataset
from bench.data.streams import StreamDataset, Table
from bench.seeds import derive

EPISODES, PUBLIC, CHUNKS = 20, 12, 305  # five chunks are left over


@dataset("few_streams")
class FewStreams(StreamDataset):
    """Counts from Poisson draws around a level of each episode, sign and weather that change every 61 chunks."""

    title = "Few streams (made)"
    licence = "Apache-2.0"
    publishable = True

    def table(self, root, report):
        if root is not None:
            raise DataError("few_streams reads no folder.", "", "")
        rng = derive(7, "few_streams")
        level = np.exp(rng.normal(0, 0.5, (EPISODES, 1, 4))) * np.array([16, 24, 12, 4.0])
        counts = rng.poisson(level, (EPISODES, CHUNKS, 4))
        states = [np.repeat(rng.integers(4, size=(EPISODES, 5)), 61, axis=1) for _ in range(2)]
        labels = [4 * (s[..., None] == np.arange(4)) for s in states]
        steps = np.concatenate([counts, *labels], axis=2)
        return Table(tuple(f"e{k:02d}" for k in range(EPISODES)), steps, np.arange(EPISODES) < PUBLIC)
