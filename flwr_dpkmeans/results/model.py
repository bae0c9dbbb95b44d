"""A model that one can carry: one file with what labels take, what was guaranteed and where it comes from, and its use.

``flwr-dpkmeans predict MODEL TABLE -o labels.csv`` applies it to a file of any length.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import FiniteFloat, PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from flwr_dpkmeans.data.points import Bounds, as_array, frame_columns, require_names
from flwr_dpkmeans.data.readers import RawTable, frame_table, locate_file, table_blocks
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.errors import DataError, finding, nearest
from flwr_dpkmeans.kmeans.lloyd import nearest_centroids, round_to_grid, row_blocks
from flwr_dpkmeans.log import printable
from flwr_dpkmeans.privacy.report import PrivacyReport, counts_deviation
from flwr_dpkmeans.results.profile import as_frame, profile
from flwr_dpkmeans.results.writer import write_whole
from flwr_dpkmeans.sums.statement import LOCAL

Array = NDArray[np.float64]
MODEL_FILE = "model.json"
_PLAIN: TypeAdapter[Any] = TypeAdapter(list[FiniteFloat] | list[list[FiniteFloat]])
_REPORT: TypeAdapter[PrivacyReport] = TypeAdapter(PrivacyReport)


def _report_of(said: dict[str, Any]) -> PrivacyReport:
    """The report in a file; a ValueError unless each field is of its own type, and what is read is what was written."""
    report = PrivacyReport.from_dict(said)
    json.dumps(report.to_dict(), allow_nan=False)
    if _REPORT.validate_python(asdict(report)) != report:
        raise ValueError("a field is of another type")
    return report


def _read_by(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Build a part of a model from plain values, which may be anything."""

    def read(said: Any) -> Any:
        try:
            return build(said)
        except (KeyError, TypeError, AttributeError, OverflowError, ValidationError):
            pass
        raise ValueError("it is not what this version writes")

    return read


_Numbers = Annotated[
    Array,
    PlainValidator(_read_by(lambda said: np.array(_PLAIN.validate_python(said, strict=True)))),
    PlainSerializer(np.ndarray.tolist),
]
_Schema = Annotated[Schema, PlainValidator(_read_by(Schema.from_dict)), PlainSerializer(Schema.to_dict)]
_Report = Annotated[PrivacyReport, PlainValidator(_read_by(_report_of)), PlainSerializer(PrivacyReport.to_dict)]


