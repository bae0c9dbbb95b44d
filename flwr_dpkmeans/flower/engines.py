"""How `FederatedKMeans` runs a federation in one process.

Through Flower's messages, or without them.

``inprocess`` uses the same strategy, ClientApp, secure-aggregation mod and records as a
deployment. ``direct`` runs the same rounds, noise and masks without messages, for
thousands of virtual clients.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from numpy.typing import ArrayLike, NDArray

from flwr_dpkmeans.algorithms.kmeans_task import KMeansTask
from flwr_dpkmeans.algorithms.measure import EvaluationResult, read_evaluation
from flwr_dpkmeans.algorithms.naive_bayes import NaiveBayesTask
from flwr_dpkmeans.algorithms.server_points import (
    PRIVATE,
    in_box,
    is_private,
    plan_bounds,
    resolve_bounds,
)
from flwr_dpkmeans.data import points as data_points
from flwr_dpkmeans.data.classes import codes_of, named_classes
from flwr_dpkmeans.data.columns.column import Missing
from flwr_dpkmeans.data.doubts.notebook import doubts_of_frames, doubts_of_rows
from flwr_dpkmeans.data.points import (
    Bounds,
    column_labels,
    frame_columns,
    require_same_labels,
    validate_points,
)
from flwr_dpkmeans.data.row_labels import in_order_of, row_labels
from flwr_dpkmeans.data.schema import MOST_OUTSIDE, Encoded, Schema, schema_of
from flwr_dpkmeans.errors import (
    ConfigurationError,
    DataError,
    InputWarning,
    require_whole,
    warn,
)
from flwr_dpkmeans.flower import _private
from flwr_dpkmeans.flower.client_app import SecureAggregation, client_app
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.strategy import PrivateKMeans, first_plan
from flwr_dpkmeans.kernels.blocks import row_blocks
from flwr_dpkmeans.log import placed_logger, printable, where_raised
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.policy import IN_SIMULATION
from flwr_dpkmeans.node.settings import NodeSettings
from flwr_dpkmeans.options import PrivateBounds, build_config
from flwr_dpkmeans.privacy.provenance import Provenance, utc_now
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.results.values import OF_CENTRES, Values
from flwr_dpkmeans.sums.checks.columns import planned_schema
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.local import FIRST_NODE_ID, run_direct
from flwr_dpkmeans.sums.outcome import Result
from flwr_dpkmeans.sums.plan import MAX_CLIENTS, Plan
from flwr_dpkmeans.sums.registry import Registry
from flwr_dpkmeans.sums.round import Array, Labels, State
from flwr_dpkmeans.sums.settings import Box, Dropout
from flwr_dpkmeans.sums.statement import (
    LOCAL,
    Step,
    build_report,
    count_outside,
    fewer_rows_cautions,
    local_cautions,
    party_cautions,
)
from flwr_dpkmeans.sums.task import TASKS, Task
from flwr_dpkmeans.threads import one_thread

if TYPE_CHECKING:
    from flwr_dpkmeans.flower._private import Run

logger = placed_logger("flwr_dpkmeans.estimator")

_ONE_RUN = RLock()
"""Held by the thread whose run Flower's identity of this process names."""
if hasattr(os, "register_at_fork"):  # a child has no thread that would let go of it
    os.register_at_fork(after_in_child=_ONE_RUN._at_fork_reinit)  # type: ignore[attr-defined]

CheckedT = TypeVar("CheckedT")

InOnePlace = tuple[State, Box, PrivacyReport]
"""Centroids and counts in the scaled box, the box, and what releasing them costs."""


