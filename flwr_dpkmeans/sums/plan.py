"""What a plan is: its releases, what they cost, and which tables it is for.

Each release has its sensitivity and noise.

Columns are matched by name, and names never travel from a node. Where the server side
knows them (a bounds file, named server data, an option) they stand in the plan, and
every node puts its own table in their order. Elsewhere each node answers the plan with
a digest of its names, sorted if bounds do not depend on the order, and the next plan
carries the digest that all have in common: every node compares it with its own, so that
a server that says something else is found out before anything is charged.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from itertools import chain
from typing import TypeVar

import numpy as np

from flwr_dpkmeans.errors import PlanError, ProtocolError
from flwr_dpkmeans.privacy import release
from flwr_dpkmeans.privacy.gaussian_cost import (
    GaussianCost,
    drawn_cost,
    pair_cost,
    signal,
)
from flwr_dpkmeans.privacy.noise import NoiseKind, NoiseSource, noise_source
from flwr_dpkmeans.privacy.release import Block, Event, NoiseShape
from flwr_dpkmeans.privacy.report import CLOSING_ROUNDS
from flwr_dpkmeans.secagg.ring import FRACTION_BITS
from flwr_dpkmeans.secagg.slots import Slots
from flwr_dpkmeans.sums.aggregation import AGGREGATORS, Repeated
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.outcome import COUNT
from flwr_dpkmeans.sums.plan_points import PublicPoints
from flwr_dpkmeans.sums.price import price, price_or_infinity
from flwr_dpkmeans.sums.public_facts import ServerFacts
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.sums.settings import Box, Dropout, EvaluationKind, Settings
from flwr_dpkmeans.sums.task import Task
from flwr_dpkmeans.sums.trust import Shares, TrustModel, trust_model

ItemT = TypeVar("ItemT")
FIRST_TASK_ROUND = 1
"""Index of the first round that is the task's own.

Those before it find out what the plan still lacks.
"""
LAST_PRELIMINARY_ROUND = FIRST_TASK_ROUND - 1
"""Index of the one after which the plan is final, where there are any."""
FIRST_NODE_ID = 2
"""Id of the first client of a simulated run, by whatever engine.

Seeded noise depends on a client's id; Flower's node 1 is the SuperLink.
"""
MAX_CLIENTS = 2**20
FIRST_NODE_ID = 2
"""Of a client in all engines, where node 1 is the SuperLink, since seeded noise depends
on a client's id.
"""
SECONDS_PER_ROUND_TRIP = 6.0
"""Of a deployment, measured on a SuperLink with SuperNodes on one machine.

