"""Tables: every format reads back, numbers round by their interval, gaps name their command, names are escaped."""

from __future__ import annotations

import csv
import io
import json
import math

import pytest

from bench.display import PUBLIC_FIELDS, command, decimals, epsilon_text, guess_words, interval, number
from bench.errors import ConfigError
from bench.tables import FORMATS, TABLES, table

BASE = {
    "id": "a1", "variant": None, "dataset": "synthfaces_demo", "profile": "tiny", "lane": "none", "unit": "none",
    "adjacency": "none", "horizon": "none", "epsilon": math.inf, "delta": 0.0, "evaluator": None, "via": "direct",
    "decoding": "assembled", "metric_unit": "rate", "better": "lower", "role": "privacy", "title": "", "chance": 1 / 9,
    "ceiling": None, "n": 864, "people": 9, "draws": 1, "seeds": [42], "status": "ok", "source": "measured",
    "digest": "feedfacecafe", "split": "0123456789ab", "params": None, "text": None, "control": None,
    "person_values": {}}


def cell(method, value, lo=None, hi=None, **other):
    return {**BASE, "method": method, "attack": "plr", "metric": "top1", "value": value, "lo": lo, "hi": hi, **other}


def utility(method, value, **other):
    return cell(method, value, value - 0.1, value + 0.1, attack=None, metric="fer", evaluator="x3d", better="higher",
                role="utility", chance=1 / 6, n=216, **other)


@pytest.fixture
def cells():
    return [cell("original", 0.967, 0.93, 1.0, control="positive"), utility("original", 0.70, control="positive"),
            cell("blur", 0.42345, 0.33145, 0.51545), utility("blur", 0.51),
            cell("blur", 0.8, 0.7, 0.9, variant="2")]


def test_two_significant_digits_of_the_half_width():
    assert decimals({"lo": 0.331, "hi": 0.515, "metric_unit": "rate"}) == 3  # half-width 0.092
    assert decimals({"lo": 0.331, "hi": 0.515, "metric_unit": "rate"}, 100) == 1  # half-width 9.2
    assert decimals({"lo": 0.2, "hi": 0.6, "metric_unit": "rate"}, 100) == 0  # half-width 20
    assert decimals({"lo": 20.0, "hi": 20.06, "metric_unit": "dB"}) == 3  # half-width 0.030
    assert decimals({"lo": 1.0, "hi": 1.0, "metric_unit": "rate"}) == 3  # no width: the default


@pytest.mark.parametrize("value, text", [(None, "–"), (math.nan, "–"), (math.inf, "–"), (-0.0004, "0.00"),
                                         (-1.5, "−1.50"), (2, "2.00")])
def test_numbers_are_dashes_when_there_is_none(value, text):
    assert number(value, 2) == text


def test_infinite_epsilon_is_never_zero_or_blank():
    assert epsilon_text(math.inf) == epsilon_text(None) == "∞"
    assert epsilon_text(1.76006) == "1.76"


def test_json_has_exactly_the_public_fields_and_is_strict(cells):
    rows = json.loads(table("summary", cells, format="json"), parse_constant=lambda name: pytest.fail(name))
    assert all(list(row) == list(PUBLIC_FIELDS) for row in rows)
    blur = next(r for r in rows if r["method"] == "blur" and r["variant"] is None and r["metric"] == "top1")
    assert (blur["value"], blur["lo"], blur["epsilon"], blur["attack"]) == (0.42345, 0.33145, "inf", "plr")
    assert len(rows) == 6  # three rows, two columns: the gap is a row too


def test_a_gap_is_missing_with_the_command_that_fills_it(cells):
    rows = json.loads(table("summary", cells, format="json"))
    gap = next(r for r in rows if r["status"] == "missing")
    assert (gap["method"], gap["variant"], gap["metric"], gap["value"]) == ("blur", "2", "fer", None)
    assert gap["text"] == "veilbench run demo --method blur@2 --metric fer@x3d --dataset synthfaces_demo"
    assert gap["text"] in table("summary", cells)
    assert command(cell("x", None, profile="paper", suite="full")) == \
        "veilbench run full --method x --attack plr --dataset synthfaces_demo --profile paper"


