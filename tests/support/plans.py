"""Random plans through the real planner, and what is held against each.

A plan's releases are read off its blocks and its public numbers here, without
`Plan.events`: the noise that is drawn (scale in units of the array, grid, entries),
under which coin, in how many honest shares, and how often.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flwr_dpkmeans.errors import BudgetError, ConfigurationError, PlanError
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.release import NoiseShape
from flwr_dpkmeans.secagg.graph import recovery_graph
from flwr_dpkmeans.sums.draft import draft_plan, worst_case
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import ServerFacts
from flwr_dpkmeans.sums.statement import build_report, epsilon_after
from support.pricing import (
    Draw,
    Noise,
    accountant_epsilon,
    continuous_epsilons,
    mixture_epsilon,
    parts_of,
    renyi_epsilon,
    slack_of,
)

GRID = 2.0**-16
ROUNDING = 1e-10
"""Relative, for the last digits of both sides."""
ABOVE_GAUSSIAN, ABOVE_OTHERS = 1.01, 1.03
LEAST_USED = 0.999
COARSE = ", coarse noise"
RECORD_ONLY = ("fastlloyd", "glloyd", "sulloyd")
WITH_SERVER = (
    "feddp_kmeans",
    "feddp_choose_k",
    "server_kmeans++",
    "server_lloyd",
    "sphere_packing",
)
ALGORITHMS = ("proxy_lloyd", *RECORD_ONLY, *WITH_SERVER)
TRUSTS = ("oblivious", "central", "distributed")


# -- from a plan to its noise ----------------------------------------------------------


def honest_shares(plan: Plan) -> int:
    """Shares that are there whoever colludes, looks at the own share, or is lost.

    Counted again.
    """
    config, n = plan.config, plan.n_clients
    recovers = (
        config.dropout.value == "recover" if config.dropout is not None else n > 100
    )
    silent = plan.max_silent
    colluding = max(1, silent)
    if not recovers:
        return n - colluding
    least = max(2, config.min_clients, silent + 2, n - colluding, n - silent)
    if n > 32:
        # The server may tell clients of different survivors:
        # `RecoveryGraph.fewest_open` has its own tests.
        least = min(least, recovery_graph(n, silent).fewest_open(n, silent))
    return least - colluding


def draws_of(plan: Plan, index: int) -> list[Draw]:
    """What one aggregation of a round releases."""
    n_before = len(plan.preliminary)
    planned = (
        plan.preliminary[index + n_before - 1] if index <= 0 else plan.rounds[index - 1]
    )
    # Preliminary rounds are made by the clients, whatever the trust model of the rest.
    distributed = index <= 0 or plan.config.trust == "distributed"
    shares = honest_shares(plan) if distributed else 1
    noises = []
    for block in planned.blocks:
        assert block.noise is not NoiseShape.NONE
        scale = block.noise_multiplier * block.sensitivity.bound
        entries = int(np.prod(block.shape))
        noises.append(
            Noise(
                block.noise is NoiseShape.GAUSSIAN, scale, block.sensitivity.bound,
                entries, GRID, shares,
            )
        )  # fmt: skip
    rate = plan.config.client_sampling_rate if index > 0 else 1.0
    return [Draw(tuple(noises), rate)]


def draws_of_all(plan: Plan, indices: Sequence[int]) -> list[Draw]:
    """What several aggregations release, repetitions and all."""
    assert plan.fraction_bits == 16
    draws = [draw for index in indices for draw in draws_of(plan, index)]
    counted = any(
        block.name == "count"
        for planned in plan.preliminary
        for block in planned.blocks
    )
    return with_joint_answers(draws) if counted else draws


def with_joint_answers(draws: Sequence[Draw]) -> list[Draw]:
    """What a private count decides is priced as one answer, whatever number of rounds
    the total is split into.
    """
    noises = [[noise for noise in draw.noises if noise.gaussian] for draw in draws]
    total = math.fsum(
        noise.strength for draw in draws for noise in draw.noises if not noise.gaussian
    )
    gaussian = [
        Draw(tuple(own), draw.rate)
        for own, draw in zip(noises, draws, strict=True)
        if own
    ]
    return (
        [*gaussian, Draw((Noise(False, 1.0 / total, 1.0),))]
        if total > 0.0
        else gaussian
    )


def indices_of(plan: Plan) -> list[int]:
    """Every round once."""
    return list(range(1 - len(plan.preliminary), len(plan.rounds) + 1))


# -- what is held against a price ------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """A price beside what it should be."""

    kind: str
    reported: float
    never_below: float  # the lower end of the truth, with what discreteness costs
    continuous: float  # the lower end of the truth for continuous noise
    most: float  # times `continuous`
    paid: float = 0.0  # log-ratios of discreteness

    @property
    def ratio(self) -> float:
        return self.reported / self.continuous

    @property
    def margin(self) -> float:
        return self.reported / self.never_below

    def require(self) -> Verdict:
        """Fail unless the price is within the limits.

        What coarse noise costs for being discrete is a part of it.
        """
        assert self.reported >= self.never_below * (1.0 - ROUNDING), (
            f"a price is too low: {self}"
        )
        truth = (
            max(self.continuous, self.never_below)
            if self.kind.endswith(COARSE)
            else self.continuous
        )
        assert self.reported <= truth * self.most * (1.0 + ROUNDING), (
            f"a price is too high: {self}"
        )
        return self


def kind_of(draws: Sequence[Draw]) -> str:
    """gaussian, mixture, pure or sampled."""
    gaussians, epsilons = parts_of(draws)
    if any(rate < 1.0 for _, rate in gaussians):
        return "sampled with pure" if epsilons else "sampled"
    if not gaussians:
        return "pure"
    return "mixture" if epsilons else "gaussian"


def verdict(
    draws: Sequence[Draw], delta: float, reported: float, points: int = 2**17
) -> Verdict:
    """Compare a price with the oracle's."""
    kind, slack = kind_of(draws), slack_of(draws)
    if kind == "pure":
        epsilons = parts_of(draws)[1]
        return Verdict(
            kind,
            reported,
            mixture_epsilon(0.0, epsilons, delta),
            math.fsum(epsilons),
            ABOVE_OTHERS,
        )
    # The additive part, below 1e-40, is left out: the house may only be dearer for it,
    # and is at epsilons above 60.
    paid, deltas = slack.above + slack.below, [delta, delta * math.exp(-slack.above)]
    if paid == 0.0:
        deltas.pop()
    epsilons = [
        interval.low
        for interval in continuous_epsilons(draws, deltas, reported, points)
    ]
    continuous, with_slack = epsilons[0], epsilons[-1]
    most = ABOVE_GAUSSIAN if kind == "gaussian" else ABOVE_OTHERS
    # Noise of a few grid steps on many entries: what it costs to be discrete is more
    # than the limit leaves room for.
    if paid > 0.2 * (most - 1.0) * continuous:
        kind += COARSE
    return Verdict(kind, reported, with_slack + paid, continuous, most, paid)


