"""`veilbench release` of a fixed camera's video: transcript, card, claim over episodes, faults that leave nothing."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from fractions import Fraction as F

import numpy as np
import pytest
from test_traffic import fitted
from test_trafficfolder import SETTINGS, write
from test_vision import street

from bench import ConfigError, registry
from bench.data.camera.folder import camera_of
from bench.errors import EnvironmentFault
from bench.privacy.accounting import price
from bench.privacy.contract import full_claim
from bench.registry import Spec
from bench.run import report_release
from bench.run.report_release import release_reports, whole_claim, write_transcript
from bench.run.workers import method_facts
from bench.traffic import COMPONENTS, EXPERTS, columns

THINGS = ((10, 40, 5, 8, 0), (40, 12, 20, 10, 0))  # somebody who waits, a car that stands


@pytest.fixture(scope="module")
def yard(tmp_path_factory):
    """A camera's folder with a video of two windows and a chunk."""
    folder = tmp_path_factory.mktemp("yard")
    write(folder / "day.mkv", chunks=61, things=THINGS)
    write(folder / "empty" / "street.mkv", frames=street(16))
    (folder / "camera.toml").write_text(SETTINGS)
    return folder


@pytest.fixture(scope="module")
def task(yard):
    """Facts of task_dp@max, and two releases of the same video."""
    spec = Spec("task_dp", "max")
    facts, state = method_facts(spec), fitted("task_dp@max").state()
    return spec, facts, [release_reports(spec, facts, state, yard / "day.mkv", camera_of(yard)) for _ in range(2)]


def test_exact_words_of_what_the_experts_saw(yard, tmp_path, cli):
    """A method without noise shows the road through the files: readings in, sentences out, nothing else."""
    found = cli("release", "vtpm_style", yard / "day.mkv", "-o", tmp_path / "out" / "day.json")
    assert found.code == 0, found.err
    text, table = (tmp_path / "out" / "day.txt").read_text(), json.loads((tmp_path / "out" / "day.json").read_text())
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["day.json", "day.txt"]
    assert text.startswith("0 to 60 s: Vehicles: not reported. About 0 people walking and 1 waiting. Sign: none. "
                           "Weather: clear.\n60 to 120 s: ")
    assert len(table["reports"]) == 2 and table["reports"][1]["from_s"] == 60
    assert table["reports"][0]["values"]["waiting"] == 1 and table["reports"][0]["values"]["moving"] is None
    assert table["price"]["epsilon"] == "inf" and table["lane"] == "none" and "infin" in text
    assert "The last 1 chunks" in found.out and "For you alone" in found.out  # for the owner, in no file
    assert "last 1 chunks" not in text + json.dumps(table) and "day.mkv" not in text + json.dumps(table)


def test_an_enforced_method_pays_for_what_it_says(task):
    spec, facts, (made, again) = task
    assert made.cost.epsilon_max == 4 and made.cost.epsilon_sum == 8 and len(made.claim.event.spends) == 2
    for report in made.reports:
        fresh = {e.name for e, f in zip(EXPERTS, report.fresh, strict=True) if f}
        assert fresh == {report.asked} and not np.isnan(report.values).any()
        part = columns(report.asked)
        true = {"traffic": [0, 1], "pedestrian": [0, 1], "signs": [0, 0, 0, 1], "environment": [1, 0, 0, 0]}
        reach = 2 * 2 * next(e.cap for e in EXPERTS if e.name == report.asked) / 30 / 4  # b of the mean at epsilon 4
        assert np.abs(report.values[part] - true[report.asked]).max() < 30 * reach
    assert [r.asked for r in made.reports] == [r.asked for r in again.reports]
    assert any(not np.array_equal(a.values, b.values) for a, b in zip(made.reports, again.reports, strict=True))


