"""What a locked-in method will import, imported before the lock and before any data: torch makes a temporary folder
at import, and a forked child should not import scipy for every clip. Method code itself is never imported here.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterable
from pathlib import Path

from bench.sources import ROOT

TRUSTED = ("numpy", "torch", "torchvision", "timm", "scipy", "cv2", "skimage", "sklearn", "diffusers", "transformers")


def modules_behind(files: Iterable[Path]) -> list[str]:
    """Modules of ours among these files, and what the others (the plug-in's own) import of TRUSTED at the top."""
    found: set[str] = set()
    for path in files:
        if path.is_relative_to(ROOT / "bench"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module)
    return sorted(name for name in found if name.partition(".")[0] in (*TRUSTED, "bench"))


def preload(names: Iterable[str]) -> None:
    """Import them; torch keeps one thread."""
    for name in ("numpy", "bench", *names):
        importlib.import_module(name)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
