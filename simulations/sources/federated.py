"""Data that are spread over clients already, with the public points of a server beside
them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class FederatedData:
    """Points of each client and of the server.

    Attributes
    ----------
    clients : tuple of ndarray of float64, each of shape (n_i, d)
        The private points of each client; n_i may be 0. They may be views of one array:
        copy before changing them.
    server_points : ndarray of float64, shape (m, d)
        Public points that the server holds; none of them belongs to a client.
    client_names : tuple of str
        One name per client, such as the postal code of a state.
    feature_names : tuple of str, length d
        One name per feature.

    Examples
    --------
    >>> clients = (np.zeros((3, 2)), np.ones((1, 2)))
    >>> data = FederatedData(clients, np.ones((5, 2)), ("AL", "AK"), ("x", "y"))
    >>> data.n_clients, data.n_features, data.n_points
    (2, 2, 4)
    """

    clients: tuple[NDArray[np.float64], ...]
    server_points: NDArray[np.float64]
    client_names: tuple[str, ...]
    feature_names: tuple[str, ...]

    @property
    def n_clients(self) -> int:
        """The number of clients."""
        return len(self.clients)

    @property
    def n_features(self) -> int:
        """The number of features d."""
        return int(self.server_points.shape[1])

    @property
    def n_points(self) -> int:
        """The number of points of all clients together."""
        return sum(len(points) for points in self.clients)
