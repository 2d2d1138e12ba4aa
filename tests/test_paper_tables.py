"""The paper's tables: which cells stand in which table, gaps with their command, numbers from elsewhere beside."""

from __future__ import annotations

import csv
import io
import json
import math
from types import SimpleNamespace

import pytest

from bench import beside
from bench.errors import ConfigError, DataError
from bench.paper_tables import PAPER_TABLES
from bench.tables import FORMATS, TABLES, table, title

BASE = {
    "variant": None, "dataset": "synthfaces", "profile": "tiny", "lane": "none", "unit": "none", "adjacency": "none",
    "horizon": "none", "epsilon": math.inf, "delta": 0.0, "attack": None, "evaluator": None, "via": "direct",
    "decoding": "assembled", "metric_unit": "rate", "better": "lower", "role": "privacy", "title": "", "chance": 0.04,
    "ceiling": None, "n": 300, "people": 25, "draws": 1, "seeds": [42], "status": "ok", "source": "measured",
    "digest": "feedfacecafe", "split": "0123456789ab", "params": None, "text": None, "control": None,
    "person_values": {}}
TADP = {"method": "tadp", "lane": "enforced", "unit": "clip", "epsilon": 8.0, "delta": 1e-5}


def cell(metric, value, **fields):
    return {**BASE, "metric": metric, "value": value, "lo": value - 0.1, "hi": value + 0.1, **fields}


def listed(name, cells, **more):
    return json.loads(table(name, cells, format="json", **more))


def test_the_tables_of_the_paper_are_there_under_their_names():
    wanted = {f"tadp-{n}" for n in range(1, 19)} | {"ceilings"}
    assert wanted <= set(PAPER_TABLES) <= set(TABLES) and all(title(name) for name in TABLES)


@pytest.mark.parametrize("name", sorted(set(PAPER_TABLES) - {"tadp-14"}))
@pytest.mark.parametrize("format", sorted(FORMATS))
def test_every_table_is_written_before_anything_is_measured(name, format):
    written = table(name, [], format=format)
    assert json.loads(written) == [] if format == "json" else "veilbench run" in written or format == "csv"


@pytest.mark.parametrize("measured_by, names", [("mini-faces", "mini-faces"), ("tadp", "tadp"), ("demo", "mini")])
def test_a_gap_names_the_suite_that_measured_its_row_where_that_carries_the_column(measured_by, names):
    found = listed("tadp-3", [cell("fer", 0.7, method="spact", evaluator="x3d", suite=measured_by)])
    gaps = [c["text"] for c in found if c["status"] == "missing"]
    assert gaps and all(text.startswith(f"veilbench run {names} --method spact --attack ") for text in gaps)


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_the_table_of_a_dataset_that_is_not_here_shows_its_frame_and_what_it_waits_for(format):
    elsewhere = [cell("fer", 0.7, method="original", evaluator="x3d")]
    written = table("tadp-14", elsewhere, format=format)
    if format == "json":
        found = json.loads(written)
        assert [(c["method"], c["variant"]) for c in found[::4]] == [
            ("original", None), ("tadp", "no_noise"), ("tadp", None)]
        assert {c["value"] for c in found} == {None} and {c["dataset"] for c in found} == {"dfew"}
        assert all("waits for the dataset dfew" in c["status"] for c in found)
    assert "waits for the dataset dfew" in written and (format != "md" or "| – (undefined" in written)
    there = [cell("fer", 0.4, evaluator="x3d", dataset="dfew", **TADP)]
    assert [c["value"] for c in listed("tadp-14", [*elsewhere, *there]) if c["metric"] == "fer"] == [0.4]


