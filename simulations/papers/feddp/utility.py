"""FedDP-KMeans' excess cost over the non-private optimum, beside limits.

`python -m simulations.papers.feddp utility --help`.

The data are the paper's mixture of Gaussians (sections 5.1 and 5.2), drawn anew for
each seed. Runs are without masks and with seeded noise, so they protect nobody; masks
change no result.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.table import Table

from flwr_dpkmeans.errors import DataError
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
    PAPER,
    Fit,
    Fitted,
    Setting,
    add_sizes,
    optimum,
    run_fit,
    setting_from,
)

UNITS = ("record", "client")
KINDS = ("gaussian", "paper", "as_written")
"""Ours; the paper's noise with our prior and thresholds.

The paper's Algorithm 1 without either.
"""
EPSILONS: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {"record": (0.080, 0.160, 0.322, 0.648, 1.30), "client": (0.367, 0.738, 1.49, 3.01)}
)
LIMITS: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {"record": (0.60, 0.10, 0.03, 0.010, 0.004), "client": (3.2, 0.8, 0.12, 0.04)}
)
"""Largest excess cost per point of the defaults, for the same places of `EPSILONS`."""
_PAPER_OPTIONS: Mapping[str, tuple[tuple[str, Any], ...]] = MappingProxyType(
    {
        "record": (("data_radius", 11.0),),
        "client": (
            ("outer_product_bound", 1500.0),
            ("weights_bound", 1.0),
            ("means_bound", 21.0),
            ("indicators_bound", 10.0),
        ),
    }
)
"""Clip bounds of the reference's runs."""
_AS_WRITTEN: tuple[tuple[str, Any], ...] = (
    ("server_prior", False),
    ("weight_threshold", 0.0),
)
"""What Algorithm 1 has none of."""
_REFERENCE_KEYS = {
    "record": "record_level_100_clients_x_1000",
    "client": "client_level_2000_clients_x_50",
}
_SAME_EPSILON = 0.005
"""Relative difference up to which two rounded epsilons are one."""


@dataclass(frozen=True)
class Job:
    """One fit, or (None) the optimum of a seed.

    Parameters
    ----------
    setting : Setting
        Whose data.
    seed : int
        Of everything.
    kind : str
        Of noise; "" for the optimum.
    epsilon : float
        Total.
    restarts : int
        Of the optimum.
    """

    setting: Setting
    seed: int
    kind: str = ""
    epsilon: float = 1.0
    restarts: int = 0


