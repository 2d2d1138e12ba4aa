"""Speed of the bootstrap and of SSIM against the libraries one would otherwise call, in one run."""

from __future__ import annotations

import numpy as np
import pytest
from clock import seconds
from scipy import stats as scipy_stats

from bench import registry, stats
from bench.seeds import derive

pytestmark = pytest.mark.perf


def test_cluster_bootstrap_against_scipy():
    rng = derive(1, "perf")
    people, methods, classes, resamples = 25, 7, 6, 2000
    tables = rng.integers(0, 5, (people, methods, classes, classes)).astype(float)

    def uar(*per_person, axis=-1):
        sums = np.stack([part.sum(axis=axis) for part in per_person], axis=-1)
        return stats.uar_of_confusion(sums.reshape(*sums.shape[:-1], classes, classes))

    def theirs():
        for method in range(methods):
            cells = tuple(tables[:, method].reshape(people, -1).T)
            scipy_stats.bootstrap(cells, uar, paired=True, vectorized=True, method="percentile",
                                  n_resamples=resamples, rng=rng)

    ours_s = seconds(lambda: stats.cluster_bootstrap(stats.uar_of_confusion, tables, rng, resamples))
    theirs_s = seconds(theirs, repeats=1)
    print(f"\ncluster bootstrap, {resamples} x {people} people x {methods} methods: ours {ours_s * 1e3:.1f} ms, "
          f"scipy.stats.bootstrap {theirs_s * 1e3:.1f} ms, {theirs_s / ours_s:.1f} times as fast")
    assert ours_s < theirs_s


def test_ssim_against_torchmetrics():
    torch = pytest.importorskip("torch")
    peer = pytest.importorskip("torchmetrics.functional.image")
    a, b = derive(2, "perf").random((2, 200, 3, 64, 64), dtype=np.float32)
    ours = registry.get("metrics", "ssim_released").function
    first, second = torch.from_numpy(a), torch.from_numpy(b)
    ours_s = seconds(lambda: ours(a, b))
    theirs_s = seconds(lambda: peer.structural_similarity_index_measure(first, second, data_range=1.0,
                                                                        reduction="none"))
    print(f"\nSSIM, 200 frames of 64 x 64: ours {ours_s * 1e3:.0f} ms, torchmetrics {theirs_s * 1e3:.0f} ms, "
          f"{theirs_s / ours_s:.2f} times as fast")
    assert ours_s < 2 * theirs_s
