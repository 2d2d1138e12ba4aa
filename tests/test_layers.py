"""The shape of the source tree: one-way imports, one owner per heavy package, sizes, no hidden randomness."""

from __future__ import annotations

import ast
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from conftest import ROOT

# Lower first. A module imports from its own or a lower layer; inside "plug-ins" never from another kind.
LAYERS = (
    ("bench.errors", "bench.sources"), ("bench.types",), ("bench.measures", "bench.diagnostics"),
    ("bench.report_measures",),
    ("bench.registry", "bench.seeds", "bench.pictures", "bench.video_out", "bench.video", "bench.detect",
     "bench.stats", "bench.paired", "bench.open_set", "bench.frechet",
     "bench.sampling", "bench.weights", "bench.privacy", "bench.privacy.*", "bench.traffic", "bench.beliefs",
     "bench.reports", "bench.rehearsal", "bench.report_scores", "bench.event_auc", "bench.distinguishers"),
    ("bench.nets", "bench.nets.*"), ("bench.spoken",), ("bench",),
    ("methods", "methods.*", "attacks", "attacks.*", "metrics", "metrics.*", "bench.data", "bench.data.*"),
    ("bench.asset_list",), ("bench.avatar", "bench.public_marks"), ("bench.method_assets",), ("bench.assets",),
    ("bench.run", "bench.run.*"), ("bench.store",), ("bench.exchange",),
    ("bench.display", "bench.positions"), ("bench.ranking",), ("bench.against", "bench.excess", "bench.relatives"),
    ("bench.event_words",),
    ("bench.scatter",), ("bench.views", "bench.diagnostic_tables", "bench.limits"),
    ("bench.blocks",), ("bench.budget_tables",), ("bench.paper_tables",), ("bench.word_tables",),
    ("bench.traffic_tables",),
    ("bench.beside",),
    ("bench.tables", "bench.board", "bench.submit"),
    ("bench.describe",), ("bench.account_words",), ("bench.account",), ("bench.transcripts",),
    ("bench.listing", "bench.console", "bench.publish"), ("bench.figures", "bench.fitted"),
    ("bench.commands", "bench.releasing"),
    ("bench.explain", "bench.doctor", "bench.auditing", "bench.index_commands"), ("bench.cli",),
)
FREE = {"bench.describe": "bench.registry"}  # reads files only: as low as the registry
ORDER_INSIDE = ("bench.pictures", "bench.video_out", "bench.video", "bench.detect")  # inside their layer
PLUGIN_KINDS = ("methods", "attacks", "metrics", "bench.data")
OWNERS = {
    "av": ("bench/video.py", "bench/video_out.py"), "facenet_pytorch": ("bench/detect.py",),
    "datasets": ("bench/data/clips.py", "bench/run/preload.py"), "timm": ("bench/nets/*.py",),
    "transformers": ("bench/nets/*.py",), "diffusers": ("bench/nets/published_faces.py",),
    "pytorchvideo": ("bench/nets/*.py",), "duckdb": ("bench/store.py",), "jinja2": ("bench/board.py",),
    "typer": ("bench/cli.py",), "libsumo": ("bench/data/crossing/simulate.py",),
}
FILES = sorted(p for top in ("bench", "methods", "attacks", "metrics") for p in (ROOT / top).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(p) for p in FILES}


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(tree: ast.AST) -> set[str]:
    """Modules that a tree imports; `from bench import seeds` is bench.seeds, `from bench import Video` is bench."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{a.name}" for a in node.names}
            found |= (inner & MODULES) | ({node.module} if inner - MODULES else set())
    return found


def layer(module: str) -> int:
    hits = [i for i, patterns in enumerate(LAYERS) if any(fnmatchcase(module, p) for p in patterns)]
    exact = [i for i, patterns in enumerate(LAYERS) if module in patterns]
    assert hits, f"{module} stands in no layer: give it a place in LAYERS"
    return (exact or hits)[0]


def kind(module: str) -> str:
    return next((k for k in PLUGIN_KINDS if module == k or module.startswith(k + ".")), "")


def plugin(module: str) -> str:
    """The plug-in that a module belongs to: `methods.tadp` for every file of that folder, "" for none."""
    place = kind(module)
    return ".".join([place, *module.removeprefix(place + ".").split(".")[:1]]) if place else ""


def faults_of(importer: str, imported: str) -> str:
    """Why this import may not be, or ""."""
    low, high = layer(FREE.get(imported, imported)), layer(importer)
    if low > high:
        return f"{importer} imports {imported}, which stands above it"
    if kind(importer) and kind(imported) and kind(importer) != kind(imported):
        return f"{importer} imports the plug-in {imported} of another kind"
    if kind(importer) in ("methods", "attacks", "metrics") and kind(imported) and plugin(importer) != plugin(imported):
        return f"the plug-in {importer} imports the plug-in {imported}"
    if importer in ORDER_INSIDE and imported in ORDER_INSIDE and \
            ORDER_INSIDE.index(imported) > ORDER_INSIDE.index(importer):
        return f"{importer} imports {imported}, which stands above it"
    return ""


def test_imports_point_one_way():
    faults = [fault for path in FILES for name in sorted(imports(parsed(path)) & MODULES)
              if (fault := faults_of(module_of(path), name))]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("importer, imported", [
    ("bench.errors", "bench.types"), ("bench.nets.image", "bench"), ("bench.data.clips", "bench.run.stages"),
    ("methods.blur", "attacks.plr"), ("methods.blur", "methods.pixelate"), ("metrics.fer", "bench.data.clips"),
    ("bench.assets", "bench.run.plan"), ("bench.run.plan", "bench.store"), ("bench.store", "bench.tables"),
    ("bench.display", "bench.ranking"), ("bench.views", "bench.board"), ("bench.commands", "bench.cli"),
    ("bench.video_out", "bench.video"), ("methods.blur", "methods.tadp.scale")])
def test_the_layer_rule_sees_a_wrong_import(importer, imported):
    assert faults_of(importer, imported) and not faults_of(imported, importer) or kind(importer)


def test_plugins_import_public_names_only():
    allowed = ("bench", "bench.seeds", "bench.video", "bench.detect", "bench.stats", "bench.sampling",
               "bench.frechet", "bench.open_set", "bench.privacy", "bench.privacy.accounting",
               "bench.privacy.claims", "bench.privacy.declared", "bench.traffic", "bench.reports", "bench.rehearsal",
               "bench.report_scores", "bench.event_auc", "bench.distinguishers", "bench.spoken")
    wrong = [f"{relative(p)}: {name}" for p in FILES if kind(module_of(p)) in ("methods", "attacks", "metrics")
             for name in imports(parsed(p)) & MODULES if name not in allowed and not name.startswith("bench.nets")
             and plugin(name) != plugin(module_of(p))]
    assert not wrong


def test_each_heavy_package_has_its_owner():
    wrong = [f"{relative(p)} imports {name}" for p in FILES for name in imports(parsed(p))
             if (owners := OWNERS.get(name.partition(".")[0]))
             and not any(fnmatchcase(relative(p), o) for o in owners)]
    assert not wrong
    used = {name.partition(".")[0] for p in FILES for name in imports(parsed(p))}
    assert set(OWNERS) <= used, "a package without an owner file is no dependency"


def test_the_broken_transforms_are_never_imported():
    assert not [relative(p) for p in FILES + TESTS
                if any(n.startswith("pytorchvideo.transforms") for n in imports(parsed(p)))]


def test_no_relative_import_no_star_no_utils():
    for path in FILES:
        nodes = [n for n in ast.walk(parsed(path)) if isinstance(n, ast.ImportFrom)]
        assert not any(n.level or any(a.name == "*" for a in n.names) for n in nodes), relative(path)
    assert not [p for p in FILES if p.stem in ("utils", "util", "helpers", "misc", "common")]


def test_the_site_folder_holds_no_python():
    assert (ROOT / "site").is_dir() and not list((ROOT / "site").rglob("*.py"))


def test_functions_have_50_lines_and_files_300_at_most():
    long = []
    for path in FILES + TESTS:
        if relative(path).startswith("tests/") and "perf" in path.parts:
            continue
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > 300 and not relative(path).startswith("tests/"):
            long.append(f"{relative(path)}: {lines} lines")
        long += [f"{relative(path)}:{n.lineno} {n.name}: {n.end_lineno - n.lineno + 1} lines"
                 for n in ast.walk(parsed(path)) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))
                 and n.end_lineno - n.lineno + 1 > 50]
    assert not long, "\n".join(long)


# The worker gets its derived number over the wire; the noise that a claim rests on comes from the operating system;
# the number that an encoded atom's answer must carry is no result and must be one that nobody can guess.
GENERATORS = {"bench/seeds.py", "bench/run/worker_main.py", "bench/privacy/bits.py", "bench/run/enforced.py"}
TORCH_DRAWS = ("rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "rand_like", "randn_like")


def draws(path: Path) -> list[str]:
    """Random draws that bench.seeds does not know of."""
    found = [f"imports {n}" for n in imports(parsed(path)) if n.partition(".")[0] in ("random", "secrets", "uuid")]
    for node in ast.walk(parsed(path)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name.startswith(("np.random.", "numpy.random.")) or name in ("os.urandom", "torch.seed"):
            found.append(f"line {node.lineno}: {name}")
        if name == "torch.manual_seed" and not any(
                word in ast.unparse(node.args[0]) for word in ("derive_torch(", "torch_seed(")):
            found.append(f"line {node.lineno}: a seed that is not derived")
        if name.startswith("torch.") and name[6:] in TORCH_DRAWS and not any(
                k.arg == "generator" for k in node.keywords):
            found.append(f"line {node.lineno}: {name} without a generator")
    return found


def test_nothing_draws_but_from_derived_generators():
    wrong = {relative(p): found for p in FILES if relative(p) not in GENERATORS and (found := draws(p))}
    assert not wrong


def test_the_draw_rule_sees_a_draw(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("import random\nimport numpy as np\nimport torch\nnp.random.seed(0)\nnp.random.default_rng()\n"
                   "torch.manual_seed(0)\ntorch.rand(3)\ntorch.manual_seed(ctx.torch_seed('a'))\n")
    assert len(draws(bad)) == 5


# In methods/ nothing draws at all: protective noise is the harness's, chance comes as `rng` or ctx.rng, and torch's
# generator serves the first weights of a network only (torch.manual_seed, nn.init).
CHANCE = ("random", "random.*", "secrets", "secrets.*", "uuid.*", "os.urandom", "os.getrandom", "numpy.random",
          "numpy.random.*", "bench.seeds", "bench.seeds.*",
          "torch.rand*", "torch.normal*", "torch.bernoulli*", "torch.multinomial*", "torch.poisson*",
          "torch.Generator*", "torch.seed", "torch.distributions.*", "torch.*dropout*", "torch.*Dropout*",
          "scipy.stats.*.rvs", "*.bernoulli", "*.bernoulli_", "*.normal_", "*.uniform_", "*.random_", "*.exponential_",
          "*.geometric_", "*.cauchy_", "*.log_normal_", "*.rand_like", "*.randn_like", "*.randint_like")
NO_CHANCE = ("numpy.random.Generator", "torch.nn.init.*")


def chance(tree: ast.Module) -> list[str]:
    """Names of things that draw, however they were imported, with their lines."""
    full: dict[str, str] = {}  # what a name stands for
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            full |= {a.asname: a.name for a in node.names if a.asname} | {
                a.name.split(".")[0]: a.name.split(".")[0] for a in node.names if not a.asname}
        elif isinstance(node, ast.ImportFrom):
            full |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    found, parts = [], {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Attribute, ast.Name)) and id(node) not in parts:
            first, dot, rest = ast.unparse(node).partition(".")
            name = full.get(first, "" if isinstance(node, ast.Name) else first) + dot + rest
            if any(fnmatchcase(name, c) for c in CHANCE) and not any(fnmatchcase(name, c) for c in NO_CHANCE):
                found.append(f"line {node.lineno}: {name}")
    return found


def test_methods_leave_chance_to_the_harness():
    methods = [p for p in FILES if kind(module_of(p)) == "methods"]
    assert methods and not {relative(p): found for p in methods if (found := chance(parsed(p)))}


@pytest.mark.parametrize("line", [
    "np.random.default_rng()", "np.random.rand(3)", "noise = numpy.random", "f(np.random.PCG64(1))",
    "from numpy.random import default_rng as d; d(1)", "from numpy import random as r; r.normal()",
    "import random; random.random()", "from random import gauss; gauss(0, 1)", "import secrets as s; s.token_bytes(8)",
    "import os; os.urandom(8)", "from os import urandom; urandom(8)", "torch.rand(3)", "t.randn_like(x)",
    "torch.randperm(4)", "draw = torch.randint", "from torch import normal; normal(0, 1)", "torch.bernoulli(p)",
    "x.bernoulli()", "torch.multinomial(p, 1)", "torch.nn.functional.dropout(x)", "F.dropout(x)", "nn.Dropout(0.1)",
    "from torch.nn import Dropout2d; Dropout2d()", "x.normal_().sum()", "self.layer.weight.data.uniform_(-1, 1)",
    "from bench import seeds; seeds.derive(1)", "from bench.seeds import derive; derive(1)",
    "torch.distributions.Normal(0, 1).sample()"])
def test_the_chance_rule_sees_a_draw(line):
    start = ("import numpy\nimport numpy as np\nimport torch\nimport torch as t\nfrom torch import nn\n"
             "from torch.nn import functional as F\n")
    assert chance(ast.parse(start + line))
    assert not chance(ast.parse(start + "def release(self, video, rng: np.random.Generator):\n    rng.normal(0, 1)\n"
                                "    ctx.rng('a').multinomial(1, p)\n    torch.manual_seed(ctx.torch_seed('w'))\n"
                                "    nn.init.normal_(w)\n    torch.nn.init.uniform_(w)\n    random = 3 * random\n"))


SAMPLERS = {"bench.privacy.noise": {"gaussian", "gaussian_steps", "discrete_laplace", "randomized_response"},
            "bench.privacy.radial": {"isotropic_exponential"}}


def samplers(tree: ast.Module) -> set[str]:
    """Samplers of protective noise that a file brings in, or the whole module of one."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name in SAMPLERS}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {a.name for a in node.names if a.name in SAMPLERS.get(node.module, ())
                      or f"{node.module}.{a.name}" in SAMPLERS}
    return found


