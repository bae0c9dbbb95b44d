"""Time and bytes of the masked protocol in process: `python -m simulations.protocol_cost --help`.

Everything is included: plan, keys, masks, noise, Flower messages, unmasking, post-processing.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Message
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.data.bundled import load_source
from flwr_dpkmeans.flower.inprocess import InProcessGrid
from flwr_dpkmeans.flower.records import VECTOR_RECORD


@dataclass(frozen=True)
class Case:
    """One size to measure: rows, features, clusters, clients."""

    n_examples: int
    n_features: int
    n_clusters: int
    n_clients: int


CASES = (Case(5_000, 2, 15, 2), Case(1_797, 64, 10, 10), Case(10_000, 5, 5, 2), Case(100_000, 5, 5, 2))


def make_points(case: Case, seed: int = 0) -> NDArray[np.float64]:
    """Gaussian clusters in the box [-1, 1]^d."""
    generator = np.random.default_rng(seed)
    centres = generator.uniform(-0.8, 0.8, (case.n_clusters, case.n_features))
    labels = generator.integers(0, case.n_clusters, case.n_examples)
    points = centres[labels] + generator.normal(0.0, 0.06, (case.n_examples, case.n_features))
    return np.asarray(np.clip(points, -1.0, 1.0))


def time_fits(
    points: NDArray[np.float64], case: Case, noise: str, epsilon: float, repeats: int
) -> tuple[list[float], int]:
    """Milliseconds of whole fits after a warm-up, and the number of iterations."""
    parts = np.array_split(points, case.n_clients)
    times = []
    n_iter = 0
    for seed in range(repeats + 2):
        model = FederatedKMeans(
            case.n_clusters,
            epsilon=epsilon,
            noise=noise,
            random_state=seed,
            bounds=(tuple(points.min(axis=0)), tuple(points.max(axis=0))),
            packing="halve",
        )
        start = time.perf_counter()
        model.fit(parts)
        times.append(1e3 * (time.perf_counter() - start))
        n_iter = model.n_iter_
    return times[2:], n_iter


def bytes_of_replies(case: Case) -> tuple[int, int]:
    """Payload and whole size in bytes of one client's reply in a middle iteration."""
    seen: list[Message] = []
    deliver = InProcessGrid._deliver

    def keep(grid: InProcessGrid, message: Message) -> list[Message]:
        replies = deliver(grid, message)
        seen.extend(replies)
        return replies

    InProcessGrid._deliver = keep  # type: ignore[method-assign]
    try:
        time_fits(make_points(case), case, "seeded", 1.0, -1)
    finally:
        InProcessGrid._deliver = deliver  # type: ignore[method-assign]
    sums = [reply for reply in seen if VECTOR_RECORD in reply.content]
    last = sums[-1]
    payload = len(last.content.array_records[VECTOR_RECORD]["vector"].data)
    return payload, _nested_size(last)


def _nested_size(item: Any) -> int:
    """Bytes of an object as Flower serialises it, with everything inside."""
    return len(item.deflate()) + sum(_nested_size(child) for child in (item.children or {}).values())


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m simulations.protocol_cost", description=__doc__)
    parser.add_argument("--data", default="", help="a file instead of generated points, with --clusters and --clients")
    parser.add_argument("--clusters", type=int, default=15)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--noise", nargs="+", default=["seeded", "secure"], choices=("seeded", "secure"))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 1.0])
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    from threadpoolctl import threadpool_limits

    table = Table(title="Whole fits in process, one thread; a reply is one client's masked vector of one iteration")
    columns = ("rows", "features", "clusters", "clients", "noise", "epsilon", "iterations", "median ms", "spread ms")
    for column in (*columns, "payload bytes", "8(kd+k)", "whole reply bytes"):
        table.add_column(column, justify="right")
    cases = [(case, make_points(case)) for case in CASES]
    if options.data:
        points = load_source(options.data).points
        cases = [(Case(len(points), points.shape[1], options.clusters, options.clients), points)]
    with threadpool_limits(1):
        for case, points in cases:
            payload, whole = bytes_of_replies(case)
            for noise in options.noise:
                for epsilon in options.epsilons:
                    times, n_iter = time_fits(points, case, noise, epsilon, options.repeats)
                    quartiles = statistics.quantiles(times, n=4)
                    row = [case.n_examples, case.n_features, case.n_clusters, case.n_clients, noise, epsilon, n_iter]
                    row += [f"{statistics.median(times):.1f}", f"{quartiles[0]:.1f}-{quartiles[2]:.1f}"]
                    expected = 8 * (case.n_clusters * case.n_features + case.n_clusters)
                    table.add_row(*map(str, [*row, payload, expected, whole]))
    Console(width=150).print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
