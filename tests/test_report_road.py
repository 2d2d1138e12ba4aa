"""The traffic road from dataset to table: stages, border, replay, columns, ceilings, controls; then faults."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import PLUGINS, ROOT, start

from bench import ConfigError, DataError, PluginError, registry, store
from bench.data.streams import StreamDataset, Streams, Table, write_streams
from bench.ranking import attack_state
from bench.run.cache import WorkFolder
from bench.run.plan import Request, make_plan
from bench.run.stage_report_measures import Released
from bench.run.suite import load

SUITE = PLUGINS / "few_streams.toml"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One run of the whole road in a process of its own; returns its work folder."""
    folder = tmp_path_factory.mktemp("traffic")
    run = start("run", SUITE, "--plugin", PLUGINS / "few_streams.py", "--workdir", folder / "runs", "--display",
                "plain", "--jobs", 1, cwd=folder)
    out, err = run.communicate(timeout=900)
    assert run.returncode == 0, out + err
    return folder / "runs"


@pytest.fixture(scope="module")
def cells(finished):
    return store.read_cells(finished / "veilbench.duckdb", mark_stale=False)


def stages(folder, kind):
    return {r["identity"]["config"]["method"]: r["folder"] for r in WorkFolder(folder).finished(kind)}


def test_every_row_has_every_column_with_a_value(cells):
    rows = {(c["method"], c["variant"]) for c in cells}
    assert rows == {("vtpm_style", None), ("public_median", None), ("task_dp", "max"), ("hand_rule", None)}
    assert {c["track"] for c in cells} == {"traffic"} and len(cells) == 4 * (5 + 3 + 1 + 2 + 2)
    bad = {(c["method"], c["column"]) for c in cells if c["status"] != "ok"}
    # vehicles are not spoken of by the one, and never released by the other
    assert bad == {("vtpm_style", f"mae_vehicle[slots={s}]") for s in ("all", "asked", "covered")} | {
        ("public_median", "mae_vehicle[slots=covered]")}
    assert all(c["people"] == 8 for c in cells if c["status"] == "ok")


def value(cells, method, column):
    return next(c for c in cells if c["method"] == method and c["column"] == column)


def test_event_columns_lie_under_their_ceilings_and_the_controls_hold(cells):
    for cell in cells:
        if cell["metric"] == "auc" and cell["ceiling"] is not None:
            assert cell["value"] <= cell["ceiling"] + 1e-9, cell["column"]
    assert value(cells, "vtpm_style", "auc[event=experts]")["value"] == 1
    assert value(cells, "public_median", "auc[event=every_window]")["value"] == .5
    assert value(cells, "task_dp", "auc[event=flip]")["value"] > .9  # epsilon 4 on the asked expert
    assert attack_state([c for c in cells if c["column"] == "auc[event=experts]"]) == "ok"


def test_utility_and_age_follow_from_what_was_released(cells):
    assert value(cells, "public_median", "coverage")["value"] == 0
    assert value(cells, "public_median", "age")["value"] == pytest.approx(330)  # mean of 60, 120, ... 600
    assert value(cells, "task_dp", "coverage")["value"] == 1 and value(cells, "task_dp", "age")["value"] == 0
    assert value(cells, "task_dp", "mae_vehicle[slots=asked]")["value"] < \
        value(cells, "public_median", "mae_vehicle[slots=asked]")["value"]


def test_every_episode_keeps_what_it_adds_to_a_number_of_all(cells):
    """So that two rows can be compared over episodes: a mean of episodes by their values, utility by pseudo-values."""
    from bench.paired import difference

    one, other = (value(cells, name, "utility[slots=weighted]") for name in ("task_dp", "hand_rule"))
    assert len(one["person_values"]) == 8 and set(one["person_values"]) == set(other["person_values"])
    found = difference(one["value"], other["value"], one["person_values"], other["person_values"])
    assert found.value == one["value"] - other["value"] and found.lo < found.value < found.hi
    error = value(cells, "task_dp", "mae_vehicle[slots=all]")
    assert np.mean(list(error["person_values"].values())) == pytest.approx(error["value"])
    assert one["n"] == 16 and one["details"] == {"epsilon_sum": 40.0, "epsilon_max": 4.0}


