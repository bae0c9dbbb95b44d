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
from typing import Any

from flwr_dpkmeans.errors import (
    ConfigurationError,
    LocalMisuseError,
)
from flwr_dpkmeans.privacy import release
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.release import (
    NoiseShape,
)
from flwr_dpkmeans.sums.aggregation import AGGREGATORS
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.checks.columns import columns_digest
from flwr_dpkmeans.sums.checks.rehearsal import is_foreign, rehearse
from flwr_dpkmeans.sums.checks.sound import (
    check_budget,
    check_plan,
)
from flwr_dpkmeans.sums.checks.supported import require_supported
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.plan import Plan, PlannedRound, PublicPoints
from flwr_dpkmeans.sums.price import (
    _counted_delta,
    resolve_delta,
    whole_multiplier,
)
from flwr_dpkmeans.sums.public_facts import ServerFacts
from flwr_dpkmeans.sums.settings import Box, EvaluationKind
from flwr_dpkmeans.sums.trust import trust_model


def resolve_max_silent(config: RunConfig, n_clients: int) -> int:
    """t: as given, else by `dropout`, as its documentation in `RunConfig` says."""
    settings = config.settings
    if settings.max_silent is not None:
        if settings.max_silent > n_clients - 2:
            raise ConfigurationError(
                f"max_silent is {settings.max_silent}, but with {n_clients} clients at"
                f" most {n_clients - 2} may be silent or collude: lower max_silent or"
                " start more clients."
            )
        return settings.max_silent
    return AGGREGATORS[settings.dropout_of(n_clients).value].usual_max_silent(n_clients)


_MOST_PURE = 1.05
"""Of epsilon, for Laplace rounds beside a count, which together are priced at less than
the sum of their epsilons.
"""
_WIDE, _MANY = 100, 10**9


def draft_plan(
    config: RunConfig,
    *,
    run_id: int,
    n_clients: int,
    seed: int,
    n_features: int | None,
    n_examples: int | None = None,
    server: ServerFacts | None = None,
    public_points: PublicPoints | None = None,
    box: Box | None = None,
    columns: str = "",
) -> Plan:
    """Build the plan of a run, as far as the public values that are known allow.

    It is preliminary (no rounds but those that steer it) while N, the width d or the
    private box is missing. `n_examples` and `box` are released ones: None where they
    are declared, or not found yet. `columns` is the digest of the columns' names that
    the clients answered; that of the configuration's own names wins. Raises
    `ConfigurationError`, `PlanError` or `BudgetError` if no sound plan follows; nothing
    was sent and nothing was spent.

    Examples
    --------
    >>> from flwr_dpkmeans.options import parse_config
    >>> config = parse_config(n_clusters=3, bounds=((-1,), (1,)), n_examples=1000, epsilon=1.0)
    >>> plan = draft_plan(config, run_id=1, n_clients=2, seed=7, n_features=2)
    >>> plan.last_round, plan.epsilon <= 1.0
    (10, True)
    """
    settings, task = config.settings, config.task
    require_supported(config, has_server_data=server is not None)
    if public_points is not None and (
        server is None or trust_model(settings.trust).server_has_result()
    ):
        raise ConfigurationError(
            f"server points are in the plan, but trust {settings.trust!r} keeps them on"
            " the server: check the server."
        )
    known = settings.n_features or n_features
    if settings.n_features is not None and n_features not in (
        None,
        settings.n_features,
    ):
        raise ConfigurationError(
            f"n_features is declared as {settings.n_features}, but the clients' tables"
            f" have {n_features} features: correct n_features or leave it out."
        )
    plan = Plan(
        run_id=run_id,
        config=config,
        n_clients=n_clients,
        max_silent=resolve_max_silent(config, n_clients),
        seed=seed,
        delta=resolve_delta(config, n_clients),
        n_examples=(
            settings.n_examples if settings.n_examples is not None else n_examples
        ),
        n_features=known,
        preliminary=(),
        rounds=(),
        server=server,
        public_points=public_points,
        box=box,
        columns_digest=columns_digest(run_id, settings.feature_names) or columns,
    )
    plan = _with_preliminary_rounds(plan)
    task.require_box(config, box, known)
    if known is not None:
        settings.require_width(known)
        counted = plan.n_examples is not None or not task.counts(settings.unit)
        if counted and (box is not None or not settings.private_bounds):
            plan = replace(plan, rounds=_planned(plan))
    check_plan(plan)
    if plan.is_final:
        check_budget(plan, math.inf if plan.count is None else worst_case(plan))
        _rehearsed(plan)
    else:
        # What no count and no box could mend, and releases that could not be reported,
        # are refused before they cost.
        cheapest = min(_continuations(plan), key=lambda final: final.epsilon_worst_case)
        if settings.max_epsilon is not None:
            check_budget(cheapest, math.inf)
        _rehearsed(cheapest)
    return plan


