"""A dataset that fails in the way the file `fault` in its root says."""

import errno
import os
import time

import numpy as np

from bench import DataError, Dataset, Diverged, Prepared, Source, dataset
from bench.errors import Undefined

FAULTS = {
    "disk": OSError(errno.ENOSPC, "No space left on device"), "bug": RuntimeError("a bug"),
    "data": DataError("These are no videos.", "Why.", "Mend them."), "diverged": Diverged("the loss became nan"),
    "undefined": Undefined("one label only"), "memory": MemoryError(),
}


@dataset("troubled")
class Troubled(Dataset):
    """Twelve grey videos, or the fault after the first few of them."""

    title = "Troubled (made)"
    needs_root = True

    def sources(self, root, seed):
        self.fault = (root / "fault").read_text()
        print(f"the fault is {self.fault}")
        return [Source(f"{p}{t}", p, "same", {}) for p in "abcdef" for t in (1, 2)]

    def load(self, source, canvas_px):
        if source.id == "c1":
            self._fail()
        return Prepared(np.full((2, canvas_px, canvas_px, 3), 128, np.uint8), 25.0)

    def _fail(self):
        if self.fault in FAULTS:
            raise FAULTS[self.fault]
        if self.fault == "exit":
            os._exit(5)
        if self.fault == "kill":
            os.kill(os.getpid(), 9)
        if self.fault.startswith("sleep"):
            time.sleep(float(self.fault.partition(" ")[2]))
