"""The public plan: every release with its sensitivity and noise, priced before any data are touched.

The server builds the plan from the configuration and sends it; each client builds it again from the configuration
inside and refuses one whose numbers do not follow.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from flwr_dpkmeans.algorithms import algorithm_entry
from flwr_dpkmeans.algorithms.lloyd_family import MAX_ITERATIONS, Public
from flwr_dpkmeans.config import KMeansConfig
from flwr_dpkmeans.errors import BudgetError, ConfigurationError, PlanError, ProtocolError
from flwr_dpkmeans.privacy.accounting import Event, ExactRelease, GaussianRelease, compose_epsilon
from flwr_dpkmeans.privacy.gaussian import gaussian_noise_multiplier
from flwr_dpkmeans.privacy.mechanisms import Block, NoiseShape, vector_length
from flwr_dpkmeans.privacy.samplers import NoiseKind, NoiseSource, noise_source
from flwr_dpkmeans.privacy.sensitivity import Norm, PrivacyUnit, Sensitivity
from flwr_dpkmeans.rounds.private_sum import Algorithm, ClusterState
from flwr_dpkmeans.secagg.ring import FRACTION_BITS, require_no_wrap
from flwr_dpkmeans.trust import trust_model
from flwr_dpkmeans.trust.base import Shares

PLAN_VERSION = 1
MAX_ROWS_PER_CLIENT = 2**28
"""Rows that one client may hold, for the proof that sums cannot wrap."""
MAX_VECTOR_LENGTH = 2**24
"""Entries of one round's vector."""
UNDECLARED_DELTA = 1e-6
COUNT_TRUST = "distributed"
"""The private count steers the plan, so everybody must see it: its noise comes from the clients."""
_SPARSE_MAX_SILENT = 20
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class PlannedRound:
    """One round as it stands in the plan.

    Parameters
    ----------
    name : str
        For reports.
    trust : str
        Trust model of this round's release.
    blocks : tuple of Block
        Arrays, sensitivities and noise.
    radius : float or None
        In scaled units.
    """

    name: str
    trust: str
    blocks: tuple[Block, ...]
    radius: float | None = None


@dataclass(frozen=True)
class Plan:
    """What everybody agrees on before anything is released.

    Parameters
    ----------
    run_id : int
        Flower's run id.
    config : KMeansConfig
        As given.
    n_clients : int
        Cohort at the start.
    max_silent : int
        t.
    seed : int
        Of the public randomness (sphere packing).
    delta : float
        Of the total guarantee.
    n_examples : int or None
        Declared or released; None while unknown.
    n_features : int or None
        None while unknown.
    count : PlannedRound or None
        The private count, round 0, if N is not declared.
    rounds : tuple of PlannedRound
        Rounds 1..T; empty while the plan is preliminary.
    version : int
        Of this format.
    fraction_bits : int
        Grid of the ring.
    """

    run_id: int
    config: KMeansConfig
    n_clients: int
    max_silent: int
    seed: int
    delta: float
    n_examples: int | None
    n_features: int | None
    count: PlannedRound | None
    rounds: tuple[PlannedRound, ...]
    version: int = PLAN_VERSION
    fraction_bits: int = FRACTION_BITS

    @property
    def is_final(self) -> bool:
        """Whether all rounds stand in the plan."""
        return bool(self.rounds)

    @property
    def first_round(self) -> int:
        """0 if a private count comes first, else 1."""
        return 0 if self.count is not None else 1

    @property
    def last_round(self) -> int:
        """T."""
        return len(self.rounds)

    @property
    def min_cohort(self) -> int:
        """Smallest cohort whose sum is asked for: at least two clients besides those that may collude or be silent."""
        return max(self.config.min_clients, self.max_silent + 2)

    @property
    def shares(self) -> Shares:
        """How many clients add noise shares at the start."""
        return Shares(self.n_clients, self.max_silent)

    def round_at(self, index: int) -> PlannedRound:
        """Return the round with this index; 0 is the private count."""
        if index == 0 and self.count is not None:
            return self.count
        if not 1 <= index <= len(self.rounds):
            raise ProtocolError(f"the plan has rounds {self.first_round} to {self.last_round}, but not {index}.")
        return self.rounds[index - 1]

    def events(self, indices: Sequence[int] | None = None) -> tuple[Event, ...]:
        """Privacy events of the given rounds (with repetitions), or of each round once."""
        if indices is None:
            indices = range(self.first_round, self.last_round + 1)
        return tuple(event for index in indices for event in self._round_events(index))

    def _round_events(self, index: int) -> tuple[Event, ...]:
        self.round_at(index)
        return self._all_events[index]

    @cached_property
    def _all_events(self) -> dict[int, tuple[Event, ...]]:
        """Events of every round, by index."""
        events = {}
        for index in range(self.first_round, self.last_round + 1):
            planned = self.round_at(index)
            n_shares = self.shares.n_honest if trust_model(planned.trust).shared_noise else 1
            events[index] = tuple(block.event(self.fraction_bits, n_shares) for block in planned.blocks)
        return events

    @cached_property
    def epsilon(self) -> float:
        """Cost of a run in which nobody drops out."""
        return price(self.events(), self.delta)

    @cached_property
    def epsilon_worst_case(self) -> float:
        """Cost of a run in which all retries are used on the costliest round."""
        base = list(range(self.first_round, self.last_round + 1))
        retries = self.config.max_retries
        if retries == 0 or not base:
            return self.epsilon
        distinct = {self._round_events(index): index for index in base}
        kinds = {type(event) for events in distinct for event in events}
        if len(kinds) > 1:
            # Costs of different kinds do not add up along one axis, so every round is repeated: an upper bound.
            return price(self.events(base + list(distinct.values()) * retries), self.delta)
        return max(price(self.events(base + [index] * retries), self.delta) for index in distinct.values())


