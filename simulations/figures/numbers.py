"""The numbers of figures: means over seeds with their confidence, cost curves, Pareto
fronts and tables of shares.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.stats import t as student

from flwr_dpkmeans.algorithms.feddp_kmeans import RULE_OF_THUMB
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
_SHARES, _ROUNDS = "algorithm.budget_shares", "algorithm.max_iter"
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
    quantile = float(student.ppf(0.5 + CONFIDENCE / 2.0, len(values) - 1))
    return quantile * float(np.std(values, ddof=1)) / math.sqrt(len(values))


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
    for key, own in rows.groupby(list(groups), dropna=False, sort=False):
        finite = own[np.isfinite(own["y"])]
        per_seed = finite.groupby("seed", sort=False)["y"].mean().to_numpy()
        mean = float(per_seed.mean()) if len(per_seed) else math.nan
        half = half_width(per_seed)
        counts = (len(per_seed), len(own) - len(finite))
        cells.append((*key, mean, mean - half, mean + half, *counts))
    return pd.DataFrame(
        cells, columns=[*groups, "y", "low", "high", "seeds", "left_out"]
    )


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
    """Separate rows that have no x although others of their series in the same panel
    have one.
    """
    has_x = (
        rows["x"]
        .notna()
        .groupby([rows["panel"], rows["series"]], sort=False)
        .transform("any")
    )
    without = rows["x"].isna() & has_x
    return rows[~without], rows[without]


def by_series(cells: pd.DataFrame, more: pd.DataFrame | None = None) -> dict[str, int]:
    """Count what is left out of each series."""
    counts = cells.groupby("series", sort=False)["left_out"].sum()
    found = {str(name): int(number) for name, number in counts.items()}
    for name in [] if more is None else more["series"]:
        found[name] = found.get(name, 0) + 1
    return found


def seeds_text(cells: pd.DataFrame) -> str:
    """Say how many seeds cells have."""
    low, high = int(cells["seeds"].min()), int(cells["seeds"].max())
    return counted(low, "seed") if low == high else f"{low} to {high} seeds"


def elbow_numbers(spec: ElbowSpec, selection: Selection) -> Numbers:
    """Mean cost curve of each panel and series.

    Returns
    -------
    Numbers
        Cells as of `means` with x = k, `chosen` (runs that chose this k) and `true`
        (whether it is the true one).
    """
    given = selection.rows
    curves = [_curve_of(value) for value in given[spec.y]]
    rows = tidy(spec.name, given, panel=spec.panel, series=spec.series, y="cost_curve")
    rows["y"] = curves
    rows["chosen"] = (
        numbers(spec.name, given, "n_found_clusters")
        if "n_found_clusters" in given
        else math.nan
    )
    rows["true"] = _true_k(spec, given)
    rows = rows[[len(curve) > 0 for curve in curves]]
    if rows.empty:
        raise DataError(
            f"figure {spec.name!r} needs {spec.y!r}, but no run has one: run with"
            " data.n_clusters=auto."
        )
    rows["x"] = [[float(k) for k in range(1, len(curve) + 1)] for curve in rows["y"]]
    long = rows.explode(["x", "y"]).astype({"x": np.float64, "y": np.float64})
    cells = means(long, ("panel", "series", "x"))
    picked = rows.groupby(["panel", "series", "chosen"], sort=False).size().to_dict()
    true = set(rows.groupby(["panel", "true"], sort=False).groups)
    cells["chosen"] = [
        picked.get(key, 0)
        for key in zip(cells["panel"], cells["series"], cells["x"], strict=True)
    ]
    cells["true"] = [
        key in true for key in zip(cells["panel"], cells["x"], strict=True)
    ]
    return Numbers(_finite(spec.name, spec.y, cells), by_series(cells))


def _curve_of(value: object) -> list[float]:
    """Read a cost curve: a list, or in CSV its text."""
    if isinstance(value, str):
        value = json.loads(value)
    return (
        [float(cost) for cost in value] if isinstance(value, list | np.ndarray) else []
    )


def _true_k(spec: ElbowSpec, rows: pd.DataFrame) -> pd.Series:
    """Number of clusters that the data have, NaN where nothing says it."""
    if spec.true_k.isdigit():
        return pd.Series(float(spec.true_k), rows.index)
    if spec.true_k:
        return numbers(spec.name, rows, spec.true_k)
    known = (
        rows["data.n_clusters"]
        if "data.n_clusters" in rows
        else pd.Series(math.nan, rows.index)
    )
    return pd.to_numeric(known, errors="coerce").astype(np.float64)


def pareto_numbers(spec: ParetoSpec | SharesSpec, selection: Selection) -> Numbers:
    """Mean y and epsilon of every setting, and which settings no other one of the
    series beats.

    Returns
    -------
    Numbers
        Cells as of `means` with x = mean epsilon (NaN without privacy), the settings'
        columns and `on_front`.
    """
    given = selection.rows
    settings = setting_columns(spec, given)
    rows = tidy(
        spec.name, given, panel=spec.panel, series=spec.series, y=spec.y, x=spec.x
    )
    for column in settings:
        rows[column] = given[column].map(plain)
    if ASKED in rows:
        # Methods without privacy ask for nothing, whatever the sweep set.
        rows.loc[~private(given), ASKED] = "null"
    groups = ["panel", "series", *settings]
    cells = means(rows, groups)
    epsilons = rows.groupby(groups, dropna=False, sort=False)["x"].mean().to_numpy()
    cells.insert(len(groups), "x", epsilons)
    left_out = by_series(cells)
    cells = _finite(spec.name, spec.y, cells)
    cells["on_front"] = False
    for _, own in cells.groupby(["panel", "series"], sort=False):
        cells.loc[front_of(own), "on_front"] = True
    return Numbers(cells, left_out)


def setting_columns(spec: ParetoSpec | SharesSpec, rows: pd.DataFrame) -> Columns:
    """Columns whose combinations are settings."""
    named = spec.settings or tuple(
        column for column in (_SHARES, _ROUNDS) if column in rows
    )
    asked = (ASKED,) if ASKED in rows and ASKED not in named else ()
    return tuple(
        column
        for column in (*asked, *named)
        if column not in (*spec.series, *spec.panel)
    )


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
    >>> front_of(pd.DataFrame({"x": [1.0, 0.5, 2.0, 0.995], "y": [3.0, 4.0, 3.5, 3.2]}))
    [1, 0]
    """
    place, places = 0.0, {}
    for index, x in cells["x"].fillna(0.0).sort_values().items():
        place = x if x > 1.01 * place else place
        places[index] = place
    front: list[int] = []
    for index in sorted(
        cells.index, key=lambda index: (places[index], cells["y"][index])
    ):
        if not front or cells["y"][index] < cells["y"][front[-1]]:
            front.append(index)
    return front


