"""The numbers of figures: means over seeds with their confidence intervals.

Cost curves, Pareto fronts and tables of shares.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.stats import t as student

from flwr_dpkmeans.algorithms.feddp.shares import RULE_OF_THUMB
from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.privacy.release import PrivacyUnit
from simulations.figures.kinds import (
    Columns,
    CurveSpec,
    ElbowSpec,
    ParetoSpec,
    SharesSpec,
)
from simulations.figures.table import (
    ASKED,
    Selection,
    counted,
    in_order,
    numbers,
    plain,
    private,
    tidy,
)

CONFIDENCE = 0.95
_SHARES = "algorithm.budget_shares"
_ROUNDS = "algorithm.max_iter"
_SHARED = "feddp_kmeans"
SHARE_NAMES = ("outer product", "weights", "sums", "counts")


@dataclass(frozen=True)
class Numbers:
    """What a figure shows.

    Parameters
    ----------
    cells : DataFrame
        One row for each point; what the columns are depends on the kind.
    left_out : mapping of str to int
        Values that are not finite or missing, by series.
    notes : tuple of str
        Sentences for the caption.
    """

    cells: pd.DataFrame
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def half_width(values: Sequence[float]) -> float:
    """Half the width of the 95% confidence interval of a mean (Student's t).

    NaN for fewer than two values.

    Examples
    --------
    >>> round(half_width([1.0, 2.0, 3.0]), 4)  # 4.3027 * 1 / sqrt(3)
    2.4841
    """
    if len(values) < 2:
        return math.nan
    n = len(values)
    quantile = float(student.ppf(0.5 + CONFIDENCE / 2.0, n - 1))
    deviation = float(np.std(values, ddof=1))
    return quantile * deviation / math.sqrt(n)


def means(rows: pd.DataFrame, groups: Sequence[str]) -> pd.DataFrame:
    """Average y over seeds.

    A seed's own rows are averaged first: they share start, noise and split, so they
    count as one.

    Parameters
    ----------
    rows : DataFrame
        With `groups`, `seed` and `y`; values that are not finite are left out.
    groups : sequence of str
        Columns of which each combination is one cell.

    Returns
    -------
    DataFrame
        `groups`, `y` (mean), `low` and `high` (of its 95% confidence interval),
        `seeds`, `left_out`.
    """
    cells = []
    for key, in_cell in rows.groupby(
        list(groups),
        dropna=False,
        sort=False,
    ):
        finite = in_cell[np.isfinite(in_cell["y"])]
        per_seed = finite.groupby("seed", sort=False)["y"].mean().to_numpy()
        mean = float(per_seed.mean()) if len(per_seed) else math.nan
        half = half_width(per_seed)
        n_left_out = len(in_cell) - len(finite)
        interval = (mean - half, mean + half)
        cells.append((*key, mean, *interval, len(per_seed), n_left_out))
    columns = [*groups, "y", "low", "high", "seeds", "left_out"]
    return pd.DataFrame(cells, columns=columns)


def curve_numbers(spec: CurveSpec, selection: Selection) -> Numbers:
    """Mean y of each panel, series and x.

    Returns
    -------
    Numbers
        Cells as of `means`; x is NaN for a series without x (such as one without
        privacy, over epsilon), which is one value for all x.
    """
    rows = tidy(
        spec.name,
        selection.rows,
        panel=spec.panel,
        series=spec.series,
        y=spec.y,
        x=spec.x,
    )
    rows, without = split_without_x(rows)
    cells = means(rows, ("panel", "series", "x"))
    return Numbers(_finite(spec.name, spec.y, cells), by_series(cells, without))


def split_without_x(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Separate rows that have no x although others of their series have one.

    Those in the same panel.
    """
    has_x = rows["x"].notna()
    curves = has_x.groupby([rows["panel"], rows["series"]], sort=False)
    is_lost = ~has_x & curves.transform("any")
    return rows[~is_lost], rows[is_lost]


def by_series(cells: pd.DataFrame, more: pd.DataFrame | None = None) -> dict[str, int]:
    """Count what is left out of each series."""
    of_cells = cells.groupby("series", sort=False)["left_out"].sum()
    counts = {str(name): int(number) for name, number in of_cells.items()}
    if more is not None:
        for name in more["series"]:
            counts[name] = counts.get(name, 0) + 1
    return counts


def seeds_text(cells: pd.DataFrame) -> str:
    """Say how many seeds cells have."""
    fewest = int(cells["seeds"].min())
    most = int(cells["seeds"].max())
    if fewest == most:
        return counted(fewest, "seed")
    return f"{fewest} to {most} seeds"


def elbow_numbers(spec: ElbowSpec, selection: Selection) -> Numbers:
    """Mean cost curve of each panel and series.

    Returns
    -------
    Numbers
        Cells as of `means` with x = k, `chosen` (runs that chose this k) and `true`
        (whether it is the true one).
    """
    table = selection.rows
    curves = [_curve_of(value) for value in table[spec.y]]
    rows = tidy(
        spec.name,
        table,
        panel=spec.panel,
        series=spec.series,
        y="cost_curve",
    )
    rows["y"] = curves
    rows["chosen"] = math.nan
    if "n_found_clusters" in table:
        rows["chosen"] = numbers(spec.name, table, "n_found_clusters")
    rows["true"] = _true_k(spec, table)
    rows = rows[[len(curve) > 0 for curve in curves]]
    if rows.empty:
        raise DataError(
            f"figure {spec.name!r} needs {spec.y!r}, but no run has one: run with"
            " data.n_clusters=auto."
        )
    rows["x"] = [[float(k) for k in range(1, len(curve) + 1)] for curve in rows["y"]]
    long = rows.explode(["x", "y"]).astype({"x": np.float64, "y": np.float64})
    cells = means(long, ("panel", "series", "x"))
    n_chosen = rows.groupby(["panel", "series", "chosen"], sort=False).size().to_dict()
    true = set(rows.groupby(["panel", "true"], sort=False).groups)
    choices = zip(cells["panel"], cells["series"], cells["x"], strict=True)
    cells["chosen"] = [n_chosen.get(choice, 0) for choice in choices]
    panels = zip(cells["panel"], cells["x"], strict=True)
    cells["true"] = [panel_and_k in true for panel_and_k in panels]
    return Numbers(_finite(spec.name, spec.y, cells), by_series(cells))


def _curve_of(value: object) -> list[float]:
    """Read a cost curve: a list, or in CSV its text."""
    if isinstance(value, str):
        value = json.loads(value)
    if not isinstance(value, list | np.ndarray):
        return []
    return [float(cost) for cost in value]


def _true_k(spec: ElbowSpec, rows: pd.DataFrame) -> pd.Series:
    """Number of clusters that the data have, NaN where nothing says it."""
    if spec.true_k.isdigit():
        return pd.Series(float(spec.true_k), rows.index)
    if spec.true_k:
        return numbers(spec.name, rows, spec.true_k)
    if "data.n_clusters" not in rows:
        return pd.Series(math.nan, rows.index)
    n_clusters = pd.to_numeric(rows["data.n_clusters"], errors="coerce")
    return n_clusters.astype(np.float64)


def pareto_numbers(spec: ParetoSpec | SharesSpec, selection: Selection) -> Numbers:
    """Mean y and epsilon of every setting, and which settings no other one beats.

    Of the same series.

    Returns
    -------
    Numbers
        Cells as of `means` with x = mean epsilon (NaN without privacy), the settings'
        columns and `on_front`.
    """
    table = selection.rows
    settings = setting_columns(spec, table)
    rows = tidy(
        spec.name,
        table,
        panel=spec.panel,
        series=spec.series,
        y=spec.y,
        x=spec.x,
    )
    for column in settings:
        rows[column] = table[column].map(plain)
    if ASKED in rows:
        # Methods without privacy ask for nothing, whatever the sweep set.
        rows.loc[~private(table), ASKED] = "null"
    groups = ["panel", "series", *settings]
    cells = means(rows, groups)
    epsilons = (
        rows.groupby(
            groups,
            dropna=False,
            sort=False,
        )["x"]
        .mean()
        .to_numpy()
    )
    cells.insert(len(groups), "x", epsilons)
    left_out = by_series(cells)
    cells = _finite(spec.name, spec.y, cells)
    cells["on_front"] = False
    for _, of_series in cells.groupby(["panel", "series"], sort=False):
        cells.loc[front_of(of_series), "on_front"] = True
    return Numbers(cells, left_out)


def setting_columns(spec: ParetoSpec | SharesSpec, rows: pd.DataFrame) -> Columns:
    """Columns whose combinations are settings."""
    settings = list(spec.settings)
    if not settings:
        settings = [column for column in (_SHARES, _ROUNDS) if column in rows]
    if ASKED in rows and ASKED not in settings:
        settings.insert(0, ASKED)
    others = {*spec.series, *spec.panel}
    return tuple(column for column in settings if column not in others)


def front_of(cells: pd.DataFrame) -> list[int]:
    """Find the settings that no other one beats in both epsilon and y.

    Of those without epsilon, the lowest.

    Epsilons within 1% of each other are taken as equal: calibration leaves each a
    little below what was asked for.

    Returns
    -------
    list of int
        Their index, by epsilon.

    Examples
    --------
    >>> epsilons = [1.0, 0.5, 2.0, 0.995]
    >>> front_of(pd.DataFrame({"x": epsilons, "y": [3.0, 4.0, 3.5, 3.2]}))
    [1, 0]
    """
    epsilon = 0.0
    rounded = {}
    for index, value in cells["x"].fillna(0.0).sort_values().items():
        if value > 1.01 * epsilon:
            epsilon = value
        rounded[index] = epsilon
    costs = cells["y"]
    order = sorted(cells.index, key=lambda index: (rounded[index], costs[index]))
    front: list[int] = []
    for index in order:
        if not front or costs[index] < costs[front[-1]]:
            front.append(index)
    return front


def shares_numbers(spec: SharesSpec, selection: Selection) -> tuple[Numbers, Numbers]:
    """Mean budget shares of the settings on FedDP-KMeans' fronts.

    And fractions of them by number of Lloyd rounds.

    Returns
    -------
    tuple of Numbers
        Cells with one row for each panel: first the mean share of each step and
        `settings` (how many are on the front), then the fraction for each number of
        rounds.

    Raises
    ------
    DataError
        If there is no private run of FedDP-KMeans, or shares are not four positive
        numbers.
    """
    rows = selection.rows
    runs = rows[private(rows) & rows["algorithm.name"].eq(_SHARED)]
    if runs.empty:
        raise DataError(
            f"figure {spec.name!r} is about {_SHARED!r}, but no private run of it is"
            " done: add it."
        )
    complete = Selection(_with_shares(spec, runs), selection.n_failed)
    pareto = pareto_numbers(spec, complete)
    front = pareto.cells[pareto.cells["on_front"]]
    shares = []
    rounds = []
    numbers_of_rounds = in_order(["0", "1", "2", *front[_ROUNDS]])
    for panel, cells in front.groupby("panel", sort=False):
        splits = [[float(part) for part in text.split()] for text in cells[_SHARES]]
        parts = [float(cells[_ROUNDS].eq(n).mean()) for n in numbers_of_rounds]
        shares.append((panel, *np.mean(splits, axis=0), len(cells)))
        rounds.append((panel, *parts, len(cells)))
    round_names = [
        f"{n} round" if n == "1" else f"{n} rounds" for n in numbers_of_rounds
    ]
    by_step = pd.DataFrame(shares, columns=["panel", *SHARE_NAMES, "settings"])
    by_rounds = pd.DataFrame(rounds, columns=["panel", *round_names, "settings"])
    return Numbers(by_step, pareto.left_out), Numbers(by_rounds, pareto.left_out)


def _with_shares(spec: SharesSpec, rows: pd.DataFrame) -> pd.DataFrame:
    """Fill in what null stands for: the rule of thumb, and no Lloyd round."""
    shares = pd.Series(None, rows.index, dtype=object)
    if _SHARES in rows:
        shares = rows[_SHARES]
    units = pd.Series("record", rows.index)
    if "privacy.unit" in rows:
        units = rows["privacy.unit"]
    rounds = pd.Series(0.0, rows.index)
    if _ROUNDS in rows:
        rounds = numbers(spec.name, rows, _ROUNDS).fillna(0.0)
    texts = zip(shares.map(plain), units.map(plain), strict=True)
    split = [_split(spec, text, unit) for text, unit in texts]
    return rows.assign(**{_SHARES: split, _ROUNDS: rounds.map(plain).to_numpy()})


def _split(
    spec: SharesSpec,
    text: str,
    unit: str,
) -> str:
    """Normalise budget shares to the sum 1."""
    try:
        parts = RULE_OF_THUMB[PrivacyUnit(unit)] if text == "null" else _parts(text)
    except ValueError:
        raise DataError(
            f"figure {spec.name!r} found the budget shares {text!r} (unit {unit!r}),"
            ' but four positive numbers are needed: write them as "0.2 0.2 0.45 0.15".'
        ) from None
    total = math.fsum(parts)
    return " ".join(f"{part / total:.6g}" for part in parts)


def _parts(text: str) -> tuple[float, ...]:
    words = text.strip("[]()").replace(",", " ").split()
    parts = tuple(map(float, words))
    are_positive = all(0.0 < part < math.inf for part in parts)
    if len(parts) != len(SHARE_NAMES) or not are_positive:
        raise ValueError(text)
    return parts


def _finite(
    name: str,
    column: str,
    cells: pd.DataFrame,
) -> pd.DataFrame:
    """Keep the cells that have a mean."""
    finite = cells[cells["y"].notna()].reset_index(drop=True)
    if finite.empty:
        raise DataError(
            f"figure {name!r} shows {column!r}, but no run has a finite value of it:"
            " have it computed."
        )
    return finite