def test_what_a_camera_does_not_read_is_not_reported(yard, tmp_path, task):
    spec, facts, _ = task
    camera = replace(camera_of(yard), vehicle_px=None, sign=None)
    made = release_reports(spec, facts, fitted("task_dp").state(), yard / "day.mkv", camera)
    for report in made.reports:
        missing = np.isnan(report.values)
        assert missing[columns("traffic")].all() and missing[columns("signs")].all() and missing.sum() == 6
        assert "Vehicles: not reported." in report.text and not report.fresh[[0, 2]].any()
    write_transcript(tmp_path / "a.json", spec, facts, made, ["card"])
    assert json.loads((tmp_path / "a.json").read_text())["reports"][0]["values"]["moving"] is None
    assert any("missing in every report: traffic, signs" in note for note in made.notes)


@pytest.mark.parametrize("name, total, worst", [("task_dp", 12, F(4, 5)), ("task_dp@max", None, 4),
                                                ("hand_rule", 12, F(8, 5)), ("public_median", 0, 0)])
def test_the_claim_over_episodes_adds_up_as_the_accountant_says(name, total, worst):
    """Three episodes of 10, 10 and 7 windows. sum: a budget of 4 each. max: 4 in the window that costs most."""
    claim = whole_claim(full_claim(registry.build("methods", name)), [10, 10, 7])
    cost, event = price(claim), claim.event
    assert len(event.spends) == 27 and claim.horizon_seconds == 27 * 60 and claim.horizon == "27 windows"
    if name == "task_dp":
        total = F(27 * 2, 5)  # 27 windows of .4 stay under three budgets
    assert cost.epsilon_sum == float(total if total is not None else 27 * 4)
    assert cost.epsilon_max <= float(worst) and cost.epsilon_max == float(max(event.spends))


# ---- faults ----

@pytest.mark.parametrize("words, message", [
    (("task_dp", "-o", "x.mkv"), "End its name in .json"), (("task_dp", "-o", "x.json"), "is not fitted"),
    (("raw_gate", "-o", "x.json"), "only declared"), (("vtpm_style", "-o", "x.json", "--lossless"), "No picture"),
    (("vtpm_style", "-o", "notes.json"), "notes.txt is there already"),
    (("blur", "-o", "x.mkv", "--camera", "."), "--camera does not go")])
def test_what_cannot_be_released_is_said_and_leaves_nothing(yard, tmp_path, cli, words, message):
    (tmp_path / "notes.txt").write_text("mine")
    found = cli("release", words[0], yard / "day.mkv", *words[1:])
    assert found.code == 2 and message in found.err, found
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"] and (tmp_path / "notes.txt").read_text() == "mine"


def test_a_video_without_public_background_or_too_short_is_refused(tmp_path, cli):
    write(tmp_path / "a" / "day.mkv", chunks=2)
    bare = cli("release", "vtpm_style", tmp_path / "a" / "day.mkv", "-o", tmp_path / "out.json")
    assert bare.code == 2 and "no public background" in bare.err and "empty/*.png" in bare.err
    write(tmp_path / "c" / "empty" / "street.mkv", frames=street(16))
    short = cli("release", "vtpm_style", tmp_path / "a" / "day.mkv", "-o", tmp_path / "out.json", "--camera",
                tmp_path / "c")
    assert short.code == 2 and "lasts 4.0 s" in short.err and not list(tmp_path.glob("out*"))


def test_a_full_disk_leaves_no_half(task, tmp_path, monkeypatch):
    spec, facts, (made, _) = task
    monkeypatch.setattr(report_release.os, "fsync", lambda number: os.write(-1, b""))
    with pytest.raises(EnvironmentFault, match="Nothing half-written"):
        write_transcript(tmp_path / "a.json", spec, facts, made, ["card"])
    assert not list(tmp_path.iterdir())


def test_the_transcript_never_overwrites_the_video(tmp_path):
    source = tmp_path / "a.json"
    source.write_text("video")
    with pytest.raises(ConfigError, match="is the input"):
        report_release.check_output(source, tmp_path / "a.json")


def test_values_in_the_file_are_those_of_the_components(task, tmp_path):
    spec, facts, (made, _) = task
    write_transcript(tmp_path / "a.json", spec, facts, made, ["card"])
    table = json.loads((tmp_path / "a.json").read_text())
    assert list(table["reports"][0]["values"]) == list(COMPONENTS) and table["card"] == ["card"]
    assert table["noise"] == "os" and "seed" not in json.dumps(table)
