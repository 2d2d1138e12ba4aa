"""What the pages show, as plain data: boards, sections, columns, rows, bars. No HTML here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.against import with_differences
from bench.display import (
    ARROWS,
    DIRECTIONS,
    LANES,
    ONE_TABLE,
    Cell,
    column_name,
    command,
    counted,
    diagnostic,
    drawn,
    epsilon_text,
    exceeds,
    families,
    family,
    finite,
    guess_words,
    method_name,
    missing,
    span,
    status_text,
)
from bench.event_words import PLACES, accountants, beside, event_heading
from bench.ranking import (
    Row,
    attack_state,
    board_key,
    epsilon_band,
    rank_section,
    section_key,
    split_by_key,
    unranked_reason,
    with_faces,
)
from bench.scatter import scatter

LANE_ORDER = ("enforced", "declared", "none")
ROLES = ("privacy", "utility", "descriptive")
ROLE_TITLES = {"privacy": "Privacy: what an attacker gets", "utility": "Utility: what stays useful",
               "descriptive": "Descriptive: never ranked"}
UNITS = {"clip": "one clip of 16 frames", "source_video": "one whole source video", "frame": "one frame",
         "image_metric": "one image, by distance", "pixels": "some pixels of a frame", "event": "one short event"}
FIRST = ("event_llr", "whole_stay", "event_learned", "utility", "mae_vehicle", "mae_pedestrian", "f1_sign",
         "f1_environment", "coverage", "age")  # of reports: the worst case and what is asked for lead
CONTROLS = {("traffic", "negative"): "releases nothing: the line to beat",
            ("traffic", "positive"): "positive control: exact counts, every attack must see through it"}


def boards(cells: Iterable[Cell]) -> list[dict[str, Any]]:
    """One board per (track, dataset, profile): faces before traffic, else in order of first appearance."""
    groups: dict[tuple, list[Cell]] = {}
    for cell in with_differences(with_faces(c for c in cells if not diagnostic(c))):
        groups.setdefault(board_key(cell), []).append(cell)
    return [_board(key, groups[key]) for key in sorted(groups, key=lambda k: k[0])]


def _board(key: tuple[str, str, str], cells: Sequence[Cell]) -> dict[str, Any]:
    controls = [cell for cell in cells if cell.get("control")]
    groups: dict[tuple, list[Cell]] = {}
    for cell in cells:
        if not cell.get("control"):
            groups.setdefault(section_key(cell), []).append(cell)
    if not groups and controls:
        groups[section_key(controls[0])] = []
    order = sorted(groups, key=lambda k: (LANE_ORDER.index(k[0]), repr(k[1:5]), k[5]))  # k[5]: the epsilon band
    sections = [_section(groups[k], [c for c in controls if c["control"] != "repeat" or section_key(c) == k])
                for k in order]
    track, dataset, profile = key
    for i, section in enumerate(sections):
        section["id"] = f"{track}-{dataset}-{profile}-{i + 1}"
    return {"track": track, "dataset": dataset, "profile": profile, "sections": sections, "facts": provenance(cells),
            "units": counted(cells[0])}


def provenance(cells: Sequence[Cell]) -> list[tuple[str, str]]:
    """n, people, seeds, draws, profile, split and digests of these cells, for the line under a table."""
    seeds = sorted({s for cell in cells for s in cell.get("seeds") or []})
    digests = sorted({str(cell["digest"])[:10] for cell in cells if cell.get("digest")})
    splits = sorted({str(cell["split"])[:10] for cell in cells if cell.get("split")})
    return [("trials per number", span([cell.get("n") for cell in cells])),
            (counted(cells[0]) if cells else "people", span([cell.get("people") for cell in cells])),
            ("draws", span([cell.get("draws") for cell in cells])), ("seeds", ", ".join(map(str, seeds)) or "none"),
            ("profile", ", ".join(sorted({str(cell["profile"]) for cell in cells}))),
            ("split", ", ".join(splits) or "none"), ("attack and metric digests", ", ".join(digests) or "none")]


def columns_of(cells: Iterable[Cell]) -> list[tuple[str, Cell]]:
    """(name, one cell of it) per column: privacy, then utility, then descriptive; within, by first appearance (numbers
    of reports: the headline first).
    """
    seen: dict[str, Cell] = {}
    for cell in cells:
        seen.setdefault(column_name(cell), cell)
    return sorted(seen.items(), key=lambda item: (ROLES.index(item[1].get("role") or "descriptive"), _place(item[1])))


def _place(cell: Cell) -> int:
    """Where a column of reports stands in FIRST; -1 for any other."""
    name = str(cell.get("attack") or cell["metric"]).partition("@")[0]
    return FIRST.index(name) if name in FIRST else -1


# ---- one section ---------------------------------------------------------------------------------------------------

def _section(cells: Sequence[Cell], controls: Sequence[Cell]) -> dict[str, Any]:
    both = [*cells, *controls]
    names = {method_name(cell): cell for cell in reversed(both)}
    columns, excluded = [], []
    table: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for name, sample in columns_of(both):
        group, twice = _one_each(cell for cell in both if column_name(cell) == name)
        have = {method_name(cell) for cell in group}
        group += [missing(cell, sample) for row, cell in names.items() if row not in have]
        kept, apart = split_by_key(group)
        rows = rank_section(kept) + [Row(cell, reason=reason) for cell, reason in apart]
        excluded += [{"row": f"{method_name(cell)}, {name}", "reason": reason} for cell, reason in (*apart, *twice)]
        columns.append(_column(name, sample, group, rows))
        for row in rows:
            table[method_name(row.cell)].append(cell_view(row, _axis(sample, group)))
    lines = [_line(name, names[name], views, accountants(both, name)) for name, views in table.items()]
    methods = sorted((x for x in lines if not x["control"]), key=lambda x: (x["cells"][0]["order"], x["name"]))
    return {**_heading(cells[0] if cells else both[0]), "columns": columns, "rows": methods,
            "panels": _panels(columns), "controls": [x for x in lines if x["control"]], "excluded": excluded,
            "facts": provenance(both), "plot": scatter(methods, [x for x in lines if x["control"]], columns)}


def _one_each(cells: Iterable[Cell]) -> tuple[list[Cell], list[tuple[Cell, str]]]:
    """One cell per method, a rankable one where there is a choice, and the others with the reason."""
    chosen: dict[str, Cell] = {}
    others = []
    for cell in cells:
        name = method_name(cell)
        if name in chosen and (unranked_reason(cell) or not unranked_reason(chosen[name])):
            others.append((cell, "a second cell of the same method in this column"))
            continue
        if name in chosen:
            others.append((chosen[name], "a second cell of the same method in this column"))
        chosen[name] = cell
    return list(chosen.values()), others


def _line(name: str, cell: Cell, views: list[dict[str, Any]], prices: str) -> dict[str, Any]:
    control = cell.get("control")
    words = CONTROLS.get((cell.get("track") or "face", control or ""), f"{control} control")
    return {"name": name, "control": control, "epsilon": epsilon_text(cell.get("epsilon")), "lane": cell.get("lane"),
            "words": words if control else "", "accountants": prices, "cells": views}


def _panels(columns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tables of a section: title, indices of their columns, and how many of these have which role."""
    if len(columns) <= ONE_TABLE:
        return [{"title": "", "columns": list(range(len(columns))), "groups": _groups(columns)}]
    titles = families(columns[0])
    index = {name: [i for i, c in enumerate(columns) if family(c) == name] for name in titles}
    return [{"title": titles[name], "columns": found, "groups": []} for name, found in index.items() if found]


