"""What the fitted state of a row says of its configuration: clip norms, temperature, length of a clip.

Read from the stages behind a cell, never from what the code would do now; a row whose stages are not in this work
folder has gaps. A constructor argument that the state does not hold is read from the method's source, and only while
that source is the one that fitted the row.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench import registry
from bench.display import Cell
from bench.errors import ConfigError
from bench.publish import chain
from bench.run.cache import WorkFolder
from bench.run.enforced import clip_length
from bench.run.views import load_tensors

Row = tuple[str, str, str, str | None]  # dataset, profile, method, variant
CLIP, TEMPERATURE = "clip.", "temperature"


@dataclass(frozen=True)
class Configuration:
    """clip_norm: {branch: C_b} in the units of the features.  s_min: {branch: smallest noise scale} in the same units,
    of branches with noise.  temperature: of the soft quantization.  frames: T.
    """

    clip_norm: Mapping[str, float] = field(default_factory=dict)
    s_min: Mapping[str, float] = field(default_factory=dict)
    temperature: float | None = None
    frames: int | None = None


def row_key(cell: Cell) -> Row:
    """What has one fitted state."""
    return str(cell["dataset"]), str(cell["profile"]), str(cell["method"]), cell.get("variant")


def configurations(work: WorkFolder, cells: Sequence[Cell]) -> dict[Row, Configuration]:
    """The configuration of every row that was fitted in this work folder, from the first of its cells that tells."""
    found: dict[Row, Configuration] = {}
    for cell in cells:
        if row_key(cell) not in found and cell.get("score") and (known := _behind(work, str(cell["score"]))):
            found[row_key(cell)] = known
    return found


def _behind(work: WorkFolder, score: str) -> Configuration | None:
    records = {record["kind"]: record for record in chain(work, "score", score)}
    if "fit" not in records or "enforced" not in records:
        return None
    fit, config = records["fit"], records["fit"]["identity"]["config"]
    state = load_tensors(work.stage("fit", fit["digest"]) / "state.safetensors")
    source = fit["identity"]["plugins"].get(f"methods/{config['method']}")
    warm = float(state[TEMPERATURE].ravel()[0]) if TEMPERATURE in state else \
        _written(config["method"], config["variant"], source).get(TEMPERATURE)
    norms = {k.removeprefix(CLIP): float(v.ravel()[0]) for k, v in state.items() if k.startswith(CLIP)}
    facts = records["enforced"]["identity"]["config"]["facts"]
    least = {b["name"]: norms[b["name"]] * float(b["floor"]) / float(b["clip"]) for b in facts["branches"]
             if b["floor"] is not None and b["name"] in norms}
    return Configuration(norms, least, warm, clip_length(facts))


def _written(method: str, variant: str | None, source: str | None) -> dict[str, Any]:
    """Constructor arguments of a row as its source writes them; nothing once the source has changed."""
    try:
        if registry.source_digest("methods", method) != source:
            return {}
    except ConfigError:  # a method of another machine
        return {}
    return arguments(registry.source_file("methods", method).read_text(encoding="utf-8"), method, variant)


def arguments(text: str, method: str, variant: str | None) -> dict[str, Any]:
    """Literal defaults of the constructor of the class registered under this name, changed as the variant says."""
    found: dict[str, Any] = {}
    for item in (item for node in _registered(ast.parse(text), method) for item in node.body):
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            found = {a.arg: d.value for a, d in zip(item.args.kwonlyargs, item.args.kw_defaults, strict=True)
                     if isinstance(d, ast.Constant)} | found
        if isinstance(item, ast.Assign) and [ast.unparse(t) for t in item.targets] == ["variants"]:
            found |= ast.literal_eval(item.value).get(variant, {})
    return found


def _registered(tree: ast.Module, name: str) -> Iterator[ast.ClassDef]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and any(
                isinstance(d, ast.Call) and d.args and ast.unparse(d.args[0]) == repr(name)
                for d in node.decorator_list):
            yield node
