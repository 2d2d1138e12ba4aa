"""Suites: which methods, attacks and metrics run on which dataset, with which budgets. TOML, unknown keys refused."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bench.errors import ConfigError, nearest

FOLDER = Path(__file__).resolve().parent.parent / "suites"


CANVAS_PX = {"tiny": 64, "paper": 256}  # side of what is released
WANTED = {  # what is said of a field whose value does not fit
    "draws": "draws is a number from 1, or { development = 2, calibration = 1, enrolment = 2, probe = 1 }.",
    "methods": "methods is a list of at least one name.",
    "seeds": "seeds is a list of at least one whole number.",
    "recovered": 'recovered is "one", or left out: then every clip is recovered.',
    "encoded": 'encoded is a table of lists: tadp = ["tadp@eps4"].',
    "budget": "A budget is a table: [budget.plr], and below it epochs = 3.",
    "seconds": 'seconds is a table of numbers: "train plr" = 26.7.',
}
Parts = Literal["development", "calibration", "enrolment", "probe"]
Count = Annotated[int, Field(ge=1)]


class Suite(BaseModel):
    """One suite file. `seconds` is a measured table (2 cores), used to show what a run will cost.

    like: another suite, whose fields hold where this one says nothing; its `seconds` hold where this one's say nothing.
    draws: releases with independent noise, for all parts or for each.  redraws: the same for the attack `redraw`.
    via: attacks and metrics that also read what a recovery attack made.  recovered: "one" = it is applied to the first
    clip of one video of each person, label and role only.  again: a method that is run a second time with other
    seeds, for its noise and for every attacker: how far two equal rows lie apart.  only: rows that carry some of the
    attacks and metrics, by a pattern of their names ("tadp@*"); every other row carries all of them.  encoded: a row,
    and the rows that release its encoded clips in place of their own: variants that differ after `encode` alone, which
    every release of them checks on some of its clips.
    budget: constructor arguments of a plug-in.  budget.NAME.via: those that differ on a recovered release, which holds
    fewer clips to train on: more epochs make as many steps.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    dataset: str
    methods: list[str] = Field(min_length=1)
    attacks: list[str] = []
    metrics: list[str] = []
    like: str | None = None
    profile: Literal["tiny", "paper"] = "tiny"
    canvas_px: int = Field(default_factory=lambda given: CANVAS_PX[given.get("profile", "tiny")], ge=16)
    seeds: list[int] = Field([42], min_length=1)
    data_seed: int = 42
    draws: Count | dict[Parts, Count] = 1
    redraws: Count = 8
    via: list[str] = []
    again: str | None = None
    only: dict[str, list[str]] = {}
    encoded: dict[str, list[str]] = {}
    recovered: Literal["one"] | None = None
    budget: dict[str, dict[str, Any]] = {}
    seconds: dict[str, float] = {}
    name: str = ""

    def budget_of(self, name: str, recovered: bool = False) -> dict[str, Any]:
        """What the suite sets of the plug-in written so; on a recovered release also what its `via` table says."""
        said = dict(self.budget.get(name, {}))
        more = said.pop("via", {})
        return {**said, **more} if recovered else said


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str) -> Suite:
    """The suite of that name, or of that TOML file. Raises ConfigError."""
    path, fields = _read(name)
    if isinstance(base := fields.get("like"), str):
        given = _read(base)[1]
        if "like" in given:
            raise ConfigError(f"The suite {path.stem} is like {base!r}, which is itself like {given['like']!r}.",
                              "Whoever reads a suite should have to read one other at most.",
                              f"Write like = {given['like']!r}, and what else differs.")
        seconds = [said for said in (given.get("seconds"), fields.get("seconds")) if isinstance(said, dict)]
        fields = given | fields | ({"seconds": seconds[0] | seconds[1]} if len(seconds) == 2 else {})
    try:
        return Suite(**fields, name=path.stem)
    except ValidationError as error:
        raise _misfit(path, error) from None


def _read(name: str) -> tuple[Path, dict[str, Any]]:
    """File and fields of a suite. Raises ConfigError when there is none, or it is no TOML."""
    own = name.endswith(".toml")
    path = Path(name) if own else FOLDER / f"{name}.toml"
    if not path.is_file():
        raise ConfigError(f"There is no suite file {name}." if own else f"There is no suite called {name!r}.",
                          "" if own else nearest(name, names()),
                          "`veilbench list suites` shows those that come with the project; one of your own is given by "
                          "its path, which ends in .toml.")
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"The suite file {path} is not TOML: {str(error).rstrip('.')}.", "",
                          "Mend that line.") from error
    if "name" in fields:
        raise ConfigError(f"The suite file {path} sets `name`.", "A suite is called as its file is.",
                          "Remove that line.")
    return path, fields


def _misfit(path: Path, error: ValidationError) -> ConfigError:
    """Every key or value that does not fit, each once, and the nearest names of keys that nobody knows."""
    parts: dict[str, str] = {}
    hints: list[str] = []
    for problem in error.errors():
        key = str(problem["loc"][0])
        if problem["type"] == "extra_forbidden":
            parts[key] = f"{key!r} is no field of a suite"
            hints.append(nearest(key, [name for name in Suite.model_fields if name != "name"]))
        elif problem["type"] == "default_factory_not_called":
            continue  # a default that depends on another field, which is complained of already
        elif problem["type"] == "missing":
            parts[key] = f"{key!r} is missing"
            hints.append("A suite has a title, a dataset and methods.")
        else:
            where = ".".join(map(str, problem["loc"][:2])) if key in ("budget", "seconds") else key
            parts.setdefault(where, f"{where} = {problem['input']!r:.60} does not fit")
            hints += [WANTED[key]] if key in WANTED else [f"{key}: {problem['msg'].lower()}."]
    return ConfigError(f"The suite file {path} cannot be used: {'; '.join(parts.values())}.", "",
                       " ".join(dict.fromkeys(hints)))


def recall(root: Path, name: str) -> Suite:
    """The suite as the work folder last ran it: a file given by its path is found by its name nowhere else."""
    path = root / "suites" / f"{name}.json"
    return Suite(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else load(name)
