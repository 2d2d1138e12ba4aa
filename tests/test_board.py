"""Ranks (what may be compared, what never ranks) and the static site (parses, links, escapes, asks nobody)."""

from __future__ import annotations

import json
import math
import struct
import zlib
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from test_tables import cell, utility

from bench import seeds
from bench.board import SiteData, build_site, paragraphs, pieces, slug
from bench.errors import WorkFolderError
from bench.publish import _datasets
from bench.ranking import (
    attack_state,
    cell_key,
    epsilon_band,
    pareto_front,
    rank_section,
    split_by_key,
    unranked_reason,
)
from bench.run.cache import WorkFolder
from bench.views import boards

PEOPLE = 9


def people(mean, spread=0.0, name="x"):
    values = seeds.derive(1, name).normal(0, 1, PEOPLE)
    values = mean + spread * (values - values.mean()) / values.std()
    return {100 + i: float(v) for i, v in enumerate(values)}


def row(method, mean, spread=0.05, make=cell, **other):
    values = people(mean, spread, f"{method}{other.get('variant')}")
    half = 0.05
    return {**make(method, mean, **({"lo": mean - half, "hi": mean + half} if make is cell else {}), **other),
            "person_values": values}


def controls(strong=0.97, silent=(0.05, 0.2)):
    return [row("original", strong, control="positive"),
            {**row("blackout", 0.11, control="negative"), "lo": silent[0], "hi": silent[1]}]


def ranks(rows):
    return {r.cell["method"]: r.rank for r in rows}


# ---- bands and keys ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("epsilon, band", [
    (0.0, 1), (1.0, 1), (1.0000009, 1), (1.00001, 2), (1.76, 2), (8.0, 8), (8 * (1 + 9e-7), 8), (8.1, 16), (32, 32),
    (33, math.inf), (math.inf, math.inf), (None, math.inf), (math.nan, math.inf)])
def test_epsilon_band_is_the_smallest_that_holds(epsilon, band):
    assert epsilon_band(epsilon) == band


def test_key_forgets_the_method_and_its_numbers_but_not_the_band():
    a = cell("a", 0.1, epsilon=7.5, lane="enforced", unit="clip", delta=1e-5)
    assert cell_key(a) == cell_key({**a, "method": "b", "value": 0.9, "epsilon": 4.5, "person_values": {1: 2.0}})
    assert cell_key(a) != cell_key({**a, "epsilon": 8.5})


@pytest.mark.parametrize("change", [
    {"dataset": "cremad"}, {"split": "other"}, {"profile": "paper"}, {"lane": "declared"}, {"unit": "frame"},
    {"adjacency": "add"}, {"horizon": "video"}, {"delta": 1e-6}, {"epsilon": 2.0}, {"attack": "cplr"},
    {"metric": "eer"}, {"digest": "new"}, {"evaluator": "r3d"}, {"via": "recover_unet"}, {"decoding": "isolated"},
    {"draws": 8}, {"params": {"far": 0.1}}, {"track": "traffic"}])
def test_a_rank_across_keys_is_refused_and_the_board_sets_the_row_apart(change):
    a, b, odd = row("a", 0.3), row("b", 0.4), row("odd", 0.2, **change)
    assert cell_key(odd) != cell_key(a)
    with pytest.raises(AssertionError, match="a rank across keys"):
        rank_section([a, b, odd, *controls()])
    kept, apart = split_by_key([a, b, odd])
    assert [c["method"] for c in kept] == ["a", "b"] and apart[0][0] is odd
    assert "not comparable" in apart[0][1]
    assert next(iter(change)) in apart[0][1].replace("band", "epsilon")


# ---- ranks ---------------------------------------------------------------------------------------------------------

