"""What each ingredient of ProxyLloyd is worth, beside FastLloyd.

`python -m simulations.papers.proxy ablation --help`.

Columns are scaled by their own range, the noise is seeded and costs are exact, so these
runs protect nobody.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from flwr_dpkmeans.algorithms.proxy.proxy_options import ProxyOptions
from flwr_dpkmeans.errors import ConfigurationError, DataError, nearest
from simulations.commands import (
    encoded_tables,
    exit_code,
    require_seeds,
    wide_console,
    write_files,
)
from simulations.experiments.clustering_metrics import area_under
from simulations.experiments.workers import add_workers, run_jobs
from simulations.papers.fastlloyd.utility import EPSILONS, find_source
from simulations.papers.proxy.ablation_figure import draw_ratios
from simulations.papers.proxy.ablation_runs import (
    ALL,
    FASTLLOYD,
    MIXTURE,
    VARIANTS,
    DataSet,
    Job,
    optimum,
    points_of,
    run_job,
)

NAME = "ablation"
_SMALLEST_EXCESS = 1e-9
_SEEDS_PER_JOB = 5


@dataclass(frozen=True)
class Cell:
    """Fits of one method on one data set at one epsilon.

    Parameters
    ----------
    data, method : str
    epsilon : float
    mean, se : float
        Cost per point; `se` is 0 for one fit.
    optimum : float
        Best non-private cost per point.
    """

    data: str
    method: str
    epsilon: float
    mean: float
    se: float
    optimum: float

    @property
    def excess(self) -> float:
        """Cost above the optimum, above 0 so that a ratio of it exists."""
        return max(self.mean - self.optimum, _SMALLEST_EXCESS)


@dataclass(frozen=True)
class Worth:
    """What a variant reaches over all epsilons.

    Parameters
    ----------
    variant : str
    ratios : dict of str to float
        Excess over FastLloyd's by data set, as geometric mean over epsilons.
    areas : dict of str to float
        Area under the cost over epsilon, over FastLloyd's; empty with a single epsilon.
    same : tuple of str
        Data sets on which the variant is the algorithm itself.
    """

    variant: str
    ratios: dict[str, float]
    areas: dict[str, float]
    same: tuple[str, ...]

    @property
    def ratio(self) -> float:
        """Geometric mean over the data sets."""
        return statistics.geometric_mean(self.ratios.values())

    @property
    def area(self) -> float:
        """Geometric mean of the ratios of areas."""
        return (
            statistics.geometric_mean(self.areas.values()) if self.areas else math.nan
        )

    def over(self, other: Worth) -> float:
        """Excess over that of another variant, where the two differ."""
        factors = [
            self.ratios[name] / other.ratios[name]
            for name in self.ratios
            if name not in self.same
        ]
        return statistics.geometric_mean(factors) if factors else 1.0


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark, print its table and write it with a figure.

    2 on a mistake of the caller.
    """
    options = _parser().parse_args(arguments)
    return exit_code(lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    """Run, print and write."""
    for seeds in (options.seeds, options.mixture_seeds, options.fastlloyd_seeds):
        require_seeds(options.seeds if seeds is None else seeds)
    unknown = [name for name in options.variants if name not in VARIANTS]
    if unknown:
        raise ConfigurationError(
            f"variant is {unknown[0]!r}, which is not known:"
            f" {nearest(unknown[0], VARIANTS)}"
        )
    variants = tuple(dict.fromkeys((ALL, *options.variants)))
    sets, reference = data_sets(options), _read_reference(options.reference)
    optima = {data.name: reference.get(f"{data.name}|opt|", math.nan) for data in sets}
    optima |= {
        data.name: optimum(data) for data in sets if math.isnan(optima[data.name])
    }
    wide = {
        data.name: points_of(data).shape[1] > ProxyOptions().most_direct_features
        for data in sets
    }
    cells = _referenced(sets, options.epsilons, reference, optima)
    names = {cell.data for cell in cells}
    wanted = [
        (data, method)
        for data in sets
        for method in (FASTLLOYD, *variants)
        if _differs(method, wide[data.name])
    ]
    wanted = [
        (data, method)
        for data, method in wanted
        if method != FASTLLOYD or data.name not in names
    ]
    cells += _simulated(wanted, options, optima)
    worths = [worth_of(variant, cells, sets, options.epsilons) for variant in variants]
    console = wide_console()
    console.print(_summary_table(worths, seeds_said(options)))
    console.print(_epsilon_table(variants, cells, sets, options.epsilons))
    rows = [_row(cell, cells) for cell in cells]
    files = encoded_tables(NAME, vars(options), rows)
    summary = [_plain(worth, worths[0]) for worth in worths]
    plain = {
        "options": vars(options),
        "optima": optima,
        "summary": summary,
        "rows": rows,
    }
    files[f"{NAME}.json"] = (
        json.dumps(plain, indent=1, allow_nan=False).encode() + b"\n"
    )
    files[f"{NAME}.png"] = draw_ratios(
        {w.variant: w.ratios for w in worths}, options.epsilons, seeds_said(options)
    )
    write_files(Path(options.output), files)


def seeds_said(options: argparse.Namespace) -> str:
    """Numbers of seeds, for titles.

    Examples
    --------
    >>> seeds_said(argparse.Namespace(seeds=4, mixture_seeds=1, fastlloyd_seeds=None))
    '4 seeds, mixtures 1'
    """
    others = {"mixtures": options.mixture_seeds, "FastLloyd": options.fastlloyd_seeds}
    lines = [
        f"{name} {number}"
        for name, number in others.items()
        if number and number != options.seeds
    ]
    return ", ".join(
        [f"{options.seeds} seed{'s' if options.seeds > 1 else ''}", *lines]
    )


def data_sets(options: argparse.Namespace) -> list[DataSet]:
    """Data sets as named on the command line.

    Raises
    ------
    ConfigurationError
        If an entry is not NAME:K.
    """
    rows = []
    for entry in options.sets:
        name, _, k = entry.rpartition(":")
        if not name or not k.isdecimal() or int(k) < 1:
            raise ConfigurationError(
                f"set is {entry!r}, but it must be a name and a number of clusters:"
                " give 'iris:3'."
            )
        if name == MIXTURE:
            rows.append(
                DataSet(f"{MIXTURE}-{k}", MIXTURE, int(k), options.mixture_rows)
            )
        else:
            rows.append(DataSet(name, find_source(name, options.data_dir), int(k)))
    return rows


def worth_of(
    variant: str,
    cells: Sequence[Cell],
    sets: Sequence[DataSet],
    epsilons: Sequence[float],
) -> Worth:
    """Compare a variant with FastLloyd.

    Where it has no cells of its own it is the algorithm itself.
    """
    by_key = {(cell.data, cell.method, cell.epsilon): cell for cell in cells}
    ratios, areas, same = {}, {}, []
    for data in sets:
        is_same = (data.name, variant, epsilons[0]) not in by_key
        of_variant = [
            by_key[data.name, ALL if is_same else variant, epsilon]
            for epsilon in epsilons
        ]
        others = [by_key[data.name, FASTLLOYD, epsilon] for epsilon in epsilons]
        pairs = zip(of_variant, others, strict=True)
        ratios[data.name] = statistics.geometric_mean(
            cell.excess / other.excess for cell, other in pairs
        )
        if len(epsilons) > 1:
            means = [[cell.mean for cell in listed] for listed in (of_variant, others)]
            areas[data.name] = area_under(epsilons, means[0]) / area_under(
                epsilons, means[1]
            )
        if is_same:
            same.append(data.name)
    return Worth(variant, ratios, areas, tuple(same))


def _differs(method: str, wide: bool) -> bool:
    """Whether a method has fits of its own on a data set."""
    return method == FASTLLOYD or wide or not VARIANTS[method].wide_only


def _simulated(
    wanted: Sequence[tuple[DataSet, str]],
    options: argparse.Namespace,
    optima: Mapping[str, float],
) -> list[Cell]:
    """Run all fits that are asked for."""
    jobs = [
        Job(data, method, epsilon, chunk)
        for data, method in wanted
        for epsilon in options.epsilons
        for chunk in _chunks(data, method, options)
    ]
    results = run_jobs(
        run_job,
        jobs,
        workers=options.workers,
        chunk=1,
        description="fits (seeded, not private)",
    )
    costs: dict[tuple[str, str, float], list[float]] = {}
    for job, results_of_job in zip(jobs, results, strict=True):
        costs.setdefault((job.data.name, job.variant, job.epsilon), []).extend(
            results_of_job
        )
    return [
        Cell(
            name,
            method,
            epsilon,
            statistics.fmean(values),
            _standard_error(values),
            optima[name],
        )
        for (name, method, epsilon), values in costs.items()
    ]


def _chunks(
    data: DataSet, method: str, options: argparse.Namespace
) -> list[tuple[int, ...]]:
    """Seeds of a method's fits on a data set, those of a job together."""
    number = options.mixture_seeds if data.source == MIXTURE else None
    number = options.fastlloyd_seeds if method == FASTLLOYD else number
    seeds = range(options.first_seed, options.first_seed + (number or options.seeds))
    return [
        tuple(seeds[start : start + _SEEDS_PER_JOB])
        for start in range(0, len(seeds), _SEEDS_PER_JOB)
    ]


def _standard_error(values: Sequence[float]) -> float:
    """Of the mean."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _read_reference(path: str) -> dict[str, float]:
    """Means of a reference file by ``data|Method|epsilon``; none without a path."""
    if not path:
        return {}
    try:
        plain = json.loads(Path(path).read_text())
        return {str(key): float(cell["mean"]) for key, cell in plain.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path} cannot be read as a reference ({type(error).__name__}): give a"
            " JSON file with keys data|Method|epsilon and a mean each."
        ) from error


def _referenced(
    sets: Sequence[DataSet],
    epsilons: Sequence[float],
    reference: Mapping[str, float],
    optima: Mapping[str, float],
) -> list[Cell]:
    """FastLloyd's cells of data sets of which the reference has all epsilons."""
    cells = []
    for data in sets:
        keys = {epsilon: f"{data.name}|{FASTLLOYD}|{epsilon:g}" for epsilon in epsilons}
        keys = {
            epsilon: key if key in reference else f"{key}.0"
            for epsilon, key in keys.items()
        }
        if all(key in reference for key in keys.values()):
            cells += [
                Cell(
                    data.name,
                    FASTLLOYD,
                    epsilon,
                    reference[key],
                    0.0,
                    optima[data.name],
                )
                for epsilon, key in keys.items()
            ]
    return cells


def _row(cell: Cell, cells: Sequence[Cell]) -> dict[str, Any]:
    """One line of the CSV file."""
    (other,) = (
        c
        for c in cells
        if (c.data, c.method, c.epsilon) == (cell.data, FASTLLOYD, cell.epsilon)
    )
    return {
        "data": cell.data,
        "method": cell.method,
        "epsilon": cell.epsilon,
        "mean_cost": cell.mean,
        "se": cell.se,
        "optimum": cell.optimum,
        "excess": cell.excess,
        "excess_ratio": cell.excess / other.excess,
    }


def _plain(worth: Worth, base: Worth) -> dict[str, Any]:
    """One line of the summary, for the JSON file."""
    return {
        "variant": worth.variant,
        "excess_ratio": worth.ratio,
        "over_all": worth.over(base),
        "area_ratio": worth.area if worth.areas else None,
        "excess_ratios": worth.ratios,
        "area_ratios": worth.areas,
    }


def _summary_table(worths: Sequence[Worth], seeds: str) -> Table:
    """One row per variant: excess over FastLloyd's, by data set and in all."""
    table = Table(
        title=(
            f"Excess cost over FastLloyd's, geometric mean over epsilons ({seeds};"
            " seeded noise, not private)"
        ),
        caption=(
            "= : no difference to 'all'; over 'all': mean over the data sets where"
            " there is one; AUC: area under the cost over epsilon, over FastLloyd's"
        ),
    )
    table.add_column("variant")
    for name in (*worths[0].ratios, "all sets", "over 'all'", "AUC"):
        table.add_column(name, justify="right")
    table.add_column("what is changed")
    for worth in worths:
        cells = [
            "=" if name in worth.same else f"{ratio:.3f}"
            for name, ratio in worth.ratios.items()
        ]
        area = f"{worth.area:.3f}" if worth.areas else "-"
        total = [f"{worth.ratio:.3f}", f"{worth.over(worths[0]):.2f}", area]
        table.add_row(worth.variant, *cells, *total, VARIANTS[worth.variant].meaning)
    return table


def _epsilon_table(
    variants: Sequence[str],
    cells: Sequence[Cell],
    sets: Sequence[DataSet],
    epsilons: Sequence[float],
) -> Table:
    """One row per variant: excess over FastLloyd's by epsilon, as geometric mean over
    the data sets.
    """
    table = Table(
        title="Excess cost over FastLloyd's by epsilon, geometric mean over data sets"
    )
    table.add_column("variant")
    for epsilon in epsilons:
        table.add_column(f"{epsilon:g}", justify="right")
    for variant in variants:
        by_epsilon = [
            worth_of(variant, cells, sets, [epsilon]).ratio for epsilon in epsilons
        ]
        table.add_row(variant, *(f"{ratio:.3f}" for ratio in by_epsilon))
    return table


def _parser() -> argparse.ArgumentParser:
    """Command-line options."""
    parser = argparse.ArgumentParser(
        prog="python -m simulations.papers.proxy ablation", description=__doc__
    )
    parser.add_argument(
        "--sets",
        nargs="+",
        default=["iris:3", "wine:3", "digits:10", "mixture:10", "mixture:20"],
        help=(
            "NAME:K, bundled, in --data-dir, or mixture: K Gaussians in 100 dimensions"
        ),
    )
    parser.add_argument(
        "--data-dir",
        nargs="*",
        default=[],
        help="folders with NAME.npz, .csv, .parquet or .npy",
    )
    parser.add_argument("--mixture-rows", type=int, default=20_000)
    parser.add_argument(
        "--reference",
        default="",
        help="JSON file with keys data|FastLloyd|epsilon and data|opt|",
    )
    parser.add_argument(
        "--variants",
        nargs="+",
        default=list(VARIANTS),
        help=", ".join(map(repr, VARIANTS)),
    )
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument(
        "--mixture-seeds",
        type=int,
        help="fits of a variant take longest there (default: --seeds)",
    )
    parser.add_argument(
        "--fastlloyd-seeds", type=int, help="its fits are fast (default: --seeds)"
    )
    parser.add_argument("--first-seed", type=int, default=0)
    add_workers(parser)
    parser.add_argument(
        "--output", default=f"outputs/{NAME}", help="folder for tables and figure"
    )
    return parser