def within_accountants(draws: Sequence[Draw], delta: float, reported: float) -> None:
    """Hold a price against `dp_accounting`.

    Above its optimistic estimate, and at most 1% or 3% above the other one.
    """
    optimistic = accountant_epsilon(draws, delta, reported, pessimistic=False)
    pessimistic = accountant_epsilon(draws, delta, reported, pessimistic=True)
    most = ABOVE_GAUSSIAN if kind_of(draws) == "gaussian" else ABOVE_OTHERS
    assert optimistic <= reported * (1.0 + 1e-9), (
        f"{reported} is below dp_accounting's optimistic {optimistic}"
    )
    assert reported <= most * pessimistic, (
        f"{reported} is above dp_accounting's pessimistic {pessimistic}"
    )


def require_noise_of_shares(plan: Plan) -> None:
    """Those shares that are surely there carry the planned variance, also after
    dropouts.
    """
    assert plan.shares.n_honest <= honest_shares(plan)
    if plan.shares.max_lost == 0:
        for left in range(plan.min_cohort, plan.n_clients + 1):
            shares = plan.shares_of(left)
            surely = left - max(1, plan.max_silent)
            assert surely * shares.factor**2 >= 1.0 - 1e-12, (
                f"{left} of {plan.n_clients} clients draw too little noise"
            )
    else:
        assert honest_shares(plan) * plan.shares.factor**2 >= 1.0 - 1e-12


