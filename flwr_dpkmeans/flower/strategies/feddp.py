"""The strategy of FedDP-KMeans."""

from __future__ import annotations

from flwr_dpkmeans.flower.strategy import PrivateKMeans


class FedDPKMeans(PrivateKMeans):
    """FedDP-KMeans (Scott, Lampert, Saulpic 2025).

    Parameters as in `PrivateKMeans`, with ``server_data``.

    Examples
    --------
    >>> points = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    >>> strategy = FedDPKMeans(n_clusters=2, epsilon=1.0, server_data=points)
    >>> strategy.config.trust
    'distributed'
    """

    algorithm = "feddp_kmeans"