def test_a_table_takes_its_columns_and_nothing_else():
    cells = [cell("fer", 0.7, method="original", evaluator="x3d"), cell("fer", 0.6, method="original", evaluator="r3d"),
             cell("top1", 0.9, method="original", attack="plr"),
             cell("top1", 0.8, method="original", attack="plr", via="recover_unet"),
             cell("top1", 0.5, method="original", attack="redraw")]
    found = listed("tadp-3", cells)
    assert [(c["metric"], c["evaluator"], c["attack"], c["value"]) for c in found] == [
        ("fer", "x3d", None, 0.7), ("fer", "r3d", None, 0.6), ("top1", None, "plr", 0.9), ("top1", None, "cplr", None)]
    assert found[-1]["status"] == "missing" and found[-1]["text"] == (
        "veilbench run mini --method original --attack cplr --dataset synthfaces")
    via = {(c["via"], c["metric"], c["attack"]): c["value"] for c in listed("tadp-5", cells)}
    assert via["recover_unet", "top1", "plr"] == 0.8 and via["recover_rvrt", "psnr_recovered", None] is None


BASELINES = ("spact", "ted_spad", "adversarial_supervised", "controlled", "minusface", "face_swap",
             "knowledge_priors_style", "deepprivacy_style", "pi_net_style", "video_dprp_style")


@pytest.mark.parametrize("name", [f"tadp-{n}" for n in (3, 4, 5, 6, 7)])
def test_the_face_baselines_stand_in_the_tables_with_every_column(name):
    """Of either lane; a row that was measured in every column has no gap."""
    lanes = dict.fromkeys(BASELINES, "none") | dict.fromkeys(("pi_net_style", "video_dprp_style"), "declared")
    columns = PAPER_TABLES[name].columns
    cells = [cell(fields["metric"], 0.01 * i + 0.001 * j, method=method, lane=lane,
                  **{k: v for k, v in fields.items() if k != "metric"})
             for i, (method, lane) in enumerate(lanes.items()) for j, fields in enumerate(columns)]
    found = listed(name, cells)
    assert len(found) == len(cells) and not [c for c in found if c["status"] != "ok"]
    assert {(c["method"], c["value"]) for c in found} == {(c["method"], c["value"]) for c in cells}


def test_rows_keep_the_order_of_the_paper_and_other_methods_stay_out():
    names = ("eps16", None, "a3", "eps2", "a1", "eps4")
    cells = [cell("fer", 0.4, evaluator="x3d", **TADP | {"variant": name}) for name in names]
    cells.append(cell("fer", 0.7, method="original", evaluator="x3d"))
    first = [c["variant"] for c in listed("tadp-15", cells) if c["metric"] == "fer"]
    assert first == [None, "a1", "a3"]
    assert [c["variant"] for c in listed("tadp-17", cells) if c["metric"] == "fer"] == ["eps2", "eps4", None, "eps16"]


def test_a_parameter_makes_a_column_of_its_own():
    cells = [cell("probe", value, attack="stages", params={"stage": stage}, role="diagnostic", **TADP)
             for stage, value in (("clipped", 0.9), ("noisy", 0.3), ("quantized", 0.4))]
    found = listed("tadp-8", cells)
    assert [c["params"] for c in found][:3] == [{"stage": "clipped"}, {"stage": "noisy"}, {"stage": "quantized"}]
    assert found[3]["metric"] == "fer" and found[3]["status"] == "missing"


def test_two_datasets_are_two_blocks_and_are_never_in_one_row():
    cells = [cell("fer", 0.7, method="original", evaluator="x3d", dataset=name) for name in ("synthfaces", "cremad")]
    assert [block.caption for block in TABLES["tadp-3"](cells)] == [
        "Utility and identity leakage: synthfaces, tiny profile", "Utility and identity leakage: cremad, tiny profile"]


def test_ceilings_lists_only_what_a_claim_limits():
    cells = [cell("top1", 0.2, attack="plr", ceiling=0.35, **TADP), cell("fer", 0.3, evaluator="x3d", **TADP),
             cell("top1", 0.9, attack="plr", method="original")]
    found = listed("ceilings", cells)
    assert [(c["method"], c["value"], c["ceiling"]) for c in found] == [("tadp", 0.2, 0.35)]
    text = table("ceilings", cells)
    assert "allowed ≤ 0.350" in text and "EXCEEDS" not in text
    over = cell("top1", 0.6, attack="plr", ceiling=0.35, **TADP | {"variant": "leaky"})
    assert table("ceilings", [*cells, over]).count("EXCEEDS ITS CLAIM") == 1
    head, line = csv.reader(io.StringIO(table("ceilings", cells, format="csv")))
    assert line[head.index("plr top1 ceiling")] == "0.35"
    assert "allowed" not in table("tadp-3", cells) and "ceiling" not in table("tadp-3", cells, format="csv")