def run_job(job: Job, run: Callable[[Fit], Fitted] = run_fit) -> float:
    """Cost per point; ``run(fit)`` is what comes out of a fit."""
    if not job.kind:
        return optimum(job.setting, job.seed, job.restarts)
    noise = "gaussian" if job.kind == "gaussian" else "paper"
    options: tuple[tuple[str, Any], ...] = (("noise_kind", noise), ("max_iter", 0))
    if job.kind == "as_written":
        # Delta^2, which is what a row's outer product may add; at client level the
        # reference's bound stays.
        bounds = (
            (("outer_product_bound", 121.0),) if job.setting.unit == "record" else ()
        )
        options += (*_AS_WRITTEN, *bounds)
    if noise == "paper":
        # Laplace noise cannot be split into clients' shares.
        options += (("trust", "central"), *_PAPER_OPTIONS[job.setting.unit])
    return run(Fit(job.setting, job.seed, "feddp_kmeans", job.epsilon, options)).cost


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, print the table and write it."""
    options = _parser().parse_args(arguments)
    return exit_code(lambda: _run(options))


def excesses(
    jobs: Sequence[Job], costs: Sequence[float]
) -> dict[tuple[str, str, float], list[float]]:
    """Cost per point above the optimum of the same seed, by unit, kind of noise and
    epsilon.
    """
    pairs = list(zip(jobs, costs, strict=True))
    best = {(job.setting.unit, job.seed): cost for job, cost in pairs if not job.kind}
    excesses: dict[tuple[str, str, float], list[float]] = {}
    for job, cost in pairs:
        if job.kind:
            key = (job.setting.unit, job.kind, job.epsilon)
            excesses.setdefault(key, []).append(cost - best[job.setting.unit, job.seed])
    return excesses


def reference_excesses(path: Path) -> dict[tuple[str, float], float]:
    """Median excess of a reference file's runs over its optimum, by unit and epsilon.

    Some of its runs lose a cluster.

    Raises
    ------
    DataError
        If the file is not of that form.
    """
    try:
        reference = json.loads(path.read_text())
        best = float(reference["optimum_cost_per_point"])
        return {
            (unit, float(epsilon)): statistics.median(costs) - best
            for unit, key in _REFERENCE_KEYS.items()
            for epsilon, costs in reference[key]["runs"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path} cannot be read as a reference ({type(error).__name__}: {error}):"
            " give a JSON file with 'optimum_cost_per_point' and"
            f" '{_REFERENCE_KEYS['record']}'."
        ) from error


def limit_of(
    setting: Setting,
    kind: str,
    epsilon: float,
    reference: Mapping[tuple[str, float], float],
) -> tuple[float | None, str]:
    """Look up what a cell is held against, and where that comes from.

    Only the paper's own federation has limits.
    """
    if setting != PAPER[setting.unit]:
        return None, ""
    unit = setting.unit
    described = {
        (unit, key): limit
        for key, limit in zip(EPSILONS[unit], LIMITS[unit], strict=True)
    }
    source, limits = (
        ("limit", described) if kind == "gaussian" else ("reference", dict(reference))
    )
    near = [
        v
        for (u, e), v in limits.items()
        if u == unit and abs(e - epsilon) <= _SAME_EPSILON * epsilon
    ]
    return (near[0], source) if near else (None, "")


def _run(options: argparse.Namespace) -> None:
    """Everything between the command line and the exit code."""
    require_seeds(options.seeds)
    reference = reference_excesses(Path(options.reference)) if options.reference else {}
    jobs = _jobs(options)
    chunk = max(1, min(6, len(jobs) // (2 * max(1, options.workers))))
    costs = run_jobs(
        run_job, jobs, workers=options.workers, chunk=chunk, description="fits"
    )
    rows = []
    for (unit, kind, epsilon), values in excesses(jobs, costs).items():
        setting = setting_from(options, unit)
        limit, source = limit_of(setting, kind, epsilon, reference)
        rows.append(
            _row(setting, kind, epsilon, values)
            | {
                "limit": limit,
                "limit_source": source,
            }
        )
    wide_console().print(_table(rows))
    named = {
        "delta": DELTA,
        **{key: value for key, value in vars(options).items() if key != "output"},
    }
    write_files(Path(options.output), encoded_tables("feddp_utility", named, rows))


def _jobs(options: argparse.Namespace) -> list[Job]:
    """All fits and optima, those of one seed beside each other."""
    jobs = []
    for unit in options.unit:
        setting = setting_from(options, unit)
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            jobs.append(Job(setting, seed, restarts=options.restarts))
            jobs += [
                Job(setting, seed, kind, epsilon)
                for kind in options.kinds
                for epsilon in options.epsilons or EPSILONS[unit]
            ]
    return jobs


def _row(
    setting: Setting, kind: str, epsilon: float, values: list[float]
) -> dict[str, Any]:
    """One cell of the table."""
    mean_and_error = summary(values)
    return {
        "unit": setting.unit,
        "n_clients": setting.n_clients,
        "rows_per_client": setting.rows,
        "missing": setting.missing,
        "noise_kind": kind,
        "epsilon": epsilon,
        "seeds": len(values),
        "mean_excess": mean_and_error["mean"],
        "se": mean_and_error["se"],
        "median_excess": mean_and_error["median"],
        "largest_excess": max(values),
    }


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Print what was measured beside what it is held against."""
    first = rows[0]
    missing = (
        f", the server misses {first['missing']} components" if first["missing"] else ""
    )
    table = Table(
        title=(
            "FedDP-KMeans, T = 0: cost per point above the non-private optimum,"
            f" {first['seeds']} seeds, delta {DELTA:g}{missing}; seeded noise, not"
            " private"
        )
    )
    for column in ("unit", "clients x rows", "noise"):
        table.add_column(column)
    for column in (
        "epsilon",
        "mean",
        "s.e.",
        "median",
        "largest",
        "limit",
        "limit is from",
        "within",
    ):
        table.add_column(column, justify="right")
    for row in rows:
        figures = [
            f"{row[name]:.4f}"
            for name in ("mean_excess", "se", "median_excess", "largest_excess")
        ]
        limit = row["limit"]
        verdict = ["-", "-", "-"]
        if limit is not None:
            measured = (
                row["mean_excess"]
                if row["limit_source"] == "limit"
                else row["median_excess"]
            )
            verdict = [
                f"{limit:.4f}",
                row["limit_source"],
                "yes" if measured <= limit else "NO",
            ]
        sizes = f"{row['n_clients']} x {row['rows_per_client']}"
        table.add_row(
            row["unit"],
            sizes,
            row["noise_kind"],
            f"{row['epsilon']:g}",
            *figures,
            *verdict,
        )
    return table


def _parser() -> argparse.ArgumentParser:
    """Command-line options."""
    parser = argparse.ArgumentParser(
        prog="python -m simulations.papers.feddp utility", description=__doc__
    )
    parser.add_argument("--unit", nargs="+", default=list(UNITS), choices=UNITS)
    parser.add_argument(
        "--kinds", nargs="+", default=list(KINDS[:2]), choices=KINDS, help="of noise"
    )
    parser.add_argument(
        "--epsilons",
        nargs="+",
        type=float,
        default=[],
        help="instead of the paper's, for every unit",
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument(
        "--restarts",
        type=int,
        default=5,
        help="of k-means for the optimum, beside the true means",
    )
    parser.add_argument(
        "--reference", default="", help="JSON file with the costs of the paper's code"
    )
    add_workers(parser)
    parser.add_argument(
        "--output", default="outputs/feddp_utility", help="folder for the tables"
    )
    add_sizes(parser)
    return parser
