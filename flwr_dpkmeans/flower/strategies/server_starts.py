"""Strategies that start from the server's points."""

from __future__ import annotations

from flwr_dpkmeans.flower.strategy import PrivateKMeans


class ServerKMeansPlusPlus(PrivateKMeans, algorithm="server_kmeans++"):
    """k-means++ on ``server_data``, then DP-Lloyd; parameters as in `PrivateKMeans`."""


class ServerLloyd(PrivateKMeans, algorithm="server_lloyd"):
    """k-means of ``server_data``, then DP-Lloyd; parameters as in `PrivateKMeans`."""


class SpherePacking(PrivateKMeans, algorithm="sphere_packing"):
    """Sphere packing, then DP-Lloyd on clipped sums; parameters as in `PrivateKMeans`."""
