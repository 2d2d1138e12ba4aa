"""What a plug-in says about itself, read from its source: nothing is imported, so nothing can run."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass
from pathlib import Path

from bench import registry
from bench.errors import PluginError


@dataclass(frozen=True)
class Description:
    """First line of the module, documentation of the class or function, and where it lives."""

    name: str
    title: str
    doc: str
    file: str
    variants: tuple[str, ...] = ()


def describe(kind: str, name: str) -> Description:
    """Read the plug-in's file. For a plug-in of an installed package the module is found, not imported."""
    path = registry.source_file(kind, name)
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError as error:  # one broken file must not hide the others
        fault = f"cannot be read: {error.msg}, line {error.lineno}"
        return Description(name, fault, fault, _relative(path))
    title = (ast.get_docstring(tree) or "").split("\n")[0].strip()
    decorated = [n for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef)) and n.decorator_list]
    node = next((n for n in decorated if _registers(n, name)), decorated[0] if decorated else None)
    doc = inspect.cleandoc((ast.get_docstring(node) if node else "") or title)
    return Description(name, title or doc.split(". ")[0], doc, _relative(path), _variants(node))


def use_file(path: Path) -> str:
    """`registry.use_file` of a file that is Python. Raises PluginError with the line where it is not."""
    if path.is_file():
        try:
            ast.parse(path.read_bytes(), filename=str(path))
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            raise PluginError(f"The plug-in file {path} is not Python: {getattr(error, 'msg', error)}"
                              f"{f', line {line}' if line else ''}.", "", "Mend that line.") from error
    return registry.use_file(path)


def _registers(node: ast.ClassDef | ast.FunctionDef, name: str) -> bool:
    """Whether one of its decorators is a call with this name first: @method("NAME")."""
    return any(isinstance(d, ast.Call) and d.args and isinstance(d.args[0], ast.Constant) and d.args[0].value == name
               for d in node.decorator_list)


def _relative(path: Path) -> str:
    return path.relative_to(registry.ROOT).as_posix() if path.is_relative_to(registry.ROOT) else path.name


def _variants(node: ast.stmt | None) -> tuple[str, ...]:
    """Names in `variants = {...}` of the class body, when they are written out."""
    for item in getattr(node, "body", []):
        targets = [getattr(t, "id", "") for t in item.targets] if isinstance(item, ast.Assign) else [
            getattr(item.target, "id", "")] if isinstance(item, ast.AnnAssign) else []
        if "variants" in targets and isinstance(item.value, ast.Dict):
            return tuple(str(k.value) for k in item.value.keys if isinstance(k, ast.Constant))
    return ()
