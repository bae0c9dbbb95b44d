"""Benchmark of one client step: ``python -m simulations.client_step``.

A client step is the assignment of all points to their nearest centroids together with the relative sums and counts
(``relative_statistics``). It is compared with ``sklearn.cluster.KMeans(n_init=1, max_iter=1, init=centroids).fit`` in
the same process on one thread. The runs of both alternate, so that other work on the machine slows both down.
"""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kmeans.lloyd import relative_statistics, round_to_grid
from flwr_dpkmeans.threads import one_thread

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Shape:
    """Size of one problem and a radius that drops a part of its points."""

    n_points: int
    n_features: int
    n_clusters: int
    radius: float

    def __str__(self) -> str:
        return f"{self.n_points:>9,} x {self.n_features:<3} k={self.n_clusters:<3}"


SHAPES = (
    Shape(2_500, 2, 15, 0.3),
    Shape(100_000, 100, 10, 7.4),
    Shape(100_000, 2, 100, 0.1),
    Shape(1_000_000, 10, 20, 1.5),
)


@dataclass(frozen=True)
class Measurement:
    """Run times in milliseconds."""

    times: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median run time."""
        return statistics.median(self.times)

    def __str__(self) -> str:
        low, _, high = statistics.quantiles(self.times, n=4)
        return f"{self.median:8.2f} ms [{low:.2f}, {high:.2f}]"


def naive_statistics(
    points: FloatArray, centroids: FloatArray, radius: float | None
) -> tuple[FloatArray, npt.NDArray[np.float64]]:
    """Compute the same sums one cluster at a time from the plain squared distances."""
    squares = np.stack([((points - centroid) ** 2).sum(axis=1) for centroid in centroids], axis=1)
    labels = squares.argmin(axis=1)
    kept = np.ones(len(points), dtype=bool) if radius is None else squares.min(axis=1) <= radius**2
    members = [points[(labels == j) & kept] for j in range(len(centroids))]
    sums = np.stack([(rows - centroid).sum(axis=0) for rows, centroid in zip(members, centroids, strict=True)])
    return sums, np.array([float(len(rows)) for rows in members])


def alternate(functions: Sequence[Callable[[], object]], repeats: int) -> list[Measurement]:
    """Time the functions in turn, after one run of each that does not count."""
    times: list[list[float]] = [[] for _ in functions]
    for repeat in range(repeats + 1):
        for function, record in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            if repeat:
                record.append(1e3 * (time.perf_counter() - start))
    return [Measurement(tuple(record)) for record in times]


def peak_memory(function: Callable[[], object]) -> float:
    """Return the largest extra memory of one run in MiB; NumPy reports its arrays to tracemalloc."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


def measure(shape: Shape, repeats: int) -> None:
    """Measure and print one shape, without and with the radius."""
    from sklearn.cluster import KMeans

    generator = np.random.default_rng(0)
    points = round_to_grid(generator.uniform(-1.0, 1.0, (shape.n_points, shape.n_features)))
    centroids = round_to_grid(generator.uniform(-1.0, 1.0, (shape.n_clusters, shape.n_features)))

    def fit() -> object:
        return KMeans(shape.n_clusters, n_init=1, max_iter=1, init=centroids).fit(points)

    def step() -> object:
        return relative_statistics(points, centroids, None)

    def step_with_radius() -> object:
        return relative_statistics(points, centroids, shape.radius)

    reference, plain, clipped = alternate([fit, step, step_with_radius], repeats)
    print(f"{shape}  scikit-learn      {reference}")
    for radius, measured, function in ((None, plain, step), (shape.radius, clipped, step_with_radius)):
        sums, counts = relative_statistics(points, centroids, radius)
        expected_sums, expected_counts = naive_statistics(points, centroids, radius)
        equal = np.array_equal(sums, expected_sums) and np.array_equal(counts, expected_counts)
        name = "no radius" if radius is None else f"radius {radius:g}"
        print(
            f"{'':24}ours, {name:<11} {measured}  ratio {measured.median / reference.median:.2f}"
            f"  peak {peak_memory(function):.1f} MiB  kept {counts.sum() / len(points):.0%}"
            f"  equal to naive: {'yes' if equal else 'NO'}",
            flush=True,
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark on one thread."""
    from sklearn.exceptions import ConvergenceWarning

    parser = argparse.ArgumentParser(description="Time one client step against scikit-learn, on one thread.")
    parser.add_argument("--repeats", type=int, default=15, help="timed runs of each function, at least 2 (default: 15)")
    options = parser.parse_args(arguments)
    print("median [lower quartile, upper quartile] over", options.repeats, "alternating runs; one thread")
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for shape in SHAPES:
            measure(shape, options.repeats)


if __name__ == "__main__":
    main()
