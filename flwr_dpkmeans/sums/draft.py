"""From a configuration to the public plan, priced before any data are touched.

And how what arrives is checked.

The server drafts the plan and sends it; each client drafts it again (`verify_plan`) and
refuses one whose numbers do not follow from the configuration inside. A server holds
sums against public bounds (`require_plausible`).
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from flwr_dpkmeans.errors import (
    BudgetError,
    ConfigurationError,
    LocalMisuseError,
    PlanError,
    ProtocolError,
    told_apart,
)
from flwr_dpkmeans.privacy import release
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.calibration import calibrate_scale, gaussian_noise_multiplier
from flwr_dpkmeans.privacy.noise import SAME, joint_closeness
from flwr_dpkmeans.privacy.release import (
    Block,
    NoiseShape,
    PrivacyUnit,
    ReleasedSum,
    round_events,
)
from flwr_dpkmeans.secagg.ring import require_no_wrap
from flwr_dpkmeans.sums.plan import (
    COUNT,
    Plan,
    PlannedRound,
    PublicPoints,
    columns_digest,
    price_or_infinity,
)
from flwr_dpkmeans.sums.rehearsal import is_foreign, rehearse
from flwr_dpkmeans.sums.round import Algorithm, Array, PrivateSum, State
from flwr_dpkmeans.sums.settings import Box, EvaluationKind
from flwr_dpkmeans.sums.task import (
    TASKS,
    Discoveries,
    PublicFacts,
    RunConfig,
    ServerData,
    ServerFacts,
    Task,
)
from flwr_dpkmeans.sums.trust import AGGREGATORS, trust_model
from flwr_dpkmeans.threads import one_thread

UNDECLARED_DELTA = 1e-6


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


def resolve_delta(config: RunConfig, n_clients: int) -> float:
    """delta: as given, else 1/(N ln N) where N is declared, else 1e-6.

    At client level also at most 1/(M ln M).
    """
    settings = config.settings
    if settings.delta is not None:
        return settings.delta
    if settings.unit is PrivacyUnit.CLIENT:
        return (
            UNDECLARED_DELTA
            if n_clients < 3
            else min(UNDECLARED_DELTA, 1.0 / (n_clients * math.log(n_clients)))
        )
    if settings.n_examples is None:
        return UNDECLARED_DELTA
    n = settings.n_examples
    if n < 3:
        raise ConfigurationError(
            f"n_examples is {n}, but 1/(N ln N) needs at least 3: give delta or add"
            " data."
        )
    return 1.0 / (n * math.log(n))


def whole_multiplier(config: RunConfig, delta: float) -> float:
    """Gaussian noise multiplier of a release that takes the whole budget.

    a share s of it gets this over sqrt(s).

    Beside Laplace noise all that is not the task's own shares one part of epsilon, on
    whose size it depends.
    """
    settings = config.settings
    if config.task.noise is not NoiseShape.LAPLACE:
        return gaussian_noise_multiplier(settings.epsilon, delta)
    total = settings.reserved_share(counts=config.task.counts(settings.unit))
    # A millionth of both is kept for what the discrete noise costs.
    return gaussian_noise_multiplier(
        settings.epsilon * total * (1 - 1e-6), delta * (1 - 1e-6)
    ) * math.sqrt(total)


_MOST_PURE = 1.05
"""Of epsilon, for Laplace rounds beside a count, which together are priced at less than
the sum of their epsilons.
"""
COUNT_DEVIATIONS = 6.0
"""Deviations of the count's noise that a table may be larger than its count says, in
the choice of delta.
"""
_SPENT_BEFORE = 0.7
"""Most of epsilon, less the closing rounds' share, that what comes before round 1 may
cost at the final delta.
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


