"""From a plan and what happened to a privacy report; clients and server use the same words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from flwr_dpkmeans.errors import column_names, listed
from flwr_dpkmeans.privacy.noise import NoiseKind, joint_closeness
from flwr_dpkmeans.privacy.release import Event, NoiseShape, PrivacyUnit, PureRelease
from flwr_dpkmeans.privacy.report import CLOSING_ROUNDS, NOT_PINNED, PrivacyReport, ReleaseLine, faint_clusters
from flwr_dpkmeans.sums.draft import resolve_delta, worst_case
from flwr_dpkmeans.sums.plan import Plan, price
from flwr_dpkmeans.sums.round import Array
from flwr_dpkmeans.sums.settings import Box, Evaluation, Settings
from flwr_dpkmeans.sums.task import Run

NEIGHBOURS = {
    "record": "two data sets are neighbours if one row appears or disappears",
    "client": "two data sets are neighbours if one client's rows are replaced by none",
}
UNNAMED_COLUMNS = "The tables' columns have no names and were matched by position."
LOCAL = "Known here only and not private, so not to be published: "
"""How a sentence begins that follows from exact rows."""
_OF_MESSAGES = (
    "X25519, HKDF-SHA256, AES-256 and HMAC-SHA256 are secure: the guarantee under masks is computational.",
    "Links between server and clients are encrypted (Flower with TLS, not --insecure): whoever reads all of them can "
    "add the masked vectors up as the server does.",
    "Nobody who sees releases can silence a client; against whoever can, the worst case with all retries holds, which "
    "each client's ledger is charged and a run with a repeated aggregation reports [C5].",
)
_WEAK_EPSILON = 10.0
_FEW_CLIENTS = 10
_SPENT = 0.985
"""Part of the budget below which a run is said to leave some of it."""
_CLIPPED = 0.05
"""Part of the rows of a column above which more than a little is clipped."""


# Cautions of the public plan may be told to all, those of released sums where these may be seen (under ``oblivious`` on
# clients only), and those of exact rows stay with whoever holds these.


def spending_cautions(asked: float, spent: float) -> tuple[str, ...]:
    """What is to be said of a private run's budget: epsilon as it was asked for, and as the plan comes to.

    Examples
    --------
    >>> spending_cautions(1.0, 0.999), [sentence[:31] for sentence in spending_cautions(100.0, 87.0)]
    ((), ['epsilon is 87, a weak guarantee', 'The plan spends epsilon 87 of t'])
    """
    sentences = []
    if spent > _WEAK_EPSILON:
        sentences.append(
            f"epsilon is {spent:.4g}, a weak guarantee: one unit may change the odds of a result by a factor of up to "
            f"exp({spent:.4g}); {_WEAK_EPSILON:g} and less is usual."
        )
    if spent < _SPENT * asked:
        sentences.append(
            f"The plan spends epsilon {spent:.4g} of the {asked:.4g} that was asked for: the rest buys no accuracy."
        )
    return tuple(sentences)


def plan_cautions(plan: Plan) -> tuple[str, ...]:
    """What a final plan with noise in its releases says against the result; of a preliminary one only its size."""
    settings, by_client = plan.settings, plan.settings.unit is PrivacyUnit.CLIENT
    sentences = [*spending_cautions(settings.epsilon, plan.epsilon if plan.is_final else settings.epsilon)]
    if by_client and plan.n_clients < _FEW_CLIENTS:
        sentences.append(
            f"The unit is the client, and there are {plan.n_clients}: noise that hides one of so few hides what they "
            f"have in common too; have at least {_FEW_CLIENTS} clients, or choose unit='record'."
        )
    n = None if by_client else plan.n_examples
    if n is not None and plan.delta >= 1.0 / n:
        sentences.append(
            f"delta is {plan.delta:.3g}, which is not below 1/N for the {n} rows that were counted: declare "
            "n_examples, give a smaller delta, or lower count_share and bounds_share."
        )
    return (*sentences, *plan.task.cautions(plan))


def released_cautions(report: PrivacyReport, counts: Array) -> tuple[str, ...]:
    """What the last release's noisy counts, (n_clusters,), say against the result: post-processing of it."""
    faint = faint_clusters(counts, report)
    if not faint:
        return ()
    return (
        f"{len(faint)} of {len(counts)} clusters are mostly noise (number {listed(map(str, faint))}): their noisy "
        "counts are less than three noise scales above zero; choose fewer clusters, raise epsilon or add data.",
    )