def require_plan(
    plan: Plan, generator: np.random.Generator, points: int = 2**17
) -> list[Verdict]:
    """Hold everything that a final plan says of its cost against the oracle."""
    found = []
    once = indices_of(plan)
    retries = plan.config.max_retries
    require_noise_of_shares(plan)
    found.append(verdict(draws_of_all(plan, once), plan.delta, plan.epsilon, points))
    if found[0].kind == "gaussian":
        assert plan.epsilon <= renyi_epsilon(draws_of_all(plan, once), plan.delta)
    # The worst case: every way to spend the retries on one round, and some to spread
    # them.
    chosen = [[index] * retries for index in distinct(plan)] if retries else [[]]
    if retries > 1:
        chosen += [generator.choice(once, retries).tolist() for _ in range(3)]
    worst = [
        verdict(
            draws_of_all(plan, once + more), plan.delta, plan.epsilon_worst_case, points
        )
        for more in chosen
    ]
    for one in worst:
        assert one.reported >= one.never_below * (1.0 - ROUNDING), (
            f"a worst case is too low: {one}"
        )
    # An upper limit where releases are of one kind; for several, and for coarse noise,
    # the house takes a safe bound.
    if {one.kind for one in worst} <= {"gaussian", "sampled"} and len(
        {one.kind for one in worst}
    ) == 1:
        costliest = max(worst, key=lambda one: one.continuous)
        if not (plan.preliminary and costliest.kind == "sampled"):
            found.append(costliest)
    # What a run reports: some rounds, some of them repeated.
    last = int(generator.integers(1, len(once) + 1))
    more = generator.choice(
        once[:last], int(generator.integers(0, retries + 1))
    ).tolist()
    taken = sorted(once[:last] + more)
    attempts = [(index, number) for number, index in enumerate(taken)]
    reported = epsilon_after(plan, attempts)
    assert reported <= plan.epsilon_worst_case * (1.0 + 1e-9), (
        f"a run costs {reported}, more than its worst case"
    )
    found.append(verdict(draws_of_all(plan, taken), plan.delta, reported, points))
    # What is charged before the rounds are known covers them, and is no more than every
    # round with every retry.
    assert plan.epsilon_worst_case <= worst_case(plan) * (1.0 + 1e-9)
    assert (
        worst_case(plan) <= 1.6 * (1 + retries) * plan.config.epsilon
        or plan.count is None
    )
    if last == len(once):
        assert build_report(plan, attempts).epsilon == (
            worst_case(plan) if more else reported
        )
    return found


def distinct(plan: Plan) -> list[int]:
    """One index of each kind of round."""
    seen: dict[Any, int] = {}
    for index in indices_of(plan):
        seen.setdefault(tuple(draws_of(plan, index)), index)
    return list(seen.values())


def require_used(plan: Plan) -> None:
    """Calibration and pricing return what was asked for, from below, within 0.1%."""
    epsilon = plan.config.epsilon
    assert plan.epsilon <= epsilon * (1.0 + 1e-12), (
        f"the plan costs {plan.epsilon}, but {epsilon} was asked for"
    )
    assert plan.epsilon >= LEAST_USED * epsilon, (
        f"the plan costs {plan.epsilon} of {epsilon}: {plan.config}"
    )


# -- random plans ----------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """What a plan is drafted from."""

    values: dict[str, Any]
    n_clients: int
    n_features: int
    counted: int | None
    server: ServerFacts | None

    def draft(self) -> Plan:
        config = parse_config(**self.values)
        # Bounds that were found are a part of the public domain.
        box = (
            ((-2.0,) * self.n_features, (3.0,) * self.n_features)
            if config.private_bounds
            else None
        )
        return draft_plan(
            config, run_id=1, n_clients=self.n_clients, seed=7,
            n_features=self.n_features, n_examples=self.counted, server=self.server,
            box=box,
        )  # fmt: skip


def log_uniform(generator: np.random.Generator, low: float, high: float) -> float:
    return float(math.exp(generator.uniform(math.log(low), math.log(high))))


