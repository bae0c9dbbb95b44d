"""From a configuration to the public plan, priced before any data are touched.

And how what arrives is checked.

The server drafts the plan and sends it; each client drafts it again (`verify_plan`) and
refuses one whose numbers do not follow from the configuration inside. A server holds
sums against public bounds (`require_plausible`).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import TypedDict, Unpack

from flwr_dpkmeans.errors import BudgetError, ConfigurationError, LocalMisuseError
from flwr_dpkmeans.privacy import release
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.gaussian_cost import GaussianCost, pair_cost
from flwr_dpkmeans.sums.aggregation import AGGREGATORS
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.checks.columns import columns_digest
from flwr_dpkmeans.sums.checks.sound import check_budget, check_plan
from flwr_dpkmeans.sums.checks.supported import require_supported
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.plan import Plan, PlannedRound
from flwr_dpkmeans.sums.plan_points import PublicPoints
from flwr_dpkmeans.sums.price import counted_delta, resolve_delta, whole_multiplier
from flwr_dpkmeans.sums.public_facts import ServerFacts
from flwr_dpkmeans.sums.settings import Box, EvaluationKind, Settings
from flwr_dpkmeans.sums.trust import trust_model


def resolve_max_silent(config: RunConfig, n_clients: int) -> int:
    """Choose t: as the user set it, else by `dropout`.

    As its documentation in `Settings` says.
    """
    settings = config.settings
    max_silent = settings.max_silent
    if max_silent is None:
        dropout = settings.dropout_of(n_clients)
        return AGGREGATORS[dropout.value].usual_max_silent(n_clients)
    if max_silent > n_clients - 2:
        raise ConfigurationError(
            f"max_silent is {settings.max_silent}, but with {n_clients} clients at"
            f" most {n_clients - 2} may be silent or collude: lower max_silent or"
            " start more clients."
        )
    return max_silent


_MOST_PURE = 1.05
"""Of epsilon, for Laplace rounds beside a count, which together are priced at less than
the sum of their epsilons.
"""
_WIDE = 100
"""Columns of a wide table, in forecasts of plans whose width is not known yet."""
_ROOM = 1.0 + 1e-6
"""Over the largest cost of a counted run, for noise on the grid of other counts."""
_MANY = 10**9
"""Rows of a large table, in forecasts of plans whose N is not known yet."""
_MAGNITUDES = tuple([4**exponent for exponent in range(2, 16)])
"""Numbers of rows up to it, between which plans hardly differ."""


class PublicValues(TypedDict, total=False):
    """What is public of a run besides its configuration, as far as it is there yet."""

    n_examples: int | None
    """Released; None where it is declared, or not counted yet."""
    server: ServerFacts | None
    public_points: PublicPoints | None
    box: Box | None
    """Released; None where it is declared, or not found yet."""
    columns: str
    """Digest of the columns' names that the clients answered.

    That of the configuration's own names wins.
    """


def draft_plan(
    config: RunConfig,
    *,
    run_id: int,
    n_clients: int,
    seed: int,
    n_features: int | None,
    **public: Unpack[PublicValues],
) -> Plan:
    """Build the plan of a run, as far as the public values that are known allow.

    It is preliminary (no rounds but those that steer it) while N, the width d or the
    private box is missing. Raises `ConfigurationError`, `PlanError` or `BudgetError` if
    no sound plan follows; nothing was sent and nothing was spent.

    Examples
    --------
    >>> from flwr_dpkmeans.options import parse_config
    >>> config = parse_config(
    ...     n_clusters=3, bounds=((-1,), (1,)), n_examples=1000, epsilon=1.0
    ... )
    >>> plan = draft_plan(config, run_id=1, n_clients=2, seed=7, n_features=2)
    >>> plan.last_round, plan.epsilon <= 1.0
    (10, True)
    """
    settings = config.settings
    server = public.get("server")
    public_points = public.get("public_points")
    box = public.get("box")
    require_supported(config, has_server_data=server is not None)
    _require_points_in_place(settings, server, public_points)
    n_examples = settings.n_examples or public.get("n_examples")
    columns = public.get("columns", "")
    if settings.feature_names:
        columns = columns_digest(run_id, settings.feature_names)
    plan = Plan(
        run_id=run_id,
        config=config,
        n_clients=n_clients,
        max_silent=resolve_max_silent(config, n_clients),
        seed=seed,
        delta=resolve_delta(config, n_clients),
        n_examples=n_examples,
        n_features=_width(settings, n_features),
        preliminary=(),
        rounds=(),
        server=server,
        public_points=public_points,
        box=box,
        columns_digest=columns,
    )
    plan = _with_preliminary_rounds(plan)
    config.task.require_box(config, box, plan.n_features)
    if plan.n_features is not None:
        settings.require_width(plan.n_features)
        if _has_all_numbers(plan):
            plan = replace(plan, rounds=_planned(plan))
    check_plan(plan)
    if settings.rows_per_person is not None or settings.max_weight is not None:
        from flwr_dpkmeans.sums.persons.person_rows import require_weighing

        require_weighing(plan)
    _require_affordable(plan)
    return plan


def _require_points_in_place(
    settings: Settings,
    server: ServerFacts | None,
    public_points: PublicPoints | None,
) -> None:
    """Refuse server points in a plan whose trust model leaves them on the server."""
    if public_points is None:
        return
    if server is None or trust_model(settings.trust).server_has_result():
        raise ConfigurationError(
            f"server points are in the plan, but trust {settings.trust!r} keeps them on"
            " the server: check the server."
        )


def _width(settings: Settings, n_features: int | None) -> int | None:
    """Width of the tables: as declared, else as the clients answered."""
    declared = settings.n_features
    if declared is None:
        return n_features
    if n_features not in (None, declared):
        raise ConfigurationError(
            f"n_features is declared as {settings.n_features}, but the clients' tables"
            f" have {n_features} features: correct n_features or leave it out."
        )
    return declared


def _has_all_numbers(plan: Plan) -> bool:
    """Whether N and the box are known, as far as the run needs them."""
    settings = plan.settings
    is_counted = plan.n_examples is not None or not plan.task.counts(settings.unit)
    has_box = plan.box is not None or not settings.private_bounds
    return is_counted and has_box


def _require_affordable(plan: Plan) -> None:
    """Refuse a plan that costs too much, or whose task fails once clients have paid."""
    if plan.is_final:
        charged, begun = math.inf, plan
        if plan.count is not None:
            charged = worst_case(plan)
            begun = replace(plan, delta=resolve_delta(plan.config, plan.n_clients))
        check_budget(plan, charged, begun)
        worst_cost(plan)
        _rehearse_foreign(plan)
        return
    # What no count and no box could mend, and releases that could not be reported, are
    # refused before they cost.
    continuations = _continuations(plan)
    cheapest = min(continuations, key=attrgetter("epsilon_worst_case"))
    if plan.settings.max_epsilon is not None:
        check_budget(cheapest, math.inf, cheapest)
    _rehearse_foreign(cheapest)


def _rehearse_foreign(plan: Plan) -> None:
    """Call what is not ours, and would first be called when clients have paid."""
    package = type(plan.task).__module__.split(".")[0]
    if package != __name__.split(".")[0]:
        from flwr_dpkmeans.sums.checks.rehearsal import rehearse

        rehearse(plan, build_algorithm)


@lru_cache(maxsize=64)
def worst_case(plan: Plan) -> float:
    """Bound what a run can cost in all, with which ledgers are charged.

    From its first release on.

    No later plan of the run costs more, or it is refused. Where rounds follow from a
    private count, the number is the same before and after it. An estimate while neither
    N nor the width is known.
    """
    config = plan.config
    settings = config.settings
    is_exact = settings.evaluation is EvaluationKind.EXACT
    if config.task.noise is release.NoiseShape.NONE or is_exact:
        return math.inf
    if plan.count is None and plan.n_features is not None:
        return _final(plan).epsilon_worst_case
    most = settings.epsilon
    finals = _continuations(_uncounted(plan))
    if settings.max_retries > 0:
        most = _with_retries(plan)
    costs = [final.epsilon_worst_case for final in finals]
    if math.inf in costs:
        # Noise of a few steps of the grid has no price at epsilons of hundreds; whoever
        # minds hears of it before the count.
        return math.inf
    if settings.max_epsilon is None:
        return most
    return max(settings.epsilon, min(most, settings.max_epsilon))


def _final(plan: Plan) -> Plan:
    """Return the plan of an uncounted run with its rounds.

    With private bounds no price depends on what they are found to be.
    """
    if plan.is_final:
        return plan
    return replace(plan, rounds=_planned(plan))


@lru_cache(maxsize=64)
def worst_cost(plan: Plan) -> GaussianCost:
    """Bound what a run can cost as ledgers add it up; see `worst_case`.

    Where rounds follow from a private count, all that may follow until they do, and
    then this plan alone [C17].
    """
    epsilon = worst_case(plan)
    if math.isinf(epsilon):
        return GaussianCost(math.inf)
    if plan.count is None and plan.n_features is not None:
        return _final(plan).cost_worst_case
    delta = resolve_delta(plan.config, plan.n_clients)
    # Deltas that follow from a count add up to so much [C15].
    pair = pair_cost(epsilon, delta * 4.0 / 3.0)
    squares = _squares(_uncounted(plan))
    if squares is None or pair.mu < squares.mu:
        return pair
    cost = plan.squared_cost
    if not plan.is_final:
        return squares
    if cost is None or not cost.is_within(squares):
        raise BudgetError(
            f"the plan can cost more than mu {squares.mu:.9g}, which was charged before"
            " the rows were counted: declare n_examples, or use a finer grid."
        )
    if squares.epsilon(delta) > epsilon * _ROOM**2:
        # A total that has room for this epsilon alone may have none for its squares:
        # where they have, and where not, must not depend on the count.
        return squares
    return cost


@lru_cache(maxsize=64)
def _squares(plan: Plan) -> GaussianCost | None:
    """Bound the squares of all plans that a count may lead to; None without a bound.

    How rounds share the budget changes with N in steps, so all its magnitudes are
    looked at. A plan that costs more would be refused after the count. None of sampled
    clients, too, whose squares count them all, and whose plans take seconds to draft.
    """
    if plan.settings.client_sampling_rate < 1.0:
        return None
    mu, own_delta = 0.0, 0.0
    for final in _finals(plan, plan.config, _MAGNITUDES):
        cost = final.squared_cost
        if cost is None:
            return None
        mu = max(mu, cost.mu)
        own_delta = max(own_delta, cost.own_delta)
    delta = resolve_delta(plan.config, plan.n_clients)
    return GaussianCost(mu * _ROOM, own_delta + delta * (_ROOM - 1.0))


def _with_retries(plan: Plan) -> float:
    """Price of all that a count may lead to, with every retry."""
    most = _whole_repeated(plan)
    squares = _squares(_uncounted(plan))
    if squares is None:
        return most
    delta = resolve_delta(plan.config, plan.n_clients)
    return min(most, squares.epsilon(delta))


def _uncounted(plan: Plan) -> Plan:
    """Return the plan of a run as it was before rows were counted."""
    return replace(
        plan,
        n_examples=None,
        box=None,
        rounds=(),
        delta=resolve_delta(plan.config, plan.n_clients),
    )


def _whole_repeated(plan: Plan) -> float:
    """Price of the whole budget with every retry, as no round has more than all of it.

    Where rounds follow from a count, a price must hold for all outcomes at once: which
    round is dearest differs.
    """
    config = plan.config
    settings = config.settings
    # Not the delta that a count may lower: the charge stays the same, and holds at the
    # first one [C15].
    delta = resolve_delta(config, plan.n_clients)
    n_times = 1 + settings.max_retries
    multiplier = whole_multiplier(config, delta)
    if config.task.noise is not release.NoiseShape.LAPLACE:
        repeated = multiplier / math.sqrt(n_times)
        whole = release.GaussianRelease("all rounds", repeated)
        return compose_epsilon([whole], delta)
    share = settings.reserved_share(counts=config.task.counts(settings.unit))
    repeated = multiplier / math.sqrt(share * n_times)
    others = release.GaussianRelease("other rounds", repeated)
    pure_epsilon = _MOST_PURE * settings.epsilon * n_times
    pure = release.PureRelease("Laplace rounds", pure_epsilon)
    return compose_epsilon([others, pure], delta)


def redraft_plan(
    plan: Plan,
    *,
    n_features: int | None,
    n_examples: int | None = None,
    box: Box | None = None,
    columns: str = "",
) -> Plan:
    """Draft the plan of the same run again, with more public values known.

    On a client, with the same.
    """
    return draft_plan(
        plan.config,
        run_id=plan.run_id,
        n_clients=plan.n_clients,
        seed=plan.seed,
        n_features=n_features,
        n_examples=n_examples,
        server=plan.server,
        public_points=plan.public_points,
        box=box,
        columns=columns or plan.columns_digest,
    )


def _with_preliminary_rounds(plan: Plan) -> Plan:
    """Plan the releases before round 1, as far as the width is known.

    And the delta that follows.
    """
    # They were released before the count could lower delta.
    first_delta = resolve_delta(plan.config, plan.n_clients)
    rounds = plan.task.preliminary(plan.config, first_delta, plan.n_features)
    plan = replace(plan, preliminary=rounds)
    return replace(plan, delta=counted_delta(plan))


@lru_cache(maxsize=64)
def _planned(plan: Plan) -> tuple[PlannedRound, ...]:
    """The algorithm's rounds, without their functions.

    All parties' drafts in one process share them.
    """
    trust = plan.settings.trust
    planned = []
    for step in build_algorithm(plan).rounds:
        planned.append(PlannedRound(step.name, trust, step.blocks, step.radius))
    return tuple(planned)


@lru_cache(maxsize=64)
def _continuations(plan: Plan) -> tuple[Plan, ...]:
    """Draft final plans that a preliminary one may lead to; raise if there is none.

    No other undercuts them all.

    A retry costs least in the longest run. How a run is split into rounds changes with
    N and d in steps, so the smallest and the largest are both looked at.
    """
    longest = RunConfig(plan.config.settings, plan.config.task.longest())
    return _finals(plan, longest, (_MANY,))


def _finals(
    plan: Plan,
    config: RunConfig,
    magnitudes: tuple[int, ...],
) -> tuple[Plan, ...]:
    """Draft final plans of a configuration, for the fewest rows and so many."""
    counts = (max(config.task.least_rows, 3), *magnitudes)
    if plan.n_examples is not None:
        counts = (plan.n_examples,)
    continuations: list[Plan] = []
    refused: LocalMisuseError | None = None
    for width, n_examples in itertools.product(_possible_widths(plan), counts):
        final = replace(plan, config=config, n_features=width, n_examples=n_examples)
        final = _with_preliminary_rounds(final)
        try:
            final = replace(final, rounds=_planned(final))
            check_plan(final)
            continuations.append(final)
        except LocalMisuseError as error:
            # Such as too few rows to choose k from: the count may still find more.
            refused = error
    if refused is not None and not continuations:
        raise refused
    return tuple(continuations)


def _possible_widths(plan: Plan) -> tuple[int, ...]:
    """Widths that tables may turn out to have: the plan's, its bounds', or any."""
    if plan.n_features is not None:
        return (plan.n_features,)
    lower, _ = plan.settings.bounds
    if len(lower) > 1:
        return (len(lower),)
    return (1, _WIDE)