def test_competition_ranks_with_ties_in_both_directions():
    low = rank_section([row(n, v) for n, v in zip("abcd", (0.1, 0.2, 0.2, 0.3))] + controls())
    assert [ranks(low)[n] for n in "abcd"] == [1, 2, 2, 4]
    assert {r.cell["method"] for r in low if r.tied} == {"b", "c"}
    high = rank_section([row(n, v, make=utility) for n, v in zip("abcd", (0.9, 0.8, 0.8, 0.7))])
    assert [ranks(high)[n] for n in "abcd"] == [1, 2, 2, 4]


@pytest.mark.parametrize("make", [cell, utility])
@pytest.mark.parametrize("bad", [
    {"value": math.nan}, {"value": math.inf}, {"value": -math.inf}, {"value": None},
    {"status": "missing", "value": None},
    {"status": "stale"}, {"status": "indicative"}, {"status": "not_measurable"}, {"status": "undefined"},
    {"status": "invalid: attacker diverged"}, {"source": "reported"}, {"role": "descriptive"}, {"better": "none"}])
def test_what_never_ranks_in_either_direction(make, bad):
    good = [row("a", 0.4, make=make), row("b", 0.6, make=make)]
    extreme = [{**row(name, value, make=make), **bad} for name, value in (("lowest", 0.0), ("highest", 1.0))]
    rows = rank_section([*extreme, *good, *(controls() if make is cell else [])])
    assert {r.rank for r in rows if r.cell["method"] in ("lowest", "highest")} == {None}
    assert sorted(r.rank for r in rows if r.cell["method"] in "ab") == [1, 2]
    assert all(r.reason for r in rows if r.rank is None)
    assert [r.cell["method"] for r in rows[:2]] == (["a", "b"] if make is cell else ["b", "a"])


def test_controls_are_shown_and_never_rank():
    rows = rank_section([row("a", 0.99), *controls()])
    assert ranks(rows) == {"a": 1, "original": None, "blackout": None}
    assert "control" in unranked_reason(controls()[0])


def test_best_group_and_rank_interval_come_from_people():
    rows = rank_section([row("a", 0.20), row("near", 0.21), row("far", 0.60), *controls()])
    by = {r.cell["method"]: r for r in rows}
    assert by["a"].best and by["near"].best and not by["far"].best
    assert (by["a"].rank_lo, by["near"].rank_hi) == (1, 2) and (by["far"].rank_lo, by["far"].rank_hi) == (3, 3)


def test_too_few_people_give_no_interval_and_no_best_group():
    cells = [{**row(n, v), "person_values": {1: v, 2: v}} for n, v in (("a", 0.2), ("b", 0.6))]
    rows = rank_section([*cells, *controls()])
    assert [r.rank for r in rows[:2]] == [1, 2]
    assert {(r.rank_lo, r.rank_hi, r.best, r.decidable) for r in rows[:2]} == {(None, None, False, False)}


def test_rank_intervals_do_not_depend_on_the_clock():
    cells = [row("a", 0.30, 0.1), row("b", 0.33, 0.1), *controls()]
    assert rank_section(cells) == rank_section(cells)


# ---- gate ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("found, reason", [
    (controls(), ""), (controls(strong=0.9), ""), (controls(strong=0.89), "original reaches 0.890"),
    (controls(silent=(0.2, 0.3)), "away from chance"), (controls()[:1], "blackout was not run"),
    (controls()[1:], "original was not run"), (controls(silent=(None, None)), "no interval")])
def test_gate(found, reason):
    state = attack_state([row("a", 0.3), *found])
    assert state == "ok" if not reason else state.startswith("attack too weak") and reason in state


def test_gate_is_softer_on_real_video_and_absent_for_utility():
    real = [{**c, "dataset": "cremad"} for c in controls(strong=0.82)]
    assert attack_state(real) == "ok" and attack_state([row("a", 0.3, make=utility)]) == "ok"


