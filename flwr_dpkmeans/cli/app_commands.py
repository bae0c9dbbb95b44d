"""Commands beside a run.

A table is labelled by a model, and the keys of `flwr run` are listed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.files.dialect import Dialect
from flwr_dpkmeans.data.files.open_table import ColumnUse, OpenTable, require_rows
from flwr_dpkmeans.data.files.reader import open_table
from flwr_dpkmeans.data.files.text.encoded_text import text_chunks
from flwr_dpkmeans.data.files.text.tally import Tally
from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.flower.run_keys import run_keys
from flwr_dpkmeans.log import printable
from flwr_dpkmeans.results.model import Model
from flwr_dpkmeans.results.whole_files import write_whole

if TYPE_CHECKING:
    import pandas as pd

_HEAD = (
    (
        "# Generated: python -m flwr_dpkmeans options --toml. 'auto' is what the run"
        " finds out or decides itself."
    ),
    (
        "# An option of another algorithm, or without effect on the run, is refused"
        " unless it is the default."
    ),
)


def write_labels(
    model_file: str,
    table: str,
    labels: str,
    dialect: Dialect,
) -> int:
    """Write label, distance and margin of each record: a whole file, or none."""
    model, output = Model.load(model_file), Path(labels)
    read_paths = {Path(path).resolve() for path in (model_file, table)}
    if output.resolve() in read_paths:
        raise DataError(
            f"the labels would replace {str(output)!r}, which is read: choose another"
            " output file."
        )
    opened = _opened(model, table, dialect)
    _require_no_blank_rows(opened, Path(table))
    labelled = _Labelled(model, opened)
    pieces = labelled.pieces()
    # The first one is made before anything is written: its columns are those of all.
    path = write_whole(output, chain([next(pieces)], pieces))
    print(
        f"{path}: {labelled.n_rows} rows in their order; distance, and margin to the"
        " next centre, are in the fitted space, where each column's bounds are -1"
        " and 1."
    )
    if labelled.n_without:
        print(
            f"{labelled.n_without} rows have no label: one of their cells is missing,"
            " or is nothing that its column may hold, or the record cannot be read."
        )
    for doubt in opened.reading.doubts():
        print(printable(doubt.sentence))
    return 0


def _opened(
    model: Model,
    table: str,
    dialect: Dialect,
) -> OpenTable:
    """The table as it was read for the clustering.

    a model that has names finds them in the header.
    """
    if model.schema is not None:
        dialect = dialect.over(model.schema.file)
    if model.feature_names:
        dialect = dialect.over(Dialect(header=True))
    return open_table(table, dialect, may_guess=True)


def _require_no_blank_rows(opened: OpenTable, path: Path) -> None:
    """Refuse blank lines between those of one column.

    No reader sees them, and labels would stand a line too early.
    """
    if not opened.reading.is_text or len(opened.reading.names) > 1:
        return
    has_begun, was_blank, rest = False, False, b""
    for chunk in text_chunks(
        path.expanduser(), str(opened.reading.dialect.encoding), Tally()
    ):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if not line.strip():
                was_blank = has_begun
                continue
            has_begun = True
            if was_blank:
                raise DataError(
                    f"{path} has blank lines between its rows of one column: write NA"
                    " there, or delete them."
                )


class _Labelled:
    """A table's records with their labels, as text of a .csv file."""

    def __init__(
        self,
        model: Model,
        opened: OpenTable,
    ) -> None:
        self._model = model
        self._opened = opened
        self.n_rows = 0
        self.n_without = 0

    def pieces(self) -> Iterator[bytes]:
        """Yield the output, some records after the others.

        a DataError if none has a label.
        """
        head = "label,distance,margin\n"
        for block in self._opened.blocks(self._use()):
            labelled = self._model.assign(block)
            if block.records is not None:
                labelled = self._with_gaps(labelled, block.records)
            yield (head + self._written(labelled)).encode()
            head = ""
        n_after = self._opened.reading.tally.n_records - self.n_rows
        if self._opened.reading.is_text and n_after > 0:
            gaps = labelled.iloc[:0].reindex(range(n_after))
            yield self._written(gaps).encode()
        require_rows(self._opened)
        if 0 < self.n_rows == self.n_without:
            raise DataError(
                "no row of the table has a finite number in each column of the model:"
                " look at its columns."
            )

    def _use(self) -> ColumnUse:
        """Which columns are read as numbers, and as text."""
        schema = self._model.schema
        if schema is None:
            return ColumnUse(set(self._model.feature_names) or None)
        return ColumnUse(schema.number_columns, schema.text_columns)

    def _with_gaps(
        self,
        labelled: pd.DataFrame,
        records: NDArray[np.int64],
    ) -> pd.DataFrame:
        """A line without label for each record that is no row.

        So that lines and records agree.
        """
        end = int(records[-1]) + 1 if len(records) else self.n_rows
        return labelled.set_axis(records, axis=0).reindex(range(self.n_rows, end))

    def _written(self, labelled: pd.DataFrame) -> str:
        self.n_rows += len(labelled)
        self.n_without += int(labelled["label"].isna().sum())
        return str(labelled.to_csv(index=False, header=False))


def print_options(*, toml: bool) -> int:
    """Print every option of `flwr run` with its default.

    As a list, or as an app's ``pyproject.toml`` has it.
    """
    if toml:
        print(config_toml(), end="")
    else:
        for key in run_keys():
            print(f"{key.name} = {json.dumps(key.default)}: {key.about}")
    return 0


def config_toml() -> str:
    """The block ``[tool.flwr.app.config]`` of an app's ``pyproject.toml``."""
    lines, table = ["[tool.flwr.app.config]", *_HEAD], ""
    for key in sorted(run_keys(), key=lambda key: "." in key.name):
        group, _, name = key.name.rpartition(".")
        if group != table:
            table = group
            lines.append(f"[tool.flwr.app.config.{table}]")
        lines.append(
            f"{name} = {json.dumps(key.default)}"
            + (f"  # {key.about}" if key.about else "")
        )
    return "\n".join(lines) + "\n"
