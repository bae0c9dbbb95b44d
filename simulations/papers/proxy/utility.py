"""ProxyLloyd on the papers' synthetic data, beside limits.

`python -m simulations.papers.proxy utility --help`.

FedDP-KMeans' mixture of Gaussians with and without server points, record and client
level, and the max-cover paper's set. Runs are without masks and with seeded noise, so
they protect nobody; masks change no result.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.data.simulated.mixture import MIXTURE_BOUNDS
from flwr_dpkmeans.kmeans.cost import cost_per_point
from flwr_dpkmeans.options import Cohort
from simulations.commands import (
    encoded_tables,
    exit_code,
    require_seeds,
    wide_console,
    write_files,
)
from simulations.experiments.workers import add_workers, run_jobs
from simulations.papers.fastlloyd.utility import summary
from simulations.papers.feddp.mixture_runs import (
    DELTA,
    N_CLUSTERS,
    PAPER,
    Setting,
    all_rows,
    drawn,
    optimum,
)
from simulations.sources.synthetic import LabelledPoints, draw_max_cover_mixture

_RECORD = (0.08, 0.16, 0.322, 0.648, 1.3)
_CLIENT = (0.367, 0.738, 1.49, 3.01)


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Parameters
    ----------
    data : str
        "mixture" or "max-cover".
    unit : str
        "record" or "client".
    server : bool
        Whether the server brings its points.
    n_clusters : int
    epsilon : float
    limit : float or None
        Largest mean: excess cost per point on the mixture, cost per point on the
        max-cover set.
    """

    data: str
    unit: str
    server: bool
    n_clusters: int
    epsilon: float
    limit: float | None


@dataclass(frozen=True)
class Job:
    """One fit of a case."""

    case: Case
    algorithm: str
    seed: int


@dataclass(frozen=True)
class Outcome:
    """Cost above the optimum (mixture) or cost (max-cover), per point, and seconds of
    the fit.
    """

    value: float
    seconds: float


def cases() -> list[Case]:
    """All rows, with the limits that were set before they were measured."""
    cases = [
        Case("mixture", "record", True, N_CLUSTERS, epsilon, limit)
        for epsilon, limit in zip(_RECORD, (0.35, 0.05, 0.015, None, None), strict=True)
    ]
    cases += [
        Case("mixture", "record", False, N_CLUSTERS, epsilon, limit)
        for epsilon, limit in zip(_RECORD, (None, None, 0.4, 0.05, 0.01), strict=True)
    ]
    cases += [
        Case("mixture", "client", True, N_CLUSTERS, epsilon, limit)
        for epsilon, limit in zip(_CLIENT, (2.0, 0.5, 0.08, None), strict=True)
    ]
    cases += [
        Case("mixture", "client", False, N_CLUSTERS, epsilon, None)
        for epsilon in _CLIENT
    ]
    cases += [
        Case("max-cover", "record", False, k, epsilon, limit)
        for k, epsilon, limit in ((64, 1.0, 350.0), (64, 0.5, 600.0), (32, 1.0, 8800.0))
    ]
    return cases


@lru_cache(maxsize=1)
def _max_cover(seed: int) -> LabelledPoints:
    """The set of a seed, once in a row of jobs."""
    return draw_max_cover_mixture(np.random.default_rng(seed))


@lru_cache(maxsize=4)
def _optimum(setting: Setting, seed: int) -> float:
    """Non-private optimum of a mixture."""
    return optimum(setting, seed, 0)