def random_request(generator: np.random.Generator, *, sampled: bool = False) -> Request:
    """Draw a configuration; some are refused."""

    def chance(probability: float) -> bool:
        return bool(generator.random() < probability)

    # Equal parts, but half of those that are sampled by name of the algorithm.
    names = ALGORITHMS if not sampled else ("proxy_lloyd", *WITH_SERVER)
    algorithm = str(generator.choice(names))
    per_client = sampled or (algorithm not in RECORD_ONLY and chance(0.4))
    n_clients = (
        int(log_uniform(generator, 2, 250))
        if chance(0.8)
        else int(generator.integers(6, 33))
    )
    k, d = int(log_uniform(generator, 1, 40)), int(log_uniform(generator, 1, 80))
    n = int(log_uniform(generator, max(k, 300), 1e6))
    private_bounds = algorithm not in WITH_SERVER and chance(0.25)
    counts = algorithm in (*RECORD_ONLY, "proxy_lloyd") and chance(0.4)
    values: dict[str, Any] = {
        "algorithm": algorithm,
        "n_clusters": k,
        "bounds": ((-8.0,), (8.0,)) if private_bounds else ((-1.0,), (1.0,)),
        "private_bounds": private_bounds,
        "epsilon": log_uniform(generator, 0.05, 20.0),
        "unit": "client" if per_client else "record",
        "trust": str(generator.choice(TRUSTS)),
        "evaluation": "private" if chance(0.4) else "none",
        "evaluation_share": float(generator.uniform(0.01, 0.3)),
        "count_share": float(generator.uniform(0.005, 0.3)),
        "bounds_share": float(generator.uniform(0.01, 0.3)),
        "max_retries": int(generator.integers(0, 4)),
        "n_classes": int(generator.integers(0, 4)),
        "examples_per_client": int(log_uniform(generator, 1, 1000)),
    }
    if chance(0.6):
        values["delta"] = log_uniform(generator, 1e-10, 0.5 / max(n, n_clients, 1000))
    if algorithm in WITH_SERVER and chance(0.3):
        values["delta"] = log_uniform(
            generator, 1e-10, 1e-6
        )  # these need not know the number of rows
    elif not counts:
        values["n_examples"] = n
    elif not per_client:
        values.setdefault("delta", log_uniform(generator, 1e-10, 0.3 / n))
    if chance(0.3):
        values["dropout"] = "recover" if n_clients >= 6 and chance(0.7) else "retry"
    if chance(0.3) and n_clients > 3:
        values["max_silent"] = int(generator.integers(0, max(1, n_clients // 4)))
    if chance(0.5):
        values["max_iter"] = int(generator.integers(1, 8))
    if algorithm in WITH_SERVER:
        values["lloyd_share"] = float(generator.uniform(0.05, 0.9))
        if chance(0.5):
            values["budget_shares"] = tuple(
                float(x) for x in generator.uniform(0.05, 1.0, 4)
            )
        if chance(0.4) and not sampled:
            values["noise_kind"] = "paper"
            values["trust"] = str(generator.choice(TRUSTS[:2]))
        if algorithm == "feddp_choose_k":
            values |= {"choose_n_clusters": True, "trust": "distributed"}
            values.pop("noise_kind", None)
    if algorithm == "sulloyd":
        values["trust"] = str(generator.choice(TRUSTS[:2]))
    if sampled:
        values |= {
            "client_sampling_rate": log_uniform(generator, 0.02, 0.9),
            "n_clusters": min(k, 10),
        }
    server = None
    if algorithm in WITH_SERVER and not (algorithm == "sphere_packing" and chance(0.5)):
        # Some clip bounds are so small that their noise is a few grid steps.
        smallest = 1e-4 if chance(0.15) else 0.05
        bounds = [log_uniform(generator, smallest, 3.0) for _ in range(5)]
        server = ServerFacts(
            int(log_uniform(generator, max(k, 10), 3000)), (0.0,) * d, *bounds
        )
    return Request(values, n_clients, d, n if counts else None, server)


@dataclass
class Harvest:
    """What a walk over random plans found."""

    plans: int = 0
    prices: int = 0
    refused: Counter[str] | None = None
    smallest: dict[str, float] | None = None
    largest: dict[str, float] | None = None
    least_used: float = 1.0

    def __post_init__(self) -> None:
        self.refused, self.smallest, self.largest = Counter(), {}, {}

    def take(self, verdicts: Sequence[Verdict]) -> None:
        assert self.smallest is not None
        assert self.largest is not None
        for one in verdicts:
            self.prices += 1
            if one.never_below > 0.0 and one.continuous > 0.0:
                self.smallest[one.kind] = min(
                    self.smallest.get(one.kind, math.inf), one.margin
                )
                self.largest[one.kind] = max(self.largest.get(one.kind, 0.0), one.ratio)


def walk(
    n_plans: int,
    seed: int,
    *,
    sampled: bool = False,
    points: int = 2**17,
    accountants: int = 0,
) -> Harvest:
    """Draft so many random plans and hold each against the oracle, every
    `accountants`-th against `dp_accounting`.
    """
    generator, harvest = np.random.default_rng(seed), Harvest()
    assert harvest.refused is not None
    while harvest.plans < n_plans:
        request = random_request(generator, sampled=sampled)
        try:
            plan = request.draft()
        except BudgetError:
            # Nobody asked for a limit on the worst case: the planner would have gone
            # beyond the request by itself.
            raise
        except (ConfigurationError, PlanError) as error:
            harvest.refused[f"{request.values['algorithm']}: {error}"[:60]] += 1
            assert sum(harvest.refused.values()) < 200 + n_plans, harvest.refused
            continue
        assert plan.is_final
        require_used(plan)
        verdicts = [one.require() for one in require_plan(plan, generator, points)]
        harvest.take(verdicts)
        if (
            accountants
            and harvest.plans % accountants == 0
            and kind_of(draws_of_all(plan, indices_of(plan))) != "pure"
        ):
            within_accountants(
                draws_of_all(plan, indices_of(plan)), plan.delta, plan.epsilon
            )
        harvest.least_used = min(harvest.least_used, plan.epsilon / plan.config.epsilon)
        harvest.plans += 1
    return harvest
