"""What the operating system lets a node's processes do."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from flwr_dpkmeans.deploy.findings import existing
from flwr_dpkmeans.errors import ConfigurationError

LEAST_OPEN_FILES = 512
"""Flower's programs, their connections and a table of many files at once."""
LEAST_FILE_BYTES = 64 * 2**20
"""A longer file would end the process that writes it, after the run was charged."""
_NO_LIMIT = -1

Limits = Callable[[str], int]
"""The limit of a name of module `resource`, -1 where there is none."""


def system_limit(name: str) -> int:
    """A limit of this process, as its children have it; -1 where there is none."""
    with suppress(ImportError):  # Windows
        import resource

        kind: int = getattr(resource, name)
        limit, _ = resource.getrlimit(kind)
        return limit
    return _NO_LIMIT


def require_limits(limits: Limits = system_limit) -> str:
    """Refuse limits that a node would meet in the middle of a run."""
    open_files = limits("RLIMIT_NOFILE")
    if open_files != _NO_LIMIT and open_files < LEAST_OPEN_FILES:
        raise ConfigurationError(
            f"this user may open {open_files} files at once, but {LEAST_OPEN_FILES} are"
            " needed: raise it, such as by 'ulimit -n 4096', or LimitNOFILE= of the"
            " unit."
        )
    file_bytes = limits("RLIMIT_FSIZE")
    if file_bytes != _NO_LIMIT and file_bytes < LEAST_FILE_BYTES:
        raise ConfigurationError(
            f"this user's files may have {file_bytes} bytes, but"
            f" {LEAST_FILE_BYTES} are needed: raise it, such as by 'ulimit -f"
            " unlimited' or LimitFSIZE= of the unit."
        )
    return f"{_in_words(open_files)} files may be open at once, and files may grow"


def mount_flags(folder: Path) -> int:
    """Flags of the disk that a folder is on, or would be made on."""
    return os.statvfs(existing(folder)).f_flag


def require_programs_run(
    folder: Path, flags_of: Callable[[Path], int] = mount_flags
) -> None:
    """Refuse a disk that runs no programs: the guard's programs are written there."""
    if not hasattr(os, "ST_NOEXEC"):  # neither Linux nor a BSD
        return
    if flags_of(folder) & os.ST_NOEXEC:
        raise ConfigurationError(
            f"the disk of {folder} runs no programs (it is mounted with noexec), and"
            " the guard's are written there: choose another home."
        )


def require_temporary_folder() -> None:
    """Refuse a TMPDIR that is not there or takes no files: Python would take another.

    That one may be on another disk, or in reach of others.
    """
    stated = os.environ.get("TMPDIR")
    if not stated:
        return
    chosen = tempfile.gettempdir()
    if Path(chosen).resolve() != Path(stated).resolve():
        raise ConfigurationError(
            f"TMPDIR is {stated}, where no file can be made, so that {chosen} is used"
            " instead: make it, or leave TMPDIR out."
        )


def _in_words(limit: int) -> str:
    return "any number of" if limit == _NO_LIMIT else str(limit)
