"""Who is trained on, who is tested: the split rule of PROTOCOL 2, and the committed splits that it must reproduce.

People are sorted by SHA-256("veilbench-v1:42:" + id); the first 25 % (round half up) are test people, then 10 % of
the rest (at least 2) calibration, the others train. No person stands in two parts.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bench.errors import DataError
from bench.types import Source

COMMITTED = Path(__file__).parent / "splits"
SALT = "veilbench-v1:42:"
MIN_PEOPLE = 6  # 2 test, 2 calibration and at least one to train on


def hashed(name: str) -> str:
    """The sort key of the split rule."""
    return hashlib.sha256((SALT + name).encode()).hexdigest()


def half_up(numerator: int, denominator: int) -> int:
    """numerator / denominator, rounded half up, in integers: 91 / 4 -> 23, 24 / 4 -> 6."""
    return (2 * numerator + denominator) // (2 * denominator)


def split_people(people: Iterable[str]) -> dict[str, str]:
    """Person -> "test", "calibration" or "train". Raises DataError below MIN_PEOPLE people."""
    order = sorted(set(people), key=hashed)
    if len(order) < MIN_PEOPLE:
        raise DataError(f"The dataset has {len(order)} {'person' if len(order) == 1 else 'people'}.",
                        f"The split needs at least {MIN_PEOPLE}: two to test, two to calibrate, the others to train.",
                        "Add people, each in a folder of their own.")
    tests = half_up(len(order), 4)
    calibration = max(2, half_up(len(order) - tests, 10))
    return {person: "test" if i < tests else "calibration" if i < tests + calibration else "train"
            for i, person in enumerate(order)}


def assign_roles(sources: Sequence[Source], parts: Mapping[str, str]) -> dict[str, str]:
    """Video id of a test person -> "enrolment" or "probe": alternating by hash inside each person and label."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for source in sources:
        if parts[source.person] == "test":
            groups[source.person, source.label].append(source.id)
    return {video: ("enrolment", "probe")[i % 2]
            for videos in groups.values() for i, video in enumerate(sorted(videos, key=hashed))}


def split_digest(parts: Mapping[str, str], roles: Mapping[str, str]) -> str:
    """SHA-256 of who is where; part of every cell's key."""
    text = json.dumps([sorted(parts.items()), sorted(roles.items())])
    return hashlib.sha256(text.encode()).hexdigest()


def parts_digest(parts: Mapping[str, str], public: Sequence[str]) -> str:
    """SHA-256 over the canonical JSON of a committed split."""
    text = json.dumps({"parts": dict(parts), "public": sorted(public)}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def check_committed(dataset: str, parts: Mapping[str, str]) -> None:
    """Compare with bench/data/splits/<dataset>.json, when there is one. Raises DataError on any difference."""
    path = COMMITTED / f"{dataset}.json"
    if not path.is_file():
        return
    stored = json.loads(path.read_text(encoding="utf-8"))
    if parts_digest(stored["parts"], stored["public"]) != stored["sha256"] or stored["parts"] != dict(parts):
        raise DataError(f"The split of {dataset} differs from the committed {path.name}.",
                        "Numbers on another split stand for another benchmark.",
                        "Restore the file from version control, or the dataset from its source.")
    if crossing := set(stored["public"]) & set(parts):
        raise DataError(f"People {sorted(crossing)} of {dataset} are public too.",
                        "Shared networks would have seen them.", "Restore the committed split.")
