"""What a cut of 40 released clusters costs, beside runs of their own.

``python -m simulations.benchmarks.hierarchy_costs --data-dir FOLDER`` prints the table:
the cost per row of `Model.cut` at each k over that of a run at that k with the same
epsilon, geometric means over seeds. Columns are scaled by their own range and noise is
seeded, so these runs protect nobody.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from simulations.commands import wide_console
from simulations.papers.fastlloyd.utility import find_source, load_scaled

Array = NDArray[np.float64]
RELEASED = 40
KS = (2, 3, 5, 8, 12, 16, 20, 25)
SETS = ("lsun", "s1", "yeast", "adult")
"""The default: NAME.npz of the folder, or bundled tables."""


def logarithms(points: Array, epsilon: float, seed: int) -> Array:
    """Logarithms of the ratios of costs at each of `KS`, (n,), of one seed."""
    from flwr_dpkmeans import DPKMeans
    from flwr_dpkmeans.kmeans.cost import cost_per_point

    def fitted(n_clusters: int, noise_seed: int) -> DPKMeans:
        return DPKMeans(
            n_clusters,
            bounds=(-1.0, 1.0),
            epsilon=epsilon,
            noise="seeded",
            random_state=noise_seed,
        ).fit(points)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fine = fitted(RELEASED, 1000 + seed).model_
        ratios = [
            cost_per_point(points, fine.cut(k).centroids)
            / cost_per_point(points, fitted(k, seed).cluster_centers_)
            for k in KS
        ]
    return np.log(ratios)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m simulations.benchmarks.hierarchy_costs", description=__doc__
    )
    parser.add_argument("--data-dir", default=".")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args(arguments)
    table = Table(
        title=f"Cost of {RELEASED} clusters cut at k over that of a run at k, epsilon"
        f" {options.epsilon:g}. Seeded noise, not private"
    )
    for heading in ("set", "rows", *map(str, KS), "all"):
        table.add_column(heading, justify="left" if heading == "set" else "right")
    by_set = []
    for name in options.sets:
        points = load_scaled(find_source(name, [options.data_dir]))
        runs = [
            logarithms(points, options.epsilon, seed) for seed in range(options.seeds)
        ]
        by_set.append(np.mean(runs, axis=0))
        table.add_row(name, str(len(points)), *_texts(by_set[-1]))
    table.add_row("geometric mean", "", *_texts(np.mean(by_set, axis=0)))
    wide_console(100).print(table)
    return 0


def _texts(means: Array) -> list[str]:
    """Ratios at each k, and their geometric mean."""
    of_all = float(means.mean())
    return [f"{ratio:.2f}" for ratio in np.exp([*means, of_all])]


if __name__ == "__main__":
    raise SystemExit(main())