def test_an_invalid_control_closes_the_gate_and_nobody_ranks():
    broken = [{**controls()[0], "status": "invalid: crashed", "value": None}, controls()[1]]
    rows = rank_section([row("a", 0.2), row("b", 0.5), *broken])
    assert {r.rank for r in rows} == {None}
    assert all("attack too weak" in r.reason for r in rows if r.cell["method"] in "ab")


# ---- front ---------------------------------------------------------------------------------------------------------

def test_pareto_front_keeps_ties_and_drops_nan():
    leak, use = (5, 5, 10, 20, 20, 40, 7), (60, 60, 75, 74, 80, 80, 50)
    assert pareto_front(list(zip(leak, use))) == [True, True, True, False, True, False, False]
    assert pareto_front([(5.0, 60.0), (math.nan, 99.0), (0.0, math.inf)]) == [True, False, False]


def test_scatter_steps_between_methods_and_drops_rows_without_both_numbers():
    cells = [*controls(), row("original", 0.7, make=utility, control="positive"), row("a", 0.2), row("b", 0.6),
             row("a", 0.4, make=utility), row("b", 0.7, make=utility), row("c", 0.1)]
    plot = boards(cells)[0]["sections"][0]["plot"]
    assert [p["name"] for p in plot["points"]] == ["a", "b", "original"]
    assert [p["front"] for p in plot["points"]] == [True, True, False]
    assert plot["front"].count("V") == 1 and "L" not in plot["front"]  # horizontal and vertical strokes only


# ---- site ----------------------------------------------------------------------------------------------------------

EVIL = '<script>alert("x")</script>'


def png(path: Path, width=512, height=64):
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
    raw = np.zeros((height, 1 + 3 * width), np.uint8).tobytes()
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
                     + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))
    return str(path)


def info(name, folder, variant=None, publishable=True):
    strip = {"caption": f"one video of {name}", "original_png_path": png(folder / "secret-name-o.png"),
             "released_png_path": png(folder / "secret-name-r.png")}
    return {"name": name, "variant": variant, "title": f"Title of {name}", "doc": f"Does {name}.\n\nMore & more.",
            "lane": "none", "claim": {"unit": "none", "epsilon": math.inf}, "needs": ["expression"],
            "source_file": "methods/x.py", "digest": "ab" * 32, "publishable": publishable, "strips": [strip],
            "stages": [{"kind": "release", "digest": "cd" * 32, "seconds": 71.0, "peak_mb": 300.5, "seed": 42}],
            "versions": {"numpy": "2.4"}, "command": f"veilbench run demo --method {name}"}


@pytest.fixture
def bundle(tmp_path):
    cells = [*controls(), row("original", 0.7, make=utility, control="positive"), row("blur", 0.4),
             row("blur", 0.7, variant="2"), row("blur", 0.5, make=utility), row(EVIL, 0.3),
             row(EVIL, 0.4, make=utility),
             {**row("dp", 0.2), "lane": "enforced", "unit": "clip", "adjacency": "replace", "horizon": "clip",
              "epsilon": 7.9, "delta": 1e-5}]
    methods = [info("original", tmp_path), info("blur", tmp_path), info("blur", tmp_path, "2", publishable=False),
               info(EVIL, tmp_path)]
    threat = {"knows": "names", "reads": "frame", "trained_on": "released enrolment", "decoding": "assembled"}
    return SiteData(
        cells, methods, [{"row": "ted_spad", "reason": f"diverged {EVIL}"}],
        [{"name": "plr", "doc": "Names people.", "threat": threat}],
        [{"name": "synthfaces_demo", "title": "Made faces", "licence": "Apache-2.0", "publishable": True, "people": 36,
          "videos": 9}], {"cpu": "2 cores"}, "2026-01-02")