@dataclass(frozen=True, eq=False, kw_only=True)
class Model:
    """A clustering as it is applied; nothing in it but what the run released, so it may go where that may go.

    Examples
    --------
    >>> import tempfile
    >>> from flwr_dpkmeans import FederatedKMeans
    >>> rows = np.linspace(-1.0, 1.0, 200).reshape(100, 2)
    >>> km = FederatedKMeans(2, bounds=(-1.0, 1.0), random_state=0, engine="direct").fit([rows, rows])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = Model.load(km.save(Path(folder) / "model.json"))
    >>> bool((model.predict(rows) == km.predict(rows)).all()), model.centroids.shape
    (True, (2, 2))
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}
    version: Literal[1]
    feature_names: tuple[str, ...]
    """Of the columns, in their order; empty: columns are taken by position."""
    schema: _Schema | None
    """What tables are read by; None: their cells are numbers."""
    bounds: tuple[tuple[FiniteFloat, ...], tuple[FiniteFloat, ...]]
    """Lower and upper of each column, in the units of the data: rows are clipped to them."""
    centroids: _Numbers = field(repr=False)
    """(n_clusters, n_features), in the units of the data."""
    scaled: _Numbers = field(repr=False)
    """The same in the fitted space, where the bounds are -1 and 1 and a row belongs to the nearest."""
    counts: _Numbers = field(repr=False)
    """(n_clusters,), with noise."""
    counts_deviation: float | None
    """Standard deviation of the noise in each count; None where the report does not tell it."""
    privacy: _Report = field(repr=False)
    """What the run guaranteed, with its provenance."""

    @classmethod
    def of(cls, scaled: Array, counts: Array, bounds: Bounds, privacy: PrivacyReport, **columns: Any) -> Model:
        """The model of a run; `columns` are ``feature_names`` and ``schema``, where there are any.

        What a party's own rows say in `privacy` is left out: the model may go where that may not.
        """
        box, schema = bounds.for_features(scaled.shape[1]), columns.get("schema")
        said = tuple([sentence for sentence in privacy.warnings if not sentence.startswith(LOCAL)])
        return cls(
            version=1,
            feature_names=schema.feature_names if schema else columns.get("feature_names", ()),
            schema=schema,
            bounds=(box.lower, box.upper),
            centroids=box.unscale(scaled),
            scaled=scaled,
            counts=counts,
            counts_deviation=counts_deviation(privacy),
            privacy=replace(privacy, warnings=said),
        )

    def __post_init__(self) -> None:
        box, d = Bounds(*self.bounds), len(self.bounds[0])
        if self.scaled.shape[1:] != (d,) or self.counts.shape != self.scaled.shape[:1]:
            raise DataError("bounds, centroids and counts are not those of one clustering")
        require_names(self.feature_names, d)
        if self.schema is not None and self.schema.feature_names != self.feature_names:
            raise DataError("feature_names are not those of the schema")
        # Single IEEE operations, which give the same on every machine.
        same = np.array_equal(self.centroids, box.unscale(self.scaled))
        if not same or self.counts_deviation != counts_deviation(self.privacy):
            raise DataError("its numbers contradict each other, so it was edited")

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Labels, (n_rows,), as `FederatedKMeans.predict` gives them: -1 where a schema leaves the row out.

        Without a schema, a row with a cell that is no finite number is a `DataError`.
        """
        labels = self.assign(X)["label"]
        if self.schema is None and labels.isna().any():
            raise DataError(
                f"{labels.isna().sum()} rows have a cell that is missing or no finite number, but a label takes all "
                "of them: fill in the cells, or use assign, which gives such rows no label."
            )
        return labels.to_numpy(np.int64, na_value=-1)  # type: ignore[no-any-return]

    def assign(self, X: Any) -> Any:
        """Where rows of an array, (n_rows, n_features), or of a frame belong; a frame's columns are found by name.

        Returns a pandas.DataFrame with ``label``, ``distance`` (to that centroid) and ``margin`` (how much farther the
        next one is; infinite if there is none), both in the fitted space; none of them where a row has a cell that is
        missing or no finite number. A `DataError` names a column that is missing.
        """
        import pandas as pd

        points = self._points(X)
        labels, distances, margins = found = np.full((3, len(points)), np.nan)
        (whole,) = np.nonzero(np.isfinite(points).all(axis=1))
        for block in row_blocks(len(whole), sum(self.scaled.shape)):
            rows = whole[block]
            inside = round_to_grid(Bounds(*self.bounds).scale(points[rows]))
            nearest, squares = nearest_centroids(inside, self.scaled)
            # Exact on the grid, as the nearest one's.
            others = np.square(inside).sum(axis=1)[:, None] + np.square(self.scaled).sum(axis=1)
            others -= 2.0 * (inside @ self.scaled.T)
            others[np.arange(len(rows)), nearest] = np.inf
            labels[rows], distances[rows] = nearest, np.sqrt(squares)
            margins[rows] = np.maximum(np.sqrt(np.maximum(others.min(axis=1), 0.0)) - distances[rows], 0.0)
        return pd.DataFrame(dict(zip(("label", "distance", "margin"), found, strict=True))).astype({"label": "Int64"})

    def _points(self, X: Any) -> NDArray[np.float64]:
        """The model's columns as numbers, (n_rows, n_features), NaN in a row that a node would leave out."""
        import pandas as pd

        if self.schema is not None:
            encoded = self.schema.encode(X)
            return encoded.spread(encoded.points, np.nan)
        named, d = X.named if isinstance(X, RawTable) else bool(frame_columns(X)), self.scaled.shape[1]
        if not named and not isinstance(X, RawTable):
            if (cells := as_array(X)).ndim != 2:
                raise DataError(f"the table has {cells.ndim} dimensions, but it must have 2: rows and columns.")
            X = pd.DataFrame(cells)
        raw = X if isinstance(X, RawTable) else frame_table(X)
        columns, own = raw.columns, [column.name for column in raw.columns]
        if named and self.feature_names:
            for name in self.feature_names:
                if (n := own.count(name)) != 1:
                    hint = "rename the others." if n else nearest(name, own)
                    raise DataError(f"the table has {n or 'no'} columns {name!r}, but the model needs one: {hint}")
            columns = tuple(columns[own.index(name)] for name in self.feature_names)
        if len(columns) != d:
            raise DataError(f"the table has {len(columns)} columns, but the model {d}: give just these, in its order.")
        return np.stack([column.numbers() for column in columns], axis=1)

    def profile(self, table: Any) -> Any:
        """Describe a data frame's rows by cluster (`flwr_dpkmeans.results.profile`): exact, for their owner only."""
        frame = as_frame(table)
        return profile(frame, self.assign(frame)["label"].to_numpy(np.int64, na_value=-1), len(self.scaled))

    def to_json(self) -> bytes:
        """The file's content; each number is read again as the same float64."""
        return json.dumps(_MODEL.dump_python(self), indent=1, allow_nan=False).encode() + b"\n"

    def save(self, path: str | Path) -> Path:
        """Write the file, whole or not at all; returns its absolute path."""
        return write_whole(Path(path), self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Model:
        """Read a file that `save` or a run wrote; a `DataError` of one sentence says what is wrong with another."""
        located = locate_file(path, "model", DataError)
        try:
            return _MODEL.validate_json(located.read_bytes(), strict=True)
        except OSError as error:
            problem = type(error).__name__
        except ValidationError as error:
            problem = printable(finding(error, cls.__dataclass_fields__), 300).removesuffix(".")
        raise DataError(
            f"the model {str(located)!r} cannot be read ({problem}): copy the file again, or use the version of "
            "flwr-dpkmeans that wrote it."
        )


_MODEL: TypeAdapter[Model] = TypeAdapter(Model)


# -- the command ------------------------------------------------------------------------------------------------------


def predict(arguments: Sequence[str]) -> int:
    """Write label, distance and margin of each row of a table: whole or not at all."""
    parser = argparse.ArgumentParser(
        prog="python -m flwr_dpkmeans predict",
        description="Label the rows of a table by a model; columns are found by name, in any order and among others.",
    )
    parser.add_argument("model", metavar="MODEL", help="model.json of a run, or what FederatedKMeans.save wrote")
    parser.add_argument("table", metavar="TABLE", help="a .csv, .parquet, .npy or .npz file, or a folder of .parquet")
    parser.add_argument("-o", "--output", required=True, help="the .csv file to write; one that is there is replaced")
    options = parser.parse_args(arguments)
    model, output = Model.load(options.model), Path(options.output)
    if output.resolve() in {Path(path).resolve() for path in (options.model, options.table)}:
        raise DataError(f"the labels would replace {str(output)!r}, which is read: choose another output file.")
    # A model that has names finds them in the first row of a .csv file; else that is guessed.
    blocks, seen = table_blocks(options.table, bool(model.feature_names) or None), np.zeros(2, dtype=np.int64)
    pieces = _pieces(model, blocks, seen)
    # The first one is made before anything is written: its columns are those of all.
    place = write_whole(output, chain([next(pieces)], pieces))
    print(
        f"{place}: {seen[0]} rows in their order; distance, and margin to the next centre, are in the fitted space, "
        "where each column's bounds are -1 and 1."
    )
    if seen[1]:
        print(f"{seen[1]} rows have no label: one of their cells is missing or no finite number.")
    return 0


def _pieces(model: Model, blocks: Iterator[RawTable], seen: NDArray[np.int64]) -> Iterator[bytes]:
    """The output; `seen` counts rows, and those without a label."""
    head = "label,distance,margin\n"
    for block in blocks:
        found = model.assign(block)
        seen += len(found), found["label"].isna().sum()
        yield (head + found.to_csv(index=False, header=False)).encode()
        head = ""
    if 0 < seen[0] == seen[1]:
        raise DataError("no row of the table has a finite number in each column of the model: look at its columns.")
