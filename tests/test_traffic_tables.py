"""The tables of the traffic paper: those that follow from a formula, and those over measured cells."""

from __future__ import annotations

import json

import pytest
from test_paper_tables import cell

from bench.tables import FORMATS, TABLES, table, title
from bench.traffic_tables import TRAFFIC_TABLES

EVENT = {"dataset": "sumo_crossing", "lane": "enforced", "unit": "event", "epsilon": 4.0, "delta": 0.0,
         "track": "traffic"}


def listed(name, cells):
    return json.loads(table(name, cells, format="json"))


def test_the_tables_are_there_and_have_titles():
    assert set(TRAFFIC_TABLES) == {f"brmoe-{n}" for n in (2, 4, 5, 6, 7, 8)} <= set(TABLES)
    assert all(len(title(name)) > 10 for name in TRAFFIC_TABLES)


@pytest.mark.parametrize("name", sorted(TRAFFIC_TABLES))
@pytest.mark.parametrize("format", sorted(FORMATS))
def test_every_table_is_written_before_anything_is_measured(name, format):
    assert isinstance(table(name, [], format=format), str)
    if name in ("brmoe-5", "brmoe-6", "brmoe-7") and format == "md":
        assert "veilbench run br-moe" in table(name, [], format=format)


def test_table_8_of_the_paper():
    """Sensitivity, spend and scale of the pedestrian mean, J = 30, C = 6, e = 0.4."""
    values = [c["value"] for c in listed("brmoe-8", [])]
    assert values == pytest.approx([.8, .1, 8, .8, .4, 2, 2, .1, 20, 2, .4, 5])


def test_table_2_is_the_schema():
    assert [c["value"] for c in listed("brmoe-2", [])] == [2, 20, 2, 6, 4, 1, 4, 1]


def test_the_ablation_says_which_design_keeps_its_claim():
    cells = [cell("utility", value, method=method, params={"slots": "weighted"}, **EVENT | {"lane": lane})
             for method, value, lane in (("raw_gate", .9, "declared"), ("br_moe", .8, "enforced"),
                                         ("task_dp", .7, "enforced"), ("hand_rule", .6, "enforced"))]
    found = listed("brmoe-6", cells)
    rows = {c["method"]: c["value"] for c in found if c["metric"] == "valid"}
    assert rows == {"br_moe": 1, "task_dp": 1, "raw_gate": 0}
    assert [c["method"] for c in found if c["metric"] == "utility"] == ["br_moe", "task_dp", "raw_gate"]
