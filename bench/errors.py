"""Errors a person can cause, each one paragraph: what happened, why it matters, what to do.

    UserError               exit code 2, printed without a traceback
    |-- PluginError         a method, attack or metric that breaks its contract
    |-- DataError           a dataset root or a video that cannot be used
    |-- ConfigError         a suite, option or name that does not exist or does not fit
    |-- WorkFolderError     a work folder or database that is locked, damaged or from another version
    |-- WeightsMissing      a full-size network whose published weights nobody brought
    `-- EnvironmentFault    packages, disk or operating system not as the project needs them
    Diverged                training produced NaN or made no progress; the cell becomes invalid, never private
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A fault that a user can cause and mend. `str()` is the paragraph that is printed."""

    def __init__(self, what: str, why: str = "", remedy: str = ""):
        self.what, self.why, self.remedy = what, why, remedy
        super().__init__(" ".join(part.strip() for part in (what, why, remedy) if part))

    def __reduce__(self):
        return type(self), (self.what, self.why, self.remedy)


class PluginError(UserError):
    """A plug-in that breaks its contract."""


class DataError(UserError):
    """A dataset root, a folder or a video that cannot be used."""


class ConfigError(UserError):
    """A name or option that does not exist or does not fit."""


class WorkFolderError(UserError):
    """A work folder or database that is locked, damaged or from another version."""


class EnvironmentFault(UserError):
    """Packages, disk or operating system are not as the project needs them."""


class WeightsMissing(UserError):
    """A full-size network whose published weights are not here; its column says `weights missing: NAME`."""

    def __init__(self, name: str, remedy: str):
        self.name = name
        super().__init__(f"weights missing: {name}.", "Published networks are never downloaded, and nothing stands in "
                         "for them under their name.", remedy)

    def __reduce__(self):
        return type(self), (self.name, self.remedy)


class Diverged(Exception):
    """Training produced a non-finite loss or made no progress."""


def nearest(name: object, known: Iterable[str]) -> str:
    """A hint that lists the nearest known names, or all of them when none is near."""
    known = sorted(known)
    close = difflib.get_close_matches(str(name), known, n=3, cutoff=0.5)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"Known: {', '.join(known) or 'none'}."


class Undefined(Exception):
    """A measurement that has no meaning on this data (one class only, say); the cell says so and never ranks."""
