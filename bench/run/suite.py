"""Suites: which methods, attacks and metrics run on which dataset, with which budgets. TOML, unknown keys refused."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from bench.errors import ConfigError, nearest

FOLDER = Path(__file__).resolve().parent.parent / "suites"


WANTED = {"draws": "draws is a number, or { development = 2, calibration = 1, enrolment = 2, probe = 1 }."}


class Suite(BaseModel):
    """One suite file. `seconds` is a measured table (2 cores), used to show what a run will cost.

    draws: releases with independent noise, for all parts or for each.  redraws: the same for the attack `redraw`.
    via: attacks and metrics that also read what a recovery attack made.  recovered: "one" = it is applied to the first
    clip of one video of each person, label and role only.  again: a method that is run a second time with other
    seeds, for its noise and for every attacker: how far two equal rows lie apart.  only: rows that carry some of the
    attacks and metrics, by a pattern of their names ("tadp@*"); every other row carries all of them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    dataset: str
    methods: list[str]
    attacks: list[str] = []
    metrics: list[str] = []
    profile: Literal["tiny", "paper"] = "tiny"
    canvas_px: int = 64
    seeds: list[int] = [42]
    data_seed: int = 42
    draws: int | dict[Literal["development", "calibration", "enrolment", "probe"], int] = 1
    redraws: int = 8
    via: list[str] = []
    again: str | None = None
    only: dict[str, list[str]] = {}
    recovered: Literal["one"] | None = None
    budget: dict[str, dict[str, Any]] = {}
    seconds: dict[str, float] = {}
    name: str = ""


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str) -> Suite:
    """The suite of that name, or of that TOML file. Raises ConfigError."""
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not path.is_file():
        raise ConfigError(f"There is no suite called {name!r}.", nearest(name, names()),
                          "`veilbench list suites` shows all of them.")
    try:
        return Suite(**tomllib.loads(path.read_text(encoding="utf-8")), name=path.stem)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"The suite file {path} is not TOML: {error}.", "", "Mend that line.") from error
    except ValidationError as error:
        raise _misfit(path, error) from None


def _misfit(path: Path, error: ValidationError) -> ConfigError:
    """Every key or value that does not fit, each once, and the nearest names of keys that nobody knows."""
    parts: dict[str, str] = {}
    hints: list[str] = []
    for problem in error.errors():
        key = str(problem["loc"][0])
        if problem["type"] == "extra_forbidden":
            parts[key] = f"{key!r} is no field of a suite"
            hints.append(nearest(key, [name for name in Suite.model_fields if name != "name"]))
        else:
            parts.setdefault(key, f"{key} = {problem['input']!r:.60} does not fit")
            hints += [WANTED[key]] if key in WANTED else [f"{key}: {problem['msg'].lower()}."]
    return ConfigError(f"The suite file {path} cannot be used: {'; '.join(parts.values())}.", "",
                       " ".join(dict.fromkeys(hints)))


def recall(root: Path, name: str) -> Suite:
    """The suite as the work folder last ran it: a file given by its path is found by its name nowhere else."""
    path = root / "suites" / f"{name}.json"
    return Suite(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else load(name)