def unclear_cautions(columns: Sequence[int], names: Sequence[str], *, standard: bool) -> tuple[str, ...]:
    """What private histograms did not find: the columns in which nothing, or zeros alone, stood out of the noise."""
    if not columns:
        return ()
    if standard:
        return (
            f"The spread of {column_names(columns, names)} is not told from noise in so wide bounds, which leaves it "
            "less weight than the others: give narrower bounds, raise epsilon, or have more rows.",
        )
    return (
        f"Private bounds found no values of {column_names(columns, names)} beyond the noise, or zeros alone, so their "
        "bounds are the whole domain or next to zero: give bounds or a narrower bounds_domain, or raise epsilon or "
        "bounds_share.",
    )


def local_cautions(
    config: Run, delta: float, box: Box, parts: Sequence[Array], names: Sequence[str] = ()
) -> tuple[str, ...]:
    """What exact rows say against a result, without a number that was taken from them: for those who hold them.

    `box` is what `parts`, (n_i, n_features), were clipped to, both in the units of the data; `names` those of the
    columns where they are known, else the configuration's.
    """
    sentences, n_rows = [], sum(len(part) for part in parts)
    by_record, declared = config.settings.unit is PrivacyUnit.RECORD, config.settings.n_examples
    if by_record and declared is not None and n_rows > declared:
        sentences.append(
            f"n_examples is declared as {declared}, but there are more rows: declare their number, from which delta "
            "and noise follow."
        )
    if by_record and delta * n_rows >= 1.0:
        sentences.append(
            f"delta is {delta:.3g}, which is not below 1/N for the rows that are here, so a run may publish whole "
            "rows: give a smaller delta, or declare n_examples."
        )
    lower, upper = np.array(box[0]), np.array(box[1])
    outside = sum(((part < lower) | (part > upper)).sum(axis=0) for part in parts)
    clipped = np.flatnonzero(outside > _CLIPPED * n_rows).tolist()
    if clipped:
        where = column_names(clipped, names or config.settings.feature_names)
        sentences.append(
            f"More than {_CLIPPED:.0%} of the rows lie outside the bounds of {where} and were clipped, so that "
            "clusters may be missed: give wider bounds."
        )
    return tuple(LOCAL + sentence for sentence in sentences)


@dataclass(frozen=True)
class Step:
    """What the server may say of one aggregation; noise scales by array, and the radius, are in scaled units."""

    round_index: int
    n_rounds: int
    attempt: int
    name: str
    n_clients: int
    """In the sum."""
    epsilon: float
    """Cost so far."""
    noise_scales: tuple[tuple[str, float], ...]
    radius: float | None
    movement: float | None
    """Largest step of a centroid, where the server may know it."""


def epsilon_after(plan: Plan, attempts: Sequence[tuple[int, int]]) -> float:
    """Cost of the given (round, attempt) pairs together, at the plan's delta; infinite if one released an exact sum."""
    events = plan.events([index for index, _ in attempts])
    cost = price(events, plan.delta)
    closes = plan.is_final and plan.settings.closing_share > 0.0
    if closes and events and all(isinstance(event, PureRelease) for event in events):
        # Laplace noise alone is priced by addition, which the mixture with what is still to come may undercut; without
        # this the cost would fall in the last rounds.
        closing = [one for one in range(1, plan.last_round + 1) if plan.round_at(one).name in CLOSING_ROUNDS]
        cost = min(cost, price((*events, *plan.events(closing)), plan.delta))
    return cost


def run_epsilon(plan: Plan, attempts: Sequence[tuple[int, int]]) -> float:
    """What a run with these (round, attempt) pairs is said to cost.

    The price of the whole plan, also where the run ended early: who sees releases may have ended it for what they told.
    The worst case as soon as an aggregation was repeated: who sees releases may have silenced a client.
    """
    repeated = len({index for index, _ in attempts}) < len(attempts)
    if attempts and (repeated or not plan.is_final):
        return worst_case(plan)
    return plan.epsilon if attempts else epsilon_after(plan, ())