def test_protective_noise_is_drawn_in_one_file_alone():
    """The trusted loop, for every lane; noise.py and radial.py hold the laws and nobody else reads them."""
    drawing = {relative(p): samplers(parsed(p)) for p in FILES}
    assert {p for p, found in drawing.items() if found} == {"bench/privacy/mechanism.py"}
    assert drawing["bench/privacy/mechanism.py"] == set().union(*SAMPLERS.values())


@pytest.mark.parametrize("line", [
    "from bench.privacy.noise import GRID, discrete_laplace", "from bench.privacy import radial as far",
    "import bench.privacy.noise", "from bench.privacy.radial import isotropic_exponential as far"])
def test_the_noise_rule_sees_a_sampler(line):
    assert samplers(ast.parse(line))
    assert not samplers(ast.parse("import numpy\nfrom bench.privacy.noise import GRID, simulate_noise\ngaussian(3)"))


def test_third_party_imports_are_declared():
    """Every package that the code imports is a dependency in pyproject.toml (or comes with one that is)."""
    import sys
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = project["dependencies"] + project["optional-dependencies"]["traffic"]
    names = {d.split(">")[0].split("=")[0].split("<")[0].strip().lower() for d in declared}
    spelled = {"cv2": "opencv-python-headless", "skimage": "scikit-image", "sklearn": "scikit-learn",
               "facenet_pytorch": "facenet-pytorch"}
    ours = {"bench", "methods", "attacks", "metrics"}
    used = {n.partition(".")[0] for p in FILES for n in imports(parsed(p))} - ours - set(sys.stdlib_module_names)
    assert {spelled.get(n, n) for n in used} <= names