@lru_cache(maxsize=1024)
def price(events: tuple[Event, ...], delta: float) -> float:
    """Epsilon of the events at delta; remembered, since server and clients price the same prefixes of a plan."""
    return compose_epsilon(events, delta)


def draft_plan(
    config: KMeansConfig,
    *,
    run_id: int,
    n_clients: int,
    seed: int,
    n_features: int | None,
    n_examples: int | None = None,
) -> Plan:
    """Build the plan, as far as the public values that are known allow.

    Parameters
    ----------
    config : KMeansConfig
        Validated configuration.
    run_id, n_clients, seed : int
        Of this run.
    n_features : int or None
        Width of the table; None while unknown.
    n_examples : int or None
        The released private count; None if N is declared, or not counted yet.

    Returns
    -------
    Plan
        Preliminary (no rounds but the count) while N or d is missing.

    Raises
    ------
    ConfigurationError, PlanError, BudgetError
        If no sound plan follows; nothing was sent and nothing was spent.

    Examples
    --------
    >>> from flwr_dpkmeans.config import parse_config
    >>> config = parse_config(n_clusters=3, bounds=((-1,), (1,)), n_examples=1000, epsilon=1.0)
    >>> plan = draft_plan(config, run_id=1, n_clients=2, seed=7, n_features=2)
    >>> plan.last_round, plan.epsilon <= 1.0
    (7, True)
    """
    entry = algorithm_entry(config.algorithm)
    trust_model(config.trust)
    if config.unit not in entry.units:
        units = ", ".join(repr(unit.value) for unit in entry.units)
        raise ConfigurationError(
            f"unit is {config.unit.value!r}, but {config.algorithm!r} protects {units} only: choose unit={units}."
        )
    known = config.n_features or n_features
    if config.n_features is not None and n_features not in (None, config.n_features):
        raise ConfigurationError(
            f"n_features is declared as {config.n_features}, but the clients' tables have {n_features} features: "
            "correct n_features or leave it out."
        )
    plan = Plan(
        run_id=run_id,
        config=config,
        n_clients=n_clients,
        max_silent=resolve_max_silent(config, n_clients),
        seed=seed,
        delta=resolve_delta(config),
        n_examples=config.n_examples if config.n_examples is not None else n_examples,
        n_features=known,
        count=None,
        rounds=(),
    )
    if config.n_examples is None and entry.needs_n_examples:
        plan = replace(plan, count=_count_round(plan, entry.noise))
    if known is not None:
        # Checked against the width as soon as it is known.
        replace(config, n_features=known)
        if plan.n_examples is not None or not entry.needs_n_examples:
            plan = replace(plan, rounds=_planned_rounds(build_algorithm(plan), config.trust))
    _check(plan)
    return plan


