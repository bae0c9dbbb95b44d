"""Names of the columns of frames, where they are texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from flwr_dpkmeans.data.table_labels import column_labels
from flwr_dpkmeans.errors import DataError


def frame_columns(points: object) -> tuple[str, ...]:
    """Names of a data frame's columns, as scikit-learn reads them.

    Empty for arrays and for numbered columns.
    """
    names = column_labels(points)
    n_texts = sum(isinstance(name, str) for name in names)
    if 0 < n_texts < len(names):
        raise DataError(
            f"{n_texts} of {len(names)} column names are text and the others are not,"
            " but columns are matched by name: make all of them text, as in"
            " frame.columns.astype(str)."
        )
    return tuple(str(name) for name in names) if n_texts else ()


def require_names(names: Sequence[str], n_features: int) -> tuple[str, ...]:
    """Refuse names that do not tell the columns of a table apart.

    None are always accepted.
    """
    times = Counter(names)
    twice = sorted(name for name, n_columns in times.items() if n_columns > 1)
    if twice:
        raise DataError(
            f"{times[twice[0]]} of {len(names)} columns have the name {twice[0]!r}, but"
            " each needs one of its own: rename them."
        )
    if names and len(names) != n_features:
        raise DataError(
            f"{n_features} columns have {len(names)} names, but each needs one: name"
            " all of them."
        )
    return tuple(str(name) for name in names)
