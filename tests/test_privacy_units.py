"""Every row of the table: its numbers where provable, a reason where not."""

import math
from fractions import Fraction as F

import pytest

from bench.errors import UserError
from bench.privacy.conversions import epsilon_exact, mu_exact
from bench.privacy.units import TABLE, Facts, Guarantee, ImpossibleConversion, chunks_of, convert, table


def gdp(mu, unit="clip"):
    return Guarantee(unit, "gdp", mu=mu)


def event(epsilon, chunks=2):
    return Guarantee("event", "pure", epsilon=epsilon, chunks=chunks)


SPENDS = (F(2, 5),) * 10
IMPOSSIBLE = {("clip", "clip add/remove"), ("clip", "duration"), ("clip", "clip count"),
              ("clip", "training membership"),
              ("event", "trajectory"), ("event", "other cameras"), ("gdp", "pure"), ("approx", "pure"),
              ("approx", "gdp"), ("approx", "exact profile"), ("k-anonymity", "dp"), ("plr", "dp"), ("psnr", "dp"),
              ("attack auc", "dp")}


def test_the_table_is_complete_and_says_why():
    assert {(e.source, e.target) for e in TABLE if not e.provable} == IMPOSSIBLE
    assert len({(e.source, e.target) for e in TABLE}) == len(TABLE) == len(table())
    assert all(len(row["words"]) > 20 or row["source"] == "pure" for row in table())


@pytest.mark.parametrize("source, target", sorted(IMPOSSIBLE))
def test_impossible_conversions_say_why(source, target):
    form = source if source in ("gdp", "approx") else "measured" if target == "dp" else "gdp"
    with pytest.raises(ImpossibleConversion) as caught:
        convert(Guarantee(source, form, epsilon=1.0, delta=1e-5, mu=1.0), target, source=source)
    entry = next(e for e in TABLE if (e.source, e.target) == (source, target))
    assert caught.value.why == entry.words and isinstance(caught.value, UserError)


@pytest.mark.parametrize("guarantee, target, facts, source, expected", [
    (gdp(1.0), "frame", Facts(), "", {"mu": 1.0}),
    (gdp(1.0), "frame", Facts(frame_wise=True, frame_mu=0.25), "", {"mu": 0.25}),
    (gdp(0.25, "frame"), "clip", Facts(frames=16, frame_wise=True), "", {"mu": 1.0}),
    (gdp(0.25, "frame"), "clip", Facts(frames=16), "", {"mu": 4.0}),
    (gdp(0.5), "source_video", Facts(clips=4, separate=True), "", {"mu": 1.0}),
    (gdp(0.5), "source_video", Facts(clips=4), "", {"mu": 2.0}),
    (Guarantee("clip", "zcdp", rho=0.1), "source_video", Facts(clips=4, separate=True), "", {"rho": 0.4}),
    (Guarantee("clip", "approx", epsilon=1.0, delta=1e-6), "source_video", Facts(clips=3), "",
     {"epsilon": 3.0, "delta": 1e-6 * (1 + math.e + math.e**2)}),
    (gdp(1.0, "source_video"), "clip", Facts(), "", {"mu": 1.0}),
    (gdp(0.268, "source_video"), "person", Facts(videos=357), "", {"mu": 0.268 * math.sqrt(357)}),
    (Guarantee("clip", "approx", epsilon=1.0, delta=1e-6), "replace", None, "add/remove",
     {"epsilon": 2.0, "delta": (1 + math.e) * 1e-6}),
    (gdp(0.5), "replace", None, "add/remove", {"mu": 1.0}),
    (gdp(0.5), "add/remove", Facts(null_clip=True), "replace", {"mu": 0.5}),
    (event(0.4), "larger event", Facts(chunks=5), "", {"epsilon": 1.0, "chunks": 5}),
    (event(0.4), "larger event", Facts(chunks=10), "", {"epsilon": 2.0}),
    (event(0.4), "larger event", Facts(chunks=5, spends=SPENDS, window_chunks=30), "", {"epsilon": 1.0}),
    (event(0.4), "larger event (black box)", Facts(chunks=5, admissible_between=True), "", {"epsilon": 1.2}),
    (event(0.4), "larger event (black box)", Facts(chunks=10, admissible_between=True), "", {"epsilon": 2.0}),
    (event(0.4), "event per window", Facts(spends=SPENDS), "event in all", {"epsilon": 4.0}),
    (event(4.0), "event in all", None, "event per window", {"epsilon": 4.0}),
    (event(0.4, 5), "seconds", Facts(seconds=8), "", {"epsilon": 0.4}),
    (Guarantee("frame", "pure", epsilon=0.5), "video", Facts(frames=10, independent_noise=True), "frame image",
     {"epsilon": 5.0}),
    (Guarantee("image_metric", "pure", epsilon=0.5), "replace", Facts(diameter=6.0), "", {"epsilon": 3.0}),
    (Guarantee("clip", "pure", epsilon=0.4), "zcdp", None, "", {"rho": 0.08, "form": "zcdp"}),
    (Guarantee("clip", "pure", epsilon=0.4), "gdp", None, "", {"mu": 0.49990345, "form": "gdp", "unit": "clip"}),
])
def test_provable_conversions(guarantee, target, facts, source, expected):
    result = convert(guarantee, target, facts, source=source)
    for name, value in expected.items():
        assert getattr(result, name) == (pytest.approx(value, rel=1e-7) if isinstance(value, float) else value)
    assert len(result.rules) == 1 and target in result.rules[0]


