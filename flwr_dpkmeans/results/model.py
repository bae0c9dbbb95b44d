"""A model that one can carry: one file with centroids, guarantee and origin.

``flwr-dpkmeans predict MODEL TABLE -o labels.csv`` applies it to a file of any length.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import TypeAdapter

from flwr_dpkmeans.algorithms.profile.profile_reading import Figure
from flwr_dpkmeans.data.columns.column_kind import Kind
from flwr_dpkmeans.data.files.frames import frame_table
from flwr_dpkmeans.data.files.raw_table import RawTable
from flwr_dpkmeans.data.files.reader import locate_file
from flwr_dpkmeans.data.points import (
    Bounds,
    as_array,
    column_labels,
    frame_columns,
    require_names,
    require_same_labels,
)
from flwr_dpkmeans.data.schema import Scale, Schema
from flwr_dpkmeans.errors import DataError, LocalMisuseError, column_names, listed
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.blocks import row_blocks
from flwr_dpkmeans.kernels.grid import GRID, round_to_grid
from flwr_dpkmeans.kmeans.centre_errors.intervals import NORMAL_QUANTILE, half_widths
from flwr_dpkmeans.log import printable
from flwr_dpkmeans.privacy.released_counts import counts_deviation
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.results.clear_centres import (
    Array,
    Cautions,
    Radius,
    clear_clusters,
)
from flwr_dpkmeans.results.gaps import Gaps, gap_cautions
from flwr_dpkmeans.results.number_texts import number_texts
from flwr_dpkmeans.results.page import CONSOLE, HTML, summary
from flwr_dpkmeans.results.profile import as_frame, profile
from flwr_dpkmeans.results.whole_files import write_whole
from flwr_dpkmeans.sums.statement import LOCAL

_FEW_STEPS = 64.0  # then the grid moves a difference of centroids by up to 1.6%
# part of a column's range; the deviation of values that are spread over all of it is
# 0.29
_DROWNED = 0.25
_FEWEST_COLUMNS = 3
_MOST, _MOST_OF_FEW = 0.5, 0.9
"""Parts of the centres' squared distances above which one column decides, of many
differences and of few.
"""
_AT_ENDS = (Kind.FLAG, Kind.CATEGORY)
"""Kinds whose values are only at the ends of their range."""
# columns times independent differences of centres; of random ones few have a column of
# half
_MANY_DIFFERENCES = 10
_RELATIVE_SUMS = ("residual_sums", "relative_sums")
_SUMS_FROM_A_MIDDLE = ("clipped_sums", "means")
_SUMS = (*_RELATIVE_SUMS, *_SUMS_FROM_A_MIDDLE, "sums")

_ERRORS = {"cluster_centers_error", "deviations"}
_FIGURES: TypeAdapter[tuple[Figure, ...]] = TypeAdapter(tuple[Figure, ...])
_REPORT: TypeAdapter[PrivacyReport] = TypeAdapter(PrivacyReport)


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
    feature_names: tuple[str, ...] = ()
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
        warnings_of_all = tuple(
            sentence
            for sentence in self.privacy.warnings
            if not sentence.startswith(LOCAL)
        )
        report = replace(self.privacy, warnings=warnings_of_all)
        object.__setattr__(self, "privacy", report)
        if self.scaled.ndim != 2 or self.counts.shape != self.scaled.shape[:1]:
            raise DataError("its centroids and counts are not those of one clustering.")
        if self.deviations is not None and self.deviations.shape != self.scaled.shape:
            raise DataError(
                "its centroids and their deviations are not those of one clustering."
            )
        n_features = self.scaled.shape[1]
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
    def gaps(self) -> Gaps:
        """Cells that are missing in the columns that are clustered, with noise."""
        n_clusters, n_features = self.scaled.shape
        figures = self.federated_profile
        return Gaps.of(self.schema, figures, n_clusters, n_features)

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
        return np.where(np.isnan(means), self.centroids, means)

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
        return np.where(np.isnan(errors), np.inf, errors)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns, or their numbers."""
        if self.feature_names:
            return self.feature_names
        n_features = self.scaled.shape[1]
        return tuple(f"feature {index}" for index in range(n_features))

    @property
    def shown_names(self) -> tuple[str, ...]:
        """What stands before the values of `shown`."""
        return self.names if self.schema is None else self.schema.shown_names

    def shown(self) -> list[list[str]]:
        """The centroids' values as people read them, n_features lists of n_clusters.

        Dates as such, shares in %.
        """
        if self.schema is None:
            return list(map(number_texts, self.centroids.T.tolist()))
        means = self.placed_means
        decoded = self.schema.decode(means)
        rows = list[list[str]]()
        for column, features in self.schema.features_of_columns:
            values = decoded[column.name]
            if column.kind == Kind.CATEGORY:
                for category in column.values:
                    shares = [cluster[str(category)] for cluster in values]
                    rows.append(list(map(_percent, shares)))
            elif column.kind == Kind.FLAG:
                rows.append(list(map(_percent, values)))
            elif column.kind == Kind.DATE:
                rows.append(values)
            else:
                rows.append(number_texts(values))
            if column.kind == Kind.CYCLE:
                # Far from the circle's middle, values are alike; near to it, their mean
                # says nothing.
                distances = np.hypot(*means[:, features].T)
                rows.append(number_texts(distances.tolist()))
        is_missing = np.isnan(self.cell_means).T
        for feature, cluster in np.argwhere(is_missing).tolist():
            rows[feature][cluster] = "missing"
        return rows

    def gap_cautions(self) -> Cautions:
        """Warn where many cells of a clustered column are missing."""
        return gap_cautions(self.schema, self.federated_profile)

    def leading(self, most: int) -> list[int]:
        """Columns in which centroids differ most in the fitted space, in their order.

        At most so many.
        """
        differences = self.scaled - self.scaled.mean(axis=0)
        reach = np.abs(differences).max(axis=0)
        order = np.argsort(-reach, kind="stable")
        return sorted(order[:most].tolist())

    def centre_noise(self, radius: Radius = None) -> Array | None:
        """Length of the noise in each centre, (k,), root mean square, in scaled units.

        Of the last released sums, to first order in the noise over the count; `radius`
        is what residuals were divided by, of all or of each. None if it is unknown.
        """
        releases = reversed(self.privacy.releases)
        last = next((line for line in releases if line.array in _SUMS), None)
        counts = counts_deviation(self.privacy)
        if last is None or counts is None:
            return None
        unit = radius if last.array == "residual_sums" else 1.0
        if unit is None:
            return None
        root = math.sqrt(self.scaled.shape[1])
        of_sums = last.standard_deviation * unit * root
        of_counts: float | Array = 0.0
        if last.array not in _RELATIVE_SUMS:
            # A sum that is not relative to its own centre moves with the noise of its
            # count, too. It is relative to the middle of the box or to the mean of a
            # server's points, which is not known here: about that of the centroids.
            reach = np.linalg.norm(self.scaled, axis=1)
            if last.array in _SUMS_FROM_A_MIDDLE:
                from_mean = self.scaled - self.scaled.mean(axis=0)
                reach = np.maximum(reach, np.linalg.norm(from_mean, axis=1))
            of_counts = counts * reach
        noise = np.hypot(of_sums, of_counts)
        lengths: Array = noise / np.maximum(self.counts, 1.0)
        # No centre is farther off than the box is wide, nor told more finely than the
        # grid of the rows.
        return np.clip(lengths, root / GRID, 2.0 * root)

    def drowned(self, radius: Radius = None) -> Cautions:
        """Warn of columns where noise moves a clear centre by a quarter of the range.

        A column that weighs little in a schema fills little of its box, and the noise
        is as large in all of them. Of bounds so wide that the grid itself hides what
        the centroids differ in, warn instead.
        """
        if self.is_coarse:
            return (report_sentence("coarse", steps=self._steps),)
        columns = self.drowned_columns(radius)
        if not columns:
            return ()
        return (
            report_sentence(
                "drowned", columns=column_names(columns, self.feature_names)
            ),
        )

    @property
    def is_coarse(self) -> bool:
        """Whether bounds are so wide that the grid hides how the centroids differ."""
        return 0.0 < self._steps < _FEW_STEPS

    @property
    def _steps(self) -> float:
        """Steps of the grid that the centroids are apart, at most in any column."""
        return float(np.ptp(self.scaled, axis=0).max() * GRID)

    def drowned_columns(self, radius: Radius = None) -> list[int]:
        """Columns in which noise moves a clear centre by a quarter of the range."""
        noise = self.centre_noise(radius)
        clear = clear_clusters(self)
        if noise is None or len(clear) == 0:
            return []
        low: Sequence[float] = self.bounds.lower
        high: Sequence[float] = self.bounds.upper
        if self.schema is not None:
            ranges = list[tuple[float, float]]()
            for column in self.schema.clustered.columns:
                ranges += [column.range] * len(column.features)
            low, high = zip(*ranges, strict=True)
        ends = self.bounds.scale([low, high])
        widths = np.ptp(ends, axis=0)
        coordinate_noise = noise[clear].max() / math.sqrt(len(widths))
        is_drowned = coordinate_noise > _DROWNED * widths
        columns: list[int] = np.flatnonzero(is_drowned).tolist()
        return columns

    def dominated(self) -> Cautions:
        """Warn of a column that makes most of the distances between the centres.

        The clusters are then parts of it.

        A flag or a category is only at the ends of its range, so that it outweighs
        numbers of the same weight. Among few numbers and clusters a number often makes
        half of the distances, and nothing is wrong.
        """
        clear = self.scaled[clear_clusters(self)]
        names = list(self.names)
        widths = [1] * len(names)
        are_numbers = [True] * len(names)
        if self.schema is not None:
            columns = self.schema.clustered.columns
            names = [column.name for column in columns]
            widths = [len(column.features) for column in columns]
            are_numbers = [column.kind not in _AT_ENDS for column in columns]
        if len(names) < _FEWEST_COLUMNS or len(clear) < 2:
            return ()
        # Of all pairs of centres, but for a factor.
        squares = np.square(clear - clear.mean(axis=0)).sum(axis=0)
        total = max(float(squares.sum()), np.finfo(float).tiny)
        first_features = np.cumsum([0, *widths[:-1]])
        parts = np.add.reduceat(squares, first_features) / total
        largest = int(parts.argmax())
        part = float(parts[largest])
        n_differences = len(names) * (len(clear) - 1)
        is_of_few = are_numbers[largest] and n_differences < _MANY_DIFFERENCES
        if part <= (_MOST_OF_FEW if is_of_few else _MOST):
            return ()
        mend = ", or wider bounds, or all columns scale = 'standard' in a schema"
        # Bounds do not say how far a column reaches where deviations do.
        if self.schema is not None and self.schema.scale == Scale.STANDARD:
            mend = ""
        name = repr(names[largest])
        return (report_sentence("dominated", column=name, part=part, mend=mend),)

    def __str__(self) -> str:
        """What the clusters are, what it cost, and warnings, for a console."""
        return summary(self, self.privacy, CONSOLE)

    def _repr_html_(self) -> str:
        return summary(self, self.privacy, HTML)

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
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

    def assign(self, X: Any) -> Any:
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
        distances = np.full(n_rows, np.nan)
        margins = np.full(n_rows, np.nan)
        is_whole = np.isfinite(points).all(axis=1)
        whole = np.flatnonzero(is_whole)
        squared_centres = np.square(self.scaled).sum(axis=1)
        for block in row_blocks(len(whole), sum(self.scaled.shape)):
            rows = whole[block]
            inside = round_to_grid(self.bounds.scale(points[rows]))
            nearest, squares = nearest_centroids(inside, self.scaled)
            # Exact on the grid, as the nearest one's.
            squared_rows = np.square(inside).sum(axis=1)
            others = squared_rows[:, None] + squared_centres
            others -= 2.0 * (inside @ self.scaled.T)
            others[np.arange(len(rows)), nearest] = np.inf
            to_next = np.sqrt(np.maximum(others.min(axis=1), 0.0))
            to_nearest = np.sqrt(squares)
            labels[rows] = nearest
            distances[rows] = to_nearest
            margins[rows] = np.maximum(to_next - to_nearest, 0.0)
        columns = {"label": labels, "distance": distances, "margin": margins}
        return pd.DataFrame(columns).astype({"label": "Int64"})

    def _points(self, X: Any) -> NDArray[np.float64]:
        """The model's columns as numbers, (n_rows, n_features).

        NaN in a row that a node would leave out.
        """
        import pandas as pd

        if self.schema is not None:
            encoded = self.schema.clustered.encode(X)
            return encoded.spread(encoded.points, np.nan)
        raw = X
        if not isinstance(X, RawTable):
            named = bool(frame_columns(X))
            frame = X
            if not named:
                cells = as_array(X)
                frame = None if cells.ndim != 2 else pd.DataFrame(cells)
            if frame is None:
                raise DataError(
                    f"the table has {cells.ndim} dimensions, but it must have 2: rows"
                    " and columns."
                )
            if not (named or self.feature_names):
                whose = range(self.scaled.shape[1])
                require_same_labels(
                    "the table has the columns", column_labels(X), "the model", whose
                )
            raw = replace(frame_table(frame), named=named)
        columns = raw.columns
        if raw.named and self.feature_names:
            columns = raw.one_each(self.feature_names, "the model")
        n_features = self.scaled.shape[1]
        if len(columns) != n_features:
            raise DataError(
                f"the table has {len(columns)} columns, but the model {n_features}:"
                " give just these, in its order."
            )
        names = [column.name for column in columns]
        by_position = [list(self.names), list(map(str, range(n_features)))]
        if raw.named and not self.feature_names and names not in by_position:
            message = (
                "the model has no column names, so the table's"
                f" {listed(map(repr, names))} are taken by position."
            )
            warnings.warn(message, stacklevel=3)
        return np.stack([column.numbers() for column in columns], axis=1)

    def profile(self, table: Any) -> Any:
        """Describe a data frame's rows by cluster (`flwr_dpkmeans.results.profile`).

        Exact, for their owner only.
        """
        frame = as_frame(table)
        labels = self.assign(frame)["label"]
        clusters = labels.to_numpy(np.int64, na_value=-1)
        return profile(frame, clusters, len(self.scaled))

    def to_json(self) -> bytes:
        """The file's content; each number is read again as the same float64."""
        return json.dumps(self._plain(), indent=1, allow_nan=False).encode() + b"\n"

    def _plain(self) -> dict[str, Any]:
        figures = dict[str, Any]()
        means = dict[str, Any]()
        version = 1
        if self.federated_profile:
            figures["federated_profile"] = list(map(asdict, self.federated_profile))
            version = 2
        if self.gaps.columns:
            # JSON has no NaN.
            means["cell_means"] = _finite_or_none(self.cell_means)
            version = 3
        # JSON has no infinity.
        errors = _finite_or_none(self.cluster_centers_error)
        deviations = None if self.deviations is None else self.deviations.tolist()
        return {
            "version": version,
            "feature_names": list(self.feature_names),
            "schema": self.schema and self.schema.to_dict(),
            "bounds": [list(self.bounds.lower), list(self.bounds.upper)],
            "centroids": self.centroids.tolist(),
            **means,
            "scaled": self.scaled.tolist(),
            "counts": self.counts.tolist(),
            "counts_deviation": counts_deviation(self.privacy),
            "cluster_centers_error": errors,
            "deviations": deviations,
            "privacy": self.privacy.to_dict(),
            **figures,
        }

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
            return cls._of_plain(json.loads(located.read_bytes()))
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

    @classmethod
    def _of_plain(cls, plain: dict[str, Any]) -> Model:
        """Undo `_plain`: a file is sound if writing it again gives the same."""
        schema = plain["schema"]
        report = PrivacyReport.from_dict(plain["privacy"])
        model = cls(
            np.array(plain["scaled"], dtype=np.float64),
            np.array(plain["counts"], dtype=np.float64),
            Bounds(*plain["bounds"]),
            report,
            tuple(plain["feature_names"]),
            None if schema is None else Schema(**schema),
            _FIGURES.validate_python(plain.get("federated_profile", ())),
            _deviations(plain),
        )
        again = model._plain()
        if not _ERRORS & set(plain):
            # A file of an earlier version says nothing of errors.
            again = {key: value for key, value in again.items() if key not in _ERRORS}
        wrong = [
            key
            for key in again | plain
            if key not in plain or key not in again or plain[key] != again[key]
        ]
        if wrong or _REPORT.validate_python(asdict(report)) != report:
            raise DataError(
                f"its {' and '.join(wrong or ['privacy'])} cannot stand in a model of"
                " this version"
            )
        json.dumps(again, allow_nan=False)
        return model


def _finite_or_none(values: Array) -> list[list[float | None]]:
    """Values, (n_rows, n_columns), as lists; None where they are not finite."""
    rows = []
    for row in values.tolist():
        rows.append([value if math.isfinite(value) else None for value in row])
    return rows


def _percent(share: float) -> str:
    """A share in percent."""
    return f"{share:.0%}"


def _deviations(plain: dict[str, Any]) -> Array | None:
    """Read deviations of a file; one of an earlier version has none."""
    if plain.get("deviations") is None:
        return None
    return np.array(plain["deviations"], dtype=np.float64)
