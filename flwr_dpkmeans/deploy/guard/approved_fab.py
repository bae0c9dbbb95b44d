"""An app's bytes (a FAB) as a reviewer saw them: their hash, and what hides in none."""

from __future__ import annotations

import hashlib
import io
import re
import stat
import tomllib
import zipfile
from pathlib import PurePosixPath

from .refusal import GuardError

CONFIG_FILE = "pyproject.toml"
LARGEST_CONFIG = 1 << 20
"""Bytes; more than anybody writes."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_PLAIN_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Of the others, Python's module inflates whole blocks before it counts."""


def digest_of(content: bytes) -> str:
    """Return the hash (64 hexadecimal digits) that approves an app (a whole FAB).

    If it may be approved at all.
    """
    require_plain(content)
    return hashlib.sha256(content).hexdigest()


def require_plain(content: bytes) -> None:
    """Refuse an app whose name, version or members say more than a plain name.

    A reviewer may overlook it.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            config = tomllib.loads(read_config(archive).decode())
        names = (
            config["tool"]["flwr"]["app"]["publisher"],
            config["project"]["name"],
            config["project"]["version"],
        )
    except GuardError:
        raise
    except Exception as error:
        # Of archives that are encrypted, or damaged, or nested for Python's reader to
        # give up, each module raises errors of its own.
        raise GuardError(f"the app is no FAB ({type(error).__name__})") from error
    for name in names:
        # Flower makes a folder's name of it, in which "../" leads elsewhere.
        if not (isinstance(name, str) and _PLAIN_NAME.fullmatch(name)):
            raise GuardError(
                f"the app's publisher, name or version is {str(name)[:100]!r}, which is"
                " no plain name"
            )
    # Of two members a reviewer sees one, and the other is unpacked.
    if len({member.filename for member in members}) < len(members):
        raise GuardError("the app has two members of one name")
    for member in members:
        _require_plain_member(member)


def _require_plain_member(member: zipfile.ZipInfo) -> None:
    """Refuse bytecode, links, and paths that leave the app's folder."""
    parts = PurePosixPath(member.filename).parts
    kind = stat.S_IFMT(member.external_attr >> 16)
    if member.filename.endswith((".pyc", ".pyo")):
        raise GuardError(
            f"the app's member {member.filename[:100]!r} is compiled, so nobody can"
            " review it"
        )
    is_absolute = parts[:1] == ("/",)
    # What Windows takes for a path, or Python's module cuts off.
    is_disguised = bool(set("\\:\0") & set(member.orig_filename))
    if is_absolute or is_disguised or ".." in parts or kind == stat.S_IFLNK:
        raise GuardError(
            f"the app's member {member.filename[:100]!r} is a link or leads out of"
            " its folder"
        )


def read_config(archive: zipfile.ZipFile) -> bytes:
    """Read an app's configuration, but no more than anybody writes.

    What it inflates to may fill the memory, whatever the archive says of its size.
    """
    member = archive.getinfo(CONFIG_FILE)
    if member.compress_type not in _PLAIN_METHODS:
        raise GuardError(
            f"the app's {CONFIG_FILE} is compressed by method {member.compress_type},"
            " not by 0 or 8"
        )
    with archive.open(member) as file:
        content = file.read(LARGEST_CONFIG + 1)
    if len(content) > LARGEST_CONFIG:
        raise GuardError(
            f"the app's {CONFIG_FILE} has more than {LARGEST_CONFIG} bytes, which is"
            " the most"
        )
    return content
