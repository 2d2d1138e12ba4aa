"""What the documents promise: commands exist, the example works, nothing speaks of another place."""

from __future__ import annotations

import re
import shlex

import numpy as np
import pytest
import typer
from conftest import ROOT, SUITE, start

import bench
from bench import registry, store
from bench.cli import app
from bench.registry import Spec
from bench.run.enforced import EncodeWorker, PublicWorker, priced
from bench.run.sandbox import available
from bench.run.workers import method_facts

DOCS = ("README.md", "CONTRIBUTING.md")
TEXTS = {name: (ROOT / name).read_text(encoding="utf-8") for name in (*DOCS, "CHANGELOG.md")}
TREE = typer.main.get_command(app)


def leaves(command=TREE, words=()) -> dict[tuple[str, ...], object]:
    """Every command that does something, by its words."""
    if not hasattr(command, "commands"):
        return {words: command}
    return {w: c for name, sub in command.commands.items() for w, c in leaves(sub, (*words, name)).items()}


def promised() -> list[tuple[str, str]]:
    """(document, command) for every `veilbench ...` in code."""
    found = []
    for name in DOCS:
        for code in re.findall(r"```\w*\n(.*?)```", TEXTS[name], re.DOTALL) + re.findall(r"`([^`\n]+)`", TEXTS[name]):
            found += [(name, line.strip()) for line in code.splitlines() if line.strip().startswith("veilbench ")]
    return sorted(set(found))


def options_of(command) -> set[str]:
    return {o for p in command.params for o in (*p.opts, *p.secondary_opts) if o.startswith("-")} | {"--help"}


@pytest.mark.parametrize("document, text", promised())
def test_every_command_in_the_documents_exists_with_its_options(document, text):
    words = shlex.split(text.split(" && ")[0].replace("[", " ").replace("]", " "))[1:]
    known = leaves()
    command = next((known[tuple(words[:n])] for n in (2, 1) if tuple(words[:n]) in known), None)
    if command is None:
        assert len(words) == 1 and any(w[0] == words[0] for w in known), f"{document}: no command {text!r}"
        return
    given = {w.split("=")[0] for w in words if w.startswith("-")}
    assert given <= options_of(command), f"{document}: {text!r}"


def test_there_are_commands_to_check():
    assert len(promised()) > 15 and len(leaves()) >= 17


def test_the_readme_tables_name_every_command_and_its_options():
    table = TEXTS["README.md"].partition("## Commands")[2].partition("\n## ")[0]
    cells = re.findall(r"`([^`]+)`", table)
    named = {w for cell in cells for w in cell.replace("veilbench ", "").split() if w[0] not in "[-A-Z."} | {
        w for cell in cells for w in cell.split()}
    assert not [words for words in leaves() if not set(words) <= named]
    row = next(line for line in table.splitlines() if "`veilbench run SUITE`" in line)
    run = options_of(leaves()[("run",)])
    mentioned = set(re.findall(r"--[a-z-]+", row))
    assert mentioned <= run and len(mentioned) >= 10


def test_every_plugin_of_the_suite_is_explained_in_the_readme_or_changelog():
    said = "".join(TEXTS.values())
    for kind in ("methods", "attacks", "metrics"):
        files = [p.stem for p in registry.FOLDERS[kind].glob("*.py") if not p.name.startswith("_")]
        assert [n for n in files if f"`{n}" not in said and f"| `{n}" not in said] == []


def blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", TEXTS[name], re.DOTALL)


def test_the_example_method_is_a_method_of_twenty_lines():
    text = blocks("CONTRIBUTING.md")[0]
    assert '@method("invert")' in text and "methods/invert.py" in TEXTS["CONTRIBUTING.md"]
    assert len([line for line in text.splitlines() if line.strip()]) <= 25