def require_supported(config: RunConfig, *, has_server_data: bool) -> None:
    """Refuse combinations of task, unit, trust model and server data that do not exist,
    with the nearest that does.
    """
    settings, task, trust = (
        config.settings,
        config.task,
        trust_model(config.settings.trust),
    )
    if settings.unit not in task.units:
        units = ", ".join(repr(unit.value) for unit in task.units)
        others = [name for name, other in TASKS.items() if settings.unit in other.units]
        raise ConfigurationError(
            f"unit is {settings.unit.value!r}, but {task.name!r} protects {units} only:"
            f" choose unit={units}, or the algorithm {others[0]!r} for"
            f" {settings.unit.value!r}."
        )
    if (
        settings.client_sampling_rate < 1.0
        and settings.n_examples is None
        and task.counts(settings.unit)
    ):
        # What follows from a count has no price over samples that holds for all its
        # outcomes.
        raise ConfigurationError(
            f"client_sampling_rate is {settings.client_sampling_rate:g}, but"
            f" {task.name!r} makes a private count that its rounds follow from: declare"
            " n_examples or leave the rate at 1."
        )
    if task.tolerance is not None and not trust.server_has_result():
        # How many rounds there are would tell it, of a noisy sum whose noise it knows,
        # on which side of a number it is.
        raise ConfigurationError(
            f"tolerance is {task.tolerance:g}, but under trust {settings.trust!r} the"
            " server knows the noise, so that it must not learn how far centroids"
            " moved: leave tolerance out, or choose trust='distributed'."
        )
    _require_delta(config)
    require_server_data(task, has_server_data=has_server_data)
    if settings.private_bounds and has_server_data:
        raise ConfigurationError(
            "bounds are 'private' (or a schema's scale is standard) and server_data was"
            " given, but bounds follow from the server's own points at no cost: leave"
            " bounds out, or choose another scale."
        )
    task.require_supported(settings, trust)


def _require_delta(config: RunConfig) -> None:
    """Refuse a delta of 0 where a release has Gaussian noise, for which none holds."""
    settings, task = config.settings, config.task
    others = settings.reserved_share(counts=task.counts(settings.unit))
    if settings.delta != 0.0 or (task.noise is NoiseShape.LAPLACE and not others):
        return
    raise ConfigurationError(
        "delta is 0, but not all noise of this run is Laplace (a private count, private"
        " bounds, a profile and an evaluation have Gaussian noise): give 1e-6, or"
        " algorithm='sulloyd' with n_examples declared and none of these."
    )


def require_server_data(task: Task | type[Task], *, has_server_data: bool) -> None:
    """Refuse a task that needs the server's own points and has none, or has some and
    needs none.
    """
    use = task.server_data
    if not has_server_data and use is ServerData.NEEDED:
        raise ConfigurationError(
            f"{task.name!r} starts from the server's own points: give server_data, or"
            " use 'proxy_lloyd'."
        )
    if has_server_data and use is ServerData.NONE:
        raise ConfigurationError(
            f"server_data was given, but {task.name!r} starts without it: leave it out,"
            " or use 'proxy_lloyd'."
        )


@lru_cache(maxsize=64)
def build_algorithm(plan: Plan) -> Algorithm:
    """Build the algorithm's rounds, functions included, from a plan's public values."""
    return _built(_known(plan))


def initial_state(plan: Plan, server_points: Array | None = None) -> State:
    """The start of a final plan, from public randomness and the server's points, if
    there are any.

    `server_points`, (n_server, n_features) in the scaled box, are given where the plan
    does not hold them.
    """
    if server_points is not None:
        return build_algorithm(plan).initial_state(plan.seed, server_points).frozen()
    return _started(_known(plan), plan.seed, plan.public_points)