@dataclass(frozen=True)
class Federated:
    """What a task found; its arrays by name as ``found["mean"]``."""

    plan: Plan
    """The final one."""
    state: State
    """The last one, in the box [-1, 1]^d."""
    privacy: PrivacyReport
    columns: tuple[str, ...] = ()
    """Names of the columns, where the tables have some."""
    steps: tuple[Step, ...] = ()
    """One for each aggregation."""
    evaluation: EvaluationResult | None = None
    """Metrics of a clustering, if the run had an evaluation."""
    labels: tuple[object, ...] = ()
    """Of the columns of frames, also where these are no names."""
    classes: tuple[Any, ...] = ()
    """Names of classes, in the order of what was released of them.

    Empty where they are numbers from 0 on.
    """

    @property
    def result(self) -> Result:
        """What the task makes of the last state."""
        return self.plan.task.result(self.plan, self.state)

    @property
    def errors(self) -> Mapping[str, Array]:
        """Of some arrays, how far noise may have moved each entry.

        Half of a 95% interval, in the entry's unit.
        """
        return self.result.errors

    @property
    def values(self) -> Values:
        """All numbers with the names of columns and classes, and with their errors, to
        be printed or as a frame.
        """
        task, result = self.plan.task, self.result
        title = (
            f"{task.name} of {self.plan.n_clients} parties, epsilon"
            f" {self.privacy.epsilon:.4g}"
        )
        names = {"column": list(self.columns), "class": list(map(str, self.classes))}
        if isinstance(task, NaiveBayesTask):
            names |= task.columns(self.plan.n_features or 0).names(self.columns)
        # Errors that are arrays, too, stand beside what they are errors of.
        errors = list(result.errors.values())
        arrays = {
            name: array
            for name, array in result.arrays.items()
            if not any(array is one for one in errors)
        }
        values = Values.of(
            title,
            arrays,
            result.errors,
            result.axes,
            names,
        )
        note = OF_CENTRES if isinstance(task, KMeansTask) else values.note
        return replace(values, note=note)

    def __str__(self) -> str:
        return str(self.values)

    def _repr_html_(self) -> str:
        return self.values._repr_html_()

    def __getitem__(self, name: str) -> Array:
        return self.result[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.result)

    def keys(self) -> KeysView[str]:
        """Names of the arrays."""
        return self.result.keys()

    def __repr__(self) -> str:
        found = ", ".join(
            f"{name!r} {array.shape}" for name, array in self.result.arrays.items()
        )
        return (
            f"{type(self).__name__}({found}; {self.plan.task.name}, epsilon"
            f" {self.privacy.epsilon:.4g})"
        )


def play_inprocess(
    config: RunConfig,
    parts: Sequence[Array],
    server_points: Array | None,
    labels: Sequence[Labels] | None = None,
    on_step: Callable[[Step], None] = logger.debug,
) -> Federated:
    """Run any task through Flower's messages, every client behind the
    secure-aggregation mod.

    `parts` (n_i, d; or as in `Encoded`) and `server_points` (n_server, d) are in the
    caller's units; `labels` (n_i,) are for what looks at them; `on_step` is told of
    each step. The result is one client's: under ``oblivious`` the server has none.
    """
    n_beside = config.settings.n_beside
    split = [np.split(part, [part.shape[1] - n_beside], axis=1) for part in parts]
    clients = [
        KMeansClient(
            points,
            feature_names=config.feature_names,
            labels=None if labels is None else labels[i],
        )
        for i, (points, _) in enumerate(split)
    ]
    for client, (_, beside) in zip(clients, split, strict=True):
        # All parts were encoded by one schema, if any.
        client.agreement, client.beside = planned_schema(config.settings), beside
    grid = InProcessGrid(
        [_node(client) for client in clients], run_id=secrets.randbits(62)
    )
    strategy = PrivateKMeans.from_config(
        config,
        server_points=server_points,
        on_step=on_step,
        # The result says it, and Python's warnings show it once, not once for each fit
        # in a loop.
        on_warning=logger.debug,
    )
    with one_thread(), grid.running():
        steps = strategy.start(grid).steps
    # Others may have failed.
    first = next(
        (client for client in clients if client.state_ is not None), clients[0]
    )
    if first.state_ is None or first.privacy_ is None:
        raise ConfigurationError(
            "the run ended without a result: look at the log of flwr_dpkmeans."
        )
    return Federated(
        strategy.run.plan,
        first.state_,
        first.privacy_,
        config.feature_names,
        steps,
        first.evaluation_,
    )