def test_the_example_method_works_as_a_plugin(copied, tmp_path):
    path = tmp_path / "invert.py"
    path.write_text(blocks("CONTRIBUTING.md")[0], encoding="utf-8")
    run = start("run", SUITE, "--plugin", path, "--method", "invert", "--method", "invert@half", "--metric",
                "psnr_released", "--workdir", copied, "--display", "plain", cwd=tmp_path)
    out, err = run.communicate(timeout=300)
    assert run.returncode == 0, out + err
    cells = {c["variant"]: c for c in store.read_cells(copied / "veilbench.duckdb") if c["method"] == "invert"}
    assert set(cells) == {None, "half"} and all(c["status"] == "ok" and 0 < c["value"] < 50 for c in cells.values())


def test_the_example_with_a_claim_prices_encodes_and_renders(tmp_path, monkeypatch):
    path = tmp_path / "mean_colour.py"
    path.write_text(next(b for b in blocks("CONTRIBUTING.md") if "PrivateMethod" in b), encoding="utf-8")
    monkeypatch.setenv(registry.EXTRA, str(path))
    registry._locations.cache_clear()
    try:
        facts, spec, isolation = method_facts(Spec("mean_colour")), Spec("mean_colour"), available()
        assert abs(priced(facts)[1].epsilon - 8) < 1e-6
        with EncodeWorker(spec, {}, isolation) as worker:
            rows = worker.encode(np.full((16, 64, 64, 3), 255, np.uint8))
        np.testing.assert_allclose(rows["colour"], 0.5)
        with PublicWorker(spec, "tiny", isolation) as worker:
            video = worker.render([{"colour": np.zeros((16, 3))}] * 2, {"canvas_px": 64, "frames": 27}, "assembled")
        assert video.shape == (27, 64, 64, 3) and (video == 127).all()
    finally:
        monkeypatch.undo()
        registry._locations.cache_clear()


def test_the_example_metric_is_right(monkeypatch):
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    text = next(b for b in blocks("CONTRIBUTING.md") if "@metric" in b)
    space = {"metric": bench.metric, "Column": bench.Column, "__name__": "example"}
    exec(compile(text, "CONTRIBUTING.md", "exec"), space)
    a, b = np.zeros((2, 3, 4, 4), np.float32), np.full((2, 3, 4, 4), 0.5, np.float32)
    np.testing.assert_allclose(space["mse_released"](a, b), [0.25, 0.25])
    assert registry._registered["metrics", "mse_released"].column.better == "none"


def test_the_links_of_the_documents_lead_somewhere():
    for name, text in TEXTS.items():
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            assert target.startswith("https://") or (ROOT / target).exists(), f"{name}: {target}"


def test_the_makefile_has_what_the_readme_types():
    made = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"`?make (\w+)`?", "".join(TEXTS[d] for d in DOCS))) - {"it", "s"} <= made


def test_the_changelog_tells_what_is_new():
    assert "## Unreleased" in TEXTS["CHANGELOG.md"] or bench.__version__ in TEXTS["CHANGELOG.md"]
    assert f'version = "{bench.__version__}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_nothing_speaks_of_another_place():
    foreign = ["/wo" + "rk/", "../sha" + "red", "/ro" + "ot/", "/ho" + "me/"]
    places = [*(ROOT / d for d in ("bench", "methods", "attacks", "metrics", "site", "submissions", ".github", ".ci")),
              *(p for p in ROOT.iterdir() if p.suffix in (".md", ".toml", ".txt") or p.name == "Makefile")]
    files = [p for place in places for p in ([place] if place.is_file() else place.rglob("*")) if p.is_file()]
    files += [p for p in (ROOT / "tests").rglob("*.py")]
    wrong = [f"{p.relative_to(ROOT)}: {word}" for p in files
             if p.suffix in (".py", ".md", ".toml", ".txt", ".j2", ".css", ".js", ".yml", ".yaml", "") and
             "__pycache__" not in p.parts
             for word in foreign if word in p.read_text(encoding="utf-8", errors="replace")]
    assert not wrong
