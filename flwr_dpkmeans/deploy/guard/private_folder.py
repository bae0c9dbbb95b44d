"""Folders in which nobody else can have put anything."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .refusal import GuardError


def require_private(folder: Path) -> None:
    """Refuse a folder in whose place something else could be put.

    By another user, or through a link.
    """
    facts = os.lstat(folder) if os.path.lexists(folder) else None
    if facts is None or not stat.S_ISDIR(facts.st_mode):
        raise GuardError(
            f"{folder} is no folder, or a link: make it anew with mode 700"
        )
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
        raise GuardError(
            f"{folder} has mode {stat.S_IMODE(facts.st_mode):o} and belongs to user"
            f" {facts.st_uid}, but it must be of this user ({os.geteuid()}) with mode"
            " 700: chown and chmod it"
        )
    for parent in folder.absolute().parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise GuardError(
                f"everybody may write to {parent}, which leads to {folder}: chmod"
                " o-w it"
            )
