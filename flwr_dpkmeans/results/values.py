"""Values of a private statistic as people read them.

With the names of columns and classes, and the noise's error.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.privacy.shown import error_text, rounded_text
from flwr_dpkmeans.results.number_texts import number_text

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
_MOST_LINES = 60
OF_NOISE = "+-: half of a 95% interval, of the noise alone"
OF_CENTRES = (
    "+-: half of a 95% interval, of centroids with cut rows and moved labels, else of"
    " the noise alone"
)


@dataclass(frozen=True)
class Value:
    """One number."""

    array: str
    """Which array it is of."""
    labels: tuple[str, ...]
    """Which class, column, bin and so on."""
    value: float
    error: float | None
    """Half-width of a 95% interval; None where it is not a released number."""

    @property
    def text(self) -> str:
        """The number with its error."""
        value = number_text(self.value)
        error = self.error
        if error is None or not math.isfinite(error):
            return value
        if error == 0.0:
            return f"{value} +- 0"
        rounded = rounded_text(self.value, error)
        return f"{rounded} +- {error_text(error)}"


@dataclass(frozen=True)
class Values:
    """All numbers of a statistic, below a title."""

    title: str
    values: tuple[Value, ...]
    note: str = OF_NOISE
    """What the errors are of."""

    @classmethod
    def of(
        cls,
        title: str,
        arrays: Mapping[str, Array],
        errors: Mapping[str, Array],
        axes: Mapping[str, Sequence[str]],
        names: Mapping[str, Sequence[str]],
    ) -> Values:
        """Name each entry of the arrays by `names` of its `axes`.

        An axis without names has numbers.

        Entries of the axis "bin" are named by the edges that stand beside them, which
        are no lines of their own.
        """
        has_bins = any("bin" in array_axes for array_axes in axes.values())
        edges = arrays.get("edges") if has_bins else None
        values = list[Value]()
        for array, entries in arrays.items():
            if array == "edges" and edges is not None:
                continue
            for index in np.ndindex(*entries.shape):
                array_axes = axes.get(array, ())
                labels = _labels(
                    array_axes,
                    index,
                    names,
                    edges,
                )
                error = float(errors[array][index]) if array in errors else None
                entry = float(entries[index])
                values.append(
                    Value(
                        array,
                        labels,
                        entry,
                        error,
                    )
                )
        return cls(title, tuple(values))

    def frame(self) -> pd.DataFrame:
        """A pandas.DataFrame with ``array``, ``of``, ``value`` and ``error``."""
        import pandas as pd

        rows = [
            (value.array, ", ".join(value.labels), value.value, value.error)
            for value in self.values
        ]
        return pd.DataFrame(rows, columns=["array", "of", "value", "error"])

    def __str__(self) -> str:
        cells = self._cells()
        columns = zip(*cells, strict=True)
        widths = [max(map(len, column), default=0) for column in columns]
        lines = []
        for row in cells:
            padded = map(str.ljust, row, widths)
            lines.append("  ".join(padded).rstrip())
        return "\n".join([self.title, *lines, *self._notes()])

    def _repr_html_(self) -> str:
        rows = []
        for row in self._cells():
            cells = [f"<td>{html.escape(cell)}</td>" for cell in row]
            rows.append(f"<tr>{''.join(cells)}</tr>")
        table = "".join(rows)
        notes = "".join(f"<p>{html.escape(line)}</p>" for line in self._notes())
        return f"<p>{html.escape(self.title)}</p><table>{table}</table>{notes}"

    def _cells(self) -> list[tuple[str, str, str]]:
        shown = self.values[:_MOST_LINES]
        return [(value.array, ", ".join(value.labels), value.text) for value in shown]

    def _notes(self) -> list[str]:
        """What is left out, and what an error is, where there is one."""
        n_more = len(self.values) - _MOST_LINES
        notes = [f"... and {n_more} more: see frame()"] if n_more > 0 else []
        has_errors = any(value.error is not None for value in self.values)
        return [*notes, f"({self.note})"] if has_errors else notes


def _labels(
    axes: Sequence[str],
    index: tuple[int, ...],
    names: Mapping[str, Sequence[str]],
    edges: Array | None,
) -> tuple[str, ...]:
    """What each number of an index stands for."""
    labels = list[str]()
    for number, position in enumerate(index):
        axis = axes[number] if number < len(axes) else ""
        axis_names = names.get(axis, ())
        if axis == "bin" and edges is not None:
            column_edges = edges[index[0]]
            low, high = column_edges[position : position + 2].tolist()
            labels.append(f"{number_text(low)} to {number_text(high)}")
        elif position < len(axis_names):
            labels.append(axis_names[position])
        elif axis:
            labels.append(f"{axis} {position}")
        elif len(index) > 1 or position:
            labels.append(str(position))
    return tuple(labels)
