"""From the work folder and its index to what the site shows: methods, strips, provenance."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bench.video as video_io
from bench import registry, store
from bench.account import card, report
from bench.board import SiteData
from bench.data.clips import Clips
from bench.data.splits import hashed
from bench.data.streams import said_of
from bench.describe import describe
from bench.display import STATUS_WORDS
from bench.errors import ConfigError
from bench.registry import Spec
from bench.report_measures import Stream
from bench.run.cache import WorkFolder
from bench.run.enforced import full_claim
from bench.run.evidence import name_of
from bench.run.plan import known_facts
from bench.run.released import open_release
from bench.sampling import spread
from bench.transcripts import samples

STRIP_FRAMES = 8
IMPORTED = "No sample frames: these numbers were imported, and released videos stay where they were measured."


def site_data(work: WorkFolder, database: Path, pictures: Path) -> SiteData:
    """Everything for `build_site`. Strips are written into `pictures`, for publishable datasets only."""
    cells = store.read_cells(database)
    rows = list(dict.fromkeys((c["method"], c["variant"]) for c in cells if c["control"] != "repeat"))
    attacks = sorted({c["attack"] for c in cells if c["attack"]})
    datasets = list(_datasets(work, {c["dataset"] for c in cells}))
    with store.opened(database) as con:
        claims = con.sql("SELECT * FROM claims WHERE lane <> 'none'").to_arrow_table().to_pylist()
        exclusions = [{"row": row, "reason": STATUS_WORDS.get(why, why)}
                      for row, why in con.execute("SELECT row, reason FROM exclusions").fetchall()]
        environments = [json.loads(j) for (j,) in con.execute("SELECT json FROM environment").fetchall()]
    behind = {name_of(row): row for row in claims}
    methods = [_method(work, cells, name, variant, pictures) | {"card": _card(work, Spec(name, variant), behind)}
               for name, variant in rows]
    return SiteData(cells=cells, methods=methods, exclusions=exclusions, datasets=datasets,
                    attacks=[_attack(name) for name in attacks if Spec.parse(name).name in registry.names("attacks")],
                    environment=environments[0] if environments else {}, built=_last_run(work))


def _card(work: WorkFolder, spec: Spec, behind: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    """The privacy card of a row with a claim, None without one or without the method's code."""
    row = behind.get(str(spec))
    if row is None or spec.name not in registry.names("methods"):
        return None
    claim = full_claim(known_facts(spec, work))
    if claim is None:
        return None
    known = {k: json.loads(row[k]) if row[k] else None for k in ("isolation", "noise", "audit")}
    return card(report(claim, str(spec)), lane=row["lane"], isolation=known["isolation"], noise=known["noise"] or "",
                audit=known["audit"])


def _last_run(work: WorkFolder) -> str:
    """The day of the newest result, so that building twice gives the same bytes."""
    times = [record["finished"] for record in work.finished("score")]
    day = datetime.datetime.fromtimestamp(max(times), datetime.UTC) if times else None
    return day.strftime("%Y-%m-%d") if day else ""


def _datasets(work: WorkFolder, names: set[str]) -> Iterator[dict[str, Any]]:
    """What is known of each dataset; of one that only imported rows speak of, what its adapter here says."""
    seen: set[str] = set()
    for record in (*work.finished("clips"), *work.finished("streams")):
        info = json.loads((record["folder"] / "dataset.json").read_text(encoding="utf-8"))
        if info["name"] in names - seen:
            seen.add(info["name"])
            yield {k: info[k] for k in ("name", "title", "licence", "publishable", "people", "videos")} | {
                "lacks": " ".join(said_of(info))}
    for name in sorted((names - seen) & set(registry.names("datasets"))):
        adapter = registry.get("datasets", name)
        yield {"name": name, "title": adapter.title, "licence": adapter.licence, "publishable": adapter.publishable,
               "people": None, "videos": None, "lacks": "Its videos were prepared elsewhere: the rows were imported."}


def _attack(spec: str) -> dict[str, Any]:
    name = Spec.parse(spec).name
    plugin = registry.get("attacks", name)
    return {"name": spec, "doc": describe("attacks", name).doc, "threat": vars(plugin.threat),
            "track": "traffic" if issubclass(plugin, Stream) else "face"}