def describe_step(plan: Plan, attempts: Sequence[tuple[int, int]], n_clients: int, movement: float | None) -> Step:
    """Describe the last of some aggregations; `movement` is the largest step of a centroid, where it may be known."""
    index, attempt = attempts[-1]
    planned = plan.round_at(index)
    return Step(
        round_index=index,
        n_rounds=plan.last_round,
        attempt=attempt,
        name=planned.name,
        n_clients=n_clients,
        epsilon=epsilon_after(plan, attempts),
        noise_scales=tuple([(block.name, block.noise_scale) for block in planned.blocks]),
        radius=planned.radius,
        # What closes a run moves nothing.
        movement=None if planned.name in CLOSING_ROUNDS else movement,
    )


def build_report(
    plan: Plan,
    attempts: Sequence[tuple[int, int]],
    identities: str = NOT_PINNED,
    *,
    counts: Array | None = None,
    unclear: Sequence[int] = (),
    names: Sequence[str] = (),
) -> PrivacyReport:
    """Write the report of a run with these (round, attempt) pairs, in order.

    Warnings speak of `counts`, the last release's noisy ones, (n_clusters,), where they may be known, and of columns
    that private bounds did not find (`unclear`, by their `names`). `identities` is a sentence on who the clients are.
    """
    settings = plan.settings
    events = plan.events([index for index, _ in attempts])
    warnings = why_not_private(plan) or plan_cautions(plan)
    report = PrivacyReport(
        is_private=plan.is_private,
        epsilon=run_epsilon(plan, attempts),
        delta=plan.delta,
        epsilon_requested=settings.epsilon,
        epsilon_worst_case=worst_case(plan),
        unit=settings.unit.value,
        neighbours=NEIGHBOURS[settings.unit.value],
        trust=settings.trust,
        guarantee=_guarantee(plan),
        algorithm=plan.task.name,
        noise=settings.noise.value,
        n_clients=plan.n_clients,
        n_attempts=len(attempts),
        n_examples=plan.n_examples,
        n_examples_source=_n_source(plan),
        slack=discreteness_cost(events),
        assumptions=_assumptions(plan, identities),
        warnings=warnings
        + unclear_cautions(unclear, names or settings.feature_names, standard=bool(settings.standard_columns)),
        releases=_lines(plan, tuple(attempts)),
    )
    return report if counts is None else replace(report, warnings=report.warnings + released_cautions(report, counts))


def discreteness_cost(events: Sequence[Event]) -> float:
    """Part of epsilon that pays for discrete instead of continuous noise."""
    return joint_closeness([event.closeness for event in events]).log_ratio


def _guarantee(plan: Plan) -> str:
    """Who is held off: the trust model's sentence, the private count's own, or that nobody is."""
    if not plan.is_private:
        return "None: this run is not private, see the warnings."
    sentence = plan.model.guarantee(plan.shares)
    if plan.preliminary and plan.preliminary[0].trust != plan.settings.trust:
        shown = [] if plan.count is None else ["number of rows"]
        private = "spreads of the columns" if plan.settings.standard_columns else "histograms of each column's range"
        shown += [private] if plan.settings.private_bounds else []
        sentence += (
            f" The noisy {' and '.join(shown)} {'are' if plan.settings.private_bounds else 'is'} released to "
            "everybody, with noise from the clients: "
            f"{'these releases hold' if len(shown) > 1 else 'that release holds'} "
            f"against a server, or against up to {max(1, plan.max_silent)} of {plan.n_clients} clients."
        )
    return f"{sentence} Proofs: {plan.model.proofs} and those that each line names."


@lru_cache(maxsize=16)
def _lines(plan: Plan, attempts: tuple[tuple[int, int], ...]) -> tuple[ReleaseLine, ...]:
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
            )
            for block in planned.blocks
        ]
    return tuple(lines)


def _n_source(plan: Plan) -> str:
    """Where N comes from."""
    if plan.settings.n_examples is not None:
        return "declared public"
    return "private count" if plan.count is not None else "not needed"


