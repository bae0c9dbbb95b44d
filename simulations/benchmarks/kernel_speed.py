"""Processor seconds of noise and of ProxyLloyd's passes.

``python -m simulations.benchmarks.kernel_speed``.

Beside each kernel of a pass stands what the machine could do: its floating-point
operations at the rate of one large matrix product, or its bytes at the rate of one
large copy, whichever takes longer, measured in the same run. Processor seconds suffer
little from other work on the machine; wall seconds are told beside where threads
matter.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rich.table import Table

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.baselines.cover_points import Draws
from flwr_dpkmeans.baselines.max_cover import max_cover
from flwr_dpkmeans.kernels.assignment import nearest_labels
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kernels.outer_products import outer_product_triangle
from flwr_dpkmeans.kernels.residual_sums import residual_sums
from flwr_dpkmeans.privacy.noise import OpenDPNoise, SecureNoise
from flwr_dpkmeans.threads import one_thread
from simulations.commands import exit_code, wide_console
from simulations.sources.synthetic import draw_max_cover_mixture

FloatArray = npt.NDArray[np.float64]
K, D, N_PROXIES, N_AXES = 20, 20, 200, 12
"""Of ProxyLloyd's benchmark: clusters, columns, proxies, and axes that they are seen
along.
"""
PARTIES = 5
WIDTH = 819
"""Columns whose outer product FedDP-KMeans' clients add noise to, 335,790 numbers each.
"""
SIDE = 2048
"""Of the matrices that the machine's rates are measured with."""


@dataclass(frozen=True)
class Timing:
    """Seconds of several runs: processor time of all threads, and wall time."""

    cpu: tuple[float, ...]
    wall: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median processor seconds."""
        return statistics.median(self.cpu)

    def __str__(self) -> str:
        return f"{self.median:.3g} [{min(self.cpu):.3g}, {max(self.cpu):.3g}]"


def timed(run: Callable[[], object], repeats: int) -> Timing:
    """Time a run several times, after one that does not count."""
    run()
    (timing,) = timed_in_turns([run], repeats)
    return timing


def timed_in_turns(
    runs: Sequence[Callable[[], object]], repeats: int
) -> tuple[Timing, ...]:
    """Time runs one after the other, several times over.

    So other work on the machine meets all of them.
    """
    cpu: list[list[float]] = [[] for _ in runs]
    wall: list[list[float]] = [[] for _ in runs]
    for _ in range(repeats):
        for index, run in enumerate(runs):
            first, started = time.process_time(), time.perf_counter()
            run()
            cpu[index].append(time.process_time() - first)
            wall[index].append(time.perf_counter() - started)
    pairs = zip(cpu, wall, strict=True)
    return tuple(Timing(tuple(of_cpu), tuple(of_wall)) for of_cpu, of_wall in pairs)


def rates(repeats: int) -> tuple[float, float]:
    """What one thread of this machine does a second.

    Floating-point operations, and bytes read and written.
    """
    left, out = np.random.default_rng(0).random((SIDE, SIDE)), np.empty((SIDE, SIDE))
    flops = (
        2.0 * SIDE**3 / timed(lambda: np.matmul(left, left, out=out), repeats).median
    )

    def copied() -> None:
        for _ in range(8):
            np.copyto(out, left)

    return flops, 2.0 * left.nbytes * 8 / timed(copied, repeats).median


def noise_table(repeats: int) -> Table:
    """Discrete Gaussians a second, and what runs of many of them take."""
    table = Table(
        "noise",
        "processor seconds: median [least, most]",
        "numbers a second",
        title="Exact noise",
    )
    std, size = 65537.5, WIDTH * (WIDTH + 1) // 2
    generator = np.random.default_rng(0)
    points = draw_max_cover_mixture(generator).points

    def cover() -> object:
        seeds = np.random.default_rng(1)
        return max_cover(
            points, 64, epsilon=1.0, delta=1e-6, draws=Draws(SecureNoise(), seeds)
        )

    cases: list[tuple[str, Callable[[], object], int]] = [
        (
            "this project's, 1,000,000",
            lambda: SecureNoise().discrete_gaussian(std, 1_000_000),
            1_000_000,
        ),
        (
            "OpenDP's, 20,000",
            lambda: OpenDPNoise().discrete_gaussian(std, 20_000),
            20_000,
        ),
        (
            "NumPy's doubles, rounded, 1,000,000",
            lambda: np.rint(generator.normal(0.0, std, 1_000_000)),
            1_000_000,
        ),
        (
            f"this project's, a client's outer product at d = {WIDTH}",
            lambda: SecureNoise().discrete_gaussian(std, size),
            size,
        ),
        ("max cover, 50,000 x 100, k = 64, whole", cover, 0),
    ]
    for name, run, n_numbers in cases:
        seconds = timed(run, repeats)
        table.add_row(
            name, str(seconds), f"{n_numbers / seconds.median:.2g}" if n_numbers else ""
        )
    return table


def kernel_table(n_rows: int, repeats: int) -> Table:
    """Each kernel of a pass over the rows beside the machine's rates."""
    flops, bytes_each = rates(repeats)
    title = (
        f"{n_rows:,} rows, one thread; the machine: {flops / 1e9:.0f} GFlop/s"
        f" (product), {bytes_each / 1e9:.1f} GB/s"
    )
    table = Table(
        "kernel",
        "processor seconds",
        "GFlop",
        "GB",
        "at the machine's rates",
        "part reached",
        title=title,
    )
    generator = np.random.default_rng(0)
    rows = round_to_grid(generator.uniform(-1.0, 1.0, (n_rows, D)))
    projected = np.ascontiguousarray(rows[:, :N_AXES])
    proxies = round_to_grid(generator.uniform(-1.0, 1.0, (N_PROXIES, N_AXES)))
    centers = round_to_grid(generator.uniform(-1.0, 1.0, (K, D)))
    labels = nearest_labels(rows, centers)
    cases: list[tuple[str, Callable[[], object], float, float]] = [
        # name, run, operations of a row, numbers of a row that must be read or written
        (
            f"labels of {N_PROXIES} proxies, {N_AXES} axes",
            lambda: nearest_labels(projected, proxies),
            2.0 * N_PROXIES * N_AXES,
            N_AXES,
        ),
        (
            f"labels of {K} centers, {D} columns",
            lambda: nearest_labels(rows, centers),
            2.0 * K * D,
            D,
        ),
        (
            "clipped unit residuals, summed",
            lambda: residual_sums(rows, labels, centers, 0.5, K),
            8.0 * D,
            D,
        ),
        ("outer products", lambda: outer_product_triangle(rows), 2.0 * D * D, D),
    ]
    for name, run, operations, numbers in cases:
        seconds = timed(run, repeats)
        needed = operations * n_rows / 1e9, 8.0 * numbers * n_rows / 1e9
        bound = max(needed[0] * 1e9 / flops, needed[1] * 1e9 / bytes_each)
        figures = (
            f"{needed[0]:.2f}",
            f"{needed[1]:.2f}",
            f"{bound:.3f}",
            f"{100 * bound / seconds.median:.0f}%",
        )
        table.add_row(name, str(seconds), *figures)
    return table


