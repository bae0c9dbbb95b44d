"""What a class sums of its rows, and where each column's entries are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms.statistics.moment_sums import moment_arrays
from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.sums.round import Array, Labels


@dataclass(frozen=True)
class Columns:
    """Columns of numbers and of categories."""

    categories: tuple[int, ...]
    """For each column how many it has; 0: numbers."""

    @property
    def numbers(self) -> list[int]:
        """Places of the columns of numbers."""
        return [place for place, n in enumerate(self.categories) if not n]

    @property
    def coded(self) -> list[int]:
        """Places of the columns of categories."""
        return [place for place, n in enumerate(self.categories) if n]

    @property
    def n_cells(self) -> int:
        """Categories of all columns."""
        return sum(self.categories)

    def names(self, columns: Sequence[str]) -> dict[str, list[str]]:
        """What is printed beside a column of numbers and a category, by the columns'
        names.
        """
        called = [
            columns[index] if columns else f"column {index}"
            for index in range(len(self.categories))
        ]
        categories = [
            f"{called[index]} = {code}"
            for index in self.coded
            for code in range(self.categories[index])
        ]
        return {
            "number": [called[index] for index in self.numbers],
            "category": categories,
        }

    def require_codes(self, points: Array) -> None:
        """Refuse rows, (n, n_features) in the units of the data, with a category that
        there is not.
        """
        for place in self.coded:
            own, n = points[:, place], self.categories[place]
            if (foreign := own[~np.isin(own, np.arange(n))]).size:
                told = (
                    f"X has {foreign[0]:g} in column {place}, whose categories are 0 to"
                    f" {n - 1}"
                )
                raise DataError(f"{told}: code them so, or leave such rows out.")

    def chances(
        self,
        cells: Array,
        smoothing: float,
    ) -> list[tuple[int, Array]]:
        """For each column of categories its place and the chance of each category by
        class, smoothed.
        """
        tables = self.smoothed(cells, smoothing)
        shares = [table / table.sum(axis=1, keepdims=True) for table in tables]
        return list(zip(self.coded, shares, strict=True))

    def smoothed(
        self,
        cells: Array,
        smoothing: float,
    ) -> list[Array]:
        """For each column of categories the rows of each category by class, smoothed."""
        widths = [self.categories[column] for column in self.coded]
        ends = np.cumsum(widths)[:-1]
        return [table + smoothing for table in np.split(cells, ends, axis=1)]


def codes_of(column: Array, n: int) -> Labels:
    """Categories 0 to n - 1 from the box [-1, 1]: the nearest one."""
    return np.clip(np.rint((column + 1.0) * ((n - 1) / 2.0)), 0, n - 1).astype(np.int64)


def class_arrays(
    columns: Columns,
    points: Array,
    labels: Labels,
    n_classes: int,
) -> list[Array]:
    """One client's exact part: moments of the numbers, and cells of the categories."""
    arrays = moment_arrays(points[:, columns.numbers], labels, n_classes)
    if columns.coded:
        tables = []
        for place in columns.coded:
            n = columns.categories[place]
            cell = labels * n + codes_of(points[:, place], n)
            tables.append(
                np.bincount(cell, minlength=n_classes * n).reshape(n_classes, n)
            )
        arrays.append(np.concatenate(tables, axis=1).astype(np.float64))
    return arrays
