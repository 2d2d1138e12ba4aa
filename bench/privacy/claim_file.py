"""A claim written in TOML: `[claim]` and its `[[claim.branch]]` tables, read into a `FullClaim`.

    [claim]
    unit = "clip"            # clip | source_video | frame | event | pixels | label | image_metric | none
    frames = 16
    clips = 1                # composed before one conversion
    delta = 1e-5
    [[claim.branch]]
    name = "id"
    clip_norm = 1.0
    noise_std = 40.0         # per coordinate, guaranteed floor

A branch with noise_std is Gaussian, with scale discrete Laplace, with epsilon randomised response (`noise = ...` says
it outright); a branch with neither is passed in clear. Misspelt keys are refused: a claim is no place for guesses.
"""

from __future__ import annotations

import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bench.errors import ConfigError, nearest
from bench.privacy.checks import exact
from bench.privacy.claims import BOARD_DELTA, BranchClaim, EventClaim, FullClaim, LabelClaim, PixelsClaim

Number = int | float | str
PARTS: dict[str, tuple[str, ...]] = {  # keys of [claim] that belong to one unit
    "event": ("window_chunks", "changed_chunks", "cap", "allocation", "spends", "cadence_chunks", "budget",
              "accountant"),
    "pixels": ("m", "b", "channels", "levels", "scale", "epsilon"),
    "label": ("classes", "labels", "epsilon"),
}


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Branch(_Table):
    name: str
    noise: str | None = None
    norm: str | None = None
    clip_norm: int | float | None = None
    noise_std: int | float | None = None
    scale: Number | None = None
    epsilon: Number | None = None
    rows: int | None = None
    dim: int | None = None
    classes: int | None = None


class _Claim(_Table):
    unit: str
    adjacency: str = ""
    frames: int | None = None
    clips: int = 1
    delta: int | float = BOARD_DELTA
    horizon: str = ""
    horizon_seconds: int | float | None = None
    reads: list[str] = []
    branch: list[_Branch] = []
    window_chunks: int | None = None
    changed_chunks: int | None = None
    cap: Number | list[Number] | None = None
    allocation: Number | list[Number] | None = None
    spends: list[Number] | None = None
    cadence_chunks: int | None = None
    budget: Number | None = None
    accountant: str | None = None
    m: int | None = None
    b: int | None = None
    channels: int | None = None
    levels: int | None = None
    scale: Number | None = None
    epsilon: Number | None = None
    classes: int | None = None
    labels: int | None = None


class _File(_Table):
    claim: _Claim = Field()


def load_claim(path: str | Path) -> FullClaim:
    """The claim in a TOML file. Raises ConfigError that names the file and the field."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.", "", "Give a claim in TOML.") from None
    try:
        return parse_claim(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.what}", error.why, error.remedy) from None


def parse_claim(text: str) -> FullClaim:
    """The claim in TOML text. Raises ConfigError that names the field."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"This is not TOML: {error}.", "", "A claim starts with the line [claim].") from None
    return claim_from(data)


def claim_from(data: dict[str, Any]) -> FullClaim:
    """The claim in a table {"claim": {...}}, as TOML or JSON give it."""
    try:
        raw = _File.model_validate(data).claim
    except ValidationError as error:
        raise _misfit(error) from None
    _refuse_strays(raw)
    claim = FullClaim(
        unit=raw.unit, adjacency=raw.adjacency, clips=raw.clips, delta=raw.delta, horizon=raw.horizon,
        frames=raw.frames if raw.frames is not None else 1 if raw.unit == "frame" else 16,
        horizon_seconds=raw.horizon_seconds, reads=tuple(raw.reads), branches=tuple(map(_branch, raw.branch)),
        event=_event(raw), pixels=_pixels(raw), label=_label(raw),
    )
    return claim