def clustered_rows(n_rows: int, n_columns: int, n_clusters: int) -> FloatArray:
    """Draw rows of Gaussian clusters, in [-1, 1]."""
    draws = np.random.default_rng(0)
    middles = draws.uniform(-0.8, 0.8, (n_clusters, n_columns))
    labels = draws.integers(n_clusters, size=n_rows)
    noise = draws.normal(0.0, 0.1, (n_rows, n_columns))
    return np.clip(middles[labels] + noise, -1.0, 1.0)


def fit_table(n_rows: int, repeats: int) -> Table:
    """Whole fits of five parties beside scikit-learn's on the same rows."""
    from sklearn.cluster import KMeans

    rows = clustered_rows(n_rows, D, K)
    parts = np.array_split(rows, PARTIES)

    def private(algorithm: str, engine: str) -> Callable[[], object]:
        def fit() -> object:
            model = FederatedKMeans(
                K,
                algorithm=algorithm,
                bounds=(-1.0, 1.0),
                random_state=0,
                n_examples=n_rows,
                engine=engine,
            )
            return model.fit(parts)

        return fit

    cases: dict[str, Callable[[], object]] = {
        "ProxyLloyd, direct": private("proxy_lloyd", "direct"),
        "ProxyLloyd, in process": private("proxy_lloyd", "inprocess"),
        "FastLloyd, direct": private("fastlloyd", "direct"),
        "scikit-learn, 9 iterations": (
            lambda: KMeans(K, n_init=1, max_iter=9, tol=0.0, init=rows[:K]).fit(rows)
        ),
    }
    title = f"{n_rows:,} x {D}, k = {K}, {PARTIES} parties"
    table = Table(
        "fit", "processor seconds: median [least, most]", "wall seconds", title=title
    )
    for name, run in cases.items():
        seconds = timed(run, repeats)
        table.add_row(name, str(seconds), f"{statistics.median(seconds.wall):.3g}")
    return table


def tables(n_rows: int, repeats: int) -> Iterator[Table]:
    """All of them, as they are measured."""
    yield noise_table(repeats)
    yield kernel_table(n_rows, repeats)
    yield fit_table(n_rows, repeats)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m simulations.benchmarks.kernel_speed", description=__doc__
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=1_000_000,
        help="of ProxyLloyd's table (default: %(default)s)",
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=3,
        help="timed runs of each (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    if options.rows < 1000 or options.repeats < 1:
        parser.error(
            f"rows is {options.rows} and repeats {options.repeats}, but they must be at"
            " least 1000 and 1."
        )
    console = wide_console()
    with warnings.catch_warnings(), one_thread():
        warnings.simplefilter("ignore")
        for table in tables(options.rows, options.repeats):
            console.print(table)
    console.print(
        f"{os.cpu_count()} processors; load averages:"
        f" {', '.join(f'{load:.1f}' for load in os.getloadavg())}"
    )


if __name__ == "__main__":
    raise SystemExit(exit_code(main))
