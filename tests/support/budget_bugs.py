"""Slips in what is charged, and in what a budget is divided into.

Patches of the real code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.lloyd_family.fastlloyd import FastLloydTask
from flwr_dpkmeans.node import guard as approval
from flwr_dpkmeans.privacy import calibration
from flwr_dpkmeans.privacy.report import EVALUATION_ROUND
from flwr_dpkmeans.sums import build as building
from flwr_dpkmeans.sums import price as pricing
from flwr_dpkmeans.sums import public_facts
from flwr_dpkmeans.sums import server as server_run
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.statement import run_report

Array = NDArray[np.float64]
Words = NDArray[np.uint64]


def _once(attempts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return list({index: (index, attempt) for index, attempt in attempts}.values())


def report_by_round(patch: pytest.MonkeyPatch) -> None:
    honest = run_report.run_epsilon
    patch.setattr(
        run_report, "run_epsilon", lambda plan, attempts: honest(plan, _once(attempts))
    )


def ledger_by_round(patch: pytest.MonkeyPatch) -> None:
    """What is charged leaves repetitions out."""
    patch.setattr(approval, "worst_case", lambda plan: plan.epsilon)


def lines_by_round(patch: pytest.MonkeyPatch) -> None:
    """The report lists, and so prices, one release a round."""
    honest = server_run.build_report

    def listed(plan: Plan, attempts: Any, *rest: Any, **more: Any) -> Any:
        return honest(plan, _once(attempts), *rest, **more)

    patch.setattr(server_run, "build_report", listed)


def worst_case_without_retries(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Plan, "epsilon_worst_case", property(lambda self: self.epsilon))


def _uncharged(patch: pytest.MonkeyPatch, is_free: Callable[[Plan, int], bool]) -> None:
    """Neither the plan's price nor the calibration knows of some rounds."""
    honest = Plan._round_events
    patch.setattr(
        Plan,
        "_round_events",
        lambda self, i: () if is_free(self, i) else honest(self, i),
    )


def evaluation_not_charged(patch: pytest.MonkeyPatch) -> None:
    _uncharged(patch, lambda plan, index: plan.round_at(index).name == EVALUATION_ROUND)
    patch.setattr(building, "round_events", lambda *_: ())


def count_not_charged(patch: pytest.MonkeyPatch) -> None:
    _uncharged(patch, lambda _, index: index <= 0)


def delta_counted_twice(patch: pytest.MonkeyPatch) -> None:
    """Calibration and price each look for the epsilon at twice the delta that is
    stated.
    """
    calibrate = public_facts.calibrate_gaussian
    compose = pricing.compose_epsilon
    patch.setattr(
        public_facts,
        "calibrate_gaussian",
        lambda e, delta, *rest: calibrate(e, 2 * delta, *rest),
    )
    for module in (pricing, calibration):
        patch.setattr(
            module, "compose_epsilon", lambda events, delta: compose(events, 2 * delta)
        )


def rounds_not_counted_in_the_noise(patch: pytest.MonkeyPatch) -> None:
    """Each round gets the noise of a run of one, and the price of a round is that of
    the run.
    """
    iteration = FastLloydTask._iteration

    def as_one(*given: Any) -> Any:
        return iteration(*given[:-1], 1)

    patch.setattr(FastLloydTask, "_iteration", as_one)
    _uncharged(patch, lambda _, index: index > 1)
