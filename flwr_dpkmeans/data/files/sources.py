"""Where a table's rows are: files, or a cluster."""

from __future__ import annotations

from pathlib import Path

from flwr_dpkmeans.data.files.formats.parquet import (
    folder_files,
)


def is_clustered(source: object) -> bool:
    """Whether a source is a cluster's table, as ``ray:///shared/rows``."""
    return str(source).startswith(("ray://", "dask://"))


def source_files(source: str | Path) -> list[Path]:
    """Return the files that a table's rows are in.

    Those of a folder, or the path itself.
    """
    path = Path(source).expanduser()
    return folder_files(path)[0] if path.is_dir() else [path]
