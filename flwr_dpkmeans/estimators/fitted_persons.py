"""Whose rows tables in memory are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from numpy.typing import ArrayLike

from flwr_dpkmeans.data.files.formats.frames import frame_table
from flwr_dpkmeans.data.loading.person_ids import SIMULATED_KEY, id_texts, person_key
from flwr_dpkmeans.data.row_labels import in_order_of, row_labels
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.errors import ConfigurationError, DataError
from flwr_dpkmeans.estimators.inputs import PartyTables
from flwr_dpkmeans.estimators.party_checks import check_of_party, listed_tables
from flwr_dpkmeans.privacy.noise import NoiseKind
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.settings import Settings

PersonIds = Sequence[str | None]
"""Of each row the text of its person's id; None where it is missing."""


def unit_of(unit: object, persons: Sequence[PersonIds]) -> object:
    """The unit of a fit, which is the person where it is said whose rows these are.

    Parameters
    ----------
    unit : str
        As it was given; ``"record"`` is the default of all doors.
    persons : sequence
        Ids of each table; empty: nothing says whose rows these are.
    """
    person = PrivacyUnit.PERSON.value
    if not persons:
        if unit == person:
            raise ConfigurationError(
                "unit is 'person', but nothing says whose rows these are: give fit"
                " persons='patient_id' (the name of a column), or one id for each row."
            )
        return unit
    if unit not in (person, PrivacyUnit.RECORD.value):
        raise ConfigurationError(
            f"persons were given, but unit is {unit!r}: choose unit='person', or leave"
            " persons out."
        )
    return person


def stated_persons(
    persons: object,
    schema: Schema | None,
    unit: object = PrivacyUnit.RECORD.value,
) -> object:
    """What says whose rows tables are: what a fit was given, or else the schema.

    None where nothing does, or `unit` says that clients are protected.
    """
    if persons is not None or schema is None or not schema.person_column:
        return persons
    may_be_persons = unit in (PrivacyUnit.RECORD.value, PrivacyUnit.PERSON.value)
    return schema.person_column if may_be_persons else None


def taken_apart(
    X: PartyTables,
    persons: object,
    argument: str = "X",
    *,
    schema: Schema | None = None,
    is_one_table: bool = False,
) -> tuple[PartyTables, list[PersonIds] | None]:
    """Take the ids of persons out of tables.

    Parameters
    ----------
    X : tables
        One for each party, listed or by name; or one of all rows.
    persons : str, array-like or None
        Name of a column of each table, or ids as the tables are given: one array for
        each, or of one table.
    argument : str
        What errors call the tables.
    schema : Schema or None
        What reads the tables, by which the column is not clustered anyway.
    is_one_table : bool
        Whether `X` is one table of all rows.

    Returns
    -------
    X : tables
        The same, without that column.
    ids : list of list of str or None
        Of each table.
    """
    if persons is None:
        return X, None
    if is_one_table:
        table, ids = _of_table(X, persons, argument, schema)
        return table, [ids]
    tables = listed_tables(X, argument)
    by_name = isinstance(X, Mapping)
    parties = list(map(repr, X)) if by_name else [str(i) for i in range(len(tables))]
    of_tables = _listed_persons(X, persons, len(tables), argument)
    apart = [
        check_of_party(argument, party, _of_table, table, of_table, argument, schema)
        for party, table, of_table in zip(parties, tables, of_tables, strict=True)
    ]
    without = [table for table, _ in apart]
    return dict(zip(X, without, strict=True)) if by_name else without, [
        ids for _, ids in apart
    ]


def _listed_persons(
    X: PartyTables,
    persons: PartyTables,
    n_tables: int,
    argument: str,
) -> list[object]:
    """What says whose rows each table's are."""
    if isinstance(persons, str):
        return [persons] * n_tables
    if isinstance(persons, Mapping) and isinstance(X, Mapping):
        if set(persons) == set(X):
            return [persons[name] for name in X]
    elif not isinstance(persons, Mapping):
        listed = list(persons)
        if len(listed) == n_tables:
            return listed
    raise DataError(
        f"persons must have one array of ids for each of the {n_tables} tables in"
        f" {argument}: pass them as the tables, or the name of a column."
    )


def _of_table(
    table: ArrayLike,
    persons: object,
    argument: str,
    schema: Schema | None,
) -> tuple[ArrayLike, PersonIds]:
    """One table without its person column, and the ids."""
    if not isinstance(persons, str):
        ids = id_texts(in_order_of(row_labels(table), persons, "persons"))
        return table, ids
    if schema is not None and persons in {column.name for column in schema.columns}:
        raise ConfigurationError(
            f"persons is {persons!r}, which is a column of the schema, but whose row it"
            " is says nothing about the row: take it out there."
        )
    if not hasattr(table, "columns") and not isinstance(table, Mapping):
        raise DataError(
            f"persons is {persons!r}, but {argument} has no column names: give a data"
            " frame, or one id for each row."
        )
    raw = frame_table(table)
    column = raw.column_of("persons", persons)
    assert column is not None
    ids = column.text()
    if schema is not None:
        return table, ids
    return _without(table, persons), ids


def _without(table: PartyTables, name: str) -> PartyTables:
    """A frame without one of its columns, which is not changed itself."""
    if isinstance(table, Mapping):
        return {key: values for key, values in table.items() if key != name}
    names = table.columns
    if hasattr(table, "column_names"):
        names = table.column_names
    labels = [label for label in names if str(label) != name]
    if hasattr(table, "select"):
        return table.select(labels)
    return table[labels]


def count_persons(ids: PersonIds) -> int:
    """How many persons there are: each row without an id is one of its own."""
    different = set(ids)
    n_missing = sum(text is None for text in ids)
    return len(different - {None}) + n_missing


def key_of_run(settings: Settings) -> tuple[bytes, int]:
    """The key that hashes ids, and the number that chooses among a person's rows.

    Seeded runs, which protect nobody, repeat them.
    """
    if settings.noise is NoiseKind.SEEDED and settings.random_state is not None:
        return SIMULATED_KEY, settings.random_state
    return person_key(), 0
