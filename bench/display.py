"""How a cell is written: names, numbers, rounding, and the public form of DESIGN 5. Shared by tables and board.

A cell is a dict (see `bench.ranking`). Rates are stored in 0 .. 1; only a drawn page shows them as %.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from bench import registry

Cell = Mapping[str, Any]
DASH = "–"
NARROW = "\N{NARROW NO-BREAK SPACE}"
PUBLIC_FIELDS = (
    "method", "variant", "dataset", "profile", "lane", "unit", "adjacency", "epsilon", "delta", "attack", "metric",
    "evaluator", "via", "decoding", "value", "lo", "hi", "metric_unit", "better", "chance", "ceiling", "n", "people",
    "draws", "seeds", "status", "source", "digest", "split", "params", "text", "details")
ARROWS = {"higher": "↑", "lower": "↓", "none": ""}
DIRECTIONS = {"higher": "higher is better", "lower": "lower is better", "none": "descriptive, never ranked"}
LANES = {"enforced": "noise drawn by the harness", "declared": "declared, not enforced", "none": "empirical only"}


NO_LIMIT, NO_LIMIT_TEXT = 0.95, "no limit at this ε"  # above, a ceiling says nothing a reader could use


WORDS = "words"  # unit of a cell that says something instead of measuring it
ONE_TABLE = 8  # columns; a wider section is drawn as one table a family
FAMILIES = {"identity": "Privacy: who is it?", "open set": "Privacy: is it the same person?",
            "recovered": "Privacy after somebody tried to undo it", "utility": "Utility: what stays useful",
            "time": "Utility: how steady it is in time", "other": "Descriptive: never ranked"}
OF_REPORTS = {"events": "Privacy: did the event happen?",
              "stays": "Privacy: was this road user there at all? A whole stay, which no claim here covers",
              "learned": "Privacy: what somebody learns who knows public streams only",
              "answers": "Utility: how good the reports are", "fresh": "Utility: how fresh they are",
              "slots": "The same over other slots: never ranked"}
OPEN_SET = ("eer", "tar", "dir", "realised_far")
READ = ("fer", "uar")  # what a network reads from a released video
UNITS_OF = {"traffic": "episodes"}  # what intervals are over; of faces it is people


def counted(cell: Cell) -> str:
    """What `people` of this cell counts: people, or episodes of a traffic stream."""
    return UNITS_OF.get(cell.get("track") or "face", "people")


def families(cell: Cell) -> dict[str, str]:
    """The families of the columns of this cell's track, in the order of their tables."""
    return OF_REPORTS if cell.get("track") == "traffic" else FAMILIES


def family(cell: Cell) -> str:
    """Which of its track's families a column belongs to, from a cell of it: where a wide table is cut."""
    if cell.get("track") == "traffic":
        return _family_of_reports(cell)
    if (cell.get("via") or "direct") != "direct":
        return "recovered"
    if cell["metric"] in OPEN_SET:
        return "open set"
    if cell.get("role") == "utility":
        return "utility" if cell["metric"] in READ else "time"
    return "identity" if cell.get("role") == "privacy" else "other"


def _family_of_reports(cell: Cell) -> str:
    if attack := cell.get("attack"):
        stay = "_stay" in str((cell.get("params") or {}).get("event"))
        return "stays" if stay else "learned" if str(attack).partition("@")[0] == "event_learned" else "events"
    if cell["metric"] in ("coverage", "age"):
        return "fresh"
    return "answers" if cell.get("role") == "utility" else "slots"


def diagnostic(cell: Cell) -> bool:
    """Does it speak to the organiser about one method? Such a cell stands on its page, in no section of a board.

    Whatever was measured on changed inputs is one, whatever role it says it has.
    """
    return cell.get("role") == "diagnostic" or "intervention" in (cell.get("params") or {})


def method_name(cell: Cell) -> str:
    """`blur`, or `blur@8` for a variant. Works for cells and for method descriptions."""
    name = str(cell["method"] if "method" in cell else cell["name"])
    return f"{name}@{cell['variant']}" if cell.get("variant") else name