def _rehearsed(plan: Plan) -> None:
    """Call what is not ours, and would first be called when clients have paid."""
    if is_foreign(plan.task):
        rehearse(plan, build_algorithm)


@lru_cache(maxsize=64)
def worst_case(plan: Plan) -> float:
    """What a run can cost in all, from its first release on.

    What ledgers are charged with that release.

    No later plan of the run costs more, or it is refused. Where rounds follow from a
    private count, the number is the same before and after it. An estimate while neither
    N nor the width is known.
    """
    config = plan.config
    if (
        config.task.noise is NoiseShape.NONE
        or config.settings.evaluation is EvaluationKind.EXACT
    ):
        return math.inf
    if plan.count is None and plan.n_features is not None:
        # With private bounds no price depends on what they are found to be.
        return (
            plan if plan.is_final else replace(plan, rounds=_planned(plan))
        ).epsilon_worst_case
    most = (
        config.settings.epsilon
        if config.settings.max_retries == 0
        else _whole_repeated(plan)
    )
    uncounted = replace(
        plan,
        n_examples=None,
        box=None,
        rounds=(),
        delta=resolve_delta(config, plan.n_clients),
    )
    if any(math.isinf(final.epsilon_worst_case) for final in _continuations(uncounted)):
        # Noise of a few steps of the grid has no price at epsilons of hundreds; whoever
        # minds is told before the count.
        return math.inf
    limit = config.settings.max_epsilon
    return most if limit is None else max(config.settings.epsilon, min(most, limit))


def _whole_repeated(plan: Plan) -> float:
    """Price of the whole budget with every retry.

    No round has more of the budget than all of it.

    Where rounds follow from a count, a price must hold for all outcomes at once: which
    round is dearest differs.
    """
    config = plan.config
    # Not the delta that a count may lower: the charge stays the same, and holds at the
    # first one [C15].
    delta = resolve_delta(config, plan.n_clients)
    n_times = 1 + config.settings.max_retries
    whole = whole_multiplier(config, delta)
    if config.task.noise is not NoiseShape.LAPLACE:
        return compose_epsilon(
            [release.GaussianRelease("all rounds", whole / math.sqrt(n_times))], delta
        )
    share = config.settings.reserved_share(
        counts=config.task.counts(config.settings.unit)
    )
    others = release.GaussianRelease("other rounds", whole / math.sqrt(share * n_times))
    pure = release.PureRelease(
        "Laplace rounds", _MOST_PURE * config.settings.epsilon * n_times
    )
    return compose_epsilon([others, pure], delta)


def redraft_plan(plan: Plan, *, columns: str = "", **known: Any) -> Plan:
    """Draft the plan of the same run again, with more (or, on a client, the same)
    public values known.
    """
    same = {
        name: getattr(plan, name)
        for name in ("run_id", "n_clients", "seed", "server", "public_points")
    }
    return draft_plan(
        plan.config, **same, columns=columns or plan.columns_digest, **known
    )


def _with_preliminary_rounds(plan: Plan) -> Plan:
    """The plan with the releases that come before round 1, as far as its width allows,
    and the delta that follows.
    """
    # They were released before the count could lower delta.
    rounds = plan.task.preliminary(
        plan.config, resolve_delta(plan.config, plan.n_clients), plan.n_features
    )
    plan = replace(plan, preliminary=rounds)
    return replace(plan, delta=_counted_delta(plan))


@lru_cache(maxsize=64)
def _planned(plan: Plan) -> tuple[PlannedRound, ...]:
    """The algorithm's rounds, without their functions.

    All parties' drafts in one process share them.
    """
    trust = plan.settings.trust
    return tuple(
        [
            PlannedRound(one.name, trust, one.blocks, one.radius)
            for one in build_algorithm(plan).rounds
        ]
    )


@lru_cache(maxsize=64)
def _continuations(plan: Plan) -> tuple[Plan, ...]:
    """Final plans that a preliminary one may lead to, such that no other undercuts them
    all; raises if there is none.

    A retry costs least in the longest run. How a run is split into rounds changes with
    N and d in steps, so the smallest and the largest are both looked at.
    """
    config = plan.config
    known = plan.n_features or (
        len(config.settings.bounds[0]) if len(config.settings.bounds[0]) > 1 else None
    )
    widths = (1, _WIDE) if known is None else (known,)
    counts = (
        (max(config.task.least_rows, 3), _MANY)
        if plan.n_examples is None
        else (plan.n_examples,)
    )
    longest = RunConfig(config.settings, config.task.longest())
    continued: list[Plan] = []
    refused: LocalMisuseError | None = None
    for width, n_examples in itertools.product(widths, counts):
        final = replace(plan, config=longest, n_features=width, n_examples=n_examples)
        final = _with_preliminary_rounds(final)
        try:
            final = replace(final, rounds=_planned(final))
            check_plan(final)
            continued.append(final)
        except LocalMisuseError as error:
            # Such as too few rows to choose k from: the count may still find more.
            refused = error
    if refused is not None and not continued:
        raise refused
    return tuple(continued)