def play_directly(
    config: RunConfig,
    parts: Sequence[Array],
    server_points: Array | None,
    labels: Sequence[Labels] | None = None,
    on_step: Callable[[Step], None] = logger.debug,
) -> Federated:
    """Run any task without messages; parameters as in `play_inprocess`."""
    if config.dropout not in (None, Dropout.undisturbed()):
        raise ConfigurationError(
            "dropout is 'recover', but engine='direct' has no messages that could be"
            " lost: leave dropout out, or use engine='inprocess'."
        )
    config = config.changed(dropout=Dropout.undisturbed())
    started = utc_now()
    shape = {
        "n_clients": len(parts),
        "n_features": parts[0].shape[1] - config.settings.n_beside,
    }
    plan, kept = first_plan(
        config,
        server_points,
        run_id=secrets.randbits(62),
        **shape,
    )
    with one_thread():
        found = run_direct(
            plan,
            parts,
            scale=_in_box,
            server_points=kept,
            labels=labels,
            on_step=on_step,
        )
    unclear = found.first.discoveries.unclear
    report = build_report(
        found.plan,
        found.attempts,
        report_sentence("simulated"),
        state=found.state,
        unclear=unclear,
    )
    report = replace(
        report,
        provenance=Provenance.of(
            plan.run_id,
            "all parties",
            found.digest,
            started=started,
        ),
    )
    evaluation = (
        read_evaluation(found.plan, found.state)
        if "centroids" in found.state.arrays
        else None
    )
    return Federated(
        found.plan,
        found.state,
        report,
        config.feature_names,
        tuple(found.steps),
        evaluation,
    )


def _in_box(plan: Plan, points: Array) -> Array:
    return in_box(plan_bounds(plan, points.shape[1]), points, plan.fraction_bits)


def fit_in_one_place(config: RunConfig, parts: Sequence[Array]) -> InOnePlace:
    """Run a baseline that needs all rows, (n_i, d) for each party, together."""
    if config.settings.profile_widths:
        raise ConfigurationError(
            f"the schema asks for a profile, but {config.algorithm!r} has none: leave"
            " it out."
        )
    try:
        # An app's bundle has no baselines: nodes never run them.
        from flwr_dpkmeans.baselines import fit
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{config.algorithm!r} is for comparison only and no part of the package"
            " alone: run it in a copy of the project, or choose 'proxy_lloyd'."
        ) from error
    started = utc_now()
    n_beside = config.settings.n_beside
    state, box, privacy = fit(
        config, [part[:, : part.shape[1] - n_beside] for part in parts]
    )
    run_id, no_plan = secrets.randbits(62), b""
    return (
        state,
        box,
        replace(
            privacy,
            provenance=Provenance.of(
                run_id,
                "all parties",
                no_plan,
                started=started,
            ),
        ),
    )


def _node(client: KMeansClient) -> Node:
    """A virtual node that holds one client's rows and keeps its ledger in memory."""
    settings = NodeSettings(
        IN_SIMULATION,
        MemoryLedger(),
        "default",
        simulated=True,
    )
    return Node(client_app(lambda _: client, mod=SecureAggregation(lambda _: settings)))


ENGINES: Registry[Callable[..., Federated]] = Registry(
    "flwr_dpkmeans.engines", "engine"
)
"""How a run's messages travel, by name."""
ENGINES.add("inprocess", play_inprocess)
ENGINES.add("direct", play_directly)