def _known(plan: Plan) -> PublicFacts:
    """The public values that an algorithm's rounds follow from."""
    if plan.n_features is None:
        raise PlanError(
            "the number of features is not known yet: wait for the clients' answers."
        )
    settings, evaluation, profile = (
        plan.settings,
        tuple[Block, ...](),
        tuple[Block, ...](),
    )
    if settings.n_beside:
        profile = plan.task.profile(
            plan.config, _multiplier_of(plan, settings.profile_share)
        )
    if settings.evaluation is EvaluationKind.PRIVATE:
        evaluation = plan.task.evaluation(
            plan.config, _multiplier_of(plan, settings.evaluation_share)
        )
    elif settings.evaluation is EvaluationKind.EXACT:
        # It has no share, and beside Laplace rounds no noise follows where nothing has
        # one.
        evaluation = plan.task.evaluation(plan.config, 0.0)
    n_shares = plan.model.counted_shares(plan.shares)
    others = plan.events(range(plan.first_round, 1))
    for blocks in filter(None, (profile, evaluation)):
        others += round_events(
            blocks, plan.fraction_bits, n_shares, settings.client_sampling_rate
        )
    released = [
        event
        for event in others
        if isinstance(event, release.GaussianRelease) and event.sampling_rate == 1.0
    ]
    squares = math.fsum(event.noise_multiplier**-2 for event in released)
    return PublicFacts(
        config=plan.config.unseeded,
        n_examples=plan.n_examples,
        n_features=plan.n_features,
        delta=plan.delta,
        released_multiplier=1.0 / math.sqrt(squares) if squares else None,
        released_closeness=(
            joint_closeness(event.closeness for event in released) if released else SAME
        ),
        fraction_bits=plan.fraction_bits,
        server=plan.server,
        noise_factor=plan.model.released_factor(plan.shares),
        n_clients=plan.n_clients,
        evaluation=evaluation,
        profile=profile,
        sampled=tuple(
            e
            for e in others
            if isinstance(e, release.GaussianRelease) and e.sampling_rate < 1.0
        ),
    )


def _multiplier_of(plan: Plan, share: float) -> float:
    """Noise multiplier of a closing round with a share of the budget."""
    multiplier, rate = (
        whole_multiplier(plan.config, plan.delta) / math.sqrt(share),
        plan.settings.client_sampling_rate,
    )
    return (
        multiplier if rate >= 1.0 else _sampled_multiplier(multiplier, rate, plan.delta)
    )


@lru_cache(maxsize=64)
def _sampled_multiplier(multiplier: float, rate: float, delta: float) -> float:
    """The noise multiplier with which one release over sampled clients costs what it
    would over all with the other.
    """
    epsilon = compose_epsilon(
        [release.GaussianRelease("closing round", multiplier)], delta
    )
    return calibrate_scale(
        lambda scale: [release.GaussianRelease("closing round", scale, SAME, rate)],
        epsilon,
        delta,
        start=multiplier,
    )


@lru_cache(maxsize=64)
def _built(public: PublicFacts) -> Algorithm:
    """Rounds are pure functions of the public values, so equal values share them."""
    task = public.config.task
    algorithm = task.build(public)
    rounds = (
        *algorithm.rounds,
        *([task.profile_round(public)] if public.profile else []),
    )
    rounds = (
        rounds if not public.evaluation else (*rounds, task.evaluation_round(public))
    )
    # Every engine and node takes its rounds from here, so the limit on threads holds
    # for all of them.
    limited = one_thread()
    return Algorithm(
        algorithm.name, tuple(map(_limited, rounds)), limited(algorithm.initial_state)
    )


def _limited(step: PrivateSum) -> PrivateSum:
    limited = one_thread()
    labelled = None if step.labelled is None else limited(step.labelled)
    return replace(
        step,
        statistic=limited(step.statistic),
        advance=limited(step.advance),
        labelled=labelled,
    )


