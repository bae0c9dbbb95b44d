"""A model that one can carry: one file with centroids, guarantee and origin.

``flwr-dpkmeans predict MODEL TABLE -o labels.csv`` applies it to a file of any length.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flwr_dpkmeans.algorithms.profile.profile_reading import Figure
from flwr_dpkmeans.data.arrays_of import as_array
from flwr_dpkmeans.data.columns.column_kind import Kind
from flwr_dpkmeans.data.files.formats.frames import frame_table
from flwr_dpkmeans.data.files.located import locate_file
from flwr_dpkmeans.data.files.raw_column import RawColumn
from flwr_dpkmeans.data.files.raw_table import RawTable
from flwr_dpkmeans.data.frame_names import frame_columns, require_names
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.data.table_labels import column_labels, require_same_labels
from flwr_dpkmeans.errors import DataError, LocalMisuseError, listed
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.blocks import row_blocks
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kmeans.centre_errors.intervals import NORMAL_QUANTILE, half_widths
from flwr_dpkmeans.log import printable
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.results.cautions.clear_centres import (
    Array,
)
from flwr_dpkmeans.results.cautions.gaps import Gaps
from flwr_dpkmeans.results.hierarchy import Hierarchy
from flwr_dpkmeans.results.model_file import model_of, plain_of
from flwr_dpkmeans.results.number_texts import number_texts
from flwr_dpkmeans.results.page import summary
from flwr_dpkmeans.results.profile import as_frame, profile
from flwr_dpkmeans.results.rendering import CONSOLE, HTML
from flwr_dpkmeans.results.whole_files import write_whole
from flwr_dpkmeans.sums.statement import LOCAL

if TYPE_CHECKING:
    import pandas as pd

Labels = NDArray[np.int64]
Names = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Model:
    """A clustering as it is applied.

    Nothing in it but what the run released, so it may go where that may go.

    Examples
    --------
    >>> import tempfile
    >>> from flwr_dpkmeans import FederatedKMeans
    >>> rows = np.linspace(-1.0, 1.0, 200).reshape(100, 2)
    >>> km = FederatedKMeans(2, bounds=(-1.0, 1.0), random_state=0, engine="direct")
    >>> km = km.fit([rows, rows])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = Model.load(km.save(Path(folder) / "model.json"))
    >>> bool((model.predict(rows) == km.predict(rows)).all()), model.centroids.shape
    (True, (2, 2))
    """

    scaled: Array = field(repr=False)
    """(n_clusters, n_features): centroids in the fitted space.

    Bounds are -1 and 1, rows belong to the nearest.
    """
    counts: Array = field(repr=False)
    """(n_clusters,), with noise."""
    bounds: Bounds
    """Of each column, in the units of the data: rows are clipped to them."""
    privacy: PrivacyReport = field(repr=False)
    """What the run guaranteed, with its provenance.

    What a party's own rows say in it is left out.
    """
    feature_names: Names = ()
    """Of the columns, in their order; empty: columns are taken by position."""
    schema: Schema | None = None
    """What tables are read by; None: their cells are numbers."""
    federated_profile: tuple[Figure, ...] = field(default=(), repr=False)
    """What the rows of each cluster are like, with noise, if the schema asks for it."""
    deviations: Array | None = field(default=None, repr=False)
    """(n_clusters, n_features): standard deviations of the centroids in the fitted
    space from the exact means of the rows that they label; None where nothing is known
    of them.
    """

    def __post_init__(self) -> None:
        sentences = self.privacy.warnings
        of_all = [text for text in sentences if not text.startswith(LOCAL)]
        report = replace(self.privacy, warnings=tuple(of_all))
        object.__setattr__(self, "privacy", report)
        shape = self.scaled.shape
        if len(shape) != 2 or self.counts.shape != shape[:1]:
            raise DataError("its centroids and counts are not those of one clustering.")
        if self.deviations is not None and self.deviations.shape != shape:
            raise DataError(
                "its centroids and their deviations are not those of one clustering."
            )
        n_features = shape[1]
        bounds = self.bounds.for_features(n_features)
        object.__setattr__(self, "bounds", bounds)
        names = self.feature_names
        if self.schema is not None:
            names = self.schema.feature_names
        names = require_names(names, n_features)
        object.__setattr__(self, "feature_names", names)

    @property
    def centroids(self) -> Array:
        """(n_clusters, n_features), in the units of the data."""
        return self.bounds.unscale(self.scaled)

    @property
    def sizes(self) -> Array:
        """(n_clusters,), with noise: counts, or what the rows weigh if they do."""
        return self.counts * self.privacy.weight_unit

    @property
    def gaps(self) -> Gaps:
        """Cells that are missing in the columns that are clustered, with noise."""
        n_clusters, n_features = self.scaled.shape
        figures = self.federated_profile
        return Gaps.of(
            self.schema,
            figures,
            n_clusters,
            n_features,
        )

    @property
    def cell_means(self) -> Array:
        """(n_clusters, n_features), in the units of the data.

        `centroids` as means of the cells that are there.

        In `centroids` a gap that stays in the clustering counts as the middle. NaN
        where it is not clear that a cluster has any cell of the column.
        """
        return self.gaps.means(self.centroids)

    @property
    def placed_means(self) -> Array:
        """(n_clusters, n_features), in the units of the data.

        `cell_means`, or `centroids` where these are NaN.
        """
        means = self.cell_means
        has_no_cells = np.isnan(means)
        return np.where(has_no_cells, self.centroids, means)

    @property
    def cluster_centers_error(self) -> Array:
        """(n_clusters, n_features), half-widths of 95% intervals around `centroids`.

        In the units of the data. Each is for the exact mean, of that column, of the
        rows that the model labels with that cluster; infinity where nothing is known.
        """
        box = self.bounds.lower, self.bounds.upper
        return half_widths(self.deviations, box, self.scaled.shape)

    @property
    def cell_means_error(self) -> Array:
        """(n_clusters, n_features), half-widths of 95% intervals around `cell_means`.

        In the units of the data; infinity where nothing is known.
        """
        deviations = self.cluster_centers_error / NORMAL_QUANTILE
        noise = self.gaps.noise(self.centroids, deviations)
        errors = NORMAL_QUANTILE * noise
        is_unknown = np.isnan(errors)
        return np.where(is_unknown, np.inf, errors)

    @property
    def names(self) -> Names:
        """Of the columns, or their numbers."""
        if self.feature_names:
            return self.feature_names
        n_features = self.scaled.shape[1]
        return tuple(f"feature {index}" for index in range(n_features))

    @property
    def shown_names(self) -> Names:
        """What stands before the values of `shown`."""
        return self.names if self.schema is None else self.schema.shown_names

    def shown(self) -> list[list[str]]:
        """The centroids' values as people read them, n_features lists of n_clusters.

        Dates as such, shares in %.
        """
        if self.schema is None:
            columns = self.centroids.T.tolist()
            return list(map(number_texts, columns))
        means = self.placed_means
        decoded = self.schema.decode(means)
        rows = list[list[str]]()
        for column, features in self.schema.features_of_columns:
            values = decoded[column.name]
            if column.kind == Kind.CATEGORY:
                for category in column.values:
                    name = str(category)
                    shares = [cluster[name] for cluster in values]
                    rows.append(_percents(shares))
            elif column.kind == Kind.FLAG:
                rows.append(_percents(values))
            elif column.kind == Kind.DATE:
                rows.append(values)
            else:
                rows.append(number_texts(values))
            if column.kind == Kind.CYCLE:
                # Far from the circle's middle, values are alike; near to it, their mean
                # says nothing.
                cosines, sines = means[:, features].T
                distances = np.hypot(cosines, sines)
                rows.append(number_texts(distances.tolist()))
        is_missing = np.isnan(self.cell_means).T
        for feature, cluster in np.argwhere(is_missing).tolist():
            rows[feature][cluster] = "missing"
        return rows

    def leading(self, most: int) -> list[int]:
        """Columns in which centroids differ most in the fitted space, in their order.

        At most so many.
        """
        middle = self.scaled.mean(axis=0)
        distances = np.abs(self.scaled - middle)
        reach = distances.max(axis=0)
        order = np.argsort(-reach, kind="stable")
        return sorted(order[:most].tolist())

    def __str__(self) -> str:
        """What the clusters are, what it cost, and warnings, for a console."""
        return summary(self, self.privacy, CONSOLE)

    def _repr_html_(self) -> str:
        return summary(self, self.privacy, HTML)

    def predict(self, X: ArrayLike) -> Labels:
        """Labels, (n_rows,), as `FederatedKMeans.predict` gives them.

        -1 where a schema leaves the row out.

        Without a schema, a row with a cell that is no finite number is a `DataError`.
        """
        labels = self.assign(X)["label"]
        if labels.empty:
            raise DataError(
                "the table has 0 rows, but at least 1 is needed to predict for: leave"
                " the call out, or give a row."
            )
        if self.schema is None and labels.isna().any():
            raise DataError(
                f"{labels.isna().sum()} rows have a cell that is missing or no finite"
                " number, but a label takes all of them: fill in the cells, or use"
                " assign, which gives such rows no label."
            )
        return labels.to_numpy(np.int64, na_value=-1)  # type: ignore[no-any-return]

    def assign(self, X: ArrayLike | RawTable) -> pd.DataFrame:
        """Find where rows of an array, (n_rows, n_features), or of a frame belong.

        A frame's columns are found by name. Returns a pandas.DataFrame with ``label``,
        ``distance`` (to that centroid) and ``margin`` (how much farther the next one
        is; infinite if there is none), both in the fitted space; none of them where a
        row has a cell that is missing or no finite number. A `DataError` names a column
        that is missing.
        """
        import pandas as pd

        points = self._points(X)
        n_rows = len(points)
        labels = np.full(n_rows, np.nan)
        distances = labels.copy()
        margins = labels.copy()
        is_whole = np.isfinite(points).all(axis=1)
        whole = np.flatnonzero(is_whole)
        squared_centres = np.square(self.scaled).sum(axis=1)
        for block in row_blocks(len(whole), sum(self.scaled.shape)):
            rows = whole[block]
            inside = round_to_grid(self.bounds.scale(points[rows]))
            nearest, squares = nearest_centroids(inside, self.scaled)
            # Exact on the grid, as the nearest one's.
            squared_rows = np.square(inside).sum(axis=1)
            products = inside @ self.scaled.T
            others = squared_rows[:, None] + squared_centres
            others -= 2.0 * products
            numbers = np.arange(len(rows))
            others[numbers, nearest] = np.inf
            least = np.maximum(others.min(axis=1), 0.0)
            to_nearest = np.sqrt(squares)
            further = np.sqrt(least) - to_nearest
            labels[rows] = nearest
            distances[rows] = to_nearest
            margins[rows] = np.maximum(further, 0.0)
        columns = {
            "label": labels,
            "distance": distances,
            "margin": margins,
        }
        frame = pd.DataFrame(columns)
        return frame.astype({"label": "Int64"})

    def _points(self, X: ArrayLike | RawTable) -> Array:
        """The model's columns as numbers, (n_rows, n_features).

        NaN in a row that a node would leave out.
        """
        if self.schema is not None:
            encoded = self.schema.clustered.encode(X)
            return encoded.spread(encoded.points, np.nan)
        raw = X if isinstance(X, RawTable) else self._raw_table(X)
        columns: Sequence[RawColumn] = raw.columns
        if raw.named and self.feature_names:
            columns = raw.one_each(self.feature_names, "the model")
        n_features = self.scaled.shape[1]
        if len(columns) != n_features:
            raise DataError(
                f"the table has {len(columns)} columns, but the model {n_features}:"
                " give just these, in its order."
            )
        names = [column.name for column in columns]
        numbers = list(map(str, range(n_features)))
        is_by_position = names in (numbers, list(self.names))
        if raw.named and not self.feature_names and not is_by_position:
            message = (
                "the model has no column names, so the table's"
                f" {listed(map(repr, names))} are taken by position."
            )
            warnings.warn(message, stacklevel=3)
        cells = [column.numbers() for column in columns]
        return np.stack(cells, axis=1)

    def _raw_table(self, X: ArrayLike) -> RawTable:
        """The columns of an array or a frame, named if it names them."""
        import pandas as pd

        if frame_columns(X):
            return replace(frame_table(X), named=True)
        cells = as_array(X)
        if cells.ndim != 2:
            raise DataError(
                f"the table has {cells.ndim} dimensions, but it must have 2: rows"
                " and columns."
            )
        if not self.feature_names:
            n_features = self.scaled.shape[1]
            require_same_labels(
                "the table has the columns",
                column_labels(X),
                "the model",
                range(n_features),
            )
        frame = pd.DataFrame(cells)
        return replace(frame_table(frame), named=False)

    def profile(self, table: object) -> pd.DataFrame:
        """Describe a data frame's rows by cluster (`flwr_dpkmeans.results.profile`).

        Exact, for their owner only.
        """
        frame = as_frame(table)
        labels = self.assign(frame)["label"]
        clusters = labels.to_numpy(np.int64, na_value=-1)
        return profile(frame, clusters, len(self.scaled))

    @property
    def hierarchy(self) -> Hierarchy:
        """Which clusters are merged first, for `cut`: its `sensible_k`, its `plot`."""
        return Hierarchy(self.scaled, self.counts, self.privacy.weight_unit)

    def cut(self, n_clusters: int) -> Model:
        """Merge clusters until so many are left, without any further cost of privacy.

        Of 40 clusters that are released once, cuts at 2 to 25 cost 1 to 3% more than
        runs of their own with the same epsilon, a third more where there are 10 rows
        for each of the 40. Of the profile and of the centroids' errors nothing is left,
        as rows are labelled by the new centroids.

        Parameters
        ----------
        n_clusters : int
            From 1 to the number of clusters.

        Examples
        --------
        >>> from flwr_dpkmeans import DPKMeans
        >>> rows = np.random.default_rng(0).uniform(-1.0, 1.0, (9000, 2))
        >>> fine = DPKMeans(20, bounds=(-1.0, 1.0), epsilon=1.0).fit(rows).model_
        >>> fine.cut(4).centroids.shape
        (4, 2)
        """
        centres, labels = self.hierarchy.settled(n_clusters)
        counts: Array = np.bincount(labels, self.counts).astype(np.float64)
        return replace(
            self,
            scaled=round_to_grid(centres),
            counts=counts,
            federated_profile=(),
            deviations=None,
        )

    def to_json(self) -> bytes:
        """The file's content; each number is read again as the same float64."""
        plain = plain_of(self)
        text = json.dumps(plain, indent=1, allow_nan=False)
        return text.encode() + b"\n"

    def save(self, path: str | Path) -> Path:
        """Write the file, whole or not at all; returns its absolute path."""
        return write_whole(Path(path), self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Model:
        """Read a file that `save` or a run wrote.

        A `DataError` of one sentence says what is wrong with another.
        """
        located = locate_file(path, "model", DataError)
        try:
            plain = json.loads(located.read_bytes())
            return model_of(plain, cls)
        except KeyError as error:
            problem = f"it has no {error}"
        except LocalMisuseError as error:
            problem = printable(error, 300).removesuffix(".")
        except (
            OSError,
            TypeError,
            AttributeError,
            ValueError,
            OverflowError,
            RecursionError,
        ) as error:
            problem = f"{type(error).__name__} in what it holds"
        raise DataError(
            f"the model {str(located)!r} cannot be read ({problem}): copy the file"
            " again, or use the version of flwr-dpkmeans that wrote it."
        )


def _percents(shares: Sequence[float]) -> list[str]:
    """Shares in percent."""
    return [f"{share:.0%}" for share in shares]
