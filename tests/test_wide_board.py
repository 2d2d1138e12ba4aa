"""Boards with many columns: one table a family, gates of recovered columns, absent faces, rows run twice."""

from __future__ import annotations

import pytest
from test_board import cell, controls, row

from bench.display import FAMILIES, ONE_TABLE
from bench.ranking import attack_state, rank_section, unranked_reason, with_faces
from bench.views import boards

WIDE = [{"metric": "top1", "attack": a} for a in ("plr", "cplr", "vplr", "redraw")] + [
    {"metric": "eer", "attack": "open_set", "better": "higher"},
    {"metric": "tar", "attack": "open_set", "params": {"far": 0.1}},
    {"metric": "tar", "attack": "open_set", "params": {"far": 0.01}},
    {"metric": "top1", "attack": "plr", "via": "recover_unet"},
    {"metric": "fer", "attack": None, "role": "utility", "better": "higher", "evaluator": "x3d"},
    {"metric": "fwe_src", "attack": None, "role": "utility", "evaluator": "dis"},
    {"metric": "ssim_released", "attack": None, "role": "descriptive", "better": "none"}]


def section(cells):
    return boards(cells)[0]["sections"][0]


def test_a_wide_section_is_one_table_a_family_and_no_column_is_lost():
    made = section([row(name, 0.3, **column) for name in ("a", "b") for column in WIDE])
    titles = [panel["title"] for panel in made["panels"]]
    assert titles == list(FAMILIES.values()) and len(WIDE) > ONE_TABLE
    shown = [i for panel in made["panels"] for i in panel["columns"]]
    assert sorted(shown) == list(range(len(made["columns"]))) and len(made["columns"]) == len(WIDE)
    names = [made["columns"][i]["name"] for i in made["panels"][1]["columns"]]
    assert len(set(names)) == 3  # two false accept rates are two columns


def test_a_narrow_section_stays_one_table():
    made = section([row("a", 0.3), row("a", 0.5, metric="fer", attack=None, role="utility", better="higher")])
    assert [p["title"] for p in made["panels"]] == [""] and made["panels"][0]["columns"] == [0, 1]


@pytest.mark.parametrize("rate, unfit", [(0.2, True), (0.49, True), (0.5, False), (1.0, False)])
def test_an_identity_without_a_face_never_ranks(rate, unfit):
    steady = {"metric": "t_id", "attack": None, "role": "utility", "better": "higher", "evaluator": "synth"}
    found = {"metric": "detection_rate", "attack": None, "role": "descriptive", "better": "none"}
    grey, face, _, _ = with_faces([row("grey", 0.99, **steady), row("face", 0.9, **steady), row("grey", rate, **found),
                                   row("face", 1.0, **found)])
    assert bool(unranked_reason(grey)) == unfit and not unranked_reason(face)
    ranks = {r.cell["method"]: r.rank for r in rank_section([grey, face])}
    assert ranks["grey"] == (None if unfit else 1) and ranks["face"] == (1 if unfit else 2)


def test_a_row_run_twice_shows_how_far_it_lies_from_itself_and_does_not_rank():
    cells = [row("blur", 0.40), row("pixelate", 0.60), row("blur", 0.43, variant="again", control="repeat"),
             *controls()]
    made = section(cells)
    assert made["columns"][0]["apart"].startswith("3") and "blur@again" in {x["name"] for x in made["controls"]}
    assert {x["name"] for x in made["rows"]} == {"blur", "pixelate"}
    assert section([c for c in cells if c.get("variant") != "again"])["columns"][0]["apart"] == ""


# ---- gates ---------------------------------------------------------------------------------------------------------

def recovered(value, **other):
    return cell("original", value, metric="psnr_recovered", attack=None, control="positive", metric_unit="dB", **other)


def test_the_frame_wise_recovery_of_the_original_must_be_near_it():
    black = cell("blackout", 15.0, metric="psnr_recovered", attack=None, control="negative", via="recover_unet",
                 chance=None)
    assert attack_state([recovered(41.0, via="recover_unet"), black]) == "ok"
    assert "needed ≥ 35" in attack_state([recovered(30.0, via="recover_unet"), black])
    assert attack_state([recovered(30.0, via="recover_rvrt"), {**black, "via": "recover_rvrt"}]) == "ok"
    assert "was not run" in attack_state([cell("blur", 20.0, metric="psnr_recovered", attack=None, via="recover_unet")])


def test_the_error_rate_of_a_grey_canvas_must_hold_one_half():
    eer = {"metric": "eer", "attack": "open_set", "better": "higher"}
    good = cell("original", 0.02, control="positive", **eer)
    grey = {**cell("blackout", 0.5, control="negative", **eer), "lo": 0.45, "hi": 0.55}
    assert attack_state([good, grey]) == "ok"
    assert "away from chance 0.500" in attack_state([good, {**grey, "lo": 0.3, "hi": 0.4}])
    assert "needed ≤ 0.05" in attack_state([cell("original", 0.2, control="positive", **eer), grey])


def test_a_rate_at_a_threshold_of_other_people_has_no_chance_to_hold():
    tar = {"metric": "tar", "attack": "open_set", "params": {"far": 0.1}}
    grey = {**cell("blackout", 0.4, control="negative", chance=0.1, **tar), "lo": 0.3, "hi": 0.5}
    assert attack_state([cell("original", 1.0, control="positive", **tar), grey]) == "ok"