def test_the_border_shows_released_values_only(finished):
    folder = stages(finished, "report")["task_dp"] / "release"
    table = pq.read_table(folder / "reports.parquet")
    assert table.num_rows == 8 * 2 * 10 and table.column("text")[0].as_py().startswith("About")
    said = json.loads((folder / "release.json").read_text())
    assert said["price"]["epsilon_max"] == 4.0 and said["price"]["epsilon_sum"] == 40.0
    text = (folder / "release.json").read_text() + str(table.column("id").to_pylist())
    assert "e12" not in text.split("transcript")[0] and "seed" not in said
    assert sorted(p.name for p in folder.iterdir()) == ["manifest.parquet", "release.json", "reports.parquet",
                                                        "transcript.safetensors"]


def test_draws_differ_and_streams_of_an_episode_share_its_requests(finished):
    streams = Streams(next(r["folder"] for r in WorkFolder(finished).finished("streams")))
    assert streams.info["left_over_chunks"] == 5 and len(streams.test()) == 8
    reports = Released(stages(finished, "report")["task_dp"], streams, 42).reports()
    one, other = np.flatnonzero(reports.episode == 3)
    assert (reports.asked[one] == reports.asked[other]).all() and (reports.truth[one] == reports.truth[other]).all()
    assert not np.array_equal(reports.report[one], reports.report[other])


def test_an_attack_that_learns_reads_the_same_release(finished, tmp_path, monkeypatch):
    from bench.run import matched, stage_report_measures
    from bench.run.stages import Job
    from bench.run.trials import read_trials

    monkeypatch.setattr(matched, "EXAMPLES", 300)
    record = next(r for r in WorkFolder(finished).finished("report") if r["identity"]["config"]["method"] == "task_dp")
    config = record["identity"]["config"] | {"attack": "event_learned", "numbers_seed": 42, "control": None}
    inputs = {"release": record["folder"], "streams": stages_of(finished, "streams")}
    stage_report_measures.run_event(Job({**config, "variant": None}, inputs, tmp_path, print))
    trials = read_trials(tmp_path / "trials.parquet")
    assert set(trials["column"]) == {f"auc[event={e}]" for e in ("flip", "vehicle", "experts")}
    assert all((trials["column"] == c).sum() == 8 * 2 for c in set(trials["column"]))
    assert 0 <= trials["value"][trials["column"] == "auc[event=flip]"].mean() <= 1


def test_samples_are_shown_of_datasets_that_may_be_shown(finished, tmp_path, monkeypatch):
    from bench import transcripts

    work = WorkFolder(finished)
    records = [r for r in work.finished("report") if r["identity"]["config"]["method"] in ("task_dp", "vtpm_style")]
    found = [s for r in records for s in transcripts.samples(work, [r], tmp_path)]
    assert len(found) == 2 and all(len(s["rows"]) == 10 and s["picture"] is None for s in found)
    assert [r["original"] for r in found[0]["rows"]] == [r["original"] for r in found[1]["rows"]]
    assert all(a["original"] != a["released"] for s in found for a in s["rows"])

    class Hidden(Streams):
        def __init__(self, folder):
            super().__init__(folder)
            self.info = {**self.info, "publishable": False}

    monkeypatch.setattr(transcripts, "Streams", Hidden)
    assert not list(transcripts.samples(work, records, tmp_path))


def stages_of(folder, kind):
    return next(r["folder"] for r in WorkFolder(folder).finished(kind))


