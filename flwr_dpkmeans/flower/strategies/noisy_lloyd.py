"""Strategies of Lloyd's iterations with noise."""

from __future__ import annotations

from flwr_dpkmeans.flower.strategy import PrivateKMeans


class FastLloyd(PrivateKMeans, algorithm="fastlloyd"):
    """FastLloyd (Diaa, Humphries, Kerschbaum 2025); parameters as in `PrivateKMeans`.

    Examples
    --------
    >>> strategy = FastLloyd(n_clusters=10, n_features=64, epsilon=2.0, n_examples=1797, bounds=(0, 16))
    >>> strategy.config.trust
    'oblivious'
    """


class GLloyd(PrivateKMeans, algorithm="glloyd"):
    """DP-Lloyd on absolute sums with Gaussian noise; parameters as in `PrivateKMeans`."""


class SuLloyd(PrivateKMeans, algorithm="sulloyd"):
    """DP-Lloyd with Laplace noise (Su et al. 2016); parameters as in `PrivateKMeans`."""
