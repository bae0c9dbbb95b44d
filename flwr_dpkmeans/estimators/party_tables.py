"""The parties' tables, checked once: `Tables`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flwr_dpkmeans.algorithms.server.resolved_bounds import (
    PRIVATE,
    is_private,
    resolve_bounds,
)
from flwr_dpkmeans.data.bounds.stated_bounds import read_ranges
from flwr_dpkmeans.data.classes import codes_of
from flwr_dpkmeans.data.columns.treatment import Missing
from flwr_dpkmeans.data.doubts.notebook import doubts_of_frames, doubts_of_rows
from flwr_dpkmeans.data.frame_names import frame_columns
from flwr_dpkmeans.data.loading.person_ids import person_digests, require_one_each
from flwr_dpkmeans.data.loading.row_weights import validate_weights
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.row_labels import in_order_of, row_labels
from flwr_dpkmeans.data.schema import Encoded, Schema
from flwr_dpkmeans.data.table_labels import column_labels
from flwr_dpkmeans.data.validated import (
    validate_columns,
    validate_labels,
    validate_points,
)
from flwr_dpkmeans.errors import ConfigurationError, DataError, require_whole
from flwr_dpkmeans.estimators.fitted_persons import (
    PersonIds,
    count_persons,
    key_of_run,
    stated_persons,
    taken_apart,
)
from flwr_dpkmeans.estimators.fitted_weights import (
    require_some_weight,
    stated_maximum,
    weights_in,
)
from flwr_dpkmeans.estimators.inputs import PartyTables
from flwr_dpkmeans.estimators.made_tables import MadeTables
from flwr_dpkmeans.estimators.party_checks import (
    check_of_party,
    listed_tables,
    require_one_labelling,
)
from flwr_dpkmeans.estimators.schema_cautions import schema_cautions
from flwr_dpkmeans.kernels.blocks import row_blocks
from flwr_dpkmeans.options import FlatOptions, build_config
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.persons.counted_persons import Persons
from flwr_dpkmeans.sums.plan import MAX_CLIENTS
from flwr_dpkmeans.sums.round import Array, Labels
from flwr_dpkmeans.sums.settings import Box, Settings
from flwr_dpkmeans.sums.statement import LOCAL
from flwr_dpkmeans.sums.statement.row_cautions import (
    count_outside,
    fewer_rows_cautions,
    local_cautions,
    party_cautions,
    weight_doubts,
)

if TYPE_CHECKING:
    import pandas as pd

AnyT = TypeVar("AnyT", bound=np.generic)
Names = tuple[str, ...]
RowNumbers = NDArray[np.int64]


@dataclass(frozen=True)
class Tables:
    """The parties' tables, checked once, with the first one's columns in its order."""

    parts: Sequence[Array] = field(repr=False)
    """Rows, with what stands beside the points where a schema asks for a profile."""
    names: Names
    """Of the columns, where all tables have some."""
    one_order: bool
    """Whether all had them in this order."""
    parties: Names
    """What sentences call them by: their numbers in the list, or the names that the
    caller gave.
    """
    rows: tuple[RowNumbers, ...] = field(default=(), repr=False)
    """Of one table, those of each party, where groups divide it."""
    encoded: tuple[Encoded, ...] = ()
    """What a schema made of each table, where there is one."""
    cautions: tuple[str, ...] = ()
    """Where it left out most rows of a party."""
    columns: tuple[object, ...] = ()
    """Of the columns of frames, also where they are no names.

    Numbers, or levels of several.
    """
    indexes: tuple[pd.Index | None, ...] = field(default=(), repr=False)
    """Of each table that the caller gave, what its rows are called (`row_labels`)."""
    frames: tuple[object, ...] = field(default=(), repr=False)
    """The tables as the caller gave them, where a schema reads them."""
    persons: tuple[PersonIds, ...] = field(default=(), repr=False)
    """Of each party's rows, whose they are, where one person is protected."""
    weights: tuple[Array, ...] = field(default=(), repr=False)
    """Of each party's rows, what they weigh, where they have weights."""
    max_weight: float | None = None
    """Public maximum of these."""
    n_persons: int = 0
    """Persons of all parties, those included whose rows a schema leaves out."""

    @classmethod
    def of(
        cls,
        X: PartyTables,
        argument: str = "X",
        groups: ArrayLike | None = None,
        schema: Schema | None = None,
    ) -> Tables:
        """Check what a caller gives.

        A DataError names the table, or what is wrong with their list.
        """
        if groups is not None:
            return cls._grouped(
                X,
                groups,
                argument,
                schema,
            )
        tables = listed_tables(X, argument)
        numbers = map(str, range(len(tables)))
        names = map(repr, X) if isinstance(X, Mapping) else numbers
        parties = tuple(names)
        if len(tables) < 2:
            raise DataError(
                f"{argument} has {len(tables)} client(s), but masks need at least 2:"
                " pass one array for each of two or more clients."
            )
        if schema is not None:
            return cls._encoded_by(
                schema,
                parties,
                tables,
                argument,
            )
        return cls._by_names(parties, tables, argument)

    @classmethod
    def _encoded_by(
        cls,
        schema: Schema,
        parties: Names,
        tables: Sequence[ArrayLike],
        argument: str,
    ) -> Tables:
        """Tables of parties that a schema reads."""
        encoded = []
        descriptions = []
        for party, table in zip(parties, tables, strict=True):
            description = f"{argument}[{party}]"
            encoded_table = check_of_party(
                argument,
                party,
                schema.encode,
                table,
                description,
            )
            encoded.append(encoded_table)
            descriptions.append(description)
        return cls(
            [table.points for table in encoded],
            schema.feature_names,
            one_order=True,
            parties=parties,
            encoded=tuple(encoded),
            cautions=schema_cautions(descriptions, encoded),
            indexes=tuple(map(row_labels, tables)),
            frames=tuple(tables),
        )

    @classmethod
    def _by_names(
        cls,
        parties: Names,
        tables: Sequence[ArrayLike],
        argument: str,
    ) -> Tables:
        """Tables of parties whose columns are matched by name, if they have some."""
        orders = list(map(frame_columns, tables))
        n_named = sum(map(bool, orders))
        if n_named not in (0, len(orders)):
            raise DataError(
                f"{n_named} of {len(orders)} tables in {argument} have"
                " column names and the others have none, but columns are matched by"
                " name: give data frames only, or arrays only."
            )
        if n_named == 0:
            require_one_labelling(parties, tables, argument)
        order = orders[0]
        parts = []
        for party, table in zip(parties, tables, strict=True):
            points = check_of_party(
                argument,
                party,
                validate_columns,
                table,
                order,
            )
            parts.append(points)
        widths = sorted({part.shape[1] for part in parts})
        if len(widths) > 1:
            raise DataError(
                f"the clients' arrays have {widths} features, but all need the same"
                " columns."
            )
        labels = filter(None, map(column_labels, tables))
        return cls(
            parts,
            order,
            one_order=len(set(orders)) == 1,
            parties=parties,
            columns=tuple(next(labels, [])),
            indexes=tuple(map(row_labels, tables)),
        )

    @classmethod
    def alone(
        cls,
        X: ArrayLike,
        schema: Schema | None = None,
        persons: ArrayLike | str | None = None,
    ) -> Tables:
        """One party's table; sums are made as of several, and the others' are empty.

        `persons` are ids, (n,), or the name of a column; None: the schema's.
        """
        X, ids = taken_apart(
            X,
            stated_persons(persons, schema),
            schema=schema,
            is_one_table=True,
        )
        points, names, encoded = _one_table(X, schema)
        rows = np.arange(len(points))
        tables = cls(
            [points, points[:0]],
            names,
            one_order=True,
            parties=("0", "1"),
            rows=(rows, rows[:0]),
            encoded=encoded,
            cautions=schema_cautions(["the table"], encoded),
            columns=tuple(column_labels(X)),
            indexes=(row_labels(X),),
            frames=(X,) if encoded else (),
        )
        return tables.with_persons(ids)

    @classmethod
    def made(
        cls,
        load: Callable[[int], ArrayLike] | None,
        n_clients: object,
        *others: object,
    ) -> Tables:
        """Tables that a function of a client's number, from 0 on, makes."""
        has_others = any(other is not None for other in others)
        if not callable(load) or has_others:
            raise DataError(
                "clients must be a function that makes a client's table from its"
                " number, in the place of X: leave out X, y, groups and a schema, or"
                " clients."
            )
        n_tables = require_whole(
            "n_clients",
            n_clients,
            2,
            "give the number of tables that clients makes",
            MAX_CLIENTS,
        )
        parts = MadeTables(load, n_tables)
        columns = parts.columns
        return cls(
            parts,
            columns.names,
            one_order=True,
            parties=(),
            columns=columns.labels,
        )

    @classmethod
    def _grouped(
        cls,
        X: ArrayLike,
        groups: ArrayLike,
        argument: str,
        schema: Schema | None,
    ) -> Tables:
        """One table whose rows belong to the parties that `groups`, (n,), names."""
        points, names, encoded = _one_table(X, schema)
        groups = in_order_of(row_labels(X), groups, "groups")
        n_rows = encoded[0].n_rows if encoded else len(points)
        codes, parties = _parties_of_rows(groups, n_rows, argument)
        cautions = _cautions_of_groups(encoded, codes, parties)
        if encoded:
            codes = codes[encoded[0].rows]
        n_rows_of_parties = np.bincount(codes, minlength=len(parties))
        ends = np.cumsum(n_rows_of_parties)
        order = np.argsort(codes, kind="stable")
        rows = np.split(order, ends[:-1])
        return cls(
            [points[rows_of_party] for rows_of_party in rows],
            names,
            one_order=True,
            parties=tuple(map(repr, parties)),
            rows=tuple(rows),
            encoded=encoded,
            cautions=cautions,
            columns=tuple(column_labels(X)),
            indexes=(row_labels(X),),
            frames=(X,) if encoded else (),
        )

    @cached_property
    def total(self) -> int:
        """Rows or persons of all parties, those included that a schema leaves out.

        How many these are is private.
        """
        return self.n_persons if self.persons else self._n_rows

    @cached_property
    def _n_rows(self) -> int:
        """Rows of all parties, those included that a schema leaves out."""
        n_encoded = sum(table.n_rows for table in self.encoded)
        if n_encoded:
            return n_encoded
        return sum(map(len, self.parts))

    @property
    def schema(self) -> Schema | None:
        """What reads the tables, if a schema does."""
        return self.encoded[0].schema if self.encoded else None

    @property
    def n_examples(self) -> int | str:
        """The `total`, or that rows are to be counted.

        Those which a schema does not leave out, or what all weigh together.
        """
        if self.weights:
            return PRIVATE
        columns = self.schema.columns if self.schema is not None else ()
        if any(column.missing == Missing.DROP for column in columns):
            return PRIVATE
        return self.total

    def with_persons(self, ids: Sequence[PersonIds] | None) -> Tables:
        """The same tables, of which it is known whose rows these are.

        `ids` are those of each table that the caller gave; None: nobody knows.
        """
        if ids is None:
            return self
        of_parts: list[PersonIds] = []
        for number, of_table in enumerate(ids):
            n_rows = self._n_rows if self.rows else len(self.parts[number])
            if self.encoded:
                n_rows = self.encoded[number].n_rows
            require_one_each(len(of_table), n_rows)
            table_ids = np.array(of_table, dtype=object)
            parts = self._parts_of(number, table_ids)
            of_parts += [part.tolist() for part in parts]
        # One with rows at two parties is two persons.
        counted = of_parts if self.rows else ids
        n_persons = sum(map(count_persons, counted))
        return replace(self, persons=tuple(of_parts), n_persons=n_persons)

    def _parts_of(
        self,
        number: int,
        values: NDArray[AnyT],
    ) -> list[NDArray[AnyT]]:
        """What stands beside each row of a table, (n_rows,), by party.

        Without those that a schema leaves out.
        """
        if self.encoded:
            values = values[self.encoded[number].rows]
        if self.rows:
            return [values[rows] for rows in self.rows]
        return [values]

    def _weights_of_schema(self) -> object:
        """What the schema's column says of the tables, as they are given."""
        name = "" if self.schema is None else self.schema.weight_column
        if not name:
            return None
        listed = [weights_in(frame, name) for frame in self.frames]
        return listed[0] if self.rows else listed

    def with_weights(self, sample_weight: object, max_weight: object) -> Tables:
        """The same tables, whose rows weigh what `sample_weight` says.

        As the tables are given: one array for each, or of one table; None: what the
        schema's column says, if there is a public maximum, or else no weights.
        """
        if sample_weight is None and max_weight is not None:
            sample_weight = self._weights_of_schema()
        if sample_weight is None:
            return self
        name = "sample_weight"
        most = stated_maximum(max_weight)
        of_parts: list[Array] = []
        if self.rows:
            in_order = in_order_of(self.indexes[0], sample_weight, name)
            weights = validate_weights(in_order, self._n_rows)
            of_parts = self._parts_of(0, weights)
            require_some_weight(of_parts)
            return replace(self, weights=tuple(of_parts), max_weight=most)
        of_tables = self._listed_beside(sample_weight, name, "weights")
        for number, of_table in enumerate(of_tables):
            n_rows = len(self.parts[number])
            if self.encoded:
                n_rows = self.encoded[number].n_rows
            weights = check_of_party(
                name,
                self.parties[number],
                validate_weights,
                of_table,
                n_rows,
            )
            of_parts += self._parts_of(number, weights)
        require_some_weight(of_parts)
        return replace(self, weights=tuple(of_parts), max_weight=most)

    def persons_of(self, settings: Settings) -> list[Persons] | None:
        """Whose rows the parties' are, hashed with a key that is drawn for this run.

        None where no person is protected.
        """
        if settings.unit is not PrivacyUnit.PERSON:
            return None
        key, salt = key_of_run(settings)
        digests = [person_digests(ids, key) for ids in self.persons]
        return [Persons(of_party, salt) for of_party in digests]

    def local_cautions(
        self,
        config: RunConfig,
        delta: float,
        box: Box,
        width: int,
    ) -> tuple[str, ...]:
        """What the rows say against a result over them.

        For whoever holds all of them, who calls this.
        """
        counts = []
        for part in self.parts:
            blocks = row_blocks(len(part), width)
            points = (part[rows, :width] for rows in blocks)
            counts.append(count_outside(box, points))
        against_result = local_cautions(
            config,
            delta,
            sum(counts, np.zeros(1)),
            self.names,
            self.n_persons if self.persons else None,
        )
        against_rows = fewer_rows_cautions(config, self.total)
        against_parties = party_cautions(
            np.array(counts),
            self.parties,
            self.names,
        )
        return against_result + against_rows + against_parties + self.cautions

    def doubts(self) -> tuple[str, ...]:
        """What the rows say against clustering them as they are.

        For whoever holds all of them, who calls this.

        Nothing of tables that are made anew for each look.
        """
        if isinstance(self.parts, MadeTables):
            return ()
        schema = self.schema
        sentences = doubts_of_rows(
            self.parts,
            self.names,
            self.parties,
            schema,
        )
        if schema is not None:
            persons_known = len(self.persons) > 0
            sentences += doubts_of_frames(
                self.frames, schema, persons_known=persons_known
            )
        sentences += weight_doubts(self.max_weight, self.weights)
        if schema is not None and schema.weight_column and not self.weights:
            sentences += weight_doubts(None, self.parts)
        return tuple(LOCAL + sentence for sentence in sentences)

    def run(
        self,
        options: FlatOptions,
        server_data: ArrayLike | None = None,
    ) -> tuple[RunConfig, Array | None]:
        """The run over these tables that flat options describe.

        And the server's points.
        """
        bounds = options["bounds"]
        domain = options.get("bounds_domain")
        box, order, points = resolve_bounds(
            bounds,
            server_data,
            domain,
            names=self.names,
        )
        if order != self.names:
            raise DataError(
                "the tables have no column names, but the bounds or server_data name"
                f" {len(order)} columns: give data frames, or leave the names out"
                " there."
            )
        stated = domain if is_private(bounds) else bounds
        self._require_named_bounds(stated, box)
        n_features = len(self.names)
        if not n_features:
            n_features = self.parts[0].shape[1]
        run_options = {
            **options,
            "n_features": n_features,
            "n_clients": len(self.parts),
            "feature_names": self.names,
        }
        config = build_config(
            run_options,
            box,
            has_server_data=points is not None,
        )
        return config, points

    def _require_named_bounds(
        self,
        stated: object,
        box: Bounds,
    ) -> None:
        """Refuse bounds by position where the tables disagree on the positions."""
        if stated is None or self.encoded or self.one_order:
            return
        ranges = read_ranges(stated)
        pairs = set(zip(box.lower, box.upper, strict=True))
        if not ranges.names and len(pairs) > 1:
            raise ConfigurationError(
                "bounds are given by position, but the tables have their"
                f" {len(self.names)} columns in different orders: give a bounds file"
                " that names the columns, or put the columns in one order."
            )

    def labels(
        self,
        y: object,
        n_classes: int,
        option: str = "n_classes",
        names: Sequence[object] = (),
    ) -> list[Labels]:
        """Labels of all rows, one array for each party.

        `option` is what says how many classes there are.

        Numbers from 0 on, of what `y` has as numbers, or else of the classes' `names`.
        """
        check: Callable[..., Labels] = partial(
            validate_labels,
            n_classes=n_classes,
            option=option,
        )
        if names:
            check = partial(codes_of, names=names)
        if self.rows:
            in_order = in_order_of(self.indexes[0], y, "y")
            codes = check(in_order, self._n_rows)
            if self.encoded:
                codes = codes[self.encoded[0].rows]
            return [codes[rows] for rows in self.rows]
        codes_of_parties = []
        for number, labels in enumerate(self._listed_beside(y, "y", "labels")):
            n_rows = len(self.parts[number])
            if self.encoded:
                n_rows = self.encoded[number].n_rows
            codes = check_of_party(
                "y",
                self.parties[number],
                check,
                labels,
                n_rows,
            )
            if self.encoded:
                codes = codes[self.encoded[number].rows]
            codes_of_parties.append(codes)
        return codes_of_parties

    def _listed_beside(self, beside: object, name: str, things: str) -> list[object]:
        """What stands beside each party's rows, from a list or a mapping, in order."""
        listed: list[object] = []
        if isinstance(beside, Mapping):
            named = {repr(party): values for party, values in beside.items()}
            if set(named) == set(self.parties):
                listed = [named[party] for party in self.parties]
        elif isinstance(beside, Iterable) and not isinstance(beside, str | bytes):
            listed = list(beside)
        if len(listed) != len(self.parts):
            raise DataError(
                f"{name} must have one array of {things} for each of the"
                f" {len(self.parts)} clients: pass them as the tables."
            )
        if not self.indexes:
            return listed
        in_order = []
        for party, index, values in zip(
            self.parties,
            self.indexes,
            listed,
            strict=True,
        ):
            in_order.append(in_order_of(index, values, f"{name}[{party}]"))
        return in_order