def test_csv_reads_back_with_every_digit(cells):
    rows = list(csv.DictReader(io.StringIO(table("summary", cells, format="csv"))))
    assert [(r["method"], r["variant"]) for r in rows] == [("original", ""), ("blur", ""), ("blur", "2")]
    assert float(rows[1]["plr top1 value"]) == 0.42345 and rows[1]["plr top1 people"] == "9"
    assert rows[2]["fer@x3d value"] == "" and rows[2]["fer@x3d to_measure"].startswith("veilbench run")
    assert rows[0]["epsilon"] == "inf" and rows[0]["seeds"] == "42"


def test_markdown_is_a_table_with_interval_chance_n_people_and_a_digest_line(cells):
    text = table("summary", cells)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in lines} == {4}  # method + two columns
    blur = next(line for line in lines if line.startswith("| blur ("))
    assert "0.423 \\[0.331, 0.515\\], chance 0.111, n 864, 9 people" in blur
    assert "epsilon ∞" in blur and "lower is better" in lines[0] and "higher is better" in lines[0]
    assert "n 216–864, people 9, seeds 42, draws 1, profile tiny" in text and "feedfaceca" in text


def test_latex_is_balanced_and_escaped(cells):
    text = table("summary", [*cells, cell("a_b&50%#$~^{x}\\y", 0.5, 0.4, 0.6)], format="latex")
    assert r"a\_b\&50\%\#\$\textasciitilde{}\textasciicircum{}\{x\}\textbackslash{}y" in text
    assert text.count(r"\begin{") == text.count(r"\end{") == 2
    body = text.split(r"\hline")
    columns = [row.count(" & ") for part in body[1:3] for row in part.strip().splitlines()]
    assert set(columns) == {2}
    assert "\u2013" not in text and "\u2191" not in text and "\u221e" not in text


def test_markdown_cannot_be_broken_by_a_name():
    text = table("summary", [cell("a|b<script>`x`", 0.5, 0.4, 0.6)])
    row = next(line for line in text.splitlines() if "script" in line)
    assert "a\\|b\\<script\\>\\`x\\`" in row


@pytest.mark.parametrize("value", [math.nan, math.inf, None])
def test_a_number_that_is_none_is_null_in_json_and_a_dash_in_text(value):
    bad = [cell("broken", value, status="invalid: attacker diverged")]
    assert json.loads(table("summary", bad, format="json"))[0]["value"] is None
    assert "– (invalid: attacker diverged)" in table("summary", bad)


def test_a_weak_attack_is_named_under_the_table():
    weak = [cell("original", 0.5, 0.4, 0.6, control="positive"), cell("blackout", 0.1, 0.0, 0.2, control="negative")]
    assert "attack too weak" in table("summary", weak)


def test_two_datasets_are_two_tables(cells):
    text = table("summary", [*cells, cell("blur", 0.5, 0.4, 0.6, dataset="cremad")])
    assert text.count("### Summary") == 2


def test_no_cells_make_an_empty_table():
    assert json.loads(table("summary", [], format="json")) == []
    assert table("summary", []).strip() == ""


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean summary"):
        table("sumary", [])
    with pytest.raises(ConfigError, match="latex"):
        table("summary", [], format="latx")
    assert "summary" in TABLES and set(FORMATS) == {"md", "csv", "latex", "json"}


def test_interval_is_empty_without_one():
    assert interval(cell("x", 0.5)) == "" and interval(cell("x", 0.5, 0.4, math.nan)) == ""


def test_a_recovery_is_read_beside_what_a_guess_gives():
    guesses = {"copied": {"value": 20.98, "apart": 3.316, "lo": 2.84, "hi": 3.79},
               "mean_face": {"value": 25.0, "apart": -0.7, "lo": None, "hi": None}}
    recovered = cell("blur", 24.296, 23.9, 24.7, metric="psnr_recovered", metric_unit="dB", via="recover_unet",
                     details={"guesses": guesses})
    assert guess_words(recovered) == ["a copy 20.98, this +3.32 [2.84, 3.79]", "the mean face 25.00, this −0.70"]
    assert guess_words(cell("blur", 0.5)) == []
    text = table("summary", [cell("blur", 0.7, 0.6, 0.8), recovered])
    assert "a copy 20.98, this +3.32 \\[2.84, 3.79\\]; the mean face 25.00" in text