def _misfit(error: ValidationError) -> ConfigError:
    """Every value that does not fit, by name; for a key that nobody knows, the nearest ones of its table."""
    parts, hints = [], []
    for problem in error.errors():
        where = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in problem["loc"]).lstrip(".")
        if problem["type"] == "extra_forbidden":
            table = _Branch if "branch" in problem["loc"][:-1] else _Claim if len(problem["loc"]) > 1 else _File
            parts.append(f"{where} is not a key of a claim")
            hints.append(nearest(problem["loc"][-1], table.model_fields))
        else:
            parts.append(f"{where or 'the file'}: {problem['msg'].lower()} (got {problem['input']!r:.60})")
    return ConfigError("; ".join(parts) + ".", "A claim is no place for guesses.", " ".join(dict.fromkeys(hints)))


def _refuse_strays(raw: _Claim) -> None:
    allowed = PARTS.get(raw.unit, ())
    for unit, keys in PARTS.items():
        stray = [k for k in keys if getattr(raw, k) is not None and k not in allowed]
        if stray:
            raise ConfigError(f"claim.{stray[0]} does not belong to the unit {raw.unit!r}.", "",
                              f"It goes with unit = {unit!r}; a branch has its own scale and epsilon.")


def _branch(raw: _Branch) -> BranchClaim:
    noise = raw.noise
    if noise is None:
        noise = "gaussian" if raw.noise_std is not None else "discrete_laplace" if raw.scale is not None \
            else "randomized_response" if raw.epsilon is not None else None
    at = f"branch {raw.name!r}: "
    norm = raw.norm or {"discrete_laplace": "l1", "randomized_response": "label"}.get(noise or "", "l2")
    return BranchClaim(
        name=raw.name, noise=None if noise in (None, "none", "clear") else noise, norm=norm, clip_norm=raw.clip_norm,
        noise_std=raw.noise_std, scale=_exact(at + "scale", raw.scale), epsilon=_exact(at + "epsilon", raw.epsilon),
        rows=raw.rows, dim=raw.dim, classes=raw.classes)


def _exact(field: str, value: Number | None) -> Fraction | None:
    return None if value is None else exact(field, value)


def _fractions(field: str, value: Number | list[Number]) -> tuple[Fraction, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(exact(f"{field}[{i}]" if isinstance(value, list) else field, v) for i, v in enumerate(values))


def _need(raw: _Claim, name: str) -> Any:
    value = getattr(raw, name)
    if value is None:
        raise ConfigError(f"claim.{name} is missing.", f"A claim of unit {raw.unit!r} has no price without it.",
                          f"Give {name} in [claim].")
    return value


def _event(raw: _Claim) -> EventClaim | None:
    if raw.unit != "event" or raw.branch and raw.spends is None:
        return None
    return EventClaim(
        window_chunks=_need(raw, "window_chunks"), changed_chunks=_need(raw, "changed_chunks"),
        cap=_fractions("cap", _need(raw, "cap")), spends=_fractions("spends", _need(raw, "spends")),
        allocation=_fractions("allocation", 1 if raw.allocation is None else raw.allocation),
        cadence_chunks=raw.cadence_chunks, accountant=raw.accountant or "sum", budget=_exact("budget", raw.budget))


def _pixels(raw: _Claim) -> PixelsClaim | None:
    if raw.unit != "pixels" or raw.branch and raw.m is None:
        return None
    return PixelsClaim(m=_need(raw, "m"), b=_need(raw, "b"), channels=3 if raw.channels is None else raw.channels,
                       levels=255 if raw.levels is None else raw.levels, scale=_exact("scale", raw.scale),
                       epsilon=_exact("epsilon", raw.epsilon))


def _label(raw: _Claim) -> LabelClaim | None:
    if raw.unit != "label" or raw.branch and raw.classes is None:
        return None
    return LabelClaim(classes=_need(raw, "classes"), epsilon=exact("epsilon", _need(raw, "epsilon")),
                      labels=1 if raw.labels is None else raw.labels)
