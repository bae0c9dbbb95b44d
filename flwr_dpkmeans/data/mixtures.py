"""The mixture of Gaussians of the experiments with FedDP-KMeans: all of it at once, or one client at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.bounds import Bounds
from flwr_dpkmeans.data.partition import check_integer
from flwr_dpkmeans.errors import ConfigurationError

MIXTURE = "mixture"
"""Name of the data source that `MixtureClients` draws."""
MIXTURE_BOUNDS = Bounds((-2.7,), (3.7,))
"""Public bounds of the default mixture: its means lie in [0, 1], and 3.2 is 4.5 deviations of sqrt(0.5)."""
# Rows to which means are added at once: the copy of the means stays small beside the points.
_ROWS_AT_ONCE = 65_536


@dataclass(frozen=True, eq=False)
class GaussianMixture:
    """Clients' points from one mixture, and a server's points that only resemble them."""

    clients: tuple[NDArray[np.float64], ...]
    """The points (n_i, d) of each client: views of one array, so copy before changing them."""
    server_points: NDArray[np.float64]
    """(m, d): first those of the components that the server knows, component by component, then the uniform ones."""
    means: NDArray[np.float64]
    """(k, d), of the components. The last ``missing_components`` of them have no point at the server."""
    labels: tuple[NDArray[np.int64], ...]
    """The component of each client's points."""


def draw_gaussian_mixture(
    rng: np.random.Generator,
    *,
    n_clients: int = 100,
    points_per_client: int | Sequence[int] = 1000,
    n_components: int = 10,
    n_features: int = 100,
    variance: float = 0.5,
    server_points_per_component: int = 20,
    n_uniform: int = 100,
    missing_components: int = 0,
) -> GaussianMixture:
    """Draw the mixture of Gaussians of the experiments with FedDP-KMeans.

    The means are uniform in the unit cube, the covariance is ``variance`` times the identity and the components have
    equal weights. The server has points of the same mixture and points that are uniform in the unit cube (J. Scott, C.
    H. Lampert, D. Saulpic, "Differentially private federated k-means clustering with server-side data", 2025, appendix
    G.1); of the last ``missing_components`` it has none (appendix G.4, figures 3 to 6). The defaults are those of the
    paper's experiments with data-point-level privacy; those with client-level privacy have ``points_per_client=50`` and
    1000, 2000 or 5000 clients. Means and server points are drawn first: they do not depend on the clients, whose sizes
    may be 0.

    All clients together are one array of 8 n d bytes, 400 MB for 10,000 clients with 50 points in 100 dimensions; no
    second array of this size is made. A `ConfigurationError` is raised if a number is out of its range, or there is not
    one size per client.

    Examples
    --------
    >>> mixture = draw_gaussian_mixture(np.random.default_rng(0), n_clients=3, points_per_client=(5, 0, 2))
    >>> [points.shape for points in mixture.clients], mixture.server_points.shape
    ([(5, 100), (0, 100), (2, 100)], (300, 100))
    """
    check_generator(rng)
    check_integer("n_components", n_components, 1)
    check_integer("n_features", n_features, 1)
    check_integer("server_points_per_component", server_points_per_component, 0)
    check_integer("n_uniform", n_uniform, 0)
    check_integer("missing_components", missing_components, 0, n_components)
    check_positive("variance", variance)
    sizes = _sizes(n_clients, points_per_client)

    means = rng.random((n_components, n_features))
    deviation = math.sqrt(variance)
    known = np.repeat(np.arange(n_components - missing_components), server_points_per_component)
    server_points = np.concatenate([_around(means, known, deviation, rng), rng.random((n_uniform, n_features))])
    labels = rng.integers(n_components, size=sum(sizes))
    points = _around(means, labels, deviation, rng)
    cuts = np.cumsum(sizes)[:-1]
    return GaussianMixture(tuple(np.split(points, cuts)), server_points, means, tuple(np.split(labels, cuts)))


@dataclass(frozen=True)
class MixtureClients:
    """The mixture of `draw_gaussian_mixture` with its defaults, each client of which can be drawn without the others.

    Means and server points are those of ``draw_gaussian_mixture(numpy.random.default_rng(seed))``; each client, of
    `rows_per_client` rows, has a generator of its own, spawned from the seed.
    """

    seed: int = 0
    rows_per_client: int = 50

    n_components: ClassVar[int] = 10
    n_features: ClassVar[int] = 100
    variance: ClassVar[float] = 0.5

    def __post_init__(self) -> None:
        check_integer("the seed of the mixture", self.seed, 0)
        check_integer("the number of rows of each of the mixture's clients", self.rows_per_client, 0)

    def means(self) -> NDArray[np.float64]:
        """Return the means of the components, shape (10, 100)."""
        return np.random.default_rng(self.seed).random((self.n_components, self.n_features))

    def server_points(self) -> NDArray[np.float64]:
        """Return the server's points, shape (300, 100): 20 of each component, and 100 uniform ones."""
        rng = np.random.default_rng(self.seed)
        return draw_gaussian_mixture(rng, n_clients=1, points_per_client=0).server_points

    def client_points(self, client: int) -> NDArray[np.float64]:
        """Return the rows of one client, shape (rows_per_client, 100); clients are counted from 0."""
        check_integer("the number of the mixture's client", client, 0)
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(client,)))
        labels = rng.integers(self.n_components, size=self.rows_per_client)
        return _around(self.means(), labels, math.sqrt(self.variance), rng)


def _around(
    means: NDArray[np.float64], labels: NDArray[np.int64], deviation: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw one Gaussian point around the mean of each label, in a single large array."""
    points = rng.standard_normal((len(labels), means.shape[1]))
    points *= deviation
    for start in range(0, len(labels), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        points[rows] += means[labels[rows]]
    return points


def _sizes(n_clients: int, points_per_client: int | Sequence[int]) -> list[int]:
    """Return one size per client."""
    check_integer("n_clients", n_clients, 1)
    if not isinstance(points_per_client, Sequence | np.ndarray) or isinstance(points_per_client, str | bytes):
        check_integer("points_per_client", points_per_client, 0)
        return [int(points_per_client)] * n_clients
    if len(points_per_client) != n_clients:
        raise ConfigurationError(
            f"points_per_client has {len(points_per_client)} sizes, but n_clients is {n_clients}: give one size "
            "per client, or a single number for all."
        )
    for client, size in enumerate(points_per_client):
        check_integer(f"points_per_client[{client}]", size, 0)
    return [int(size) for size in points_per_client]


def check_positive(name: str, value: float) -> None:
    """Refuse what is no finite number above 0."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value <= 0:
        raise ConfigurationError(f"{name} is {value!r}, but it must be a finite number above 0: give for example 0.5.")


def check_generator(rng: object) -> None:
    """Refuse what is no numpy generator, such as a seed."""
    if not isinstance(rng, np.random.Generator):
        raise ConfigurationError(
            f"rng is of type {type(rng).__name__}, but it must be a numpy generator: give numpy.random.default_rng(0)."
        )
