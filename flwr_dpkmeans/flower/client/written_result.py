"""Writes what a run found into files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack

from flwr_dpkmeans.algorithms.kmeans_task import CENTRE_DEVIATION
from flwr_dpkmeans.algorithms.profile.profile_reading import read_profile
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.log import placed_logger, where_raised
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.results.aside import run_aside
from flwr_dpkmeans.results.model import Model
from flwr_dpkmeans.results.page import summary
from flwr_dpkmeans.results.rendering import CONSOLE
from flwr_dpkmeans.results.run_result import ResultDetails, RunResult
from flwr_dpkmeans.results.whole_files import write_folder
from flwr_dpkmeans.results.writer import add_profile, result_files, write_report
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import State

if TYPE_CHECKING:
    import pandas as pd

logger = placed_logger("flwr_dpkmeans.client")


class Columns(NamedTuple):
    """What columns are called, and what a schema says of them."""

    names: tuple[str, ...] = ()
    schema: Schema | None = None


def run_result(
    plan: Plan,
    state: State,
    report: PrivacyReport,
    columns: Columns,
    profile: Callable[[Model], pd.DataFrame | None] = lambda model: None,
    **details: Unpack[ResultDetails],
) -> RunResult:
    """Read the clustering in a run's last state, with further `details` of it."""
    figures = read_profile(plan, state, columns.schema)
    bounds = Bounds(*plan.bounds)
    deviations = state.extras.get(CENTRE_DEVIATION)
    model = Model(
        state.centroids,
        state.counts,
        bounds,
        report,
        columns.names,
        columns.schema,
        figures,
        deviations,
    )
    return RunResult.of(
        model,
        report,
        state,
        profile=profile(model),
        **details,
    )


def write_result(
    folder: Path,
    plan: Plan,
    state: State,
    report: PrivacyReport,
    columns: Columns,
    profile: Callable[[Model], pd.DataFrame | None] = lambda model: None,
    show: Callable[[str], None] = lambda text: None,
    *,
    aside: bool = False,
    **details: Unpack[ResultDetails],
) -> list[Path]:
    """Write what a run found.

    A clustering, with further `details` of it, or a task's own arrays.

    Returns absolute paths; `show` is told first what a console may print. `aside`
    leaves the profile of the party's own rows to a process of its own: how long it
    takes, and how much, decides nothing of what this one does.
    """
    if "centroids" not in state.arrays:
        show(str(report))
        arrays = plan.task.result(plan, state).arrays
        names = plan.config.feature_names
        return write_report(
            folder,
            report,
            arrays,
            names,
        )
    described = (lambda model: None) if aside else profile
    result = run_result(
        plan,
        state,
        report,
        columns,
        described,
        **details,
    )
    for sentence in result.report.warnings[len(report.warnings) :]:
        logger.warning("%s", sentence)
    show(
        summary(
            result.model,
            result.report,
            CONSOLE,
            result.evaluation,
        )
    )
    paths = write_folder(folder, result_files(result))
    if aside:
        run_aside(
            partial(
                _add_profile,
                paths[0].parent,
                result,
                profile,
            )
        )
    return paths


def _add_profile(
    folder: Path,
    result: RunResult,
    profile: Callable[[Model], pd.DataFrame | None],
) -> None:
    """Write the party's own profile beside the files that are there already.

    If it cannot be, they stay as they are.
    """
    try:
        described = profile(result.model)
        if described is not None:
            for path in add_profile(folder, replace(result, profile=described)):
                logger.info("wrote %s", path)
    except Exception as error:
        logger.warning("no local profile was written: %s", where_raised(error))
