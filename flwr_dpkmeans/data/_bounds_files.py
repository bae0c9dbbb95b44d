"""Read files with one public range per feature."""

from __future__ import annotations

import csv
import json
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from flwr_dpkmeans.data._files import locate_file
from flwr_dpkmeans.data._ranges import broadcast, check_ranges, to_floats
from flwr_dpkmeans.errors import ConfigurationError, nearest


@dataclass(frozen=True)
class NamedRanges:
    """Ranges in the order of a file, with the names of their features if the file has them."""

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    names: tuple[str, ...] | None
    path: Path

    def as_pair(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return checked lower and upper bounds."""
        check_ranges(self.lower, self.upper, self.names)
        return self.lower, self.upper

    def matched(self, feature_names: Sequence[str]) -> NamedRanges:
        """Return the ranges in the order of `feature_names`; ranges without names stay as they are."""
        if self.names is None:
            return self
        for name in feature_names:
            if name not in self.names:
                raise ConfigurationError(
                    f"feature {name!r} has no row in the bounds file {str(self.path)!r}, but every feature needs a "
                    f"range: {nearest(name, self.names)}"
                )
        order = [self.names.index(name) for name in feature_names]
        lower, upper = tuple(self.lower[i] for i in order), tuple(self.upper[i] for i in order)
        return NamedRanges(lower, upper, tuple(feature_names), self.path)


def read_bounds_file(path: str | Path) -> NamedRanges:
    """Read a .csv, .json, .toml or .npz file with lower and upper bounds and, if it has them, names."""
    located = locate_file(path, "bounds file", ConfigurationError)
    reader = _READERS.get(located.suffix.lower())
    if reader is None:
        raise ConfigurationError(
            f"the bounds file {str(located)!r} has the suffix {located.suffix!r}, but only .csv, .json, .toml and .npz "
            "can be read: convert the file to one of these."
        )
    try:
        content = reader(located)
    except (OSError, ValueError, EOFError, csv.Error, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(
            f"the bounds file {str(located)!r} cannot be read as {located.suffix.lower()} ({error}), but its content "
            "must match its suffix: correct the file."
        ) from error
    return _to_ranges(content, located)


def _to_ranges(content: object, path: Path) -> NamedRanges:
    """Check the keys, the names and the lengths of what was read."""
    keys = list(content) if isinstance(content, Mapping) else []
    missing = [key for key in ("lower", "upper") if key not in keys]
    if missing or not isinstance(content, Mapping):
        raise ConfigurationError(
            f"the bounds file {str(path)!r} has no {missing[0]!r}, but it needs 'lower' and 'upper': name them so, in "
            "the first row of a .csv file or as keys in the other formats."
        )
    lower, upper = broadcast(to_floats(content["lower"], "lower"), to_floats(content["upper"], "upper"))
    if "feature" not in keys:
        return NamedRanges(lower, upper, None, path)
    given = content["feature"]
    names = tuple(str(name) for name in (given if isinstance(given, Sequence | np.ndarray) else [given]))
    if len(lower) == len(upper) == 1:
        lower, upper = lower * len(names), upper * len(names)
    if not len(names) == len(lower) == len(upper):
        raise ConfigurationError(
            f"the bounds file {str(path)!r} has {len(names)} features, {len(lower)} lower and {len(upper)} upper "
            "values, but each feature needs one of both: make the three equally long."
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigurationError(
            f"the bounds file {str(path)!r} has {names.count(twice[0])} rows for the feature {twice[0]!r}, but it must "
            "have one: remove the others."
        )
    return NamedRanges(lower, upper, names, path)


def _read_csv(path: Path) -> Mapping[str, object]:
    """Read the columns lower, upper and feature, and ignore the others."""
    with path.open(encoding="utf-8-sig", newline="") as lines:
        rows = [[cell.strip() for cell in row] for row in csv.reader(lines) if any(cell.strip() for cell in row)]
    header = [name.lower() for name in rows[0]] if rows else []
    columns: dict[str, object] = {}
    for key in ("feature", "lower", "upper"):
        if key not in header:
            continue
        cells = [row[header.index(key)] if header.index(key) < len(row) else "" for row in rows[1:]]
        columns[key] = cells if key == "feature" else [_cell(cell, key, i, path) for i, cell in enumerate(cells)]
    return columns


def _cell(cell: str, side: str, index: int, path: Path) -> float:
    """Read one number of a .csv file."""
    try:
        return float(cell)
    except ValueError:
        raise ConfigurationError(
            f"the {side} bound in row {index} of the bounds file {str(path)!r} is {cell!r}, but it must be a number: "
            "write it with a decimal point, as in 12.5."
        ) from None


def _read_json(path: Path) -> Mapping[str, object]:
    content: Mapping[str, object] = json.loads(path.read_text(encoding="utf-8-sig"))
    return content


def _read_toml(path: Path) -> Mapping[str, object]:
    return tomllib.loads(path.read_text(encoding="utf-8-sig"))


def _read_npz(path: Path) -> Mapping[str, object]:
    with np.load(path, allow_pickle=False) as archive:
        arrays: dict[str, object] = {name: np.atleast_1d(archive[name]) for name in archive.files}
    return arrays


_READERS: Mapping[str, Callable[[Path], Mapping[str, object]]] = MappingProxyType(
    {".csv": _read_csv, ".json": _read_json, ".toml": _read_toml, ".npz": _read_npz}
)

BOUNDS_SUFFIXES = frozenset(_READERS)
