"""Trials: ties, chance, files, public numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.run.trials import SCHEMA, Trial, finite, hit, public_numbers, read_trials, write_trials


@pytest.mark.parametrize("scores, truth, value", [
    ([3, 1, 2], 0, 1.0), ([3, 1, 2], 1, 0.0), ([2, 2, 1], 0, 0.5), ([2, 2, 1], 1, 0.5), ([2, 2, 1], 2, 0.0),
    ([0, 0, 0, 0], 3, 0.25), ([-np.inf, 0.0], 1, 1.0), ([7], 0, 1.0)])
def test_a_tie_counts_as_a_guess_among_the_tied(scores, truth, value):
    assert hit(np.array(scores, float), truth) == value


@given(st.integers(1, 50), st.floats(-1e6, 1e6))
def test_constant_scores_give_chance_exactly(people, score):
    assert [hit(np.full(people, score), t) for t in range(people)] == [1 / people] * people


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_the_hits_over_all_truths_add_up_to_one(scores):
    total = sum(hit(np.array(scores, float), t) for t in range(len(scores)))
    assert total == pytest.approx(1, abs=1e-12)


def test_finite_sees_nan_and_infinity():
    assert finite(np.zeros(3)) and not finite(np.array([0, np.nan])) and not finite(np.array([np.inf]))


def test_public_numbers_hide_the_order_and_pair_methods():
    names = [f"person-{i}" for i in range(40)]
    numbers = public_numbers(names[::-1] + names, 42, "people")
    assert sorted(numbers.values()) == list(range(1, 41)) and numbers == public_numbers(names, 42, "people")
    in_order = [numbers[n] for n in names]
    assert in_order != sorted(in_order) and abs(np.corrcoef(in_order, range(40))[0, 1]) < 0.6
    assert numbers != public_numbers(names, 43, "people") != public_numbers(names, 43, "videos")


def test_trials_come_back_sorted_with_nan(tmp_path):
    rows = [Trial("top1", person, video, trial, 0, 42, value, truth=1, predicted=2)
            for person, video, trial, value in ((2, 1, 0, 0.5), (1, 3, 1, float("nan")), (1, 3, 0, 1.0))]
    write_trials(tmp_path / "a.parquet", rows)
    write_trials(tmp_path / "b.parquet", rows[::-1])
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    found = read_trials(tmp_path / "a.parquet")
    assert list(found) == SCHEMA.names
    np.testing.assert_array_equal(found["value"], [1.0, np.nan, 0.5])
    assert found["person"].tolist() == [1, 1, 2] and found["seed"].dtype == np.int64


def test_no_trials_are_a_table_too(tmp_path):
    write_trials(tmp_path / "none.parquet", [])
    assert {len(v) for v in read_trials(tmp_path / "none.parquet").values()} == {0}
