"""Plug-ins by file name: listing imports nothing, faults are named, digests follow the source."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PLUGINS, environment

from bench import registry, sources
from bench.describe import describe, use_file
from bench.errors import ConfigError, EnvironmentFault, PluginError

METHOD = '''"""Title of the file."""

from bench import Anonymizer, method


@method("{name}")
class Anything(Anonymizer):
    """Documentation of {name}."""

    variants = {{"strong": {{}}, "weak": {{}}}}
'''


def write(folder: Path, name: str, text: str = METHOD) -> Path:
    path = folder / f"{name}.py"
    path.write_text(text.format(name=name) if text is METHOD else text, encoding="utf-8")
    return path


@pytest.fixture
def fresh(monkeypatch):
    """The registry to add to: what the test adds is taken back, what the repository holds stays imported."""
    monkeypatch.setenv(registry.EXTRA, os.environ.get(registry.EXTRA, ""))
    before = dict(registry._registered)
    registry._locations.cache_clear()
    yield
    monkeypatch.undo()
    for key, value in list(registry._registered.items()):
        if key not in before and value.__module__.partition(".")[0] not in ("bench", "methods", "attacks", "metrics"):
            del registry._registered[key]
    for cached in (registry._locations, registry.source_digest, sources._project_imports):
        cached.cache_clear()


def in_new_process(code: str, **more: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], env=environment(**more), text=True,
                          capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_listing_imports_nothing_heavy():
    heavy = in_new_process(
        "import sys; sys.argv = ['veilbench', 'list']\nfrom bench.cli import main\ntry: main()\n"
        "except SystemExit: pass\n"
        "print('HEAVY', [n for n in ('torch', 'av', 'timm', 'datasets', 'duckdb', 'cv2', 'methods.blur', "
        "'attacks.plr', 'metrics.fer') if n in sys.modules])")
    assert "blur" in heavy and "plr" in heavy and "synthfaces" in heavy
    assert heavy.splitlines()[-1] == "HEAVY []"


def test_importing_the_public_names_imports_no_torch():
    assert in_new_process("import sys, bench; print('torch' in sys.modules)").strip() == "False"


def test_public_names_are_sorted_and_complete():
    import bench

    assert list(bench.__all__) == sorted(bench.__all__, key=lambda n: (not n.isupper(), n))  # constants first
    assert all(hasattr(bench, name) for name in bench.__all__)
    ours = {n for n, v in vars(bench).items() if not n.startswith("_")
            and (getattr(v, "__module__", "") or "").startswith("bench.")}
    assert ours | {"CLIP_FRAMES"} == set(bench.__all__)


def test_names_are_file_names():
    for kind in ("methods", "attacks", "metrics"):
        files = {p.stem for p in registry.FOLDERS[kind].glob("*.py") if not p.name.startswith("_")}
        assert files <= set(registry.names(kind))
    assert "clips" not in registry.names("datasets") and "splits" not in registry.names("datasets")


@pytest.mark.parametrize("text, said", [
    (METHOD.replace("{name}", "other").replace("{{", "{").replace("}}", "}"), "declares other"),
    ("x = 1\n", "declares no plug-in"),
    ('@method("two")\n@attack("two")\nclass A: ...\n', "declares two, two")])
def test_a_file_whose_name_and_decorator_differ_is_refused(fresh, tmp_path, text, said):
    with pytest.raises(PluginError, match=said):
        registry.use_file(write(tmp_path, "two", text))


@pytest.mark.parametrize("text, said", [
    ('x = 1\n@method("two"\nclass A: ...\n', r"'\(' was never closed, line 2"), ("x = 1\n  y = 2\n", "line 2"),
    ("a = '\0'", "null bytes")])
def test_an_added_file_that_is_not_python_says_in_which_line(fresh, tmp_path, text, said):
    with pytest.raises(PluginError, match=f"two.py is not Python: .*{said}"):
        use_file(write(tmp_path, "two", text))


def test_a_file_that_is_not_there_is_refused(fresh, tmp_path):
    for add in (registry.use_file, use_file):
        with pytest.raises(PluginError, match="no plug-in file"):
            add(tmp_path / "absent.py")


def test_an_added_file_is_listed_built_and_handed_to_children(fresh, tmp_path):
    path = write(tmp_path, "added")
    assert "added" not in registry.names("methods")
    registry.use_file(path)
    assert "added" in registry.names("methods")
    assert registry.build("methods", "added@strong").name == "added"
    assert str(path) in os.environ[registry.EXTRA].split(os.pathsep)
    about = describe("methods", "added")
    assert (about.title, about.doc, about.variants) == ("Title of the file.", "Documentation of added.",
                                                        ("strong", "weak"))
    assert in_new_process("from bench import registry; print('added' in registry.names('methods'))").strip() == "True"


def test_the_registry_refuses_a_folder_file_of_the_wrong_name(fresh, tmp_path, monkeypatch):
    monkeypatch.setitem(registry.FOLDERS, "methods", tmp_path)
    write(tmp_path, "right", METHOD.replace("{name}", "wrong").replace("{{", "{").replace("}}", "}"))
    assert "right" in registry.names("methods")
    with pytest.raises(PluginError, match="registers no method called 'right'"):
        registry.get("methods", "right")


def test_two_plugins_of_one_name_are_refused(fresh, tmp_path):
    with pytest.raises(PluginError, match="Two plug-ins are called 'blur'"):
        registry.use_file(write(tmp_path, "blur"))


def test_a_broken_plugin_is_named_and_harms_no_other(fresh, tmp_path):
    registry.use_file(write(tmp_path, "broken", METHOD.format(name="broken") + "\nraise RuntimeError('on purpose')\n"))
    with pytest.raises(PluginError, match="(?s)'broken'.*RuntimeError: on purpose.*broken.py"):
        registry.get("methods", "broken")
    assert registry.get("methods", "blur").name == "blur"
    assert "broken" in registry.names("methods") and describe("methods", "broken").title == "Title of the file."


def test_a_plugin_that_cannot_be_parsed_does_not_break_the_listing(fresh, tmp_path, cli):
    registry.use_file(write(tmp_path, "garbled", '@method("garbled")\nclass A(:\n'))
    answer = cli("list", "methods")
    assert answer.code == 0 and "blur" in answer.out
    assert re.search(r"garbled +cannot be read: invalid syntax, line 2", answer.out)
    assert registry.source_digest("methods", "garbled")
    with pytest.raises(PluginError, match="(?s)'garbled'.*SyntaxError"):
        registry.get("methods", "garbled")


def test_a_class_that_is_no_method_is_refused(fresh, tmp_path):
    registry.use_file(write(tmp_path, "foreign", 'from bench import method\n\n\n@method("foreign")\nclass A: ...\n'))
    with pytest.raises(PluginError, match="not a Method"):
        registry.get("methods", "foreign")


def test_a_metric_without_column_is_refused(fresh, tmp_path):
    registry.use_file(write(tmp_path, "bare", 'from bench import metric\n\n\n@metric("bare")\ndef bare(a, b): ...\n'))
    with pytest.raises(PluginError, match="declares no column"):
        registry.get("metrics", "bare")


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean blur"):
        registry.get("methods", "blurr")
    with pytest.raises(ConfigError, match="Known: .*plr"):
        registry.locate("attacks", "qqqqqqqq")


def test_unknown_variants_list_the_variants():
    with pytest.raises(ConfigError, match="Variants of pixelate: jitter"):
        registry.build("methods", "pixelate@gitter")
    assert registry.Spec.parse("blur@8") == registry.Spec("blur", "8") and str(registry.Spec("blur")) == "blur"


def test_an_installed_package_brings_plugins(fresh, tmp_path, monkeypatch):
    info = tmp_path / "veilbench_extra-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: veilbench-extra\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[veilbench.plugins]\nmethods.packaged = veilbench_extra_methods\n")
    write(tmp_path, "veilbench_extra_methods", METHOD.format(name="packaged"))
    monkeypatch.syspath_prepend(tmp_path)
    registry._locations.cache_clear()
    assert "packaged" in registry.names("methods")
    assert "veilbench_extra_methods" not in sys.modules
    assert describe("methods", "packaged").doc == "Documentation of packaged."
    assert registry.get("methods", "packaged").name == "packaged"
    assert registry.source_file("methods", "packaged").parent == tmp_path


def test_a_foreign_package_of_our_name_is_refused(tmp_path, monkeypatch):
    registry.check_shadowing()
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "methods", raising=False)
    with pytest.raises(EnvironmentFault, match="foreign package"):
        registry.check_shadowing()


def test_a_foreign_package_ends_the_command_with_two(tmp_path):
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "__init__.py").write_text("")
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from bench.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path), "list", "methods"], env=environment(),
                          text=True, capture_output=True, timeout=120)
    assert done.returncode == 2 and str(tmp_path) in done.stderr and "Traceback" not in done.stderr


# ---- digests -------------------------------------------------------------------------------------------------------

@pytest.fixture
def tree(fresh, tmp_path, monkeypatch):
    """A copy of the sources that the digests read, in place of the real ones."""
    for top in ("bench", "methods", "attacks", "metrics"):
        shutil.copytree(registry.ROOT / top, tmp_path / top, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(registry, "FOLDERS", {kind: tmp_path / path.relative_to(registry.ROOT)
                                              for kind, path in registry.FOLDERS.items()})
    monkeypatch.setattr(registry, "ROOT", tmp_path)
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    return tmp_path


def digests() -> dict[str, str]:
    for cached in (registry._locations, registry.source_digest, sources._project_imports):
        cached.cache_clear()
    return {f"{k}/{n}": registry.source_digest(k, n) for k, n in (("methods", "blur"), ("methods", "pixelate"),
                                                                  ("attacks", "plr"), ("metrics", "fer"))}


def changed_by(path: Path) -> set[str]:
    before = digests()
    path.write_text(path.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
    after = digests()
    return {name for name in before if before[name] != after[name]}


@pytest.mark.parametrize("file, changed", [
    ("methods/blur.py", {"methods/blur"}),
    ("bench/nets/training.py", {"attacks/plr", "metrics/fer"}),
    ("bench/nets/attackers.py", {"attacks/plr"}),
    ("bench/types.py", {"methods/blur", "methods/pixelate", "attacks/plr", "metrics/fer"}),
    ("bench/tables.py", set())])
def test_a_digest_follows_the_modules_that_a_plugin_imports(tree, file, changed):
    assert changed_by(tree / file) == changed


def test_a_digest_does_not_depend_on_where_the_tree_lies(tree):
    moved = digests()
    shutil.copytree(tree, tree / "elsewhere", ignore=lambda folder, names: {"elsewhere"} & set(names))
    other = tree / "elsewhere"
    registry.ROOT = sources.ROOT = other
    registry.FOLDERS = {k: other / p.relative_to(tree) for k, p in registry.FOLDERS.items()}
    assert digests() == moved


def test_describe_reads_every_plugin_without_importing():
    for kind in registry.KINDS:
        for name in registry.names(kind):
            about = describe(kind, name)
            assert about.title and about.doc and about.name == name
    assert describe("methods", "faulty").file == str(Path("tests/plugins/faulty.py")) and PLUGINS.is_dir()
