"""The strategy of FedDP-KMeans."""

from __future__ import annotations

from flwr_dpkmeans.flower.strategy import PrivateKMeans


class FedDPKMeans(PrivateKMeans, algorithm="feddp_kmeans"):
    """FedDP-KMeans (Scott, Lampert, Saulpic 2025).

    Parameters as in `PrivateKMeans`, with ``server_data``.

    Examples
    --------
    >>> strategy = FedDPKMeans(n_clusters=2, epsilon=1.0, server_data=[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> strategy.config.trust
    'distributed'
    """
