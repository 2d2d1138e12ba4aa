"""From trials to cells: values by closed forms, and what happens when there is none."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
import pytest
from scipy import stats as peers

from bench import open_set
from bench.measures import Column
from bench.ranking import cell_key
from bench.run.cells import blank_cells, cell_id, failed_cells, measured_cells, undefined_cells
from bench.run.trials import SCHEMA, Trial

TOP1 = Column(id="top1", unit="rate", better="lower", low=0, high=1, title="T", role="privacy")
FER = Column(id="fer", unit="rate", better="higher", low=0, high=1, title="F", role="utility")
UAR = Column(id="uar", unit="rate", better="higher", low=0, high=1, title="U", role="utility", statistic="uar")


def config(*columns: Column, seeds=(42,), **more):
    return {"method": "blur", "variant": "8", "dataset": "blocks", "profile": "tiny", "lane": "none",
            "claim": {"unit": "none", "adjacency": "none", "horizon": "none", "delta": 0.0, "epsilon": "inf"},
            "control": None, "attack": "plr", "evaluator": None, "via": "direct", "decoding": "assembled", "draws": 1,
            "seeds": list(seeds), "suite": "s", "plugins": {}, "digest": "d",
            "columns": [asdict(c) for c in columns], **more}


def table(trials: list[Trial]) -> dict[str, np.ndarray]:
    return {name: np.array([getattr(t, name) for t in trials]) for name in SCHEMA.names}


def values(per_person: dict[int, list[float]], column="top1", seed=42) -> list[Trial]:
    return [Trial(column, person, person, i, 0, seed, v) for person, all_ in per_person.items()
            for i, v in enumerate(all_)]


def one(trials, *columns, **more):
    return measured_cells(config(*columns, **more), table(trials), {"chance": 0.25, "classes": 2}, "split")[0]


def test_the_value_is_the_mean_of_person_means_with_a_t_interval():
    per_person = {1: [1, 1, 1, 0], 2: [0.5], 3: [0, 0], 4: [1, 0], 5: [0.25, 0.75, 0.5], 6: [0.4]}
    cell = one(values(per_person), TOP1)
    means = np.array([0.75, 0.5, 0.0, 0.5, 0.5, 0.4])
    half = peers.t.ppf(0.975, 5) * means.std(ddof=1) / np.sqrt(6)
    assert cell["value"] == pytest.approx(means.mean(), abs=1e-12)
    assert cell["lo"] == pytest.approx(means.mean() - half) and cell["hi"] == pytest.approx(means.mean() + half)
    assert (cell["n"], cell["people"], cell["chance"], cell["status"]) == (13, 6, 0.25, "ok")
    assert cell["person_values"] == pytest.approx(dict(zip(range(1, 7), means)))
    assert cell["split"] == "split" and cell["epsilon"] == math.inf and cell["id"] == cell_id(cell)


def test_constant_scores_give_chance_exactly():
    cell = one(values({p: [0.25] * 8 for p in range(1, 6)}), TOP1)
    assert cell["value"] == cell["lo"] == cell["hi"] == 0.25 == cell["chance"]


def confusion(matrix) -> list[Trial]:
    """Trials of six people that give this confusion matrix [truth][predicted], in each of both columns."""
    pairs = [(t, p) for t, row in enumerate(matrix) for p, count in enumerate(row) for _ in range(count)]
    return [Trial(c, 1 + i % 6, i, 0, 0, 42, float(t == p), truth=t, predicted=p)
            for c in ("fer", "uar") for i, (t, p) in enumerate(pairs)]


def test_war_and_uar_golden():
    war, uar = measured_cells(config(FER, UAR), table(confusion([[8, 2], [1, 1]])), {"chance": 0.5, "classes": 2}, "s")
    assert war["value"] == pytest.approx(0.75)  # 9 right of 12, two trials a person
    assert uar["value"] == pytest.approx(0.65)  # (8/10 + 1/2) / 2
    assert uar["lo"] <= uar["value"] <= uar["hi"] and war["metric"] == "fer" and uar["metric"] == "uar"


def test_undefined_frames_are_left_out_and_nothing_defined_is_undefined():
    cell = one(values({1: [1.0, math.nan], 2: [0.0, 0.0], 3: [math.nan]}), TOP1)
    assert cell["value"] == pytest.approx(0.5) and cell["people"] == 2
    empty = one(values({1: [math.nan], 2: [math.nan]}), TOP1)
    assert empty["value"] is None and empty["status"] == "undefined" and empty["lo"] is None


def test_one_person_has_a_value_and_no_interval():
    cell = one(values({1: [1, 0]}), TOP1)
    assert cell["value"] == 0.5 and cell["people"] == 1 and not (cell["lo"] and cell["lo"] > 0.5)
    assert cell["lo"] is None or cell["lo"] <= 0.0001


@pytest.mark.parametrize("column, worst", [(TOP1, 0.8), (FER, 0.2)])
def test_seeds_are_averaged_and_the_worst_is_told(column, worst):
    trials = values({1: [0.2], 2: [0.2]}, column.id, 1) + values({1: [0.5], 2: [0.5]}, column.id, 2) + \
        values({1: [0.8], 2: [0.8]}, column.id, 3)
    cell = measured_cells(config(column, seeds=(1, 2, 3)), table(trials), {"chance": 0.5}, "s")[0]
    assert cell["value"] == pytest.approx(0.5) and cell["seeds"] == [1, 2, 3]
    assert cell["details"]["worst_seed"] == pytest.approx(worst)
    assert cell["details"]["seed_sd"] == pytest.approx(0.3) and cell["params"] is None  # no part of the key
    assert one(values({1: [1], 2: [0]}), TOP1)["details"] is None


# ---- open set, sets of clips ---------------------------------------------------------------------------------------

TAR = [Column(id="tar", unit="rate", better="lower", low=0, high=1, title="T", role="privacy", params={"far": far})
       for far in (0.1, 0.01)]
EER = Column(id="eer", unit="rate", better="higher", low=0, high=1, title="E", role="privacy", statistic="eer")
FD = Column(id="fd_id", unit="1", better="none", low=0, high=4, title="F", statistic="jackknife")


def test_two_columns_of_one_id_are_told_apart_by_their_parameters():
    trials = values({p: [1.0] for p in range(1, 7)}, "tar[far=0.1]") + values({p: [0.5] for p in range(1, 7)},
                                                                             "tar[far=0.01]")
    result = {"chance": {"tar[far=0.1]": 0.1, "tar[far=0.01]": 0.01}, "status": {"tar[far=0.01]": "indicative"}}
    wide, narrow = measured_cells(config(*TAR), table(trials), result, "s")
    assert (wide["value"], wide["chance"], wide["status"], wide["params"]) == (1.0, 0.1, "ok", {"far": 0.1})
    assert (narrow["value"], narrow["chance"], narrow["status"]) == (0.5, 0.01, "indicative")
    assert wide["id"] != narrow["id"] and cell_key(wide) != cell_key(narrow)


def test_the_equal_error_rate_of_scored_pairs():
    """Every genuine score is above every impostor's but one person's, which are swapped."""
    pairs = [Trial("eer", p, 1, 0, 0, 42, 1.0 if (p == t) != (p == 6) else 0.0, truth=t)
             for p in range(1, 7) for t in range(1, 7)]
    cell = one(pairs, EER)
    scores = np.array([t.value for t in pairs])
    genuine = np.array([t.truth == t.person for t in pairs])
    assert cell["value"] == pytest.approx(open_set.eer(scores[genuine], scores[~genuine]))
    assert cell["people"] == 6 and cell["lo"] <= cell["value"] <= cell["hi"] and cell["person_values"][1] == 0.0


def test_a_distance_of_sets_has_a_jackknife_interval_and_belongs_to_nobody():
    leave = {1: 1.0, 2: 1.2, 3: 0.9, 4: 1.1, 5: 1.3}
    rows = [Trial("fd_id", p, 0, 0, 0, 42, v) for p, v in {0: 1.05, **leave}.items()]
    cell = measured_cells(config(FD), table(rows), {"clips": 40, "floor": 0.2}, "s")[0]
    error = np.sqrt(4 / 5 * np.square(np.array(list(leave.values())) - 1.1).sum())
    assert cell["value"] == 1.05 and cell["hi"] == pytest.approx(1.05 + peers.t.ppf(0.975, 4) * error)
    assert (cell["people"], cell["n"], cell["person_values"], cell["details"]) == (5, 40, {}, {"floor": 0.2})


def test_a_failed_row_is_invalid_in_every_column_and_never_a_number():
    cells = failed_cells(config(FER, UAR), "diverged: NaN")
    assert [c["status"] for c in cells] == ["invalid: diverged: NaN"] * 2
    assert all(c["value"] is c["lo"] is c["hi"] is None and c["n"] == 0 for c in cells)
    (undefined,) = undefined_cells(config(FER), "one label")
    assert undefined["status"] == "undefined" and undefined["text"] == "one label" and undefined["value"] is None
    assert blank_cells(config(TOP1))[0]["status"] == "missing"


def test_the_id_follows_the_key_and_nothing_else():
    base = blank_cells(config(TOP1))[0]
    assert blank_cells(config(TOP1, suite="other", digest="other", seeds=(1, 2)))[0]["id"] == base["id"]
    for change in ({"variant": None}, {"dataset": "x"}, {"attack": "plr_static"}, {"draws": 2},
                   {"decoding": "isolated"}, {"profile": "paper"}, {"via": "recover_unet"}):
        assert blank_cells(config(TOP1, **change))[0]["id"] != base["id"], change
    assert blank_cells(config(FER))[0]["id"] != base["id"]
