"""A user's own fixed-camera video through a method of the traffic track: a transcript in words, nothing of the frames.

Vision experts read each chunk by itself; the harness clips, adds up windows and draws the noise from the operating
system; the method's process plans and words from released values. What is written is the transcript and its privacy
card; how many chunks failed, how the camera moved and how long it took tell of the video and stay on the terminal.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from bench.data.camera.chunks import Footage, read_video
from bench.data.camera.experts import Camera
from bench.errors import ConfigError
from bench.pictures import cannot_write
from bench.privacy.accounting import Price, price
from bench.privacy.bits import OsBits
from bench.privacy.claim_table import claim_to
from bench.privacy.claims import EventClaim, FullClaim
from bench.privacy.contract import CHUNK_STEPS, Branch
from bench.privacy.windows import clip_chunks, release_windows, window_sums
from bench.registry import Spec
from bench.reports import ages, text
from bench.run.enforced import PublicWorker, full_claim
from bench.run.sandbox import Isolation, available
from bench.run.stage_reports import branches_of, event_of, fresh_of, planner_of, shown_of
from bench.traffic import COMPONENTS, EXPERTS, SLOTS, WINDOW_CHUNKS, WINDOW_S, columns, requests

REQUESTS_SEED = 42  # what each window asks for is public; without an operator who asks, it is drawn once for all
SUFFIX = ".json"


@dataclass(frozen=True)
class Report:
    """One window. asked: name of an expert; values (12,), NaN = missing; fresh bool (4,); age_s (4,); ever bool
    (4,): has the expert released anything yet? spent: epsilon that each expert's numbers of this window cost.
    """

    window: int
    asked: str
    priority: int
    values: np.ndarray
    fresh: np.ndarray
    age_s: np.ndarray
    ever: np.ndarray
    spent: tuple[str, ...]

    @property
    def text(self) -> str:
        return text(self.values, self.age_s, self.ever)

    def as_dict(self) -> dict[str, Any]:
        shown = {n: None if np.isnan(v) else float(v) for n, v in zip(COMPONENTS, self.values, strict=True)}
        return {"from_s": self.window * WINDOW_S, "to_s": (self.window + 1) * WINDOW_S, "asked": self.asked,
                "priority": self.priority, "values": shown,
                "fresh": {e.name: bool(f) for e, f in zip(EXPERTS, self.fresh, strict=True)},
                "age_s": {e.name: float(a) for e, a in zip(EXPERTS, self.age_s, strict=True)},
                "released_before": {e.name: bool(f) for e, f in zip(EXPERTS, self.ever, strict=True)},
                "spent": {e.name: s for e, s in zip(EXPERTS, self.spent, strict=True)}, "text": self.text}


@dataclass(frozen=True)
class Transcript:
    """What came out: one report a window, the claim over all of them, its price; and notes that stay with the owner."""

    reports: tuple[Report, ...]
    claim: FullClaim
    cost: Price
    isolation: Isolation
    notes: tuple[str, ...]


def release_reports(spec: Spec, facts: Mapping[str, Any], state: Mapping[str, np.ndarray], source: Path,
                    camera: Camera) -> Transcript:
    """Read `source` and report on its whole windows. Raises DataError for a file that cannot be read or is too short.

    Ten windows are an episode with a budget of its own; a longer video has several, and the claim adds them up.
    """
    footage = read_video(source, camera)
    branches, isolation = branches_of(facts), available()
    reads = np.array([e.name in camera.reads for e in EXPERTS])
    slots = len(footage.steps) // WINDOW_CHUNKS
    lengths = [min(SLOTS, slots - start) for start in range(0, slots, SLOTS)]
    asked = requests(REQUESTS_SEED, "release", len(lengths), SLOTS)
    reports: list[Report] = []
    with PublicWorker(spec, "tiny", isolation) as worker:
        worker.load_state(state)
        for number, length in enumerate(lengths):
            public = {"asked": asked.expert[number:number + 1, :length].tolist(), "profile": "tiny",
                      "priority": asked.priority[number:number + 1, :length].tolist(), "from_video": True}
            start = number * SLOTS
            values, fresh, spent = _episode(worker, facts, branches, _steps(footage, start, length), public)
            values, fresh = np.where(shown_of(reads), values, np.nan), fresh & reads
            old, ever = ages(fresh), np.logical_or.accumulate(fresh)
            reports += [Report(start + t, EXPERTS[public["asked"][0][t]].name, public["priority"][0][t], values[t],
                               fresh[t], old[t], ever[t], spent[t]) for t in range(length)]
    claim = whole_claim(full_claim(facts) or FullClaim("none"), lengths)
    return Transcript(tuple(reports), claim, price(claim), isolation, footage.notes)


def _steps(footage: Footage, start: int, length: int) -> np.ndarray:
    """Chunks of some windows, float64 (1, chunks, 12), in units of the values."""
    part = footage.steps[start * WINDOW_CHUNKS:(start + length) * WINDOW_CHUNKS]
    return part[None] / CHUNK_STEPS


def _episode(worker: PublicWorker, facts: Mapping[str, Any], branches: tuple[Branch, ...], values: np.ndarray,
             public: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray, list[tuple[str, ...]]]:
    """Reports (T, 12), what was released in its own window, bool (T, 4), and what each expert spent, of one episode."""
    event = event_of(facts, len(public["asked"][0]))
    sums = {b.name: window_sums(clip_chunks(values[..., columns(b.name)], b, CHUNK_STEPS)[0], event) for b in branches}
    made = release_windows(sums, branches, planner_of(worker, public), event, OsBits())
    arrays = {f"0:{name}": rows[0] for name, rows in made.released.items()}
    _, found = worker.call({"op": "render", "clips": 1, "public": dict(public), "decoding": "assembled"}, arrays)
    shown = found.get("frames")
    if shown is None or shown.shape != (1, len(event.spends), len(COMPONENTS)) or np.isinf(shown).any():
        raise ConfigError(f"render of {worker.spec} gave no report of {len(event.spends)} windows.", "",
                          "Mend `render`; nothing was written.")
    none = [Fraction(0)] * len(event.spends)
    spent = zip(*(made.spends.get(e.name, [none])[0] for e in EXPERTS))
    return shown[0], fresh_of(made.released)[0], [tuple(map(str, row)) for row in spent]


def whole_claim(claim: FullClaim, lengths: Sequence[int]) -> FullClaim:
    """The claim over episodes of so many windows each: every one spends anew, and where windows add up so do they."""
    if claim.event is None:
        return claim
    event = claim.event
    spends = tuple(s for length in lengths for s in event.spends[:length])
    budget = event.budget
    if budget is not None and event.accountant == "sum":
        budget *= len(lengths)
    whole: EventClaim = replace(event, spends=spends, budget=budget)
    return replace(claim, event=whole, horizon="", horizon_seconds=len(spends) * WINDOW_S)


# ---- files ---------------------------------------------------------------------------------------------------------

def check_output(source: Path, output: Path) -> None:
    """Raises ConfigError for a name that would overwrite something else, or is no .json."""
    beside = output.with_suffix(".txt")
    if output.suffix.lower() != SUFFIX:
        raise ConfigError(f"{output} cannot hold a transcript.", "A method of the traffic track writes reports, not "
                          "pictures: numbers as JSON, and the sentences as .txt beside it.",
                          f"End its name in {SUFFIX}.")
    for path in (output, beside):
        if path.exists() and source.exists() and path.samefile(source):
            raise ConfigError(f"The output {path} is the input.", "The original would be lost.",
                              "Give -o another path.")
    if beside.exists() and not output.exists():
        raise ConfigError(f"{beside} is there already.", "The sentences are written to it, and it belongs to no "
                          "transcript.", "Give -o another name.")


def write_transcript(output: Path, spec: Spec, facts: Mapping[str, Any], made: Transcript,
                     card: Sequence[str]) -> None:
    """Write OUTPUT.json and OUTPUT.txt: both whole, or neither is changed. Raises EnvironmentFault (disk, rights)."""
    table = {"schema": 1, "method": spec.name, "variant": spec.variant, "lane": facts["lane"],
             "claim": claim_to(made.claim), "price": {k: str(v) if v == float("inf") else v
                                                     for k, v in made.cost.as_dict().items()},
             "noise": "os", "isolation": made.isolation.as_dict(), "window_s": WINDOW_S,
             "reports": [r.as_dict() for r in made.reports], "card": list(card)}
    sentences = [f"{r.window * WINDOW_S:g} to {(r.window + 1) * WINDOW_S:g} s: {r.text}" for r in made.reports]
    contents = {output.with_suffix(".txt"): "\n".join([*sentences, "", *card]) + "\n",
                output: json.dumps(table, indent=1, allow_nan=False, ensure_ascii=False) + "\n"}
    parts = {path: path.with_name(f".{path.name}.{os.getpid()}.part") for path in contents}
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        for path, content in contents.items():
            with parts[path].open("w", encoding="utf-8") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for path, part in parts.items():
            os.replace(part, path)
    except OSError as error:
        raise cannot_write(output, error) from error
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def owners_lines(made: Transcript) -> Iterator[str]:
    """What only the owner of the video should read."""
    if made.notes:
        yield "For you alone, since it tells of the video and stands in no file:"
        yield from (f"  {note}" for note in made.notes)
