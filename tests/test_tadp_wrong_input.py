"""What TADP and its harness say to input that cannot be right: one paragraph each, never a number."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from bench import registry
from bench.errors import ConfigError, DataError, UserError
from bench.nets import published_faces as faces
from bench.privacy.mechanism import clip_rows, unit_of
from bench.run.stage_encode import padded_clip
from methods.tadp import TADP
from methods.tadp.training import PERCENTILE, thresholds


class Video:
    """A calibration video of a person, its frames of no matter."""

    def __init__(self, identity: int, frames: int):
        self.identity, self.video = identity, self
        self.frames = np.zeros((frames, 4, 4, 3), np.uint8)


def rows_of(value: float):
    """An encoder whose features all have this norm."""
    return lambda frames: {b: np.full((len(frames), 4), value / 2, np.float32) for b in ("id", "expr")}


@pytest.mark.parametrize("items, people, clips", [
    ([Video(1, 16)] * 40, 1, 40), ([Video(k, 16) for k in range(4)], 4, 4), ([Video(k, 9) for k in range(19)], 19, 19)])
def test_too_few_people_or_clips_for_the_percentile_are_counted_out_loud(items, people, clips):
    with pytest.raises(DataError) as error:
        thresholds(items, rows_of(1.0), 16)
    said = str(error.value)
    assert f"{people} calibration people with {clips} clips" in said and f"{PERCENTILE}th percentile" in said
    assert "more people or longer videos" in said


@pytest.mark.parametrize("value", [0.0, math.nan])
def test_features_without_a_norm_give_no_threshold(value):
    items = [Video(k, 16) for k in range(30)]
    with pytest.raises(DataError, match="Check the encoder"):
        thresholds(items, rows_of(value), 16)
    assert thresholds(items, rows_of(2.0), 16) == pytest.approx({"id": 2.0, "expr": 2.0})


def test_a_released_row_of_norm_zero_stays_zero_and_one_that_is_not_finite_becomes_it():
    branch = TADP().branches[1]
    rows = np.full((16, branch.dim), 3.0)
    rows[4] = 0
    clipped, bad = clip_rows(rows, branch, 16)
    norms = np.linalg.norm(clipped * unit_of(branch), axis=1)
    assert not bad and norms[4] == 0 and np.delete(norms, 4) == pytest.approx(1, rel=1e-4)
    for value in (math.nan, math.inf):
        rows[4, 0] = value
        again, bad = clip_rows(rows, branch, 16)
        assert bad and not again[4].any() and (again == clipped).all()  # the fixed vector; its neighbours stay


@pytest.mark.parametrize("frames", [1, 9, 15])
def test_a_source_shorter_than_a_clip_is_one_clip_with_its_last_frame_repeated(frames):
    video = np.arange(frames, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 3), np.uint8)
    clip = padded_clip(video, 0)
    assert clip.shape == (16, 2, 2, 3) and (clip[:frames] == video).all() and (clip[frames:] == frames - 1).all()


def test_a_codebook_of_another_digest_is_refused_and_the_right_one_is_read(tmp_path):
    path = tmp_path / "book.safetensors"
    save_file({"entries": torch.ones(5, 3)}, path)
    sha = hashlib.sha256(path.read_bytes()).hexdigest()
    assert faces.load_codebook(path, sha, 3).shape == (5, 3)
    with pytest.raises(DataError, match="SHA-256"):
        faces.load_codebook(path, "0" * 64, 3)
    save_file({"entries": 2 * torch.ones(5, 3)}, path)  # the same name, other entries
    with pytest.raises(DataError, match="SHA-256"):
        faces.load_codebook(path, sha, 3)


@pytest.mark.parametrize("words", [{"epsilon": 0.0}, {"epsilon": math.nan}, {"share_id": 0.0}, {"share_id": 1.5},
                                   {"frames": 0}, {"conversion": "moments"}, {"size": "huge"}])
def test_a_claim_that_no_floor_can_meet_is_refused_before_anything_is_fitted(words):
    with pytest.raises(UserError) as error:
        TADP(**words)
    assert "\n" not in str(error.value)  # one paragraph


def test_an_unknown_variant_names_the_nearest_and_lists_all():
    with pytest.raises(ConfigError) as error:
        registry.build("methods", "tadp@eps-2")
    assert "eps2" in str(error.value) and all(name in str(error.value) for name in TADP.variants)
