"""Find, fetch and read the person files of the American Community Survey."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import ConfigurationError, DataError
from simulations.sources.census_codes import STATES

_YEAR, _HORIZON = "2018", "1-Year"

# The state, the class of worker, and what the filters of ACSIncome look at.
_ALWAYS = ("ST", "COW", "AGEP", "PINCP", "WKHP", "PWGTP")


def download_files(folder: Path, numbers: list[int] | None) -> None:
    """Let folktables fetch what is missing, state by state."""
    try:
        folktables = importlib.import_module("folktables")
    except ImportError:
        raise ConfigurationError(
            "download is True, but the package folktables is not installed here:"
            " install it with 'pip install folktables', or put the files psam_p*.csv of"
            " the Census Bureau into the folder."
        ) from None
    # The states of folktables are those of the paper: all but the District of Columbia.
    wanted = (
        [number for number in STATES if STATES[number] != "DC"]
        if numbers is None
        else numbers
    )
    source = folktables.ACSDataSource(
        survey_year=_YEAR, horizon=_HORIZON, survey="person", root_dir=str(folder)
    )
    have = {file.name for file in _files(folder)}
    for number in wanted:
        if f"psam_p{number:02d}.csv" in have:
            continue
        try:
            source.get_data(states=[STATES[number]], download=True)
        except (
            Exception
        ) as error:  # whatever a failing connection or a broken archive raises there
            raise DataError(
                f"the census file of {STATES[number]} could not be downloaded"
                f" ({type(error).__name__}), but every state asked for needs one: try"
                f" again, or put psam_p{number:02d}.csv into {str(folder)!r}."
            ) from error


def _files(folder: Path) -> list[Path]:
    """Find the person files in the folder, or where folktables puts them below it."""
    files: dict[str, Path] = {}
    for place in (folder / _YEAR / _HORIZON, folder):
        files.update(
            {
                file.stem.removeprefix("psam_p"): file
                for file in place.glob("psam_p*.csv")
            }
        )
    of_states = sorted(part for part in files if re.fullmatch(r"\d\d", part))
    # The files of the whole country hold the same rows as those of the states.
    of_country = sorted(part for part in files if re.fullmatch(r"us[a-d]", part))
    return [files[part] for part in of_states or of_country]


def read_people(
    folder: Path, numbers: list[int] | None, columns: tuple[str, ...]
) -> dict[str, NDArray[np.float64]]:
    """Read the filtered rows of all files, as one array per column."""
    needed = list(dict.fromkeys([*_ALWAYS, *columns]))
    parts = list(_read_files(folder, numbers, needed))
    if not parts:
        wanted = "psam_p*.csv" if numbers is None else f"psam_p{numbers[0]:02d}.csv"
        raise DataError(
            f"the folder {str(folder.absolute())!r} has no census file {wanted}, but at"
            " least 1 is needed: put the person files of the American Community Survey"
            " there, or set download=True."
        )
    return {name: np.concatenate([part[name] for part in parts]) for name in needed}


def _read_files(
    folder: Path, numbers: list[int] | None, needed: list[str]
) -> Iterator[dict[str, NDArray[np.float64]]]:
    """Read one file after the other, so that only the filtered rows are in memory
    together.
    """
    for file in _files(folder):
        part = file.stem.removeprefix("psam_p")
        if numbers is not None and part.isdigit() and int(part) not in numbers:
            continue
        frame = _read_file(file, needed)
        is_person = (
            (frame["AGEP"] > 16)
            & (frame["PINCP"] > 100)
            & (frame["WKHP"] > 0)
            & (frame["PWGTP"] >= 1)
        )
        if numbers is not None:
            is_person &= frame["ST"].isin(numbers)
        yield {
            name: frame.loc[is_person, name].to_numpy(dtype=np.float64)
            for name in needed
        }


def _read_file(file: Path, needed: list[str]) -> Any:
    """Read the needed columns of one file as numbers, with NaN for blank cells."""
    import pandas as pd

    try:
        header = [str(name) for name in pd.read_csv(file, nrows=0).columns]
        missing = [name for name in needed if name not in header]
        if not missing:
            return pd.read_csv(
                file, usecols=needed, dtype=np.float64, skipinitialspace=True
            )
    except (OSError, ValueError) as error:
        # Not chained: the reason that pandas gives can hold the text of a cell.
        problem = (
            f"cannot be read ({type(error).__name__}), but every cell of"
            f" {', '.join(needed)} must be a number"
        )
    else:
        problem = f"has no column {missing[0]!r}, but the task ACSIncome needs it"
    raise DataError(
        f"the census file {str(file)!r} {problem}: give a person file of the year 2018"
        " or earlier."
    )
