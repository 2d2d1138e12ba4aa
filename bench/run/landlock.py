"""Landlock (Linux >= 5.13): from `restrict` on, this thread opens the listed paths for reading and nothing else.

Landlock checks the opening, making, removing and executing of files; it does not check `stat`, so that names, sizes
and times of files elsewhere stay visible. What it can restrict grows with the ABI version of the kernel:

    ABI 1  files and folders, ptrace and process memory outside the own domain
    ABI 2  linking and renaming across folders          ABI 3  truncation
    ABI 4  TCP bind and connect                         ABI 5  ioctl on devices
    ABI 6  signals and abstract unix sockets to processes outside the own domain

Numbers and structures are those of the kernel's user interface, linux/landlock.h.
"""

from __future__ import annotations

import os
import stat
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

from bench.run import libc

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # system call numbers, the same on x86_64 and aarch64
_VERSION = 1  # flag of _CREATE: return the ABI version
_PATH_BENEATH = 1  # kind of rule

_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_FILES = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}  # file rights that came with each ABI version
_TCP = 0b11  # bind, connect
_SCOPES = 0b11  # abstract unix sockets, signals
_ABSENT = (FileNotFoundError, PermissionError, NotADirectoryError)
_WRITABLE = ("/dev/null",)


def abi() -> int:
    """Version of Landlock in this kernel, 0 when there is none, or none that is switched on."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        return libc.call("syscall", _CREATE, None, 0, _VERSION)
    except OSError:
        return 0


def restrict(readable: Iterable[Path]) -> int:
    """Lock this thread and all that it starts to the readable paths; irreversible. Returns the ABI version in force.

    A folder stands for all below it, a symbolic link for its target. Listed paths that do not exist, or that this
    user cannot reach, are left out. Nothing can be written but /dev/null, nothing can be executed.

    Raises:
        OSError: the kernel has no Landlock, or refuses (no_new_privs is not set, or 16 domains lie in each other).
    """
    version = libc.call("syscall", _CREATE, None, 0, _VERSION)
    files = sum(bits for since, bits in _FILES.items() if since <= version)
    attributes = struct.pack("=Q", files)
    if version >= 4:
        attributes += struct.pack("=Q", _TCP)
    if version >= 6:
        attributes += struct.pack("=Q", _SCOPES)
    ruleset = libc.call("syscall", _CREATE, attributes, len(attributes), 0)
    try:
        for path in readable:
            _allow(ruleset, path)
        libc.call("syscall", _RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)
    return version


def _allow(ruleset: int, path: Path) -> None:
    """Add the rule for one path."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except _ABSENT:
        return
    try:
        rights = _READ_FILE
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            rights |= _READ_DIR
        elif str(path) in _WRITABLE:
            rights |= _WRITE_FILE
        libc.call("syscall", _ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, fd), 0)
    finally:
        os.close(fd)
