"""What must never look private: attackers that fail, classes and people that are absent, scores that say nothing."""

from __future__ import annotations

import json
import math
import os
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import PLUGINS, start

from bench import registry, stats, store
from bench.display import finite
from bench.errors import Diverged, PluginError
from bench.measures import Column
from bench.ranking import attack_state, rank_section
from bench.run import stage_attack, stage_match, stage_metric, stage_sets
from bench.run.cells import measured_cells
from bench.run.stage_attack import run_attack, run_train
from bench.run.stage_metric import run_metric
from bench.run.stage_release import run_release
from bench.run.stages import Job
from bench.run.trials import hit, read_trials
from bench.run.views import state_of
from bench.seeds import derive

PLUGIN = PLUGINS / "diverging.py"
CONFIG = {"variant": None, "budget": {}, "profile": "tiny", "seed": 1, "numbers_seed": 1}
SUITE_TEXT = """
title = "Attackers that fail"
dataset = "blocks"
methods = ["blur@2"]
attacks = ["diverging@constant", "diverging@loss", "diverging@killed", "diverging@killed_later"]
metrics = []
"""
KILLED = "the stage was killed (out of memory, or by hand)"
REASONS = {"loss": "diverged: the loss became", "killed": KILLED, "killed_later": KILLED}


@pytest.fixture(scope="module")
def diverging(plugins):
    """The plug-in of this file, forgotten afterwards."""
    patch = pytest.MonkeyPatch()
    patch.setenv(registry.EXTRA, os.pathsep.join([os.environ[registry.EXTRA], str(PLUGIN)]))
    registry._locations.cache_clear()
    yield registry.get("attacks", "diverging")
    patch.undo()
    registry._locations.cache_clear()


# ---- attackers that fail -------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def run(tmp_path_factory, plugins):
    """(what the command printed, its exit code, {variant: its cell, as the store has it}) of one run."""
    base = tmp_path_factory.mktemp("diverging")
    (base / "failing.toml").write_text(SUITE_TEXT, encoding="utf-8")
    process = start("run", base / "failing.toml", "--plugin", PLUGIN, "--workdir", base / "work", "--jobs", 1,
                    "--display", "plain", cwd=base)
    out, err = process.communicate(timeout=300)
    assert (base / "work" / "veilbench.duckdb").is_file(), out + err
    cells = store.read_cells(base / "work" / "veilbench.duckdb", mark_stale=False)
    return out, process.returncode, {c["attack"].partition("@")[2]: c for c in cells}


@pytest.mark.parametrize("way", REASONS)
def test_a_failed_attacker_leaves_an_invalid_cell_and_no_number(run, way):
    _, code, cells = run
    cell = cells[way]
    assert code == 1 and cell["status"].startswith("invalid: ") and REASONS[way] in cell["status"]
    assert cell["value"] is cell["lo"] is cell["hi"] is None and cell["n"] == 0 and not cell["person_values"]


@pytest.mark.parametrize("way", REASONS)
def test_it_never_ranks_and_lends_the_column_no_control(run, way):
    cell = run[2][way]
    (row,) = rank_section([cell])
    assert row.rank is None and not row.best and row.reason.startswith("invalid: ")
    positive = {**cell, "method": "original", "control": "positive"}
    assert attack_state([cell, positive]).startswith("attack too weak: original")
    private = {**cell, "method": "blackout", "status": "ok", "value": 0.0, "lo": 0.0, "hi": 0.0, "chance": 0.3}
    (first, second) = rank_section([cell, {**private, "control": None}])
    assert first.rank is second.rank is None  # without a control that succeeds nobody ranks


def test_an_attacker_beside_them_that_cannot_tell_is_at_chance_exactly(run):
    out, _, cells = run
    cell = cells["constant"]
    assert set(cells) == {*REASONS, "constant"} and f"{len(REASONS)} failed" in out
    assert cell["status"] == "ok" and cell["value"] == pytest.approx(1 / 3, abs=1e-15) == cell["chance"]


# ---- equal scores, whatever their number ---------------------------------------------------------------------------

@pytest.mark.parametrize("people", [2, 3, 7, 25, 91])
@pytest.mark.parametrize("score", [0.0, -1e300, 1e-320, 5.0])
def test_equal_scores_hit_as_often_as_guessing(people, score):
    hits = [hit(np.full(people, score), truth) for truth in range(people)]
    assert set(hits) == {1 / people} and math.fsum(hits) == pytest.approx(1)
    first = np.full(people, score)
    first[0] = np.nextafter(score, math.inf)
    assert [hit(first, truth) for truth in range(people)] == [1.0] + [0.0] * (people - 1)


