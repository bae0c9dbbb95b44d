"""How figures name and colour what they show.

One look for each series in all figures, readable names, units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import pandas as pd

from simulations.figures.kinds import Columns
from simulations.figures.table import NULL, SEPARATOR, in_order, joined

Dashes = tuple[float, ...]
SOLID: Dashes = ()
DASHED: Dashes = (5.0, 2.0)
DOTTED: Dashes = (1.2, 1.5)
DASH_DOT: Dashes = (6.0, 1.8, 1.2, 1.8)


@dataclass(frozen=True)
class Look:
    """How a series is drawn.

    Parameters
    ----------
    label : str
        In legends.
    colour : str
        Of Okabe and Ito's palette, which is distinguishable with any kind of colour
        vision.
    marker : str
        Of matplotlib.
    dashes : tuple of float
        Lengths of dashes and gaps; () for a solid line.
    """

    label: str
    colour: str
    marker: str
    dashes: Dashes = SOLID

    @property
    def line(self) -> str | tuple[float, Dashes]:
        """The line style as matplotlib takes it."""
        return (0.0, self.dashes) if self.dashes else "-"


# Where two methods share a colour (nine private methods, seven colours), markers and
# dashes differ.
METHODS: Mapping[str, Look] = MappingProxyType(
    {
        "fastlloyd": Look("FastLloyd", "#D55E00", "o"),
        "glloyd": Look("GLloyd", "#E69F00", "s", DASHED),
        "sulloyd": Look("SuLloyd", "#009E73", "^", DASH_DOT),
        "proxy_lloyd": Look("ProxyLloyd", "#CC79A7", "D"),
        "feddp_kmeans": Look("FedDP-KMeans", "#0072B2", "o"),
        "server_kmeans++": Look("server k-means++", "#56B4E9", "s", DASHED),
        "server_lloyd": Look("server Lloyd", "#009E73", "P", DOTTED),
        "sphere_packing": Look("sphere packing", "#E69F00", "v", DOTTED),
        "max_cover": Look("max cover", "#8C6D00", "X", DASHED),
        "balcan": Look("Balcan et al.", "#56B4E9", "<", DASH_DOT),
        "k_fed": Look("k-FED (not private)", "#999999", "d", DASH_DOT),
        "lloyd": Look("Lloyd (not private)", "#000000", "p", DASHED),
        "optimal": Look("central k-means (not private)", "#555555", "*", DOTTED),
    }
)
_COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#8C6D00",
)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_VARIANT_MARKERS = (">", "<", "h", "8", "H")
_DASHES = (SOLID, DASHED, DOTTED, DASH_DOT, (8.0, 2.0))
_DATA: Mapping[str, str] = MappingProxyType(
    {
        "adult": "Adult",
        "birch2": "Birch2",
        "breast": "Breast",
        "breast_cancer": "Breast Cancer",
        "census": "US Census",
        "digits": "Digits",
        "g2": "G2",
        "house": "House",
        "iris": "Iris",
        "lsun": "LSun",
        "max_cover": "64 Gaussians",
        "mixture": "Gaussian mixture",
        "mnist": "MNIST (test images)",
        "s1": "S1",
        "stack_overflow": "Stack Overflow",
        "synth": "Synth",
        "time_synth": "TimeSynth",
        "wine": "Wine",
        "yeast": "Yeast",
    }
)
_VALUES: Mapping[str, str] = MappingProxyType(
    {
        "data.n_clusters": "k = {}",
        "data.n_features": "d = {}",
        "data.separation": "separation {}",
        "data.missing_components": "server misses {} clusters",
        "data.seed": "data seed {}",
        "privacy.unit": "{} level",
        "privacy.epsilon": "epsilon {}",
        "algorithm.alpha": "alpha {}",
        "algorithm.max_iter": "{} rounds",
        "algorithm.post_processing": "{}",
        "algorithm.schedule": "{}",
        "data.source": "{}",
        "experiment": "{}",
        "partition.kind": "{} partition",
        "variant": "{}",
        "n_clients": "{} clients",
        "seed": "seed {}",
        "trust.name": "trust {}",
    }
)
_SINGLE: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("algorithm.max_iter", "1"): "1 round",
        ("algorithm.post_processing", "none"): "no post-processing",
        ("algorithm.radius_clipping", "true"): "radius clipping",
        ("algorithm.radius_clipping", "false"): "no radius clipping",
        # Classes of workers in the census.
        ("data.employment", "2"): "not-for-profit employees",
        ("data.employment", "5"): "federal employees",
        ("data.employment", "6"): "self-employed",
        ("data.missing_components", "1"): "server misses 1 cluster",
    }
)
COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "nicv": "cost per point (NICV)",
        "cost_per_point": "cost per point (squared units of the data)",
        "nicv_optimum": "cost per point of the optimum",
        "evaluation_cost": "cost per point, privately evaluated",
        "evaluation_accuracy": "accuracy, privately evaluated",
        "empty_clusters": "empty clusters",
        "silhouette": "silhouette score (-1 to 1)",
        "davies_bouldin": "Davies-Bouldin index",
        "calinski_harabasz": "Calinski-Harabasz index",
        "dunn": "Dunn index",
        "bcss": "between-cluster sum of squares",
        "centroid_error": "centroid error (mean squared)",
        "accuracy": "accuracy",
        "purity": "purity",
        "seconds": "time (s)",
        "cost_curve": "cost per unit of weight (squared units)",
        "epsilon": "total epsilon spent",
        "privacy.epsilon": "total epsilon",
        "data.n_features": "dimensions d",
        "data.n_clusters": "clusters k",
        "data.separation": "degree of separation",
        "data.missing_components": "clusters that the server misses",
        "algorithm.alpha": "radius constraint alpha",
        "algorithm.max_iter": "Lloyd rounds",
        "n_clients": "clients",
        "n_rows": "rows",
        "n_iterations": "iterations",
        "n_found_clusters": "clusters found",
    }
)


def column_label(column: str) -> str:
    """Name a column on an axis, with its unit."""
    return COLUMNS.get(column, column)


def readable(columns: Columns, text: str) -> str:
    """Write the joined values of columns for a legend or a panel.

    Examples
    --------
    >>> readable(("data.name", "privacy.unit", "n_clients"), "mixture / client / 1000")
    'Gaussian mixture, client level, 1000 clients'
    """
    values = text.split(SEPARATOR)
    if len(values) != len(columns):
        return text
    pairs = list(zip(columns, values, strict=True))
    # A run without a variant is just that.
    named = [
        _readable(column, value)
        for column, value in pairs
        if (column, value) != ("variant", NULL)
    ]
    return ", ".join(named) or "no variant"


def looks_of(columns: Columns, rows: pd.DataFrame) -> dict[str, Look]:
    """Choose the looks of all series of a table, in the order of legends.

    Methods have their own, and their variants (other columns beside the name) have
    their colour. Other values have theirs by their place among all values of the table,
    so that a series looks the same in all panels and figures that have these `columns`
    as series.
    """
    values = in_order(sorted(set(joined(rows, columns))))
    looks: dict[str, Look] = {}
    if "algorithm.name" in columns:
        place = columns.index("algorithm.name")
        # What has no value in the other columns is the method itself and comes first.
        plainest = sorted(values, key=lambda value: -value.split(SEPARATOR).count(NULL))
        for method, look in METHODS.items():
            looks_of_kind = [
                value for value in plainest if value.split(SEPARATOR)[place] == method
            ]
            looks |= {
                value: _variant(look, n, readable(columns, value))
                for n, value in enumerate(looks_of_kind)
            }
    for n, value in enumerate(value for value in values if value not in looks):
        looks[value] = _other(n, readable(columns, value) if columns else "all runs")
    return looks


def series_seen(looks: Mapping[str, Look], series: Sequence[str]) -> dict[str, Look]:
    """Keep the looks of the series that a figure shows."""
    return {name: look for name, look in looks.items() if name in set(series)}


def _other(place: int, label: str) -> Look:
    """The look of the series at a place; the first 280 differ from each other."""
    # Seven markers and eight colours have no common divisor, so that pairs repeat late.
    marker = _MARKERS[place % len(_MARKERS)]
    look = Look(label, _COLOURS[place % len(_COLOURS)], marker)
    return replace(look, dashes=_DASHES[place % len(_DASHES)])


def _variant(look: Look, place: int, label: str) -> Look:
    """The look of a method's n-th variant, in its colour; 0 is the method itself."""
    if place == 0:
        return replace(look, label=label)
    others = [dashes for dashes in _DASHES if dashes != look.dashes]
    marker = _VARIANT_MARKERS[(place - 1) % len(_VARIANT_MARKERS)]
    return Look(label, look.colour, marker, others[(place - 1) % len(others)])


def _readable(column: str, value: str) -> str:
    if column == "algorithm.name":
        return METHODS[value].label if value in METHODS else value
    if column == "data.name":
        return _DATA.get(value, value)
    if (column, value) in _SINGLE:
        return _SINGLE[column, value]
    if value == NULL:
        return f"no {column.rpartition('.')[2].replace('_', ' ')}"
    return _VALUES.get(
        column, f"{column.rpartition('.')[2].replace('_', ' ')} {{}}"
    ).format(value)
