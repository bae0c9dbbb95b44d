"""The kinds of figures of a results table, each a frozen specification.

`simulations.figures.specs` reads them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import ClassVar

Columns = tuple[str, ...]
Values = tuple[tuple[str, tuple[object, ...]], ...]
"""Columns with the values of theirs that are wanted."""


class Scale(Enum):
    """Of an axis."""

    LINEAR = "linear"
    LOG = "log"
    LOG2 = "log2"


@dataclass(frozen=True, kw_only=True)
class FigureSpec:
    """What all kinds of figures have.

    Parameters
    ----------
    name : str
        Of the files, without their endings.
    title : str
        Above the figure; "" for none.
    y : str
        Column of the metric.
    series : tuple of str
        Columns whose values tell lines from each other.
    panel : tuple of str
        Columns whose values have panels of their own; () for one panel.
    where : tuple of pairs
        Only rows with these values are used.
    footer : bool
        Whether sentences below say what is shown: seeds, what is left out, that noise
        was seeded.
    """

    kind: ClassVar[str]
    name: str
    title: str = ""
    y: str = "nicv"
    series: Columns = ("algorithm.name",)
    panel: Columns = ()
    where: Values = ()
    footer: bool = True


@dataclass(frozen=True, kw_only=True)
class CurveSpec(FigureSpec):
    """Mean y over x with the 95% confidence band of the mean.

    Parameters
    ----------
    x : str
        Column of numbers.
    x_scale, y_scale : Scale
        Of the axes.
    """

    kind: ClassVar[str] = "curve"
    x: str = "privacy.epsilon"
    x_scale: Scale = Scale.LINEAR
    y_scale: Scale = Scale.LINEAR


@dataclass(frozen=True, kw_only=True)
class AreaSpec(FigureSpec):
    """Area under mean y over `privacy.epsilon`, against x.

    Parameters
    ----------
    x : str
        Column of numbers.
    baseline : str
        Value of `series` by whose area the others are divided; "" for none.
    x_scale, y_scale : Scale
        Of the axes.
    """

    kind: ClassVar[str] = "auc"
    x: str = "data.n_features"
    baseline: str = ""
    x_scale: Scale = Scale.LOG2
    y_scale: Scale = Scale.LINEAR


@dataclass(frozen=True, kw_only=True)
class HeatmapSpec(FigureSpec):
    """The same area over two columns, one panel for each series.

    Parameters
    ----------
    rows, columns : str
        Columns of numbers.
    baseline, of : str
        Values of `series`: one more panel shows by how many percent the area of `of` is
        below that of `baseline`.
    """

    kind: ClassVar[str] = "heatmap"
    rows: str = "data.n_clusters"
    columns: str = "data.n_features"
    baseline: str = ""
    of: str = ""


@dataclass(frozen=True, kw_only=True)
class ParetoSpec(FigureSpec):
    """Mean y against epsilon of every setting, with the front of each series.

    Parameters
    ----------
    x : str
        Column of epsilon: `epsilon` (spent) or `privacy.epsilon` (asked for).
    settings : tuple of str
        Columns over which seeds are not averaged, beside `privacy.epsilon`; () for
        those that the table has of `algorithm.budget_shares` and `algorithm.max_iter`.
    x_scale, y_scale : Scale
        Of the axes.
    """

    kind: ClassVar[str] = "pareto"
    x: str = "epsilon"
    settings: Columns = ()
    x_scale: Scale = Scale.LOG
    y_scale: Scale = Scale.LINEAR


@dataclass(frozen=True, kw_only=True)
class SharesSpec(FigureSpec):
    """Tables of the settings on feddp_kmeans' fronts.

    Mean budget shares, and fractions by number of Lloyd rounds.

    Parameters
    ----------
    x : str
        As in `ParetoSpec`.
    settings : tuple of str
        As in `ParetoSpec`.
    """

    kind: ClassVar[str] = "shares"
    panel: Columns = ("data.name", "privacy.unit", "n_clients")
    x: str = "epsilon"
    settings: Columns = ()


@dataclass(frozen=True, kw_only=True)
class AblationSpec(FigureSpec):
    """Mean y over x for each series, divided by the mean of some rows.

    Parameters
    ----------
    x : str
        Column of numbers.
    baseline : tuple of pairs
        The rows that are divided by: columns and their values.
    x_scale, y_scale : Scale
        Of the axes.
    """

    kind: ClassVar[str] = "ablation"
    series: Columns = ("algorithm.schedule", "algorithm.post_processing")
    x: str = "algorithm.alpha"
    baseline: Values
    x_scale: Scale = Scale.LINEAR
    y_scale: Scale = Scale.LINEAR


@dataclass(frozen=True, kw_only=True)
class ElbowSpec(FigureSpec):
    """Mean `cost_curve` over the number of clusters, with the chosen and the true
    number.

    Parameters
    ----------
    true_k : str
        The number itself or a column that has it; "" for `data.n_clusters` where it is
        a number.
    y_scale : Scale
        Of the axis.
    """

    kind: ClassVar[str] = "elbow"
    y: str = "cost_curve"
    true_k: str = ""
    y_scale: Scale = Scale.LINEAR


KINDS: Mapping[str, type[FigureSpec]] = MappingProxyType(
    {
        kind.kind: kind
        for kind in (
            CurveSpec,
            AreaSpec,
            HeatmapSpec,
            ParetoSpec,
            SharesSpec,
            AblationSpec,
            ElbowSpec,
        )
    }
)


def keys_of(kind: type[FigureSpec]) -> tuple[str, ...]:
    """Keys that a specification of a kind may have, beside `kind`."""
    return tuple(field.name for field in dataclasses.fields(kind))