def test_a_changed_transcript_is_noticed(finished, tmp_path):
    import shutil

    streams = Streams(next(r["folder"] for r in WorkFolder(finished).finished("streams")))
    copy = tmp_path / "report"
    shutil.copytree(stages(finished, "report")["task_dp"], copy)
    path = copy / "release" / "transcript.safetensors"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    with pytest.raises(DataError, match="not the one that was released"):
        Released(copy, streams, 42).scales(registry.build("methods", "task_dp").branches)


@pytest.fixture
def few_streams(monkeypatch):
    """The plug-in with the small dataset, forgotten afterwards."""
    monkeypatch.setenv(registry.EXTRA, str(PLUGINS / "few_streams.py"))
    registry._locations.cache_clear()
    yield
    monkeypatch.undo()
    registry._locations.cache_clear()


def planned(tmp_path, **change):
    return make_plan(Request(load(str(SUITE)).model_copy(update=change)), WorkFolder(tmp_path))


@pytest.mark.parametrize("change, message", [
    ({"methods": ["blur"]}, "does not release reports"), ({"attacks": ["plr"]}, "plr measures videos"),
    ({"metrics": ["psnr_released"]}, "psnr_released measures videos")])
def test_what_belongs_to_the_other_track_is_refused(tmp_path, few_streams, change, message):
    with pytest.raises(ConfigError, match=message):
        planned(tmp_path, **change)


def test_prepare_and_check_know_streams(tmp_path, cli, few_streams):
    """A prepared copy is checked against its manifest; one changed value is found."""
    work = tmp_path / "runs"
    made = cli("data", "prepare", "few_streams", "--workdir", work, "--display", "none")
    assert made.code == 0 and "data check few_streams" in made.out, made
    assert cli("data", "check", "few_streams", "--workdir", work).code == 0
    path = next(work.rglob("streams.npz"))
    with np.load(path) as found:
        arrays = {k: found[k].copy() for k in found}
    arrays["steps"].flat[5] += 1
    path.chmod(0o644)
    np.savez_compressed(path, **arrays)
    bad = cli("data", "check", "few_streams", "--workdir", work)
    assert bad.code == 1 and "not what was prepared" in bad.out


class Given(StreamDataset):
    """A dataset with the table that a test wants."""

    name = "given"

    def __init__(self, steps):
        self.steps = steps

    def table(self, root, report):
        return Table(tuple(map(str, range(len(self.steps)))), self.steps, np.ones(len(self.steps), bool))


@pytest.mark.parametrize("steps, message", [
    (np.zeros((2, 29, 12), int), "have 29 chunks"), (np.full((2, 30, 12), -1), "not negative"),
    (np.zeros((2, 30, 4), int), "twelve components")])
def test_streams_that_cannot_be_reported_are_refused(tmp_path, steps, message):
    with pytest.raises(DataError, match=message):
        write_streams(Given(steps), None, 42, tmp_path, print)


def test_a_method_of_faces_is_no_trusted_reader_of_fields():
    from bench.run.stage_reports import branches_of

    with pytest.raises(PluginError, match="cannot be read"):
        branches_of({"branches": [], "encodes": "pixels"})


def test_the_site_builds_with_a_traffic_board(finished):
    run = start("site", "build", "--workdir", finished, cwd=ROOT)
    out, err = run.communicate(timeout=300)
    assert run.returncode == 0, out + err
    index = (finished / "site" / "index.html").read_text(encoding="utf-8")
    assert "traffic track" in index and "8 test episodes of 20" in index and "8&nbsp;episodes" in index
    page = (finished / "site" / "methods" / "hand_rule.html").read_text(encoding="utf-8")
    assert "What it reports" in page and page.count("About ") >= 20 and "<img" not in page


def test_a_traffic_method_releases_no_video_file(tmp_path, cli):
    found = cli("release", "task_dp", tmp_path / "talk.mp4", "-o", tmp_path / "out.mkv")
    assert found.code == 2 and "cannot hold a transcript" in found.err and not list(tmp_path.glob("out*"))
