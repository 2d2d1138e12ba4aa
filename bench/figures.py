"""The pictures of the TADP paper as files: a sequence of frames, and identity features before and after recovery.

The same work folder gives the same bytes. Frames are shown of publishable datasets alone; a picture of features holds
points, no frame and no name.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

import bench.video as video_io
from bench import seeds
from bench.blocks import by_board, footer
from bench.data.clips import Clips
from bench.data.splits import hashed
from bench.display import Cell, finite, method_name
from bench.pictures import cannot_write
from bench.publish import chain
from bench.run.cache import WorkFolder
from bench.run.released import Released, open_release
from bench.run.stage_sets import Features, read_features
from bench.sampling import spread

METHOD, SUITE = "tadp", "tadp"
STAGES = ("original", "tadp@no_noise", "tadp")  # rows of the sequence: the input, decoded without noise, released
FRAMES, PER_LINE = 16, 8  # of the sequence, in reading order
GAP_PX, LABEL_PX, ENLARGED = 2, 18, 2
POINTS = 200  # of a set at most, equally spaced over its clips
SETS = (("originals", "original (O)", "#0072b2"), ("direct", "released (P)", "#e69f00"),
        ("features", "recovered (R)", "#009e73"))
WIDTH, HEIGHT, MARGIN, TOP = 720, 560, 24, 64
PERPLEXITY = 30.0


def draw(name: str, cells: Sequence[Cell], work: WorkFolder, out: Path) -> Iterator[str]:
    """Write the files of one figure into `out`, one for each dataset, and say what each shows, line by line.

    cells: as `store.read_cells` gives them.  Raises EnvironmentFault where a file cannot be written.
    """
    made = False
    for (_, dataset, profile), group in by_board(cells).items():
        for line in _FIGURES[name](name, f"{dataset}-{profile}", group, work, out):
            made = True
            yield line
    if not made:
        yield f"{name}: nothing to draw yet. To measure: veilbench run {SUITE}"


def _said(name: str, text: str, path: Path, cells: Sequence[Cell], rests: Sequence[str] = ()) -> Iterator[str]:
    """The lines about a file: where it is, what it shows, what it rests on (by default as below a table)."""
    yield f"{name}: {text}"
    yield f"Wrote {path}"
    yield from rests or footer(cells)
    if stale := [c for c in cells if c.get("status") == "stale"]:
        yield f"stale: {stale[0]['text']}"


# ---- frames --------------------------------------------------------------------------------------------------------

def _sequence(name: str, board: str, cells: Sequence[Cell], work: WorkFolder, out: Path) -> Iterator[str]:
    """One probe video as the input, decoded without noise, and released: left to right, top to bottom."""
    rows = {wanted: [c for c in cells if method_name(c) == wanted] for wanted in STAGES}
    found = {wanted: record for wanted, mine in rows.items() if (record := _release(work, mine))}
    if METHOD not in found:
        return
    clips = Clips(work.stage("clips", found[METHOD]["identity"]["inputs"]["clips"]))
    if not clips.info["publishable"]:
        yield f"{name}: no frame of {clips.info['name']} is drawn, because its licence does not let them be shown."
        return
    items = {row: _probes(work, record) for row, record in found.items()}
    video = min(items[METHOD], key=hashed)
    shown = [(row, items[row][video].read().frames) for row in STAGES if video in items.get(row, {})]
    first = items[METHOD][video]
    path = out / f"{name}-{board}.png"
    video_io.write_png(path, sequence(shown))
    label = f"label {first.label}, {first.frames} frames, of which {min(FRAMES, first.frames)} are shown"
    text = f"one probe video ({label}), rows {', '.join(row for row, _ in shown)}"
    if missing := [row for row in STAGES if row not in dict(shown)]:
        text += f"; not released here: {', '.join(missing)}"
    identity = found[METHOD]["identity"]["config"]
    rests = (f"n 1 video, people 1, seed {identity['seed']}, draw 0, profile {identity['profile']}",
             f"digests: split {clips.info['split'][:10]}; " + "; ".join(
                 f"release {row} {found[row]['digest'][:10]}" for row, _ in shown))
    yield from _said(name, text, path, [c for row, _ in shown for c in rows[row]], rests)


def _release(work: WorkFolder, cells: Sequence[Cell]) -> Mapping[str, Any] | None:
    """The stage of the whole release behind these cells: all parts, whole videos, unchanged inputs."""
    for score in dict.fromkeys(c["score"] for c in cells if c.get("score")):
        for record in chain(work, "score", score):
            config = record["identity"]["config"]
            if record["kind"] in ("release", "enforced") and config["decoding"] == "assembled" and \
                    "development" in config["parts"] and not config.get("intervention"):
                return record
    return None


def _probes(work: WorkFolder, record: Mapping[str, Any]) -> dict[str, Released]:
    return {item.video: item for item in
            open_release(work.stage(record["kind"], record["digest"]), role="probe", draw=0)}


def sequence(rows: Sequence[tuple[str, np.ndarray]]) -> np.ndarray:
    """Frames uint8 (T, H, W, 3) under their names as one picture: up to FRAMES of each, PER_LINE in a line."""
    parts = []
    for text, frames in rows:
        index = np.unique(spread(len(frames), 0, len(frames), FRAMES))
        grid = _grid(frames[index])
        label = np.full((LABEL_PX, grid.shape[1], 3), 255, np.uint8)
        cv2.putText(label, text, (2, LABEL_PX - 5), cv2.FONT_HERSHEY_SIMPLEX, 0.45, (40, 40, 40), 1, cv2.LINE_AA)
        parts += [label, grid]
    return np.concatenate(parts)


def _grid(frames: np.ndarray) -> np.ndarray:
    """(N, H, W, 3) -> one picture, in reading order, white where there is no frame."""
    big = frames.repeat(ENLARGED, axis=1).repeat(ENLARGED, axis=2)
    height, width = big.shape[1] + GAP_PX, big.shape[2] + GAP_PX
    lines = -(-len(big) // PER_LINE)
    out = np.full((lines * height, PER_LINE * width, 3), 255, np.uint8)
    for k, frame in enumerate(big):
        y, x = k // PER_LINE * height, k % PER_LINE * width
        out[y:y + frame.shape[0], x:x + frame.shape[1]] = frame
    return out


# ---- identity features ---------------------------------------------------------------------------------------------

def _features(recovery: str) -> Callable[..., Iterator[str]]:
    """A figure of identity features, with what this recovery attack made of the release."""
    def picture(name: str, board: str, cells: Sequence[Cell], work: WorkFolder, out: Path) -> Iterator[str]:
        for cell in cells:
            if method_name(cell) != METHOD or cell["metric"] != "fd_id" or cell["via"] != recovery or \
                    not finite(cell["value"]) or not (read := _sets(work, cell)):
                continue
            sets, seed = read
            path = out / f"{name}-{board}-{cell['evaluator']}.svg"
            placed = place(list(sets.values()), seed)
            text = f"Identity features ({cell['evaluator']}) of {METHOD} on {cell['dataset']}, {recovery}"
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                path.write_text(svg(text, placed), encoding="utf-8")
            except OSError as error:
                raise cannot_write(path, error) from error
            yield from _said(name, f"{text}: t-SNE of {len(placed[0])} clips in each set; a picture, no proof. Read it "
                             "beside tadp-7", path, [cell])
    return picture


def _sets(work: WorkFolder, cell: Cell) -> tuple[dict[str, np.ndarray], int] | None:
    """({set: (N, d)} of the same clips in all three sets, seed); None where their stages are not in this folder."""
    if not cell.get("score") or not work.is_done("score", cell["score"]):
        return None
    for name, digest in work.read_stage("score", cell["score"])["identity"]["inputs"].items():
        if not name.startswith("trials:") or not work.is_done("metric", digest):
            continue
        identity = work.read_stage("metric", digest)["identity"]
        inputs = {key: identity["inputs"].get(key) for key, _, _ in SETS}
        if all(d and work.is_done("embed", d) for d in inputs.values()):
            return _aligned({k: read_features(work.stage("embed", str(d))) for k, d in inputs.items()}), \
                int(identity["config"]["seed"])
    return None


def _aligned(found: Mapping[str, Features]) -> dict[str, np.ndarray]:
    keys = [key for key in found["features"] if all(key in rows for rows in found.values())]
    chosen = [keys[i] for i in np.unique(spread(len(keys), 0, len(keys), min(POINTS, len(keys))))]
    return {name: np.stack([rows[key] for key in chosen]) for name, rows in found.items()}


def place(sets: Sequence[np.ndarray], seed: int) -> list[np.ndarray]:
    """t-SNE of all sets together: (N, d) each -> (N, 2) each. Exact gradients, so that the same seed gives the same."""
    from sklearn.manifold import TSNE  # heavy, and needed for two pictures alone

    rows = np.concatenate([np.asarray(s, np.float64) for s in sets])
    model = TSNE(n_components=2, method="exact", init="pca", perplexity=min(PERPLEXITY, (len(rows) - 1) / 3),
                 random_state=seeds.derive_int(seed, "t-sne") % 2**32)
    points = model.fit_transform(rows).astype(np.float64)
    return list(np.split(points, np.cumsum([len(s) for s in sets])[:-1]))


def svg(title: str, placed: Sequence[np.ndarray]) -> str:
    """Points (N, 2) of each of SETS as an SVG picture; t-SNE has no axes, so that none are drawn."""
    every = np.concatenate(placed)
    low, span = every.min(axis=0), max(float(np.ptp(every, axis=0).max()), 1e-9)
    scale = min(WIDTH, HEIGHT - TOP) - 2 * MARGIN
    shift = np.array([(WIDTH - scale) / 2, TOP + MARGIN])
    marks, legend = [], []
    for number, (points, (_, words, colour)) in enumerate(zip(placed, SETS, strict=True)):
        for x, y in (points - low) / span * scale + shift:
            marks.append(_mark(number, x, y, colour))
        x = MARGIN + 180 * number
        legend += [_mark(number, x + 5, 44, colour), f'<text x="{x + 16}" y="48">{html.escape(words)}</text>']
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'role="img" font-family="sans-serif" font-size="14">', f"<title>{html.escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{MARGIN}" y="24">{html.escape(title)}</text>', *legend, *marks, "</svg>", ""])


def _mark(number: int, x: float, y: float, colour: str) -> str:
    """A ring, a square or a triangle, so that sets differ without colour."""
    if number == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="none" stroke="{colour}" stroke-width="1.6"/>'
    if number == 1:
        return f'<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" fill="{colour}"/>'
    return f'<path d="M{x:.1f} {y - 4.2:.1f}l4 7h-8z" fill="{colour}"/>'


_FIGURES: dict[str, Callable[..., Iterator[str]]] = {
    "tadp-fig3": _sequence, "tadp-fig4": _features("recover_unet"), "tadp-fig5": _features("recover_rvrt")}
