"""The Parquet files of a folder, and of the folders in it."""

from __future__ import annotations

import os
from pathlib import Path

from flwr_dpkmeans.errors import DataError

SUFFIXES = (".parquet", ".pq")


_TABLE_FORMATS = {"_delta_log": "a Delta Lake table", ".hoodie": "an Apache Hudi table"}


def is_parquet_folder(path: Path) -> bool:
    """Whether a path is a folder with Parquet files somewhere in it."""
    if not path.is_dir():
        return False
    files, _ = folder_files(path)
    return len(files) > 0


def folder_files(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the Parquet files of a folder, sorted, and what is passed over.

    Files and folders that begin with a dot or an underscore are not data, as everywhere
    in Parquet's world.

    Raises
    ------
    DataError
        For a table format in which files also have deleted and replaced rows.
    """
    files: list[Path] = []
    passed_over: list[str] = []
    for parent, folders, names in os.walk(folder, onerror=_refuse):
        _require_plain_files(Path(parent), [*folders, *names])
        # In place: os.walk goes on with those that are left.
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        for name in folders:
            if Path(parent, name).is_symlink():
                passed_over.append(f"the folder {name!r}, which is a link")
        for name in folders:
            if "=" in name:
                passed_over.append(f"the column that the folder's name {name!r} states")
        for name in sorted(names):
            path = Path(parent, name)
            if _is_hidden(name):
                continue
            if path.suffix.lower() in SUFFIXES:
                files.append(path)
            else:
                passed_over.append(f"the file {str(path.relative_to(folder))!r}")
    return sorted(files), passed_over


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _refuse(error: OSError) -> None:
    """Refuse a folder that this user cannot list.

    It would be passed over in silence.
    """
    raise DataError(
        f"the folder {str(error.filename)!r} cannot be listed ({type(error).__name__}),"
        " but all files of a table must be read: give this user the right to."
    )


def _require_plain_files(folder: Path, names: list[str]) -> None:
    """Refuse a folder whose files alone are not its table.

    Deleted rows are in them, too.
    """
    formats = [kind for name, kind in _TABLE_FORMATS.items() if name in names]
    metadata = folder / "metadata"
    if "metadata" in names and any(metadata.glob("*.metadata.json")):
        formats.append("an Apache Iceberg table")
    if formats:
        raise DataError(
            f"the folder {str(folder)!r} is {formats[0]}, whose files also have rows"
            " that are deleted or replaced: write its rows as Parquet files into a"
            " folder of their own."
        )
