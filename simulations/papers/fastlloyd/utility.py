"""Utility of every algorithm on real data, beside reference figures.

`python -m simulations.papers.fastlloyd utility --help`.

Columns are scaled by their own minimum and maximum, as the FastLloyd paper does. That
takes bounds from private data and is right only for reproducing figures; the noise is
seeded, so these runs protect nobody.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import statistics
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from flwr_dpkmeans.threads import one_thread
from simulations.commands import wide_console
from simulations.experiments.clustering_metrics import area_under
from simulations.experiments.workers import add_workers, run_jobs

METHODS = ("fastlloyd", "glloyd", "sulloyd", "lloyd", "proxy_lloyd")
EPSILONS = (0.1, 0.25, 0.5, 0.75, 1.0)
_REFERENCE_NAMES = {
    "fastlloyd": "FastLloyd",
    "glloyd": "GLloyd",
    "sulloyd": "SuLloyd",
    "lloyd": "Lloyd",
    # The papers have no such method: it is compared with the best of theirs.
    "proxy_lloyd": "FastLloyd",
}


@dataclass(frozen=True)
class Job:
    """One fit.

    Parameters
    ----------
    name, source : str
        Data set and where it is.
    n_clusters : int
        k.
    algorithm : str
        Method.
    epsilon : float
        Total.
    seed : int
        Of start, noise and split.
    packing : str
        Sphere packing's search.
    n_clients : int
        Parts of the data.
    post_processing : str or None
        None: the algorithm's own default.
    """

    name: str
    source: str
    n_clusters: int
    algorithm: str
    epsilon: float
    seed: int
    packing: str
    n_clients: int
    post_processing: str | None


def load_scaled(source: str) -> NDArray[np.float64]:
    """Load a table, its columns scaled to [-1, 1] by their own range (not private)."""
    from flwr_dpkmeans.data.loading.source import load_source

    points = load_source(source).points
    low, high = points.min(axis=0), points.max(axis=0)
    spread = np.where(high > low, high - low, 1.0)
    return np.asarray(2.0 * (points - low) / spread - 1.0, dtype=np.float64)


def run_job(job: Job) -> float:
    """Fit once and return the cost per point (NICV) of the scaled data."""
    from flwr_dpkmeans import FederatedKMeans
    from flwr_dpkmeans.algorithms.lookup import clusterings
    from flwr_dpkmeans.errors import PrivacyWarning
    from flwr_dpkmeans.kmeans.cost import cost_per_point
    from flwr_dpkmeans.options import own_options
    from simulations.experiments.configuration import algorithm_value

    logging.disable(logging.CRITICAL)
    # Of seeded noise, once for each of hundreds of fits.
    warnings.simplefilter("ignore", PrivacyWarning)
    points = load_scaled(job.source)
    order = np.random.default_rng([job.seed, 1]).permutation(len(points))
    parts = np.array_split(points[order], job.n_clients)
    packed = {"packing": job.packing, "post_processing": job.post_processing}
    with one_thread():
        fitted = FederatedKMeans(
            n_clusters=job.n_clusters,
            algorithm=algorithm_value(
                job.algorithm, own_options(packed, job.algorithm, clusterings())
            ),
            epsilon=job.epsilon,
            bounds=(-1.0, 1.0),
            noise="seeded",
            random_state=job.seed,
        ).fit(parts)
        return cost_per_point(points, fitted.cluster_centers_)


def main(
    arguments: list[str] | None = None, fit: Callable[[Job], float] = run_job
) -> int:
    """Run the benchmark and print the table; ``fit(job)`` is a fit's cost."""
    options = _parser().parse_args(arguments)
    references = [json.loads(Path(path).read_text()) for path in options.reference]
    jobs = _jobs(options)
    costs = run_jobs(fit, jobs, workers=options.workers, chunk=8, description="fits")
    cells: dict[tuple[str, str, float], list[float]] = {}
    for job, cost in zip(jobs, costs, strict=True):
        cells.setdefault((job.name, job.algorithm, job.epsilon), []).append(cost)
    console = wide_console(140)
    console.print(_table(cells, references))
    for number, reference in enumerate(references, start=1):
        excesses = _excess_table(cells, reference, number)
        if excesses is not None:
            console.print(excesses)
    if options.output:
        plain = {
            "|".join(map(str, key)): summary(values) for key, values in cells.items()
        }
        Path(options.output).write_text(json.dumps(plain, indent=1))
    return 0


def summary(values: list[float]) -> dict[str, float]:
    """Mean, standard error and median."""
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return {
        "mean": statistics.fmean(values),
        "se": spread / math.sqrt(len(values)),
        "median": statistics.median(values),
    }


def find_source(name: str, folders: Sequence[str]) -> str:
    """Path of a data set in the last folder that has it, or else its name, which may be
    a bundled one.
    """
    source = name
    for folder in folders:
        for suffix in (".npz", ".csv", ".parquet", ".npy"):
            if (Path(folder) / f"{name}{suffix}").is_file():
                source = str(Path(folder) / f"{name}{suffix}")
    return source


def _jobs(options: argparse.Namespace) -> list[Job]:
    """All fits, the non-private one once per seed."""
    jobs = []
    for entry in options.sets:
        name, _, k = entry.rpartition(":")
        source = find_source(name, options.data_dir)
        for algorithm in options.methods:
            for epsilon in (
                options.epsilons if algorithm != "lloyd" else options.epsilons[:1]
            ):
                jobs += [
                    Job(
                        name,
                        source,
                        int(k),
                        algorithm,
                        epsilon,
                        seed,
                        options.packing,
                        options.clients,
                        options.post_processing,
                    )
                    for seed in range(
                        options.first_seed, options.first_seed + options.seeds
                    )
                ]
    return jobs


