"""The split rule of PROTOCOL 2: counts, order, roles, committed files."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import registry
from bench.data import splits
from bench.errors import DataError
from bench.types import Source


def counts(parts: dict[str, str]) -> tuple[int, int, int]:
    return tuple(list(parts.values()).count(p) for p in ("test", "calibration", "train"))


# 25 % to test and 10 % of the rest to calibration, both rounded half up; calibration at least 2
@pytest.mark.parametrize("people, expected", [(91, (23, 7, 61)), (24, (6, 2, 16)), (100, (25, 8, 67)), (36, (9, 3, 24)),
                                              (6, (2, 2, 2)), (10, (3, 2, 5)), (7, (2, 2, 3)), (34, (9, 3, 22))])
def test_golden_counts(people, expected):
    assert counts(splits.split_people(f"p{i}" for i in range(people))) == expected


@given(st.integers(0, 10**6), st.integers(1, 1000))
def test_half_up_is_off_by_half_at_most(numerator, denominator):
    assert abs(splits.half_up(numerator, denominator) * denominator - numerator) * 2 <= denominator


@pytest.mark.parametrize("numerator, denominator, rounded", [(91, 4, 23), (24, 4, 6), (2, 4, 1), (6, 4, 2), (5, 10, 1),
                                                             (4, 10, 0), (10, 4, 3)])
def test_half_up_rounds_halves_up(numerator, denominator, rounded):
    assert splits.half_up(numerator, denominator) == rounded


def test_people_are_taken_by_the_hash_of_their_id():
    people = [f"p{i}" for i in range(24)]
    order = sorted(people, key=lambda p: hashlib.sha256(f"veilbench-v1:42:{p}".encode()).hexdigest())
    parts = splits.split_people(reversed(people))
    assert [parts[p] for p in order] == ["test"] * 6 + ["calibration"] * 2 + ["train"] * 16


@settings(max_examples=25, deadline=None)
@given(st.sets(st.text(min_size=1, max_size=8), min_size=6, max_size=40))
def test_every_person_stands_in_one_part_and_order_does_not_matter(people):
    parts = splits.split_people(sorted(people))
    assert parts == splits.split_people(sorted(people, reverse=True)) and set(parts) == people
    test, calibration, train = counts(parts)
    assert calibration >= 2 and train >= 1 and test >= 2


@pytest.mark.parametrize("people", [0, 1, 5])
def test_too_few_people_are_refused(people):
    with pytest.raises(DataError, match=f"has {people} pe.*at least 6"):
        splits.split_people(f"p{i}" for i in range(people))


def source(person: str, label: str, take: int) -> Source:
    return Source(f"{person}-{label}-{take}", person, label)


@pytest.mark.parametrize("videos, enrolment, probes", [(1, 1, 0), (2, 1, 1), (3, 2, 1), (4, 2, 2), (5, 3, 2)])
def test_enrolment_and_probe_alternate_and_the_odd_one_is_enrolled(videos, enrolment, probes):
    sources = [source("a", label, i) for label in ("x", "y") for i in range(videos)] + [source("b", "x", 0)]
    roles = splits.assign_roles(sources, {"a": "test", "b": "train"})
    assert not any(v.startswith("b-") for v in roles)
    for label in ("x", "y"):
        mine = {v: r for v, r in roles.items() if v.startswith(f"a-{label}-")}
        in_order = [mine[v] for v in sorted(mine, key=splits.hashed)]
        assert in_order == [("enrolment", "probe")[i % 2] for i in range(videos)]
        assert (in_order.count("enrolment"), in_order.count("probe")) == (enrolment, probes)
    assert roles == splits.assign_roles(sources[::-1], {"a": "test", "b": "train"})


def test_the_digest_follows_people_and_roles():
    base = splits.split_digest({"a": "test", "b": "train"}, {"v": "probe"})
    assert base == splits.split_digest({"b": "train", "a": "test"}, {"v": "probe"})
    assert base != splits.split_digest({"a": "train", "b": "train"}, {"v": "probe"})
    assert base != splits.split_digest({"a": "test", "b": "train"}, {"v": "enrolment"})


COMMITTED = sorted(splits.COMMITTED.glob("*.json"))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda p: p.stem)
def test_a_committed_split_follows_the_rule_and_knows_no_public_person(path):
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert stored["parts"] == splits.split_people(stored["parts"])
    assert not set(stored["parts"]) & set(stored["public"])
    assert stored["sha256"] == splits.parts_digest(stored["parts"], stored["public"])
    people = {s.person for s in registry.build("datasets", path.stem).sources(None, 42)}
    assert people == set(stored["parts"])
    splits.check_committed(path.stem, stored["parts"])


def test_no_person_stands_in_two_made_datasets():
    assert len(COMMITTED) >= 2
    parts = [set(json.loads(p.read_text(encoding="utf-8"))["parts"]) for p in COMMITTED]
    assert sum(map(len, parts)) == len(set.union(*parts))


@pytest.mark.parametrize("spoil", ["swap", "digest", "public"])
def test_a_changed_split_file_is_noticed(tmp_path, monkeypatch, spoil):
    stored = json.loads(COMMITTED[0].read_text(encoding="utf-8"))
    parts = dict(stored["parts"])
    if spoil == "swap":
        one, other = (next(p for p, v in parts.items() if v == part) for part in ("test", "train"))
        stored["parts"][one], stored["parts"][other] = "train", "test"
    elif spoil == "digest":
        stored["sha256"] = "0" * 64
    else:
        stored["public"] = [*stored["public"], next(iter(parts))]
        stored["sha256"] = splits.parts_digest(parts, stored["public"])
    (tmp_path / "made.json").write_text(json.dumps(stored), encoding="utf-8")
    monkeypatch.setattr(splits, "COMMITTED", tmp_path)
    with pytest.raises(DataError):
        splits.check_committed("made", parts)


def test_a_changed_rule_is_noticed(monkeypatch):
    stored = json.loads(COMMITTED[0].read_text(encoding="utf-8"))
    monkeypatch.setattr(splits, "SALT", "another:")
    with pytest.raises(DataError, match="differs from the committed"):
        splits.check_committed(COMMITTED[0].stem, splits.split_people(stored["parts"]))


def test_a_dataset_without_committed_split_is_free():
    splits.check_committed("videofolder", {"anybody": "test"})