# ---- numbers from elsewhere ----------------------------------------------------------------------------------------

def written(tmp_path, text):
    path = tmp_path / "paper.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_reported_numbers_stand_below_marked_with_their_source(tmp_path):
    rows = beside.reported(written(tmp_path, "method,column,value,source\ntadp,fer@x3d,0.83,Table 3\n"
                                             "tadp,plr top1,0.1,Table 3\nspact,fer@x3d,0.5,Table 3\n"))
    cells = [cell("fer", 0.3, evaluator="x3d", **TADP), cell("top1", 0.2, attack="plr", **TADP)]
    found = listed("tadp-3", cells, reported=rows)
    beside_it = [(c["method"], c["metric"], c["value"], c["status"]) for c in found if c["source"] == "reported"]
    assert beside_it == [("tadp", "fer", 0.83, "ok"), ("tadp", "top1", 0.1, "ok"),
                         ("tadp", "top1", None, "undefined: not reported"), ("spact", "fer", 0.5, "ok"),
                         ("spact", "top1", None, "undefined: not reported"),
                         ("spact", "top1", None, "undefined: not reported")]
    assert {c["lane"] for c in found if c["source"] == "reported"} == {"reported"}
    assert [c["value"] for c in found if c["source"] == "measured"] == [0.3, 0.2, None]
    assert "tadp (reported: Table 3)" in table("tadp-3", cells, reported=rows)
    line = list(csv.reader(io.StringIO(table("tadp-3", cells, format="csv", reported=rows))))
    assert len(line) == 1 + 1 + 2


def test_a_number_reported_for_one_dataset_is_not_put_beside_another(tmp_path):
    rows = beside.reported(written(tmp_path, "method,column,value,source,dataset\ntadp,fer@x3d,.8,T3,cremad\n"))
    assert all(c["source"] == "measured"
               for c in listed("tadp-3", [cell("fer", 0.3, evaluator="x3d", **TADP)], reported=rows))


@pytest.mark.parametrize("text, says", [
    ("method,value,source\na,1,b\n", "lacks column"), ("method,column,value,source,extra\n", "unknown columns extra"),
    ("method,column,value,source\ntadp,fer@x3d,83 %,T3\n", "value is '83 %'"),
    ("method,column,value,source\ntadp,fer@x3d,inf,T3\n", "value is 'inf'"),
    ("method,column,value,source\ntadp,fer@x3d,,T3\n", "Line 2 of paper.csv has no value"), ("", "lacks method")])
def test_a_file_that_is_no_list_of_numbers_is_refused(tmp_path, text, says):
    with pytest.raises(DataError, match=says):
        beside.reported(written(tmp_path, text))


def test_an_unknown_column_names_the_nearest(tmp_path):
    rows = beside.reported(written(tmp_path, "method,column,value,source\ntadp,fer@x3,0.8,T3\n"))
    with pytest.raises(ConfigError, match="fer@x3d"):
        table("tadp-3", [cell("fer", 0.3, evaluator="x3d", **TADP)], reported=rows)
    with pytest.raises(DataError, match="There is no file"):
        beside.reported(tmp_path / "none.csv")


def test_another_database_stands_row_by_row_below():
    mine, other = [cell("fer", 0.3, evaluator="x3d", **TADP)], [cell("fer", 0.4, evaluator="x3d", **TADP)]
    found = listed("tadp-3", mine, other=("old.duckdb", other))
    assert [c["value"] for c in found if c["metric"] == "fer"] == [0.3, 0.4]
    assert "in old.duckdb" in table("tadp-3", mine, other=("old.duckdb", other))
    assert len(listed("tadp-3", mine, other=("old.duckdb", []))) == 3


# ---- what is computed ----------------------------------------------------------------------------------------------