def _one_table(
    X: ArrayLike, schema: Schema | None
) -> tuple[Array, Names, tuple[Encoded, ...]]:
    """The points of a table of all rows, its columns' names.

    And what a schema made of it.
    """
    if schema is None:
        points = validate_points(X)
        return points, frame_columns(X), ()
    encoded = schema.encode(X)
    return encoded.points, schema.feature_names, (encoded,)


def _parties_of_rows(
    groups: ArrayLike,
    n_rows: int,
    argument: str,
) -> tuple[RowNumbers, Sequence[object]]:
    """The number of each row's party, (n_rows,), and the parties' names."""
    import pandas as pd

    names_of_rows = np.asarray(groups, dtype=object)
    if names_of_rows.shape != (n_rows,):
        raise DataError(
            f"groups has shape {names_of_rows.shape}, but {argument} has {n_rows} rows:"
            " give one for each row."
        )
    codes, parties = pd.factorize(names_of_rows)
    has_gaps = codes.min(initial=0) < 0
    if len(parties) < 2 or has_gaps:
        named = f"{len(parties)} parties"
        if has_gaps:
            named += " and leaves rows without one"
        raise DataError(
            f"groups names {named}, but there must be at least 2 and each row needs"
            " one: name them all."
        )
    return codes, parties


def _cautions_of_groups(
    encoded: Sequence[Encoded],
    codes: RowNumbers,
    parties: Sequence[object],
) -> tuple[str, ...]:
    """What is to be said of what a schema leaves out, by party of one table."""
    of_parties = []
    for code in range(len(parties)):
        is_of_party = codes == code
        for table in encoded:
            left_out_by = table.left_out_by[is_of_party]
            of_parties.append(replace(table, left_out_by=left_out_by))
    names = [f"party {party!r}" for party in parties]
    return schema_cautions(names, of_parties)