class Page(HTMLParser):
    """Collects links, ids, tags; checks that tags close in order."""

    VOID = {"meta", "link", "img", "br", "wbr", "hr", "input"}

    def __init__(self, text):
        super().__init__()
        self.open, self.refs, self.ids, self.tags, self.labelled = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append((tag, attrs))
        self.refs += [attrs[k] for k in ("href", "src", "srcset", "action", "xlink:href") if attrs.get(k)]
        self.ids += [attrs["id"]] if "id" in attrs else []
        self.labelled += attrs.get("aria-labelledby", "").split()
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, tag


@pytest.fixture
def site(bundle, tmp_path):
    out = tmp_path / "site"
    return out, build_site(bundle, out)


def pages(out):
    return {path: Page(path.read_text()) for path in out.rglob("*.html")}


def test_site_has_its_pages_and_html_is_well_formed(site):
    out, written = site
    names = {p.relative_to(out).as_posix() for p in written}
    assert {"index.html", "protocol.html", "units.html", "methods/blur.html", "methods/blur@2.html",
            "assets/veilbench.css", "assets/veilbench.js", "data/cells.json"} <= names
    for path, page in pages(out).items():
        assert len(page.ids) == len(set(page.ids)), path
        assert set(page.labelled) <= set(page.ids), path
        assert [t for t, _ in page.tags].count("h1") == 1, path


def test_links_resolve_and_nothing_is_asked_of_another_host(site):
    out, _ = site
    for path, page in pages(out).items():
        for ref in page.refs:
            assert "//" not in ref and not ref.startswith(("/", "data:", "javascript:")), (path, ref)
            target, _, anchor = ref.partition("#")
            found = (path.parent / target) if target else path
            assert found.is_file(), (path, ref)
            assert not anchor or anchor in pages(out)[found].ids
    for asset in (out / "assets").glob("veilbench.*"):
        assert "http" not in asset.read_text() and "@import" not in asset.read_text()


def test_names_docstrings_and_reasons_are_escaped(site):
    out, _ = site
    for path in out.rglob("*.html"):
        assert "<script>alert" not in path.read_text(), path
    assert "&lt;script&gt;alert" in (out / "index.html").read_text()
    evil = out / "methods" / f"{slug(EVIL)}.html"
    assert evil.is_file() and "&lt;script&gt;" in evil.read_text() and "<" not in evil.name


def test_tables_are_readable_by_a_screen_reader(site):
    out, _ = site
    for path, page in pages(out).items():
        tags = [t for t, _ in page.tags]
        assert tags.count("table") == tags.count("caption"), path
        assert all(a.get("scope") for t, a in page.tags if t == "th"), path
        assert all(a.get("alt") for t, a in page.tags if t == "img"), path
    text = (out / "index.html").read_text()
    assert "lower is better" in text and "higher is better" in text and "empirical only, ε = ∞" in text


def test_light_and_dark_and_phone_are_in_the_style_sheet(site):
    css = (site[0] / "assets" / "veilbench.css").read_text()
    assert "prefers-color-scheme: dark" in css and 'data-theme="dark"' in css and "max-width: 46rem" in css
    page = (site[0] / "index.html").read_text()
    assert 'name="viewport"' in page and 'content="light dark"' in page


def test_a_dataset_that_was_only_imported_is_called_by_its_title(tmp_path):
    """Its adapter is here, its videos are not; of a dataset without an adapter nothing is known."""
    found = list(_datasets(WorkFolder(tmp_path), {"synthfaces", "nowhere"}))
    assert [(d["name"], d["title"], d["licence"], d["people"]) for d in found] == [
        ("synthfaces", "SynthFaces (made, 100 people)", "Apache-2.0", None)]
    assert "imported" in found[0]["lacks"]


def test_only_what_stands_between_backquotes_is_code():
    assert pieces("keeps `a < b` and `open") == [(False, "keeps "), (True, "a < b"), (False, " and `open")]
    assert pieces("`a\nb`") == [(False, "`a\nb`")] and pieces("") == []


