"""All parties of a run in this process, without Flower's messages.

For experiments with thousands of virtual clients.

`run_direct` drives the same `Server` and `Client` as Flower does. They hand each other
requests and replies as they are instead of bytes, a few clients after another, so that
10,000 clients need no 10,000 vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Protocol, Self, runtime_checkable

import numpy as np

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.log import placed_logger
from flwr_dpkmeans.resources import limits
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.secagg.party import changed
from flwr_dpkmeans.secagg.retry import Retry
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.secagg.roster import ALL_PAIRS_UP_TO
from flwr_dpkmeans.sums.client import Client, Memory
from flwr_dpkmeans.sums.persons.counted_persons import Persons
from flwr_dpkmeans.sums.persons.row_units import Weights
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID, Plan
from flwr_dpkmeans.sums.round import Array, Labels, State
from flwr_dpkmeans.sums.server import Server
from flwr_dpkmeans.sums.statement import Step
from flwr_dpkmeans.sums.virtual.cohort import Answered, answers_together, groups
from flwr_dpkmeans.sums.virtual.paired import Awaited, Paired
from flwr_dpkmeans.sums.virtual.virtual_client import Virtual
from flwr_dpkmeans.sums.wire import Answer, Request

logger = placed_logger("flwr_dpkmeans.local")


def _as_they_are(plan: Plan, points: Array) -> Array:
    """Points that lie in the plan's box, on the grid."""
    return points


def run_direct(
    plan: Plan,
    parts: Sequence[Array],
    *,
    scale: Callable[[Plan, Array], Array] = _as_they_are,
    server_points: Array | None = None,
    labels: Sequence[Labels] | None = None,
    persons: Sequence[Persons] | None = None,
    weights: Sequence[Weights] | None = None,
    on_step: Callable[[Step], None] = logger.debug,
) -> LocalRun:
    """Run a plan over clients in this process, one table (n_i, n_features) for each.

    See `LocalRun` for the options.
    """
    run = LocalRun(
        plan,
        parts,
        scale=scale,
        server_points=server_points,
        labels=labels,
        persons=persons,
        weights=weights,
        on_step=on_step,
    )
    return run.play()


@runtime_checkable
class OfOneWidth(Protocol):
    """Tables that are made anew, and refused then if they have another width."""

    @property
    def n_columns(self) -> int:
        """Width of all."""


