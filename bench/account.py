"""What a claim is worth: its price in every currency, what it allows an attacker, what follows and what does not.

`report` gives plain values for JSON (infinity is the string "inf"), `lines` the same for a reader, `card` the privacy
card of a page. The numbers come from `bench.privacy`; here they only get their words.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import registry
from bench.account_words import NOT_COVERED, adjacency_words, lines, unit_words
from bench.errors import ConfigError, nearest
from bench.privacy.accounting import price
from bench.privacy.checks import count, limited
from bench.privacy.claim_file import claim_from, load_claim
from bench.privacy.claim_table import claim_to
from bench.privacy.claims import CHUNK_SECONDS, FullClaim
from bench.privacy.consequences import ceilings_of, conversions_of

__all__ = ["card", "find", "lines", "printed", "report"]
FORMATS = ("text", "json")
FRAMES_PER_SECOND = 25  # of a prepared face video; the manifest holds the rate of its source
LANES = {"enforced": ("✓", "enforced: the harness draws the noise"),
         "declared": ("~", "declared, not enforced: the method draws the noise"),
         "none": ("○", "empirical only, ε = ∞")}
NOISE = {"seeded": ("benchmark only: seeded noise", False), "os": ("operating system noise", True)}
CONDITIONS = (
    "Every value computed from the protected video gets its noise before it leaves, in every branch.",
    "The noise depends on what was already released and never falls below its stated floor.",
    "Everything after the noise reads released values and public facts only.",
)


def find(text: str) -> tuple[FullClaim, str, str]:
    """(claim, name, lane) of a method (`blur@8`) or a claim in TOML. Raises ConfigError when it is both or neither."""
    path, spec = Path(text), registry.Spec.parse(text)
    methods = registry.names("methods")
    is_file, is_method = path.is_file() or path.suffix == ".toml", spec.name in methods
    if is_file and is_method:
        raise ConfigError(f"{text!r} is a method and a file.", "Their claims may differ.",
                          f"Write ./{text} for the file, or call from another folder for the method.")
    if is_file:
        return load_claim(path), path.name, ""
    if not is_method:
        what = "is a folder" if text and path.is_dir() else "is neither a method nor a file"
        raise ConfigError(f"{text!r} {what}.", nearest(spec.name, methods), "Give a method or a claim in a .toml file; "
                          "--plugin FILE adds a method of your own.")
    from bench.run.workers import method_facts

    facts = method_facts(spec)
    claim = claim_from(facts["full_claim"]) if facts.get("full_claim") else FullClaim("none")
    return claim, str(spec), facts["lane"]


def printed(text: str, delta: float | None, clips: int | None, form: str) -> list[str]:
    """The lines that `veilbench account` prints."""
    if form not in FORMATS:
        raise ConfigError(f"There is no format {form!r}.", "", "Use --format text or --format json.")
    claim, name, lane = find(text)
    found = report(claim, name, delta=delta, clips=clips) | ({"lane": lane} if lane else {})
    return [json.dumps(found, indent=1, allow_nan=False, ensure_ascii=False)] if form == "json" else lines(found)


def report(claim: FullClaim, name: str, *, delta: float | None = None, clips: int | None = None) -> dict[str, Any]:
    """Everything about a claim as JSON values. Raises ConfigError that names --delta or --clips for absurd ones.

    epsilon places a row on the board; numbers that do not apply are None; infinity is "inf"; rates are in 0 .. 1.
    """
    claim = _changed(claim, delta, clips)
    cost = price(claim)
    rows = conversions_of(claim, cost)
    found = {
        "name": name, "unit": claim.unit, "unit_words": unit_words(claim), "adjacency": claim.adjacency,
        "adjacency_words": adjacency_words(claim), "horizon": claim.horizon, "horizon_seconds": _seconds(claim),
        "frames": claim.frames, "clips": claim.clips, "board_delta": claim.delta, **cost.as_dict(),
        "not_covered": list(NOT_COVERED), "ceilings": ceilings_of(claim, cost), "conversions": rows,
        **claim_to(claim),
    }
    return _json(found)


def _changed(claim: FullClaim, delta: float | None, clips: int | None) -> FullClaim:
    if delta is not None:
        claim = replace(claim, delta=limited("delta", delta, "--delta"))
    if clips is None:
        return claim
    count("--clips", clips, 1, 1_000_000)
    if claim.unit == "event":
        raise ConfigError("--clips does not go with an event claim.", "Its horizon is a number of windows.",
                          "List the spends of all windows in the claim instead.")
    seconds = claim.horizon_seconds
    return replace(claim, clips=clips, horizon=claim.horizon if clips == claim.clips else "",
                   horizon_seconds=None if seconds is None else seconds * clips / claim.clips)


def _seconds(claim: FullClaim) -> float | None:
    """Length of the horizon where the claim fixes it: stated, or windows of 2 s chunks."""
    if claim.horizon_seconds is not None or claim.event is None:
        return claim.horizon_seconds
    event = claim.event
    cadence = event.cadence_chunks or event.window_chunks
    return float(CHUNK_SECONDS * ((len(event.spends) - 1) * cadence + event.window_chunks))


def _json(value: Any) -> Any:
    """The same with infinity as "inf", and tuples as lists."""
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items()}
    return [_json(item) for item in value] if isinstance(value, (list, tuple)) else value


# ---- privacy card --------------------------------------------------------------------------------------------------

def card(found: Mapping[str, Any], *, lane: str = "", isolation: Mapping[str, Any] | None = None, noise: str = "",
         audit: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The privacy card (PROTOCOL 1) of a report, ready for `_privacy_card.html.j2`.

    isolation: {level, layers, text, green}.  noise: "seeded" or "os".  audit: {bound, claim, n, refuted}, the lower
    bound on epsilon from n releases beside the claim.
    """
    from bench.account_words import ceiling_lines, ceilings_note, horizon_words, quantity_rows

    lane = lane or str(found.get("lane") or "none")
    for word, known in ((lane, LANES), (noise or "os", NOISE)):
        if word not in known:
            raise ConfigError(f"{word!r} is not known to the privacy card.", "", nearest(word, known))
    text, operating_system = NOISE.get(noise, ("", True))
    return {
        "name": found["name"], "unit": found["unit_words"], "adjacency": found["adjacency_words"],
        "horizon": horizon_words(found, FRAMES_PER_SECOND), "infinite": found["epsilon"] == "inf",
        "rows": [row for row in quantity_rows(found) if row["key"] != "rho"],
        "lane": dict(zip(("id", "symbol", "text"), (lane, *LANES[lane]), strict=True)),
        "isolation": dict(isolation) if isolation else None,
        "noise": {"text": text, "green": operating_system} if noise else None,
        "audit": _audit(audit), "conditions": [] if found["epsilon"] == "inf" else list(CONDITIONS),
        "why": found["assumptions"][0] if found["epsilon"] == "inf" else "",
        "not_covered": [] if found["epsilon"] == "inf" else found["not_covered"],
        "ceilings": ceiling_lines(found), "note": ceilings_note(found),
    }


def _audit(audit: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The audit as one sentence: what was shown, never that a claim is proved."""
    if audit is None:
        return None
    shown = f"{audit['n']} releases show that epsilon is at least {float(audit['bound']):.3g}; " \
            f"the claim is {float(audit['claim']):.3g}."
    verdict = " The claim is refuted." if audit["refuted"] else \
        " That does not contradict the claim; an audit can refute a claim, never prove it."
    return {**audit, "text": shown + verdict}