def _table(
    cells: dict[tuple[str, str, float], list[float]],
    references: list[dict[str, dict[str, float]]],
) -> Table:
    """One row per cell, with the difference to each reference in combined standard
    errors.
    """
    table = Table(title="Cost per point (NICV); seeded noise, not private")
    for column in ("data", "method", "epsilon", "mean", "s.e.", "median"):
        table.add_column(
            column, justify="left" if column in ("data", "method") else "right"
        )
    for number in range(1, len(references) + 1):
        table.add_column(f"reference {number}", justify="right")
        table.add_column("difference / s.e.", justify="right")
        table.add_column("ratio", justify="right")
    for (name, algorithm, epsilon), values in cells.items():
        mean_and_error = summary(values)
        private = algorithm != "lloyd"
        row = [name, algorithm, f"{epsilon:g}" if private else "-"]
        row += [
            f"{mean_and_error['mean']:.5f}",
            f"{mean_and_error['se']:.5f}",
            f"{mean_and_error['median']:.5f}",
        ]
        for reference in references:
            row += _compared(
                mean_and_error, _lookup(reference, name, algorithm, epsilon)
            )
        table.add_row(*row)
    return table


def _excess_table(
    cells: dict[tuple[str, str, float], list[float]],
    reference: dict[str, dict[str, float]],
    number: int,
) -> Table | None:
    """ProxyLloyd's cost above the optimum beside FastLloyd's, and areas.

    None where the reference has no optimum.
    """
    by_name: dict[str, list[tuple[float, float, float]]] = {}
    for (name, algorithm, epsilon), values in cells.items():
        if algorithm != "proxy_lloyd":
            continue
        other = _lookup(reference, name, algorithm, epsilon)
        if other is not None and f"{name}|opt|" in reference:
            point = (epsilon, statistics.fmean(values), other["mean"])
            by_name.setdefault(name, []).append(point)
    if not by_name:
        return None
    table = Table(
        title=(
            f"proxy_lloyd beside FastLloyd of reference {number}: cost above the"
            " optimum"
        )
    )
    for column in ("data", "epsilon", "excess", "FastLloyd's", "ratio"):
        table.add_column(column, justify="left" if column == "data" else "right")
    for name, series in by_name.items():
        optimum = reference[f"{name}|opt|"]["mean"]
        for epsilon, mean, other_mean in series:
            excess, other_excess = mean - optimum, other_mean - optimum
            ratio = f"{excess / other_excess:.3f}" if other_excess > 0.0 else "-"
            table.add_row(
                name, f"{epsilon:g}", f"{excess:.5f}", f"{other_excess:.5f}", ratio
            )
        if len(series) > 1:
            epsilons, means, others = zip(*series, strict=True)
            area, other_area = area_under(epsilons, means), area_under(epsilons, others)
            label = "area under cost"
            table.add_row(
                name,
                label,
                f"{area:.5f}",
                f"{other_area:.5f}",
                f"{area / other_area:.3f}",
                end_section=True,
            )
    return table


def _lookup(
    reference: dict[str, dict[str, float]], name: str, algorithm: str, epsilon: float
) -> dict[str, float] | None:
    """Find a cell of a reference file, whose keys are ``data|Method|epsilon``."""
    label = _REFERENCE_NAMES[algorithm]
    suffixes = ("", "0") if algorithm == "lloyd" else (str(epsilon), f"{epsilon:g}")
    return next(
        (
            reference[f"{name}|{label}|{s}"]
            for s in suffixes
            if f"{name}|{label}|{s}" in reference
        ),
        None,
    )


def _compared(ours: dict[str, float], other: dict[str, float] | None) -> list[str]:
    """Reference mean, difference in standard errors (positive: worse), ratio."""
    if other is None:
        return ["-", "-", "-"]
    error = math.hypot(ours["se"], other["se"])
    difference = (ours["mean"] - other["mean"]) / error if error else 0.0
    return [
        f"{other['mean']:.5f}",
        f"{difference:+.2f}",
        f"{ours['mean'] / other['mean']:.3f}",
    ]


def _parser() -> argparse.ArgumentParser:
    """Command-line options."""
    parser = argparse.ArgumentParser(
        prog="python -m simulations.papers.fastlloyd utility", description=__doc__
    )
    parser.add_argument(
        "--sets",
        nargs="+",
        default=["iris:3", "digits:10", "wine:3"],
        help="NAME:K, bundled or in --data-dir",
    )
    parser.add_argument(
        "--data-dir",
        nargs="*",
        default=[],
        help="folders with NAME.npz, .csv, .parquet or .npy",
    )
    parser.add_argument(
        "--reference",
        nargs="*",
        default=[],
        help="JSON files with keys data|Method|epsilon",
    )
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--packing", default="halve", choices=("halve", "bisect"))
    parser.add_argument(
        "--post-processing", default=None, choices=("fold", "truncate", "none")
    )
    parser.add_argument("--clients", type=int, default=2)
    add_workers(parser)
    parser.add_argument(
        "--output", default="", help="write the cells to this JSON file"
    )
    return parser
