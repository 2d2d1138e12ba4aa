"""Imported once by the fork server, so that no stage pays for importing torch. It starts no thread."""

import datasets  # noqa: F401
import scipy.stats  # noqa: F401
import torch  # noqa: F401
import torch._dynamo  # noqa: F401  (two seconds, which deterministic mode and optimizers would import in every stage)

import bench.nets.image  # noqa: F401
import bench.nets.video  # noqa: F401
import bench.run.stages  # noqa: F401