@dataclass(frozen=True)
class Made(Sequence[Array]):
    """Tables that a function makes anew whenever they are looked at, so that one at a
    time is in memory.
    """

    load: Callable[[int], ArrayLike]
    n_clients: int
    # Of each table that was looked at.
    n_rows: dict[int, int] = field(default_factory=dict, repr=False)

    @cached_property
    def columns(self) -> tuple[tuple[str, ...], tuple[object, ...], int]:
        """Names, labels and number of the first one's columns."""
        width = _of_party(
            "clients",
            "0",
            validate_points,
            first := self._made(0),
        ).shape[1]
        return frame_columns(first), tuple(column_labels(first)), width

    def _made(self, place: int) -> Any:
        try:
            return self.load(place)
        except Exception as error:
            # Also the end of an iterator, which would be that of whoever looks at all
            # tables.
            told = (
                f"clients({place}) raised {type(error).__name__}:"
                f" {printable(error, 300).rstrip('.')}"
            )
            raise DataError(
                f"{told}. It is called many times, and must make the same table each"
                " time."
            ) from error

    def __len__(self) -> int:
        return self.n_clients

    def __getitem__(self, place: Any) -> Any:
        if not 0 <= place < self.n_clients:
            raise IndexError(place)
        _, labels, width = self.columns
        if tuple(column_labels(table := self._made(place))) != labels:
            raise DataError(
                f"clients({place}) has other columns than clients(0): give all the"
                " same, in one order."
            )
        if (
            points := _of_party(
                "clients",
                str(place),
                validate_points,
                table,
            )
        ).shape[1] != width:
            raise DataError(
                f"clients({place}) has {points.shape[1]} columns, clients(0) {width}:"
                " give all the same."
            )
        if (known := self.n_rows.setdefault(place, len(points))) != len(points):
            raise DataError(
                f"clients({place}) has {len(points)} rows, but had {known}: make the"
                " same table each time."
            )
        return points


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
                _of_party(
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
            _of_party(
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
            _of_party(
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


def _of_party(
    what: str, party: str, check: Callable[..., CheckedT], *values: Any
) -> CheckedT:
    """Check what one party gives.

    a sentence about it begins with its place in the list, or its name.
    """
    try:
        return check(*values)
    except DataError as error:
        raise DataError(f"{what}[{party}]: {error}") from error


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


def federate(
    task: str | Task,
    parts: Sequence[ArrayLike],
    *,
    bounds: Any,
    labels: Sequence[ArrayLike] | None = None,
    engine: str = "inprocess",
    n_examples: int | str | None = None,
    **options: Any,
) -> Federated:
    """Compute a private statistic over several parties' tables, all of them simulated
    in this process.

    Parameters
    ----------
    task : str or Task
        A registered name such as ``"moments"``, ``"histograms"`` or ``"naive_bayes"``,
        or a task with its options.
    parts : sequence of array-like, (n_i, n_features)
        One table for each party, at least two; data frames' columns are put in the
        first one's order.
    bounds : pair
        Public bounds of the columns; values outside are clipped.
    labels : sequence of array-like of int or str, (n_i,), optional
        Classes from 0 on, for a task that looks at labels; or their names, all of which
        occur: they are public then.
    engine : str
        ``"inprocess"``: Flower's messages in this process; ``"direct"``: the same
        rounds without messages.
    n_examples : int or "private", optional
        Public number of rows; None: the total of the parts, listed in the report as
        declared public; or "private".
    **options
        Settings of a run by their flat names, such as ``epsilon``, ``trust`` or
        ``noise``, and options of a task that is given by its name.

    Raises
    ------
    ConfigurationError, DataError, PlanError, BudgetError
        One sentence, before anything is computed.

    Examples
    --------
    >>> import numpy as np
    >>> tables = [np.full((300, 1), value) for value in (2.0, 4.0)]
    >>> found = federate("moments", tables, bounds=(0, 10), epsilon=8.0, noise="seeded", random_state=1)
    >>> found["mean"].round(), found.privacy.epsilon <= 8.0
    (array([3.]), True)
    """
    tables = Tables.of(parts, "parts", schema=schema_of(bounds))
    return federate_tables(
        task,
        tables,
        bounds,
        labels,
        engine=engine,
        n_examples=n_examples,
        **options,
    )


def federate_tables(
    task: str | Task,
    tables: Tables,
    bounds: Any,
    labels: Any = None,
    *,
    class_names: Sequence[Any] | None = None,
    engine: str = "inprocess",
    n_examples: int | str | None = None,
    **options: Any,
) -> Federated:
    """Compute a private statistic over tables that are read, see `federate`.

    `class_names` are public, in the order of the classes; None: labels are numbers from
    0 on, or texts.
    """
    play, schema = ENGINES.find(engine), schema_of(bounds)
    standard = schema is not None and bool(schema.standard_columns)
    if (
        bounds is None
        or isinstance(bounds, PrivateBounds)
        or is_private(bounds)
        or standard
    ):
        what = (
            "no bounds were given"
            if bounds is None
            else "bounds, or the schema's scale, are private"
        )
        raise ConfigurationError(
            f"{what}, but this task does not find them by itself: give a public (lower,"
            " upper) pair, such as (0, 100), or a bounds file."
        )
    rows = tables.n_examples if n_examples is None else n_examples
    run, _ = tables.run(
        {**_options_of(task), **options, "bounds": schema or bounds, "n_examples": rows}
    )
    n_classes = run.task.n_classes(run.settings)
    if (labels is None) != (n_classes == 0):
        told = "none were given" if labels is None else "labels were given"
        wants = "looks at labels" if n_classes else "looks at no labels"
        raise DataError(
            f"this task {wants}, but {told}: pass one array for each party only where"
            " it does."
        )
    own = "classes" in run.task.options.get_params()
    option = "classes (n_classes of FederatedNaiveBayes)" if own else "n_classes"
    doubts = [data_points.doubtful_pairs(bounds), *tables.doubts()]
    warn([sentence for sentence in doubts if sentence], InputWarning)
    names = (
        named_classes(labels, n_classes) if class_names is None else list(class_names)
    )
    coded = (
        None
        if labels is None
        else tables.labels(
            labels,
            n_classes,
            option,
            names,
        )
    )
    found = play(
        run,
        tables.parts,
        None,
        coded,
    )
    local = tables.local_cautions(
        run,
        found.plan.delta,
        found.plan.bounds,
        found.plan.n_features or 0,
    )
    warn(found.privacy.warnings + local)
    return replace(found, labels=tables.columns, classes=tuple(names))


def _options_of(task: str | Task) -> dict[str, Any]:
    if isinstance(task, str):
        TASKS.find(task)
        return {"algorithm": task}
    if not isinstance(task, Task):
        raise ConfigurationError(
            f"task is {task!r}, but it must be a registered name or a Task: give"
            " 'moments'."
        )
    own = {name: getattr(task, name) for name in task.parameter_names()}
    return {"algorithm": task.name, **own, **task.options.get_params()}


# -- Flower's messages without a network -----------------------------------------------


@dataclass(frozen=True)
class Node:
    """One virtual client: the app that it runs, and its own configuration."""

    app: ClientApp
    node_config: Mapping[str, Any] = field(default_factory=dict)


class InProcessGrid(Grid):
    """A Grid over ClientApps in this process; node ids count up from 2.

    As with the real transports, each node has its own ``context.state`` that survives
    only successful calls, and exceptions become Flower errors. Use `running` around a
    run.
    """

    is_complete = True

    def __init__(
        self,
        nodes: Iterable[Node],
        *,
        run_id: int = 1,
        run_config: Mapping[str, Any] | None = None,
    ) -> None:
        self._nodes = dict(enumerate(nodes, start=FIRST_NODE_ID))
        self._run = _private.empty_run(run_id)
        self.contexts = {
            node_id: Context(
                run_id,
                node_id,
                dict(node.node_config),
                RecordDict(),
                dict(run_config or {}),
            )
            for node_id, node in self._nodes.items()
        }
        self._ids = itertools.count(1)
        self._pending: dict[str, list[Message]] = {}

    @property
    def run(self) -> Run:
        """The run."""
        return self._run

    def set_run(self, run: Run) -> None:
        self._run = run

    @contextmanager
    def running(self) -> Iterator[InProcessGrid]:
        """Set Flower's process-wide identity, from which a `Message` takes sender and
        run, for a run.

        Runs of other threads wait for their turn.
        """
        with _ONE_RUN, _private.process_of_run(self._run.run_id):
            yield self

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return Message(
            content,
            dst_node_id,
            message_type,
            ttl=ttl,
            group_id=group_id,
        )

    def get_node_ids(self) -> list[int]:
        return list(self._nodes)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            message_id = f"message-{next(self._ids)}"
            message.metadata.__dict__["_message_id"] = message_id
            ids.append(message_id)
            self._pending[message_id] = self.deliver(message)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [
            reply
            for message_id in message_ids
            for reply in self._pending.pop(message_id, [])
        ]

    def send_and_receive(
        self,
        messages: Iterable[Message],
        *,
        timeout: float | None = None,
    ) -> list[Message]:
        """Deliver and collect.

        Nothing is waited for, a lost message simply has no reply.
        """
        return self.pull_messages(self.push_messages(messages))

    def deliver(self, message: Message) -> list[Message]:
        """Run one node's app on a message; a test may lose it or the reply here."""
        node_id = message.metadata.dst_node_id
        if node_id not in self._nodes:
            return [
                Message(
                    Error(_private.no_such_node(), "the node does not exist"),
                    reply_to=message,
                )
            ]
        context = self.contexts[node_id]
        # The app replaces whole records of its state, so that a shallow copy keeps
        # those of before.
        trial = Context(
            context.run_id,
            context.node_id,
            context.node_config,
            context.state.copy(),
            context.run_config,
        )
        try:
            reply = self._nodes[node_id].app(message, trial)
        except Exception as exception:
            logger.debug("node %d raised %s", node_id, where_raised(exception))
            reason = f"{type(exception)}:<'{exception}'>"
            return [
                Message(
                    Error(code=_private.app_has_failed(), reason=reason),
                    reply_to=message,
                )
            ]
        self.contexts[node_id] = trial
        return [reply]
