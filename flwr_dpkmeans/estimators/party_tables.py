"""The parties' tables, checked once: `Tables`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flwr_dpkmeans.algorithms.server_points import (
    PRIVATE,
    is_private,
    resolve_bounds,
)
from flwr_dpkmeans.data import points as data_points
from flwr_dpkmeans.data.classes import codes_of
from flwr_dpkmeans.data.columns.treatment import Missing
from flwr_dpkmeans.data.doubts.notebook import doubts_of_frames, doubts_of_rows
from flwr_dpkmeans.data.points import (
    Bounds,
    column_labels,
    frame_columns,
    require_same_labels,
    validate_points,
)
from flwr_dpkmeans.data.row_labels import in_order_of, row_labels
from flwr_dpkmeans.data.schema import MOST_OUTSIDE, Encoded, Schema
from flwr_dpkmeans.errors import (
    ConfigurationError,
    DataError,
    require_whole,
)
from flwr_dpkmeans.estimators.made_tables import Made, check_of_party
from flwr_dpkmeans.kernels.blocks import row_blocks
from flwr_dpkmeans.options import build_config
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.plan import MAX_CLIENTS
from flwr_dpkmeans.sums.round import Array, Labels
from flwr_dpkmeans.sums.settings import Box
from flwr_dpkmeans.sums.statement import (
    LOCAL,
    count_outside,
    fewer_rows_cautions,
    local_cautions,
    party_cautions,
)


@dataclass(frozen=True)
class Tables:
    """The parties' tables, checked once, with the first one's columns in its order."""

    parts: Sequence[Array] = field(repr=False)
    """Rows, with what stands beside the points where a schema asks for a profile."""
    names: tuple[str, ...]
    """Of the columns, where all tables have some."""
    one_order: bool
    """Whether all had them in this order."""
    parties: tuple[str, ...]
    """What sentences call them by: their places in the list, or the names that the
    caller gave.
    """
    rows: tuple[NDArray[np.int64], ...] = field(default=(), repr=False)
    """Of one table, those of each party, where groups divide it."""
    encoded: tuple[Encoded, ...] = ()
    """What a schema made of each table, where there is one."""
    cautions: tuple[str, ...] = ()
    """Where it left out most rows of a party."""
    columns: tuple[object, ...] = ()
    """Of the columns of frames, also where they are no names.

    Numbers, or levels of several.
    """
    indexes: tuple[Any, ...] = field(default=(), repr=False)
    """Of each table that was given, what its rows are called (`row_labels`)."""
    frames: tuple[Any, ...] = field(default=(), repr=False)
    """The tables as they were given, where a schema reads them."""

    @classmethod
    def of(
        cls,
        X: Any,
        argument: str = "X",
        groups: Any = None,
        schema: Schema | None = None,
    ) -> Tables:
        """Check what a caller gives: a DataError names the table, or what is wrong with
        their list.
        """
        if groups is not None:
            return cls._grouped(
                X,
                groups,
                argument,
                schema,
            )
        given = listed_tables(X, argument)
        parties = (
            tuple(map(repr, X))
            if isinstance(X, Mapping)
            else tuple(map(str, range(len(given))))
        )
        indexes = tuple(map(row_labels, given))
        if len(given) < 2:
            raise DataError(
                f"{argument} has {len(given)} client(s), but masks need at least 2:"
                " pass one array for each of two or more clients."
            )
        if schema is not None:
            places = [f"{argument}[{party}]" for party in parties]
            called = zip(
                parties,
                given,
                places,
                strict=True,
            )
            encoded = tuple(
                check_of_party(
                    argument,
                    party,
                    schema.encode,
                    *table,
                )
                for party, *table in called
            )
            cautions = _cautions(places, encoded)
            points = [one.points for one in encoded]
            beside: dict[str, Any] = {
                "encoded": encoded,
                "cautions": cautions,
                "indexes": indexes,
            }
            beside["frames"] = tuple(given)
            return cls(
                points,
                schema.feature_names,
                True,
                parties,
                **beside,
            )
        orders = [frame_columns(table) for table in given]
        if any(orders) and not all(orders):
            raise DataError(
                f"{sum(map(bool, orders))} of {len(orders)} tables in {argument} have"
                " column names and the others have none, but columns are matched by"
                " name: give data frames only, or arrays only."
            )
        if not any(orders):
            _require_same_labels(dict(zip(parties, given, strict=True)), argument)
        checked = zip(parties, given, strict=True)
        parts = [
            check_of_party(
                argument,
                party,
                data_points.validate_columns,
                table,
                orders[0],
            )
            for party, table in checked
        ]
        widths = sorted({part.shape[1] for part in parts})
        if len(widths) > 1:
            raise DataError(
                f"the clients' arrays have {widths} features, but all need the same"
                " columns."
            )
        labels = next(filter(None, map(column_labels, given)), [])
        one_order = len(set(orders)) == 1
        return cls(
            parts,
            orders[0],
            one_order,
            parties,
            columns=tuple(labels),
            indexes=indexes,
        )

    @classmethod
    def alone(
        cls,
        X: Any,
        schema: Schema | None = None,
    ) -> Tables:
        """One party's table; sums are made as of several, and the others' are empty."""
        points, names, encoded = _one_table(X, schema)
        rows = np.arange(len(points))
        cautions = _cautions(["the table"], encoded)
        labels = tuple(column_labels(X))
        parts, of_parts = [points, points[:0]], (rows, rows[:0])
        indexes = (row_labels(X),)
        frames = (X,) if encoded else ()
        return cls(
            parts,
            names,
            True,
            ("0", "1"),
            of_parts,
            encoded,
            cautions,
            labels,
            indexes,
            frames,
        )

    @classmethod
    def made(cls, load: Any, n_clients: Any, *others: Any) -> Tables:
        """Tables that a function of a client's number, from 0 on, makes."""
        if not callable(load) or any(other is not None for other in others):
            raise DataError(
                "clients must be a function that makes a client's table from its"
                " number, in the place of X: leave out X, y, groups and a schema, or"
                " clients."
            )
        wanted = require_whole(
            "n_clients",
            n_clients,
            2,
            "give the number of tables that clients makes",
            MAX_CLIENTS,
        )
        names, labels, _ = (parts := Made(load, wanted)).columns
        return cls(
            parts,
            names,
            True,
            (),
            columns=labels,
        )

    @classmethod
    def _grouped(
        cls,
        X: Any,
        groups: Any,
        argument: str,
        schema: Schema | None,
    ) -> Tables:
        """One table whose rows belong to the parties that `groups`, (n,), names."""
        import pandas as pd

        points, names, encoded = _one_table(X, schema)
        groups = in_order_of(row_labels(X), groups, "groups")
        given, n_rows = (
            np.asarray(groups, dtype=object),
            encoded[0].n_rows if encoded else len(points),
        )
        if given.shape != (n_rows,):
            raise DataError(
                f"groups has shape {given.shape}, but {argument} has {n_rows} rows:"
                " give one for each row."
            )
        codes, parties = pd.factorize(given)
        if len(parties) < 2 or codes.min() < 0:
            told = f"{len(parties)} parties" + " and leaves rows without one" * bool(
                codes.min(initial=0) < 0
            )
            raise DataError(
                f"groups names {told}, but there must be at least 2 and each row needs"
                " one: name them all."
            )
        each = [
            replace(e, left_out_by=e.left_out_by[codes == code])
            for code in range(len(parties))
            for e in encoded
        ]
        cautions = _cautions([f"party {party!r}" for party in parties], each)
        codes = codes[encoded[0].rows] if encoded else codes
        rows = np.split(
            np.argsort(codes, kind="stable"),
            np.cumsum(np.bincount(codes, minlength=len(parties)))[:-1],
        )
        own = [points[places] for places in rows]
        labels = tuple(column_labels(X))
        indexes, frames = (row_labels(X),), (X,) if encoded else ()
        called = tuple(map(repr, parties))
        return cls(
            own,
            names,
            True,
            called,
            tuple(rows),
            encoded,
            cautions,
            labels,
            indexes,
            frames,
        )

    @cached_property
    def total(self) -> int:
        """Rows of all parties together, those included that a schema leaves out.

        How many these are is private.
        """
        return sum([one.n_rows for one in self.encoded]) or sum(map(len, self.parts))

    @property
    def n_examples(self) -> int | str:
        """The `total`, or that those are to be counted which a schema does not leave
        out.
        """
        columns = [column for one in self.encoded[:1] for column in one.schema.columns]
        return (
            PRIVATE
            if any(column.missing == Missing.DROP for column in columns)
            else self.total
        )

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
        blocks = (
            (part[rows, :width] for rows in row_blocks(len(part), width))
            for part in self.parts
        )
        counts = [count_outside(box, own) for own in blocks]
        against = local_cautions(
            config,
            delta,
            sum(counts, np.zeros(1)),
            self.names,
        )
        against += fewer_rows_cautions(config, self.total)
        return (
            against
            + party_cautions(np.array(counts), self.parties, self.names)
            + self.cautions
        )

    def doubts(self) -> tuple[str, ...]:
        """What the rows say against clustering them as they are.

        For whoever holds all of them, who calls this.

        Nothing of tables that are made anew for each look.
        """
        if isinstance(self.parts, Made):
            return ()
        schema = self.encoded[0].schema if self.encoded else None
        sentences = doubts_of_rows(
            self.parts,
            self.names,
            self.parties,
            schema,
        )
        sentences += doubts_of_frames(self.frames, schema) if schema else []
        return tuple(LOCAL + sentence for sentence in sentences)

    def run(
        self,
        given: Mapping[str, Any],
        server_data: Any = None,
    ) -> tuple[RunConfig, Array | None]:
        """The run over these tables that flat options describe, and the server's
        points.
        """
        bounds, domain = given["bounds"], given.get("bounds_domain")
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
        self._require_named_bounds(domain if is_private(bounds) else bounds, box)
        width = len(self.names) or self.parts[0].shape[1]
        facts = {
            "n_features": width,
            "n_clients": len(self.parts),
            "feature_names": self.names,
        }
        return (
            build_config({**given, **facts}, box, has_server_data=points is not None),
            points,
        )

    def _require_named_bounds(
        self,
        stated: Any,
        box: Bounds,
    ) -> None:
        """Refuse bounds by position where the tables disagree on the positions."""
        by_position = (
            stated is not None
            and not self.encoded
            and not data_points.read_ranges(stated).names
        )
        if (
            by_position
            and not self.one_order
            and len(set(zip(box.lower, box.upper, strict=True))) > 1
        ):
            raise ConfigurationError(
                "bounds are given by position, but the tables have their"
                f" {len(self.names)} columns in different orders: give a bounds file"
                " that names the columns, or put the columns in one order."
            )

    def labels(
        self,
        y: Any,
        n_classes: int,
        option: str = "n_classes",
        names: Sequence[Any] = (),
    ) -> list[Labels]:
        """Labels of all rows, one array for each party.

        `option` is what says how many classes there are.

        Numbers from 0 on, of what `y` has as numbers, or else of the classes' `names`.
        """
        check = partial(data_points.validate_labels, n_classes=n_classes, option=option)
        check = partial(codes_of, names=names) if names else check
        if self.rows:
            whole = check(in_order_of(self.indexes[0], y, "y"), self.total)
            whole = whole[self.encoded[0].rows] if self.encoded else whole
            return [whole[own] for own in self.rows]
        if isinstance(y, Mapping):
            named = {repr(party): own for party, own in y.items()}
            y = (
                [named[party] for party in self.parties]
                if set(named) == set(self.parties)
                else None
            )
        wrong = not isinstance(y, Iterable) or isinstance(y, str | bytes)
        if wrong or len(given := list(y)) != len(self.parts):
            raise DataError(
                f"y must have one array of labels for each of the {len(self.parts)}"
                " clients: pass them as the tables."
            )
        n_rows = [one.n_rows for one in self.encoded] or [
            len(part) for part in self.parts
        ]
        indexes = self.indexes or (None,) * len(given)
        beside = zip(
            self.parties,
            indexes,
            given,
            strict=True,
        )
        given = [
            in_order_of(index, classes, f"y[{party}]")
            for party, index, classes in beside
        ]
        triples = zip(
            self.parties,
            given,
            n_rows,
            strict=True,
        )
        classes = [
            check_of_party(
                "y",
                party,
                check,
                own,
                n,
            )
            for party, own, n in triples
        ]
        return (
            [own[one.rows] for own, one in zip(classes, self.encoded, strict=True)]
            if self.encoded
            else classes
        )


