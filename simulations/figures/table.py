"""The rows of a results table that a figure is made from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from flwr_dpkmeans.errors import ConfigurationError, DataError, nearest
from simulations.experiments.table import missing_sets, read_table
from simulations.figures.kinds import Columns, Values

NULL = "null"
SEPARATOR = " / "
ASKED, SPENT = "privacy.epsilon", "epsilon"
_SETTINGS = ("n_clients", "evaluation", "experiment", "variant")


@dataclass(frozen=True)
class Results:
    """A results table.

    Parameters
    ----------
    rows : DataFrame
        One run each.
    figures : object
        The figures that the table's metadata lists, as they are there; None without
        any.
    missing : tuple of str
        Data sets that its sweep was to have and that were not there.
    """

    rows: pd.DataFrame
    figures: object = None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Selection:
    """The rows that a figure uses.

    Parameters
    ----------
    rows : DataFrame
        Runs that were done.
    n_failed : int
        Runs that failed and are left out.
    """

    rows: pd.DataFrame
    n_failed: int


def read_results(path: Path) -> Results:
    """Read a table with the figures in its metadata.

    Parameters
    ----------
    path : Path
        A Parquet file, the folder of a sweep, or CSV, which lists no figures.

    Returns
    -------
    Results
        Of at least one row.

    Raises
    ------
    DataError
        If it cannot be read or has no rows.
    """
    rows, _, figures = read_table(path)
    if rows.empty:
        raise DataError(
            f"{path} has no rows, but a figure needs at least one: run the sweep first."
        )
    return Results(rows, figures, missing_sets(path))


def plain(value: Any) -> str:
    """Write a value as text: 100.0 as 100, null as null."""
    if value is None or value is pd.NA:
        return NULL
    if isinstance(value, float) and math.isnan(value):
        return NULL
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, list | tuple | np.ndarray):
        return " ".join(plain(part) for part in value)
    return str(value)


def select(name: str, results: Results, where: Values) -> Selection:
    """Choose the rows of a figure.

    Parameters
    ----------
    name : str
        Of the figure, for messages.
    results : Results
        All rows.
    where : tuple of pairs
        Columns and their wanted values.

    Returns
    -------
    Selection
        Of at least one run that was done.

    Raises
    ------
    ConfigurationError
        If no row has a wanted value.
    DataError
        If no row is left.
    """
    wanted = rows_with(name, results.rows, where, at_any_epsilon=True)
    failed = pd.Series(False, index=wanted.index)
    if "status" in wanted:
        failed = wanted["status"].eq("failed")
    if failed.all():
        raise DataError(
            f"figure {name!r} has no run to show, since {len(wanted)} of {len(wanted)}"
            " failed: see the column reason."
        )
    return Selection(wanted[~failed], int(failed.sum()))


def rows_with(
    name: str, rows: pd.DataFrame, where: Values, *, at_any_epsilon: bool = False
) -> pd.DataFrame:
    """Choose the rows that have given values.

    Also, if asked, those of methods that are run once for all epsilons.
    """
    for column, values in where:
        counts = pd.Series(True, rows.index)
        if at_any_epsilon and column == ASKED:
            counts = _spending(rows)
        texts = rows[column].map(plain)
        wanted = [plain(value) for value in values]
        there = set(texts[counts])
        for value in wanted:
            if there and value not in there:
                raise ConfigurationError(
                    f"figure {name!r} asks for {column} {value!r}, which no row has:"
                    f" {nearest(value, there)}"
                )
        rows = rows[texts.isin(wanted) | ~counts]
    return rows


def _spending(rows: pd.DataFrame) -> pd.Series:
    """Tell which runs are of methods that spend an epsilon.

    Also where a run failed and states none.
    """
    is_private = private(rows)
    if "algorithm.name" not in rows:
        return is_private
    by_method = is_private.groupby(rows["algorithm.name"], dropna=False)
    return by_method.transform("any")


def joined(rows: pd.DataFrame, columns: Columns) -> pd.Series:
    """Write the values of columns as one text for each row."""
    if not columns:
        return pd.Series("", index=rows.index, dtype=object)
    texts = [rows[column].map(plain) for column in columns]
    return pd.Series(
        [SEPARATOR.join(part) for part in zip(*texts, strict=True)],
        index=rows.index,
        dtype=object,
    )


def numbers(name: str, rows: pd.DataFrame, column: str) -> pd.Series:
    """Read a column as numbers; nulls are NaN.

    Raises
    ------
    ConfigurationError
        If a value is no number.
    """
    values = pd.to_numeric(rows[column], errors="coerce").astype(np.float64)
    bad = rows[column][values.isna() & rows[column].notna()]
    if len(bad):
        raise ConfigurationError(
            f"figure {name!r} needs numbers, but column {column!r} has"
            f" {plain(bad.iloc[0])!r}: choose a column of numbers, or rows with where."
        )
    return values


def private(rows: pd.DataFrame) -> pd.Series:
    """Tell which runs are private: their report states an epsilon."""
    for column in (SPENT, ASKED):
        if column in rows:
            epsilons = pd.to_numeric(rows[column], errors="coerce").astype(np.float64)
            return pd.Series(np.isfinite(epsilons), rows.index)
    return pd.Series(True, index=rows.index)


def tidy(
    name: str,
    rows: pd.DataFrame,
    *,
    panel: Columns,
    series: Columns,
    y: str,
    x: str = "",
) -> pd.DataFrame:
    """Reduce rows to what figures are computed from.

    Returns
    -------
    DataFrame
        `panel` and `series` as text, `x` (NaN for methods without privacy where it is
        an epsilon) and `y` as numbers, and `seed`; a table without seeds has a seed for
        each row.
    """
    renamed = pd.DataFrame(index=rows.index)
    renamed["panel"] = joined(rows, panel)
    renamed["series"] = joined(rows, series)
    renamed["y"] = numbers(name, rows, y) if y != "cost_curve" else 0.0
    renamed["seed"] = np.arange(len(rows))
    if "seed" in rows and rows["seed"].notna().all():
        renamed["seed"] = rows["seed"]
    if x:
        renamed["x"] = numbers(name, rows, x)
        if x in (ASKED, SPENT):
            renamed["x"] = renamed["x"].where(private(rows))
    return renamed


def in_order(values: Sequence[str]) -> list[str]:
    """Distinct texts: numbers by size, else in the order of the table."""
    distinct = list(dict.fromkeys(values))
    try:
        return sorted(distinct, key=float)
    except ValueError:
        return distinct


def counted(number: int, noun: str) -> str:
    """Write a number with its noun."""
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def notes_of(selection: Selection) -> list[str]:
    """Sentences that every figure of these rows carries."""
    rows = selection.rows
    notes = []
    if "privacy.noise" in rows:
        is_private = private(rows)
        is_seeded = is_private & rows["privacy.noise"].eq("seeded")
        n_private = int(is_private.sum())
        n_seeded = int(is_seeded.sum())
        if n_seeded:
            which = "all private runs"
            if n_seeded < n_private:
                which = f"{n_seeded} of {n_private} private runs"
            notes.append(f"Noise was seeded in {which}, so they protect nobody.")
    if selection.n_failed:
        are = "is" if selection.n_failed == 1 else "are"
        notes.append(f"{counted(selection.n_failed, 'failed run')} {are} left out.")
    return notes


def averaged_note(rows: pd.DataFrame, cell: Columns) -> list[str]:
    """Say over what a figure averages beside seeds.

    Parameters
    ----------
    rows : DataFrame
        The runs that it uses.
    cell : tuple of str
        Columns whose combinations are its points.
    """
    settings = [
        column
        for column in rows
        if ("." in column or column in _SETTINGS) and column not in cell
    ]
    settings = [column for column in settings if column.rpartition(".")[2] != "seed"]
    texts = pd.DataFrame(
        {column: rows[column].map(plain) for column in (*settings, *cell)},
        index=rows.index,
    )
    if ASKED in texts:
        texts[ASKED] = texts[ASKED].where(private(rows), NULL)
    keys = texts[list(cell)].apply(tuple, axis=1) if cell else pd.Series(0, texts.index)
    varying = [
        column for column in settings if texts[column].groupby(keys).nunique().max() > 1
    ]
    return [f"Averaged also over {', '.join(varying)}."] if varying else []


def left_out_note(left_out: Mapping[str, int]) -> list[str]:
    """Say how many values were not finite, by series."""
    parts = [f"{name} {number}" for name, number in left_out.items() if number]
    if not parts:
        return []
    counts = ", ".join(parts)
    return [f"Values left out because they are not finite or missing: {counts}."]
