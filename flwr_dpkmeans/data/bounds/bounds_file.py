"""Public bounds that a file states."""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from flwr_dpkmeans.data.bounds.named_ranges import NamedRanges, to_ranges
from flwr_dpkmeans.data.files.guarded import UNREADABLE
from flwr_dpkmeans.data.files.located import reader_of
from flwr_dpkmeans.errors import (
    ConfigurationError,
)


def read_bounds_file(path: str | Path) -> NamedRanges:
    """Read the ranges of columns from a file: TOML, JSON or CSV."""
    located, reader = reader_of(
        path,
        "bounds file",
        READERS,
        ConfigurationError,
    )
    try:
        content = reader(located)
    except ConfigurationError:
        raise
    except (*UNREADABLE, csv.Error) as error:
        raise ConfigurationError(
            f"the bounds file {str(located)!r} cannot be read as"
            f" {located.suffix.lower()} ({error}), but its content must match its"
            " suffix: correct the file."
        ) from error
    return to_ranges(content, f"the bounds file {str(located)!r}")


def _read_csv(path: Path) -> Mapping[str, object]:
    """Read the columns lower, upper and feature, and ignore the others."""
    with path.open(encoding="utf-8-sig", newline="") as lines:
        stripped = [[cell.strip() for cell in row] for row in csv.reader(lines)]
    rows = [row for row in stripped if any(row)]
    header = [name.lower() for name in rows[0]] if rows else []
    longer = [row for row in rows if len(row) > len(header)]
    if longer:
        raise ConfigurationError(
            f"a row of the bounds file {str(path)!r} has {len(longer[0])} cells, but"
            f" the first one has {len(header)}: write decimal points, and quote names"
            " that have commas."
        )
    columns: dict[str, object] = {}
    for key in ("feature", "lower", "upper"):
        if key not in header:
            continue
        position = header.index(key)
        cells = [row[position] if position < len(row) else "" for row in rows[1:]]
        columns[key] = cells
        if key != "feature":
            columns[key] = [
                _cell(
                    cell,
                    key,
                    index,
                    path,
                )
                for index, cell in enumerate(cells)
            ]
    return columns


def _cell(
    cell: str,
    side: str,
    index: int,
    path: Path,
) -> float:
    try:
        return float(cell)
    except ValueError:
        raise ConfigurationError(
            f"the {side} bound in row {index} of the bounds file {str(path)!r} is"
            f" {cell!r}, but it must be a number: write it with a decimal point, as in"
            " 12.5."
        ) from None


def _read_npz(path: Path) -> Mapping[str, object]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: np.atleast_1d(archive[name]) for name in archive.files}


READERS: Mapping[str, Callable[[Path], Mapping[str, object]]] = MappingProxyType(
    {
        ".csv": _read_csv,
        ".json": lambda path: json.loads(path.read_text(encoding="utf-8-sig")),
        ".toml": lambda path: tomllib.loads(path.read_text(encoding="utf-8-sig")),
        ".npz": _read_npz,
    }
)
