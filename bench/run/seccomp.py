"""seccomp: system calls that this thread, and all that it starts, can no longer make. x86_64 and aarch64.

Two filters. The first (`deny_list`) closes what Landlock cannot see: sockets, new processes, other processes, shared
memory and queues, the keyring, file metadata, locks, namespaces. The second (`late_list`), for after everything is
loaded, closes every system call that takes a path. A denied call fails with EPERM. clone3 fails with ENOSYS, so that
the C library falls back to clone, whose flags a filter can read; threads can be started, processes cannot.

A filter is a program of classic BPF (linux/filter.h) over `struct seccomp_data` (linux/seccomp.h). Numbers of system
calls: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from functools import cache

from bench.run import libc

# name: (x86_64, aarch64); None = the architecture has no such call
DENIED: dict[str, tuple[int, int | None]] = {
    # sockets
    "socket": (41, 198), "socketpair": (53, 199), "bind": (49, 200), "connect": (42, 203), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242), "sendto": (44, 206), "recvfrom": (45, 207), "sendmsg": (46, 211),
    "sendmmsg": (307, 269), "recvmsg": (47, 212), "recvmmsg": (299, 243),
    # new processes
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "kcmp": (312, 272), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "setpriority": (141, 140), "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274), "sched_setparam": (142, 118), "sched_setscheduler": (144, 119),
    "ioprio_set": (251, 30), "setpgid": (109, 154), "setsid": (112, 157), "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    # shared memory, semaphores, queues
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "shmdt": (67, 197), "semget": (64, 190),
    "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192), "msgget": (68, 186), "msgsnd": (69, 189),
    "msgrcv": (70, 188), "msgctl": (71, 187), "mq_open": (240, 180), "mq_unlink": (241, 181),
    "mq_timedsend": (242, 182), "mq_timedreceive": (243, 183), "mq_notify": (244, 184), "mq_getsetattr": (245, 185),
    # objects of the kernel
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "memfd_create": (319, 279), "memfd_secret": (447, 447),
    "io_setup": (206, 0), "io_submit": (209, 2), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "inotify_init": (253, None), "inotify_init1": (294, 26), "inotify_add_watch": (254, 27),
    "fanotify_init": (300, 262), "fanotify_mark": (301, 263),
    # files: metadata, locks, making and removing, the page cache
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None),
    "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "setxattrat": (463, 463), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "fremovexattr": (199, 16), "removexattrat": (466, 466), "file_setattr": (469, 469), "flock": (73, 32),
    "creat": (85, None), "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None), "unlink": (87, None),
    "unlinkat": (263, 35), "link": (86, None), "linkat": (265, 37), "symlink": (88, None), "symlinkat": (266, 36),
    "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276), "mknod": (133, None), "mknodat": (259, 33),
    "truncate": (76, 45), "ftruncate": (77, 46), "fallocate": (285, 47), "fadvise64": (221, 223),
    "readahead": (187, 213), "mincore": (27, 232), "cachestat": (451, 451), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    # namespaces and mounts
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "open_tree_attr": (467, 467), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "quotactl": (179, 60), "quotactl_fd": (443, 443), "swapon": (167, 224),
    "swapoff": (168, 225), "acct": (163, 89),
    # the machine
    "reboot": (169, 142), "sethostname": (170, 161), "setdomainname": (171, 162), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "syslog": (103, 116), "iopl": (172, None), "ioperm": (173, None), "vhangup": (153, 58),
}
PATHS: dict[str, tuple[int, int | None]] = {
    "open": (2, None), "openat": (257, 56), "openat2": (437, 437), "stat": (4, None), "lstat": (6, None),
    "newfstatat": (262, 79), "statx": (332, 291), "statfs": (137, 43), "access": (21, None), "faccessat": (269, 48),
    "faccessat2": (439, 439), "readlink": (89, None), "readlinkat": (267, 78), "getxattr": (191, 8),
    "lgetxattr": (192, 9), "getxattrat": (464, 464), "listxattr": (194, 11), "llistxattr": (195, 12),
    "listxattrat": (465, 465), "chdir": (80, 49), "statmount": (457, 457), "listmount": (458, 458),
    "file_getattr": (468, 468), "uselib": (134, None),
}
CHECKED: dict[str, tuple[int, int | None]] = {
    "clone": (56, 220), "clone3": (435, 435), "mmap": (9, 222), "fcntl": (72, 25), "ioctl": (16, 29),
    "prctl": (157, 167), "prlimit64": (302, 261), "kill": (62, 129), "tgkill": (234, 131),
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "clock_nanosleep": (230, 115), "timer_create": (222, 107),
}
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, AUDIT_ARCH_*

_LOAD, _AND, _IS, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x45, 0x35, 0x06
_NUMBER, _ARCH = 0, 4  # offsets in seccomp_data
_ALLOW, _EPERM, _ENOSYS = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
_X32 = 0x40000000
_CLONE_THREAD, _CLONE_NEW = 0x00010000, 0x7E020000
_MAP_TYPE, _MAP_PRIVATE = 0x0F, 0x02
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | (getattr(os, "O_TMPFILE", 0) & ~os.O_DIRECTORY)
# F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC: no locks, no leases, no flags that other processes share
_FCNTL = (0, 1, 2, 3, 1030)
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5450, 0x5451)  # TCGETS, TIOCGWINSZ, FIONREAD, FIONCLEX, FIOCLEX
_PR_SET_SECCOMP, _FILTER, _PR_SCHED_CORE = 22, 2, 62

Line = tuple[int, int, int, int]  # code, jump when true, jump when false, operand


def machine() -> str:
    """Name of this architecture, "" when there is no table for it."""
    fits = sys.platform.startswith("linux") and sys.byteorder == "little" and sys.maxsize > 2**32
    return platform.machine() if fits and platform.machine() in MACHINES else ""


def deny_list(name: str, pid: int, *, writing: bool = True) -> bytes:
    """The first filter, for the process pid on the architecture of this name.

    writing=False also denies to open anything for writing; where Landlock is, it does that by path.
    """
    number = {call: row[MACHINES[name][0]] for call, row in CHECKED.items()}
    itself = [line for call in ("kill", "tgkill") for line in _when(number[call], _one_of(0, (pid,)))]
    return _head(name) + _bytes(itself) + _constant(name, writing)


@cache
def _constant(name: str, writing: bool) -> bytes:
    """The part of the first filter that is the same for every process."""
    rules = _checks(name)
    if not writing:
        column = MACHINES[name][0]
        rules += _when(PATHS["open"][column], [*_argument(1), (_ANY_BIT, 0, 1, _WRITING), _end(_EPERM)])
        rules += _when(PATHS["openat"][column], [*_argument(2), (_ANY_BIT, 0, 1, _WRITING), _end(_EPERM)])
        rules += _when(PATHS["openat2"][column], [_end(_EPERM)])
    return _bytes([*rules, *_denials(name, DENIED), _end(_ALLOW)])


@cache
def late_list(name: str) -> bytes:
    """The second filter: no system call that takes a path."""
    return _head(name) + _bytes([*_denials(name, PATHS), _end(_ALLOW)])


def install(program: bytes) -> None:
    """Put a filter in force for this thread; irreversible. Raises OSError when the kernel refuses."""
    lines = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("@HP", len(program) // 8, ctypes.addressof(lines))
    libc.call("prctl", _PR_SET_SECCOMP, _FILTER, head, 0, 0)


def _checks(name: str) -> list[Line]:
    """Calls whose arguments decide, for all processes alike."""
    number = {call: numbers[MACHINES[name][0]] for call, numbers in CHECKED.items()}
    threads_only = [*_argument(0), (_ANY_BIT, 0, 1, _CLONE_NEW), _end(_EPERM),
                    (_ANY_BIT, 1, 0, _CLONE_THREAD), _end(_EPERM), _end(_ALLOW)]
    private = [*_argument(3), (_AND, 0, 0, _MAP_TYPE), (_IS, 1, 0, _MAP_PRIVATE), _end(_EPERM), _end(_ALLOW)]
    no_cookies = [*_argument(0), (_IS, 0, 1, _PR_SCHED_CORE), _end(_EPERM), _end(_ALLOW)]
    own_clock = [*_argument(0), (_AT_LEAST, 0, 1, 0x80000000), _end(_EPERM), _end(_ALLOW)]
    rules = _when(number["clone3"], [_end(_ENOSYS)])
    for call, body in (("clone", threads_only), ("mmap", private), ("prctl", no_cookies),
                       ("fcntl", _one_of(1, _FCNTL)), ("ioctl", _one_of(1, _IOCTL)), ("prlimit64", _one_of(0, (0,))),
                       ("clock_gettime", own_clock), ("clock_getres", own_clock), ("clock_nanosleep", own_clock),
                       ("timer_create", own_clock)):
        rules += _when(number[call], body)
    return rules


def _argument(index: int) -> list[Line]:
    """Load the low half of an argument; the kernel itself reads no more of those that are checked here."""
    return [(_LOAD, 0, 0, 16 + 8 * index)]


def _one_of(index: int, allowed: tuple[int, ...]) -> list[Line]:
    """Allow the call when an argument has one of these values."""
    tests = [(_IS, len(allowed) - i, 0, value) for i, value in enumerate(allowed)]
    return [*_argument(index), *tests, _end(_EPERM), _end(_ALLOW)]


def _when(number: int | None, body: list[Line]) -> list[Line]:
    """Run the body for one system call; the number is loaded again after it, should the body fall through."""
    if number is None:
        return []
    body = [*body, (_LOAD, 0, 0, _NUMBER)]
    return [(_IS, 0, len(body), number), *body]


def _denials(name: str, table: dict[str, tuple[int, int | None]]) -> list[Line]:
    numbers = [row[MACHINES[name][0]] for row in table.values()]
    return [line for n in numbers if n is not None for line in ((_IS, 0, 1, n), _end(_EPERM))]


def _end(answer: int) -> Line:
    return (_RETURN, 0, 0, answer)


def _head(name: str) -> bytes:
    """This architecture and its native numbers only; leaves the number of the call loaded."""
    return _bytes([(_LOAD, 0, 0, _ARCH), (_IS, 1, 0, MACHINES[name][1]), _end(_EPERM), (_LOAD, 0, 0, _NUMBER),
                   (_AT_LEAST, 0, 1, _X32), _end(_EPERM)])


def _bytes(lines: list[Line]) -> bytes:
    """struct sock_filter[]: 8 bytes a line."""
    return b"".join(struct.pack("=HBBI", *line) for line in lines)
