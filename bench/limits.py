"""What the noise of one method allows, in plain words and numbers: as much of the expression as of the person.

A claim about clips limits everything that is read from a release, whoever reads it and for whatever end. Every number
here comes from the cells of the row when the page is built.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from scipy.special import ndtr, ndtri

from bench.display import NARROW, NO_LIMIT, Cell, column_name, diagnostic, drawn, epsilon_text, finite, method_name
from bench.privacy.ceilings import Loss, top1
from bench.privacy.conversions import epsilon_exact, mu_exact
from bench.ranking import board_key

HEADLINE = "x3d"  # of the evaluators that read an expression
WITHOUT = "no_noise"  # the variant that says what could be read if there were no noise
ROUNDING = 0.02  # classes that are not quite equally likely raise a ceiling
_FRAMES = re.compile(r"clips? of (\d+) frames")


def limits(cells: Iterable[Cell], name: str) -> list[dict[str, Any]]:
    """[{dataset, profile, sentences}] of one row; none where nothing limits it or its expression was not read."""
    boards: dict[tuple, list[Cell]] = {}
    for cell in cells:
        boards.setdefault(board_key(cell), []).append(cell)
    found = []
    for (_, dataset, profile), group in boards.items():
        sentences = list(_sentences(group, [c for c in group if method_name(c) == name]))
        if sentences:
            found.append({"dataset": dataset, "profile": profile, "sentences": sentences})
    return found


def _sentences(board: Sequence[Cell], mine: Sequence[Cell]) -> Iterator[str]:
    read = _best([c for c in mine if c["metric"] == "fer" and _direct(c)], HEADLINE)
    if read is None:
        return
    named = _largest([c for c in mine if c["metric"] == "top1" and c.get("role") == "privacy" and _direct(c)])
    yield f"Noise does not know what it hides: one claim, epsilon {epsilon_text(read['epsilon'])} for one clip, " \
          "limits whoever reads the expression exactly as it limits whoever asks for the person, however good their " \
          "networks."
    yield f"Nobody names one of {_classes(read)} expressions in more than {_allowed(read)} of these videos " \
          f"(chance {drawn(read)['chance']}); {_measured(read)}."
    if named is not None:
        yield f"Nobody names one of {_classes(named)} people in more than {_allowed(named)} " \
              f"(chance {drawn(named)['chance']}); {_measured(named)}."
    if not _ball(read):
        return
    yield from _realised(mine, read)
    yield from _wanted(board, read, named)


def _direct(cell: Cell) -> bool:
    """A measured number of the release itself, under a claim about clips that limits it."""
    return cell.get("unit") == "clip" and cell["lane"] != "none" and finite(cell.get("ceiling")) and \
        finite(cell.get("chance")) and finite(cell.get("value")) and (cell.get("via") or "direct") == "direct" and \
        not diagnostic(cell) and cell["status"] in ("ok", "stale")


def _ball(read: Cell) -> bool:
    """Is its ceiling that of Gaussian noise on rows clipped to a ball (Theorem 8)? What follows speaks of no other."""
    if not 0 < float(read["delta"] or 0) < 1:
        return False
    away = mu_exact(float(read["epsilon"]), float(read["delta"])) / 2 * math.sqrt(_clips(read))
    return bool(read["ceiling"] <= _phi(1 / _classes(read), away) + ROUNDING)


def _best(cells: Sequence[Cell], evaluator: str) -> Cell | None:
    return next((c for c in cells if c.get("evaluator") == evaluator), cells[0] if cells else None)


def _largest(cells: Sequence[Cell]) -> Cell | None:
    return max(cells, key=lambda c: c["value"], default=None)


def _classes(cell: Cell) -> int:
    return round(1 / float(cell["chance"]))


def _percent(rate: float) -> str:
    return f"{100 * rate:.1f}{NARROW}%"


def _allowed(cell: Cell) -> str:
    ceiling = float(cell["ceiling"])
    return _percent(ceiling) + (", which is no limit in practice," if ceiling > NO_LIMIT else "")


def _measured(cell: Cell) -> str:
    view = drawn(cell)
    return f"{column_name(cell)} names {view['value']}{view['suffix']} {view['interval']}".strip()


def _clips(cell: Cell) -> int:
    """The most clips of a video that this number reads."""
    return max((int(k) for k in (cell.get("details") or {}).get("clips_read") or {1: 0}), default=1)


def _realised(mine: Sequence[Cell], read: Cell) -> Iterator[str]:
    """How far released clips really lie from an empty one (Theorem 8 with mean lengths, so an indication)."""
    scale, length = (_by_branch(mine, metric) for metric in ("scale_mean", "signal_norm"))
    frames = _FRAMES.search(str(read.get("horizon")))
    if not scale or set(scale) != set(length) or not frames:
        return
    away = math.sqrt(int(frames[1]) * sum((length[b] / scale[b]) ** 2 for b in scale))
    most = mu_exact(float(read["epsilon"]), float(read["delta"])) / 2
    videos = {int(k): n for k, n in ((read.get("details") or {}).get("clips_read") or {1: 1}).items()}
    at_most = sum(n * _phi(1 / _classes(read), away * math.sqrt(k)) for k, n in videos.items()) / sum(videos.values())
    yield f"The features that were released are shorter than the claim must assume: on average one clip lies " \
          f"{away:.2f} standard deviations of the noise away from an empty one, where the claim allows {most:.2f}. " \
          f"By that measure no reader gets above {_percent(at_most)}."


def _by_branch(mine: Sequence[Cell], metric: str) -> dict[str, float]:
    return {c["params"]["branch"]: float(c["value"]) for c in mine
            if c["metric"] == metric and finite(c.get("value")) and (c.get("params") or {}).get("branch")}


def _wanted(board: Sequence[Cell], read: Cell, named: Cell | None) -> Iterator[str]:
    """What a claim would have to be for the reader to see as much as without noise, and what it then allows of a
    person.
    """
    names = (f"{read['method']}@{WITHOUT}", "original")
    free: Mapping[str, Cell] = {method_name(c): c for c in board if c["metric"] == "fer" and not c.get("attack")
                                and c.get("evaluator") == read.get("evaluator") and finite(c.get("value"))}
    clear = next((free[n] for n in names if n in free), None)
    chance, clips = 1 / _classes(read), _clips(read)
    if clear is None or not chance < clear["value"] < 1 or clear["value"] <= read["ceiling"]:
        return
    mu = 2 * (float(ndtri(clear["value"])) - float(ndtri(chance)))
    epsilon = epsilon_exact(mu / math.sqrt(clips), float(read["delta"]))
    text = f"{method_name(clear)}, without noise, is read at {_percent(clear['value'])}. For as much under noise the " \
           f"claim would have to be epsilon {epsilon:.1f} or more for one clip, even on videos of {clips} clips"
    if named is not None:
        bound = top1(Loss("gaussian", mu=mu, norm_clipped=True), _classes(named)).bound
        text += f"; and then an attacker may name up to {_percent(float(bound or 1))} of {_classes(named)} people " \
                "from the same video"
    yield f"{text}."


def _phi(prior: float, away: float) -> float:
    """Theorem 8: the largest share of right answers at this distance from a release of nothing."""
    return float(ndtr(ndtri(prior) + away))
