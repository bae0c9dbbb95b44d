"""The mixture of Gaussians of FedDP-KMeans' experiments, all clients at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.simulated.mixture import points_around
from flwr_dpkmeans.errors import ConfigurationError, require_whole


@dataclass(frozen=True, eq=False)
class GaussianMixture:
    """Clients' points of one mixture, and a server's points that only resemble them."""

    clients: tuple[NDArray[np.float64], ...]
    """The points (n_i, d) of each client: views of one array, so copy before changing
    them.
    """
    server_points: NDArray[np.float64]
    """(m, d): first those of the components that the server knows, component by
    component, then the uniform ones.
    """
    means: NDArray[np.float64]
    """(k, d), of the components.

    The last ``missing_components`` of them have no point at the server.
    """
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

    The means are uniform in the unit cube, the covariance is ``variance`` times the
    identity and the components have equal weights. The server has points of the same
    mixture and points that are uniform in the unit cube (J. Scott, C. H. Lampert, D.
    Saulpic, "Differentially private federated k-means clustering with server-side
    data", 2025, appendix G.1); of the last ``missing_components`` it has none (appendix
    G.4, figures 3 to 6). The defaults are those of the paper's experiments with
    data-point-level privacy; those with client-level privacy have
    ``points_per_client=50`` and 1000, 2000 or 5000 clients. Means and server points are
    drawn first: they do not depend on the clients, whose sizes may be 0.

    All clients together are one array of 8 n d bytes, 400 MB for 10,000 clients with 50
    points in 100 dimensions; no second array of this size is made. A
    `ConfigurationError` is raised if a number is out of its range, or there is not one
    size per client.

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> mixture = draw_gaussian_mixture(
    ...     generator, n_clients=3, points_per_client=(5, 0, 2)
    ... )
    >>> [points.shape for points in mixture.clients], mixture.server_points.shape
    ([(5, 100), (0, 100), (2, 100)], (300, 100))
    """
    check_generator(rng)
    require_whole("n_components", n_components, 1)
    require_whole("n_features", n_features, 1)
    require_whole("server_points_per_component", server_points_per_component, 0)
    require_whole("n_uniform", n_uniform, 0)
    require_whole("missing_components", missing_components, 0, most=n_components)
    check_positive("variance", variance)
    sizes = _sizes(n_clients, points_per_client)

    means = rng.random((n_components, n_features))
    present = np.repeat(
        np.arange(n_components - missing_components), server_points_per_component
    )
    server_points = np.concatenate(
        [
            points_around(means, present, variance, rng),
            rng.random((n_uniform, n_features)),
        ]
    )
    labels = rng.integers(n_components, size=sum(sizes))
    points = points_around(means, labels, variance, rng)
    cuts = np.cumsum(sizes)[:-1]
    return GaussianMixture(
        tuple(np.split(points, cuts)),
        server_points,
        means,
        tuple(np.split(labels, cuts)),
    )


def _sizes(n_clients: int, points_per_client: int | Sequence[int]) -> list[int]:
    """Return one size per client."""
    require_whole("n_clients", n_clients, 1)
    if not isinstance(points_per_client, Sequence | np.ndarray) or isinstance(
        points_per_client, str | bytes
    ):
        require_whole("points_per_client", points_per_client, 0)
        return [int(points_per_client)] * n_clients
    if len(points_per_client) != n_clients:
        raise ConfigurationError(
            f"points_per_client has {len(points_per_client)} sizes, but n_clients is"
            f" {n_clients}: give one size per client, or a single number for all."
        )
    for client, size in enumerate(points_per_client):
        require_whole(f"points_per_client[{client}]", size, 0)
    return [int(size) for size in points_per_client]


def check_positive(name: str, value: float) -> None:
    """Refuse what is no finite number above 0."""
    is_number = isinstance(
        value, int | float | np.integer | np.floating
    ) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value <= 0:
        raise ConfigurationError(
            f"{name} is {value!r}, but it must be a finite number above 0: give for"
            " example 0.5."
        )


def check_generator(rng: object) -> None:
    """Refuse what is no numpy generator, such as a seed."""
    if not isinstance(rng, np.random.Generator):
        raise ConfigurationError(
            f"rng is of type {type(rng).__name__}, but it must be a numpy generator:"
            " give numpy.random.default_rng(0)."
        )
