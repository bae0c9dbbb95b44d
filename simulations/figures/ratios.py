"""The numbers of figures that compare.

Areas under cost over epsilon, their reductions, and ablations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from flwr_dpkmeans.errors import ConfigurationError, DataError, nearest
from simulations.experiments.clustering_metrics import area_under
from simulations.figures.kinds import AblationSpec, AreaSpec, HeatmapSpec
from simulations.figures.numbers import (
    Numbers,
    by_series,
    half_width,
    means,
    split_without_x,
)
from simulations.figures.table import (
    ASKED,
    Selection,
    counted,
    numbers,
    private,
    rows_with,
    tidy,
)

REDUCTION = "reduction"
_CELL = ["panel", "series", "x"]


def ratio_half_width(
    ratio: float,
    values: pd.Series,
    baseline: pd.Series,
) -> float:
    """Half the width of a 95% confidence interval of a ratio of two means.

    By the delta method.

    Parameters
    ----------
    ratio : float
        The ratio.
    values, baseline : Series
        By seed. Equal seeds share data and split, so they are taken in pairs.

    Returns
    -------
    float
        NaN for fewer than two seeds in common.

    Examples
    --------
    >>> ratio_half_width(0.5, pd.Series([1.0, 3.0]), pd.Series([2.0, 6.0]))
    0.0
    """
    both = pd.concat(
        [values, baseline],
        axis=1,
        join="inner",
    )
    pairs = both.to_numpy(dtype=np.float64)
    if len(pairs) < 2:
        return math.nan
    deviations = pairs[:, 0] - ratio * pairs[:, 1]
    return half_width(deviations) / float(baseline.mean())


def area_numbers(spec: AreaSpec, selection: Selection) -> Numbers:
    """Area under mean y over epsilon for each panel, series and x.

    Returns
    -------
    Numbers
        Cells as of `means`, where y is the area, divided by the baseline's if there is
        one.
    """
    areas, left_out, notes = _areas(spec, selection, spec.x)
    if spec.baseline:
        _require_series(spec.name, spec.baseline, areas["series"])
        baselines = areas[areas["series"] == spec.baseline]
        areas = _divided(areas, baselines, ["panel", "x"])
    cells = areas.drop(columns="by_seed")
    return Numbers(_comparable(spec.name, cells), left_out, notes)


def heatmap_numbers(spec: HeatmapSpec, selection: Selection) -> Numbers:
    """Area under mean y over epsilon for each series, row and column.

    And the reduction in percent, if there is a baseline.

    Returns
    -------
    Numbers
        Cells with `series`, `row`, `column` and `y`; in series "reduction" y is 100 (1
        - area of `of` / of `baseline`).
    """
    areas, left_out, notes = _areas(spec, selection, spec.columns, spec.rows)
    cells = areas.drop(columns=["by_seed", "low", "high"])
    cells = cells.rename(columns={"panel": "row", "x": "column"})
    if spec.baseline:
        for name in (spec.of, spec.baseline):
            _require_series(spec.name, name, cells["series"])
        by_cell = cells.set_index(["series", "row", "column"])["y"]
        ratio = by_cell[spec.of] / by_cell[spec.baseline]
        reduction = (100.0 * (1.0 - ratio)).dropna().reset_index()
        reduction["series"] = REDUCTION
        cells = pd.concat([cells, reduction], ignore_index=True)
    cells = cells[["series", "row", "column", "y", "seeds"]].astype({"seeds": "Int64"})
    return Numbers(_comparable(spec.name, cells), left_out, notes)


def ablation_numbers(spec: AblationSpec, selection: Selection) -> Numbers:
    """Mean y for each panel, series and x, divided by the mean of the baseline's rows.

    Returns
    -------
    Numbers
        Cells as of `means`, where y is the ratio.
    """
    rows = tidy(
        spec.name,
        selection.rows,
        panel=spec.panel,
        series=spec.series,
        y=spec.y,
        x=spec.x,
    )
    of_baseline = rows_with(spec.name, selection.rows, spec.baseline)
    is_baseline = rows.index.isin(of_baseline.index)
    baselines = []
    for panel, in_panel in rows[is_baseline].groupby("panel", sort=False):
        by_seed = _by_seed(in_panel)
        if len(by_seed):
            baselines.append((panel, by_seed.mean(), by_seed))
    # Rows of the baseline without x are the line at 1.
    with_x, without = split_without_x(rows[~is_baseline | rows["x"].notna()])
    cells = means(with_x, _CELL)
    left_out = by_series(cells, without)
    groups = with_x.groupby(
        _CELL,
        dropna=False,
        sort=False,
    )
    cells["by_seed"] = [_by_seed(in_cell) for _, in_cell in groups]
    means_of_panels = pd.DataFrame(baselines, columns=["panel", "y", "by_seed"])
    divided = _divided(cells, means_of_panels, ["panel"]).drop(columns="by_seed")
    return Numbers(_comparable(spec.name, divided), left_out)


def _by_seed(rows: pd.DataFrame) -> pd.Series:
    """Mean y of each seed."""
    return rows[np.isfinite(rows["y"])].groupby("seed")["y"].mean()


def _divided(
    cells: pd.DataFrame,
    baselines: pd.DataFrame,
    keys: list[str],
) -> pd.DataFrame:
    """Divide cells by the baselines of equal keys; NaN where there is none."""
    by_key = {}
    for row in baselines.to_dict("records"):
        key = tuple(row[name] for name in keys)
        by_key[key] = (row["y"], row["by_seed"])
    missing = (math.nan, pd.Series(dtype=float))
    ratios = []
    half_widths = []
    for row in cells.to_dict("records"):
        key = tuple(row[name] for name in keys)
        mean, by_seed = by_key.get(key, missing)
        ratio = row["y"] / mean if mean else math.nan
        ratios.append(ratio)
        half_widths.append(ratio_half_width(ratio, row["by_seed"], by_seed))
    y = np.array(ratios)
    half = np.array(half_widths)
    return cells.assign(
        y=y,
        low=y - half,
        high=y + half,
    )


def _areas(
    spec: AreaSpec | HeatmapSpec,
    selection: Selection,
    x: str,
    row: str = "",
) -> tuple[pd.DataFrame, dict[str, int], tuple[str, ...]]:
    """Areas of each panel (or row of a heat map), series and x.

    With `by_seed`, the same of each seed.
    """
    table = selection.rows
    rows = tidy(
        spec.name,
        table,
        panel=() if row else spec.panel,
        series=spec.series,
        y=spec.y,
        x=x,
    )
    if row:
        rows["panel"] = numbers(spec.name, table, row)
    rows["epsilon"] = numbers(spec.name, table, ASKED).where(private(table))
    epsilons = sorted(rows["epsilon"].dropna().unique())
    if len(epsilons) < 2:
        raise DataError(
            f"figure {spec.name!r} shows areas over epsilon, but the table has"
            f" {counted(len(epsilons), 'epsilon')}: run at least 2."
        )
    is_lost = rows["x"].isna() | rows["panel"].isna()
    complete = rows[~is_lost]
    cells = []
    n_empty = 0
    for key, in_cell in complete.groupby(_CELL, sort=False):
        area, by_seed = _area(in_cell, epsilons)
        n_empty += int(math.isnan(area))
        half = half_width(by_seed)
        cells.append((*key, area, area - half, area + half, len(by_seed), by_seed))
    columns = [*_CELL, "y", "low", "high", "seeds", "by_seed"]
    areas = pd.DataFrame(cells, columns=columns)
    left_out = by_series(means(complete, _CELL), rows[is_lost])
    if not n_empty:
        return areas, left_out, ()
    are = "cell is" if n_empty == 1 else "cells are"
    note = f"{n_empty} {are} empty, since an epsilon has no finite value there."
    return areas, left_out, (note,)


def _area(rows: pd.DataFrame, epsilons: Sequence[float]) -> tuple[float, pd.Series]:
    """Area under the mean, NaN if an epsilon has none: it would be smaller for that.

    And those of complete seeds.
    """
    finite = rows[np.isfinite(rows["y"])]
    groups = finite.groupby(["seed", "epsilon"], dropna=False)["y"]
    by_seed = groups.mean().unstack("epsilon")
    if finite["epsilon"].isna().all():
        # Without privacy the cost is one for all epsilons.
        columns = dict.fromkeys(epsilons, by_seed.iloc[:, 0]) if len(by_seed) else {}
        by_seed = pd.DataFrame(columns)
    by_seed = by_seed.reindex(columns=epsilons)
    areas = [area_under(epsilons, costs) for costs in by_seed.to_numpy()]
    of_seeds = pd.Series(areas, by_seed.index, dtype=float).dropna()
    return area_under(epsilons, by_seed.mean().to_list()), of_seeds


def _require_series(
    name: str,
    wanted: str,
    series: pd.Series,
) -> None:
    if wanted not in set(series):
        raise ConfigurationError(
            f"figure {name!r} compares with {wanted!r}, which no run has:"
            f" {nearest(wanted, set(series))}"
        )


def _comparable(name: str, cells: pd.DataFrame) -> pd.DataFrame:
    """Keep the cells that have a value."""
    finite = cells[np.isfinite(cells["y"])].reset_index(drop=True)
    if finite.empty:
        raise DataError(
            f"figure {name!r} has no cell with a finite value and baseline: run every"
            " epsilon for both."
        )
    return finite
