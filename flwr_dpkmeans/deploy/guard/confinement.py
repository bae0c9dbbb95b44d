"""What the system keeps from a process: networks, other processes, and files.

Linux only, by its own calls; Python has no functions for them.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_NEW_QUEUES = 0x08000000
_NEW_USER = 0x10000000
_NEW_PROCESSES = 0x20000000
_NEW_NETWORK = 0x40000000
"""Flags of unshare(2)."""
_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
"""Numbers of Landlock's system calls, on all processors."""
_NO_NEW_PRIVILEGES = 38
"""Option of prctl(2), without which Landlock restricts no user's process."""
_PATH_BENEATH = 1
"""Landlock's rule about a folder and all below it."""
_VERSION = 1
"""Flag by which Landlock tells its version."""
_WRITE = 1 << 1
_TRUNCATE = 1 << 14
_REMOVE_AND_MAKE = 0b1_1111_1111_0000
"""Landlock's rights to remove, and to make, entries of all kinds in a folder."""
_TRUNCATES_SINCE = 3


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled", ctypes.c_uint64),)


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (
        ("allowed", ctypes.c_uint64),
        ("folder", ctypes.c_int32),
    )


def leave_others() -> None:
    """Leave all networks, this machine's own too, and the other processes' names.

    What this process forks next sees no other process but its own children, which end
    with it, and reaches nobody. Only while this process has one thread.
    """
    user = os.geteuid()
    others = _NEW_PROCESSES | _NEW_NETWORK | _NEW_QUEUES
    left = _system().unshare(_NEW_USER | others)
    _require(left)
    # The same number as before, for what looks it up.
    numbers = Path("/proc/self/uid_map")
    numbers.write_text(f"{user} {user} 1")


def write_only_below(*paths: Path) -> None:
    """Make, change and remove files nowhere but below some paths, for ever.

    Files that are open already stay so. Rights and times of files, which Landlock does
    not look at, may still be changed.
    """
    system = _system()
    version = system.syscall(
        _CREATE_RULESET,
        None,
        0,
        _VERSION,
    )
    _require(version)
    in_files = _WRITE
    if version >= _TRUNCATES_SINCE:
        in_files |= _TRUNCATE
    rules = _Ruleset(in_files | _REMOVE_AND_MAKE)
    ruleset = system.syscall(
        _CREATE_RULESET,
        ctypes.byref(rules),
        ctypes.sizeof(rules),
        0,
    )
    _require(ruleset)
    for path in paths:
        allowed = in_files
        if path.is_dir():
            allowed |= _REMOVE_AND_MAKE
        folder = os.open(path, os.O_PATH)
        rule = _Beneath(allowed, folder)
        added = system.syscall(
            _ADD_RULE,
            ruleset,
            _PATH_BENEATH,
            ctypes.byref(rule),
            0,
        )
        _require(added)
        os.close(folder)
    is_kept = system.prctl(
        _NO_NEW_PRIVILEGES,
        1,
        0,
        0,
        0,
    )
    _require(is_kept)
    restricted = system.syscall(
        _RESTRICT_SELF,
        ruleset,
        0,
    )
    _require(restricted)
    os.close(ruleset)


def can_confine(folder: Path) -> bool:
    """Whether this system confines processes; a child of this process tries it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            leave_others()
            write_only_below(folder)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return status == 0


def _system() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _require(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
