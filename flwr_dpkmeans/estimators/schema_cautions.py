"""What is to be said of a schema that leaves out most of a party's rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flwr_dpkmeans.data.schema import MOST_OUTSIDE, Encoded
from flwr_dpkmeans.sums.statement import LOCAL


def schema_cautions(
    parties: Sequence[str],
    encoded: Sequence[Encoded],
) -> tuple[str, ...]:
    """What is to be said where a schema leaves out most rows of a party.

    Or reads no cell of one of its columns.
    """
    sentences = []
    for party, table in zip(parties, encoded, strict=bool(encoded)):
        columns = table.schema.columns
        lost = table.left_out_by[table.left_out_by >= 0]
        if 2 * len(lost) > table.n_rows:
            n_lost_by = np.bincount(lost)
            column = columns[n_lost_by.argmax()]
            sentences.append(
                f"{LOCAL}the schema leaves out {len(lost)} of the {table.n_rows} rows"
                f" of {party}, above all for cells of its column"
                f" {column.name!r} that are missing or"
                " nothing that it may hold: look at how they are spelt."
            )
        elif table.blank:
            blank = ", ".join(map(repr, table.blank))
            sentences.append(
                f"{LOCAL}all cells of {blank} of {party} are"
                " missing or nothing that the schema lets them hold, and stand-ins are"
                " clustered: look at how they are spelt."
            )
        if table.foreign:
            foreign = ", ".join(map(repr, table.foreign))
            sentences.append(
                f"{LOCAL}over {MOST_OUTSIDE:.0%} of the cells of"
                f" {foreign} of {party} lie outside the"
                " schema's bounds: look at the units there."
            )
    return tuple(sentences)
