"""The board of the traffic track: words, sections by adjacency and K, both prices, the line to beat."""

from __future__ import annotations

import pytest
from test_board import cell

from bench.blocks import by_board
from bench.display import OF_REPORTS
from bench.ranking import attack_state
from bench.views import boards

TRAFFIC = {"dataset": "sumo_crossing", "track": "traffic", "lane": "enforced", "unit": "event", "delta": 1e-5,
           "epsilon": 4.0, "adjacency": "per_window", "horizon": "10 windows, K = 2", "people": 200, "chance": .5,
           "details": {"epsilon_sum": 4.0, "epsilon_max": 0.4}}
COLUMNS = [{"metric": "auc", "attack": name, "params": {"event": event}, "better": "lower", "role": role}
           for name, event, role in (("event_learned", "flip", "privacy"), ("event_llr", "experts", "privacy"),
                                     ("event_llr", "flip", "descriptive"), ("whole_stay", "vehicle_stay", "privacy"))]
COLUMNS += [{"metric": name, "attack": None, "better": better, "role": "utility", "metric_unit": unit, "params": params}
            for name, better, unit, params in (("age", "lower", "s", None), ("coverage", "higher", "rate", None),
                                               ("mae_vehicle", "lower", "1", {"slots": "all"}),
                                               ("utility", "higher", "rate", {"slots": "weighted"}))]
COLUMNS += [{"metric": "mae_vehicle", "attack": None, "better": "none", "role": "descriptive", "metric_unit": "1",
             "params": {"slots": "asked"}}]


def rows(method, value, **more):
    """A row in every column; episode e lies (e mod 3) / 100 around the value."""
    values = {e: value + (e % 3 - 1) / 100 for e in range(30)}
    return [{**cell(method, value), **TRAFFIC, **column, "person_values": values, "lo": None, "hi": None, **more}
            for column in COLUMNS]


def made():
    controls = rows("public_median", .5, control="negative", epsilon=0.0, lo=.5, hi=.5) + \
        rows("vtpm_style", .96, control="positive", lane="none", epsilon=float("inf"), details=None)
    return [*rows("task_dp", .6), *rows("hand_rule", .4),
            *rows("task_dp", .7, variant="k5", horizon="10 windows, K = 5"),
            *rows("task_dp", .6, variant="max", adjacency="total"), *controls]


@pytest.fixture(scope="module")
def board():
    return boards(made())[0]


def test_sections_are_adjacencies_and_k_and_say_so(board):
    titles = [s["title"] for s in board["sections"]]
    assert titles == ["At most K = 2 changed chunks in every window, ε ≤ 4",
                      "At most K = 5 changed chunks in every window, ε ≤ 4",
                      "At most K = 2 changed chunks in all, ε ≤ 4"]
    assert "at most 2 s" in board["sections"][0]["text"] and "at most 8 s" in board["sections"][1]["text"]
    assert all("whole_stay" in s["text"] for s in board["sections"])


def test_faces_stand_before_traffic_whatever_was_measured_first():
    both = [*made(), cell("blur", .4)]
    assert [b["track"] for b in boards(both)] == ["face", "traffic"]
    assert [track for track, _, _ in by_board(both)] == ["face", "traffic"]


def test_nobody_is_counted_but_episodes(board):
    section = board["sections"][0]
    assert board["units"] == "episodes" and {c["counted"] for c in section["columns"]} == {"episodes"}
    assert "people" not in dict(section["facts"]) and dict(section["facts"])["episodes"] == "200"
    assert [p["title"] for p in section["panels"]] == list(OF_REPORTS.values())
    names = [c["name"] for c in section["columns"]]
    assert names[0] == "event_llr auc (event=experts)" and names.index("utility (slots=weighted)") < names.index("age")


def test_every_row_has_both_prices_and_controls_say_what_they_are(board):
    section = board["sections"][0]
    assert {r["accountants"] for r in section["rows"]} == {"ε: sum 4, max 0.4"}
    words = {r["name"]: r["words"] for r in section["controls"]}
    assert "line to beat" in words["public_median"] and "exact counts" in words["vtpm_style"]


def notes(section, row, column):
    index = next(i for i, c in enumerate(section["columns"]) if c["name"] == column)
    return next(r for r in section["rows"] if r["name"] == row)["cells"][index]["notes"]


def test_numbers_stand_beside_the_line_and_the_fixed_schedules_of_the_same_claim(board):
    first, k5, _ = board["sections"]
    assert notes(first, "task_dp", "mae_vehicle (slots=all)") == ["worse than public_median by 0.10 [0.10, 0.10]"]
    assert notes(first, "hand_rule", "mae_vehicle (slots=all)") == ["better than public_median by 0.10 [0.10, 0.10]"]
    assert notes(first, "hand_rule", "utility (slots=weighted)")[0].startswith("worse than task_dp by 20")
    assert notes(k5, "task_dp@k5", "utility (slots=weighted)") == [], "no schedule claims the same there"
    assert notes(first, "task_dp", "mae_vehicle (slots=asked)") == []


@pytest.mark.parametrize("attack, value, strong", [("event_llr", .96, False), ("event_llr", .99, True),
                                                   ("event_learned", .96, True), ("event_learned", .94, False)])
def test_an_attack_that_learns_has_a_control_of_its_own(attack, value, strong):
    one = next(c for c in COLUMNS if c["attack"] == attack)
    cells = [c for c in [*rows("public_median", .5, control="negative", lo=.5, hi=.5), *rows("task_dp", .6),
                         *rows("vtpm_style", value, control="positive")] if c["attack"] == attack
             and c["params"] == one["params"]]
    assert (attack_state(cells) == "ok") == strong