3 s between a SuperNode's questions, and its app's start.
"""
_ROUNDS_TO_COME = 16
_OTHER_ROUNDS = 8


@dataclass(frozen=True)
class PlannedRound:
    """One round as it stands in the plan.

    Its release's trust model, its arrays, and the radius in scaled units.
    """

    name: str
    trust: str
    blocks: tuple[Block, ...]
    radius: float | None = None

    @cached_property
    def length(self) -> int:
        """Number of entries of its vector."""
        return release.vector_length(self.blocks)

    @property
    def trust_model(self) -> TrustModel:
        """Its trust model."""
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
    version: int = 8
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
        """The hash, computed once.

        A plan is looked up in caches with every message, and has hundreds of values.
        """
        values = [getattr(self, item.name) for item in fields(self)]
        return hash(tuple(values))

    @cached_property
    def settings(self) -> Settings:
        """What every run has, whatever it computes."""
        return self.config.settings

    @cached_property
    def task(self) -> Task:
        """What the run computes."""
        return self.config.task

    @property
    def trust_model(self) -> TrustModel:
        """Trust model of the task's own rounds."""
        return trust_model(self.settings.trust)

    @cached_property
    def is_final(self) -> bool:
        """Whether nothing is left to find out, so that the rounds are planned."""
        return bool(self.rounds)

    @cached_property
    def server_advances(self) -> bool:
        """Whether the server alone goes from release to release.

        It alone holds the points that this takes.
        """
        has_points = self.server is not None and self.server.n_points > 0
        return has_points and self.public_points is None

    @cached_property
    def by_position(self) -> bool:
        """Whether a plan without names says something for each column.

        So tables cannot be put in order.
        """
        settings = self.settings
        if settings.feature_names:
            return False
        lower, _ = settings.bounds
        return len(lower) > 1 or settings.allow_unnamed

    @cached_property
    def bounds(self) -> Box:
        """The box that data are scaled by.

        The released one, or that of the configuration.
        """
        if self.box is None:
            return self.settings.bounds
        return self.box

    @cached_property
    def first_round(self) -> int:
        """1, or less if preliminary rounds come first, of which the last is round 0."""
        return 1 - len(self.preliminary)

    @cached_property
    def count(self) -> PlannedRound | None:
        """The preliminary round that counts rows, if N is not declared."""
        for planned in self.preliminary:
            if any(block.name == COUNT for block in planned.blocks):
                return planned
        return None

    @cached_property
    def last_round(self) -> int:
        """T."""
        return len(self.rounds)

    @cached_property
    def closing_round(self) -> int:
        """The first round that closes the run instead of changing the result.

        T + 1 if there is none.
        """
        for index, planned in enumerate(self.rounds, start=FIRST_TASK_ROUND):
            if planned.name in CLOSING_ROUNDS:
                return index
        return self.last_round + 1

    @cached_property
    def skips_to(self) -> int:
        """Where rounds may be left out, the round that can follow any other; else 0."""
        if self.is_final and self.task.tolerance is not None:
            return self.closing_round
        return 0

    def round_after(self, index: int, state: State | None) -> int:
        """Return the round that follows another; T + 1 is the end.

        `state` is the one after round `index`; None: not known.

        Where the task has a tolerance, rounds are left out by what was released alone,
        so that server and clients find the same; it costs nothing, and saves none of
        the price, which holds for whoever stops where he likes [C14].
        """
        is_task_round = FIRST_TASK_ROUND <= index < self.closing_round
        if is_task_round and self._has_settled(index, state):
            return self.closing_round
        return index + 1

    def _has_settled(self, index: int, state: State | None) -> bool:
        """Whether a round moved the result no farther than the task's tolerance."""
        tolerance = self.task.tolerance
        if tolerance is None or state is None or not state.movements:
            return False
        movement = state.movements[-1]
        is_noisy = any(block.noise_multiplier for block in self.round_at(index).blocks)
        if movement == 0.0 and is_noisy:
            # Noise moves whatever is found, so that all counts were lost in it.
            return False
        return movement <= tolerance

    @cached_property
    def dropout(self) -> Dropout:
        """What happens when clients fall silent."""
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
        n_attempts = 1 + self.settings.max_retries
        last = self.last_round
        if not self.is_final:
            task_rounds = self.task.max_rounds
            if task_rounds is None or task_rounds == 0:
                task_rounds = _ROUNDS_TO_COME
            last = task_rounds + _OTHER_ROUNDS
        return Slots(self.first_round, last, n_attempts)

    @cached_property
    def min_cohort(self) -> int:
        """Smallest cohort whose sum is asked for.

        At least two clients besides those that may collude or be silent.

        Where clients add the noise in shares, no more than those that the shares do not
        count on may be missing.
        """
        least = max(self.settings.min_clients, self.max_silent + 2)
        return self.trust_model.smallest_cohort(least, self.n_clients, self.max_silent)

    @cached_property
    def shares(self) -> Shares:
        """How many clients add noise shares at the start."""
        return self.shares_of(self.n_clients)

    def shares_of(self, n_clients: int, n_sharers: int | None = None) -> Shares:
        """Return how many clients add noise shares, where so many are asked.

        `n_sharers` shared keys before; None: all.
        """
        return self.aggregator.shares(self, n_clients, n_sharers)

    @staticmethod
    def is_preliminary(index: int) -> bool:
        """Tell whether a round is preliminary: it finds what the plan still lacks.

        It is none of the task's own.
        """
        return index < FIRST_TASK_ROUND

    def round_at(self, index: int) -> PlannedRound:
        """The round with this index, or a `ProtocolError`.

        Those up to 0 are preliminary.
        """
        return self._rounds_by_index[index]

    @cached_property
    def _rounds_by_index(self) -> Mapping[int, PlannedRound]:
        """Preliminary rounds and the task's own."""
        return _ByIndex(enumerate(self.all_rounds, start=self.first_round))

    @cached_property
    def all_rounds(self) -> tuple[PlannedRound, ...]:
        """Preliminary rounds, then the task's own."""
        return (*self.preliminary, *self.rounds)

    def released_std(
        self,
        planned: PlannedRound,
        block: Block,
    ) -> float:
        """Return the standard deviation of noise on one entry of a sum of all clients.

        Also of those whose shares are not counted on.
        """
        return block.standard_deviation * planned.trust_model.released_factor(
            self.shares
        )

    def events(self, indices: Iterable[int] | None = None) -> tuple[Event, ...]:
        """Privacy events of some rounds (with repetitions), or of each round once."""
        by_round = self._events_by_round
        if indices is None:
            indices = list(by_round)
        events = tuple(chain.from_iterable(by_round[index] for index in indices))
        if self.count is None:
            return events
        # The number of rounds may follow from the count.
        return release.with_joint_pure_release(events)

    @cached_property
    def _events_by_round(self) -> dict[int, tuple[Event, ...]]:
        """Privacy events of each round, by its index."""
        indices = range(self.first_round, self.last_round + 1)
        return _ByIndex((index, self._round_events(index)) for index in indices)

    def _round_events(self, index: int) -> tuple[Event, ...]:
        """Privacy events of one round."""
        planned = self.round_at(index)
        n_shares = planned.trust_model.counted_shares(self.shares)
        rate = self.rates[index]
        return _described(planned.blocks, self.fraction_bits, n_shares, rate)

    @cached_property
    def rates(self) -> Mapping[int, float]:
        """Probability with which a client takes part in each round.

        Everybody does in those that steer the plan.
        """
        steering = [1.0] * len(self.preliminary)
        others = [self.settings.client_sampling_rate] * len(self.rounds)
        return _ByIndex(enumerate(steering + others, start=self.first_round))

    @cached_property
    def is_bare(self) -> bool:
        """Whether whoever runs it sees statistics of others, as there are no masks."""
        has_others = not self.trust_model.alone
        return has_others and not self.settings.masking

    @cached_property
    def is_private(self) -> bool:
        """Whether every release has noise, and that noise has no seed.

        A preliminary plan is judged by its task.
        """
        settings = self.settings
        if settings.noise is NoiseKind.SEEDED or self.is_bare:
            return False
        if settings.evaluation is EvaluationKind.EXACT:
            return False
        if self.task.noise is NoiseShape.NONE:
            return False
        kinds = {type(event) for event in self.events()}
        return release.ExactRelease not in kinds

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
        every_round = list(self._events_by_round)
        retries = self.settings.max_retries
        # Rounds that release alike are one; those whose width is not known yet have no
        # releases.
        unlike: dict[tuple[Event, ...], int] = {}
        for index, events in self._events_by_round.items():
            if events:
                unlike[events] = index
        if retries == 0 or not unlike:
            return self.epsilon
        repeatable = list(unlike.values())
        kinds = set()
        for event in chain.from_iterable(unlike):
            kinds.add((type(event), event.sampling_rate < 1.0))
        if len(kinds) > 1:
            # Costs of different kinds do not add up along one axis, so every round is
            # repeated: an upper bound.
            return self._cost_of(every_round + repeatable * retries)
        ((kind, is_sampled),) = kinds
        if kind is release.GaussianRelease:
            # Which rounds are repeated may depend on releases: one that is as strong as
            # any stands for each retry.
            strongest = release.dominating_release(list(unlike))
            releases = (*self.events(every_round), *[strongest] * retries)
            cost = price_or_infinity(releases, self.delta)
            if is_sampled:
                # Numerical prices of sampled releases differ by some 1e-9 of them from
                # one list to another.
                cost *= 1.0 + 1e-6
            return cost
        # Pure releases add up, so that the dearest one stands for each retry here as
        # well.
        return max(
            self._cost_of(every_round + [index] * retries) for index in repeatable
        )

    @cached_property
    def squared_cost(self) -> GaussianCost | None:
        """The same as squares: what all releases cost, each by its own mu.

        Each round once, and for each retry one as strong as any, in any order (the
        proof page's rows C14 and C17). Clients that are sampled count as if all took
        part. None where noise is too coarse.
        """
        signals = [signal(events) for events in self._events_by_round.values()]
        retries = [max(signals, default=0.0)] * self.settings.max_retries
        parts = [event.closeness for event in self.events()]
        n_times = 1 + self.settings.max_retries
        return drawn_cost(math.hypot(*signals, *retries), parts * n_times)

    @cached_property
    def cost_worst_case(self) -> GaussianCost:
        """The same as ledgers add it up, if nothing of the plan follows from a count.

        The smaller one of its squares and its price.
        """
        cost = self.squared_cost
        pair = pair_cost(self.epsilon_worst_case, self.delta)
        if cost is None:
            return pair
        if self.settings.client_sampling_rate < 1.0 and pair.mu < cost.mu:
            return pair
        return cost

    def _cost_of(self, indices: list[int]) -> float:
        """Price some rounds, with repetitions.

        Infinite where delta leaves no room.
        """
        return price_or_infinity(self.events(indices), self.delta)


