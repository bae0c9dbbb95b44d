"""FedDP-KMeans' Table 1 and the conditions of its appendix on data at hand.

`python -m simulations.papers.feddp_theory`.

Arguments are those of `simulations.run`, such as ``data=mixture n_clients=100
data.rows_per_client=1000`` (the default, the paper's record level) or ``data=census
data.employment=5``; ``privacy.epsilon`` counts. Exact rows are looked at, so nothing
here is private. Where a bound has an unknown constant it is taken as 1.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.baselines.pooled import run_kmeans
from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError
from flwr_dpkmeans.kmeans.cost import cost_per_point
from simulations.experiments.datasets import load_data_set
from simulations.experiments.expansion import expand

Array = NDArray[np.float64]

DEFAULTS = ("data=mixture", "n_clients=100", "data.rows_per_client=1000")
MARGIN = 1.0 / 3.0
"""Of Algorithm 5, part 2."""
_STARTS = 5
_MOST_ROWS = 20_000


@dataclass(frozen=True)
class Measured:
    """What the conditions are about.

    Parameters
    ----------
    n, d, k, n_server : int
        Rows, features, clusters, and points of the server.
    radius, server_radius : float
        Delta: the largest norm of a row (Table 1), and of a server's point, which is
        all that may be known of it.
    deviation : float
        sigma_max: the root of the cost per point of the best centres, over the root of
        d where the rows are a drawn mixture of round Gaussians; else as it is, which
        the paper takes as an upper bound.
    least_weight : float
        w_min: the smallest cluster's part of the rows.
    clear : float
        Part of the rows that Algorithm 5 keeps: in the plane of the leading directions
        three times nearer to one centre than to any other.
    epsilon : float
    apart : float
        Distance of the two nearest centres.
    """

    n: int
    d: int
    k: int
    n_server: int
    radius: float
    server_radius: float
    deviation: float
    least_weight: float
    clear: float
    epsilon: float
    apart: float

    @property
    def diameter_bound(self) -> float:
        """Right side of assumption (1): k log^2(n) sigma sqrt(d) / (epsilon w_min)."""
        return (
            self.k
            * math.log(self.n) ** 2
            * self.deviation
            * math.sqrt(self.d)
            / (self.epsilon * self.least_weight)
        )

    @property
    def server_bound(self) -> float:
        """Right side of assumption (2): epsilon n k log(n) sigma^2 / Delta^2."""
        return (
            self.epsilon
            * self.n
            * self.k
            * math.log(self.n)
            * self.deviation**2
            / self.radius**2
        )

    @property
    def separation_bound(self) -> float:
        """Right side of Definition 2: sqrt(k / w_min) sigma log(n)."""
        return math.sqrt(self.k / self.least_weight) * self.deviation * math.log(self.n)

    @property
    def rows_bound(self) -> float:
        """Rows of Theorem 3: k log^3(n) sqrt(d) sigma / (epsilon w_min)^2."""
        return (
            self.diameter_bound * math.log(self.n) / (self.epsilon * self.least_weight)
        )

    @property
    def lemma_distance(self) -> float:
        """D of Lemma 17, which connects server points: 4 log(n) sqrt(d) sigma."""
        return 4.0 * math.log(self.n) * math.sqrt(self.d) * self.deviation

    @property
    def simplify_rounds(self) -> int:
        """Rounds of Algorithm 4, whose loop goes from 0 to T = 10 log(4 log|Q| /
        (epsilon w_min)).
        """
        inside = (
            4.0 * math.log(max(2, self.n_server)) / (self.epsilon * self.least_weight)
        )
        return 1 + max(0, math.ceil(10.0 * math.log(inside)))


def measure(
    points: Array,
    server_points: Array,
    k: int,
    epsilon: float,
    *,
    means: Array | None = None,
    seed: int = 0,
) -> Measured:
    """Measure rows, (n, d), beside the server's, (m, d).

    `means`, (k, d), are the true ones of a drawn mixture.
    """
    from scipy.spatial.distance import pdist

    generator = np.random.default_rng(seed)
    some = points[generator.permutation(len(points))[:_MOST_ROWS]]
    centres = (
        run_kmeans(some, k, n_init=_STARTS, random_state=seed)
        if means is None
        else means
    )
    distances = np.stack(
        [((points - centre) ** 2).sum(axis=1) for centre in centres], axis=1
    )
    weights = np.bincount(distances.argmin(axis=1), minlength=len(centres)) / len(
        points
    )
    spread = math.sqrt(cost_per_point(points, centres))
    return Measured(
        len(points),
        points.shape[1],
        k,
        len(server_points),
        float(np.linalg.norm(points, axis=1).max()),
        float(np.linalg.norm(server_points, axis=1).max()),
        spread if means is None else spread / math.sqrt(points.shape[1]),
        float(weights.min()),
        clear_rows(some, centres, MARGIN),
        epsilon,
        float(pdist(centres).min(initial=math.inf)),
    )


def clear_rows(points: Array, centres: Array, margin: float) -> float:
    """Part of rows whose nearest centre is by a margin nearer than the second, in the
    plane of the leading directions.

    Examples
    --------
    >>> clear_rows(np.array([[0.0], [1.0], [1.6]]), np.array([[0.0], [2.0]]), 1 / 3)
    0.6666666666666666
    """
    _, directions = np.linalg.eigh(points.T @ points)
    plane = directions[:, -len(centres) :]
    shown, moved = points @ plane, centres @ plane
    nearest, second = np.sort(
        np.linalg.norm(shown[:, None, :] - moved, axis=2), axis=1
    )[:, :2].T
    return float((nearest <= margin * second).mean())


def conditions(measured: Measured) -> list[str]:
    """The conditions, one in a line, each with what follows."""
    holds = {True: "holds", False: "does not hold"}
    assumption_1 = holds[measured.radius <= measured.diameter_bound]
    assumption_2 = holds[measured.n_server <= measured.server_bound]
    definition_2 = holds[measured.apart >= measured.separation_bound]
    theorem_3 = holds[measured.n >= measured.rows_bound]
    least = 2.0 * math.log(measured.n) / measured.epsilon
    mean = measured.n / max(1, measured.n_server)
    connected = "all of them, so it changes nothing in"
    if 2.0 * measured.radius > measured.lemma_distance:
        connected = "it may part"
    return [
        (
            f"table 1: Delta = {measured.radius:.2f}, by the server's points"
            f" {measured.server_radius:.2f} (n = {measured.n:,}, d = {measured.d}, k ="
            f" {measured.k}, sigma = {measured.deviation:.3g}, w_min ="
            f" {measured.least_weight:.3g}, epsilon = {measured.epsilon:g})"
        ),
        (f"assumption (1), Delta <= {measured.diameter_bound:.4g}: {assumption_1}"),
        (
            f"assumption (2), |Q| = {measured.n_server} <="
            f" {measured.server_bound:.4g}: {assumption_2}"
        ),
        (
            f"definition 2, centres >= {measured.separation_bound:.4g} apart, here"
            f" {measured.apart:.4g}: {definition_2}"
        ),
        f"theorem 3, n >= {measured.rows_bound:.4g}: {theorem_3}",
        (
            f"lemma 17 connects server points within {measured.lemma_distance:.4g}:"
            f" {connected} a set of diameter {2 * measured.radius:.4g}"
        ),
        (
            f"algorithm 4 needs {measured.simplify_rounds} rounds with"
            f" 1/{measured.simplify_rounds} of epsilon each, and weights above"
            f" {least:.4g}; a server point stands for {mean:.4g} rows on average"
        ),
        (
            f"algorithm 5 (margin=1/3) keeps {measured.clear:.2%} of the rows for the"
            " first centroids"
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line names.

    a mistake is one sentence on stderr and exit code 2.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if set(words) & {"-h", "--help"}:
        print(__doc__)
        return 0
    try:
        chosen = any(word.startswith("data=") for word in words)
        for settings in expand([*(() if chosen else DEFAULTS), *words]).settings:
            data, k = load_data_set(settings), settings["data"]["n_clusters"]
            if data.server_points is None or not isinstance(k, int):
                raise ConfigurationError(
                    "the conditions are about k and the server's points: give both."
                )
            epsilon = float(settings["privacy"]["epsilon"])
            measured = measure(
                data.points, data.server_points, k, epsilon, means=data.means
            )
            print(
                "\n".join(
                    [
                        settings["data"]["name"],
                        *(f"  {line}" for line in conditions(measured)),
                    ]
                )
            )
    except DPKMeansError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