class LocalRun(Server):
    """A server that asks clients of its own process, and what its run leaves.

    State, steps, attempts and plan.

    The plan is final, or has its width and preliminary rounds; its ``config.masking``
    decides on masks. `scale` puts a table into the final plan's box, on the grid, where
    by default it is already, as `server_points` are, if the plan does not hold them.
    `labels` are one array for each client, `persons` say whose its rows are where one
    person is protected, `weights` what each row weighs where a plan weighs rows;
    `on_step` hears of each aggregation.
    `parts` may be any sequence: what is no list is asked for a table when its client
    is. Of what is made of it, small tables of clients that answer together are retained
    in the plan's box, up to 256 MB.

    A plan that waits for what no round of its own finds, or is for another number of
    clients, is a `PlanError`.
    """

    def __init__(
        self,
        plan: Plan,
        parts: Sequence[Array],
        *,
        scale: Callable[[Plan, Array], Array] = _as_they_are,
        server_points: Array | None = None,
        labels: Sequence[Labels] | None = None,
        persons: Sequence[Persons] | None = None,
        weights: Sequence[Weights] | None = None,
        on_step: Callable[[Step], None] = logger.debug,
    ) -> None:
        is_preliminary = bool(plan.preliminary)
        if plan.is_final == is_preliminary or plan.n_features is None:
            raise PlanError(
                "the plan waits for the tables' width, or knows what it is still to"
                " find: draft it again."
            )
        if len(parts) != plan.n_clients:
            raise PlanError(
                f"the plan is for {plan.n_clients} clients, but there are {len(parts)}:"
                " draft it again."
            )
        super().__init__(
            plan,
            node_ids=range(FIRST_NODE_ID, FIRST_NODE_ID + len(parts)),
            server_points=server_points,
        )
        self.parts = parts
        self.scale = scale
        self.labels = labels
        self.persons = persons
        self.weights = weights
        self._on_step = on_step
        self._retained_bytes = 0
        self.scaled: dict[int, Array] = {}
        self.memories: dict[int, Memory] = {}
        self.awaited = Awaited()
        """What one of two clients computed for both."""
        self.watch_vector: Callable[[Ring], None] | None = None
        """Shown what each client masks, for audits that play all parties."""
        self.steps: list[Step] = []
        self._answered: dict[int, Answered] = {}
        """Of the group that is asked, what it has answered together."""

    def play(self) -> Self:
        """Ask and answer until nothing is due."""
        while self.due is not None:
            # A few clients after another, so that 10,000 need no 10,000 vectors.
            step = self.take(self._answers())
            if step is not None:
                self.steps.append(step)
                self._on_step(step)
        return self

    def _answers(self) -> Iterator[tuple[int, Answer]]:
        """Ask one group of clients after another, when their answers are wanted."""
        for group in groups(self, self.requests()):
            self._answered = answers_together(self, group)
            for virtual, request in group:
                node = virtual.node_id
                yield node, self.ask(node, request)

    @property
    def nodes(self) -> tuple[int, ...]:
        """Whom something is asked of now, along the circle of neighbours.

        What one computes, the other soon asks for.
        """
        nodes = super().nodes
        is_masked = self.plan.settings.masking
        if self.due is not Stage.SUM or not is_masked:
            return nodes
        if len(nodes) <= ALL_PAIRS_UP_TO:
            return nodes
        due = frozenset(nodes)
        roster = self.session.roster
        return tuple(node for node in roster.hashed_order if node in due)

    def ask(
        self,
        node: int,
        request: Request,
    ) -> Answer:
        """What one client answers, as it is: whatever goes wrong here is raised."""
        if node in self._answered:
            memory, reply = self._answered.pop(node)
        else:
            memory, reply = self._ask_alone(node, request)
        party = memory.party
        if request.stage is Stage.KEYS and isinstance(party, Retry):
            fields = vars(party)
            paired = Paired(**fields, awaited=self.awaited)
            memory = changed(memory, party=paired)
        self.memories[node] = memory
        return lambda *_: reply

    def _ask_alone(self, node: int, request: Request) -> Answered:
        """What one client answers by itself."""
        virtual = Virtual(self, node)
        client = Client(
            virtual, virtual, self.memories.get(node), watch=self.watch_vector
        )
        memory, reply = client.handle(request)
        # Nobody is told that such a run is stopped.
        assert memory is not None
        return Answered(memory, reply)

    def scaled_points(self, plan: Plan, virtuals: Sequence[Virtual]) -> list[Array]:
        """Clients' points in the plan's box, made once where the tables are a list.

        Others are retained as long as there are few.
        """
        indices = [virtual.index for virtual in virtuals]
        if all(index in self.scaled for index in indices):
            return [self.scaled[index] for index in indices]
        tables = [virtual.split_table()[0] for virtual in virtuals]
        if len(tables) == 1:
            # It may be a table beyond memory.
            scaled = [self.scale(plan, tables[0])]
        else:
            rows = self.scale(plan, np.concatenate(tables))
            ends = np.cumsum([len(table) for table in tables])
            scaled = np.split(rows, ends[:-1])
        if self._is_retained(scaled):
            self.scaled.update(zip(indices, scaled, strict=True))
        return scaled

    def _is_retained(self, scaled: Sequence[Array]) -> bool:
        """Whether tables in the plan's box are looked up the next time."""
        if isinstance(self.parts, list):
            return True
        n_bytes = sum(table.nbytes for table in scaled)
        is_alone = len(scaled) == 1
        if is_alone or self._retained_bytes + n_bytes > limits().retained_bytes:
            return False
        self._retained_bytes += n_bytes
        return True

    def size_of(self, virtual: Virtual) -> int:
        """How many numbers a client's table has, looked at if it is not retained."""
        table = self.scaled.get(virtual.index)
        if table is None:
            table = virtual.table
        n_rows, n_columns = table.shape
        size: int = n_rows * n_columns
        return size

    @cached_property
    def n_columns_of_all(self) -> int | None:
        """Width of all tables, where one is refused that has another."""
        if isinstance(self.parts, OfOneWidth):
            return self.parts.n_columns
        return None

    @property
    def first(self) -> Memory:
        """What the first client remembers."""
        return self.memories[FIRST_NODE_ID]

    @property
    def state(self) -> State:
        """After the last round.

        The server's has all that was computed, where it may have one.
        """
        state = self.clusters
        if state is None:
            state = self.first.clusters
        assert state is not None
        return state