def column_name(cell: Cell) -> str:
    """`plr top1`, `fer@x3d`, `psnr_released`; with `via`, decoding and parameters when they are not plain."""
    base = str(cell["metric"])
    if cell.get("attack"):
        base = f"{cell['attack']} {base}"
    if cell.get("evaluator"):
        base = f"{base}@{cell['evaluator']}"
    extra = [f"{k}={v}" for k, v in sorted((cell.get("params") or {}).items())]
    if cell.get("decoding") == "isolated":
        extra.insert(0, "isolated")
    if (cell.get("via") or "direct") != "direct":
        extra.insert(0, f"via {cell['via']}")
    return f"{base} ({', '.join(extra)})" if extra else base


def finite(value: Any) -> bool:
    """True for a real number that can be shown and ranked; False for None, NaN and infinity."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def decimals(cell: Cell, scale: float = 1.0) -> int:
    """Digits after the point: two significant digits of the interval's half-width, at most 4 (6 for small numbers).

    Without an interval, or with one too narrow to show, 3 for rates and 2 for all else.
    """
    value = cell.get("value")
    small = cell.get("metric_unit") != "rate" and finite(value) and 0 < abs(value or 0) < 0.01
    if finite(cell.get("lo")) and finite(cell.get("hi")):
        half = abs(cell["hi"] - cell["lo"]) / 2 * scale
        if half >= (1e-6 if small else 1e-4):
            return min(6 if small else 4, max(0, 1 - math.floor(math.log10(half))))
    if small:
        return min(6, 1 - math.floor(math.log10(abs(value or 1))))
    default = 3 if cell.get("metric_unit") == "rate" else 2
    return max(0, default - round(math.log10(scale)))


def number(value: Any, places: int, scale: float = 1.0) -> str:
    """A number with a true minus sign, or a dash when there is none."""
    if not finite(value):
        return DASH
    text = f"{value * scale:.{places}f}"
    return text.removeprefix("-") if float(text) == 0 else text.replace("-", "−")


def interval(cell: Cell, scale: float = 1.0) -> str:
    """`[0.35, 0.52]` at the cell's own rounding; empty when there is no interval."""
    if not (finite(cell.get("lo")) and finite(cell.get("hi"))):
        return ""
    places = decimals(cell, scale)
    return f"[{number(cell['lo'], places, scale)}, {number(cell['hi'], places, scale)}]"


def drawn(cell: Cell) -> dict[str, str]:
    """value, interval, chance, ceiling, unit as a page draws them: rates in %, everything else in its own unit."""
    scale = 100.0 if cell.get("metric_unit") == "rate" else 1.0
    unit = "%" if scale == 100.0 else "" if cell.get("metric_unit") == "1" else str(cell.get("metric_unit") or "")
    places = decimals(cell, scale)
    chance = cell.get("chance")
    return {"value": number(cell.get("value"), places, scale), "interval": interval(cell, scale), "unit": unit,
            "suffix": f"{NARROW}{unit}" if unit else "",
            "chance": f"{number(chance, 1, scale)}{NARROW}{unit}".strip() if finite(chance) else "",
            "ceiling": _ceiling(cell, scale, unit)}


GUESSES = {"copied": "a copy", "mean_face": "the mean face"}


def guess_words(cell: Cell) -> list[str]:
    """`a copy 20.98, this +3.32 [2.84, 3.79]`: what a recovery has to beat, paired over the same people's clips."""
    found = (cell.get("details") or {}).get("guesses") or {}
    said = []
    for name, words in GUESSES.items():
        if not finite((one := found.get(name) or {}).get("value")):
            continue
        value = drawn({**cell, "value": one["value"]})["value"]
        apart = drawn({**cell, "value": one["apart"], "lo": one["lo"], "hi": one["hi"]})
        sign = "" if apart["value"].startswith(("−", DASH)) else "+"
        said.append(f"{words} {value}, this {sign}{apart['value']} {apart['interval']}".strip())
    return said


def _ceiling(cell: Cell, scale: float, unit: str) -> str:
    """What the claim allows, as a page draws it; empty without a claim that speaks of this column."""
    ceiling: Any = cell.get("ceiling")
    if not finite(ceiling):
        return ""
    least = cell["metric"] == "eer"  # an error rate: the claim says how small it can get
    if (1 - ceiling if least else ceiling) > NO_LIMIT:
        return NO_LIMIT_TEXT
    return f"{'≥' if least else '≤'} {number(ceiling, 1, scale)}{NARROW}{unit}".strip()


