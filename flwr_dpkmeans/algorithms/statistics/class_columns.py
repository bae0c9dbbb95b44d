"""What a class sums of its rows, and where each column's entries are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms.statistics.moment_sums import moment_arrays
from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kernels.label_sums import counts_by_label
from flwr_dpkmeans.sums.round import Array, Labels, RowWeights


@dataclass(frozen=True)
class Columns:
    """Columns of numbers and of categories."""

    categories: tuple[int, ...]
    """For each column how many it has; 0: numbers."""

    @property
    def numbers(self) -> list[int]:
        """Indices of the columns of numbers."""
        sizes = enumerate(self.categories)
        return [column for column, n_categories in sizes if not n_categories]

    @property
    def coded(self) -> list[int]:
        """Indices of the columns of categories."""
        sizes = enumerate(self.categories)
        return [column for column, n_categories in sizes if n_categories]

    @property
    def n_cells(self) -> int:
        """Categories of all columns."""
        return sum(self.categories)

    def names(self, columns: Sequence[str]) -> dict[str, list[str]]:
        """Names of the entries along the axes of numbers and of categories.

        By the columns' names, if these have any.
        """
        names = list(columns)
        if not names:
            n_columns = len(self.categories)
            names = [f"column {index}" for index in range(n_columns)]
        categories = [
            f"{names[index]} = {code}"
            for index in self.coded
            for code in range(self.categories[index])
        ]
        numbers = [names[index] for index in self.numbers]
        return {"number": numbers, "category": categories}

    def require_codes(self, points: Array) -> None:
        """Refuse rows with a category that there is not.

        Rows are (n, n_features), in the units of the data.
        """
        for column in self.coded:
            codes = points[:, column]
            n_categories = self.categories[column]
            is_code = np.isin(codes, np.arange(n_categories))
            foreign = codes[~is_code]
            if foreign.size:
                raise DataError(
                    f"X has {foreign[0]:g} in column {column}, whose categories are 0"
                    f" to {n_categories - 1}: code them so, or leave such rows out."
                )

    def chances(
        self,
        cells: Array,
        smoothing: float,
    ) -> list[tuple[int, Array]]:
        """Index of each column of categories, and each category's chance by class.

        Chances are smoothed, (n_classes, n_categories).
        """
        chances = []
        for table in self.smoothed(cells, smoothing):
            totals = table.sum(axis=1, keepdims=True)
            chances.append(table / totals)
        return list(zip(self.coded, chances, strict=True))

    def smoothed(
        self,
        cells: Array,
        smoothing: float,
    ) -> list[Array]:
        """For each column of categories its rows by class and category, smoothed."""
        widths = [self.categories[column] for column in self.coded]
        ends = np.cumsum(widths)[:-1]
        return [table + smoothing for table in np.split(cells, ends, axis=1)]


def codes_of(column: Array, n: int) -> Labels:
    """Nearest categories, 0 to n - 1, of values in the box [-1, 1]."""
    most = n - 1
    codes = np.rint((column + 1.0) * (most / 2.0))
    return np.clip(codes, 0, most).astype(np.int64)


def class_arrays(
    columns: Columns,
    points: Array,
    labels: Labels,
    n_classes: int,
    weights: RowWeights | None = None,
) -> list[Array]:
    """One client's exact part: moments of the numbers, and cells of the categories.

    Weights are (n_points,).
    """
    numbers = points[:, columns.numbers]
    arrays = moment_arrays(numbers, labels, n_classes, weights=weights)
    if columns.coded:
        tables = []
        for column in columns.coded:
            n_categories = columns.categories[column]
            codes = codes_of(points[:, column], n_categories)
            entries = labels * n_categories + codes
            counts = counts_by_label(entries, n_classes * n_categories, weights)
            tables.append(counts.reshape(n_classes, n_categories))
        arrays.append(np.concatenate(tables, axis=1))
    return arrays
