"""Whose rows a node's are: loaded where a table says it, and not before."""

from __future__ import annotations

from flwr.app import ConfigRecord, Context
from numpy.typing import ArrayLike

from flwr_dpkmeans.data.loading.person_ids import (
    id_texts,
    person_digests,
    person_key,
    require_one_each,
)
from flwr_dpkmeans.sums.persons.counted_persons import Persons
from flwr_dpkmeans.sums.persons.row_units import RowUnits

_RECORD = "dpkmeans-persons"


def key_of_node(context: Context) -> bytes:
    """Return this node's key of a run, with which it hashes its persons' ids.

    Drawn at the first message, and kept in the node's own part of Flower's context.
    """
    stored = context.state.config_records.get(_RECORD)
    if stored is not None and stored.get("run") == context.run_id:
        key = stored.get("key")
        if isinstance(key, bytes):
            return key
    drawn = person_key()
    record = ConfigRecord(
        {
            "run": context.run_id,
            "key": drawn,
        }
    )
    context.state[_RECORD] = record
    return drawn


def units_of(units: ArrayLike | Persons | RowUnits, n_rows: int) -> RowUnits:
    """Say how rows count, with a key of this process where ids were given."""
    if isinstance(units, RowUnits):
        return units
    persons = units
    if not isinstance(persons, Persons):
        digests = person_digests(
            id_texts(persons),
            person_key(),
        )
        persons = Persons(digests)
    require_one_each(len(persons), n_rows)
    return RowUnits(persons)