def _method(work: WorkFolder, cells: list[store.Cell], name: str, variant: str | None,
            pictures: Path) -> dict[str, Any]:
    mine = [c for c in cells if (c["method"], c["variant"]) == (name, variant)]
    spec = Spec(name, variant)
    stages = _stages(work, mine)
    strips = list(_strips(work, stages, spec, pictures))
    try:
        about = describe("methods", name)
        needs, digest = known_facts(spec, work).get("needs", []), registry.source_digest("methods", name)
    except ConfigError:  # imported from another machine, without its code
        about, needs, digest = None, [], ""
    claim = {k: mine[0][k] for k in ("unit", "adjacency", "horizon", "delta", "epsilon")}
    environment: dict[str, Any] = next((s["environment"] for s in reversed(stages)), {"packages": {}})
    return {"name": name, "variant": variant, "title": about.title if about else name,
            "doc": about.doc if about else "Imported without its source.", "lane": mine[0]["lane"], "claim": claim,
            "needs": needs, "source_file": about.file if about else "", "digest": digest,
            "publishable": bool(strips), "strips": strips, "unseen": "" if stages else IMPORTED,
            "counts": list(_counts(work, stages)), "samples": list(samples(work, stages, pictures)),
            "stages": [{"kind": s["title"], "digest": s["digest"], "seconds": s["seconds"], "peak_mb": s["peak_mb"],
                        "seed": s["identity"]["config"].get("seed")} for s in stages],
            "versions": {"veilbench": environment.get("veilbench", ""), **environment["packages"]},
            "command": f"veilbench run {mine[0]['suite']} --method {spec}"}


def _stages(work: WorkFolder, cells: list[store.Cell]) -> list[dict[str, Any]]:
    """stage.json of everything behind these cells, inputs first, each once; empty for imported rows."""
    found: dict[str, dict[str, Any]] = {}
    for score in dict.fromkeys(c["score"] for c in cells):
        for record in chain(work, "score", score):
            found.setdefault(record["digest"], record)
    return list(found.values())


def chain(work: WorkFolder, kind: str, digest: str) -> Iterator[dict[str, Any]]:
    """stage.json of a stage and everything before it, inputs first. Stages that are gone are left out."""
    if not work.is_done(kind, digest):
        return
    record = work.read_stage(kind, digest)
    kinds = {p.name: p for p in (work.root / "stages").iterdir()}
    for name in sorted(record["identity"]["inputs"]):
        wanted = record["identity"]["inputs"][name]
        for other in kinds:
            if work.is_done(other, wanted):
                yield from chain(work, other, wanted)
    yield record


def _counts(work: WorkFolder, stages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What a method without a claim counted in each of its releases: what it was, how many, of how many frames."""
    for record in stages:
        if record["kind"] == "release":
            folder = work.stage("release", record["digest"]) / "release"
            facts = json.loads((folder / "release.json").read_text(encoding="utf-8"))
            for name, count in sorted(facts.get("counts", {}).items()):
                yield {"title": record["title"], "name": name, "count": count, "frames": facts["frames"]}


def _strips(work: WorkFolder, stages: list[dict[str, Any]], spec: Spec, pictures: Path) -> Iterator[dict[str, Any]]:
    """One original and one released strip per publishable dataset: the first probe video by the split's hash."""
    for record in stages:
        config = record["identity"]["config"]
        if record["kind"] not in ("release", "enforced") or config["decoding"] == "isolated" \
                or "development" not in config["parts"] or config.get("intervention"):
            continue
        clips = Clips(work.stage("clips", record["identity"]["inputs"]["clips"]))
        if not clips.info["publishable"]:
            continue
        items = open_release(work.stage(record["kind"], record["digest"]), role="probe", draw=0)
        item = min(items, key=lambda i: hashed(i.video))
        row = next(r for r in clips.rows("test") if r.video == item.video)
        index = spread(item.frames, 0, item.frames, STRIP_FRAMES)
        stem = f"{record['digest'][:12]}"
        paths = [pictures / f"{stem}-original.png", pictures / f"{stem}-released.png"]
        video_io.write_strip(paths[0], list(clips.video(row).frames[index]))
        video_io.write_strip(paths[1], list(item.read().frames[index]))
        yield {"caption": f"{clips.info['name']}: {STRIP_FRAMES} frames of one made probe video, label {item.label}",
               "original_png_path": paths[0], "released_png_path": paths[1]}