def test_strips_only_for_publishable_datasets_and_under_neutral_names(site):
    out, _ = site
    assert len(list((out / "assets" / "strips").glob("blur-1-*.png"))) == 2
    assert not list((out / "assets" / "strips").glob("blur@2*"))
    assert "licence of this dataset" in (out / "methods" / "blur@2.html").read_text()
    assert not any("secret-name" in p.read_text() for p in out.rglob("*.html"))


def test_sections_never_mix_claims(site):
    out, _ = site
    sections = boards(json_cells(out))[0]["sections"]
    assert [s["lane"] for s in sections] == ["enforced", "none"]
    assert [r["name"] for r in sections[0]["rows"]] == ["dp"]
    assert all("dp" != r["name"] for r in sections[1]["rows"])


def json_cells(out):
    rows = json.loads((out / "data" / "cells.json").read_text())
    return [{**r, "epsilon": math.inf if r["epsilon"] == "inf" else r["epsilon"],
             "control": {"original": "positive", "blackout": "negative"}.get(r["method"])} for r in rows]


def test_one_method_never_fills_a_column_twice():
    cells = [*controls(), {**row("a", 0.2), "status": "stale"}, row("a", 0.3), row("a", 0.4)]
    section = boards(cells)[0]["sections"][0]
    assert [(r["name"], r["cells"][0]["raw"]) for r in section["rows"]] == [("a", 0.3)]
    assert len(section["excluded"]) == 2


def test_a_weak_attack_is_said_in_its_column(bundle, tmp_path):
    weak = [{**c, "value": 0.4} if c["method"] == "original" else c for c in bundle.cells]
    build_site(SiteData(weak), tmp_path / "weak")
    text = (tmp_path / "weak" / "index.html").read_text()
    sections = boards(weak)[0]["sections"]
    assert all("too weak" in s["columns"][0]["weak"] for s in sections) and len(sections) == 2
    assert {r["cells"][0]["rank"] for s in sections for r in s["rows"]} == {""}
    assert "attack too weak: original reaches 0.400" in text and "No front is drawn" in text


def test_a_board_says_when_so_few_people_cannot_tell(tmp_path):
    few = [{**c, "person_values": {}} for c in (row("a", 0.2), row("b", 0.5), *controls())]
    build_site(SiteData(few), tmp_path / "few")
    assert "so few people cannot tell" in (tmp_path / "few" / "index.html").read_text()


def test_what_a_method_counted_stands_on_its_page(tmp_path):
    counted = {"title": "release a", "name": "frames <lost>", "count": 3, "frames": 40}
    build_site(SiteData([row("a", 0.2), *controls()], [info("a", tmp_path) | {"counts": [counted]}]), tmp_path / "site")
    text = (tmp_path / "site" / "methods" / "a.html").read_text(encoding="utf-8")
    assert "<dt>Frames &lt;lost&gt;</dt><dd>3 of 40: release a</dd>" in text


def test_an_empty_site_still_builds(tmp_path):
    build_site(SiteData([]), tmp_path / "empty")
    assert "Nothing has been measured yet" in (tmp_path / "empty" / "index.html").read_text()


def test_building_again_replaces_the_site_and_spares_other_folders(bundle, tmp_path, site):
    out, first = site
    assert build_site(bundle, out) == first
    build_site(SiteData(bundle.cells), out)
    assert not list((out / "methods").iterdir())
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(WorkFolderError, match="no site that veilbench built"):
        build_site(bundle, tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "x"


def test_slugs_are_safe_and_distinct():
    assert slug("blur@8") == "blur@8" and slug("../x") != slug("x") and "/" not in slug("../x")
    assert slug("a b") != slug("a-b")


def test_docstrings_keep_their_indented_blocks():
    parts = paragraphs("First\nline.\n\n    a  1\n    b  2\n\nLast.")
    assert parts == [{"kind": "p", "text": "First line."}, {"kind": "pre", "text": "a  1\nb  2"},
                     {"kind": "p", "text": "Last."}]