def _one_table(
    X: Any, schema: Schema | None
) -> tuple[Array, tuple[str, ...], tuple[Encoded, ...]]:
    """The points of a table of all rows, its columns' names, and what a schema made of
    it.
    """
    if schema is None:
        return validate_points(X), frame_columns(X), ()
    encoded = schema.encode(X)
    return encoded.points, schema.feature_names, (encoded,)


def _cautions(parties: Sequence[str], encoded: Sequence[Encoded]) -> tuple[str, ...]:
    """What is to be said where a schema leaves out most rows of a party, or reads no
    cell of one of its columns.
    """
    sentences = []
    for party, own in zip(parties, encoded, strict=bool(encoded)):
        lost, columns = own.left_out_by[own.left_out_by >= 0], own.schema.columns
        if 2 * len(lost) > own.n_rows:
            sentences.append(
                f"{LOCAL}the schema leaves out {len(lost)} of the {own.n_rows} rows of"
                f" {party}, above all for cells of its column"
                f" {columns[np.bincount(lost).argmax()].name!r} that are missing or"
                " nothing that it may hold: look at how they are spelt."
            )
        elif own.blank:
            sentences.append(
                f"{LOCAL}all cells of {', '.join(map(repr, own.blank))} of {party} are"
                " missing or nothing that the schema lets them hold, and stand-ins are"
                " clustered: look at how they are spelt."
            )
        if own.foreign:
            sentences.append(
                f"{LOCAL}over {MOST_OUTSIDE:.0%} of the cells of"
                f" {', '.join(map(repr, own.foreign))} of {party} lie outside the"
                " schema's bounds: look at the units there."
            )
    return tuple(sentences)