def exceeds(cell: Cell) -> bool:
    """Does the whole interval lie beyond what the row's own claim allows: above it, or below where higher is better?"""
    if not (finite(cell.get("ceiling")) and finite(cell.get("lo")) and finite(cell.get("hi"))):
        return False
    return cell["hi"] < cell["ceiling"] if cell["metric"] == "eer" else cell["lo"] > cell["ceiling"]


def epsilon_text(epsilon: Any) -> str:
    """`8`, `1.76` or `∞`."""
    if epsilon is None or (isinstance(epsilon, float) and math.isinf(epsilon)):
        return "∞"
    return f"{float(epsilon):.4g}"


def command(cell: Cell) -> str:
    """The command that would produce this cell."""
    parts = ["veilbench run", str(cell.get("suite") or "demo"), "--method", shlex.quote(method_name(cell))]
    if cell.get("attack"):
        parts += ["--attack", str(cell["attack"])]
    elif cell.get("metric") in registry.names("metrics") and cell.get("via") in (None, "direct"):
        parts += ["--metric", str(registry.Spec(cell["metric"], cell.get("evaluator")))]
    parts += ["--dataset", str(cell["dataset"]), *(["--root", "DIR"] if cell.get("needs_root") else [])]
    if cell.get("profile") not in (None, "tiny"):
        parts += ["--profile", str(cell["profile"])]
    return " ".join(parts)


def missing(row: Cell, column: Cell) -> dict[str, Any]:
    """The cell that a method (any cell of its row) has not got in a column (any cell of that column)."""
    of_column = ("attack", "metric", "evaluator", "via", "decoding", "metric_unit", "better", "role", "title", "params",
                 "chance")
    of_row = ("method", "variant", "dataset", "profile", "lane", "unit", "adjacency", "horizon", "epsilon", "delta",
              "split", "control", "suite", "track")
    nothing: dict[str, Any] = dict.fromkeys(("ceiling", "value", "lo", "hi", "n", "people", "draws", "digest", "text"))
    nothing |= {"seeds": [], "person_values": {}}
    cell = {**nothing, **{k: row.get(k) for k in of_row}, **{k: column.get(k) for k in of_column},
            "status": "missing", "source": "measured"}
    if column.get("attack") and column.get("role") == "descriptive" and row.get("lane") == "none" \
            and column["metric"] not in OPEN_SET:
        cell |= {"status": "undefined: it publishes no noisy values"}  # nothing for a transcript attack to read
    return cell


STATUS_WORDS = {"not_measurable": "not measurable", "missing": "not measured"}


def status_text(cell: Cell) -> str:
    """The status in words, empty when the number stands as it is."""
    status = str(cell.get("status") or "missing")
    if status == "ok":
        return "" if finite(cell.get("value")) else "undefined: no finite number"
    return STATUS_WORDS.get(status, status)


def public(cell: Cell) -> dict[str, Any]:
    """The cell with exactly the fields of DESIGN 5, ready for strict JSON.

    Rates stay in 0 .. 1, null stands where there is none (NaN too). An infinite epsilon is the string "inf",
    because JSON has no infinity and null would read as "unknown": no claim means epsilon = infinity.
    """
    row = {name: _plain(cell.get(name)) for name in PUBLIC_FIELDS}
    epsilon = cell.get("epsilon")
    row["epsilon"] = "inf" if isinstance(epsilon, float) and epsilon == math.inf else _plain(epsilon)
    row["via"] = row["via"] or "direct"
    row["source"] = row["source"] or "measured"
    if cell.get("status") == "missing":
        row["text"] = row["text"] or command(cell)
    return row


def _plain(value: Any) -> Any:
    """JSON values only: numpy scalars become Python's, tuples lists, non-finite numbers null."""
    if hasattr(value, "item") and not hasattr(value, "__len__"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(v) for v in value]
    return value


def span(values: Sequence[Any]) -> str:
    """`9`, `9–12` or a dash: a compact account of counts over several cells."""
    known = sorted({v for v in values if finite(v)})
    if not known:
        return DASH
    return str(known[0]) if len(known) == 1 else f"{known[0]}–{known[-1]}"