def test_equal_scores_have_no_better_side():
    """A constant decision: recall 1 of one class, 0 of all others."""
    for classes in (2, 6):
        truth = list(range(classes)) * 10
        people = [i // classes for i in range(len(truth))]
        found = stats.uar_interval(truth, [0] * len(truth), people, classes, derive(1, "equal"))
        assert (found.value, found.lo, found.hi) == pytest.approx([1 / classes] * 3)


# ---- a class that is absent ----------------------------------------------------------------------------------------

def test_a_class_that_nobody_shows_counts_in_no_recall():
    truth, predicted = [0, 0, 1, 1] * 6, [0, 0, 1, 3] * 6  # class 2 is absent, class 3 is only ever guessed
    people = [i // 4 for i in range(24)]
    found = stats.uar_interval(truth, predicted, people, 4, derive(1, "absent"))
    assert (found.value, found.lo, found.hi) == pytest.approx([0.75] * 3) and found.kind == "bootstrap"
    tables = stats.confusions(truth, predicted, people, 4)
    assert tables.shape == (6, 4, 4) and tables[:, 2].sum() == 0 and tables[:, 1, 3].tolist() == [1] * 6


def test_a_class_that_one_person_shows_widens_the_interval_and_never_breaks_it():
    truth, people = [0, 1] * 6 + [2], [i // 2 for i in range(12)] + [5]
    alone = stats.uar_interval(truth[:-1], truth[:-1], people[:-1], 3, derive(1, "one"))
    wrong = stats.uar_interval(truth, [*truth[:-1], 0], people, 3, derive(1, "one"))
    assert (alone.value, alone.lo, alone.hi) == (1, 1, 1)
    assert wrong.value == pytest.approx(2 / 3) and wrong.lo <= wrong.value < 1 == wrong.hi


def test_no_trial_at_all_is_undefined():
    found = stats.uar_interval([], [], [], 3, derive(1, "none"))
    assert math.isnan(found.value) and found.kind == "none" and (found.n, found.people) == (0, 0)
    assert stats.confusions([], [], [], 3).shape == (0, 3, 3)


# ---- a person that is absent ---------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def released(small, tmp_path_factory):
    out = tmp_path_factory.mktemp("wrong") / "release-stage"
    config = {"method": "original", "variant": None, "profile": "tiny", "seed": 5,
              "parts": ["development", "calibration", "enrolment", "probe"], "draws": 1, "decoding": "assembled"}
    run_release(Job(config, {"clips": small}, out, lambda text: None))
    return out


def without(person: int, role: str):
    """`open_release` as it would be had this test person (by place) no video of this role."""
    opened = stage_attack.open_release

    def filtered(folder, **more):
        items = opened(folder, **more)
        people = sorted({i.person for i in items})
        return [i for i in items if more.get("role") != role or i.person != people[person]]

    return filtered


def attacked(released, folder, variant) -> dict[str, np.ndarray]:
    config = {**CONFIG, "attack": "diverging", "variant": variant}
    for name in ("train", "attack"):
        (folder / name).mkdir()
    run_train(Job(config, {"release": released}, folder / "train", lambda text: None))
    run_attack(Job(config, {"release": released, "train": folder / "train"}, folder / "attack", lambda text: None))
    return read_trials(folder / "attack" / "trials.parquet")


def test_a_person_without_probes_is_one_of_those_that_may_be_guessed(diverging, released, tmp_path, monkeypatch):
    monkeypatch.setattr(stage_attack, "open_release", without(1, "probe"))
    trials = attacked(released, tmp_path, "constant")
    result = json.loads((tmp_path / "attack" / "result.json").read_text())
    assert len(set(trials["person"])) == 2 and set(trials["value"]) == {1 / 3}
    assert result["chance"] == pytest.approx(1 / 3) and result["people"] == 3  # three are enrolled


def test_the_same_attacker_succeeds_when_nobody_is_absent(diverging, released, tmp_path):
    assert set(attacked(released, tmp_path, "honest")["value"]) == {1}


def test_a_person_who_never_enrolled_fails_the_attack(diverging, released, tmp_path, monkeypatch):
    """A closed set has no answer for a stranger: no number, rather than one that looks private."""
    monkeypatch.setattr(stage_attack, "open_release", without(1, "enrolment"))
    with pytest.raises(Exception, match="not in list"):
        attacked(released, tmp_path, "honest")
    assert not (tmp_path / "attack" / "trials.parquet").exists()


@pytest.mark.parametrize("variant, message", [("nan", "finite: False"), ("loss", "the loss became")])
def test_numbers_that_are_none_are_divergence(diverging, released, tmp_path, variant, message):
    with pytest.raises(Diverged, match=message):
        attacked(released, tmp_path, variant)
    assert not (tmp_path / "attack" / "trials.parquet").exists()


# ---- the same for evaluators ---------------------------------------------------------------------------------------

class Always:
    """An evaluator that gives every video the same scores."""

    scores: tuple[float, ...] = (0.0, 0.0)

    def __init__(self):
        self.columns = registry.get("metrics", "fer").columns

    def fit(self, train, calibration, classes, assets, ctx):
        self.classes = classes

    def predict(self, video):
        return np.array(self.scores)

    def state(self):
        return {"classes": np.array(self.classes)}


@pytest.fixture
def evaluated(released, small, tmp_path, monkeypatch):
    def measure(*scores: float) -> dict[str, np.ndarray]:
        made = type("Made", (Always,), {"scores": scores})
        monkeypatch.setattr(registry, "get", lambda kind, name, real=registry.get:
                            made if (kind, name) == ("metrics", "always") else real(kind, name))
        config = {**CONFIG, "metric": "always"}
        run_metric(Job(config, {"release": released, "clips": small}, tmp_path, lambda text: None))
        return read_trials(tmp_path / "trials.parquet")

    return measure


@pytest.mark.parametrize("scores", [(0.0, math.nan), (math.inf, 0.0), (0.0,), (0.0, 0.0, 0.0)])
def test_an_evaluator_that_scores_no_numbers_diverged(evaluated, tmp_path, scores):
    with pytest.raises(Diverged, match="the evaluator gave"):
        evaluated(*scores)
    assert not (tmp_path / "trials.parquet").exists()


def test_an_evaluator_that_cannot_tell_is_at_chance(evaluated, tmp_path):
    trials = evaluated(0.0, 0.0)
    result = json.loads((tmp_path / "result.json").read_text())
    columns = registry.get("metrics", "fer").columns
    config = {"method": "x", "variant": None, "dataset": "blocks", "profile": "tiny", "lane": "none",
              "claim": {"unit": "none", "adjacency": "none", "horizon": "none", "delta": 0.0, "epsilon": "inf"},
              "control": None, "attack": None, "evaluator": "x3d", "via": "direct", "decoding": "assembled",
              "draws": 1, "seeds": [1], "suite": "s", "plugins": {}, "digest": "d",
              "columns": [vars(c) for c in columns]}
    war, uar = measured_cells(config, trials, result, "split")
    assert uar["value"] == pytest.approx(0.5) == uar["chance"] == result["chance"]
    assert finite(war["value"]) and war["value"] == pytest.approx(result["majority"])  # blocks has as many of each


# ---- what a plug-in may not answer ---------------------------------------------------------------------------------

@pytest.mark.parametrize("state, said", [
    (None, "gave NoneType, not a mapping"), ([1.0], "gave list"), ({"w": "text"}, "'w', which is no named array"),
    ({"w": None}, "'w'"), ({3: np.zeros(2)}, "gave 3")])
def test_a_state_that_is_no_named_arrays_is_refused(state, said):
    with pytest.raises(PluginError, match=said):
        state_of(SimpleNamespace(state=lambda: state), "mine")
    kept = state_of(SimpleNamespace(state=lambda: {"w": [1, 2], "on": True}), "mine")
    assert kept["w"].tolist() == [1, 2] and kept["on"].shape == ()


def test_a_value_outside_the_stated_range_is_refused():
    column = Column("mine", "", "higher", 0.0, 1.0, "a rate")
    fine = np.array([0.0, np.nan, 1.0 + 1e-7])  # rounding, and undefined
    assert stage_metric._inside(fine, column, "mine") is fine
    for wrong in (1.01, -0.01, np.inf):
        with pytest.raises(PluginError, match=r"mine gave .* for mine, which says that it lies in 0 \.\. 1"):
            stage_metric._inside(np.array([0.5, wrong]), column, "mine")


def test_features_and_embeddings_have_one_length():
    metric = SimpleNamespace(name="mine", embed=lambda clip: np.zeros(clip))
    first = stage_sets._feature(metric, 3, [])
    with pytest.raises(PluginError, match=r"shape \(4,\) after one of shape \(3,\)"):
        stage_sets._feature(metric, 4, [first])
    with pytest.raises(PluginError, match=r"shape \(2, 3\)\."):
        stage_sets._feature(metric, (2, 3), [])
    stage_match._one_length([np.zeros(3), np.ones(3)])
    with pytest.raises(PluginError, match="of 3 and of 5 numbers"):
        stage_match._one_length([np.zeros(3), np.ones(5)])
