"""What a plan is: every release with its sensitivity and noise, what it costs, and
which tables it is for.

Columns are matched by name, and names never travel from a node. Where the server side
knows them (a bounds file, named server data, an option) they stand in the plan, and
every node puts its own table in their order. Elsewhere each node answers the plan with
a digest of its names, sorted if bounds do not depend on the order, and the next plan
carries the digest that all have in common: every node compares it with its own, so that
a server that says something else is found out before anything is charged.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from itertools import chain
from typing import TypeVar

import numpy as np

from flwr_dpkmeans.errors import PlanError, ProtocolError
from flwr_dpkmeans.privacy import release
from flwr_dpkmeans.privacy.noise import NoiseKind, NoiseSource, noise_source
from flwr_dpkmeans.privacy.release import Block, Event, NoiseShape
from flwr_dpkmeans.privacy.report import CLOSING_ROUNDS
from flwr_dpkmeans.secagg.ring import FRACTION_BITS
from flwr_dpkmeans.secagg.slots import Slots
from flwr_dpkmeans.sums.aggregation import AGGREGATORS, Repeated
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.outcome import COUNT
from flwr_dpkmeans.sums.price import price, price_or_infinity
from flwr_dpkmeans.sums.public_facts import ServerFacts
from flwr_dpkmeans.sums.round import Array, State
from flwr_dpkmeans.sums.settings import Box, Dropout, EvaluationKind, Settings
from flwr_dpkmeans.sums.task import Task
from flwr_dpkmeans.sums.trust import Shares, TrustModel, trust_model

ItemT = TypeVar("ItemT")
FIRST_TASK_ROUND = 1
"""Index of the first round that is the task's own.

Those before it find out what the plan still lacks.
"""
MAX_CLIENTS = 2**20
SECONDS_PER_ROUND_TRIP = 6.0
"""Of a deployment, measured on a SuperLink with SuperNodes on one machine.

