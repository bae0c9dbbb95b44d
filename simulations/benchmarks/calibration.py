"""Whether a centre's printed error is true.

`python -m simulations.benchmarks.calibration --help`. For twelve shapes of clusters,
tables of many lengths and many budgets, each centre is compared with the exact mean of
the rows that the model labels with its cluster. Noise is seeded, so these runs protect
nobody.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from simulations.commands import wide_console

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Generator = np.random.Generator
Bounds = tuple[Sequence[float], Sequence[float]]

NORMAL_QUANTILE = 1.96
"""Half-width of a 95% interval in standard deviations."""
ROWS = (1_000, 10_000, 100_000, 300_000)
QUICK_ROWS = (1_000, 10_000)
EPSILONS = (0.25, 0.5, 1.0, 2.0, 10.0)
QUICK_EPSILONS = (0.25, 1.0, 10.0)
WITH_SERVER_POINTS = ("feddp_kmeans", "server_kmeans++", "server_lloyd")
"""Algorithms that start from points of the server's own, drawn like the rows."""
SERVER_POINTS = 500
COVERAGE = (0.93, 0.99)
"""What the coverage of a 95% interval is aimed to lie in."""
WIDEST = 2.0
"""What half-widths are aimed to be at most, in those that the true errors need."""


@dataclass(frozen=True)
class Shape:
    """A kind of clusters.

    Parameters
    ----------
    n_clusters : int
        k.
    bounds : tuple
        Lower and upper bounds of the columns.
    draw : callable
        ``draw(generator, n)`` gives rows, (n, n_features).
    """

    n_clusters: int
    bounds: Bounds
    draw: Callable[[Generator, int], Array]


_AGES = np.array([30.0, 55.0, 80.0])
_WEIGHTS = np.array([60.0, 90.0, 65.0])
_PATIENTS: Bounds = ((0.0, 30.0, 0.0), (110.0, 180.0, 150.0))


def _patients(
    third: Callable[[Generator, Labels], Array],
) -> Shape:
    """Make three clusters of ages and weights with a third column of some shape."""

    def draw(generator: Generator, n: int) -> Array:
        labels = generator.integers(0, 3, n)
        ages = generator.normal(_AGES[labels], 4.0)
        weights = generator.normal(_WEIGHTS[labels], 5.0)
        values = third(generator, labels)
        return np.stack([ages, weights, values], axis=1)

    return Shape(3, _PATIENTS, draw)


def _lognormal(generator: Generator, n: int) -> Array:
    """Draw costs, most of them small."""
    return generator.lognormal(8.5, 1.0, (n, 1))


def _uniform(generator: Generator, n: int) -> Array:
    """Draw rows without gaps between their clusters."""
    return generator.uniform(-1.0, 1.0, (n, 2))


def _mixed_scales(generator: Generator, n: int) -> Array:
    """Draw columns that fill very different parts of their bounds."""
    labels = generator.integers(0, 3, n)
    centres = np.array([[-0.5, 0.1, 0.01], [0.0, -0.1, 0.0], [0.5, 0.0, -0.01]])
    return generator.normal(centres[labels], np.array([0.1, 0.02, 0.004]))


def _unequal_sizes(generator: Generator, n: int) -> Array:
    """Draw clusters of 80, 15 and 5 percent of the rows."""
    labels = generator.choice(3, n, p=[0.8, 0.15, 0.05])
    centres = np.array([[-0.4, -0.4], [0.3, -0.2], [0.1, 0.6]])
    return generator.normal(centres[labels], 0.08)


def _one_far_group(generator: Generator, n: int) -> Array:
    """Draw a twentieth of the rows far from two clusters that lie close together."""
    labels = generator.choice(3, n, p=[0.475, 0.475, 0.05])
    centres = np.array([[-0.8, -0.8], [-0.6, -0.7], [0.8, 0.9]])
    return generator.normal(centres[labels], 0.03)


def _exponential(generator: Generator, labels: Labels) -> Array:
    """Draw laboratory values with a long tail."""
    means = np.array([1.0, 3.0, 20.0])
    return generator.exponential(means[labels])


def _zero_inflated(generator: Generator, labels: Labels) -> Array:
    """Draw values of which four fifths are zero."""
    means = np.array([10.0, 20.0, 30.0])
    values = generator.exponential(means[labels])
    is_positive = generator.random(len(labels)) < 0.2
    return np.where(is_positive, values, 0.0)