@lru_cache(maxsize=16)
def _started(
    public: PublicFacts, seed: int, public_points: PublicPoints | None
) -> State:
    """A start is made once in a process.

    Its arrays are read-only because they are shared.
    """
    return (
        _built(public)
        .initial_state(seed, None if public_points is None else public_points.table)
        .frozen()
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


def _counted_delta(plan: Plan) -> float:
    """delta once N is counted: the first of the start's delta, a quarter of it, a
    sixteenth, ... that suits the table.

    Suits: at most 1/(n ln n), or below 1/n where delta was given, n being the count and
    six deviations of its noise. The plan before it has the largest of them, so that a
    policy's limit holds for all [C15]. No step would leave the algorithm next to
    nothing of epsilon beside the preliminary rounds, whose noise is that of the first
    delta.
    """
    config, start = plan.config, resolve_delta(plan.config, plan.n_clients)
    counting = plan.count
    if (
        counting is None
        or plan.n_examples is None
        or config.settings.unit is not PrivacyUnit.RECORD
    ):
        return start
    std = max(
        plan.released_std(counting, block)
        for block in counting.blocks
        if block.name == COUNT
    )
    n = plan.n_examples + COUNT_DEVIATIONS * std
    most = (
        1.0 / (n * math.log(n))
        if config.settings.delta is None
        else math.nextafter(1.0 / n, 0.0)
    )
    spendable = (
        _SPENT_BEFORE * (1.0 - config.settings.closing_share) * config.settings.epsilon
    )
    events, delta = plan.events(range(plan.first_round, 1)), start
    while delta > most and price_or_infinity(events, 0.25 * delta) <= spendable:
        delta *= 0.25
    return delta


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


MAX_ROWS_PER_CLIENT = 2**28
"""Rows that one client may hold, for the proof that sums cannot wrap."""
MAX_UNCOUNTED_DELTA = 1e-5
"""Largest delta of a record-level plan that does not know the number of rows."""
MAX_VECTOR_LENGTH = 2**24
_TOLERANCE = 1e-9


def check_plan(plan: Plan) -> None:
    """Refuse a delta that is too large, numbers that sums cannot be recovered with, and
    rounds that cannot be run.
    """
    settings = plan.settings
    plan.model.require_stated(plan.shares)
    if plan.model.alone and settings.masking:
        raise PlanError(
            f"trust is {settings.trust!r}, where one party holds all rows, but the run"
            " masks several parties' sums: use DPKMeans for one table, or choose"
            " trust='central'."
        )
    plan.aggregator.check(plan)
    if plan.seed < 0:
        raise PlanError(
            f"the plan's seed is {plan.seed}, but it must be 0 or more: stop the run"
            " and check the server."
        )
    if settings.unit is PrivacyUnit.CLIENT and plan.delta >= 1.0 / plan.n_clients:
        raise ConfigurationError(
            f"delta is {plan.delta:g}, but at client level it must be below 1/M ="
            f" {1.0 / plan.n_clients:g}: give a smaller delta."
        )
    uncounted = (
        plan.is_final
        and plan.n_examples is None
        and settings.unit is PrivacyUnit.RECORD
    )
    noisy = any(
        block.noise is not NoiseShape.NONE
        for planned in plan.rounds
        for block in planned.blocks
    )
    if uncounted and noisy and plan.delta > MAX_UNCOUNTED_DELTA:
        raise ConfigurationError(
            f"delta is {plan.delta:g}, but without a declared number of rows it may be"
            f" at most {MAX_UNCOUNTED_DELTA:g}, as nobody can say whether it is below"
            " 1/N: declare n_examples or give a smaller delta."
        )
    # What holds for a round's arrays holds for all others that release the same.
    unlike: dict[object, PlannedRound] = {}
    for planned in plan.all_rounds:
        unlike.setdefault((planned.trust, planned.blocks), planned)
    for planned in unlike.values():
        _check_round(plan, planned)


def _check_round(plan: Plan, planned: PlannedRound) -> None:
    """Refuse a round that is too long, cannot be reported, or whose sums could wrap or
    noise cannot be added.
    """
    if planned.length > MAX_VECTOR_LENGTH:
        raise PlanError(
            f"round {planned.name!r} has {planned.length} entries, but at most"
            f" {MAX_VECTOR_LENGTH} can be aggregated: use fewer clusters or features."
        )
    if len({block.name for block in planned.blocks}) < len(planned.blocks):
        raise PlanError(
            f"round {planned.name!r} releases two arrays of one name, but only the last"
            " of them could be read: give them names of their own."
        )
    planned.model.check(planned.blocks)
    share, released = (
        planned.model.drawn_factor(plan.shares),
        planned.model.released_factor(plan.shares),
    )
    for block in planned.blocks:
        # After the run the report must say why each release is private.
        if not block.sensitivity.proof[1].strip():
            raise PlanError(
                f"the sensitivity of {block.name!r} is {block.sensitivity.bound:g}, but"
                " nothing says why it is no larger: give Sensitivity(because=...),"
                " half a sentence for the report."
            )
        own, asked = block.sensitivity.unit.value, plan.settings.unit.value
        if own != asked:
            raise PlanError(
                f"{block.name!r} is bounded for one {own}, but the run protects one"
                f" {asked}: declare that."
            )
        # Modulo 2^64 a sum that wraps would be a wrong answer without a word.
        per_client = (
            MAX_ROWS_PER_CLIENT if block.sensitivity.unit is PrivacyUnit.RECORD else 1
        )
        largest = block.entry_bound * per_client * plan.n_clients
        require_no_wrap(
            largest, block.standard_deviation * released, block.name, plan.fraction_bits
        )
        # Discrete noise of less than a grid step is no longer close to a continuous one
        # [M3].
        if (
            block.noise is not NoiseShape.NONE
            and block.noise_scale * share * 2.0**plan.fraction_bits < 1.0
        ):
            raise PlanError(
                f"the noise on {block.name!r} would be {block.noise_scale * share:.3g},"
                f" but the grid has steps of {2.0**-plan.fraction_bits:.3g}: lower"
                f" epsilon (it is {plan.settings.epsilon:g})."
            )


def check_budget(plan: Plan, charged: float) -> None:
    """Refuse a plan that costs more than was asked for, or whose worst case exceeds
    ``max_epsilon`` or what is charged.

    `charged` is what ledgers were charged before this plan was known; infinite if it is
    the first.
    """
    settings = plan.settings
    is_private = release.ExactRelease not in map(type, plan.events())
    if is_private and plan.epsilon > settings.epsilon * (1.0 + _TOLERANCE):
        cost, budget = told_apart(plan.epsilon, settings.epsilon)
        raise BudgetError(
            f"the plan costs epsilon {cost}, but the budget is {budget}: raise it or"
            " use fewer rounds."
        )
    retries = f"when all {settings.max_retries} retries are used"
    if (
        settings.max_epsilon is not None
        and plan.epsilon_worst_case > settings.max_epsilon * (1.0 + _TOLERANCE)
    ):
        cost, most = told_apart(plan.epsilon_worst_case, settings.max_epsilon)
        raise BudgetError(
            f"the plan can cost epsilon {cost} {retries}, but max_epsilon is {most}:"
            " lower epsilon or max_retries, or raise max_epsilon."
        )
    if (
        charged < math.inf
        and is_private
        and plan.epsilon_worst_case > charged * (1.0 + _TOLERANCE)
    ):
        cost, paid = told_apart(plan.epsilon_worst_case, charged)
        raise BudgetError(
            f"the plan can cost epsilon {cost} {retries}, but {paid} was charged before"
            " the rows were counted: declare n_examples, or lower max_retries."
        )


@lru_cache(maxsize=4)
def verify_plan(plan: Plan) -> None:
    """Rebuild a received plan from its configuration.

    One whose numbers do not follow is a `ProtocolError`.

    Differences in the last digits are accepted; the plan's own numbers are then used by
    everybody. Virtual clients of one process share the answer.
    """
    # It is printed, and compared with own digests: nothing but a digest may come this
    # way.
    for what, digest in (
        ("columns", plan.columns_digest),
        ("its schema", plan.settings.schema_digest),
    ):
        if digest and not re.fullmatch("[0-9a-f]{64}", digest):
            raise ProtocolError(
                f"the plan's digest of {what} is no SHA-256 in hexadecimal: stop the"
                " run."
            )
    if plan.n_clients < 1 or (plan.n_examples is not None and plan.n_examples < 1):
        raise ProtocolError(
            "the plan is for nobody, but it needs at least one client and one row: stop"
            " the run."
        )
    if (
        plan.n_examples is not None
        and plan.settings.n_examples is None
        and plan.count is None
    ):
        # Neither declared nor released, so reports would not say that delta was held
        # against it.
        raise ProtocolError(
            f"the plan has N = {plan.n_examples}, which is neither declared nor"
            " counted: stop the run."
        )
    if plan.server is not None and plan.n_features not in (
        None,
        len(plan.server.centre),
    ):
        raise ProtocolError(
            "the server points' centre has another width than the plan: stop the run."
        )
    # Without the points clients would stand still after a release that the server
    # cannot read.
    if plan.server_advances and not plan.model.server_has_result():
        raise ProtocolError(
            "the plan keeps the server's points back, but under trust"
            f" {plan.settings.trust!r} the clients go on by themselves and need them:"
            " stop the run and check the server."
        )
    # Before anything is computed from the points: a hostile plan must not cost hours of
    # work.
    plan.task.require_bearable(plan)
    if plan.public_points is not None:
        table = plan.public_points.table
        if plan.server is None or table.shape != (
            plan.server.n_points,
            len(plan.server.centre),
        ):
            raise ProtocolError(
                "the plan's server points have another shape than it says: stop the"
                " run."
            )
    own = redraft_plan(
        plan, n_features=plan.n_features, n_examples=plan.n_examples, box=plan.box
    )
    differing = {
        name
        for name in _unlike_fields(own, plan)
        if not _agree(getattr(own, name), getattr(plan, name))
    }
    if not differing:
        return
    lengths = [(len(one.preliminary), len(one.rounds)) for one in (own, plan)]
    if differing - {"preliminary", "rounds"} or lengths[0] != lengths[1]:
        raise ProtocolError(
            "the plan does not follow from its own configuration: stop the run and"
            " check the server."
        )
    # A server that announces less noise, or a smaller sensitivity, than it uses would
    # make reports and ledgers lie.
    pairs = zip(own.all_rounds, plan.all_rounds, strict=True)
    name = next(theirs.name for mine, theirs in pairs if not _agree(mine, theirs))
    raise ProtocolError(
        f"round {name!r} of the plan has other sensitivities or noise than its"
        " configuration implies: stop the run."
    )


def _unlike_fields(plan: Plan, other: Plan) -> set[str]:
    return {
        one.name
        for one in fields(plan)
        if getattr(plan, one.name) != getattr(other, one.name)
    }


def _agree(mine: Any, theirs: Any) -> bool:
    """Whether two values agree up to the last digits of their numbers, in which another
    machine's pow may differ.
    """
    if mine == theirs:
        return True
    if type(mine) is not type(theirs):
        return False
    if isinstance(mine, tuple):
        return len(mine) == len(theirs) and all(map(_agree, mine, theirs))
    if is_dataclass(mine):
        return all(
            _agree(getattr(mine, one.name), getattr(theirs, one.name))
            for one in fields(mine)
        )
    return isinstance(mine, float) and math.isclose(
        mine, theirs, rel_tol=1e-9, abs_tol=0.0
    )


def require_next(
    plan: Plan,
    later: Plan,
    discoveries: Discoveries,
    *,
    begun: bool,
    released: int | None,
) -> None:
    """Accept no later plan but the one that follows from the plan in force and from
    what was `found`.

    Only what plans are drafted from is compared: the rest follows, as `verify_plan`
    sees. `released` is the round that was released with it; a run has `begun` once a
    vector was asked for.
    """
    counted = released == 0
    if counted and discoveries.n_examples not in (None, later.n_examples):
        raise ProtocolError(
            f"the final plan has N = {later.n_examples}, but the private count released"
            f" {discoveries.n_examples}: end it."
        )
    if counted and later.box != discoveries.box:
        raise ProtocolError(
            "the final plan has another box than the private histograms released: stop"
            " the run."
        )
    # The tables' width, and what all columns' digests have in common, are known after
    # the key phase.
    news = (
        {"n_features"}
        if plan.n_features is None and (counted or not begun)
        else set[str]()
    )
    news |= {"columns_digest"} if not (begun or plan.columns_digest) else set()
    changed = _unlike_fields(plan, later) - {"preliminary", "rounds", "delta"}
    fixed = changed - news - ({"n_examples", "box"} if counted else set())
    if fixed:
        raise ProtocolError(
            f"the plan that came has another {', '.join(sorted(fixed))} than the one in"
            " force, which had fixed it or is still to find it: stop the run."
        )
    if not changed:
        raise ProtocolError(
            "another plan came although the one in force says the same: stop the run."
        )


@lru_cache(maxsize=4)
def require_server_state(plan: Plan, index: int, state: State) -> None:
    """Check a state that the server sent for one round; index T + 1 is the result.

    The task knows what its states are, and each round checks what its statistic reads
    (`PrivateSum.admits`); nothing else is taken, so that a server cannot tell clients
    more than the round needs.
    """
    step = build_algorithm(plan).rounds[index - 1] if index <= plan.last_round else None
    if not plan.task.admits(plan, step, state):
        raise ProtocolError(
            f"the server's state for round {index} does not fit the plan: stop the run."
        )


_GAUSSIAN_ROOM = 12.0
_LAPLACE_ROOM = 40.0
"""Noise of more scales than these has a probability below 1e-17 in one entry."""
DECLARED_ROOM = 2.0
"""A declared number of rows may be rounded or old, but not by more than this factor."""


def require_plausible(
    plan: Plan,
    index: int,
    found: ReleasedSum,
    n_clients: int,
    n_sharers: int | None = None,
) -> None:
    """Refuse, by a `ProtocolError`, a released sum with an entry that rows within the
    plan's bounds cannot add up to.

    A client can add anything modulo 2^64 to a masked sum. Where the server reads it, it
    is held against public bounds with room for its noise: post-processing that stops no
    honest run, so that stopping tells nothing besides. The sentence names array and
    bound, not the entry. Where only clients read the sum nobody may do this: a server
    that shifts a sum it cannot read would learn from a refusal whether the sum passes a
    bound.

    Of the clients `n_clients` are in the sum, and `n_sharers` shared keys before (None:
    all of the plan).
    """
    planned = plan.round_at(index)
    rows = _most_rows(plan, index, n_clients)
    for block in planned.blocks:
        units = (
            rows if block.sensitivity.unit is PrivacyUnit.RECORD else float(n_clients)
        )
        room = _room(plan, planned, block, n_clients, n_sharers)
        most = block.entry_bound * units + room
        least = 0.0 - room if block.sensitivity.nonnegative else -most
        values = found[block.name]
        outside = int(np.count_nonzero(~((values >= least) & (values <= most))))
        if outside:
            raise ProtocolError(
                f"{outside} of {values.size} entries of {block.name!r} in round {index}"
                f" lie outside {least:.6g} to {most:.6g}, which no data within the"
                " plan's bounds add up to: a client sent a wrong vector, or n_examples"
                " is declared too small; nothing was sent on."
            )


def _most_rows(plan: Plan, index: int, n_clients: int) -> float:
    """Rows that this many clients can have.

    By declaration or count if there is one, and in any case by their limit.
    """
    limit = float(MAX_ROWS_PER_CLIENT * n_clients)
    if plan.settings.n_examples is not None:
        return min(limit, DECLARED_ROOM * plan.settings.n_examples)
    counting = plan.count
    if plan.n_examples is None or counting is None or plan.discovers(index):
        return limit
    # The count itself was noisy.
    block = next(block for block in counting.blocks if block.name == COUNT)
    return min(
        limit,
        DECLARED_ROOM * (plan.n_examples + _room(plan, counting, block, n_clients)),
    )


def _room(
    plan: Plan,
    planned: PlannedRound,
    block: Block,
    n_clients: int,
    n_sharers: int | None = None,
) -> float:
    """How far noise can move an entry."""
    if block.noise is NoiseShape.NONE:
        return 0.0
    scales = _LAPLACE_ROOM if block.noise is NoiseShape.LAPLACE else _GAUSSIAN_ROOM
    # A cohort of more clients than those whose shares arrived made the shares smaller,
    # not larger.
    return (
        scales
        * block.noise_scale
        * planned.model.released_factor(plan.shares_of(n_clients, n_sharers))
    )
