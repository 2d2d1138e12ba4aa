"""bubblewrap, where it is installed: the command line that starts a process in a file system of listed paths only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

_OPTIONS = ("--unshare-user-try", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts",
            "--unshare-cgroup-try", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--tmpfs", "/tmp")


def program() -> str:
    """Where bwrap is, "" when it is not installed."""
    return shutil.which("bwrap") or ""


def command(argv: list[str], readable: Iterable[Path]) -> list[str]:
    """argv behind a call of bwrap.

    Inside there are the readable paths, an empty /tmp, a /proc of the processes inside, no network and no capability;
    nothing but that /tmp can be written. `/` is the working folder.
    """
    places = {path.absolute() for path in readable if os.path.exists(path)}
    options = list(_OPTIONS)
    for path in sorted(places):
        bind = "--dev-bind" if path.is_relative_to("/dev") else "--ro-bind"
        options += [bind, str(path.resolve()), str(path)]
    for link in _links(Path(argv[0])):
        if not any(link.is_relative_to(place) for place in places):
            options += ["--symlink", os.readlink(link), str(link)]
    return [program() or "bwrap", *options, "--proc", "/proc", "--remount-ro", "/", "--chdir", "/", "--", *argv]


def _links(path: Path) -> list[Path]:
    """The symbolic links that a program's path leads through, first to last."""
    found: list[Path] = []
    while path.is_symlink() and path not in found:
        found.append(path)
        path = path.parent / os.readlink(path)
    return found
