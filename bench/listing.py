"""Lines of `veilbench list`: names and first sentences, read from files. Nothing heavy is imported."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

from bench import registry
from bench.describe import describe

SUITES = registry.ROOT / "bench" / "suites"


def lines(kinds: list[str]) -> Iterator[str]:
    """One heading and one line a name, for each kind."""
    for position, kind in enumerate(kinds):
        if len(kinds) > 1:
            yield f"{'' if position == 0 else chr(10)}{kind}"
        yield from _LISTERS.get(kind, lambda kind=kind: _plugins(kind))()


def _plugins(kind: str) -> Iterator[str]:
    for name in registry.names(kind):
        about = describe(kind, name)
        variants = f"  [{', '.join('@' + v for v in about.variants)}]" if about.variants else ""
        yield f"  {name:<18} {about.title}{variants}"


def _suites() -> Iterator[str]:
    for path in sorted(SUITES.glob("*.toml")):
        yield f"  {path.stem:<18} {tomllib.loads(path.read_text(encoding='utf-8'))['title']}"


def _tables() -> Iterator[str]:
    from bench.tables import FIGURES, TABLES, title

    for name in TABLES:
        yield f"  {name:<18} {title(name)}"
    for name, text in FIGURES.items():
        yield f"  {name:<18} {text}"


def _weights() -> Iterator[str]:
    from bench.asset_list import ASSETS
    from bench.weights import shipped

    known = shipped()
    for name, asset in ASSETS.items():
        origin = f"shipped, SHA-256 {known[name].sha256[:12]}" if name in known else "trained when first needed"
        what = f"{asset.task} of public people" if asset.architecture == "none" else \
            f"{asset.architecture}, learns {asset.task} from public people"
        yield f"  {name:<18} {what}; {origin}"
    yield f"  {'mtcnn':<18} face detector, weights inside the facenet-pytorch wheel"


_LISTERS = {"suites": _suites, "tables": _tables, "weights": _weights}
