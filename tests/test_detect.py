"""Face boxes and crops: geometry by closed forms, independence of clips by properties, MTCNN on a public photograph."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage import data

from bench import detect
from bench.detect import FaceDetector, crop_clip

NONE = np.zeros((0, 5))


def box(x0, y0, x1, y1, prob=1.0) -> np.ndarray:
    return np.array([[x0, y0, x1, y1, prob]], float)


@pytest.fixture(scope="module")
def portrait() -> np.ndarray:
    return data.astronaut()[:256, 96:352]  # (256, 256, 3): Eileen Collins, face near (125, 110)


# ---- detection -----------------------------------------------------------------------------------------------------

def test_a_batch_in_which_one_frame_has_no_face(portrait):
    frames = np.stack([portrait, np.full_like(portrait, 90), portrait])
    found = FaceDetector().detect(frames)
    assert [len(boxes) for boxes in found] == [1, 0, 1]
    assert all(boxes.dtype == np.float64 and boxes.shape == (len(boxes), 5) for boxes in found)
    x0, y0, x1, y1, prob = found[0][0]
    assert x0 < 125 < x1 and y0 < 110 < y1 and prob > 0.95
    assert np.allclose(found[0], found[2], atol=0.5)


def test_boxes_come_back_in_the_pixels_of_the_large_frame(portrait):
    large = portrait.repeat(3, 0).repeat(3, 1)
    small, big = (FaceDetector(short_side_px=256).detect(frame[None])[0] for frame in (portrait, large))
    assert detect.iou(big[0], small * [3, 3, 3, 3, 1])[0] > 0.85


@pytest.mark.parametrize("shape", [(0, 64, 64, 3), (2, 12, 64, 3), (1, 20, 20, 3), (2, 64, 64, 3), (1, 21, 300, 3)])
def test_frames_without_faces_give_empty_arrays(shape):
    noise = np.random.default_rng(3).integers(0, 256, shape, dtype=np.uint8)
    found = FaceDetector(min_prob=0.95).detect(noise)
    assert [boxes.shape for boxes in found] == [(0, 5)] * shape[0]


def test_boxes_lie_inside_the_frame_and_the_input_is_left_alone(portrait):
    half = np.stack([portrait[60:, 100:]] * 2)  # the face is cut by two edges
    before = half.copy()
    for boxes in FaceDetector(min_prob=0.5).detect(half):
        assert (boxes[:, :2] >= 0).all() and (boxes[:, 2] <= half.shape[2]).all() and (boxes[:, 3] <= 196).all()
        assert (np.diff(boxes[:, 4]) <= 0).all()
    assert np.array_equal(half, before)


def test_a_batch_that_breaks_the_network_is_looked_at_frame_by_frame(monkeypatch, portrait):
    real = detect._run_mtcnn

    def breaks(frames, smallest):
        if len(frames) > 1 or frames.mean() == 7:
            raise RuntimeError("expected a non-empty list of tensors")
        return real(frames, smallest)

    monkeypatch.setattr(detect, "_run_mtcnn", breaks)
    found = FaceDetector().detect(np.stack([portrait, np.full_like(portrait, 7)]))
    assert [len(boxes) for boxes in found] == [1, 0]


# ---- geometry ------------------------------------------------------------------------------------------------------

def test_iou_area_and_largest_by_hand():
    boxes = np.array([[0, 0, 2, 2, 1], [1, 1, 3, 3, 1], [5, 5, 6, 6, 1]], float)
    assert detect.iou(boxes[0], boxes).tolist() == pytest.approx([1, 1 / 7, 0])
    assert detect.area(boxes).tolist() == [4, 4, 1]
    assert detect.largest_face(boxes[1:])[0] == 1 and detect.largest_face(NONE) is None


def test_square_has_the_margin_and_the_centre():
    assert detect.square(np.array([10, 20, 50, 40]), 1.3) == (4, 4, 52)  # 1.3 x 40 around (30, 30)
    assert detect.centre_square(30, 50) == (10, 0, 30)
    assert detect.centre_square(51, 20) == (0, 15, 20)


@given(x0=st.integers(-40, 60), y0=st.integers(-40, 60), side=st.integers(1, 90))
@settings(max_examples=80, deadline=None)
def test_cut_repeats_the_edge_outside_the_frame(x0, y0, side):
    frame = np.random.default_rng(0).integers(0, 256, (37, 53, 3), dtype=np.uint8)
    rows, columns = np.clip(np.arange(y0, y0 + side), 0, 36), np.clip(np.arange(x0, x0 + side), 0, 52)
    if columns[0] == columns[-1] or rows[0] == rows[-1]:
        return  # squares lie around a face, which lies in the frame
    assert np.array_equal(detect.cut(frame, (x0, y0, side), side), frame[rows][:, columns])


def test_gaps_are_interpolated_and_constant_motion_is_kept():
    line = np.arange(16)[:, None] * np.array([1.0, 2.0, 1.0, 2.0]) + [0, 0, 10, 10]  # straight motion
    gappy = line.copy()
    gappy[[3, 4, 9]] = np.nan
    assert np.allclose(detect.fill_and_smooth(gappy), line)  # a symmetric average keeps a straight line, ends too
    gappy[:3] = np.nan
    assert np.allclose(detect.fill_and_smooth(gappy, window=1)[:6], line[5])  # held before the first


def test_the_followed_face_does_not_jump_to_another_person():
    near, far = box(10, 10, 50, 50), box(80, 10, 110, 40)
    frames = [np.vstack([near, far]), far, np.vstack([far, near]), np.vstack([near, far])]
    track = detect.follow_face(frames)
    assert np.isnan(track[1]).all()
    assert np.array_equal(track[[0, 2, 3]], np.repeat(near[:, :4], 3, 0))


# ---- crops of clips ------------------------------------------------------------------------------------------------

def test_a_clip_without_a_face_gets_the_largest_centred_square_and_says_so():
    frames = np.random.default_rng(0).integers(0, 256, (16, 40, 60, 3), dtype=np.uint8)
    crop, found = crop_clip(frames, [NONE] * 16, 40)
    assert not found and np.array_equal(crop, frames[:, :, 10:50])


def test_a_lost_frame_is_cropped_where_its_neighbours_are():
    frames = np.random.default_rng(0).integers(0, 256, (4, 64, 64, 3), dtype=np.uint8)
    seen = box(22, 22, 42, 42)  # square of 26 around (32, 32)
    crop, found = crop_clip(frames, [seen, NONE, seen, NONE], 26)
    assert found and np.array_equal(crop, frames[:, 19:45, 19:45])


detections = st.lists(st.one_of(st.just(NONE), st.tuples(*[st.integers(0, 30)] * 2, *[st.integers(34, 64)] * 2).map(
    lambda corners: box(*corners))), min_size=32, max_size=32)


@given(first=detections, second=detections, seed=st.integers(0, 9))
@settings(max_examples=25, deadline=None)
def test_a_clip_never_changes_its_neighbour(first, second, seed):
    """PROTOCOL 2: the crop of clip 1 is a function of clip 1 alone."""
    frames = np.random.default_rng(seed).integers(0, 256, (32, 64, 64, 3), dtype=np.uint8)

    def crops(found):
        return [crop_clip(frames[k:k + 16], found[k:k + 16], 24)[0] for k in (0, 16)]

    one, two = crops(first), crops(first[:16] + second[16:])
    assert np.array_equal(one[0], two[0])
    assert one[0].shape == (16, 24, 24, 3) and one[0].dtype == np.uint8
