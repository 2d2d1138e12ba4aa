"""What a change of inputs takes away from what was read above chance: numbers, their test, and where they are said."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from test_tables import cell

from bench import diagnostic_tables, tables
from bench.excess import before_of, loss, loss_words, with_losses

CHANCE = 0.25
WAS = {f"p{i}": value for i, value in enumerate([0.5, 0.625, 0.75, 0.5, 0.875, 0.625, 0.5, 0.625])}


def read(people: dict[str, float], **more):
    values = np.array(list(people.values()))
    half = 2.365 * values.std(ddof=1) / len(values) ** 0.5  # t of 7 degrees of freedom, 97.5 %
    return cell("tadp", **{"metric": "fer", "evaluator": "x3d", "attack": None, "chance": CHANCE, "role": "utility",
                           "person_values": people, "value": values.mean(), "lo": values.mean() - half,
                           "hi": values.mean() + half, "decoding": "assembled", "better": "higher",
                           "metric_unit": "rate", **more})


def changed(people: dict[str, float], intervention: str = "shuffle:expr", **more):
    return read(people, attack="interventions", role="diagnostic", params={"intervention": intervention}, **more)


def lowered(share: float, wobble: float = 0.0) -> dict[str, float]:
    """Everybody loses this share of what lies above chance, a little more or less in turn."""
    return {p: v - share * (v - CHANCE) + wobble * (-1) ** i for i, (p, v) in enumerate(WAS.items())}


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.8, 1.0, 1.2])
def test_the_share_is_what_everybody_lost_of_what_was_above_chance(share):
    found = loss(read(WAS), changed(lowered(share)))
    assert found.share == pytest.approx(share)
    excess = np.array(list(WAS.values())) - CHANCE
    assert found.lost.value == pytest.approx(share * excess.mean()) and found.lost.people == len(WAS)


def test_half_is_tested_by_flipping_signs_over_people():
    after = lowered(0.62, wobble=0.05)
    found = loss(read(WAS), changed(after))
    apart = np.array([(WAS[p] + CHANCE) / 2 - after[p] for p in WAS])  # beyond the half
    sums = [abs(np.dot(signs, apart)) for signs in product((-1, 1), repeat=len(WAS))]
    assert found.p_half == pytest.approx(np.mean(np.array(sums) >= abs(apart.sum()) - 1e-12))
    assert 0.01 < found.p_half < 1


def test_a_loss_of_exactly_half_is_no_evidence_either_way():
    assert loss(read(WAS), changed(lowered(0.5))).p_half == 1.0


def test_where_nothing_was_above_chance_there_is_nothing_to_lose():
    low = {p: v - 0.3 for p, v in WAS.items()}
    assert loss(read(low), changed(lowered(0.5))) is None
    assert loss_words(changed(lowered(0.5)), [read(low)]) == "before: not above chance"


@pytest.mark.parametrize("missing", [{"value": None}, {"chance": None}, {"lo": None}])
def test_without_a_number_nothing_is_said(missing):
    assert loss(read(WAS, **missing), changed(lowered(0.5))) is None


def test_the_number_before_is_that_of_the_same_network_row_board_and_decoding():
    after = changed(lowered(0.5))
    right = read(WAS)
    others = [read(WAS, evaluator="r3d"), read(WAS, variant="eps4"), read(WAS, via="recover_unet"),
              read(WAS, dataset="blocks"), read(WAS, decoding="isolated"), read(WAS, metric="uar"), after]
    assert before_of(after, others) is None and before_of(after, [*others, right]) is right
    attacked = read(WAS, attack="plr", metric="top1", evaluator=None)
    assert before_of(changed(lowered(0.5), metric="plr", evaluator=None), [right, attacked]) is attacked


def test_the_loss_stands_on_the_page_and_below_the_tables():
    cells = [read(WAS), changed(lowered(0.8, 0.02)), changed(lowered(0.1, 0.02), "shuffle:id")]
    said = [c.get("loss") for c in with_losses(cells)]
    assert said[0] is None and "80 % of what was above chance; more than half of it: p = 0.0078" in said[1]
    assert "10 % of what was above chance; less than half of it" in said[2]
    rows = dict(diagnostic_tables.views(cells, "tadp")[0]["rows"])
    assert rows["intervention shuffle:expr"][0]["loss"] == said[1]
    for name in ("diagnostics", "tadp-9"):
        assert said[1] in tables.table(name, cells).replace("\\", "")
    assert "above chance" not in tables.table("diagnostics", cells, format="json")
