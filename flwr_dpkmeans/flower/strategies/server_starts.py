"""Strategies that start from the server's points."""

from __future__ import annotations

from flwr_dpkmeans.flower.strategy import PrivateKMeans


class ServerKMeansPlusPlus(PrivateKMeans):
    """k-means++ on ``server_data``, then DP-Lloyd; parameters as in `PrivateKMeans`."""

    algorithm = "server_kmeans++"


class ServerLloyd(PrivateKMeans):
    """k-means of ``server_data``, then DP-Lloyd; parameters as in `PrivateKMeans`."""

    algorithm = "server_lloyd"


class SpherePacking(PrivateKMeans):
    """Sphere packing, then DP-Lloyd on clipped sums.

    Parameters as in `PrivateKMeans`.
    """

    algorithm = "sphere_packing"
