"""Strategies of Lloyd's iterations with noise."""

from __future__ import annotations

from flwr_dpkmeans.flower.strategy import PrivateKMeans


class FastLloyd(PrivateKMeans):
    """FastLloyd (Diaa, Humphries, Kerschbaum 2025); parameters as in `PrivateKMeans`.

    Examples
    --------
    >>> strategy = FastLloyd(
    ...     n_clusters=10, n_features=64, epsilon=2.0, n_examples=1797, bounds=(0, 16)
    ... )
    >>> strategy.config.trust
    'oblivious'
    """

    algorithm = "fastlloyd"


class GLloyd(PrivateKMeans):
    """DP-Lloyd on absolute sums with Gaussian noise.

    Parameters as in `PrivateKMeans`.
    """

    algorithm = "glloyd"


class SuLloyd(PrivateKMeans):
    """DP-Lloyd with Laplace noise (Su et al. 2016).

    Parameters as in `PrivateKMeans`.
    """

    algorithm = "sulloyd"
