"""What a party's own rows are like by cluster, in all of their columns.

Exact, so it stays with the party.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.doubts.doubtful_columns import (
    Doubt,
    are_codes,
    doubts_about_numbers,
)
from flwr_dpkmeans.data.files.cells import MISSING

_QUANTILES = [0.05, 0.25, 0.5, 0.75, 0.95]
_COMMONEST = 5
_FEW_TEXTS = (
    0.1  # of a column's cells: what is no number among so few is a slip, and left out
)

_NO_MEASURES = frozenset((Doubt.INDEX, Doubt.IDENTIFIER, Doubt.REPEATED))
"""Doubts about a column for which its values are listed, not averaged."""


def profile(table: Any, labels: NDArray[np.int64], n_clusters: int) -> Any:
    """Describe the rows of each cluster by all columns of a data frame, also those that
    were not clustered; exact.

    `labels`, (n_rows,), are clusters, or -1 of rows that are left out. For ``all``
    rows, and for each cluster, there is one line for each column: ``rows`` and their
    ``share``; how many cells are there (``count``); of numbers mean, standard deviation
    and quantiles, of text, codes ('01') and identifiers the ``commonest`` values,
    unless each is there once.
    """
    import pandas as pd

    words = {place: _words(table.iloc[:, place]) for place in range(table.shape[1])}
    numbers = pd.DataFrame(
        {place: pd.to_numeric(own, errors="coerce") for place, own in words.items()},
        dtype=float,
    )
    unread = {
        place: numbers[place].isna() & cells.notna() for place, cells in words.items()
    }
    mixed = {
        place: unread[place].sum() > _FEW_TEXTS * cells.notna().sum()
        for place, cells in words.items()
    }
    names = list(map(str, table.columns))
    texts = [
        place
        for place, cells in words.items()
        if mixed[place] or _names_things(names[place], cells)
    ]
    numbers[texts] = np.nan
    described, total = [], max(1, int((labels >= 0).sum()))
    for cluster, inside in [
        ("all", labels >= 0),
        *((str(j), labels == j) for j in range(n_clusters)),
    ]:
        rows = numbers[inside]
        own = pd.DataFrame(
            {
                "count": rows.count(),
                "mean": rows.mean(),
                "std": rows.std(ddof=0),
                "commonest": "",
            }
        )
        own[[f"{quantile:.0%}" for quantile in _QUANTILES]] = rows.quantile(
            _QUANTILES
        ).T
        for place, cells in words.items():
            if place in texts:
                present = cells[inside].dropna()
                shares = present.value_counts(normalize=True)
                listed = "; ".join(
                    f"{value} ({share:.1%})"
                    for value, share in shares.head(_COMMONEST).items()
                )
                told = (
                    f"{len(shares)} values, each once"
                    if len(shares) == len(present) > 1
                    else listed
                )
                own.loc[place, ["count", "commonest"]] = len(present), told
            elif n_slips := int(unread[place][inside].sum()):
                own.loc[place, "commonest"] = f"{n_slips} cells are no numbers"
        first = {"cluster": cluster, "rows": len(rows), "share": len(rows) / total}
        described.append(
            pd.DataFrame(
                {**first, "column": list(map(str, table.columns)), **own},
                index=own.index,
            )
        )
    return pd.concat(described, ignore_index=True)


def _names_things(name: str, cells: Any) -> bool:
    """Whether a column's numbers are codes or identifiers, whose mean says nothing."""
    present = cells.dropna()
    if cells.dtype.kind not in "biuf" and are_codes([*map(str, present)]):
        return True
    doubts = doubts_about_numbers(name, _as_numbers(present))
    return bool(_NO_MEASURES & set(doubts))


def _as_numbers(cells: Any) -> NDArray[np.float64]:
    """Cells as numbers, NaN where they are none."""
    import pandas as pd

    numbers: NDArray[np.float64] = pd.to_numeric(cells, errors="coerce").to_numpy(
        dtype=np.float64
    )
    return numbers


def as_frame(table: Any, names: Sequence[str] = ()) -> Any:
    """A table, or a list of figures, as a pandas.DataFrame.

    An array's columns get `names`, or else numbers.
    """
    import pandas as pd

    return (
        table.to_pandas()
        if hasattr(table, "to_pandas")
        else pd.DataFrame(table, columns=names or None)
    )


def _words(cells: Any) -> Any:
    """Numbers as they are, all else as it is written; what is missing is None."""
    if cells.dtype.kind in "biuf":
        return cells
    words = (
        cells.astype(object)
        .where(cells.notna(), None)
        .map(str, na_action="ignore")
        .str.strip()
    )
    return words.mask(words.isin(MISSING))