3 s between a SuperNode's questions, and its app's start.
"""
_ROUNDS_TO_COME = 16
_OTHER_ROUNDS = 8


@dataclass(frozen=True)
class PublicPoints:
    """Server points that every client may see (trust model ``oblivious``)."""

    n_points: int
    n_features: int
    grid_values: str
    """Base64 of the values in the box [-1, 1]^d times 2^16, as little-endian 32-bit
    integers.
    """

    @classmethod
    def of(cls, points: Array) -> PublicPoints:
        """Write a table of grid values."""
        values = np.rint(points * 2.0**16).astype("<i4")
        return cls(
            len(points), points.shape[1], base64.b64encode(values.tobytes()).decode()
        )

    @cached_property
    def table(self) -> Array:
        """The points, read-only.

        Text that is not base64 of so many values inside the box is a `ProtocolError`.
        """
        try:
            data = base64.b64decode(self.grid_values.encode(), validate=True)
        except ValueError as error:
            raise ProtocolError(
                "the plan's server points are not base64: stop the run."
            ) from error
        if len(data) != 4 * self.n_points * self.n_features:
            raise ProtocolError(
                "the plan's server points have another shape than it says: stop the"
                " run."
            )
        values = np.frombuffer(data, dtype="<i4").astype(np.float64) / 2.0**16
        if bool(np.any(np.abs(values) > 1.0)):
            raise ProtocolError(
                "the plan's server points leave the box of its bounds: stop the run."
            )
        table: Array = values.reshape(self.n_points, self.n_features)
        table.flags.writeable = False
        return table


@dataclass(frozen=True)
class PlannedRound:
    """One round as it stands in the plan: its release's trust model, its arrays, and
    the radius in scaled units.
    """

    name: str
    trust: str
    blocks: tuple[Block, ...]
    radius: float | None = None

    @cached_property
    def length(self) -> int:
        return release.vector_length(self.blocks)

    @cached_property
    def model(self) -> TrustModel:
        return trust_model(self.trust)


class _ByIndex(dict[int, ItemT]):
    """What a plan has for each of its rounds; another index is a `ProtocolError`."""

    def __missing__(self, index: int) -> ItemT:
        raise ProtocolError(
            f"the plan has rounds {min(self, default=1)} to {max(self, default=0)}, but"
            f" not {index}."
        )


@dataclass(frozen=True)
class Plan:
    """What everybody agrees on before anything is released."""

    run_id: int
    config: RunConfig
    n_clients: int
    """Cohort at the start, M."""
    max_silent: int
    """t."""
    seed: int
    """Of the public randomness (sphere packing)."""
    delta: float
    n_examples: int | None
    """N, declared or released; None while unknown."""
    n_features: int | None
    """d; None while unknown."""
    preliminary: tuple[PlannedRound, ...]
    """Rounds up to 0 that steer the plan: a private count if N is not declared, and, as
    soon as the width is known, histograms if the bounds are private.
    """
    rounds: tuple[PlannedRound, ...]
    """Rounds 1..T; empty while the plan is preliminary."""
    server: ServerFacts | None = None
    """What follows from the server's own points, if the run uses any."""
    public_points: PublicPoints | None = None
    """Those points themselves, where clients need them (trust model ``oblivious``)."""
    box: Box | None = None
    """Private bounds as released, inside those of the configuration.

    None while unknown, or if bounds are declared.
    """
    columns_digest: str = ""
    """Of the columns' names in the agreed order (`sums.checks.columns`).

    Empty while unknown, or if the tables have none.
    """
    version: int = 7
    fraction_bits: int = FRACTION_BITS

    def __post_init__(self) -> None:
        # Before anything else is computed from a plan that came from elsewhere: prices
        # take time that grows with it.
        if self.n_clients > MAX_CLIENTS:
            raise PlanError(
                f"the plan is for {self.n_clients} clients, but at most {MAX_CLIENTS}"
                " can: use fewer."
            )

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Computed once: a plan is looked up in caches with every message, and has
        hundreds of values.
        """
        return hash(tuple([getattr(self, item.name) for item in fields(self)]))

    @cached_property
    def settings(self) -> Settings:
        return self.config.settings

    @cached_property
    def task(self) -> Task:
        return self.config.task

    @cached_property
    def model(self) -> TrustModel:
        """Trust model of the task's own rounds."""
        return trust_model(self.settings.trust)

    @cached_property
    def is_final(self) -> bool:
        return bool(self.rounds)

    @cached_property
    def server_advances(self) -> bool:
        """Whether the server alone goes from release to release, because it alone holds
        the points that this takes.
        """
        return (
            self.server is not None
            and self.server.n_points > 0
            and self.public_points is None
        )

    @cached_property
    def by_position(self) -> bool:
        """Whether a plan without names says something for each column, so that tables
        cannot be put in order.
        """
        settings = self.settings
        return not settings.feature_names and (
            len(settings.bounds[0]) > 1 or settings.allow_unnamed
        )

    @cached_property
    def bounds(self) -> Box:
        """The box that data are scaled by: the released one, or that of the
        configuration.
        """
        return self.settings.bounds if self.box is None else self.box

    @cached_property
    def first_round(self) -> int:
        """1, or less if preliminary rounds come first, of which the last is round 0."""
        return 1 - len(self.preliminary)

    @cached_property
    def count(self) -> PlannedRound | None:
        """The preliminary round that counts rows, if N is not declared."""
        return next(
            (
                r
                for r in self.preliminary
                if any(block.name == COUNT for block in r.blocks)
            ),
            None,
        )

    @cached_property
    def last_round(self) -> int:
        """T."""
        return len(self.rounds)

    @cached_property
    def closing_round(self) -> int:
        """The first round that closes the run instead of changing the result.

        T + 1 if there is none.
        """
        closing = [
            index
            for index, one in enumerate(self.rounds, start=FIRST_TASK_ROUND)
            if one.name in CLOSING_ROUNDS
        ]
        return min(closing, default=self.last_round + 1)

    @cached_property
    def skips_to(self) -> int:
        """Where rounds may be left out, the round that can follow any other; else 0."""
        return (
            self.closing_round
            if self.is_final and self.task.tolerance is not None
            else 0
        )

    def round_after(
        self,
        index: int,
        state: State | None,
    ) -> int:
        """The round that follows round `index`, after which the state is as given
        (None: not known); T + 1: the end.

        Where the task has a tolerance, rounds are left out by what was released alone,
        so that server and clients find the same; it costs nothing, and saves none of
        the price, which holds for whoever stops where he likes [C14].
        """
        tolerance, movements = (
            self.task.tolerance,
            () if state is None else state.movements,
        )
        settled = tolerance is not None and movements and movements[-1] <= tolerance
        if (
            settled
            and movements[-1] == 0.0
            and any(block.noise_multiplier for block in self.round_at(index).blocks)
        ):
            # noise moves whatever is found, so that all counts were lost in it
            settled = False
        return (
            self.closing_round
            if settled and FIRST_TASK_ROUND <= index < self.closing_round
            else index + 1
        )

    @cached_property
    def dropout(self) -> Dropout:
        return self.settings.dropout_of(self.n_clients)

    @cached_property
    def aggregator(self) -> Repeated:
        """What is done differently for that."""
        return AGGREGATORS[self.dropout.value]

    @cached_property
    def slots(self) -> Slots:
        """Aggregations that keys are shared for where sums are recovered.

        At first, of more rounds than can come.
        """
        to_come = (self.task.max_rounds or _ROUNDS_TO_COME) + _OTHER_ROUNDS
        last = self.last_round if self.is_final else to_come
        return Slots(self.first_round, last, 1 + self.settings.max_retries)

    @cached_property
    def min_cohort(self) -> int:
        """Smallest cohort whose sum is asked for.

        At least two clients besides those that may collude or be silent.

        Where clients add the noise in shares, no more than those that the shares do not
        count on may be missing.
        """
        least = max(self.settings.min_clients, self.max_silent + 2)
        return self.model.smallest_cohort(least, self.n_clients, self.max_silent)

    @cached_property
    def shares(self) -> Shares:
        """How many clients add noise shares at the start."""
        return self.shares_of(self.n_clients)

    def shares_of(
        self,
        n_clients: int,
        n_sharers: int | None = None,
    ) -> Shares:
        """How many clients add noise shares, where so many are asked.

        `n_sharers` shared keys (None: all) before.
        """
        return self.aggregator.shares(self, n_clients, n_sharers)

    discovers = staticmethod(FIRST_TASK_ROUND.__gt__)
    """``discovers(index)``: whether a round finds out what the plan still lacks, and is
    none of the task's own.
    """

    @cached_property
    def round_at(self) -> Callable[[int], PlannedRound]:
        """``round_at(index)``: the round with this index, or a `ProtocolError`.

        Those up to 0 are preliminary.
        """
        return _ByIndex(enumerate(self.all_rounds, start=self.first_round)).__getitem__

    @cached_property
    def all_rounds(self) -> tuple[PlannedRound, ...]:
        return (*self.preliminary, *self.rounds)

    def released_std(
        self,
        planned: PlannedRound,
        block: Block,
    ) -> float:
        """Standard deviation on one entry of a sum of all clients, also of those whose
        shares are not counted on.
        """
        return block.standard_deviation * planned.model.released_factor(self.shares)

    def events(self, indices: Iterable[int] | None = None) -> tuple[Event, ...]:
        """Privacy events of the given rounds (with repetitions), or of each round once."""
        by_round = self._events_by_round
        rounds = (
            by_round.values() if indices is None else map(by_round.__getitem__, indices)
        )
        events = tuple(chain.from_iterable(rounds))
        # The number of rounds may follow from the count.
        return events if self.count is None else release.with_joint_pure_release(events)

    @cached_property
    def _events_by_round(self) -> dict[int, tuple[Event, ...]]:
        indices = range(self.first_round, self.last_round + 1)
        return _ByIndex(zip(indices, map(self._round_events, indices), strict=True))

    def _round_events(self, index: int) -> tuple[Event, ...]:
        planned = self.round_at(index)
        n_shares = planned.model.counted_shares(self.shares)
        return _described(
            planned.blocks,
            self.fraction_bits,
            n_shares,
            self.rates[index],
        )

    @cached_property
    def rates(self) -> Mapping[int, float]:
        """Probability with which a client takes part in each round.

        Everybody does in those that steer the plan.
        """
        rates = [1.0] * len(self.preliminary) + [
            self.settings.client_sampling_rate
        ] * len(self.rounds)
        return _ByIndex(enumerate(rates, start=self.first_round))

    @cached_property
    def is_bare(self) -> bool:
        """Whether whoever runs it sees statistics of others, as there are no masks."""
        return not (self.settings.masking or self.model.alone)

    @cached_property
    def is_private(self) -> bool:
        """Whether every release has noise, and that noise has no seed.

        a preliminary plan is judged by its task.
        """
        exact = (
            self.task.noise is NoiseShape.NONE
            or self.settings.evaluation is EvaluationKind.EXACT
        )
        exact = exact or any(
            isinstance(event, release.ExactRelease) for event in self.events()
        )
        return self.settings.noise is not NoiseKind.SEEDED and not (
            self.is_bare or exact
        )

    @cached_property
    def epsilon(self) -> float:
        """Cost of a run in which nobody drops out."""
        return price(self.events(), self.delta)

    @cached_property
    def epsilon_worst_case(self) -> float:
        """Cost of a run in which all retries are used where they cost most.

        Infinite where delta leaves no room.

        One list of releases that holds whatever can take place, also for somebody who
        sees each release before deciding what to repeat and where to stop (the proof
        page's row C14).
        """
        base = list(self._events_by_round)
        retries = self.settings.max_retries
        # Rounds whose width is not known yet have no releases.
        distinct = {
            events: index for index in base if (events := self._events_by_round[index])
        }
        if retries == 0 or not distinct:
            return self.epsilon
        kinds = {
            (type(event), event.sampling_rate < 1.0)
            for events in distinct
            for event in events
        }
        if len(kinds) > 1:
            # Costs of different kinds do not add up along one axis, so every round is
            # repeated: an upper bound.
            return price_or_infinity(
                self.events(base + list(distinct.values()) * retries), self.delta
            )
        ((kind, sampled),) = kinds
        if kind is release.GaussianRelease:
            # Which rounds are repeated may depend on releases: one that is as strong as
            # any stands for each retry.
            repeated = release.dominating_release(list(distinct))
            cost = price_or_infinity(
                (*self.events(base), *[repeated] * retries), self.delta
            )
            # Numerical prices of sampled releases differ by some 1e-9 of them from one
            # list to another.
            return cost * (1.0 + 1e-6) if sampled else cost
        # Pure releases add up, so that the dearest one stands for each retry here as
        # well.
        return max(
            price_or_infinity(self.events(base + [index] * retries), self.delta)
            for index in distinct.values()
        )


