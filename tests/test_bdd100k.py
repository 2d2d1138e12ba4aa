"""The dataset bdd100k on label files made here: streams counted by hand, what is missing, every wrong input."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bench import DataError, registry
from bench.data.streams import Streams, said_of, write_streams
from bench.run.stage_reports import _stretch

BOX = {"x1": 1, "y1": 2, "x2": 30, "y2": 20}


def thing(number, category, **attributes):
    return {"id": str(number), "category": category, "box2d": BOX, "attributes": attributes}


def frames(video, count=190, weather="rainy", labels=lambda number: []):
    """Five a second: 190 frames are a window of 38 s."""
    about = {"weather": weather, "scene": "highway", "timeofday": "night"} if weather else {}
    return [{"name": f"{video}-{n + 1:07d}.jpg", "videoName": video, "frameIndex": n, "attributes": about,
             "labels": labels(n)} for n in range(count)]


def write(root, part, video, found):
    path = root / "labels" / "box_track_20" / part / f"{video}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found))
    return path


def street(number):
    """In frames 0 to 9 a car moves and another stands; in frame 3 somebody waits; a stop sign in frames 0 to 4."""
    found = [thing(9, "rider"), thing(8, "traffic light")]
    if number < 10:
        found += [thing(1, "car", motion="moving"), thing(2, "other vehicle", motion="stopped")]
    if number == 3:
        found.append(thing(3, "pedestrian", motion="waiting"))
    if number < 5:
        found += [thing(4, "traffic sign", sign="other"), thing(5, "traffic sign", sign="stop")]
    return found


@pytest.fixture
def root(tmp_path):
    clear = frames("a", labels=street)
    clear[13]["attributes"] = {"weather": "undefined"}  # a sampled frame of chunk 1
    clear[14]["attributes"] = {"weather": "snowy"}  # not sampled
    write(tmp_path, "train", "a", clear)
    write(tmp_path, "val", "b", frames("b", weather=None))
    write(tmp_path, "val", "c", frames("c", 220, "overcast", lambda n: [thing(1, "truck")]))  # without its state
    images = tmp_path / "labels" / "det_20" / "det_val.json"
    images.parent.mkdir()
    images.write_text(json.dumps([{"name": "b.jpg", "attributes": {"weather": "foggy", "timeofday": "daytime"}}]))
    return tmp_path


def table(root):
    return registry.build("datasets", "bdd100k").table(root, print)


def test_streams_are_those_counted_by_hand(root):
    """Sampled of each chunk of ten frames: the first, fourth, sixth and ninth."""
    found = table(root)
    assert found.ids == ("a/00", "b/00", "c/00") and found.public.tolist() == [True, False, False]
    a, b, c = found.steps
    assert a[0].tolist() == [4, 4, 0, 1, 2, 0, 0, 2, 0, 4, 0, 0]  # stop in frames 0 and 3; before any other sign
    assert a[1].tolist() == [0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0]  # one frame without weather
    assert (a[2:19] == [0, 0, 0, 0, 0, 0, 0, 4, 0, 4, 0, 0]).all()
    assert (b[:19] == [0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 4, 0]).all()  # fog, of the image of that name
    assert (c[:19, 8:] == [0, 0, 0, 4]).all() and not c[:, :4].any()
    assert not b[19:].any() and not c[19:].any() and not found.known[:, 19:].any()  # never filmed
    a, b, c = found.known[:, :19]
    assert not a[1, 8:].any() and a[1, :8].all() and np.delete(a, 1, axis=0).all()
    assert b.all()  # nobody was there, and that is known
    assert not c[:, :2].any() and c[:, 2:].all()  # a truck of which nobody said whether it moved
    assert found.objects.tolist() == [[0, 0, 0, 0, 4], [0, 1, 0, 1, 4], [0, 2, 0, 3, 1]]
    assert "Time of day of the videos and images: daytime 1, night 2." in found.says
    assert any(note.startswith("6 s at the ends of recordings were dropped") for note in found.says)  # of c


def test_published_labels_give_weather_and_nothing_else(root):
    """Without added states every count and every sign is missing, in empty videos too."""
    def plain(number):
        return [thing(1, "car", occluded=True), thing(2, "pedestrian"), thing(3, "traffic sign")]
    for part, video in (("train", "a"), ("val", "c")):
        write(root, part, video, frames(video, labels=plain))
    found = table(root)
    assert not found.known[..., :8].any() and found.known[:, :19, 8:].all()
    assert not found.steps[..., :8].any() and not len(found.objects)


def test_public_windows_are_filled_up_to_the_mean_of_what_was_filmed(root):
    """4 of 76 quarters in 19 chunks are 6 1/3 of 120 in 30: whole numbers that lie as near as they can."""
    a = table(root).steps[0]
    assert a[:, 0].sum() == 4 + round(11 * 4 / 19) and a[19:, 0].max() == 1
    assert a[:, 7].sum() == 74 + round(11 * 74 / 19) and (a[19:, 9] <= 4).all()


def test_means_are_those_of_the_filmed_chunks(root, tmp_path):
    out = tmp_path / "prepared"
    out.mkdir()
    write_streams(registry.build("datasets", "bdd100k"), root, 42, out, print)
    streams = Streams(out)
    a, b, c = streams.truth(np.arange(3))[:, 0]
    assert a[:8] == pytest.approx(np.array([4, 4, 0, 1, 2, 0, 0, 74]) / 76) and np.isnan(a[8:]).all()
    assert b.tolist() == [0] * 7 + [1, 0, 0, 1, 0] and np.isnan(c[:2]).all() and c[11] == 1
    assert any("19 filmed chunks, 38 s" in text for text in said_of(streams.info))
    public = {"filmed": streams.filmed}  # a method divides by 30 chunks, what it gets was made of 19
    assert b[10] * 4 * 19 * _stretch(public) / (4 * 30) == pytest.approx(1) and _stretch({}) == 1


def test_videos_that_are_shorter_are_refused_in_words(root):
    for part, video in (("train", "a"), ("val", "b"), ("val", "c")):
        write(root, part, video, frames(video, 153))
    with pytest.raises(DataError, match="Every recording of bdd100k is shorter than a window: the longest has 30 s. "
                                        "A report covers 38 s"):
        table(root)


def test_a_part_without_an_episode_is_refused(root):
    write(root, "train", "a", frames("a", 150))
    with pytest.raises(DataError, match="bdd100k has no public episode of 38 s"):
        table(root)


def changed(position, **change):
    found = frames("x", 20, labels=street)
    found[position] = {k: v for k, v in {**found[position], **change}.items() if v != "gone"}
    return found


WRONG = [
    (changed(3, labels="gone"), "video x frame 3 has no labels"),
    (changed(3, labels=None), "video x frame 3 has no labels"),
    (changed(3, attributes={"weather": "hail"}), "x-0000004.jpg has weather 'hail', which is none of clear, rainy"),
    (changed(3, attributes={"timeofday": "noon"}), "x-0000004.jpg has timeofday 'noon'"),
    (changed(3, attributes={"scene": ["sea"]}), "has scene ['sea']"),
    (changed(3, frameIndex=3.5), "x-0000004.jpg has no frameIndex that is a whole number from 0 on"),
    (changed(3, frameIndex=-1), "x-0000004.jpg has no frameIndex"),
    (changed(3, frameIndex=2), "frame 2 is there twice"),
    (frames("x", 20)[:5] + frames("x", 20)[7:], "video x frame 5 is missing, and 1 more"),
    (changed(3, labels=[thing(1, "zebra")]), "frame 3 has the category 'zebra'"),
    (changed(3, labels=[{"id": 1, "category": "car", "box2d": {**BOX, "x2": 1}}]), "has a car without id or without"),
    (changed(3, labels=[{"category": "car", "box2d": BOX}]), "has a car without id"),
    (changed(3, labels=[thing(1, "car", motion="flies")]), "has motion 'flies', which is none of moving, stopped"),
    (changed(3, labels=[thing(1, "traffic sign", sign="yield")]), "has sign 'yield', which is none of stop, speed"),
    ([{"videoName": "x"}], "is no list of frames that have a name"), ("text", "is no list of frames"),
]


@pytest.mark.parametrize("found, message", WRONG)
def test_wrong_input_is_named(root, found, message):
    write(root, "train", "x", found)
    problems = registry.build("datasets", "bdd100k").problems(root)
    assert any(message in problem for problem in problems), problems


def test_a_fault_is_named_once(root):
    """A frame that cannot be read is not missing too."""
    write(root, "train", "x", changed(3, labels="gone", attributes={"weather": "hail"}))
    assert len(registry.build("datasets", "bdd100k").problems(root)) == 2


def test_every_problem_is_named_at_once(root):
    write(root, "train", "x", frames("x")).write_text('[{"name": "x-1.jpg", ')
    write(root, "val", "a", frames("a"))
    pictures = root / "images" / "track" / "val" / "c"
    pictures.mkdir(parents=True)
    for number in range(219):
        (pictures / f"c-{number + 1:07d}.jpg").touch()
    with pytest.raises(DataError) as caught:
        table(root)
    for part in ("labels/box_track_20/train/x.json is broken JSON", "video a stands in both parts, and 189 more",
                 "video c frame 219 (c-0000220.jpg) has no picture in images/track/val/c",
                 "video b frame 0 (b-0000001.jpg) has no picture in images/track/val/b, and 189 more"):
        assert part in caught.value.what


def test_folders_that_hold_nothing_for_it(tmp_path):
    adapter = registry.build("datasets", "bdd100k")
    assert adapter.problems(tmp_path) == ["it has no video: no frame with a videoName in a train or val folder"]
    path = tmp_path / "det_train.json"
    path.write_text(json.dumps({"frames": [{"name": "p.jpg", "labels": []}]}))
    assert len(adapter.problems(tmp_path)) == 1
