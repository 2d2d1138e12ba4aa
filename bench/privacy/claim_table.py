"""The inverse of `claim_file.claim_from`: a claim as a table of values that JSON and TOML can hold.

Fractions become strings ("2/5"), so that nothing is rounded on the way; keys without a value are left out. A branch
without noise says `noise = "clear"`, because a missing word would be guessed from the other keys.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from bench.privacy.claims import BranchClaim, EventClaim, FullClaim, LabelClaim, PixelsClaim


def claim_to(claim: FullClaim) -> dict[str, Any]:
    """{"claim": {...}} with `claim_from(claim_to(c)) == c`."""
    table: dict[str, Any] = {
        "unit": claim.unit, "adjacency": claim.adjacency, "frames": int(claim.frames), "clips": int(claim.clips),
        "delta": float(claim.delta), "horizon": claim.horizon, "reads": list(claim.reads),
        "horizon_seconds": None if claim.horizon_seconds is None else float(claim.horizon_seconds),
        "branch": [_branch(b) for b in claim.branches],
    }
    if claim.event is not None:
        table |= _event(claim.event)
    if claim.pixels is not None:
        table |= _pixels(claim.pixels)
    if claim.label is not None:
        table |= _label(claim.label)
    return {"claim": _stated(table)}


def _branch(branch: BranchClaim) -> dict[str, Any]:
    return _stated({
        "name": branch.name, "noise": "clear" if branch.noise is None else branch.noise, "norm": branch.norm,
        "clip_norm": branch.clip_norm, "noise_std": branch.noise_std, "scale": _text(branch.scale),
        "epsilon": _text(branch.epsilon), "rows": _whole(branch.rows), "dim": _whole(branch.dim),
        "classes": _whole(branch.classes)})


def _event(event: EventClaim) -> dict[str, Any]:
    return {"window_chunks": int(event.window_chunks), "changed_chunks": int(event.changed_chunks),
            "cap": [str(c) for c in event.cap], "spends": [str(s) for s in event.spends],
            "allocation": [str(a) for a in event.allocation], "cadence_chunks": _whole(event.cadence_chunks),
            "budget": _text(event.budget), "accountant": event.accountant}


def _pixels(pixels: PixelsClaim) -> dict[str, Any]:
    return {"m": int(pixels.m), "b": int(pixels.b), "channels": int(pixels.channels), "levels": int(pixels.levels),
            "scale": _text(pixels.scale), "epsilon": _text(pixels.epsilon)}


def _label(label: LabelClaim) -> dict[str, Any]:
    return {"classes": int(label.classes), "labels": int(label.labels), "epsilon": str(label.epsilon)}


def _text(value: Fraction | None) -> str | None:
    return None if value is None else str(value)


def _whole(value: int | None) -> int | None:
    return None if value is None else int(value)


def _stated(table: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value is not None}
