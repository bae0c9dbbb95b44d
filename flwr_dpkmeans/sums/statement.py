"""From a plan and what happened to a privacy report.

Clients and server use the same words: those of ``report.toml``.

Cautions of the public plan may be told to all, those of released sums where these may
be seen (under ``oblivious`` on clients only), and those of exact rows stay with whoever
holds these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from flwr_dpkmeans.errors import column_names, listed
from flwr_dpkmeans.privacy.noise import NoiseKind, joint_closeness
from flwr_dpkmeans.privacy.release import Event, NoiseShape, PrivacyUnit, PureRelease
from flwr_dpkmeans.privacy.report import (
    CLOSING_ROUNDS,
    PrivacyReport,
    ReleaseLine,
    faint_clusters,
    told,
)
from flwr_dpkmeans.sums.checks.declared import declared_cautions
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.draft import worst_case
from flwr_dpkmeans.sums.plan import FIRST_TASK_ROUND, Plan
from flwr_dpkmeans.sums.price import price, resolve_delta
from flwr_dpkmeans.sums.round import Array, State
from flwr_dpkmeans.sums.settings import Box, EvaluationKind, Settings

LOCAL = "Known here only and not private, so not to be published: "
"""How a sentence begins that follows from exact rows."""
_WEAK_EPSILON = 10.0
_FEW_CLIENTS = 10
_SPENT = 0.985
"""Part of the budget below which a run is said to leave some of it."""
_CLIPPED = 0.05
"""Part of the rows of a column above which more than a little is clipped."""


def _told_if(holds: Mapping[str, bool], **values: object) -> tuple[str, ...]:
    """Those of some sentences that hold."""
    return tuple(
        [told(sentence, **values) for sentence, is_so in holds.items() if is_so]
    )


def spending_cautions(asked: float, spent: float) -> tuple[str, ...]:
    """What is to be said of a private run's budget.

    Epsilon as it was asked for, and as the plan comes to.

    Examples
    --------
    >>> spending_cautions(1.0, 0.999), [sentence[:31] for sentence in spending_cautions(100.0, 87.0)]
    ((), ['epsilon is 87, a weak guarantee', 'The plan spends epsilon 87 of t'])
    """
    holds = {"weak": spent > _WEAK_EPSILON, "unspent": spent < _SPENT * asked}
    return _told_if(holds, spent=spent, asked=asked, usual=_WEAK_EPSILON)


@lru_cache(maxsize=16)
def plan_cautions(plan: Plan) -> tuple[str, ...]:
    """What a final plan with noise in its releases says against the result.

    Of a preliminary one only its size.
    """
    settings, by_client = plan.settings, plan.settings.unit is PrivacyUnit.CLIENT
    n_clients, n_rows, delta = plan.n_clients, plan.n_examples, plan.delta
    holds = {
        "few_clients": by_client and n_clients < _FEW_CLIENTS,
        "delta_of_count": (
            not by_client and n_rows is not None and delta >= 1.0 / n_rows
        ),
    }
    return (
        *spending_cautions(
            settings.epsilon, plan.epsilon if plan.is_final else settings.epsilon
        ),
        *_told_if(
            holds, n_clients=n_clients, least=_FEW_CLIENTS, delta=delta, n_rows=n_rows
        ),
        *plan.task.cautions(plan),
    )


def released_cautions(
    report: PrivacyReport, counts: Array, groups: str = "clusters"
) -> tuple[str, ...]:
    """What the last release's noisy counts, (n_groups,), say against the result.

    Post-processing of it.
    """
    faint = faint_clusters(counts, report)
    if not faint:
        return ()
    return (
        told(
            "faint",
            n=len(faint),
            n_clusters=len(counts),
            groups=groups,
            listed=listed(map(str, faint)),
        ),
    )


def unclear_cautions(
    columns: Sequence[int], names: Sequence[str], *, standard: bool
) -> tuple[str, ...]:
    """What private histograms did not find.

    The columns in which nothing, or zeros alone, stood out of the noise.
    """
    sentence = "no_spread" if standard else "no_range"
    return (told(sentence, columns=column_names(columns, names)),) if columns else ()


def count_outside(box: Box, parts: Iterable[Array]) -> Array:
    """How many rows there are, and in each column how many lie outside the `box`.

    (1 + n_features,), exact.
    """
    counts, (lower, upper) = np.zeros(1), map(np.array, box)
    for part in parts:
        counts = counts + np.concatenate(
            [[len(part)], ((part < lower) | (part > upper)).sum(axis=0)]
        )
    return counts


def local_cautions(
    config: RunConfig, delta: float, counts: Array, names: Sequence[str] = ()
) -> tuple[str, ...]:
    """What exact rows say against a result, without a number that was taken from them.

    For those who hold them.

    `counts` are those of `count_outside` the box that rows were clipped to, both in the
    units of the data; `names` those of the columns where they are known, else the
    configuration's.
    """
    declared, by_record = (
        config.settings.n_examples,
        config.settings.unit is PrivacyUnit.RECORD,
    )
    n_rows, outside = counts[0], counts[1:]
    clipped = np.flatnonzero(outside > _CLIPPED * n_rows).tolist()
    holds = {
        "more_rows": by_record and declared is not None and n_rows > declared,
        "delta_of_rows": by_record and delta * n_rows >= 1.0,
        "clipped": bool(clipped),
    }
    columns = (
        column_names(clipped, names or config.settings.feature_names) if clipped else ""
    )
    found = _told_if(
        holds, declared=declared, delta=delta, part=_CLIPPED, columns=columns
    )
    return tuple(LOCAL + sentence for sentence in found)


def fewer_rows_cautions(config: RunConfig, n_rows: int) -> tuple[str, ...]:
    """What all parties' rows say against a larger declared number.

    For whoever holds all of them.
    """
    settings = config.settings
    declared = settings.n_examples
    by_record = settings.unit is PrivacyUnit.RECORD
    if declared is None or not by_record or n_rows >= declared:
        return ()
    return (LOCAL + told("fewer_rows", declared=declared),)


def party_cautions(
    counts: Array, parties: Sequence[str], names: Sequence[str]
) -> tuple[str, ...]:
    """Which parties have most rows outside of the box in a column where others have
    few: for who holds all rows.

    `counts` are those of `count_outside`, one row for each party, which are called by
    their places without `parties`.
    """
    n_rows, outside = counts[:, :1], counts[:, 1:]
    # A column that all parties have outside has bounds that are wrong, which is another
    # sentence.
    most = (outside > n_rows / 2.0) & (
        (n_rows > 0) & (outside <= _CLIPPED * n_rows)
    ).any(axis=0)
    found = np.flatnonzero(most.any(axis=1)).tolist()
    if not found:
        return ()
    called = listed(parties[place] if parties else str(place) for place in found)
    columns = column_names(np.flatnonzero(most.any(axis=0)).tolist(), names)
    return (LOCAL + told("other_units", parties=called, columns=columns),)


def column_cautions(ids: Sequence[str], constants: Sequence[str]) -> tuple[str, ...]:
    """Which columns, by name, look like no measures: for who holds the rows."""
    sentences = {"ids": ids, "constants": constants}
    return tuple(
        LOCAL + told(sentence, columns=column_names(range(len(names)), names))
        for sentence, names in sentences.items()
        if names
    )


@dataclass(frozen=True)
class Step:
    """What the server may say of one aggregation.

    Scales of all noise by array, and the radius, are in scaled units.
    """

    round_index: int
    n_rounds: int
    attempt: int
    name: str
    n_clients: int
    epsilon: float
    noise_scales: tuple[tuple[str, float], ...]
    radius: float | None
    movement: float | None
    """Largest step of a centroid, where the server may know it."""


def epsilon_after(plan: Plan, attempts: Sequence[tuple[int, int]]) -> float:
    """Cost of the given (round, attempt) pairs together, at the plan's delta.

    Infinite if one released an exact sum.
    """
    events = plan.events([index for index, _ in attempts])
    cost = price(events, plan.delta)
    if all(isinstance(event, PureRelease) for event in events):
        # Laplace noise alone is priced by addition, which the mixture with what is
        # still to come may undercut; without this the cost would fall in the last
        # rounds.
        closing = plan.events(range(plan.closing_round, plan.last_round + 1))
        cost = min(cost, price((*events, *closing), plan.delta))
    return cost


def run_epsilon(plan: Plan, attempts: Sequence[tuple[int, int]]) -> float:
    """What a run with these (round, attempt) pairs is said to cost.

    The price of the whole plan, also where the run ended early: who sees releases may
    have ended it for what they told. The worst case as soon as an aggregation was
    repeated: who sees releases may have silenced a client.
    """
    repeated = len({index for index, _ in attempts}) < len(attempts)
    if attempts and (repeated or not plan.is_final):
        return worst_case(plan)
    return plan.epsilon if attempts else epsilon_after(plan, ())


def describe_step(
    plan: Plan,
    attempts: Sequence[tuple[int, int]],
    n_clients: int,
    movement: float | None,
) -> Step:
    """Describe the last of some aggregations.

    `movement` is the largest step of a centroid, where it may be known.
    """
    index, attempt = attempts[-1]
    planned = plan.round_at(index)
    surplus = planned.model.released_factor(plan.shares)
    return Step(
        round_index=index,
        n_rounds=plan.last_round,
        attempt=attempt,
        name=planned.name,
        n_clients=n_clients,
        epsilon=epsilon_after(plan, attempts),
        noise_scales=tuple(
            [(block.name, block.noise_scale * surplus) for block in planned.blocks]
        ),
        radius=planned.radius,
        # What closes a run moves nothing.
        movement=None if planned.name in CLOSING_ROUNDS else movement,
    )


def build_report(
    plan: Plan,
    attempts: Sequence[tuple[int, int]],
    identities: str = "",
    *,
    state: State | None = None,
    unclear: Sequence[int] = (),
    names: Sequence[str] = (),
) -> PrivacyReport:
    """Write the report of a run with these (round, attempt) pairs, in order.

    Warnings speak of the noisy counts in the last `state`, where it may be known, and
    of columns that private bounds did not find (`unclear`, by their `names`).
    `identities` says who the clients are, by default that nobody knows.
    """
    settings = plan.settings
    events = plan.events([index for index, _ in attempts])
    # An experiment that protects nobody has the same noise: only what is said of the
    # guarantee does not hold for it.
    reasons = why_not_private(plan)
    warnings = (*reasons, *plan.task.cautions(plan)) if reasons else plan_cautions(plan)
    report = PrivacyReport(
        is_private=plan.is_private,
        epsilon=run_epsilon(plan, attempts),
        delta=plan.delta,
        epsilon_requested=settings.epsilon,
        epsilon_worst_case=worst_case(plan),
        unit=settings.unit.value,
        neighbours=told(settings.unit.value),
        trust=settings.trust,
        guarantee=_guarantee(plan),
        algorithm=plan.task.name,
        noise=settings.noise.value,
        n_clients=plan.n_clients,
        n_attempts=len(attempts),
        n_examples=plan.n_examples,
        n_examples_source=(
            "declared public"
            if settings.n_examples
            else "private count"
            if plan.count
            else "not needed"
        ),
        slack=discreteness_cost(events),
        assumptions=_assumptions(plan, identities or told("not_pinned"))
        + _ending(plan, attempts),
        warnings=warnings
        + unclear_cautions(
            unclear,
            names or settings.feature_names,
            standard=bool(settings.standard_columns),
        ),
        releases=_lines(plan, tuple(attempts)),
    )
    known = {} if state is None else state.arrays
    doubts = (
        ()
        if state is None
        else plan.task.doubts(plan, state, names or settings.feature_names)
    )
    if state is not None:
        doubts = declared_cautions(plan, report, state) + doubts
    counts = known.get("counts", known.get("rows", np.zeros(0)))
    # Another task's arrays of these names may be of another shape.
    counts = counts if counts.ndim == 1 else np.zeros(0)
    sizes = released_cautions(
        report, counts, "clusters" if "counts" in known else "groups"
    )
    return replace(report, warnings=report.warnings + sizes + doubts)


def discreteness_cost(events: Sequence[Event]) -> float:
    """Part of epsilon that pays for discrete instead of continuous noise."""
    return joint_closeness([event.closeness for event in events]).log_ratio


@lru_cache(maxsize=16)
def _guarantee(plan: Plan) -> str:
    """Who is held off: the trust model's sentence, the private count's own, or that
    nobody is.
    """
    if not plan.is_private:
        return told("nobody")
    sentence = plan.model.guarantee(plan.shares)
    if plan.preliminary and plan.preliminary[0].trust != plan.settings.trust:
        bounds = plan.settings.private_bounds
        private = (
            "spreads of the columns"
            if plan.settings.standard_columns
            else "histograms of each column's range"
        )
        shown = [
            *([] if plan.count is None else ["number of rows"]),
            *([private] if bounds else []),
        ]
        sentence = told(
            "found",
            sentence=sentence,
            what=f"{' and '.join(shown)} {'are' if bounds else 'is'}",
            hold="these releases hold" if len(shown) > 1 else "that release holds",
            colluding=max(1, plan.max_silent),
            n_clients=plan.n_clients,
        )
    return told("proofs", sentence=sentence, proofs=plan.model.proofs)


@lru_cache(maxsize=16)
def _lines(
    plan: Plan, attempts: tuple[tuple[int, int], ...]
) -> tuple[ReleaseLine, ...]:
    """One line per released array; the clients of one process report the same ones."""
    lines = []
    for position, (index, attempt) in enumerate(attempts, start=1):
        planned, rate = plan.round_at(index), plan.rates[index]
        so_far = epsilon_after(plan, attempts[:position])
        lines += [
            ReleaseLine(
                round_index=index,
                attempt=attempt,
                round_name=planned.name,
                array=block.name,
                norm=block.sensitivity.norm.value,
                sensitivity=block.sensitivity.bound,
                trust=planned.trust,
                noise=block.noise.value,
                noise_scale=block.noise_scale,
                noise_multiplier=block.noise_multiplier,
                theorem=planned.model.theorem(block, rate),
                epsilon_so_far=so_far,
                radius=planned.radius,
                surplus=planned.model.released_factor(plan.shares),
            )
            for block in planned.blocks
        ]
    return tuple(lines)


def _ending(plan: Plan, attempts: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    """Where rounds may end early: how many of those that are paid for were released."""
    own = range(FIRST_TASK_ROUND, plan.closing_round)
    n_released = len({index for index, _ in attempts if index in own})
    so = {"may_end": plan.task.tolerance is not None}
    return _told_if(so, tolerance=plan.task.tolerance, n=n_released, n_rounds=len(own))


@lru_cache(maxsize=16)
def _assumptions(plan: Plan, identities: str) -> tuple[str, ...]:
    settings, counted, by_client = (
        plan.settings,
        plan.count is not None,
        plan.settings.unit is PrivacyUnit.CLIENT,
    )
    sentences = [_bounds_sentence(settings), told("as_they_are")]
    if not plan.model.alone:
        matched = (
            "unnamed"
            if not plan.columns_digest
            else "by_position"
            if plan.by_position
            else "by_name"
        )
        sentences.append(
            told(matched, unnamed=told("and_unnamed") if settings.allow_unnamed else "")
        )
        sentences += [*map(told, ("computational", "links", "silencing")), identities]
    if plan.server is not None:
        sentences += _server_sentences(plan, plan.server.n_points)
    if settings.client_sampling_rate < 1.0:
        coin = told(
            "seeded_coin" if settings.noise is NoiseKind.SEEDED else "secure_coin"
        )
        sentences.append(told("sampled", rate=settings.client_sampling_rate, coin=coin))
    if by_client:
        sentences.append(told("rows_of_clients", n=settings.examples_per_client))
    if settings.n_examples is not None:
        sentences.append(told("public_rows", n=settings.n_examples))
    elif counted and by_client:
        sentences.append(told("capped_count", n=settings.examples_per_client))
    elif counted and plan.delta < (start := resolve_delta(plan.config, plan.n_clients)):
        sentences.append(
            told("lowered_delta", start=start, delta=plan.delta, n=plan.n_examples)
        )
    elif not by_client and plan.n_examples is None and plan.is_private:
        sentences.append(told("unknown_rows", most=1.0 / plan.delta))
    if plan.delta == 0.0:
        sentences.append(told("pure"))
    if n_classes := plan.task.n_classes(settings):
        sentences.append(told("classes", n=n_classes))
    sentences += plan.aggregator.assumptions(plan)
    may_retry = settings.max_retries > 0 and not plan.model.alone
    sentences += _told_if({"retries": may_retry}, n=settings.max_retries)
    return tuple(sentences)


def _bounds_sentence(settings: Settings) -> str:
    """Where the box comes from that data are scaled by."""
    lower, upper = settings.bounds
    box = (
        f"{lower[0]:g} to {upper[0]:g}"
        if len(lower) == 1
        else f"given for each of {len(lower)} features"
    )
    if settings.standard_columns:
        return told("standard_bounds", box=box)
    return told(
        "private_bounds" if settings.private_bounds else "public_bounds", box=box
    )


def _server_sentences(plan: Plan, n_points: int) -> tuple[str, ...]:
    """What the run assumes of the server's own points, and who sees them."""
    seen = (
        plan.task.server_points_words(plan)
        if plan.public_points is None
        else told("seen_by_all")
    )
    return _told_if(
        {"server_points": n_points > 0, "server_bounds": True}, n=n_points, seen=seen
    )


@lru_cache(maxsize=16)
def why_not_private(plan: Plan) -> tuple[str, ...]:
    """Why a run protects nobody, if it does not."""
    own = [
        block.noise
        for planned in plan.rounds
        if planned.name not in CLOSING_ROUNDS
        for block in planned.blocks
    ]
    seeded = plan.settings.noise is NoiseKind.SEEDED
    reasons = {
        "seeded_noise": seeded,
        "seeded_coins": seeded and plan.settings.client_sampling_rate < 1.0,
        "bare": plan.is_bare,
        "exact_evaluation": plan.settings.evaluation is EvaluationKind.EXACT,
        "no_noise": NoiseShape.NONE in own,
    }
    return _told_if(reasons, algorithm=plan.task.label)
