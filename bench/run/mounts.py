"""Read-only mounts in a mount namespace of the process's own: reading a file then leaves no time of last reading.

Landlock lets a process read its listed files, and the file system notes when (relatime: at most once a day and file).
That note would outlive the process and could be read by a later one with `stat`.
"""

from __future__ import annotations

import os
import struct

from bench.run import libc

LAYER = "read-only mounts"
_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000  # CLONE_NEWNS, CLONE_NEWUSER
_MOUNT_SETATTR, _RECURSIVE = 442, 0x8000  # the call's number on x86_64 and aarch64; AT_RECURSIVE
_READ_ONLY, _PRIVATE = 1, 1 << 18  # MOUNT_ATTR_RDONLY, MS_PRIVATE


def make_read_only() -> None:
    """Every mount becomes read-only for this process alone; devices can still be written. Needs one thread.

    Root does without a user namespace, in which it would lose the right to read other users' files.

    Raises:
        OSError: the system denies new namespaces (some containers and distributions do), or is older than Linux 5.12.
    """
    libc.call("unshare", _NEW_MOUNTS if os.geteuid() == 0 else _NEW_MOUNTS | _NEW_USER)
    attributes = struct.pack("=4Q", _READ_ONLY, 0, _PRIVATE, 0)
    libc.call("syscall", _MOUNT_SETATTR, -1, b"/", _RECURSIVE, attributes, len(attributes))
