"""The tables of the traffic paper: those that follow from a formula, and those over measured cells."""

from __future__ import annotations

import json

import pytest
from test_paper_tables import cell

from bench.positions import ROLES
from bench.tables import FORMATS, TABLES, table, title
from bench.traffic_tables import TRAFFIC_TABLES

EVENT = {"dataset": "sumo_crossing", "lane": "enforced", "unit": "event", "epsilon": 4.0, "delta": 0.0,
         "track": "traffic"}


def listed(name, cells):
    return json.loads(table(name, cells, format="json"))


def test_the_tables_are_there_and_have_titles():
    assert set(TRAFFIC_TABLES) == {f"brmoe-{n}" for n in range(1, 9)} <= set(TABLES)
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


# ---- words ----

def test_table_1_names_other_work_and_our_rows_in_its_manner():
    measured = [cell("utility", .8, method=name, **EVENT | {"lane": lane, "adjacency": "per_window",
                                                           "horizon": "10 windows, K = 2"})
                for name, lane in (("br_moe", "enforced"), ("rl_moe", "none"))]
    found = listed("brmoe-1", measured)
    here = {c["method"]: c["text"] for c in found if c["metric"] == "here"}
    assert here["br_moe"] == "br_moe: enforced, event per_window, 10 windows, K = 2, epsilon 4"
    assert here["rl_moe"] == "rl_moe: no formal claim" and here["DP-Cap"] == "none"
    assert here["vtpm_style"].startswith("vtpm_style: Exact pedestrian activity"), "nothing measured: what it is"
    assert len(found) == 7 * 4 and all(c["value"] is None and c["status"] == "ok" and c["text"] for c in found)
    assert "Events of bounded duration" in table("brmoe-1", [], format="md")
    assert "Events of bounded duration" in table("brmoe-1", [], format="csv")


def test_table_3_is_what_the_loaders_say_of_themselves():
    from bench.describe import describe

    rows = {(c["dataset"], c["metric"]): c for c in listed("brmoe-3", [cell("utility", .8, people=200, **EVENT)])}
    said = rows["sumo_crossing", "labels"]["text"]
    assert said == " ".join(describe("datasets", "sumo_crossing").doc.split()) and "400 to 599" in said
    assert rows["sumo_crossing", "episodes"]["text"] == "200" and not any(k[0].startswith("synthfaces") for k in rows)
    assert {name for name, _ in rows} >= set(ROLES)
    gap = next(c for c in listed("brmoe-3", []) if (c["dataset"], c["metric"]) == ("sumo_crossing", "episodes"))
    assert gap["status"] == "missing" and gap["text"].endswith("--dataset sumo_crossing")


# ---- paired ----

def test_the_main_table_pairs_each_row_with_its_references():
    """Episode by episode: br_moe is .1 above hand_rule and 1 vehicle above the public median, whatever they share."""
    shared = {e: (e % 7) / 10 for e in range(30)}

    def rows(method, adds, metric, slots, **more):
        values = {e: v + adds for e, v in shared.items()}
        return cell(metric, sum(values.values()) / 30, method=method, params={"slots": slots}, person_values=values,
                    **EVENT | {"adjacency": "per_window", "horizon": "h"} | more)

    high = {"better": "higher", "metric_unit": "rate"}
    cells = [rows("br_moe", .1, "utility", "weighted", **high), rows("hand_rule", 0, "utility", "weighted", **high),
             rows("task_dp", -.2, "utility", "weighted", horizon="another", **high),
             rows("br_moe", 1, "mae_vehicle", "all"), rows("public_median", 0, "mae_vehicle", "all", epsilon=0.0)]
    found = {(c["method"], c["metric"], c["params"]["against"]): c for c in listed("brmoe-5", cells)
             if c["params"] and "against" in c["params"] and c["status"] == "ok"}
    assert set(found) == {("br_moe", "utility_difference", "hand_rule"), ("br_moe", "mae_vehicle_difference",
                                                                          "public_median")}
    for key, value in zip(sorted(found), (1, .1), strict=True):
        assert (found[key]["value"], found[key]["lo"], found[key]["hi"]) == pytest.approx((value,) * 3)
        assert found[key]["people"] == 30
