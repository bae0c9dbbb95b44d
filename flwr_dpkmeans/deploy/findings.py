"""What an operator's command looks at before it starts something.

And how it says what it saw.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import re
import shutil
import socket
import stat
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from flwr_dpkmeans.deploy.finding import Finding, NoteError, Verdict
from flwr_dpkmeans.deploy.guard.approved_fab import digest_of
from flwr_dpkmeans.deploy.guard.refusal import GuardError
from flwr_dpkmeans.deploy.invitation import Invitation
from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError
from flwr_dpkmeans.flower import _private

HOST = "127.0.0.1"
"""The SuperLink serves everybody who reaches its port, so that it is this machine's
alone.
"""

GUARDED = "guarded-programs"
"""In the home of who runs apps: the programs that Flower starts."""

LEAST_DAYS = 30
"""Of a certificate, below which its owner is told to get a new one."""

LEAST_FREE = 100 * 2**20
"""Bytes on the disks of ledger, results and home.

Files and log of a run take some 5 MB, an unpacked app as much, and a disk that fills up
ends a run after it was charged.
"""

LEAST_FILES = 1000
"""More than an unpacked app and its bytecode, and the files of a run."""

_PAIR = re.compile(r"""\S+?=('[^']*'|"[^"]*"|\S+)""")
"""A key with its value, as Flower finds them in a text."""


def require_pairs(what: str, text: str) -> None:
    """Refuse what Flower would leave out without a word.

    'epsilon = 0.1' would run at the default.
    """
    if text.endswith(".toml"):
        return
    rest = _PAIR.sub("", text).split()
    if rest:
        raise ConfigurationError(
            f"{what} is {text!r}, of which {' '.join(rest)!r} is no KEY=VALUE and would"
            " be left out: write no spaces beside '=', and quotes around a text that"
            " has some, as in columns='age, height'."
        )
    keys = [pair[0].partition("=")[0] for pair in _PAIR.finditer(text)]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        raise ConfigurationError(
            f"{what} says {' and '.join(map(repr, twice))} more than once: leave the"
            " others out."
        )


@contextlib.contextmanager
def guard_errors_as_mistakes() -> Iterator[None]:
    """Turn what the guard refuses into a sentence for whoever typed the command.

    Yields
    ------
    None
        For the length of a block, or of a function that this decorates.
    """
    try:
        yield
    except GuardError as error:
        raise ConfigurationError(str(error)) from error


def finding_of(item: str, look: Callable[[], str]) -> Finding:
    """The result of one look.

    An exception's text is for the operator, who may read all of the files.
    """
    try:
        return Finding(item, Verdict.OK, look())
    except NoteError as note:
        return Finding(item, Verdict.NOTE, str(note))
    except (DPKMeansError, GuardError) as error:
        return Finding(item, Verdict.WRONG, str(error))
    except (OSError, ValueError) as error:
        return Finding(
            item,
            Verdict.WRONG,
            f"{error}: correct the path, its rights or its content.",
        )


def require_tried_flower(*, allow_untested: bool) -> str:
    """Refuse a minor version of Flower that no federation was tried with.

    Note it where the operator allows that.
    """
    flower = _private.flower_version()
    if _private.is_tried(flower):
        return f"Flower {flower}"
    sentence = f"Flower {flower} was not tried: {' and '.join(_private.TRIED)} were"
    if allow_untested:
        raise NoteError(f"{sentence}; allow-untested-flower takes it all the same")
    raise ConfigurationError(
        f"{sentence}: pip install 'flwr=={_private.TRIED[-1]}.*', or say"
        " allow-untested-flower = true."
    )


def require_writable(folder: Path) -> str:
    """Say that files can be made in a folder, or where it would be made."""
    there = existing(folder)
    if not (there.is_dir() and os.access(there, os.W_OK)):
        raise ConfigurationError(
            f"this user cannot write into {there}: make {folder}, and chown it to the"
            " user."
        )
    return f"{folder} can be written"


def existing(folder: Path) -> Path:
    """The folder, or the nearest above it that is there."""
    return next(place for place in (folder, *folder.parents) if place.exists())


def require_outside_apps(folder: Path) -> None:
    """Refuse a folder for keys, ledgers or results inside a Flower app.

    The app packs whatever lies in it.
    """
    for place in folder.absolute().parents:
        project, app = place / "pyproject.toml", None
        with suppress(
            OSError,
            ValueError,
            KeyError,
            TypeError,
        ):
            # A file that cannot be read, or lacks these tables, is no Flower app.
            app = tomllib.loads(project.read_text())["tool"]["flwr"]["app"]
        if app is not None and not {"fab-include", "fab-exclude"} & {*app}:
            raise ConfigurationError(
                f"{folder} lies in the Flower app {place}, which packs all of its"
                " files, keys and ledgers too: make it elsewhere, or say fab-include"
                f" in {project}."
            )