def run_job(job: Job, mixtures: Mapping[str, Setting] = PAPER) -> Outcome:
    """Fit once and look at the exact data for the cost.

    Parameters
    ----------
    job : Job
        What is fitted.
    mixtures : mapping of str to Setting
        By unit, what a mixture is drawn from.
    """
    case = job.case
    options: dict[str, Any] = {
        "engine": "direct",
        "cohort": Cohort(masking=False),
        "noise": "seeded",
        "random_state": job.seed,
    }
    if case.data == "mixture":
        setting = mixtures[case.unit]
        mixture = drawn(setting, job.seed)
        parts, rows, least = (
            list(mixture.clients),
            all_rows(setting, job.seed),
            _optimum(setting, job.seed),
        )
        options |= {"delta": DELTA, "unit": case.unit}
        bounds = (MIXTURE_BOUNDS.lower, MIXTURE_BOUNDS.upper)
        options |= (
            {"server_data": mixture.server_points}
            if case.server
            else {"bounds": bounds}
        )
    else:
        rows, least = _max_cover(job.seed).points, 0.0
        parts = np.array_split(rows, 5)
        options |= {"bounds": (0.0, 100.0)}
    start = time.perf_counter()
    fitted = FederatedKMeans(
        case.n_clusters, algorithm=job.algorithm, epsilon=case.epsilon, **options
    ).fit(parts)
    seconds = time.perf_counter() - start
    return Outcome(cost_per_point(rows, fitted.cluster_centers_) - least, seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, print the table and write it."""
    options = _parser().parse_args(arguments)
    return exit_code(lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    """Run all jobs; those of a seed follow each other, so that data are drawn once."""
    require_seeds(options.seeds)
    wanted = [
        case
        for case in cases()
        if case.data in options.data and case.unit in options.units
    ]
    order = [
        (case.data, case.unit, seed) for case in wanted for seed in range(options.seeds)
    ]
    jobs = [
        Job(case, options.algorithm, seed)
        for data, unit, seed in dict.fromkeys(order)
        for case in wanted
        if (case.data, case.unit) == (data, unit)
    ]
    outcomes = run_jobs(
        run_job, jobs, workers=options.workers, chunk=1, description="fits"
    )
    by_case: dict[Case, list[Outcome]] = {}
    for job, outcome in zip(jobs, outcomes, strict=True):
        by_case.setdefault(job.case, []).append(outcome)
    rows = [_row(case, options.algorithm, by_case[case]) for case in wanted]
    wide_console().print(_table(rows))
    write_files(
        Path(options.output), encoded_tables("proxy_utility", vars(options), rows)
    )


def _row(case: Case, algorithm: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Mean, standard error and time of one case."""
    mean_and_error = summary([outcome.value for outcome in outcomes])
    return {
        "algorithm": algorithm,
        "data": case.data,
        "unit": case.unit,
        "server points": case.server,
        "k": case.n_clusters,
        "epsilon": case.epsilon,
        "mean": mean_and_error["mean"],
        "standard error": mean_and_error["se"],
        "limit": case.limit,
        "seconds": summary([outcome.seconds for outcome in outcomes])["median"],
    }


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows, with a mark where a limit is exceeded."""
    table = Table(
        title=(
            "Mixture: cost per point above the optimum; max-cover: cost per point."
            " Seeded, not private"
        )
    )
    for column in rows[0]:
        table.add_column(column, justify="right")
    for row in rows:
        over = row["limit"] is not None and row["mean"] > row["limit"]
        cells = [
            f"{value:.4g}" if isinstance(value, float) else str(value)
            for value in row.values()
        ]
        table.add_row(
            *(cell.replace("None", "-") for cell in cells),
            style="bold red" if over else None,
        )
    return table


def _parser() -> argparse.ArgumentParser:
    """Command-line options."""
    parser = argparse.ArgumentParser(
        prog="python -m simulations.papers.proxy utility", description=__doc__
    )
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument(
        "--algorithm",
        default="proxy_lloyd",
        help="proxy_lloyd, or fastlloyd to compare with",
    )
    parser.add_argument(
        "--data",
        nargs="+",
        default=["mixture", "max-cover"],
        choices=["mixture", "max-cover"],
    )
    parser.add_argument(
        "--units", nargs="+", default=["record", "client"], choices=["record", "client"]
    )
    add_workers(parser)
    parser.add_argument("--output", default="outputs/proxy_utility")
    return parser
