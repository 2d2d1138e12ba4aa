"""Plug-ins by file name: `names` lists a folder, `get` imports one file. No plug-in is imported to be listed.

`methods/blur.py` defines `@method("blur")` and nothing else may be called blur. A folder `methods/tadp/` is the
plug-in `tadp`. Plug-ins of installed packages come from the entry-point group `veilbench.plugins`
(name = "methods.blur_x", value = a module); `use_file(path)` adds one file for this process and its children.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from bench.errors import ConfigError, EnvironmentFault, PluginError, nearest
from bench.measures import Attack, Column, Evaluator, Metric, SetMetric, VideoMetric
from bench.report_measures import ReportMetric
from bench.sources import ROOT, digest_of, source_closure
from bench.types import Method

KINDS = ("methods", "attacks", "metrics", "datasets")
FOLDERS = {"methods": ROOT / "methods", "attacks": ROOT / "attacks", "metrics": ROOT / "metrics",
           "datasets": ROOT / "bench" / "data"}
GROUP = "veilbench.plugins"
EXTRA = "VEILBENCH_PLUGINS"  # files added with --plugin, handed to child processes
DECORATORS = {"methods": "method", "attacks": "attack", "metrics": "metric", "datasets": "dataset"}
_DECLARED = re.compile(r'^@(method|attack|metric|dataset)\(\s*"([^"]+)"', re.MULTILINE)
_registered: dict[tuple[str, str], Any] = {}


@dataclass(frozen=True)
class Spec:
    """`blur@8`: a plug-in name and, if any, the name of one of its variants."""

    name: str
    variant: str | None = None

    @classmethod
    def parse(cls, text: str) -> Spec:
        name, _, variant = text.partition("@")
        return cls(name, variant or None)

    def __str__(self) -> str:
        return self.name if self.variant is None else f"{self.name}@{self.variant}"


def check_shadowing() -> None:
    """Refuse to run when another package's top-level `methods`, `attacks` or `metrics` stands before ours."""
    for folder in ("methods", "attacks", "metrics"):
        spec = importlib.util.find_spec(folder)
        places = [Path(p).resolve() for p in (spec.submodule_search_locations or [])] if spec else []
        if places != [FOLDERS[folder]]:
            found = ", ".join(map(str, places)) or "nothing"
            raise EnvironmentFault(
                f"The package '{folder}' that Python would import is {found}, not {FOLDERS[folder]}.",
                "A foreign package of that name would be measured in place of ours.",
                "Run veilbench in a virtual environment of its own, after `pip install -e .` in this checkout.")


def _register(kind: str, name: str, value: Any) -> None:
    if (kind, name) in _registered and _registered[kind, name].__module__ != value.__module__:
        raise PluginError(f"Two plug-ins are called {name!r} in {kind}.", "A name stands for one row of the board.",
                          "Rename one of them: the file and its decorator.")
    _registered[kind, name] = value


def method(name: str) -> Callable[[type], type]:
    """Register the class as the release method `name`; the file must be methods/<name>.py."""
    return _class_decorator("methods", name, Method)


def attack(name: str) -> Callable[[type], type]:
    """Register the class as the attack `name`; the file must be attacks/<name>.py."""
    return _class_decorator("attacks", name, Attack)


def dataset(name: str) -> Callable[[type], type]:
    """Register the class as the dataset `name`; the file must be bench/data/<name>.py."""
    return _class_decorator("datasets", name, object)


def _class_decorator(kind: str, name: str, base: type) -> Callable[[type], type]:
    def decorate(cls: Any) -> Any:
        if not (isinstance(cls, type) and issubclass(cls, base)):
            raise PluginError(f"{name!r} in {kind} is not a {base.__name__}.", "",
                              f"Derive the class from bench.{base.__name__} or one of its children.")
        setattr(cls, "name", name)  # noqa: B010
        _register(kind, name, cls)
        return cls
    return decorate


def metric(name: str, *, column: Column | None = None, of: str = "pair") -> Callable[[Any], Any]:
    """Register a pure function (with its Column), or a class of one of the other kinds, as `name`."""
    def decorate(obj: Any) -> Any:
        if isinstance(obj, type) and issubclass(obj, (Evaluator, VideoMetric, SetMetric, ReportMetric)):
            obj.name = name
            _register("metrics", name, obj)
            return obj
        if column is None:
            raise PluginError(f"The metric {name!r} declares no column.", "A number without unit and direction "
                              "cannot be published.", "Pass column=Column(...) to @metric.")
        value = Metric(name=name, function=obj, of=of, column=column, doc=obj.__doc__ or "")  # type: ignore[arg-type]
        object.__setattr__(value, "__module__", obj.__module__)
        _register("metrics", name, value)
        return obj
    return decorate


# ---- finding -------------------------------------------------------------------------------------------------------

def use_file(path: Path) -> str:
    """Add one plug-in file for this process and its children; its decorator says the kind and the name."""
    path = Path(path).resolve()
    if not path.is_file():
        raise PluginError(f"There is no plug-in file {path}.", "", "Give --plugin the path of one Python file.")
    found = _declared(path)
    if len(found) != 1 or found[0][1] != path.stem:
        names = ", ".join(n for _, n in found) or "no plug-in"
        raise PluginError(f"{path} declares {names}, but its file name says {path.stem!r}.",
                          "One file holds one plug-in and carries its name.",
                          f'Write @method("{path.stem}") (or @attack, @metric) once, or rename the file.')
    extra = [p for p in os.environ.get(EXTRA, "").split(os.pathsep) if p]
    if str(path) not in extra:
        os.environ[EXTRA] = os.pathsep.join([*extra, str(path)])
    _locations.cache_clear()
    kind = next(k for k, d in DECORATORS.items() if d == found[0][0])
    locate(kind, path.stem)
    return path.stem