def _heavy_tailed(generator: Generator, labels: Labels) -> Array:
    """Draw from Student's distribution with two and a half degrees of freedom."""
    tails = generator.standard_t(2.5, len(labels))
    middles = np.array([40.0, 70.0, 100.0])
    return np.asarray(middles[labels] + 4.0 * tails)


def _discrete(generator: Generator, labels: Labels) -> Array:
    """Draw few values, ten apart."""
    means = np.array([2.0, 5.0, 8.0])
    counts = generator.poisson(means[labels])
    return 10.0 * counts.astype(np.float64)


def _bimodal(generator: Generator, labels: Labels) -> Array:
    """Draw two modes in each cluster, of three and one quarter of its rows."""
    is_high = generator.random(len(labels)) < 0.25
    modes = np.where(is_high, 60.0, 20.0)
    return np.asarray(generator.normal(modes, 3.0))


def _rare_flag(generator: Generator, labels: Labels) -> Array:
    """Draw a flag that one or two percent of the rows have.

    It fills the column's bounds.
    """
    shares = np.array([0.01, 0.02, 0.02])
    has_flag = generator.random(len(labels)) < shares[labels]
    return 150.0 * has_flag.astype(np.float64)


def _gaussian(generator: Generator, labels: Labels) -> Array:
    """Draw values of a bell curve around each cluster's mean."""
    means = np.array([40.0, 60.0, 80.0])
    return generator.normal(means[labels], 6.0)


_SQUARE: Bounds = ((-1.0, -1.0), (1.0, 1.0))
_CUBE: Bounds = ((-1.0, -1.0, -1.0), (1.0, 1.0, 1.0))
SHAPES: Mapping[str, Shape] = MappingProxyType(
    {
        "Gaussian": _patients(_gaussian),
        "exponential": _patients(_exponential),
        "lognormal": Shape(1, ((0.0,), (1e5,)), _lognormal),
        "uniform": Shape(4, _SQUARE, _uniform),
        "discrete": _patients(_discrete),
        "zero-inflated": _patients(_zero_inflated),
        "heavy-tailed": _patients(_heavy_tailed),
        "bimodal": _patients(_bimodal),
        "rare flag": _patients(_rare_flag),
        "mixed scales": Shape(3, _CUBE, _mixed_scales),
        "unequal sizes": Shape(3, _SQUARE, _unequal_sizes),
        "one far group": Shape(3, _SQUARE, _one_far_group),
    }
)


