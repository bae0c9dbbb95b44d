"""How fast private fits are, beside scikit-learn's on the same rows in the same run.

``python -m simulations.benchmarks.speed [--quick] [--clients 1000]``.

Each figure is a ratio of medians: seconds of a private fit over those of scikit-learn's
`KMeans` with as many iterations as the fit has passes over the rows. Fits of both take
turns, so that other work on the machine meets both. One table compares the compiled
kernels with NumPy's, whose results are compared bit by bit; one is of shapes; one of
many virtual clients; and the kernels stand beside what the machine could do.
"""

from __future__ import annotations

import argparse
import os
import statistics
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from rich.table import Table
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.kernels.implementation import Implementation, kernels, using
from flwr_dpkmeans.options import Cohort
from flwr_dpkmeans.resources import (
    ResourceLimits,
    resource_limits,
    usable_processors,
)
from flwr_dpkmeans.threads import one_thread
from simulations.benchmarks.kernel_speed import (
    FloatArray,
    Timing,
    clustered_rows,
    kernel_table,
    timed,
    timed_in_turns,
)
from simulations.benchmarks.scale import published_table
from simulations.commands import exit_code, wide_console

N_PARTIES = 5
CLIENT_ROWS, CLIENT_COLUMNS, CLIENT_CLUSTERS = 50, 100, 10
YARDSTICK = "1,000,000 x 20, k = 20, nine iterations of scikit-learn, one thread"


@dataclass(frozen=True)
class Shape:
    """A table of Gaussian clusters, and what is asked of it."""

    n_rows: int
    n_columns: int
    n_clusters: int
    algorithm: str = "proxy_lloyd"
    engine: str = "direct"
    n_threads: int = 1

    @property
    def name(self) -> str:
        """The shape in words."""
        size = f"{self.n_rows:,} x {self.n_columns}, k = {self.n_clusters}"
        threads = f", {self.n_threads} threads" if self.n_threads > 1 else ""
        return f"{self.algorithm}, {size}, {self.engine}{threads}"

    def rows(self) -> FloatArray:
        """Draw the table, in [-1, 1]."""
        return clustered_rows(self.n_rows, self.n_columns, self.n_clusters)

    def model(self) -> FederatedKMeans:
        """Make the estimator."""
        points = None
        if self.algorithm == "feddp_kmeans":
            draws = np.random.default_rng(1)
            points = draws.uniform(-1.0, 1.0, (20 * self.n_clusters, self.n_columns))
        return FederatedKMeans(
            self.n_clusters,
            algorithm=self.algorithm,
            epsilon=1.0,
            bounds=(-1.0, 1.0),
            noise="seeded",
            random_state=0,
            engine=self.engine,
            server_data=points,
        )


WHOLE: tuple[Shape, ...] = (
    Shape(1_000_000, 20, 20),
    Shape(1_000_000, 20, 20, n_threads=2),
    Shape(1_000_000, 20, 20, engine="inprocess"),
    Shape(1_000_000, 20, 20, algorithm="fastlloyd"),
    Shape(1_000_000, 100, 20, algorithm="feddp_kmeans"),
)
SHAPES: tuple[Shape, ...] = (
    Shape(2_000_000, 2, 20),
    Shape(300_000, 100, 20),
    Shape(50_000, 784, 20),
    Shape(10_000, 3000, 20),
    Shape(1_000_000, 20, 2),
    Shape(500_000, 20, 100),
    Shape(200_000, 20, 1000),
)


def seconds_of(timing: Timing, n_threads: int) -> float:
    """Median seconds: of the processor for one thread, else of the clock."""
    return timing.median if n_threads == 1 else statistics.median(timing.wall)


def of_scikit_learn(
    rows: FloatArray, n_clusters: int, n_iterations: int, n_threads: int
) -> Callable[[], None]:
    """Make what fits scikit-learn's k-means with so many iterations."""

    def fit() -> None:
        first = rows[:n_clusters]
        model = KMeans(n_clusters, n_init=1, max_iter=n_iterations, tol=0.0, init=first)
        with threadpool_limits(n_threads):
            model.fit(rows)

    return fit


def fit_table(shapes: Sequence[Shape], title: str, repeats: int) -> Table:
    """Fits with each implementation beside scikit-learn's."""
    table = Table(
        "fit", "passes", "scikit-learn, s", "compiled", "NumPy", "equal", title=title
    )
    for shape in shapes:
        table.add_row(*_row_of(shape, repeats))
    return table


