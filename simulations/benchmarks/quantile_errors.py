"""How far ranks of private quantiles are off, beside the exponential mechanism.

``python -m simulations.benchmarks.quantile_errors`` prints the table. The exponential
mechanism (Smith 2011) needs all rows in one place and draws each quantile of each
column by itself, at the epsilon that their composition, by concentrated differential
privacy or by sums, allows; `FederatedQuantiles` has one noisy sum for all of them.
Noise is seeded, so these runs protect nobody.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from numpy.typing import NDArray
from rich.table import Table

from simulations.commands import wide_console

Array = NDArray[np.float64]
Generator = np.random.Generator
DELTA = 1e-6
SIZES = ((1, 1), (1, 9), (5, 3), (20, 3), (20, 19))
"""Numbers of columns, and of quantiles of each."""


@dataclass(frozen=True)
class Shape:
    """A kind of columns with its public bounds."""

    bounds: tuple[float, float]
    draw: Callable[[Generator, tuple[int, int]], Array]


def _zero_inflated(generator: Generator, size: tuple[int, int]) -> Array:
    """Draw costs of which a fifth is zero."""
    costs = generator.gamma(2.0, 5.0, size)
    return np.where(generator.random(size) < 0.2, 0.0, costs)


SHAPES: Mapping[str, Shape] = MappingProxyType(
    {
        "normal": Shape(
            (-6.0, 6.0), lambda generator, size: generator.normal(size=size)
        ),
        "exponential": Shape(
            (0.0, 20.0), lambda generator, size: generator.exponential(size=size)
        ),
        "lognormal": Shape(
            (0.0, 100.0), lambda generator, size: generator.lognormal(size=size)
        ),
        "zero-inflated": Shape((0.0, 100.0), _zero_inflated),
    }
)


def levels_of(n_quantiles: int) -> tuple[float, ...]:
    """Evenly spread levels, the median among an odd number of them."""
    return tuple(np.arange(1, n_quantiles + 1) / (n_quantiles + 1.0))


def share_of_each(epsilon: float, n_draws: int) -> float:
    """Epsilon of each of some exponential mechanisms that are one of (epsilon, DELTA).

    One of epsilon e is e^2/8-zCDP (Cesar and Rogers 2021).
    """
    alone = epsilon / n_draws
    low, high = alone, epsilon
    for _ in range(40):
        middle = math.sqrt(low * high)
        accountant = RdpAccountant()
        accountant.compose(dp_event.ZCDpEvent(n_draws * middle**2 / 8.0))
        if accountant.get_epsilon(DELTA) <= epsilon:
            low = middle
        else:
            high = middle
    return low


def exponential_mechanism(
    column: Array,
    level: float,
    epsilon: float,
    bounds: tuple[float, float],
    generator: Generator,
) -> float:
    """Draw a quantile with chances that fall with the rows that it is off.

    Another row moves a distance in ranks by at most the larger of level, 1 - level.
    """
    ends = np.concatenate([[bounds[0]], np.sort(column), [bounds[1]]])
    distances = np.abs(np.arange(len(column) + 1) - level * len(column))
    moved = max(level, 1.0 - level)
    with np.errstate(divide="ignore"):
        logarithms = np.log(np.diff(ends)) - epsilon * distances / (2.0 * moved)
    # The largest of weights with Gumbel noise is a draw by them.
    between = int(np.argmax(logarithms + generator.gumbel(size=len(logarithms))))
    return float(generator.uniform(ends[between], ends[between + 1]))


def rank_errors(columns: Array, values: Array, levels: Sequence[float]) -> Array:
    """Rows by which values, (n_columns, n_levels), are off, 0 within equal ones."""
    errors = np.zeros(values.shape)
    for index, column in enumerate(columns.T):
        ordered = np.sort(column)
        wanted = np.array(levels) * len(column)
        least = np.searchsorted(ordered, values[index], "left")
        most = np.searchsorted(ordered, values[index], "right")
        errors[index] = np.maximum(0.0, np.maximum(least - wanted, wanted - most))
    return errors


@dataclass(frozen=True)
class Cell:
    """One line of the table: root mean squares in rows, and coverage."""

    shape: str
    n_columns: int
    n_quantiles: int
    ours: float
    mechanism: float
    coverage: float


def measured(options: argparse.Namespace) -> Iterator[Cell]:
    """Run both on the same rows, and yield lines."""
    for name in options.shapes:
        for n_columns, n_quantiles in SIZES:
            runs = [
                _run(name, (n_columns, n_quantiles), seed, options)
                for seed in range(options.seeds)
            ]
            ours, theirs, hits = (np.stack(parts) for parts in zip(*runs, strict=True))
            yield Cell(
                name,
                n_columns,
                n_quantiles,
                float(np.sqrt(np.square(ours).mean())),
                float(np.sqrt(np.square(theirs).mean())),
                float(hits.mean()),
            )


def _run(
    name: str, size: tuple[int, int], seed: int, options: argparse.Namespace
) -> tuple[Array, Array, Array]:
    from flwr_dpkmeans import FederatedQuantiles

    n_columns, n_quantiles = size
    shape = SHAPES[name]
    levels = levels_of(n_quantiles)
    generator = np.random.default_rng([seed, n_columns])
    drawn = shape.draw(generator, (options.rows, n_columns))
    rows = np.clip(drawn, *shape.bounds)
    model = FederatedQuantiles(
        levels,
        epsilon=options.epsilon,
        delta=DELTA,
        bounds=shape.bounds,
        noise="seeded",
        random_state=seed,
        engine="direct",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(np.array_split(rows, 4))
    each = share_of_each(options.epsilon, n_columns * n_quantiles)
    theirs = np.array(
        [
            [
                exponential_mechanism(column, level, each, shape.bounds, generator)
                for level in levels
            ]
            for column in rows.T
        ]
    )
    exact = np.quantile(rows, levels, axis=0, method="inverted_cdf").T
    is_within = (model.lower_ <= exact) & (exact <= model.upper_)
    hits = is_within.astype(np.float64)
    ours = rank_errors(rows, model.quantiles_, levels)
    return ours, rank_errors(rows, theirs, levels), hits


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m simulations.benchmarks.quantile_errors", description=__doc__
    )
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=SHAPES)
    options = parser.parse_args(arguments)
    table = Table(
        title=f"Ranks of quantiles that are off, in rows of {options.rows}, epsilon"
        f" {options.epsilon:g}. Seeded noise, not private"
    )
    for heading in (
        *("shape", "columns", "quantiles", "FederatedQuantiles"),
        *("exponential mechanism", "coverage"),
    ):
        table.add_column(heading, justify="left" if heading == "shape" else "right")
    for cell in measured(options):
        table.add_row(
            cell.shape,
            str(cell.n_columns),
            str(cell.n_quantiles),
            f"{cell.ours:.1f}",
            f"{cell.mechanism:.1f}",
            f"{cell.coverage:.1%}",
        )
    wide_console(100).print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
