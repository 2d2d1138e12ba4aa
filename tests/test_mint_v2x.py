"""The dataset mint_v2x on tables made here: streams counted by hand, thirds, every wrong input."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from bench import DataError, registry

HEAD = "Timestamp,vehicle_id,x,y,velocity,rsu_id,distance_to_rsu,sinr\n"


def rows(vehicle, times, unit="A", distance=100.0, speed=10.0):
    return "".join(f"{t:g},{vehicle},0,0,{speed},{unit},{distance},3.5\n" for t in times)


def far():
    """A vehicle that no unit sees, at every instant of three minutes: a third is one window."""
    return rows("far", np.arange(360) / 2, distance=999)


def write(root, text, name="run.csv"):
    (root / name).write_text(HEAD + text)
    return root


def run():
    return (far() + rows("v1", [0, 0.1, 0.3, 0.5, 1.0, 1.5]) + rows("v2", [1.5, 2.0, 2.5], "A", 250, 0.5)
            + rows("v3", [2.0], "A", 250.1) + rows("v4", [61.0, 61.5], "B") + rows("v5", [120.0, 179.5], "B")
            + rows("v6", [59.5, 60.0], "B", speed=0))


def table(root):
    return registry.build("datasets", "mint_v2x").table(root, print)


def test_streams_are_those_counted_by_hand(tmp_path):
    """Two instants a second count, from the first record on; 0.5 m/s still stands, and 250 m are inside."""
    found = table(write(tmp_path, run()))
    assert found.ids == tuple(f"unit{u}/third{t}/00" for u in "AB" for t in (1, 2, 3))
    assert found.public.tolist() == [True, True, False] * 2 and found.steps.shape == (6, 30, 12)
    wanted = np.zeros(found.steps.shape, int)
    wanted[0, :2, :2] = [(4, 1), (0, 2)]
    wanted[3, 29, 1] = wanted[4, 0, 1] = 1  # v6 on both sides of the first border
    wanted[4, 0, 0] = 2
    wanted[5, 0, 0] = wanted[5, 29, 0] = 1
    np.testing.assert_array_equal(found.steps, wanted)
    assert found.known[..., :2].all() and not found.known[..., 2:].any()
    assert found.objects[:, 0].tolist() == [0, 0, 0, 3, 4, 4, 5, 5] and found.objects[0, 2:].tolist() == [0, 0, 4]


def test_no_vehicle_of_the_last_third_is_seen_in_public(tmp_path):
    found = table(write(tmp_path, run() + rows("v5", [10.0], "A", speed=0)))
    assert found.ids == tuple(i for i in (f"unit{u}/third{t}/00" for u in "AB" for t in (1, 2, 3)) if i !=
                              "unitA/third1/00")
    assert "1 public episodes that show an object of the test part were left out." in found.says


def test_parquet_and_several_files_are_one_run(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    read = pyarrow.csv.read_csv(write(whole, run()) / "run.csv")
    pyarrow.parquet.write_table(read.slice(0, 200), parts / "a.parquet")
    pyarrow.csv.write_csv(read.slice(200), parts / "b.csv")
    np.testing.assert_array_equal(table(parts).steps, table(whole).steps)


def test_columns_json_names_the_columns(tmp_path):
    text = (HEAD + run()).replace("Timestamp", "clock").replace("velocity", "how fast")
    (tmp_path / "run.csv").write_text(text)
    with pytest.raises(DataError, match=r"no column for time \(time or timestamp .*, speed .*; it has clock, vehicle"):
        table(tmp_path)
    (tmp_path / "columns.json").write_text(json.dumps({"time": "clock", "speed": "how fast"}))
    assert table(tmp_path).steps[0, 0, :2].tolist() == [4, 1]


WRONG = [
    (rows("v", [1.0]).replace("10.0", "fast"), "has a column for speed that is not all numbers"),
    (rows("v", [1.0], distance=-1), "has a distance that is negative or not finite"),
    (rows("v", [1.0], speed=float("inf")), "has a speed that is negative or not finite"),
    (",v,0,0,1,A,1,0\n", "lacks the time of 1 of 361 records"),
    (rows("v", [1.0, 1.0]), "vehicle v has two records at 1 s"),
    (rows("v", [999.0]), "its records do not stand at two instants a second"),
    (rows("v", [1e9]), "is the time in seconds?"), ("1,2\n", "cannot be read"),
]


@pytest.mark.parametrize("text, message", WRONG)
def test_wrong_input_is_named(tmp_path, text, message):
    problems = registry.build("datasets", "mint_v2x").problems(write(tmp_path, far() + text))
    assert any(message in problem for problem in problems), problems


def test_every_problem_is_named_at_once(tmp_path):
    write(tmp_path, "", "none.csv")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "broken.parquet").write_text("no parquet")
    (tmp_path / "columns.json").write_text('{"tempo": "x"}')
    problems = registry.build("datasets", "mint_v2x").problems(tmp_path)
    assert [p.split(" (")[0] for p in problems] == [
        "columns.json is no table from time, vehicle, unit, distance, speed to names of columns",
        "broken.parquet cannot be read", "empty.csv cannot be read", "none.csv has no record"]


def test_a_run_that_is_too_short_is_refused_in_words(tmp_path):
    (tmp_path / "columns.json").write_text("{")
    adapter = registry.build("datasets", "mint_v2x")
    assert adapter.problems(tmp_path)[0] == "it has no .csv and no .parquet file"
    assert "columns.json is broken JSON" in " ".join(adapter.problems(write(tmp_path, far())))
    (tmp_path / "columns.json").unlink()
    write(tmp_path, rows("v", np.arange(200) / 2))
    with pytest.raises(DataError, match="Every recording of mint_v2x is shorter than a window: the longest has 32 s"):
        table(tmp_path)