def measured(
    name: str,
    n_rows: int,
    epsilon: float,
    seed: int,
    algorithm: str = "proxy_lloyd",
) -> list[dict[str, object]]:
    """Fit once, and compare every centre with the rows that have its label.

    Returns
    -------
    list of dict
        One for each coordinate: its true error and its printed half-width, both in the
        column's width.
    """
    from flwr_dpkmeans import DPKMeans

    shape = SHAPES[name]
    rows = shape.draw(np.random.default_rng([seed, n_rows]), n_rows)
    lower, upper = map(np.asarray, shape.bounds)
    rows = np.clip(rows, lower, upper)
    # Each cell draws its noise anew: one seed for all would count one draw many times.
    cell_seed = np.random.SeedSequence([seed, n_rows, round(1000 * epsilon)])
    noise_seed = int(cell_seed.generate_state(1)[0])
    server_data = None
    if algorithm in WITH_SERVER_POINTS:
        generator = np.random.default_rng([seed, n_rows, 1])
        server_data = np.clip(shape.draw(generator, SERVER_POINTS), lower, upper)
    model = DPKMeans(
        shape.n_clusters,
        algorithm=algorithm,
        epsilon=epsilon,
        bounds=shape.bounds,
        noise="seeded",
        random_state=noise_seed,
        server_data=server_data,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(rows)
        labels = model.predict(rows)
    cells: list[dict[str, object]] = []
    for cluster, centre in enumerate(model.cluster_centers_):
        members = rows[labels == cluster]
        if not len(members):
            continue
        errors = (centre - members.mean(axis=0)) / (upper - lower)
        widths = model.cluster_centers_error_[cluster] / (upper - lower)
        for column in range(rows.shape[1]):
            cell = {
                "shape": name,
                "n_rows": n_rows,
                "epsilon": epsilon,
                "seed": seed,
                "cluster": cluster,
                "column": column,
                "error": float(errors[column]),
                "half_width": float(widths[column]),
            }
            cells.append(cell)
    return cells


def summary(cells: pd.DataFrame) -> pd.DataFrame:
    """Say of each shape how many intervals cover, and how wide they are.

    Beside those that errors need.

    Parameters
    ----------
    cells : pandas.DataFrame
        What `measured` gives, in rows.

    Returns
    -------
    pandas.DataFrame
        By shape: ``coverage``, ``width`` (the typical half-width of a table's length, a
        budget and a column over 1.96 root mean square errors, the median of all these),
        the ``widest`` of them, and ``n``.
    """
    import pandas as pd

    cells = cells.assign(
        covered=cells["error"].abs() <= cells["half_width"],
        square=cells["error"] ** 2,
    )
    groups = cells.groupby(["shape", "n_rows", "epsilon", "column"], sort=False)
    needed = NORMAL_QUANTILE * np.sqrt(groups["square"].mean())
    ratios = groups["half_width"].median() / needed
    covered = cells.groupby("shape", sort=False)["covered"]
    widths = ratios.groupby("shape", sort=False)
    return pd.DataFrame(
        {
            "coverage": covered.mean(),
            "width": widths.median(),
            "widest": widths.max(),
            "n": covered.size(),
        }
    )


def _table(by_shape: pd.DataFrame) -> Table:
    """One row for each shape."""
    table = Table(
        title="Do 95% intervals hold the exact means? Seeded noise, not private"
    )
    for column in ("shape", "coverage", "width over need", "widest", "coordinates"):
        table.add_column(column, justify="left" if column == "shape" else "right")
    for row in by_shape.itertuples():
        table.add_row(
            str(row.Index),
            f"{row.coverage:.1%}",
            f"{row.width:.2f}",
            f"{row.widest:.2f}",
            str(row.n),
        )
    return table


def draw(by_shape: pd.DataFrame, path: Path) -> None:
    """Draw coverage and width of each shape, with what they are to be, as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    size = (9.0, 0.4 * len(by_shape) + 1.4)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    names = list(by_shape.index)[::-1]
    shown = by_shape.loc[names]
    least = min(0.8, shown["coverage"].min()) - 0.01
    left.axvspan(*COVERAGE, color="0.9")
    left.plot(shown["coverage"], names, "o", color="C0")
    left.set(xlabel="intervals that hold the exact mean", xlim=(least, 1.005))
    right.axvspan(0.0, WIDEST, color="0.9")
    right.plot(shown["width"], names, "o", color="C0")
    right.set(xlabel="half-width over 1.96 root mean square errors", xlim=(0.0, None))
    for axes in (left, right):
        axes.grid(axis="y", color="0.9")
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fits, print the table and draw the figure."""
    import pandas as pd

    options = _parser().parse_args(arguments)
    rows = QUICK_ROWS if options.quick else ROWS
    epsilons = QUICK_EPSILONS if options.quick else EPSILONS
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    jobs = list(product(options.shapes, rows, epsilons, seeds))
    cells: list[dict[str, object]] = []
    for job in track(
        jobs,
        description="fits",
        console=Console(stderr=True),
    ):
        cells += measured(*job, options.algorithm)
    by_shape = summary(pd.DataFrame(cells))
    console = wide_console(100)
    console.print(_table(by_shape))
    if options.figure:
        draw(by_shape, Path(options.figure))
    if options.output:
        text = by_shape.to_json(orient="index", indent=1)
        Path(options.output).write_text(f"{text}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    """Command-line options."""
    parser = argparse.ArgumentParser(
        prog="python -m simulations.benchmarks.calibration", description=__doc__
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="two lengths of tables and three budgets: minutes",
    )
    parser.add_argument(
        "--shapes",
        nargs="+",
        default=list(SHAPES),
        choices=list(SHAPES),
        metavar="SHAPE",
    )
    parser.add_argument("--algorithm", default="proxy_lloyd")
    parser.add_argument(
        "--seeds",
        type=int,
        default=10,
    )
    parser.add_argument(
        "--first-seed",
        type=int,
        default=500,
        help="seeds below 500 chose the estimator's constants",
    )
    parser.add_argument(
        "--figure",
        default="",
        help="draw coverage and widths into this PNG",
    )
    parser.add_argument(
        "--output",
        default="",
        help="write the table to this JSON file",
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
