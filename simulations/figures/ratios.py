"""The numbers of figures that compare: areas under cost over epsilon, their reductions,
and ablations.
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


def ratio_half_width(found: float, values: pd.Series, baseline: pd.Series) -> float:
    """Half the width of the 95% confidence interval of a ratio of two means, by the
    delta method.

    Parameters
    ----------
    found : float
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
    pairs = pd.concat([values, baseline], axis=1, join="inner").to_numpy(
        dtype=np.float64
    )
    return (
        half_width(pairs[:, 0] - found * pairs[:, 1]) / float(baseline.mean())
        if len(pairs) > 1
        else math.nan
    )


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
        own = areas[areas["series"] == spec.baseline]
        areas = _divided(areas, own, ["panel", "x"])
    cells = areas.drop(columns="by_seed")
    return Numbers(_comparable(spec.name, cells), left_out, notes)


def heatmap_numbers(spec: HeatmapSpec, selection: Selection) -> Numbers:
    """Area under mean y over epsilon for each series, row and column, and the reduction
    in percent.

    Returns
    -------
    Numbers
        Cells with `series`, `row`, `column` and `y`; in series "reduction" y is 100 (1
        - area of `of` / of `baseline`).
    """
    areas, left_out, notes = _areas(spec, selection, spec.columns, spec.rows)
    cells = areas.drop(columns=["by_seed", "low", "high"]).rename(
        columns={"panel": "row", "x": "column"}
    )
    if spec.baseline:
        own = {}
        for name in (spec.of, spec.baseline):
            _require_series(spec.name, name, cells["series"])
            own[name] = cells[cells["series"] == name].set_index(["row", "column"])["y"]
        reduction = (
            (100.0 * (1.0 - own[spec.of] / own[spec.baseline])).dropna().reset_index()
        )
        cells = pd.concat(
            [cells, reduction.assign(series=REDUCTION)], ignore_index=True
        )
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
    is_baseline = rows.index.isin(
        rows_with(spec.name, selection.rows, spec.baseline).index
    )
    baselines = pd.DataFrame(
        [
            (panel, by_seed.mean(), by_seed)
            for panel, own in rows[is_baseline].groupby("panel", sort=False)
            if len(by_seed := _by_seed(own))
        ],
        columns=["panel", "y", "by_seed"],
    )
    # Rows of the baseline without x are the line at 1.
    kept, without = split_without_x(rows[~is_baseline | rows["x"].notna()])
    cells = means(kept, _CELL)
    left_out = by_series(cells, without)
    cells["by_seed"] = [
        _by_seed(own) for _, own in kept.groupby(_CELL, dropna=False, sort=False)
    ]
    divided = _divided(cells, baselines, ["panel"]).drop(columns="by_seed")
    return Numbers(_comparable(spec.name, divided), left_out)


def _by_seed(rows: pd.DataFrame) -> pd.Series:
    """Mean y of each seed."""
    return rows[np.isfinite(rows["y"])].groupby("seed")["y"].mean()


def _divided(
    cells: pd.DataFrame, baselines: pd.DataFrame, keys: list[str]
) -> pd.DataFrame:
    """Divide cells by the baselines of equal keys; NaN where there is none."""
    found = {
        tuple(row[key] for key in keys): (row["y"], row["by_seed"])
        for row in baselines.to_dict("records")
    }
    divided = []
    for row in cells.to_dict("records"):
        mean, by_seed = found.get(
            tuple(row[key] for key in keys), (math.nan, pd.Series(dtype=float))
        )
        value = row["y"] / mean if mean else math.nan
        half = ratio_half_width(value, row["by_seed"], by_seed)
        divided.append((value, value - half, value + half))
    return cells.assign(
        **dict(zip(("y", "low", "high"), np.transpose(divided), strict=True))
    )


def _areas(
    spec: AreaSpec | HeatmapSpec, selection: Selection, x: str, row: str = ""
) -> tuple[pd.DataFrame, dict[str, int], tuple[str, ...]]:
    """Areas of each panel (or row of a heat map), series and x, with `by_seed`.

    The same of each seed.
    """
    given = selection.rows
    rows = tidy(
        spec.name,
        given,
        panel=() if row else spec.panel,
        series=spec.series,
        y=spec.y,
        x=x,
    )
    if row:
        rows["panel"] = numbers(spec.name, given, row)
    rows = rows.assign(epsilon=numbers(spec.name, given, ASKED).where(private(given)))
    epsilons = sorted(rows["epsilon"].dropna().unique())
    if len(epsilons) < 2:
        raise DataError(
            f"figure {spec.name!r} shows areas over epsilon, but the table has"
            f" {counted(len(epsilons), 'epsilon')}: run at least 2."
        )
    lost = rows["x"].isna() | rows["panel"].isna()
    kept, cells, incomplete = rows[~lost], [], 0
    for key, own in kept.groupby(_CELL, sort=False):
        area, by_seed = _area(own, epsilons)
        incomplete += int(math.isnan(area))
        half = half_width(by_seed)
        cells.append((*key, area, area - half, area + half, len(by_seed), by_seed))
    left_out = by_series(means(kept, _CELL), rows[lost])
    are = "cell is" if incomplete == 1 else "cells are"
    notes = (
        (f"{incomplete} {are} empty, since an epsilon has no finite value there.",)
        if incomplete
        else ()
    )
    return (
        pd.DataFrame(cells, columns=[*_CELL, "y", "low", "high", "seeds", "by_seed"]),
        left_out,
        notes,
    )


def _area(rows: pd.DataFrame, epsilons: Sequence[float]) -> tuple[float, pd.Series]:
    """Area under the mean, NaN if an epsilon has none: it would be smaller for that.

    And those of complete seeds.
    """
    finite = rows[np.isfinite(rows["y"])]
    by_seed = (
        finite.groupby(["seed", "epsilon"], dropna=False)["y"].mean().unstack("epsilon")
    )
    if finite["epsilon"].isna().all():
        # Without privacy the cost is one for all epsilons.
        by_seed = pd.DataFrame(
            dict.fromkeys(epsilons, by_seed.iloc[:, 0]) if len(by_seed) else {}
        )
    by_seed = by_seed.reindex(columns=epsilons)
    areas = pd.Series(
        [area_under(epsilons, own) for own in by_seed.to_numpy()],
        by_seed.index,
        dtype=float,
    ).dropna()
    return area_under(epsilons, by_seed.mean().to_list()), areas


def _require_series(name: str, wanted: str, series: pd.Series) -> None:
    if wanted not in set(series):
        raise ConfigurationError(
            f"figure {name!r} compares with {wanted!r}, which no run has:"
            f" {nearest(wanted, set(series))}"
        )


def _comparable(name: str, cells: pd.DataFrame) -> pd.DataFrame:
    """Keep the cells that have a value."""
    kept = cells[np.isfinite(cells["y"])].reset_index(drop=True)
    if kept.empty:
        raise DataError(
            f"figure {name!r} has no cell with a finite value and baseline: run every"
            " epsilon for both."
        )
    return kept
