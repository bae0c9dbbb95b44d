"""Files and folders that are written whole or not at all."""

from __future__ import annotations

import errno
import itertools
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from flwr_dpkmeans.errors import LocalMisuseError
from flwr_dpkmeans.log import placed_logger
from flwr_dpkmeans.node.durable_files import sync_folder

_logger = placed_logger("flwr_dpkmeans.results")
_LEAST_FREE = 1 << 24  # bytes that a run's files may take
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)
"""What a folder is not renamed for: something has the name."""

Content = bytes | Iterable[bytes]


def write_folder(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write a folder that appears with all of its files or not at all.

    It never replaces another result: if something is at its place already, the same
    name with ``-2``, ``-3``, ... is taken. Returns the absolute paths of the files, in
    their order; a folder that cannot be written is a LocalMisuseError.
    """
    folder = folder.absolute()
    temporary = folder.parent / f".{folder.name}.{secrets.token_hex(8)}"
    try:
        temporary.mkdir(parents=True)
        for name, content in files.items():
            _write_synced(temporary / name, content)
        final = _renamed(temporary, folder)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if not isinstance(error, OSError):
            raise
        raise LocalMisuseError(
            f"the folder {folder} cannot be written ({error.strerror}): choose another"
            " output folder."
        ) from error
    return [final / name for name in files]


def require_writable(folder: Path) -> None:
    """Refuse a folder for results that cannot be written, before they are paid for.

    Nothing is made yet.
    """
    above = next(parent for parent in folder.absolute().parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise LocalMisuseError(
            f"the folder {folder.absolute()} cannot be written ({above} is no folder"
            " that this user may write into): choose another output folder."
        )
    # No error: what is left may depend on the table, which may be kept on the same
    # disk, and an error would be seen.
    n_free = shutil.disk_usage(above).free
    if n_free < _LEAST_FREE:
        _logger.warning(
            "%s: %.0f MiB are left, too few for a result: make room now",
            folder,
            n_free / 2**20,
        )


def _write_synced(path: Path, content: Content) -> None:
    """Write a new file, onto the disk, that only this user may read."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    descriptor = os.open(path, flags, 0o600)
    pieces = [content] if isinstance(content, bytes) else content
    with os.fdopen(descriptor, "wb") as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())


def _renamed(temporary: Path, folder: Path) -> Path:
    """Give a complete folder its name, or the first free one like it, and sync that."""
    for number in itertools.count(1):
        path = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        try:
            # A folder is never renamed onto a file or onto one that holds anything,
            # whoever else writes here.
            temporary.rename(path)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
            continue
        sync_folder(path.parent)
        return path
    raise AssertionError(folder)


def write_whole(path: Path, content: Content) -> Path:
    """Write a file that is either complete or absent; returns its absolute path.

    It is a temporary file beside it, synced, then renamed. What is raised where
    `content` is made, piece by piece, leaves no file.
    """
    folder = path.parent.absolute()
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_synced(temporary, content)
        temporary.replace(path)
    except BaseException as error:
        what = f"folder {folder}"
        mend = "choose another output folder"
        if temporary.exists():
            what = f"file {path.absolute()}"
            mend = f"free space or {mend}"
            temporary.unlink()
        if not isinstance(error, OSError):
            raise
        raise LocalMisuseError(
            f"the {what} cannot be written ({error.strerror}): {mend}."
        ) from error
    return path.absolute()
