"""Videos at the border, claims, errors."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from bench import NO_CLAIM, Anonymizer, Video, errors
from bench.errors import UserError, nearest
from bench.measures import Column, Metric
from bench.types import CLIP_FRAMES


@pytest.mark.parametrize("frames", [
    np.zeros((2, 4, 4, 3), np.float32), np.zeros((2, 4, 4, 3), np.int8), np.zeros((2, 4, 4), np.uint8),
    np.zeros((2, 3, 4, 4), np.uint8), np.zeros((2, 4, 4, 4), np.uint8), np.zeros((4, 4, 3), np.uint8), [[1]], None])
def test_a_video_is_uint8_thw3(frames):
    with pytest.raises(ValueError, match=r"uint8 \(T, H, W, 3\)"):
        Video(frames)


def test_as_float_moves_the_channel_and_scales():
    frames = np.zeros((2, 4, 5, 3), np.uint8)
    frames[1, 2, 3] = (255, 51, 0)
    values = Video(frames).as_float()
    assert values.shape == (2, 3, 4, 5) and values.dtype == np.float32
    np.testing.assert_allclose(values[1, :, 2, 3], [1.0, 0.2, 0.0], atol=1e-7)
    assert values.min() == 0 and len(Video(frames)) == 2 and CLIP_FRAMES == 16


def test_a_video_carries_nothing_but_frames_and_rate():
    assert set(vars(Video(np.zeros((1, 1, 1, 3), np.uint8)))) == {"frames", "fps"}


def test_no_claim_is_infinite_never_zero():
    assert NO_CLAIM.epsilon == math.inf and Anonymizer.claim is NO_CLAIM and Anonymizer.lane == "none"


def test_a_metric_has_one_column():
    column = Column(id="x", unit="1", better="none", low=0, high=1, title="X")
    assert Metric("x", lambda a: a, "release", column).columns == (column,) and column.role == "descriptive"


def test_errors_are_one_paragraph_and_survive_the_trip_between_processes():
    kinds = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, UserError)]
    assert len(kinds) == 7
    gone = pickle.loads(pickle.dumps(errors.WeightsMissing("raft", "Bring them.")))
    assert gone.name == "raft" and str(gone).startswith("weights missing: raft. ") and gone.remedy == "Bring them."
    for kind in set(kinds) - {errors.WeightsMissing}:
        error = pickle.loads(pickle.dumps(kind("What. ", "", "Do.")))
        assert type(error) is kind and str(error) == "What. Do." and (error.what, error.remedy) == ("What. ", "Do.")


def test_nearest_suggests_or_lists():
    assert nearest("blr", ["blur", "pixelate"]) == "Did you mean blur?"
    assert nearest("zzzz", ["blur", "pixelate"]) == "Known: blur, pixelate."
    assert nearest("x", []) == "Known: none."