def _declared(path: Path) -> list[tuple[str, str]]:
    return _DECLARED.findall(path.read_text(encoding="utf-8", errors="replace"))


def _files(kind: str) -> Iterator[tuple[str, Path]]:
    for path in sorted(FOLDERS[kind].iterdir()):
        if path.name.startswith(("_", ".")):
            continue
        if path.suffix == ".py" and (kind != "datasets" or _declared(path)):
            yield path.stem, path
        elif kind != "datasets" and path.is_dir() and (path / "__init__.py").is_file():
            yield path.name, path / "__init__.py"
    for text in os.environ.get(EXTRA, "").split(os.pathsep):
        if text and any(d == DECORATORS[kind] for d, _ in _declared(Path(text))):
            yield Path(text).stem, Path(text)


@cache
def _locations(kind: str) -> dict[str, Path | importlib.metadata.EntryPoint]:
    found: dict[str, Path | importlib.metadata.EntryPoint] = {}
    entries = [(e.name.partition(".")[2], e) for e in importlib.metadata.entry_points(group=GROUP)
               if e.name.partition(".")[0] == kind]
    places: list[tuple[str, Any]] = [*_files(kind), *entries]
    for name, place in places:
        if name in found:
            raise PluginError(f"Two plug-ins are called {name!r} in {kind}: {found[name]} and {place}.",
                              "A name stands for one row of the board.", "Rename or remove one of them.")
        found[name] = place
    return found


def names(kind: str) -> list[str]:
    """Names of all plug-ins of a kind, from file names alone: nothing is imported."""
    return sorted(_locations(kind))


def locate(kind: str, name: str) -> Path | importlib.metadata.EntryPoint:
    """Where the plug-in lives. Raises ConfigError with the nearest names when there is none."""
    known = _locations(kind)
    if name not in known:
        raise ConfigError(f"There is no {DECORATORS[kind]} called {name!r}.", nearest(name, known),
                          f"`veilbench list {kind}` shows all of them; --plugin PATH adds one file.")
    return known[name]


def get(kind: str, name: str) -> Any:
    """Import the one file of a plug-in and return its class (methods, attacks, evaluators) or Metric."""
    place = locate(kind, name)
    if (kind, name) not in _registered:
        _import(kind, name, place)
    if (kind, name) not in _registered:
        raise PluginError(f"{place} registers no {DECORATORS[kind]} called {name!r}.",
                          "The registry trusts file names, so file and decorator must agree.",
                          f'Put @{DECORATORS[kind]}("{name}") on its class or function.')
    return _registered[kind, name]


def _import(kind: str, name: str, place: Path | importlib.metadata.EntryPoint) -> ModuleType:
    try:
        if not isinstance(place, Path):
            return importlib.import_module(place.module)
        if place.is_relative_to(ROOT) and (inside := place.relative_to(ROOT)).parts[0] in ("methods", "attacks",
                                                                                           "metrics", "bench"):
            parts = inside.with_suffix("").parts
            return importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
        module_name = f"veilbench_plugin_{kind}_{name}"
        spec = importlib.util.spec_from_file_location(module_name, place)
        module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        sys.modules[module_name] = module
        spec.loader.exec_module(module)  # type: ignore[union-attr]
        return module
    except PluginError:
        raise
    except Exception as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(place)]
        where = f"{place}, line {lines[-1]}" if lines else str(place)
        raise PluginError(f"The plug-in {name!r} in {kind} cannot be imported: "
                          f"{type(error).__name__}: {str(error).rstrip('.')}.",
                          f"The fault is in {where}.", "Mend that file; no other plug-in is affected.") from error


def build(kind: str, spec: Spec | str) -> Any:
    """An instance of a plug-in class with the settings of its variant."""
    spec = Spec.parse(spec) if isinstance(spec, str) else spec
    return get(kind, spec.name)(**settings(kind, spec))


def settings(kind: str, spec: Spec) -> dict[str, Any]:
    """Constructor arguments of a variant. Raises ConfigError that lists the variants when it is unknown."""
    cls = get(kind, spec.name)
    if spec.variant is None:
        return {}
    variants = getattr(cls, "variants", {})
    if spec.variant not in variants:
        raise ConfigError(f"{spec.name!r} has no variant {spec.variant!r}.", nearest(spec.variant, variants),
                          f"Variants of {spec.name}: {', '.join(sorted(variants)) or 'none'}.")
    return dict(variants[spec.variant])


def source_file(kind: str, name: str) -> Path:
    """The file of a plug-in (`__init__.py` of a folder), found without importing it."""
    place = locate(kind, name)
    if isinstance(place, Path):
        return place
    spec = importlib.util.find_spec(place.module)
    if spec is None or spec.origin is None:
        raise PluginError(f"The module {place.module} of the plug-in {name!r} is not there.",
                          "Its package is not installed whole.", "Install the package again.")
    return Path(spec.origin)


# ---- digests -------------------------------------------------------------------------------------------------------

@cache
def source_digest(kind: str, name: str) -> str:
    """SHA-256 over the plug-in's source and every module of ours that it imports, directly or not."""
    return digest_of(_own_files(kind, name))


def _own_files(kind: str, name: str) -> list[Path]:
    place = source_file(kind, name)
    return sorted(place.parent.rglob("*.py")) if place.name == "__init__.py" else [place]


def source_files(kind: str, name: str) -> list[Path]:
    """The plug-in's files and every module of ours behind them."""
    return source_closure(_own_files(kind, name))
