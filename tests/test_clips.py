"""Prepared datasets: bit-exact media under a manifest that notices every change."""

from __future__ import annotations

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench import registry
from bench.data.clips import PARTS, Clips, check_clips, write_clips
from bench.data.splits import split_people
from bench.errors import DataError
from bench.types import Prepared


def quiet(text: str) -> None:
    pass


def adapter(**changes):
    made = registry.build("datasets", "blocks")
    for name, value in changes.items():
        setattr(made, name, value)
    return made


@pytest.fixture
def spoilt(small, tmp_path):
    return shutil.copytree(small, tmp_path / "clips")


def test_frames_come_back_bit_by_bit(small):
    clips, made = Clips(small), adapter()
    sources = {s.id: s for s in made.sources(None, 3)}
    for row in clips.rows()[::9]:
        expected = made.load(sources[row.video], 16)
        video = clips.video(row)
        np.testing.assert_array_equal(video.frames, expected.frames)
        assert video.fps == expected.fps == row.fps and len(video) == row.frames
        assert row.clips == (1 if row.frames <= 16 else 2)


def test_the_manifest_holds_every_video_once_with_its_part(small):
    clips = Clips(small)
    sources = adapter().sources(None, 3)
    parts = split_people({s.person for s in sources})
    assert [r.video for r in clips.rows()] == [s.id for s in sources]
    assert all(r.part == parts[r.person] and (r.role != "") == (r.part == "test") for r in clips.rows())
    assert len(clips.rows("test", role="probe")) == len(clips.rows("test", role="enrolment"))
    assert len(clips.rows(*PARTS)) == clips.info["videos"] == len(sources)
    assert clips.labels == ["flat", "tall"] and clips.info["people"] == 12
    assert {r.person for r in clips.rows("test")}.isdisjoint(r.person for r in clips.rows("train", "calibration"))
    assert check_clips(small) == []


def test_the_same_seed_gives_the_same_bytes_and_another_one_others(small, tmp_path):
    for seed in (3, 4):
        write_clips(adapter(), None, seed, 16, tmp_path / str(seed), quiet)
    same, other = Clips(tmp_path / "3"), Clips(tmp_path / "4")
    assert same.info == Clips(small).info and (tmp_path / "3" / "manifest.parquet").read_bytes() == (
        small / "manifest.parquet").read_bytes()
    assert other.info["manifest"] != same.info["manifest"] and other.info["split"] == same.info["split"]


def test_a_public_dataset_has_no_test_people(tmp_path):
    public = registry.build("datasets", "blocks_public")
    write_clips(public, None, 3, 16, tmp_path / "public", quiet)
    assert {(r.part, r.role) for r in Clips(tmp_path / "public").rows()} == {("public", "")}


@pytest.mark.parametrize("change, said", [
    ("truncate", "00003.mkv differs from its digest"), ("remove", "00003.mkv is missing"),
    ("label", "manifest.parquet differs from its digest"), ("cross", "stands in two parts")])
def test_a_change_is_noticed(spoilt, change, said):
    file = spoilt / "media" / "00003.mkv"
    if change == "truncate":
        file.write_bytes(file.read_bytes()[:-1])
    elif change == "remove":
        file.unlink()
    else:
        rows = pq.read_table(spoilt / "manifest.parquet").to_pylist()
        chosen = next(r for r in rows if r["part"] == "test")
        chosen.update({"label": "other"} if change == "label" else {"part": "train"})
        pq.write_table(pa.Table.from_pylist(rows), spoilt / "manifest.parquet")
    assert any(said in problem for problem in check_clips(spoilt))


def test_every_unusable_video_is_named_at_once(tmp_path):
    made = adapter()
    load = made.load

    def failing(source, canvas_px):
        if "anna-flat" in source.id:
            raise DataError(f"{source.id} is a picture.", "Why.", "Remedy.")
        return load(source, canvas_px)

    made.load = failing
    with pytest.raises(DataError) as caught:
        write_clips(made, None, 3, 16, tmp_path / "clips", quiet)
    assert "4 of 72 videos" in str(caught.value) and str(caught.value).count("is a picture") == 4


def test_a_test_person_without_probe_is_refused(tmp_path):
    made = adapter(_takes=lambda position: 1)
    tested = sorted(p for p, part in split_people(made.people).items() if part == "test")
    with pytest.raises(DataError, match="without a probe video: " + ", ".join(tested)):
        write_clips(made, None, 3, 16, tmp_path / "clips", quiet)
    assert not (tmp_path / "clips").exists()


def test_too_few_people_are_refused(tmp_path):
    with pytest.raises(DataError, match="5 people"):
        write_clips(adapter(people=adapter().people[:5]), None, 3, 16, tmp_path / "clips", quiet)


def test_a_long_video_counts_its_padded_clip(tmp_path):
    made = adapter(_takes=lambda position: 2)
    made.load = lambda source, px: Prepared(np.zeros((33, px, px, 3), np.uint8), 30.0)
    write_clips(made, None, 3, 16, tmp_path / "clips", quiet)
    clips = Clips(tmp_path / "clips")
    assert {(r.frames, r.clips, r.fps) for r in clips.rows()} == {(33, 3, 30.0)}
    assert clips.info["frames"] == 33 * len(clips.rows())
