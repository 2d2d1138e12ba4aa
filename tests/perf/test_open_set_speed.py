"""Speed of open-set rates on ten million scores against the libraries one would otherwise call, in one run."""

from __future__ import annotations

import time

import numpy as np
import pytest
from sklearn.metrics import roc_curve

from bench import open_set
from bench.seeds import derive

pytestmark = pytest.mark.perf
FARS = (0.1, 0.01, 0.001)
GENUINE, IMPOSTORS = 400_000, 9_600_000  # 25 people: one comparison in 25 is genuine


def seconds(function) -> tuple[float, np.ndarray]:
    start = time.perf_counter()
    found = function()
    return time.perf_counter() - start, found


def ours(genuine, impostors):
    rates = [open_set.tar(genuine, open_set.threshold_at_far(impostors, far)) for far in FARS]
    return np.array([open_set.eer(genuine, impostors), *rates])


def read_off(false, true):
    """EER and TAR at each FAR from the points of a ROC curve."""
    k = int(np.argmin(np.abs(false + true - 1)))
    return np.array([(false[k] + 1 - true[k]) / 2,
                     *(true[np.searchsorted(false, far, side="right") - 1] for far in FARS)])


def test_ten_million_scores():
    torch = pytest.importorskip("torch")
    peer = pytest.importorskip("torchmetrics.functional.classification")
    draw = derive(1, "open-set-speed")
    genuine, impostors = draw.normal(1.5, 1, GENUINE), draw.normal(0, 1, IMPOSTORS)
    scores, truth = np.r_[genuine, impostors], np.r_[np.ones(GENUINE, np.int8), np.zeros(IMPOSTORS, np.int8)]
    squeezed, labels = torch.from_numpy(1 / (1 + np.exp(-scores))), torch.from_numpy(truth).long()

    ours_s, found = min((seconds(lambda: ours(genuine, impostors)) for _ in range(2)), key=lambda one: one[0])
    sklearn_s, first = seconds(lambda: read_off(*roc_curve(truth, scores, drop_intermediate=False)[:2]))
    torch_s, second = seconds(lambda: read_off(*(x.numpy() for x in peer.binary_roc(squeezed, labels)[:2])))
    fastest = min(sklearn_s, torch_s)
    print(f"\nEER and TAR at three FARs of 1e7 scores: ours {ours_s:.2f} s, sklearn {sklearn_s:.2f} s, torchmetrics "
          f"{torch_s:.2f} s, {fastest / ours_s:.1f} times as fast as the fastest")
    np.testing.assert_allclose(found, first, atol=1e-5)
    np.testing.assert_allclose(found, second, atol=1e-5)
    assert ours_s <= fastest


def test_bootstrap_of_a_whole_test_half():
    """25 people, 70 probe clips each, 2,000 resamples; the peer sorts and sums each resample's pairs anew."""
    people, each = 25, 70
    probe, template = np.repeat(np.arange(people), people * each), np.tile(np.arange(people), people * each)
    genuine = probe == template
    draw = derive(2, "open-set-speed")
    scores = draw.normal(size=len(probe)) + 1.5 * genuine
    weights = draw.multinomial(people, np.full(people, 1 / people), size=2000)
    ours_s, found = seconds(lambda: open_set.eer_replicates(scores, genuine, template, probe, weights))

    def theirs(w):
        weight = np.where(genuine, w[probe], w[probe] * w[template])
        false, true, _ = roc_curve(genuine, scores, sample_weight=weight, drop_intermediate=False)
        return read_off(false, true)[0]

    some = 20
    sklearn_s, first = seconds(lambda: np.array([theirs(w) for w in weights[:some]]))
    sklearn_s *= len(weights) / some
    print(f"\nEER of {len(weights)} resamples of {people} people, {len(scores)} scores: ours {ours_s:.2f} s, sklearn "
          f"{sklearn_s:.1f} s (from {some}), {sklearn_s / ours_s:.0f} times as fast")
    np.testing.assert_allclose(found[:some], first, atol=2e-3)
    assert ours_s < sklearn_s