_described = lru_cache(maxsize=256)(release.round_events)
"""Most rounds of a plan release the same arrays.

Plan, price and report ask again and again.
"""


def round_trips(plan: Plan) -> int:
    """Count the round trips of a run without dropouts.

    Of each planned aggregation, as many for keys, and one for the last release.
    """
    n_aggregations = 1 + len(plan.all_rounds)
    return plan.aggregator.trips * n_aggregations + 1


def make_noise_source(plan: Plan, *purpose: str | int) -> NoiseSource:
    """Make a source of noise for one purpose.

    From OS entropy, or (seeded, not private) from a stream of the plan's seed.
    """
    kind = plan.settings.noise
    if kind is NoiseKind.SEEDED:
        return noise_source(kind, _stream(plan, *purpose))
    return noise_source(kind, None)


def takes_part(
    plan: Plan,
    node_id: int,
    round_index: int,
    attempt: int,
    *,
    draw: Callable[[int], int] | None = None,
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
        coin = secrets.randbelow(2**53) if draw is None else draw(2**53)
        return coin < threshold
    seed = _stream(plan, "coin", node_id, round_index, attempt)
    generator = np.random.default_rng(seed)
    return int(generator.integers(2**53)) < threshold


def _stream(plan: Plan, *purpose: str | int) -> int:
    """A seed for one purpose, from the plan's."""
    text = repr((plan.seed, *purpose))
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "little")
