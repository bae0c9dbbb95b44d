"""Scripts that stand where Flower looks for the programs that it starts for apps.

The guard goes into the scripts, so a change needs a new start. Nothing but the script
itself decides what is allowed: Python's isolated mode ignores its variables and the
working directory, and PATH leads nowhere else.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from .app_guard import Guard
from .flower_seams import private
from .private_folder import require_private
from .refusal import GuardError

SUPEREXEC = "flower-superexec"
"""What starts a program for each message."""
_HASH = re.compile(r"[0-9a-f]{64}")


def write_programs(
    guard: Guard,
    folder: Path,
    app: str = private.CLIENT_APP,
    find: Callable[..., str | None] = shutil.which,
) -> dict[str, str]:
    """Write every program that Flower starts for apps as a guarded script.

    And return the environment to use.

    Apps of the one kind are run, if they are approved, and of no other. The folder is
    replaced if it is there. The variables are for what starts ``flower-superexec``.
    PATH has this folder alone: if a script could not be run, Flower would take the next
    program of that name, which guards nothing. A list with something else than hashes,
    or a system that does not run programs in this folder (`find` looks for them), is a
    GuardError.
    """
    are_hashes = all(_HASH.fullmatch(digest) for digest in guard.allowed)
    if not guard.allowed or not are_hashes:
        raise GuardError(
            "the allowed apps must be SHA-256 hashes of 64 lower-case hexadecimal"
            " digits, at least one"
        )
    for parent in (guard.folder, folder):
        if parent.is_symlink():
            raise GuardError(f"{parent} is a link: remove it")
        shutil.rmtree(parent, ignore_errors=True)
        parent.mkdir(mode=0o700, parents=True)
        require_private(parent)
    names = (*private.task_programs(), SUPEREXEC)
    for name in names:
        # Agents, and servers on a node, have no business there: no app at all is
        # allowed to them.
        allowed = sorted(guard.allowed) if name == app else []
        _write_script(folder / name, app, allowed, guard)
    for name in names:
        if find(name, path=str(folder)) != str(folder / name):
            raise GuardError(
                f"{folder / name} cannot be run (a disk mounted with noexec?): choose"
                " another home"
            )
    return {
        "PATH": str(folder),
        "PYTHONSAFEPATH": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    }


def _write_script(
    script: Path,
    app: str,
    allowed: list[str],
    guard: Guard,
) -> None:
    """A shell script.

    The first line of a script has no room for long names and spaces.
    """
    words = [
        sys.executable,
        "-I",
        "-B",
        str(Path(__file__).with_name("app_program.py").absolute()),
        script.name,
        app,
        ",".join(allowed),
        str(guard.folder),
        str(guard.alerts),
        str(guard.gate or ""),
    ]
    descriptor = os.open(script, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
    with os.fdopen(descriptor, "w") as file:
        file.write(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
