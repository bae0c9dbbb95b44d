"""What exact rows say against a result, for those who hold them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from flwr_dpkmeans.errors import column_names, listed
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.privacy.report import (
    told,
)
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.round import Array
from flwr_dpkmeans.sums.settings import Box
from flwr_dpkmeans.sums.statement.cautions import (
    _told_if,
)

LOCAL = "Known here only and not private, so not to be published: "
"""How a sentence begins that follows from exact rows."""
_CLIPPED = 0.05
"""Part of the rows of a column above which more than a little is clipped."""


def count_outside(box: Box, parts: Iterable[Array]) -> Array:
    """How many rows there are, and in each column how many lie outside the `box`.

    (1 + n_features,), exact.
    """
    counts, (lower, upper) = np.zeros(1), map(np.array, box)
    for part in parts:
        counts = counts + np.concatenate(
            [[len(part)], ((part < lower) | (part > upper)).sum(axis=0)]
        )
    return counts


def local_cautions(
    config: RunConfig, delta: float, counts: Array, names: Sequence[str] = ()
) -> tuple[str, ...]:
    """What exact rows say against a result, without a number that was taken from them.

    For those who hold them.

    `counts` are those of `count_outside` the box that rows were clipped to, both in the
    units of the data; `names` those of the columns where they are known, else the
    configuration's.
    """
    declared, by_record = (
        config.settings.n_examples,
        config.settings.unit is PrivacyUnit.RECORD,
    )
    n_rows, outside = counts[0], counts[1:]
    clipped = np.flatnonzero(outside > _CLIPPED * n_rows).tolist()
    holds = {
        "more_rows": by_record and declared is not None and n_rows > declared,
        "delta_of_rows": by_record and delta * n_rows >= 1.0,
        "clipped": bool(clipped),
    }
    columns = (
        column_names(clipped, names or config.settings.feature_names) if clipped else ""
    )
    found = _told_if(
        holds, declared=declared, delta=delta, part=_CLIPPED, columns=columns
    )
    return tuple(LOCAL + sentence for sentence in found)


def fewer_rows_cautions(config: RunConfig, n_rows: int) -> tuple[str, ...]:
    """What all parties' rows say against a larger declared number.

    For whoever holds all of them.
    """
    settings = config.settings
    declared = settings.n_examples
    by_record = settings.unit is PrivacyUnit.RECORD
    if declared is None or not by_record or n_rows >= declared:
        return ()
    return (LOCAL + told("fewer_rows", declared=declared),)


def party_cautions(
    counts: Array, parties: Sequence[str], names: Sequence[str]
) -> tuple[str, ...]:
    """Which parties have most rows outside of the box in a column where others have
    few: for who holds all rows.

    `counts` are those of `count_outside`, one row for each party, which are called by
    their places without `parties`.
    """
    n_rows, outside = counts[:, :1], counts[:, 1:]
    # A column that all parties have outside has bounds that are wrong, which is another
    # sentence.
    most = (outside > n_rows / 2.0) & (
        (n_rows > 0) & (outside <= _CLIPPED * n_rows)
    ).any(axis=0)
    found = np.flatnonzero(most.any(axis=1)).tolist()
    if not found:
        return ()
    called = listed(parties[place] if parties else str(place) for place in found)
    columns = column_names(np.flatnonzero(most.any(axis=0)).tolist(), names)
    return (LOCAL + told("other_units", parties=called, columns=columns),)