def _assumptions(plan: Plan, identities: str) -> tuple[str, ...]:
    """What the guarantee rests on."""
    settings = plan.settings
    sentences = [_bounds_sentence(plan.settings)]
    if not plan.model.alone:
        sentences += [_columns_sentence(plan), *_OF_MESSAGES, identities]
    if plan.server is not None:
        sentences += _server_sentences(plan, plan.server.n_points)
    if (rate := settings.client_sampling_rate) < 1.0:
        coin = "a coin that nobody else sees; the amplification does not hold against whoever learns the coins [M5]"
        coin = coin if settings.noise is NoiseKind.SECURE else "a seeded coin"
        sentences.append(f"Each client takes part in a round with probability {rate:g}, by {coin}.")
    if settings.unit is PrivacyUnit.CLIENT:
        sentences.append(
            f"The declared number of rows of a client, {settings.examples_per_client}, was not taken from the data: "
            "clip bounds may follow from it."
        )
    if settings.n_examples is not None:
        sentences.append(f"The number of rows, {settings.n_examples}, is public knowledge.")
    elif plan.count is not None and settings.unit is PrivacyUnit.CLIENT:
        sentences.append(f"Of each client, at most {settings.examples_per_client} rows are counted.")
    elif plan.count is not None and plan.delta < (start := resolve_delta(plan.config, plan.n_clients)):
        sentences.append(
            f"delta was lowered from {start:.3g} to {plan.delta:.3g}, as the private count found about "
            f"{plan.n_examples} rows [C15]."
        )
    elif settings.unit is PrivacyUnit.RECORD and plan.n_examples is None and plan.is_private:
        sentences.append(
            f"The number of rows is not known: delta is below 1/N for fewer than {1.0 / plan.delta:,.0f} rows."
        )
    if n_classes := plan.task.n_classes(settings):
        sentences.append(
            f"The number of label classes, {n_classes}, is public knowledge; a row's label is protected as the row is."
        )
    sentences += plan.aggregator.assumptions(plan)
    if settings.max_retries:
        sentences.append(
            f"Up to {settings.max_retries} aggregation(s) may be repeated after a dropout; ledgers are charged for all "
            "of them at the first release [C5, C14]."
        )
    return tuple(sentences)


def _bounds_sentence(settings: Settings) -> str:
    """Where the box comes from that data are scaled by."""
    lower, upper = settings.bounds
    box = f"{lower[0]:g} to {upper[0]:g}" if len(lower) == 1 else f"given for each of {len(lower)} features"
    if settings.standard_columns:
        return (
            f"The bounds ({box}) are public knowledge; values outside are clipped. The box around them that columns "
            "are scaled by follows from the private spreads that are listed below."
        )
    if settings.private_bounds:
        return (
            f"The bounds were found by the private histograms that are listed below, inside a domain ({box}) that is "
            "public knowledge; values outside the bounds are clipped."
        )
    return f"The bounds ({box}) are public knowledge and were not taken from the data; values outside are clipped."


def _columns_sentence(plan: Plan) -> str:
    """How the tables' columns were matched."""
    if not plan.columns_digest:
        return UNNAMED_COLUMNS
    unnamed = " (those of tables without names by position)" if plan.settings.allow_unnamed else ""
    if plan.by_position:
        return f"Columns have the same names in the same order everywhere{unnamed}; bounds for each are by position."
    return f"Columns were matched by name{unnamed}."


def _server_sentences(plan: Plan, n_points: int) -> list[str]:
    """What the run assumes of the server's own points, and who sees them."""
    shown = plan.public_points is not None
    seen = "are in the plan, so every client sees them" if shown else plan.task.server_points_words(plan)
    owners = "their owners agreed to this use, and they"
    return [
        *([f"The server's {n_points} points are not the clients' data: {owners} {seen}."] if n_points else []),
        "Centre and clip bounds that were not given follow from the server's points alone, at no privacy cost [F2].",
    ]


def why_not_private(plan: Plan) -> tuple[str, ...]:
    """Why a run protects nobody, if it does not."""
    sentences = []
    if plan.settings.noise is NoiseKind.SEEDED:
        sentences.append("The noise comes from a seeded generator: whoever knows the seed can subtract it.")
        if plan.settings.client_sampling_rate < 1.0:
            sentences.append("So do the clients' coins: whoever knows the seed knows who takes part.")
    if plan.is_bare:
        sentences.append("Masks are off: whoever runs this sees every client's statistic.")
    if plan.settings.evaluation is Evaluation.EXACT:
        sentences.append("The evaluation is exact: sums over all rows are released without noise.")
    own = [block.noise for planned in plan.rounds if planned.name not in CLOSING_ROUNDS for block in planned.blocks]
    if NoiseShape.NONE in own:
        sentences.append(f"The algorithm {plan.config.algorithm!r} adds no noise: exact sums are released.")
    return tuple(sentences)