def test_clips_of_one_video_are_composed_by_three_conversions():
    fer = cell("fer", 0.3, evaluator="x3d", **TADP | {"epsilon": 1.7600571463},
               details={"clips_read": {"1": 20, "4": 60, "10": 20}})  # golden case G03 of one clip: mu = sqrt(1 / 5)
    found = {tuple((c["params"] or {}).values()): c["value"] for c in listed("tadp-2", [fer])}
    assert [found[name,] for name in ("least", "near mean", "most")] == [1, 5, 10]
    assert found["least", "exact"] == pytest.approx(1.76005715, abs=1e-6)
    assert found["least", "mironov"] == pytest.approx(2.24596603, abs=1e-6)
    assert found["most", "exact"] == pytest.approx(6.57297007, abs=1e-5)  # golden case G05
    assert found["most", "mironov"] == pytest.approx(7.78614042, abs=1e-5)
    assert found["most", "cks"] == pytest.approx(7.07719670, abs=1e-5)
    assert listed("tadp-2", [cell("fer", 0.3, evaluator="x3d", **TADP)]) == []  # how many clips is not known


def artifact(kind, variant, seconds, peak_mb, finished=1.0, **config):
    made = {"method": "tadp", "variant": variant, "parts": ["train", "calibration", "test", "x"], **config}
    return {"kind": kind, "seconds": seconds, "peak_mb": peak_mb, "finished": finished,
            "identity": json.dumps({"config": made})}


def test_what_a_release_took_stands_beside_and_is_missing_where_it_did_not_run_here():
    cells = [cell("fer", 0.3, evaluator="x3d", **TADP | {"variant": name}) for name in ("t32", "t8")]
    took = [artifact("encode", "t8", 10.0, 900.0), artifact("enforced", "t8", 7.0, 700.0),
            artifact("enforced", "t8", 5.0, 800.0, 2.0), artifact("enforced", "t8", 99.0, 9999.0, 3.0, parts=["test"]),
            artifact("attack", "t8", 99.0, 9999.0)]
    found = {(c["variant"], c["metric"]): (c["value"], c["status"])
             for c in listed("tadp-16", cells, artifacts=took)}
    assert found["t8", "release_s"] == (15.0, "ok") and found["t8", "release_mb"] == (900.0, "ok")  # the newest of each
    assert found["t32", "release_s"] == (None, "missing")
    assert list(found)[0][0] == "t8"


def scales_of(variant=None, **values):
    return [cell(metric, value, attack="scales", role="diagnostic", params={"branch": branch},
                 **TADP | {"variant": variant}) for metric, value in values.items() for branch in ("id", "expr")]


def test_the_configuration_of_a_row_stands_beside_its_scales_and_is_missing_where_it_was_not_fitted_here():
    cells = [*scales_of(clipped_share=0.05, floor=6.0), *scales_of("eps4", clipped_share=0.05, floor=9.0)]
    known = {("synthfaces", "tiny", "tadp", None): SimpleNamespace(
        clip_norm={"id": 0.5, "expr": 2.0}, s_min={"id": 3.0, "expr": 12.0}, temperature=0.5, frames=16)}
    found = {(c["variant"], c["metric"], (c["params"] or {}).get("branch")): c
             for c in listed("tadp-1", cells, fitted=known)}
    assert [found[None, "clip_norm", b]["value"] for b in ("id", "expr")] == [0.5, 2.0]
    assert [found[None, "s_min", b]["value"] for b in ("id", "expr")] == [3.0, 12.0]
    assert (found[None, "frames", None]["value"], found[None, "temperature", None]["value"]) == (16, 0.5)
    assert found[None, "epsilon", None]["value"] == 8 and found["eps4", "epsilon", None]["status"] == "ok"
    assert found["eps4", "clip_norm", "id"]["status"] == "missing" == found["eps4", "temperature", None]["status"]
    assert "units of the encoder's features" in table("tadp-1", cells, fitted=known)
    assert "veilbench run tadp --method tadp" in table("tadp-1", cells)  # of an import: nothing was fitted here