def resolve_max_silent(config: KMeansConfig, n_clients: int) -> int:
    """t: as given, else 0 where all pairs are masked and 20 on the sparse graph."""
    if config.max_silent is not None:
        if config.max_silent > n_clients - 2:
            raise ConfigurationError(
                f"max_silent is {config.max_silent}, but with {n_clients} clients at most {n_clients - 2} may be "
                "silent or collude: lower max_silent or start more clients."
            )
        return config.max_silent
    return 0 if n_clients <= 32 else _SPARSE_MAX_SILENT


def resolve_delta(config: KMeansConfig) -> float:
    """delta: as given, else 1/(N ln N) where N is declared, else 1e-6."""
    if config.delta is not None:
        return config.delta
    if config.n_examples is None:
        return UNDECLARED_DELTA
    n = config.n_examples
    if n < 3:
        raise ConfigurationError(f"n_examples is {n}, but 1/(N ln N) needs at least 3: give delta or add data.")
    return 1.0 / (n * math.log(n))


def make_noise_source(plan: Plan, *purpose: str | int) -> NoiseSource:
    """Noise for one purpose: from OS entropy, or (seeded, not private) from a stream of the plan's seed."""
    if plan.config.noise is NoiseKind.SECURE:
        return noise_source(NoiseKind.SECURE)
    seed = hashlib.sha256(repr((plan.seed, *purpose)).encode()).digest()[:8]
    return noise_source(plan.config.noise, int.from_bytes(seed, "little"))


@lru_cache(maxsize=64)
def build_algorithm(plan: Plan) -> Algorithm:
    """Build the algorithm's rounds, functions included, from a plan's public values."""
    return _built(_public(plan))


def initial_state(plan: Plan) -> ClusterState:
    """The public start of a final plan."""
    return _started(_public(plan), plan.seed)


def _public(plan: Plan) -> Public:
    """The public values that an algorithm's rounds follow from."""
    if plan.n_features is None:
        raise PlanError("the number of features is not known yet: wait for the clients' answers.")
    count = plan.count.blocks[0] if plan.count is not None else None
    reserved = 0.0
    if count is not None:
        event = count.event(plan.fraction_bits, plan.shares.n_honest)
        reserved = event.slack if isinstance(event, GaussianRelease) else 0.0
    return Public(
        # The rounds do not depend on the seed, so runs that differ in nothing else share them.
        config=replace(plan.config, random_state=None),
        n_examples=plan.n_examples,
        n_features=plan.n_features,
        delta=plan.delta,
        count_multiplier=None if count is None else count.noise_multiplier,
        reserved_slack=reserved,
        fraction_bits=plan.fraction_bits,
    )


@lru_cache(maxsize=64)
def _built(public: Public) -> Algorithm:
    """Rounds are pure functions of the public values, so equal values share them."""
    return algorithm_entry(public.config.algorithm).build(public)


@lru_cache(maxsize=16)
def _started(public: Public, seed: int) -> ClusterState:
    """A start is made once in a process; its arrays are read-only because they are shared."""
    state = _built(public).initial_state(seed)
    state.centroids.flags.writeable = False
    state.counts.flags.writeable = False
    return state


