"""What a party's own rows are like by cluster, in all of their columns.

Exact, so it stays with the party.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.doubts.codes import are_codes
from flwr_dpkmeans.data.doubts.doubt import Doubt
from flwr_dpkmeans.data.doubts.doubtful_cells import doubts_about_numbers
from flwr_dpkmeans.data.files.cells import MISSING

if TYPE_CHECKING:
    import pandas as pd

_QUANTILES = [0.05, 0.25, 0.5, 0.75, 0.95]
_COMMONEST = 5
_FEW_TEXTS = 0.1
"""Of a column's cells: what is no number among so few is a slip, and left out."""

_NO_MEASURES = frozenset(
    (
        Doubt.INDEX,
        Doubt.IDENTIFIER,
        Doubt.REPEATED,
    )
)
"""Doubts about a column for which its values are listed, not averaged."""


def profile(
    table: pd.DataFrame,
    labels: NDArray[np.int64],
    n_clusters: int,
) -> pd.DataFrame:
    """Describe the rows of each cluster by all columns of a data frame; exact.

    Also by those columns that were not clustered. `labels`, (n_rows,), are clusters, or
    -1 of rows that are left out. For ``all`` rows, and for each cluster, there is one
    line for each column: ``rows`` and their ``share``; how many cells are there
    (``count``); of numbers mean, standard deviation and quantiles, of text, codes
    ('01') and identifiers the ``commonest`` values, unless each is there once.
    """
    import pandas as pd

    columns = _Columns(table)
    is_clustered = labels >= 0
    n_clustered = int(is_clustered.sum())
    total = max(1, n_clustered)
    groups = {"all": is_clustered}
    for cluster in range(n_clusters):
        groups[str(cluster)] = labels == cluster
    described = []
    for name, is_inside in groups.items():
        lines = columns.describe(is_inside)
        n_rows = int(is_inside.sum())
        facts = {
            "cluster": name,
            "rows": n_rows,
            "share": n_rows / total,
            "column": columns.names,
        }
        for fact in reversed(facts):
            lines.insert(0, fact, facts[fact])
        described.append(lines)
    return pd.concat(described, ignore_index=True)


class _Columns:
    """The columns of a data frame, each read as numbers or as texts."""

    def __init__(self, table: pd.DataFrame) -> None:
        import pandas as pd

        self.names = list(map(str, table.columns))
        self._cells: list[pd.Series] = []
        self._is_unread: list[pd.Series] = []
        numbers = {}
        n_columns = len(self.names)
        for index in range(n_columns):
            column = table.iloc[:, index]
            cells = _words(column)
            column_numbers = pd.to_numeric(cells, errors="coerce")
            is_unread = column_numbers.isna() & cells.notna()
            numbers[index] = column_numbers
            self._cells.append(cells)
            self._is_unread.append(is_unread)
        self._numbers = pd.DataFrame(numbers, dtype=float)
        self._texts = list(filter(self._is_text, range(n_columns)))
        self._numbers[self._texts] = np.nan

    def _is_text(self, index: int) -> bool:
        """Whether many cells are no numbers, or these are codes or identifiers."""
        cells = self._cells[index]
        is_unread = self._is_unread[index]
        n_unread = is_unread.sum()
        n_cells = cells.count()
        if n_unread > _FEW_TEXTS * n_cells:
            return True
        return _names_things(self.names[index], cells)

    def describe(self, is_inside: NDArray[np.bool_]) -> pd.DataFrame:
        """One line for each column over some of the rows."""
        import pandas as pd

        rows = self._numbers[is_inside]
        figures = {
            "count": rows.count(),
            "mean": rows.mean(),
            "std": rows.std(ddof=0),
            "commonest": "",
        }
        lines = pd.DataFrame(figures)
        quantile_names = [f"{quantile:.0%}" for quantile in _QUANTILES]
        quantiles = rows.quantile(_QUANTILES)
        lines[quantile_names] = quantiles.T
        for index, cells in enumerate(self._cells):
            if index not in self._texts:
                is_unread = self._is_unread[index]
                n_slips = int(is_unread[is_inside].sum())
                if n_slips:
                    remark = f"{n_slips} cells are no numbers"
                    lines.loc[index, "commonest"] = remark
                continue
            cells_of_rows = cells[is_inside]
            present = cells_of_rows.dropna()
            lines.loc[index, "count"] = len(present)
            lines.loc[index, "commonest"] = _commonest(present)
        return lines


def _commonest(present: pd.Series) -> str:
    """The commonest of some texts with their shares, or that each is there once."""
    shares = present.value_counts(normalize=True)
    if len(shares) == len(present) > 1:
        return f"{len(shares)} values, each once"
    words = []
    for value, share in shares.head(_COMMONEST).items():
        words.append(f"{value} ({share:.1%})")
    return "; ".join(words)


def _names_things(name: str, cells: pd.Series) -> bool:
    """Whether a column's numbers are codes or identifiers, whose mean says nothing."""
    import pandas as pd

    present = cells.dropna()
    texts = list(map(str, present))
    if cells.dtype.kind not in "biuf" and are_codes(texts):
        return True
    series = pd.to_numeric(present, errors="coerce")
    numbers = series.to_numpy(dtype=np.float64)
    doubts = doubts_about_numbers(name, numbers)
    return not _NO_MEASURES.isdisjoint(doubts)


def as_frame(table: object, names: Sequence[str] = ()) -> pd.DataFrame:
    """A table, or a list of figures, as a pandas.DataFrame.

    An array's columns get `names`, or else numbers.
    """
    import pandas as pd

    if hasattr(table, "to_pandas"):
        return table.to_pandas()
    return pd.DataFrame(table, columns=names or None)


def _words(cells: pd.Series) -> pd.Series:
    """Numbers as they are, all else as it is written; what is missing is None."""
    if cells.dtype.kind in "biuf":
        return cells
    objects = cells.astype(object)
    present = objects.where(cells.notna(), None)
    words = present.map(str, na_action="ignore").str.strip()
    is_missing = words.isin(MISSING)
    return words.mask(is_missing)
