"""Source files as evidence: which modules of this project a file stands on, and one digest over all of them."""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def digest_of(files: list[Path]) -> str:
    """SHA-256 over these source files and the modules of this project that they import, transitively."""
    total = hashlib.sha256()
    for path in source_closure(files):
        label = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
        total.update(f"{label} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def source_closure(files: list[Path]) -> list[Path]:
    """These files and the modules of this project that they import, transitively; sorted."""
    seen: set[Path] = set()
    queue = list(files)
    while queue:
        path = queue.pop()
        if path not in seen:
            seen.add(path)
            queue.extend(_project_imports(path))
    return sorted(seen)


@cache
def _project_imports(path: Path) -> tuple[Path, ...]:
    found: set[Path] = set()
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError:  # importing the file says what is wrong with it
        return ()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for module in modules:
            if module.partition(".")[0] in ("bench", "methods", "attacks", "metrics"):
                found.update(p for p in _module_files(module) if p.is_file())
    return tuple(sorted(found))


def _module_files(module: str) -> tuple[Path, Path]:
    base = ROOT.joinpath(*module.split("."))
    return base.with_suffix(".py"), base / "__init__.py"