def _row_of(shape: Shape, repeats: int) -> Iterator[str]:
    rows = shape.rows()
    parts = np.array_split(rows, N_PARTIES)
    fitted: dict[Implementation, FederatedKMeans] = {}

    def private(implementation: Implementation) -> Callable[[], None]:
        def fit() -> None:
            with using(implementation):
                fitted[implementation] = shape.model().fit(parts)

        return fit

    private(Implementation.NUMPY)()
    n_passes = len(fitted[Implementation.NUMPY].history_)

    n_threads = shape.n_threads
    public = of_scikit_learn(rows, shape.n_clusters, n_passes, n_threads)
    runs: list[Callable[[], object]] = [public, private(Implementation.NUMPY)]
    if kernels().library is not None:
        runs.append(private(Implementation.COMPILED))
    with resource_limits(ResourceLimits(n_processors=shape.n_threads)):
        timings = timed_in_turns(runs, repeats)
    seconds = [seconds_of(timing, n_threads) for timing in timings]
    public_seconds = seconds[0]
    yield shape.name
    yield str(n_passes)
    yield f"{public_seconds:.3g}"
    if len(seconds) == 2:
        yield "not installed"
    else:
        yield f"{seconds[2] / public_seconds:.2f}"
    yield f"{seconds[1] / public_seconds:.2f}"
    centers = [model.cluster_centers_.tobytes() for model in fitted.values()]
    yield "yes" if len(set(centers)) == 1 else "NO"


def client_table(numbers: Sequence[int], repeats: int) -> Table:
    """Many virtual clients, in multiples of the yardstick."""
    rows = clustered_rows(1_000_000, 20, 20)
    yardstick = timed(of_scikit_learn(rows, 20, 9, 1), max(3, repeats))
    unit = yardstick.median
    title = (
        f"FedDP-KMeans, client level, {CLIENT_ROWS} x {CLIENT_COLUMNS} each; 1 is"
        f" {unit:.3g} s: {YARDSTICK}"
    )
    table = Table("clients", "without masks", "with masks", title=title)
    for n_clients in numbers:
        runs = [_clients(n_clients, masking=False), _clients(n_clients, masking=True)]
        timings = timed_in_turns(runs, 1)
        ratios = [f"{timing.median / unit:.2f}" for timing in timings]
        table.add_row(f"{n_clients:,}", *ratios)
    return table


def table_of_client(number: int) -> FloatArray:
    """Draw the rows of a virtual client, always the same."""
    middles = _middles_of_clusters()
    draws = np.random.default_rng([1, number])
    labels = draws.integers(CLIENT_CLUSTERS, size=CLIENT_ROWS)
    noise = draws.normal(0.0, 0.3, (CLIENT_ROWS, CLIENT_COLUMNS))
    return np.clip(middles[labels] + noise, -4.0, 4.0)


@cache
def _middles_of_clusters() -> FloatArray:
    middles = np.random.default_rng(0).normal(size=(CLIENT_CLUSTERS, CLIENT_COLUMNS))
    middles *= 3.0 / np.linalg.norm(middles, axis=1, keepdims=True)
    return middles


def _clients(n_clients: int, *, masking: bool) -> Callable[[], object]:
    server_points = np.vstack([table_of_client(10**6 + n) for n in range(20)])

    def fit() -> object:
        model = FederatedKMeans(
            CLIENT_CLUSTERS,
            algorithm="feddp_kmeans",
            epsilon=1.0,
            bounds=(-4.0, 4.0),
            noise="seeded",
            random_state=0,
            engine="direct",
            unit="client",
            server_data=server_points,
            cohort=Cohort(masking=masking),
        )
        return model.fit(clients=table_of_client, n_clients=n_clients)

    return fit


def tables(options: argparse.Namespace) -> Iterator[Table]:
    """All of them, as they are measured."""
    whole, shapes, n_rows = WHOLE, SHAPES, 1_000_000
    if options.quick:
        whole, shapes, n_rows = (Shape(20_000, 20, 20),), (Shape(5000, 2, 5),), 10_000
    yield fit_table(whole, "Seconds over scikit-learn's", options.repeats)
    yield fit_table(shapes, "The same of other shapes", options.repeats)
    yield client_table(options.clients, options.repeats)
    for implementation in Implementation:
        if implementation is Implementation.NUMPY or kernels().library is not None:
            with using(implementation), one_thread():
                table = kernel_table(n_rows, options.repeats)
            table.title = f"{implementation.value}: {table.title}"
            yield table
    yield published_table()


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m simulations.benchmarks.speed", description=__doc__
    )
    parser.add_argument("--quick", action="store_true", help="small tables")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each")
    parser.add_argument(
        "--clients", type=int, nargs="*", default=[1000], help="virtual clients"
    )
    options = parser.parse_args(arguments)
    console = wide_console()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for table in tables(options):
            console.print(table)
    loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    console.print(f"{usable_processors()} processors; load averages: {loads}")
    console.print(kernels().because)


if __name__ == "__main__":
    raise SystemExit(exit_code(main))