def shares_numbers(spec: SharesSpec, selection: Selection) -> tuple[Numbers, Numbers]:
    """Mean budget shares of the settings on FedDP-KMeans' fronts, and fractions of them
    by number of Lloyd rounds.

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
    own = rows[private(rows) & rows["algorithm.name"].eq(_SHARED)]
    if own.empty:
        raise DataError(
            f"figure {spec.name!r} is about {_SHARED!r}, but no private run of it is"
            " done: add it."
        )
    found = pareto_numbers(spec, Selection(_with_shares(spec, own), selection.n_failed))
    front = found.cells[found.cells["on_front"]]
    shares, rounds = [], []
    numbers_of_rounds = in_order([*("0", "1", "2"), *front[_ROUNDS]])
    for panel, cells in front.groupby("panel", sort=False):
        split = np.mean(
            [[float(part) for part in text.split()] for text in cells[_SHARES]], axis=0
        )
        shares.append((panel, *split, len(cells)))
        rounds.append(
            (
                panel,
                *[float(cells[_ROUNDS].eq(n).mean()) for n in numbers_of_rounds],
                len(cells),
            )
        )
    headed = [f"{n} round{'' if n == '1' else 's'}" for n in numbers_of_rounds]
    return (
        Numbers(
            pd.DataFrame(shares, columns=["panel", *SHARE_NAMES, "settings"]),
            found.left_out,
        ),
        Numbers(
            pd.DataFrame(rounds, columns=["panel", *headed, "settings"]), found.left_out
        ),
    )


def _with_shares(spec: SharesSpec, rows: pd.DataFrame) -> pd.DataFrame:
    """Fill in what null stands for: the rule of thumb, and no Lloyd round."""
    shares = (
        rows[_SHARES] if _SHARES in rows else pd.Series(None, rows.index, dtype=object)
    )
    units = (
        rows["privacy.unit"]
        if "privacy.unit" in rows
        else pd.Series("record", rows.index)
    )
    split = [
        _split(spec, plain(text), plain(unit))
        for text, unit in zip(shares, units, strict=True)
    ]
    rounds = (
        numbers(spec.name, rows, _ROUNDS).fillna(0.0)
        if _ROUNDS in rows
        else pd.Series(0.0, rows.index)
    )
    return rows.assign(**{_SHARES: split, _ROUNDS: rounds.map(plain).to_numpy()})


def _split(spec: SharesSpec, text: str, unit: str) -> str:
    """Normalise budget shares to the sum 1."""
    try:
        parts = RULE_OF_THUMB[PrivacyUnit(unit)] if text == "null" else _parts(text)
    except ValueError:
        raise DataError(
            f"figure {spec.name!r} found the budget shares {text!r} (unit {unit!r}),"
            ' but four positive numbers are needed: write them as "0.2 0.2 0.45 0.15".'
        ) from None
    return " ".join(f"{part / math.fsum(parts):.6g}" for part in parts)


def _parts(text: str) -> tuple[float, ...]:
    parts = tuple(float(part) for part in text.strip("[]()").replace(",", " ").split())
    if len(parts) != len(SHARE_NAMES) or not all(
        0.0 < part < math.inf for part in parts
    ):
        raise ValueError(text)
    return parts


def _finite(name: str, column: str, cells: pd.DataFrame) -> pd.DataFrame:
    """Keep the cells that have a mean."""
    kept = cells[cells["y"].notna()].reset_index(drop=True)
    if kept.empty:
        raise DataError(
            f"figure {name!r} shows {column!r}, but no run has a finite value of it:"
            " have it computed."
        )
    return kept
