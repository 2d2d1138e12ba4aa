"""The picture of leakage against utility, as coordinates; a template draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.display import number
from bench.ranking import pareto_front

PLOT = {"width": 720, "height": 430, "left": 66, "right": 20, "top": 22, "bottom": 58}
CHAR_PX, LINE_PX = 7.4, 16


def scatter(rows: Sequence[Mapping], controls: Sequence[Mapping], columns: Sequence[Mapping]) -> dict[str, Any] | None:
    """Leakage against utility of one section, in pixels of PLOT; None when either column is absent.

    Rows without both numbers are dropped. The front holds ranked rows only, on unrounded values, equal points kept.
    """
    x = next((i for i, c in enumerate(columns) if c["role"] == "privacy" and c["unit"] == "%"), None)
    y = next((i for i, c in enumerate(columns) if c["role"] == "utility" and c["unit"] == "%"), None)
    if x is None or y is None:
        return None
    points = [point for i, row in enumerate([*rows, *controls]) if (point := _point(row, x, y, i))]
    if not points:
        return None
    able = [p for p in points if p["ranked"]]
    for point, kept in zip(able, pareto_front([(p["leak"], p["use"]) for p in able])):
        point["front"] = kept
    _label(points)
    return {**PLOT, "points": points, "front": _steps([p for p in able if p["front"]]), "x": columns[x],
            "y": columns[y], "weak": columns[x]["weak"], "chance_x": [_px(c) for c in columns[x]["chances"]],
            "chance_y": [_py(c) for c in columns[y]["chances"]],
            "ticks": [(f"{t}", _px(t / 100), _py(t / 100)) for t in range(0, 101, 20)]}


def _px(rate: float) -> float:
    return round(PLOT["left"] + rate * (PLOT["width"] - PLOT["left"] - PLOT["right"]), 1)


def _py(rate: float) -> float:
    return round(PLOT["height"] - PLOT["bottom"] - rate * (PLOT["height"] - PLOT["top"] - PLOT["bottom"]), 1)


def _point(row: Mapping, x: int, y: int, index: int) -> dict[str, Any] | None:
    a, b = row["cells"][x], row["cells"][y]
    if a["raw"] is None or b["raw"] is None or "ok" not in (a["status"], b["status"]):
        return None

    def ends(bar: Mapping | None, place: Any) -> list[float] | None:
        return [place(bar[k] / 100) for k in ("lo", "hi")] if bar and bar["lo"] is not None else None
    return {"name": row["name"], "control": row["control"], "leak": a["raw"], "use": b["raw"], "px": _px(a["raw"]),
            "py": _py(b["raw"]), "cross_x": ends(a["bar"], _px), "cross_y": ends(b["bar"], _py), "style": index % 6,
            "ranked": a["ranked"] and b["ranked"], "front": False,
            "leak_text": number(a["raw"], 1, 100), "use_text": number(b["raw"], 1, 100),
            "say": f"{number(a['raw'], 1, 100)} % leakage, {number(b['raw'], 1, 100)} % utility"}


def _steps(front: Sequence[Mapping]) -> str:
    """An SVG path: utility reached at this leakage or less. Never a straight line between two methods."""
    points = sorted({(p["px"], p["py"]) for p in front})
    if not points:
        return ""
    path = f"M{points[0][0]} {points[0][1]}" + "".join(f"H{px}V{py}" for px, py in points[1:])
    return f"{path}H{PLOT['width'] - PLOT['right']}"


def _label(points: Sequence[dict[str, Any]]) -> None:
    """Place names beside their marks where they hide neither another name nor a mark."""
    taken = [(p["px"] - 7, p["py"] - 7, p["px"] + 7, p["py"] + 7) for p in points]
    for point in points:
        wide = CHAR_PX * len(point["name"])
        options: list[tuple] = []
        for anchor, dx, dy in (("start", 11, -9), ("end", -11, -9), ("start", 11, 18), ("end", -11, 18),
                               ("start", 11, -26), ("end", -11, -26), ("start", 11, 35), ("end", -11, 35)):
            x, y = point["px"] + dx, point["py"] + dy
            left = x if anchor == "start" else x - wide
            box = (left, y - LINE_PX + 4, left + wide, y + 4)
            inside = PLOT["left"] <= left and left + wide <= PLOT["width"] and PLOT["top"] - 8 <= box[1] and \
                box[3] <= PLOT["height"] - PLOT["bottom"]
            hits = sum(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken)
            options.append((hits + (0 if inside else 5), len(options), anchor, x, y, box))
        _, _, anchor, x, y, box = min(options)
        point.update(anchor=anchor, lx=round(x, 1), ly=round(y, 1))
        taken.append(box)