def verify_plan(plan: Plan) -> None:
    """Rebuild a received plan from its configuration; one whose numbers do not follow is a `ProtocolError`.

    Parameters
    ----------
    plan : Plan
        From the server. Differences in the last digits (another machine's pow) are accepted; the plan's own numbers
        are then used by everybody.
    """
    if plan.version != PLAN_VERSION or plan.fraction_bits != FRACTION_BITS:
        raise ProtocolError(
            f"the plan has format {plan.version} with {plan.fraction_bits} fractional bits, but this client speaks "
            f"format {PLAN_VERSION} with {FRACTION_BITS}: install the same version of flwr-dpkmeans everywhere."
        )
    own = draft_plan(
        plan.config,
        run_id=plan.run_id,
        n_clients=plan.n_clients,
        seed=plan.seed,
        n_features=plan.n_features,
        n_examples=plan.n_examples,
    )
    same = (own.max_silent, own.n_examples, own.n_features) == (plan.max_silent, plan.n_examples, plan.n_features)
    rounds = [r for r in (own.count, *own.rounds) if r is not None]
    theirs = [r for r in (plan.count, *plan.rounds) if r is not None]
    if not same or not _close(own.delta, plan.delta) or len(rounds) != len(theirs):
        raise ProtocolError("the plan does not follow from its own configuration: stop the run and check the server.")
    for mine, other in zip(rounds, theirs, strict=True):
        if not _same_round(mine, other):
            raise ProtocolError(
                f"round {other.name!r} of the plan has other sensitivities or noise than its configuration implies: "
                "stop the run and check the server."
            )


def require_successor(plan: Plan, final: Plan) -> None:
    """Check that a final plan continues the preliminary one that was agreed on."""
    kept = (plan.run_id, plan.config, plan.n_clients, plan.max_silent, plan.seed, plan.delta, plan.count)
    if not final.is_final or kept != (
        final.run_id,
        final.config,
        final.n_clients,
        final.max_silent,
        final.seed,
        final.delta,
        final.count,
    ):
        raise ProtocolError("the final plan changes what the preliminary plan had fixed: stop the run.")


def counted_examples(released_count: float, config: KMeansConfig) -> int:
    """Turn the released private count into the N of the plan: rounded, at least 1.

    Raises
    ------
    PlanError
        If there are fewer rows than clusters, or delta is not below 1/N.
    """
    n = max(1, round(released_count))
    if n < config.n_clusters:
        raise PlanError(
            f"the private count found about {n} rows, but {config.n_clusters} clusters need at least as many: choose "
            "fewer clusters or add data."
        )
    if resolve_delta(config) >= 1.0 / n:
        raise PlanError(
            f"delta is {resolve_delta(config):g}, but the private count found about {n} rows and delta must be below "
            f"{1.0 / n:g}: give a smaller delta."
        )
    return n


def _count_round(plan: Plan, noise: NoiseShape) -> PlannedRound:
    """The private count: one entry, Gaussian, `count_share` of the budget."""
    config = plan.config
    if noise is NoiseShape.LAPLACE:
        multiplier = gaussian_noise_multiplier(config.epsilon * config.count_share, plan.delta * (1 - 1e-6))
    else:
        multiplier = gaussian_noise_multiplier(config.epsilon, plan.delta) / math.sqrt(config.count_share)
    sensitivity = Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD)
    block = Block("count", (1,), sensitivity, NoiseShape.GAUSSIAN, multiplier, 1.0)
    return PlannedRound("count", COUNT_TRUST, (block,))


def _planned_rounds(algorithm: Algorithm, trust: str) -> tuple[PlannedRound, ...]:
    """The algorithm's rounds without their functions."""
    return tuple(PlannedRound(r.name, trust, r.blocks, r.radius) for r in algorithm.rounds)


