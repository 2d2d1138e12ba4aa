"""How a run is shown: a progress display on a terminal, plain lines elsewhere, JSON lines for machines, or nothing."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from bench.errors import ConfigError, nearest
from bench.run.executors import Event, Outcome
from bench.run.plan import Plan
from bench.run.stages import Stage

DISPLAYS = ("rich", "plain", "json", "none")
PLAIN_EVERY_S = 15.0
OnEvent = Callable[[Event], None]


@contextmanager
def display(kind: str | None, total: int) -> Iterator[OnEvent]:
    """A function that shows events. `kind` None: rich on a terminal, else plain. Raises ConfigError."""
    kind = kind or ("rich" if sys.stdout.isatty() else "plain")
    if kind not in DISPLAYS:
        raise ConfigError(f"There is no display {kind!r}.", nearest(kind, DISPLAYS), "Give --display one of them.")
    if kind == "rich":
        with _rich_progress() as progress:
            yield _Rich(progress, total)
    else:
        shows: dict[str, OnEvent] = {"plain": _Plain(total), "json": _as_json, "none": lambda event: None}
        yield shows[kind]


class _Plain:
    """One line when a stage ends, and one every 15 s of a long one."""

    def __init__(self, total: int):
        self.total, self.count, self.last = total, 0, time.monotonic()

    def __call__(self, event: Event) -> None:
        if event.what in ("done", "failed", "cached", "skipped"):
            self.count += 1
        if event.what in ("cached", "skipped"):
            return
        if event.what == "progress":
            if time.monotonic() - self.last < PLAIN_EVERY_S:
                return
            text = f"{event.stage.title}: {event.text}"
        elif event.what == "started":
            return
        else:
            text = f"[{self.count}/{self.total}] {event.what:<7} {event.stage.title}"
            text += f"  {event.seconds:.1f} s" if event.what == "done" else f": {event.text}"
        self.last = time.monotonic()
        print(text, flush=True)


def _as_json(event: Event) -> None:
    print(json.dumps({"event": event.what, "kind": event.stage.kind, "stage": event.stage.title,
                      "digest": event.stage.digest[:20], "seconds": round(event.seconds, 3), "text": event.text}),
          flush=True)


def _rich_progress() -> Progress:
    return Progress(SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=30),
                    TextColumn("{task.fields[note]}"), TimeElapsedColumn(), console=Console(), transient=False)


class _Rich:
    """One bar for the run, one line for each running stage."""

    def __init__(self, progress: Progress, total: int):
        self.progress, self.lines = progress, {}  # type: ignore[var-annotated]
        self.whole = progress.add_task("stages", total=total, note="")

    def __call__(self, event: Event) -> None:
        key = event.stage.digest
        if event.what == "started":
            self.lines[key] = self.progress.add_task(event.stage.title, total=None, note="")
        elif event.what == "progress":
            self.progress.update(self.lines[key], note=event.text)
        else:
            if key in self.lines:
                self.progress.remove_task(self.lines.pop(key))
            self.progress.advance(self.whole)
            if event.what == "failed":
                self.progress.console.print(f"{event.what} {event.stage.title}: {event.text}", markup=False)


def estimate(plan: Plan, todo: Sequence[Stage]) -> str:
    """Roughly how long the stages that are not done take, from the suite's measured table, and what it lacks."""
    known, unmeasured = sum(s.seconds for s in todo), sum(not s.seconds for s in todo)
    said = f"{len(todo)} of {len(plan.stages)} stages to run"
    if known:
        said += f", about {max(1, round(known / 120))} min on 2 cores"
    if known and unmeasured:
        said += f" and what the {unmeasured} take that nobody measured"
    return said


def summary(plan: Plan, outcome: Outcome, seconds: float) -> list[str]:
    """Lines that end a run: what was done, what failed and why, what to do next."""
    lines = [f"{len(outcome.done)} stages run, {len(outcome.cached)} were there already, "
             f"{len(outcome.failed)} failed, {len(outcome.skipped)} skipped in {seconds:.0f} s."]
    titles = {s.digest: s for s in plan.stages}
    for digest, reason in outcome.failed.items():
        lines.append(f"failed: {titles[digest].title}: {reason}")
    return lines


def shown(value: Any) -> str:
    """JSON on several lines, for `explain`."""
    return json.dumps(value, indent=1, sort_keys=True, default=str)
