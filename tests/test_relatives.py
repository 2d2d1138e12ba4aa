"""What a method changes: differences to the original and to its other settings, over the same people only."""

from __future__ import annotations

import pytest
from scipy import stats
from test_board import row
from test_tables import utility

from bench.display import NARROW
from bench.relatives import relatives

MINUS = "−"
OTHER = {"digest": "another attack", "split": "another split", "dataset": "elsewhere", "profile": "paper",
         "seeds": [7], "decoding": "isolated", "status": "invalid: it crashed", "person_values": {}, "value": None}


def rows():
    return [row("original", 0.9, control="positive"), row("mine", 0.6), row("mine", 0.8, variant="weak"),
            row("blackout", 0.1, control="negative"), row("yours", 0.2)]


def test_the_difference_is_that_of_the_numbers_with_the_paired_t_interval_of_scipy():
    cells = rows()
    (table,) = relatives(cells, "mine")
    assert table["against"] == ["original", "mine@weak"] and len(table["rows"]) == 1
    texts = table["rows"][0][3]
    for other, text in ((cells[0], texts[0]), (cells[2], texts[1])):
        own = [cells[1]["person_values"][p] - other["person_values"][p] for p in sorted(other["person_values"])]
        lo, hi = stats.t.interval(0.95, len(own) - 1, loc=cells[1]["value"] - other["value"], scale=stats.sem(own))
        value, _, interval = text.replace(MINUS, "-").partition(f"{NARROW}points ")
        assert float(value) == pytest.approx(100 * (cells[1]["value"] - other["value"]), abs=0.5)
        shown = [float(x) for x in interval.strip("[]").split(", ")]
        assert shown == pytest.approx([100 * lo, 100 * hi], abs=0.5)


def test_what_lies_above_says_so_with_a_plus():
    (table,) = relatives(rows(), "mine@weak")
    assert table["against"] == ["original", "mine"] and table["rows"][0][3][1].startswith("+20")


@pytest.mark.parametrize("field", OTHER)
def test_only_numbers_of_one_measurement_are_compared(field):
    cells = rows()
    cells[0] = {**cells[0], field: OTHER[field]}
    tables = relatives(cells, "mine")
    assert [t["against"] for t in tables if t["dataset"] == cells[1]["dataset"]] == [["mine@weak"]]


def test_controls_strangers_reports_and_changed_inputs_have_no_such_table():
    cells = rows()
    assert not relatives(cells, "original") and not relatives(cells, "blackout") and not relatives(cells, "nobody")
    assert relatives([{**c, "track": "traffic"} for c in cells], "mine") == []
    assert relatives([{**c, "role": "diagnostic"} for c in cells], "mine") == []
    assert [t["against"] for t in relatives(cells, "yours")] == [["original"]]


def test_a_distance_to_the_original_is_not_compared_with_the_distance_of_the_original_to_itself():
    far = {"metric": "psnr_released", "attack": None, "role": "descriptive", "metric_unit": "dB"}
    cells = [row("original", 100.0, control="positive", **far), row("mine", 20.0, **far),
             row("mine", 25.0, variant="weak", **far)]
    (table,) = relatives(cells, "mine")
    assert table["against"] == ["mine@weak"] and table["rows"][0][3][0].startswith(f"{MINUS}5")


def test_privacy_stands_before_utility():
    cells = [row("original", 0.7, make=utility, control="positive"), row("mine", 0.6, make=utility), *rows()]
    (table,) = relatives(cells, "mine")
    assert [line[0] for line in table["rows"]] == ["plr top1", "fer@x3d"]
    assert [bool(text) for line in table["rows"] for text in line[3]] == [True, True, True, False]
