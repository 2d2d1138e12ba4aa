"""Numbers that a person can get wrong: each check names the field, the value, the reason and the remedy."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

from bench.errors import ConfigError

LIMITS: dict[str, tuple[float, float]] = {  # field: smallest, largest value that is not absurd
    "clip_norm": (1e-9, 1e9),
    "noise_std": (1e-9, 1e12),
    "scale": (1e-9, 1e12),
    "epsilon": (1e-9, 1e6),
    "rho": (1e-18, 1e12),
    "mu": (1e-9, 1e6),
    "delta": (1e-300, 0.1),
    "frames": (1, 100_000),
    "clips": (1, 1_000_000),
}


def number(field: str, value: Any, low: float, high: float) -> float:
    """`value` as a float in [low, high]. Raises ConfigError that names `field`."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Fraction, Decimal)) and not _numpy_real(value):
        raise ConfigError(f"{field} = {value!r} is not a number.", "", f"Give {field} from {low:g} to {high:g}.")
    try:
        real = float(value)
    except OverflowError:
        real = math.inf
    if not math.isfinite(real) or not low <= real <= high:
        why = "A guarantee needs finite numbers." if not math.isfinite(real) else _why(real, low)
        raise ConfigError(f"{field} = {value} cannot be used.", why, f"Give {field} from {low:g} to {high:g}.")
    return real


def limited(name: str, value: Any, field: str = "") -> float:
    """A float within LIMITS[name]; errors name `field` (`name` when empty)."""
    return number(field or name, value, *LIMITS[name])


def count(field: str, value: Any, low: int = 1, high: int = 10**9) -> int:
    """`value` as a whole number in [low, high]. Raises ConfigError that names `field`."""
    real = number(field, value, low, high)
    if real != int(real):
        raise ConfigError(f"{field} = {value} is not a whole number.", "", f"Give {field} from {low} to {high}.")
    return int(real)


def exact(field: str, value: Any, low: float = 0.0, high: float = 1e12) -> Fraction:
    """`value` as the fraction that a person wrote: 0.4 becomes 2/5, not its binary neighbour.

    Sums of budgets in floats are wrong by one unit in the last place, so budgets are never floats.
    """
    if isinstance(value, str):
        try:
            value = Fraction(value)
        except (ValueError, ZeroDivisionError):
            raise ConfigError(f"{field} = {value!r} is not a number.", "", "Write it as 0.4 or 2/5.") from None
    real = number(field, value, low, high)
    return value if isinstance(value, Fraction) else Fraction(value) if isinstance(value, (int, Decimal)) \
        else Fraction(repr(real))


def probability(field: str, value: Any, *, open_ends: bool = False) -> float:
    """`value` as a float in [0, 1], or in (0, 1) with `open_ends`."""
    real = number(field, value, 0.0, 1.0)
    if open_ends and real in (0.0, 1.0):
        raise ConfigError(f"{field} = {value} cannot be used.", "It must lie strictly between 0 and 1.", "")
    return real


def _why(real: float, low: float) -> str:
    if real < 0:
        return "It cannot be negative."
    if real == 0:
        return "Zero gives no guarantee that could be priced."
    return "It is too small to mean anything." if real < low else "It is too large to mean anything."


def _numpy_real(value: Any) -> bool:
    return getattr(value, "shape", None) == () and getattr(getattr(value, "dtype", None), "kind", "") in "iuf"
