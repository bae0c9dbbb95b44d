"""One audit: pilot, training runs, test runs, lower bound beside the claim."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flwr_dpkmeans.errors import ConfigurationError
from simulations.audit.bounds import LowerBound, Method, Scores, lower_bound
from simulations.audit.cases import Case, Neighbours, build_cases
from simulations.audit.choice import choose
from simulations.audit.information import (
    Information,
    Truth,
    Worst,
    claimed_information,
    information_of,
)
from simulations.audit.one_run import OneRunBound, one_run_bound
from simulations.audit.runs import Engine, make_runner
from simulations.audit.trials import Batch, Measure, Setup, Table, batches_of, collect
from simulations.audit.views import Adversary, resolve_adversary

PILOT_RUNS = 10
ONE_RUN = "one_run"
ROUNDING = 1e-9
"""Room for the last digits of floats where what was seen is held against what is
claimed.
"""


@dataclass(frozen=True)
class AuditOptions:
    """What is audited and how.

    Parameters
    ----------
    algorithm, unit : str
        Of the run.
    trust : str or None
        None: the algorithm's own.
    adversary : str
        ``auto``, ``server`` or ``clients``.
    case : str
        A layout of `cases.LAYOUTS`, or ``auto``.
    method : str
        ``auto`` (through mu where all noise is plain Gaussian), ``gdp``,
        ``clopper_pearson`` or ``one_run`` (canaries).
    engine : str
        ``direct`` or ``messages``.
    trials : int
        Test runs of each kind; a fifth as many, at least 200 and at most 20,000, train
        the distinguishers.
    confidence : float
        With which the bound holds.
    until : int or None
        Last round that the adversary looks at.
    retries : int
        Sums that are asked for twice.
    values : mapping
        Further fields of `RunConfig`, and ``n_clients``.
    """

    algorithm: str = "fastlloyd"
    unit: str = "record"
    trust: str | None = None
    adversary: str = "auto"
    case: str = "auto"
    method: str = "auto"
    engine: str = "direct"
    trials: int = 5000
    confidence: float = 0.95
    until: int | None = None
    retries: int = 0
    values: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.trials < 100:
            raise ConfigurationError(
                f"trials is {self.trials}, but fewer than 100 say nothing: give 5000."
            )
        if self.retries < 0:
            raise ConfigurationError(
                f"retries is {self.retries}, but it must be at least 0: give 1."
            )
        if not 0.0 < self.confidence < 1.0:
            raise ConfigurationError(
                f"confidence is {self.confidence}, but it must be above 0 and below 1:"
                " give 0.95."
            )

    @property
    def training(self) -> int:
        """Training runs of each kind."""
        return min(max(200, self.trials // 5), 20_000)


@dataclass(frozen=True)
class AuditResult:
    """A lower bound beside its claim.

    Parameters
    ----------
    options : AuditOptions
    trust, adversary, case, target : str
        As resolved; `target` is where the pilot put it.
    claimed : float
        Epsilon of the run's own report.
    bound : LowerBound or OneRunBound
        Of the test runs, at the confidence asked for.
    information : float
        Largest information that any run showed, over what is claimed; above 1 a
        sensitivity is false.
    bound_used : float
        Largest share of its sensitivity that one array used in any run.
    distinguisher : str
        Which one won on the training runs.
    seconds : float
        Of everything.
    test : Scores or None
        Of the test runs, by the winner; None with canaries.
    worst : Worst
        Of all targets that the pilot tried, also those that it did not choose.
    """

    options: AuditOptions
    trust: str
    adversary: str
    case: str
    target: str
    claimed: float
    bound: LowerBound | OneRunBound
    information: float
    bound_used: float
    distinguisher: str
    seconds: float
    test: Scores | None = field(repr=False)
    worst: Worst = field(default_factory=Worst)

    @property
    def ratio(self) -> float:
        """Lower bound over claim."""
        return self.bound.epsilon / self.claimed

    def bound_at(self, confidence: float) -> float:
        """The lower bound on epsilon of the same runs at another confidence."""
        bound = self.bound
        if isinstance(bound, OneRunBound):
            return one_run_bound(
                bound.guesses, bound.delta, bound.method, confidence
            ).epsilon
        assert self.test is not None
        return lower_bound(
            self.test, bound.rule, bound.delta, bound.method, confidence
        ).epsilon

    @property
    def shows_more(self) -> bool:
        """Whether the statistics alone, of any target, show more than they may.

        Nan does.
        """
        worst = self.worst
        seen = (self.information, self.bound_used, worst.information, worst.bound_used)
        return not all(share <= 1.0 + ROUNDING for share in seen)

    def exceeds(self, confidence: float | None = None) -> bool:
        """Whether the claim is refuted: by the runs at a confidence, or by what the
        statistics show.
        """
        epsilon = (
            self.bound.epsilon if confidence is None else self.bound_at(confidence)
        )
        return epsilon > self.claimed or self.shows_more


def run_audit(
    options: AuditOptions,
    measure: Measure,
    advance: Callable[[int], None] = lambda _: None,
) -> AuditResult:
    """Audit one combination.

    Parameters
    ----------
    options : AuditOptions
    measure : callable
        From `trials.measuring`.
    advance : callable
        Told how many runs are done since it was told last.

    Returns
    -------
    AuditResult

    Raises
    ------
    ConfigurationError, PlanError
        If there is no such combination.
    """
    begin = time.perf_counter()
    setup = prepare(options)
    plan = setup.case.plan
    method = resolve_method(options.method, setup)
    every = [batches_of(setup, options.training, present) for present in (False, True)]
    absent, present = _measured(every, measure, advance)
    winner, rule = choose(absent, present, setup.case.plan, method)
    every = [batches_of(setup, options.trials, kind, winner) for kind in (False, True)]
    tested = _measured(every, measure, advance)
    test = Scores(tested[0].scores[winner.name], tested[1].scores[winner.name])
    tables = (absent, present, *tested)
    return AuditResult(
        options,
        plan.config.trust,
        setup.adversary.value,
        setup.case.name,
        setup.neighbours.name,
        max(table.epsilon for table in tables),
        lower_bound(test, rule, plan.delta, method, options.confidence),
        float(np.max([table.information for table in tables])),
        float(np.max([table.bound_used for table in tables])),
        winner.name,
        time.perf_counter() - begin,
        test,
        setup.worst,
    )


def n_runs(options: AuditOptions) -> int:
    """How many runs an audit takes."""
    if options.method == ONE_RUN:
        return 1
    return 2 * (options.training + options.trials)


def prepare(options: AuditOptions) -> Setup:
    """Draft the plans, and let a pilot choose the layout and the target that show most.

    Parameters
    ----------
    options : AuditOptions

    Returns
    -------
    Setup
    """
    cases = build_cases(
        options.algorithm, options.trust, options.unit, options.case, options.values
    )
    adversary = resolve_adversary(options.adversary, cases[0].plan.config.trust)
    try:
        engine = Engine(options.engine)
    except ValueError:
        raise ConfigurationError(
            f"engine is {options.engine!r}, which is not known: choose 'direct' or"
            " 'messages'."
        ) from None
    best: tuple[float, Case, Neighbours] | None = None
    worst = Worst()
    for case in cases:
        if not math.isfinite(case.plan.epsilon):
            raise ConfigurationError(
                f"{options.algorithm!r} releases exact sums here, so it claims nothing:"
                " audit another algorithm, or leave evaluation='exact' out."
            )
        for candidate, seen in _pilot(case, options):
            for information in seen:
                worst = worst.or_worse(f"{case.name}, {candidate.name}", information)
            share = float(np.mean([information.share for information in seen]))
            if best is None or share > best[0] + 1e-6:
                best = share, case, candidate
    assert best is not None
    return Setup(
        best[1], best[2], adversary, engine, options.until, options.retries, worst
    )


def _pilot(
    case: Case, options: AuditOptions
) -> list[tuple[Neighbours, list[Information]]]:
    """Information that each target shows clients, at the states of each of a few runs
    without it.
    """
    run = make_runner(case, case.candidates[0], Adversary.CLIENTS, until=options.until)
    views = [run(False) for _ in range(PILOT_RUNS)]
    shown = []
    for candidate in case.candidates:
        truth = Truth(candidate)
        seen = []
        for view in views:
            parts = [
                truth.part(total.plan, total.round_index, total.state, total.members)
                for total in view.sums
            ]
            seen.append(information_of(parts, view.plan, view.attempts))
        shown.append((candidate, seen))
    return shown


def resolve_method(name: str, setup: Setup) -> Method:
    """Take the bound through mu where all noise is plain Gaussian, as claims of other
    noise do not come from a mu.
    """
    plan = setup.case.plan
    attempts = [
        (index, 0)
        for index in range(
            plan.first_round, (plan.last_round if plan.is_final else 0) + 1
        )
    ]
    if setup.until is not None:
        attempts = [
            (index, attempt) for index, attempt in attempts if index <= setup.until
        ]
    plain = (
        claimed_information(plan, attempts)[2]
        and plan.config.client_sampling_rate >= 1.0
    )
    plain = plain and (
        plan.is_final or plan.config.algorithm != "sulloyd" or setup.until is not None
    )
    if name == "auto":
        return Method.GDP if plain else Method.CLOPPER_PEARSON
    try:
        method = Method(name)
    except ValueError:
        raise ConfigurationError(
            f"method is {name!r}, which is not known: choose 'auto', 'gdp',"
            " 'clopper_pearson' or 'one_run'."
        ) from None
    if method is Method.GDP and not plain:
        raise ConfigurationError(
            "method is 'gdp', but not all noise is plain Gaussian here, so the claim"
            " does not come from a mu: choose 'clopper_pearson'."
        )
    return method


def _measured(
    every: Sequence[list[Batch]], measure: Measure, advance: Callable[[int], None]
) -> list[Table]:
    """Run all batches of both kinds together, and put each kind's tables together."""
    batches = [batch for kind in every for batch in kind]
    tables = []
    for batch, table in zip(batches, measure(batches), strict=True):
        tables.append(table)
        advance(batch.n_runs)
    first = len(every[0])
    return [collect(tables[:first]), collect(tables[first:])]
