"""Pareto fronts of cost per point against total epsilon, every method: `python -m simulations.pareto --help`.

Each method is run over epsilon, splits of the budget and numbers of Lloyd rounds on the paper's mixture (section 5);
its front are the settings that no other setting of it beats in both epsilon and mean cost. Whoever picks a point of a
front has looked at exact costs, so a front is what good settings can reach, not what a run chooses by itself. Runs are
without masks and with seeded noise, so they protect nobody.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.table import Table

from flwr_dpkmeans.algorithms.feddp_kmeans import RULE_OF_THUMB
from flwr_dpkmeans.errors import ConfigurationError, PlanError
from flwr_dpkmeans.privacy.sensitivity import PrivacyUnit
from simulations.mixture_runs import (
    DELTA,
    WITH_SERVER_DATA,
    Fit,
    Fitted,
    Setting,
    add_sizes,
    encoded_tables,
    exit_code,
    optimum,
    require_seeds,
    run_fit,
    run_jobs,
    setting_from,
    wide_console,
    write_files,
)
from simulations.pareto_figure import draw_fronts, front_of, read_rows
from simulations.utility import summary

EPSILONS: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {"record": (0.08, 0.16, 0.32, 0.65, 1.3), "client": (0.37, 0.74, 1.5, 3.0)}
)
ROUNDS = (0, 1, 2)
"""T of ``feddp_kmeans``."""
BASELINE_ROUNDS = (1, 2, 3)
"""T of the other methods that have Lloyd rounds."""
WITH_ROUNDS = ("feddp_kmeans", "server_kmeans++", "server_lloyd", "sphere_packing", "fastlloyd")
RECORD_ONLY = ("fastlloyd", "max_cover")
NOT_PRIVATE = ("k_fed", "optimal")
METHODS = (*WITH_ROUNDS, "max_cover", *NOT_PRIVATE)
_FILE = "feddp_pareto"


@dataclass(frozen=True)
class Job:
    """One method at one setting on the data of one seed.

    Parameters
    ----------
    fit : Fit
        What to run.
    shares : tuple of float
        Split of the budget, () where there is none.
    n_rounds : int or None
        T, None where there is none.
    restarts : int
        Of k-means for the optimum.
    """

    fit: Fit
    shares: tuple[float, ...] = ()
    n_rounds: int | None = None
    restarts: int = 0

    @property
    def place(self) -> tuple[str, float, tuple[float, ...], int | None]:
        """What seeds are averaged over."""
        return self.fit.algorithm, self.fit.epsilon, self.shares, self.n_rounds


def splits(unit: str, method: str) -> tuple[tuple[float, ...], ...]:
    """Budget splits around the paper's rule of thumb (outer product, weights, sums, counts) that a method is run with.

    Examples
    --------
    >>> splits("record", "server_lloyd")
    ((0.2, 0.2, 0.45, 0.15), (0.2, 0.2, 0.45, 0.3))
    """
    outer, weights, sums, counts = RULE_OF_THUMB[PrivacyUnit(unit)]
    usual = (outer, weights, sums, counts)
    if method == "feddp_kmeans":
        return usual, (1.5 * outer, 1.5 * weights, sums, counts), (outer, weights, 1.5 * sums, 1.5 * counts)
    if method in WITH_SERVER_DATA:
        # Only the ratio of sums to counts matters without the first two steps.
        return usual, (outer, weights, sums, 2.0 * counts)
    return ((),)


def run_job(job: Job) -> Fitted | None:
    """Run one job; None where the method refuses so small a budget."""
    if job.fit.algorithm == "optimal":
        return Fitted(optimum(job.fit.setting, job.fit.seed, job.restarts), math.inf)
    try:
        return run_fit(job.fit)
    except PlanError:
        return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sweep, or read its table; draw; write table and figures."""
    options = _parser().parse_args(arguments)
    return exit_code(lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    """Everything between the command line and the exit code."""
    if options.plot_only:
        rows, files = read_rows(Path(options.plot_only)), {}
    else:
        rows = _swept(options)
        hidden = ("output", "plot_only")
        named = {"delta": DELTA, **{key: value for key, value in vars(options).items() if key not in hidden}}
        files = encoded_tables(_FILE, named, rows)
    wide_console().print(_table(rows))
    files |= {f"{_FILE}.{kind}": content for kind, content in draw_fronts(rows).items()}
    write_files(Path(options.output), files)


def _swept(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run the sweep: one row for each setting of each method."""
    require_seeds(options.seeds)
    setting = setting_from(options, options.unit)
    methods = [method for method in options.methods if options.unit == "record" or method not in RECORD_ONLY]
    if not methods:
        raise ConfigurationError(f"no method of {options.methods} is for unit {options.unit!r}: add 'feddp_kmeans'.")
    epsilons = options.epsilons or EPSILONS[options.unit]
    jobs = [
        job
        for seed in range(options.first_seed, options.first_seed + options.seeds)
        for method in methods
        for job in _jobs(method, setting, seed, epsilons, options)
    ]
    chunk = max(1, min(8, len(jobs) // (4 * options.workers)))
    found = run_jobs(run_job, jobs, workers=options.workers, chunk=chunk, description="fits")
    cells: dict[tuple[str, float, tuple[float, ...], int | None], list[Fitted]] = {}
    for job, fitted in zip(jobs, found, strict=True):
        if fitted is not None:
            cells.setdefault(job.place, []).append(fitted)
    rows = [_row(setting, place, fitted) for place, fitted in cells.items()]
    for row in rows:
        own = [other for other in rows if other["method"] == row["method"]]
        row["on_front"] = int(row in front_of(own))
    return rows


def _jobs(
    method: str, setting: Setting, seed: int, epsilons: Sequence[float], options: argparse.Namespace
) -> list[Job]:
    """All settings of one method on the data of one seed."""
    if method in NOT_PRIVATE:
        return [Job(Fit(setting, seed, method, 1.0), restarts=options.restarts)]
    numbers: Sequence[int | None] = (None,)
    if method in WITH_ROUNDS:
        numbers = options.rounds if method == "feddp_kmeans" else options.baseline_rounds
    jobs = []
    for epsilon in epsilons:
        for shares in splits(setting.unit, method):
            for n_rounds in numbers:
                named: dict[str, Any] = {"budget_shares": shares or None, "max_iter": n_rounds}
                given = tuple((name, value) for name, value in named.items() if value is not None)
                jobs.append(Job(Fit(setting, seed, method, epsilon, given), shares, n_rounds))
    return jobs


def _row(
    setting: Setting, place: tuple[str, float, tuple[float, ...], int | None], fitted: Sequence[Fitted]
) -> dict[str, Any]:
    """Mean cost of one setting over seeds; what the reports say was spent, not what was asked for."""
    method, _, shares, n_rounds = place
    cost = summary([one.cost for one in fitted])
    epsilon = max(one.epsilon for one in fitted)
    return {
        "unit": setting.unit,
        "n_clients": setting.n_clients,
        "rows_per_client": setting.rows,
        "missing": setting.missing,
        "method": method,
        "epsilon": epsilon if math.isfinite(epsilon) else None,
        "budget_shares": " ".join(f"{share:g}" for share in shares),
        "n_rounds": n_rounds,
        "seeds": len(fitted),
        "mean_cost": cost["mean"],
        "se": cost["se"],
        "on_front": 0,
    }


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Print the fronts; the file has every row."""
    first = rows[0]
    table = Table(
        title=f"Pareto fronts, {first['unit']} level, {first['n_clients']} clients x {first['rows_per_client']} rows, "
        f"delta {DELTA:g}; seeded noise, not private"
    )
    table.add_column("method")
    for column in ("epsilon", "mean cost per point", "s.e.", "seeds", "Lloyd rounds", "budget shares"):
        table.add_column(column, justify="right")
    for method in dict.fromkeys(row["method"] for row in rows):
        for row in front_of([row for row in rows if row["method"] == method]):
            epsilon = "not private" if row["epsilon"] is None else f"{row['epsilon']:.3f}"
            n_rounds = "-" if row["n_rounds"] is None else str(row["n_rounds"])
            figures = [epsilon, f"{row['mean_cost']:.4f}", f"{row['se']:.4f}", str(row["seeds"]), n_rounds]
            table.add_row(method, *figures, row["budget_shares"] or "-")
    return table


def _parser() -> argparse.ArgumentParser:
    """Command-line options."""
    parser = argparse.ArgumentParser(prog="python -m simulations.pareto", description=__doc__)
    parser.add_argument("--unit", default="record", choices=tuple(EPSILONS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[], help="totals (default: by unit)")
    parser.add_argument("--rounds", nargs="+", type=int, default=list(ROUNDS), help="Lloyd rounds of feddp_kmeans")
    parser.add_argument("--baseline-rounds", nargs="+", type=int, default=list(BASELINE_ROUNDS), help="of the others")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--restarts", type=int, default=1, help="of k-means for the optimum, beside the true means")
    parser.add_argument("--plot-only", default="", metavar="TABLE", help="draw a table that was written before (.csv)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", default="outputs/feddp_pareto", help="folder for table and figures")
    add_sizes(parser)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
