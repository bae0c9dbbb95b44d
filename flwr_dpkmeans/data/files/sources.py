"""Where a table's rows are: files, or a cluster."""

from __future__ import annotations

from pathlib import Path

from flwr_dpkmeans.data.files.formats.parquet_folder import folder_files

_CLUSTERS = ("ray://", "dask://")


def is_clustered(source: object) -> bool:
    """Whether a source is a cluster's table, as ``ray:///shared/rows``."""
    address = str(source)
    return address.startswith(_CLUSTERS)


def source_files(source: str | Path) -> list[Path]:
    """Return the files that a table's rows are in.

    Those of a folder, or the path itself.
    """
    path = Path(source)
    path = path.expanduser()
    if not path.is_dir():
        return [path]
    files, _ = folder_files(path)
    return files
