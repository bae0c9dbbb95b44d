"""Data sets that come with scikit-learn, with public bounds, and the choice between them and files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from flwr_dpkmeans.data.bounds import Bounds
from flwr_dpkmeans.data.tables import Table, load_table, validate_points
from flwr_dpkmeans.errors import ConfigurationError, DataError, nearest


@dataclass(frozen=True)
class BundledData:
    """What is publicly known about a bundled data set.

    Attributes
    ----------
    n_examples, n_features, n_clusters : int
        The size, and the number of classes of the labels (which are not loaded).
    bounds : Bounds
        One range per feature, chosen from what the feature can plausibly be and never from its rows.
    feature_names : tuple of str
        The names that scikit-learn gives.
    image_shape : tuple of int, or None
        Height and width in pixels if each row is an image.
    """

    n_examples: int
    n_features: int
    n_clusters: int
    bounds: Bounds
    feature_names: tuple[str, ...]
    image_shape: tuple[int, int] | None = None


def _describe(n_examples: int, n_clusters: int, ranges: Mapping[str, tuple[float, float]]) -> BundledData:
    """Describe a data set by the range of each named feature."""
    lower, upper = zip(*ranges.values(), strict=True)
    return BundledData(n_examples, len(ranges), n_clusters, Bounds(lower, upper), tuple(ranges))


def _describe_digits() -> BundledData:
    """Describe the digits: each pixel counts the black points in a block of 4 by 4, hence 0 to 16."""
    names = tuple(f"pixel_{row}_{column}" for row in range(8) for column in range(8))
    return BundledData(1797, 64, 10, Bounds((0.0,) * 64, (16.0,) * 64), names, (8, 8))


# Lengths in cm of the flowers of the genus.
_IRIS = {
    "sepal length (cm)": (3.0, 9.0),
    "sepal width (cm)": (1.0, 5.0),
    "petal length (cm)": (0.0, 8.0),
    "petal width (cm)": (0.0, 3.0),
}

# Table wine: alcohol in percent by volume, substances in the customary units of must and wine analysis.
_WINE = {
    "alcohol": (10.0, 16.0),
    "malic_acid": (0.0, 8.0),
    "ash": (1.0, 4.0),
    "alcalinity_of_ash": (5.0, 35.0),
    "magnesium": (50.0, 200.0),
    "total_phenols": (0.0, 5.0),
    "flavanoids": (0.0, 6.0),
    "nonflavanoid_phenols": (0.0, 1.0),
    "proanthocyanins": (0.0, 5.0),
    "color_intensity": (0.0, 15.0),
    "hue": (0.0, 2.0),
    "od280/od315_of_diluted_wines": (0.0, 5.0),
    "proline": (0.0, 2000.0),
}

# Cell nuclei: the mean over an image, the standard error of that mean, and the mean of the three largest
# ("worst"), for lengths and areas in the units of the digitised image and for ratios without unit.
_BREAST_CANCER = {
    "mean radius": (5.0, 40.0),
    "mean texture": (5.0, 50.0),
    "mean perimeter": (30.0, 250.0),
    "mean area": (50.0, 3500.0),
    "mean smoothness": (0.0, 0.25),
    "mean compactness": (0.0, 0.5),
    "mean concavity": (0.0, 0.6),
    "mean concave points": (0.0, 0.3),
    "mean symmetry": (0.0, 0.5),
    "mean fractal dimension": (0.0, 0.15),
    "radius error": (0.0, 4.0),
    "texture error": (0.0, 6.0),
    "perimeter error": (0.0, 30.0),
    "area error": (0.0, 800.0),
    "smoothness error": (0.0, 0.05),
    "compactness error": (0.0, 0.2),
    "concavity error": (0.0, 0.5),
    "concave points error": (0.0, 0.1),
    "symmetry error": (0.0, 0.1),
    "fractal dimension error": (0.0, 0.05),
    "worst radius": (5.0, 50.0),
    "worst texture": (5.0, 60.0),
    "worst perimeter": (30.0, 300.0),
    "worst area": (50.0, 5000.0),
    "worst smoothness": (0.0, 0.3),
    "worst compactness": (0.0, 1.5),
    "worst concavity": (0.0, 1.5),
    "worst concave points": (0.0, 0.4),
    "worst symmetry": (0.0, 0.8),
    "worst fractal dimension": (0.0, 0.3),
}

BUNDLED: Mapping[str, BundledData] = MappingProxyType(
    {
        "digits": _describe_digits(),
        "iris": _describe(150, 3, _IRIS),
        "wine": _describe(178, 3, _WINE),
        "breast_cancer": _describe(569, 2, _BREAST_CANCER),
    }
)


TARGET_COLUMN = "target"
"""What scikit-learn calls the labels: rows of a bundled data set may be split by them."""


def load_bundled(name: str, *, partition_column: str = "") -> Table:
    """Load a bundled data set without its labels.

    Parameters
    ----------
    name : str
        A key of ``BUNDLED``: ``"digits"``, ``"iris"``, ``"wine"`` or ``"breast_cancer"``.
    partition_column : str
        ``"target"`` returns the labels beside the points, to split the rows by.

    Returns
    -------
    Table
        Points in the units of the data set, in the order of scikit-learn (often sorted by label).

    Raises
    ------
    ConfigurationError
        If the name is unknown, or there is no such partition column.

    Examples
    --------
    >>> load_bundled("iris").points.shape
    (150, 4)
    >>> BUNDLED["digits"].image_shape
    (8, 8)
    """
    if name not in BUNDLED:
        raise ConfigurationError(
            f"the data set is {name!r}, but only the names of bundled data sets are known here: "
            f"{nearest(name, BUNDLED)}"
        )
    if partition_column not in ("", TARGET_COLUMN):
        raise ConfigurationError(
            f"partition_column is {partition_column!r}, but the rows of the bundled data set {name!r} can be split by "
            f"{TARGET_COLUMN!r} only: give it, or another partition."
        )
    from sklearn import datasets

    description = BUNDLED[name]
    loaded = getattr(datasets, f"load_{name}")()
    points = validate_points(loaded.data, description.n_features)
    return Table(points, description.feature_names, loaded.target if partition_column else None)


def load_source(
    source: str,
    *,
    label_column: str = "",
    partition_column: str = "",
    ignored: Collection[str] = (),
    columns: Collection[str] = (),
    header: bool | None = None,
) -> Table:
    """Load a bundled data set by name, or else a file by path.

    Parameters
    ----------
    source : str
        A key of ``BUNDLED``, or a path as for ``load_table``. A bundled name wins over a file of the
        same name; write ``./iris`` for the file.
    label_column : str
        The column of a file to leave out; must be empty for a bundled data set.
    partition_column : str
        The column of a file, or ``"target"`` of a bundled data set, that is returned beside the points.
    ignored : collection of str
        Names of columns of a file to leave out where it has them.
    columns : collection of str
        Names of the only columns of a file to look at, as for ``load_table``.
    header : bool, optional
        Whether the first row of a .csv file holds names; None: guessed.

    Returns
    -------
    Table

    Raises
    ------
    ConfigurationError
        If the source is neither a bundled name nor looks like a path.
    DataError
        If the file cannot be used, or a label column is named for a bundled data set.

    Examples
    --------
    >>> load_source("wine").points.shape
    (178, 13)
    """
    if source in BUNDLED:
        if label_column:
            raise DataError(
                f"label_column is {label_column!r}, but the bundled data set {source!r} is loaded without its labels: "
                "leave label_column empty."
            )
        return load_bundled(source, partition_column=partition_column)
    if not _looks_like_path(source):
        raise ConfigurationError(
            f"the data source is {source!r}, but it must be a bundled data set or the path of a .csv, .npy, .npz or "
            f".parquet file: {nearest(source, BUNDLED)}"
        )
    return load_table(
        source,
        label_column=label_column,
        partition_column=partition_column,
        ignored=ignored,
        columns=columns,
        header=header,
    )


def _looks_like_path(source: str) -> bool:
    """Tell a path from a mistyped name: it has a suffix or a separator, or something is there."""
    return bool(source) and (bool(Path(source).suffix) or "/" in source or "\\" in source or Path(source).exists())