def _check(plan: Plan) -> None:
    """Refuse vectors that are too long, sums that could wrap, noise that cannot be added, and plans over the budget."""
    config = plan.config
    if plan.n_examples is not None and plan.delta >= 1.0 / plan.n_examples:
        raise ConfigurationError(
            f"delta is {plan.delta:g}, but it must be below 1/N = {1.0 / plan.n_examples:g}: give a smaller delta."
        )
    for planned in (plan.count, *plan.rounds):
        if planned is None:
            continue
        trust_model(planned.trust).check(planned.blocks)
        if vector_length(planned.blocks) > MAX_VECTOR_LENGTH:
            raise PlanError(
                f"round {planned.name!r} has {vector_length(planned.blocks)} entries, but at most {MAX_VECTOR_LENGTH} "
                "can be aggregated: use fewer clusters or features."
            )
        for block in planned.blocks:
            largest = block.entry_bound * MAX_ROWS_PER_CLIENT * plan.n_clients
            require_no_wrap(largest, _noise_spread(plan, planned, block), block.name, plan.fraction_bits)
            share = plan.shares.factor if trust_model(planned.trust).shared_noise else 1.0
            if block.noise is not NoiseShape.NONE and block.noise_scale * share * 2.0**plan.fraction_bits < 1.0:
                raise PlanError(
                    f"the noise on {block.name!r} would be {block.noise_scale * share:.3g}, but the grid has steps of "
                    f"{2.0**-plan.fraction_bits:.3g}: lower epsilon (it is {config.epsilon:g})."
                )
    if plan.is_final:
        _check_budget(plan)
    elif config.max_epsilon is not None:
        _check_budget(_cheapest(plan))


def _cheapest(plan: Plan) -> Plan:
    """A final plan that no continuation of a preliminary one undercuts: a retry costs least in the longest run."""
    config = plan.config
    longest = replace(
        plan,
        config=replace(config, max_iter=config.max_iter or MAX_ITERATIONS),
        n_features=plan.n_features or len(config.bounds[0]),
        n_examples=plan.n_examples or max(config.n_clusters, 3),
    )
    return replace(longest, rounds=_planned_rounds(build_algorithm(longest), config.trust))


def _noise_spread(plan: Plan, planned: PlannedRound, block: Block) -> float:
    """Standard deviation of the noise with all clients present, in data units."""
    spread = block.noise_scale * (math.sqrt(2.0) if block.noise is NoiseShape.LAPLACE else 1.0)
    if trust_model(planned.trust).shared_noise:
        spread *= math.sqrt(plan.n_clients / plan.shares.n_honest)
    return spread


def _check_budget(plan: Plan) -> None:
    """Refuse a plan that costs more than was asked for, or whose worst case exceeds ``max_epsilon``."""
    config = plan.config
    is_private = not any(isinstance(event, ExactRelease) for event in plan.events())
    if is_private and plan.epsilon > config.epsilon * (1.0 + _TOLERANCE):
        raise BudgetError(
            f"the plan costs epsilon {plan.epsilon:.6g}, but the budget is {config.epsilon:g}: raise epsilon or use "
            "fewer rounds."
        )
    if config.max_epsilon is not None and plan.epsilon_worst_case > config.max_epsilon * (1.0 + _TOLERANCE):
        raise BudgetError(
            f"the plan can cost epsilon {plan.epsilon_worst_case:.4g} when all {config.max_retries} retries are used, "
            f"but max_epsilon is {config.max_epsilon:g}: lower epsilon or max_retries, or raise max_epsilon."
        )


def _same_round(mine: PlannedRound, other: PlannedRound) -> bool:
    """Whether two rounds agree up to the last digits."""
    if (mine.name, mine.trust, len(mine.blocks)) != (other.name, other.trust, len(other.blocks)):
        return False
    if not _close(mine.radius or 0.0, other.radius or 0.0):
        return False
    return all(_same_block(a, b) for a, b in zip(mine.blocks, other.blocks, strict=True))


def _same_block(a: Block, b: Block) -> bool:
    """Whether two blocks agree up to the last digits."""
    same = (a.name, a.shape, a.noise) == (b.name, b.shape, b.noise)
    same = same and (a.sensitivity.norm, a.sensitivity.unit) == (b.sensitivity.norm, b.sensitivity.unit)
    return (
        same
        and _close(a.sensitivity.bound, b.sensitivity.bound)
        and _close(a.noise_multiplier, b.noise_multiplier)
        and _close(a.entry_bound, b.entry_bound)
    )


def _close(a: float, b: float) -> bool:
    """Equal up to the last digits."""
    return math.isclose(a, b, rel_tol=_TOLERANCE, abs_tol=0.0)