_described = lru_cache(maxsize=256)(release.round_events)
"""Most rounds of a plan release the same arrays.

Plan, price and report ask again and again.
"""


def round_trips(plan: Plan) -> int:
    """Round trips without dropouts: of each planned aggregation, as many for keys, one
    for the last release.
    """
    return plan.aggregator.trips * (1 + len(plan.all_rounds)) + 1


def make_noise_source(plan: Plan, *purpose: str | int) -> NoiseSource:
    """Noise for one purpose: from OS entropy, or (seeded, not private) from a stream of
    the plan's seed.
    """
    kind = plan.settings.noise
    return noise_source(
        kind, _stream(plan, *purpose) if kind is NoiseKind.SEEDED else None
    )


def takes_part(
    plan: Plan,
    node_id: int,
    round_index: int,
    attempt: int,
) -> bool:
    """Throw a client's own coin for one aggregation.

    Without sampling it always takes part.

    The coin comes from OS entropy (seeded: from a stream of the plan's seed), and
    nobody but the client sees it: it sends masked zeros, noise shares included, when it
    does not take part.
    """
    rate = plan.rates[round_index]
    if rate >= 1.0:
        return True
    # Rounded down: less sampling is never less private than what is accounted.
    threshold = int(rate * 2.0**53)
    if plan.settings.noise is not NoiseKind.SEEDED:
        return secrets.randbelow(2**53) < threshold
    stream = np.random.default_rng(
        _stream(
            plan,
            "coin",
            node_id,
            round_index,
            attempt,
        )
    )
    return int(stream.integers(2**53)) < threshold


def _stream(plan: Plan, *purpose: str | int) -> int:
    return int.from_bytes(
        hashlib.sha256(repr((plan.seed, *purpose)).encode()).digest()[:8], "little"
    )