def test_every_provable_row_is_tried():
    tried = {tuple(p for p in mark.args[1]) and (row[3] or _source(row), row[1]) for mark in
             test_provable_conversions.pytestmark for row in mark.args[1]}
    assert {(e.source, e.target) for e in TABLE if e.provable} == tried


def _source(row):
    return row[0].form if row[1] in ("zcdp", "gdp") else row[0].unit


def test_composition_against_group_privacy_of_the_reference():
    mu = mu_exact(1, 1e-5)  # four clips of epsilon 1: composition 2.1547, group 4.7461
    apart = convert(gdp(mu), "source_video", Facts(clips=4, separate=True))
    group = convert(gdp(mu), "source_video", Facts(clips=4))
    assert epsilon_exact(apart.mu, 1e-5) == pytest.approx(2.1547, abs=5e-5)
    assert epsilon_exact(group.mu, 1e-5) == pytest.approx(4.7461, abs=5e-5)


@pytest.mark.parametrize("guarantee, target, source, word", [
    (gdp(1.0), "source_video", "", "clips"), (gdp(1.0, "source_video"), "person", "", "videos"),
    (gdp(1.0), "add/remove", "replace", "null_clip"), (event(0.4), "larger event (black box)", "", "chunks"),
    (Guarantee("frame", "pure", epsilon=1.0), "video", "frame image", "independent_noise"),
    (Guarantee("image_metric", "pure", epsilon=1.0), "replace", "", "diameter"),
    (event(0.4), "event per window", "event in all", "spends"), (gdp(1.0), "moon", "", "moon"),
    (Guarantee("clip", "measured"), "frame", "", "measured"), (gdp(1.0), "gdp", "pure", "gdp"),
])
def test_conditions_that_are_not_stated_count_as_not_met(guarantee, target, source, word):
    with pytest.raises(ImpossibleConversion, match=word):
        convert(guarantee, target, source=source)


@pytest.mark.parametrize("seconds, chunks", [(0.1, 2), (2, 2), (2.1, 3), (8, 5), (18, 10)])
def test_chunks_of_an_event(seconds, chunks):
    assert chunks_of(seconds) == chunks
    times = [*[i * 0.01 for i in range(int(seconds * 100))], seconds - 1e-9]
    worst = max(len({int((start + x) // 2) for x in times}) for start in [i * 0.05 for i in range(40)])
    assert worst <= chunks


def test_an_event_that_is_too_long_is_refused():
    with pytest.raises(ImpossibleConversion, match="3 chunks, and K is 2"):
        convert(event(0.4), "seconds", Facts(seconds=3))