def _groups(columns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    counts = {role: sum(c["role"] == role for c in columns) for role in ROLES}
    return [{"role": role, "title": ROLE_TITLES[role], "span": n} for role, n in counts.items() if n]


def _heading(cell: Cell) -> dict[str, Any]:
    lane, unit = cell["lane"], cell["unit"]
    if lane == "none":
        return {"lane": lane, "title": "No formal claim", "badge": badge(cell), "text":
                "These methods promise nothing that could be proved. What the attacks below got is all that is known; "
                "a stronger attack can only lower a row."}
    band = epsilon_text(epsilon_band(cell.get("epsilon")))
    title, text = f"Claim about {UNITS.get(unit, unit)}", \
        f"Adjacency: {cell.get('adjacency')}. Horizon: {cell.get('horizon')}."
    if unit == "event" and cell.get("adjacency") in PLACES:
        title, text = event_heading(cell)
    return {"lane": lane, "title": f"{title}, ε ≤ {band}", "badge": badge(cell, f"≤ {band}"),
            "text": f"{text} δ = {_delta(cell.get('delta'))}. Rows here share all of these, so they may be ranked "
                    "together."}


def _delta(delta: float | None) -> str:
    return f"{delta or 0:g}".replace("e-0", "e-")


def badge(cell: Cell, epsilon: str = "") -> dict[str, str]:
    """The lane in words, with its epsilon; the symbol keeps it from resting on colour alone."""
    symbol = {"enforced": "✓", "declared": "◐", "none": "○"}[cell["lane"]]
    return {"lane": cell["lane"], "symbol": symbol,
            "text": f"{LANES[cell['lane']]}, ε {epsilon or '= ' + epsilon_text(cell.get('epsilon'))}"}


def _column(name: str, cell: Cell, group: Sequence[Cell], rows: Sequence[Row]) -> dict[str, Any]:
    state = attack_state(group)
    chances = {c["chance"]: drawn(c)["chance"] for c in group if finite(c.get("chance"))}
    better = cell.get("better") or "none"
    return {"name": name, "title": cell.get("title") or name, "role": cell.get("role") or "descriptive",
            "undecided": _undecided(rows), "better": better, "arrow": ARROWS[better], "direction": DIRECTIONS[better],
            "weak": "" if state == "ok" else state, "n": span([c.get("n") for c in group]),
            "people": span([c.get("people") for c in group]), "chances": sorted(chances),
            "chance": " / ".join(chances[c] for c in sorted(chances)),
            "unit": drawn(cell)["unit"], "metric": cell["metric"], "attack": cell.get("attack"),
            "via": cell.get("via") or "direct", "apart": _apart(group), "track": cell.get("track") or "face",
            "params": cell.get("params"), "counted": counted(cell)}


def _apart(group: Sequence[Cell]) -> str:
    """How far the same method lies from itself with other seeds, where a suite ran it twice."""
    again = next((c for c in group if c.get("control") == "repeat" and finite(c.get("value"))), None)
    first = next((c for c in group if again and not c.get("control") and c["method"] == again["method"]
                  and f"{c['variant'] or ''}again" == again["variant"] and finite(c.get("value"))), None)
    if again is None or first is None:
        return ""
    view = drawn({**first, "value": abs(first["value"] - again["value"])})
    return f"{view['value']}{view['suffix']}"


def _undecided(rows: Sequence[Row]) -> bool:
    ranked = [row for row in rows if row.rank is not None]
    return len(ranked) > 1 and not any(row.decidable for row in ranked)


def _axis(cell: Cell, group: Sequence[Cell]) -> tuple[float, float]:
    """Left and right end of the small bars of a column: 0 .. 1 for rates, else from 0 past the largest method."""
    if cell.get("metric_unit") == "rate":
        return 0.0, 1.0
    ends = [c[k] for c in group for k in ("value", "hi") if not c.get("control") and finite(c.get(k))]
    return 0.0, max([1e-9, *ends]) * 1.08


def cell_view(row: Row, axis: tuple[float, float] = (0.0, 1.0)) -> dict[str, Any]:
    """One drawn cell: numbers as text, the bar in percent of its width, the rank or the reason for having none."""
    cell = row.cell
    status = str(cell.get("status") or "missing")
    view: dict[str, Any] = {**drawn(cell), "raw": cell.get("value") if finite(cell.get("value")) else None,
                            "status": status.partition(":")[0], "reason": "", "rank": "", "best": row.best,
                            "n": cell.get("n"), "people": cell.get("people"), "bar": _bar(cell, axis),
                            "order": (row.rank is None, row.rank or 0), "command": "", "exceeds": exceeds(cell),
                            "ranked": row.rank is not None, "notes": _notes(cell),
                            "text": cell.get("text") or ""}
    if row.rank is not None:
        spread = "" if row.rank_lo is None or row.rank_lo == row.rank_hi else f" ({row.rank_lo}–{row.rank_hi})"
        view["rank"] = f"{'=' if row.tied else ''}{row.rank}{spread}"
    elif not (cell.get("control") or row.reason.startswith(("descriptive", "attack too weak"))) or status != "ok":
        view["reason"] = status_text(cell) or row.reason
    if status == "missing":
        view["command"] = command(cell)
    return view


def _notes(cell: Cell) -> list[str]:
    """What stands below a number: its worst seed, what two halves of the originals give, what a mere guess gives."""
    details, names = cell.get("details") or {}, {"worst_seed": "worst seed", "floor": "same data, other people"}
    notes = [f"{words} {drawn({**cell, 'value': details[key], 'lo': None, 'hi': None})['value']}"
             for key, words in names.items() if finite(details.get(key))]
    capped = details.get("capped_frames")
    notes += [f"{capped} frames equal: capped"] if capped else []
    notes += guess_words(cell)
    return notes + [beside(cell, one) for one in cell.get("against") or ()]


def _bar(cell: Cell, axis: tuple[float, float]) -> dict[str, float | None] | None:
    low, high = axis
    value: Any = cell.get("value")
    if not finite(value) or not low <= value <= high:
        return None

    def place(x: Any) -> float | None:
        return round(100 * (min(max(x, low), high) - low) / (high - low), 2) if finite(x) else None
    return {"point": place(value), "lo": place(cell.get("lo")), "hi": place(cell.get("hi")),
            "chance": place(cell.get("chance")), "ceiling": place(cell.get("ceiling"))}
