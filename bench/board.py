"""The static site: boards, one page per method, protocol, units. Sole owner of jinja2.

Every page is plain HTML that works without JavaScript and asks nothing of any other host. Method names, docstrings
and reasons come from submitters: templates escape all of them, and file names are made from a safe alphabet.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
import struct
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2

from bench.diagnostic_tables import views as diagnostics
from bench.display import Cell, diagnostic, epsilon_text, method_name, public
from bench.errors import WorkFolderError
from bench.limits import limits
from bench.positions import WORKS
from bench.registry import ROOT
from bench.relatives import relatives
from bench.views import boards, columns_of

TEMPLATES = ROOT / "site" / "templates"
ASSETS = ROOT / "site" / "assets"
MARKER = ".veilbench-site"  # marks a folder that a later build may replace
PAGES = {"index.html": "index.html.j2", "protocol.html": "protocol.html.j2", "units.html": "units.html.j2"}


@dataclass(frozen=True)
class SiteData:
    """All that the site shows; plain data, no work folder and no database behind it.

    cells: as in `bench.ranking`.  methods: name, variant, title, doc, lane, claim, needs, source_file, digest,
    publishable, strips [{caption, original_png_path, released_png_path}], unseen where another reason than the licence
    hides them, counts [{title, name, count, frames}] where the method counted, samples [{caption, picture, moments,
    rows}] of reports (see `bench.transcripts`), stages [{kind, digest, seconds, peak_mb, seed}], versions, command.
    exclusions: {row, reason}.
    attacks: {name, doc, threat {knows, reads, trained_on, decoding}}.  datasets: {name, title, licence, publishable,
    people, videos, lacks}.  built: a date, given by the caller.
    """

    cells: Sequence[Cell]
    methods: Sequence[Mapping[str, Any]] = ()
    exclusions: Sequence[Mapping[str, Any]] = ()
    attacks: Sequence[Mapping[str, Any]] = ()
    datasets: Sequence[Mapping[str, Any]] = ()
    environment: Mapping[str, Any] = field(default_factory=dict)
    built: str = ""


def slug(name: str) -> str:
    """A file name for a method: itself when harmless, else its harmless letters and a digest, so none collide."""
    safe = re.sub(r"[^A-Za-z0-9_.@-]+", "-", name).strip("-.")
    return name if safe == name else f"{safe or 'method'}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def build_site(bundle: SiteData, out: Path) -> list[Path]:
    """Write the whole site to the folder `out` and return the pages and assets written, sorted.

    Built aside and swapped in when whole. Raises WorkFolderError when `out` holds something that no build wrote.
    """
    out = Path(out)
    if out.exists() and not (out / MARKER).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise WorkFolderError(f"{out} exists and is no site that veilbench built.",
                              "Building there would replace what it holds.", "Give another folder, or empty this one.")
    new = out.with_name(f"{out.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    (new / "methods").mkdir(parents=True)
    (new / MARKER).write_text("Built by `veilbench site build`; replaced as a whole by the next build.\n")
    shutil.copytree(ASSETS, new / "assets")
    _write_pages(bundle, new)
    shutil.rmtree(out, ignore_errors=True)
    new.replace(out)
    return sorted(path for path in out.rglob("*") if path.is_file() and path.name != MARKER)


def _write_pages(bundle: SiteData, new: Path) -> None:
    views = boards(bundle.cells)
    pages = {method_name(info): f"methods/{slug(method_name(info))}.html" for info in bundle.methods}
    shared: dict[str, Any] = {"boards": views, "pages": pages, "attacks": bundle.attacks, "built": bundle.built,
              "datasets": {info["name"]: info for info in bundle.datasets}, "exclusions": bundle.exclusions,
              "environment": bundle.environment, "columns": _columns(bundle.cells), "works": WORKS}
    env = _environment()
    for name, template in PAGES.items():
        _write(new / name, env.get_template(template).render(root="", page=name, **shared))
    for info in bundle.methods:
        name = method_name(info)
        text = env.get_template("method.html.j2").render(
            root="../", page=pages[name], method=info, name=name, claim=_claim(info), doc=paragraphs(info["doc"]),
            card=info.get("card"), strips=_strips(info, shared["datasets"], new), samples=_samples(info, new),
            numbers=_numbers(views, name),
            relatives=relatives(bundle.cells, name),
            diagnostics=diagnostics(bundle.cells, name), limits=limits(bundle.cells, name),
            siblings=[other for other in pages if other != name and other.split("@")[0] == info["name"]], **shared)
        _write(new / pages[name], text)
    _write(new / "data" / "cells.json",
           json.dumps([public(cell) for cell in bundle.cells], indent=1, allow_nan=False))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.rstrip() + "\n", encoding="utf-8")


def _environment() -> jinja2.Environment:
    env = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True,
                             undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    env.filters.update(seconds=seconds, short=lambda text: str(text)[:12], pieces=pieces)
    return env


def seconds(value: float | None) -> str:
    """`0.4 s`, `38 s`, `4 min 10 s`."""
    if value is None or not math.isfinite(value):
        return "–"
    if value < 60:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    return f"{int(value // 60)} min {int(value % 60)} s"


def pieces(text: str) -> list[tuple[bool, str]]:
    """Text cut into (is it code, text): code is what stands between backquotes on one line."""
    parts = re.split(r"`([^`\n]+)`", text)
    return [(bool(i % 2), part) for i, part in enumerate(parts) if part]


def paragraphs(doc: str) -> list[dict[str, str]]:
    """A docstring as paragraphs; indented ones keep their line breaks."""
    parts: list[dict[str, str]] = []
    for block in re.split(r"\n\s*\n", (doc or "").strip("\n")):
        lines = block.splitlines()
        kept = len(lines) > 1 and sum(line.startswith("    ") for line in lines[1:]) == len(lines) - 1 and bool(parts)
        parts.append({"kind": "pre" if kept else "p",
                      "text": textwrap.dedent(block).rstrip() if kept else " ".join(line.strip() for line in lines)})
    return [part for part in parts if part["text"].strip()]


def _columns(cells: Iterable[Cell]) -> list[dict[str, str]]:
    return [{"name": name, "title": cell.get("title") or name, "role": cell.get("role") or "descriptive",
             "better": cell.get("better") or "none", "unit": cell.get("metric_unit") or ""}
            for name, cell in columns_of(cell for cell in cells if not diagnostic(cell))]


def _claim(info: Mapping[str, Any]) -> list[tuple[str, str]]:
    claim = dict(info.get("claim") or {})
    if info["lane"] == "none":
        return [("Privacy unit", "none"), ("ε", "∞ (no formal claim)")]
    rows = [("Privacy unit", claim.get("unit")), ("Adjacency", claim.get("adjacency")),
            ("Horizon", claim.get("horizon")), ("ε", epsilon_text(claim.get("epsilon"))), ("δ", claim.get("delta"))]
    return [(key, str(value)) for key, value in rows if value is not None]


def _numbers(views: Sequence[Mapping[str, Any]], name: str) -> list[dict[str, Any]]:
    """Every drawn cell of one method, by board and section; a control, which stands in all sections, once a board."""
    found = []
    for board in views:
        for section in board["sections"]:
            rows = [row for row in (*section["rows"], *section["controls"]) if row["name"] == name]
            found += [{"board": board, "section": section, "control": row["control"],
                       "pairs": list(zip(section["columns"], row["cells"]))} for row in rows]
            if any(row["control"] for row in rows):
                break
    return found


# ---- strips --------------------------------------------------------------------------------------------------------

def _strips(info: Mapping[str, Any], datasets: Mapping[str, Any], new: Path) -> list[dict[str, Any]]:
    """Copy the strips of a publishable dataset under names that say nothing of their source; else none."""
    if not info.get("publishable"):
        return []
    folder = new / "assets" / "strips"
    shown = []
    for i, strip in enumerate(info.get("strips") or ()):
        pair = {}
        for kind in ("original", "released"):
            source = Path(strip[f"{kind}_png_path"])
            folder.mkdir(parents=True, exist_ok=True)
            target = folder / f"{slug(method_name(info))}-{i + 1}-{kind}.png"
            shutil.copyfile(source, target)
            width, height = png_size(target)
            pair[kind] = {"src": target.relative_to(new).as_posix(), "width": width, "height": height}
        shown.append({"caption": strip["caption"], **pair})
    return shown


def _samples(info: Mapping[str, Any], new: Path) -> list[dict[str, Any]]:
    """Sample reports; their pictures, which all methods share, are copied into the site."""
    shown = []
    for sample in info.get("samples") or ():
        picture = None
        if sample["picture"] is not None:
            target = new / "assets" / "strips" / Path(sample["picture"]).name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(sample["picture"], target)
            width, height = png_size(target)
            picture = {"src": target.relative_to(new).as_posix(), "width": width, "height": height}
        shown.append({**sample, "picture": picture})
    return shown


def png_size(path: Path) -> tuple[int, int]:
    """(width, height) in pixels from the header. Raises WorkFolderError when the file is no PNG."""
    head = path.read_bytes()[:24]
    if len(head) < 24 or head[:8] != b"\x89PNG\r\n\x1a\n":
        raise WorkFolderError(f"The sample strip {path.name} is no PNG file.", "",
                              "Run `veilbench run` again for this method; it draws its strips anew.")
    width, height = struct.unpack(">II", head[16:24])
    return width, height