def app_hash(app: Path) -> str:
    """Return the hash of an app.

    Of a FAB, or of what Flower makes of a project's folder.
    """
    try:
        return digest_of(_private.packed_app(app) if app.is_dir() else app.read_bytes())
    except (GuardError, OSError, ValueError) as error:
        raise ConfigurationError(
            f"{app} is no Flower app ({error}): --app is a project or .fab file."
        ) from error


def flower_environment() -> dict[str, str]:
    """The own environment without Python's variables.

    For a program of Flower's that reports nothing.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON")
    }
    environment |= {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PYTHONUNBUFFERED": "1",
    }
    environment.setdefault("FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "0.2")
    return environment


def leave_no_core() -> None:
    """Keep memory off the disk when this process crashes, or what it starts.

    Rows, masks and keys are in it.
    """
    with suppress(ImportError):  # Windows
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def program(name: str) -> str:
    """A command of the environment that this interpreter is in."""
    return str(Path(sys.executable).with_name(name))


def search_path() -> str:
    """PATH with that environment first.

    Flower looks for its programs by name, also where nobody has activated it.
    """
    return os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    )


def require_unchangeable(path: Path) -> None:
    """Refuse a file that another user than root could change.

    Or put another one in the place of, links included.
    """
    path.stat()  # a circle of links is an error
    if path.is_symlink():
        require_unchangeable(path.parent / path.readlink())
    for place in dict.fromkeys((path.absolute(), path.resolve())):
        for part in (place, *place.parents):
            facts, near = part.stat(), part in (place, place.parent)
            # Farther up, a group's folder is common; a folder that everybody may write
            # to can be moved away.
            writers = stat.S_IWOTH | (stat.S_IWGRP if near else 0)
            written = facts.st_mode & writers and not facts.st_mode & stat.S_ISVTX
            if written or (near and facts.st_uid not in (0, os.geteuid())):
                raise ConfigurationError(
                    f"{part} may be changed by others: chown it to root, or chmod"
                    " go-w it."
                )


def require_secret(path: Path) -> None:
    """Refuse a file that everybody could read."""
    real = path.resolve()
    if (
        real.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH)
        and real.parent.stat().st_mode & stat.S_IXOTH
    ):
        raise ConfigurationError(
            f"{path} may be read or changed by everybody: chmod o-rw it."
        )


def is_this_machine(host: str) -> bool:
    """Whether nobody else reaches an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_days(
    what: str,
    begins: datetime.datetime,
    ends: datetime.datetime,
) -> None:
    """Refuse a certificate outside of its time; note one that ends soon."""
    now, span = (
        datetime.datetime.fromtimestamp(time.time(), datetime.UTC),
        f"{begins:%F} to {ends:%F}",
    )
    if not begins <= now <= ends:
        mend = "set the clock, or get a new certificate."
        raise ConfigurationError(
            f"{what} holds from {span}, but this machine has {now:%F %T} UTC: {mend}"
        )
    if (left := (ends - now).days) < min(LEAST_DAYS, (ends - begins).days / 3):
        raise NoteError(
            f"{what} holds from {span}, so {left} days more: get a new one before"
        )


def require_free(host: str, port: int) -> str:
    """Refuse a port that something listens on."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            mend = (
                "give another port, or end what listens there, unless that is what is"
                " started here"
            )
            raise ConfigurationError(
                f"{host}:{port} cannot be had ({error.strerror}): {mend}."
            ) from error
    return f"{host}:{port} is free"


def require_room(*folders: Path) -> str:
    """Refuse disks that a run could fill up."""
    for folder in folders:
        if (free := shutil.disk_usage(existing(folder)).free) < LEAST_FREE:
            raise ConfigurationError(
                f"the disk of {folder} has {free / 2**20:.0f} MiB left, but"
                f" {LEAST_FREE / 2**20:.0f} are needed: make room, since one that is"
                " full in the middle of a run ends it after it was charged."
            )
        files = os.statvfs(existing(folder))
        if files.f_files and files.f_favail < LEAST_FILES:
            # Some file systems have no such limit, and say 0.
            raise ConfigurationError(
                f"the disk of {folder} takes {files.f_favail} more files, but"
                f" {LEAST_FILES} are needed: remove some, or make one with more inodes."
            )
    return f"over {LEAST_FREE / 2**20:.0f} MiB are free"


def require_proposed(app: Path, invitation: Path) -> str:
    """Refuse another app than the invitation's.

    Nodes would refuse it only after a while.
    """
    proposed, digest = Invitation.from_toml(invitation).app, app_hash(app)
    if digest != proposed:
        raise ConfigurationError(
            f"{app} has the hash {digest}, but the invitation proposes {proposed}: run"
            " that version, or have every party approve the new one and write its hash"
            " into the invitation."
        )
    return f"{app} is the app of the invitation, {digest}"
