"""What exact rows say against a result, for those who hold them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from flwr_dpkmeans.errors import column_names, listed
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.round import Array
from flwr_dpkmeans.sums.settings import Box
from flwr_dpkmeans.sums.statement.cautions import LOCAL, sentences_that_hold

_CLIPPED = 0.05
"""Part of the rows of a column above which more than a little is clipped."""


def count_outside(box: Box, parts: Iterable[Array]) -> Array:
    """How many rows there are, and in each column how many lie outside the `box`.

    (1 + n_features,), exact.
    """
    lower, upper = (np.array(side) for side in box)
    counts = np.zeros(1)
    for part in parts:
        is_outside = (part < lower) | (part > upper)
        n_outside = is_outside.sum(axis=0)
        counts = counts + np.concatenate([[len(part)], n_outside])
    return counts


def local_cautions(
    config: RunConfig,
    delta: float,
    counts: Array,
    names: Sequence[str] = (),
    n_persons: int | None = None,
) -> tuple[str, ...]:
    """Say what exact rows hold against a result, for those who have them.

    Without a number that was taken from them.

    `counts` are those of `count_outside` the box that rows were clipped to, both in the
    units of the data; `names` those of the columns where they are known, else the
    configuration's. Where persons are protected, there are `n_persons`.
    """
    settings = config.settings
    declared = settings.n_examples
    by_record = settings.unit.by_row
    n_rows = counts[0]
    outside = counts[1:]
    clipped = np.flatnonzero(outside > _CLIPPED * n_rows).tolist()
    columns = ""
    if clipped:
        columns = column_names(clipped, names or settings.feature_names)
    n_units = n_rows if n_persons is None else n_persons
    is_larger = declared is not None and n_units > declared
    holds = {
        "more_rows": by_record and is_larger,
        "delta_of_rows": by_record and delta * n_units >= 1.0,
        "clipped": bool(clipped),
    }
    sentences = sentences_that_hold(
        holds,
        declared=declared,
        delta=delta,
        part=_CLIPPED,
        columns=columns,
        things=settings.unit.things,
    )
    return tuple(LOCAL + sentence for sentence in sentences)


def weight_doubts(
    max_weight: float | None,
    weights: Iterable[Array],
) -> tuple[str, ...]:
    """Say which of the parties' rows count otherwise than their weights say.

    Weights are (n_rows,) of each party, NaN where they are no numbers; `max_weight` is
    None in a run that weighs no rows.
    """
    parts = [np.asarray(part) for part in weights]
    if max_weight is None:
        return (report_sentence("unused_weights"),) if parts else ()
    is_heavy = any((part > max_weight).any() for part in parts)
    is_none = any((np.isnan(part) | (part < 0.0)).any() for part in parts)
    holds = {"heavy_rows": is_heavy, "no_weights": is_none}
    return sentences_that_hold(holds, most=max_weight)


def fewer_rows_cautions(config: RunConfig, n_rows: int) -> tuple[str, ...]:
    """Doubt a declared number that is larger than that of all parties' rows.

    For whoever holds all of them.
    """
    settings = config.settings
    declared = settings.n_examples
    by_record = settings.unit.by_row
    if declared is None or not by_record or n_rows >= declared:
        return ()
    sentence = report_sentence(
        "fewer_rows",
        declared=declared,
        things=settings.unit.things,
    )
    return (LOCAL + sentence,)


def party_cautions(
    counts: Array,
    parties: Sequence[str],
    names: Sequence[str],
) -> tuple[str, ...]:
    """Name parties with most rows outside of the box where others have few.

    For who holds all rows.

    `counts` are those of `count_outside`, one row for each party, which are called by
    their positions without `parties`.
    """
    n_rows = counts[:, :1]
    outside = counts[:, 1:]
    # A column that all parties have outside has bounds that are wrong, which is another
    # sentence.
    has_few = (n_rows > 0) & (outside <= _CLIPPED * n_rows)
    is_column_sound = has_few.any(axis=0)
    has_most = (outside > n_rows / 2.0) & is_column_sound
    affected_parties = np.flatnonzero(has_most.any(axis=1)).tolist()
    if not affected_parties:
        return ()
    affected_columns = np.flatnonzero(has_most.any(axis=0)).tolist()
    if parties:
        called = [parties[index] for index in affected_parties]
    else:
        called = [str(index) for index in affected_parties]
    columns = column_names(affected_columns, names)
    sentence = report_sentence("other_units", parties=listed(called), columns=columns)
    return (LOCAL + sentence,)