def listed_tables(X: Any, argument: str = "X") -> list[ArrayLike]:
    """The parties' tables as a list.

    One table for all is a mistake that has a sentence of its own.
    """
    shape = getattr(X, "shape", ())
    if len(shape) == 2:
        others = (
            ", name each row's party by groups, or use DPKMeans if one party holds all"
            " rows"
        )
        raise DataError(
            f"{argument} is one table of shape {tuple(shape)}, but there must be one"
            " for each client: pass a list such as [X_a,"
            f" X_b]{others if argument == 'X' else ''}."
        )
    if isinstance(X, Mapping):
        return list(X.values())
    if not isinstance(X, Iterable) or isinstance(X, str | bytes):
        raise DataError(
            f"{argument} is of type {type(X).__name__}, but there must be one table for"
            " each client: pass a list such as [X_a, X_b]."
        )
    return list(X)


def _require_same_labels(tables: Mapping[str, ArrayLike], argument: str) -> None:
    """Refuse frames whose columns are labelled, but not by text, in different ways.

    Positions would be wrong.
    """
    labels = {
        party: list(table.columns)
        for party, table in tables.items()
        if hasattr(table, "columns")
    }
    first = next(iter(labels), "")
    for party, own in labels.items():
        require_same_labels(
            f"{argument}[{party}]: the columns are",
            own,
            f"{argument}[{first}]",
            labels[first],
        )
