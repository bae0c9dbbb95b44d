"""A table as a party has it: points, labels and what they are called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.files.raw_table import source_name
from flwr_dpkmeans.data.loading.unit_columns import N_COLUMNS
from flwr_dpkmeans.data.schema import Encoded, Schema
from flwr_dpkmeans.data.store import Store


@dataclass(frozen=True, eq=False)
class Table:
    """The rows of one client.

    Attributes
    ----------
    points : ndarray or Rows, (n, d)
        Finite numbers, or what `Encoded` has.
    names : tuple of str
        The file's names of the columns; empty for a file without.
    partition_values : ndarray, (n,), or None
        The column of numbers or text by which rows may be split over clients.
    labels : ndarray or Rows, (n,), or None
        What the label column holds, read by `as_classes` where an evaluation looks at
        it.
    schema : Schema or None
        What the points were encoded by.
    rows : ndarray, (n,), or None
        Which of the source's rows these are; None: all of them.
    persons : ndarray or Rows, (n, 2), or None
        Digests of whose rows these are (`person_digests`).
    weights : ndarray or Rows, (n,), or None
        What rows weigh; NaN where nobody knows.
    """

    points: NDArray[np.float64] = field(repr=False)
    names: tuple[str, ...] = ()
    partition_values: NDArray[np.generic] | None = field(default=None, repr=False)
    labels: NDArray[np.generic] | None = field(default=None, repr=False)
    schema: Schema | None = None
    rows: NDArray[np.int64] | None = field(default=None, repr=False)
    persons: NDArray[np.float64] | None = field(default=None, repr=False)
    weights: NDArray[np.float64] | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        encoded: Encoded,
        values: NDArray[np.generic] | None = None,
        labels: NDArray[np.generic] | None = None,
        persons: NDArray[np.float64] | None = None,
        weights: NDArray[np.float64] | None = None,
    ) -> Table:
        """Return the rows that a schema keeps.

        `values`, `labels`, `persons` and `weights` stand beside each row of the table,
        (n_rows,).
        """
        if values is not None:
            values = values[encoded.rows]
        if labels is not None:
            labels = labels[encoded.rows]
        if persons is not None:
            persons = persons[encoded.rows]
        if weights is not None:
            weights = weights[encoded.rows]
        names = encoded.schema.feature_names
        return cls(
            encoded.points,
            names,
            values,
            labels,
            encoded.schema,
            encoded.rows,
            persons,
            weights,
        )

    def part(self, rows: NDArray[np.int64]) -> Table:
        """Return some of the rows, whose numbers ascend, as a table of their own."""
        return replace(
            self,
            points=self.points[rows],
            partition_values=None,
            labels=None if self.labels is None else self.labels[rows],
            persons=None if self.persons is None else self.persons[rows],
            weights=None if self.weights is None else self.weights[rows],
            rows=rows if self.rows is None else self.rows[rows],
        )

    def with_values(self, values: NDArray[np.float64]) -> Table:
        """Return the same table of other rows.

        `values` are their points and, where this has them, behind these a column of
        labels, the digests of persons and a column of weights.
        """
        width = values.shape[1]
        weights = None
        if self.weights is not None:
            width -= 1
            weights = values[:, width]
        persons = None
        if self.persons is not None:
            width -= N_COLUMNS
            persons = values[:, width : width + N_COLUMNS]
        labels = None
        if self.labels is not None:
            width -= 1
            labels = values[:, width]
        return replace(
            self,
            points=values[:, :width],
            labels=labels,
            persons=persons,
            weights=weights,
            rows=None,
        )

    @classmethod
    def joined(
        cls,
        blocks: Iterable[Table],
        store: Store,
        what: object,
    ) -> Table:
        """Return a table of the rows of all blocks."""
        last = cls(np.zeros((0, 1)))
        rows: list[NDArray[np.int64]] = []

        def values() -> Iterator[NDArray[np.float64]]:
            nonlocal last
            for block in blocks:
                last = block
                if block.rows is not None and not store.name:
                    rows.append(block.rows)
                behind = [
                    columns
                    for columns in (block.labels, block.persons, block.weights)
                    if columns is not None
                ]
                if behind:
                    yield np.column_stack([block.points, *behind])
                else:
                    yield block.points

        whole = store.keep(values(), source_name(what))
        rows_of_all = np.concatenate(rows) if rows else None
        return replace(last.with_values(whole), rows=rows_of_all)
