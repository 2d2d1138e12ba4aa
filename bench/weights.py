"""Networks that come with the project or from elsewhere, by path and SHA-256: nothing is loaded that is not verified.

The evaluation assets of the tiny profile are shipped in `bench/shipped/`, as float16: they were trained once by
`veilbench weights train NAME` on the public made people of seed 42, and every machine starts from the same bytes. With
another data seed, or a budget of its own, a suite trains its assets itself.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from bench.errors import DataError

FOLDER = Path(__file__).resolve().parent / "shipped"
SEED = 42  # data seed under which the shipped networks were trained


@dataclass(frozen=True)
class Shipped:
    """One shipped file and the digest that it must have."""

    name: str
    path: Path
    sha256: str


def shipped() -> dict[str, Shipped]:
    """All shipped networks by name, from bench/shipped/weights.json."""
    table = FOLDER / "weights.json"
    if not table.is_file():
        return {}
    digests = json.loads(table.read_text(encoding="utf-8"))
    return {name: Shipped(name, FOLDER / f"{name}.safetensors", sha) for name, sha in sorted(digests.items())}


def verified(name: str) -> Path:
    """The file of a shipped network. Raises DataError when it is missing or has another digest."""
    known = shipped()
    if name not in known or not known[name].path.is_file():
        raise DataError(f"The weights {name} are not in {FOLDER}.", "They come with the checkout.",
                        "Restore the file from version control.")
    found = hashlib.sha256(known[name].path.read_bytes()).hexdigest()
    if found != known[name].sha256:
        raise DataError(f"The weights {known[name].path.name} have SHA-256 {found[:16]}…, not "
                        f"{known[name].sha256[:16]}….", "Another network would be measured under the same name.",
                        "Restore the file from version control.")
    return known[name].path


def check() -> list[str]:
    """One line per shipped network that cannot be used."""
    problems = []
    for name in shipped():
        try:
            verified(name)
        except DataError as error:
            problems.append(str(error))
    return problems
