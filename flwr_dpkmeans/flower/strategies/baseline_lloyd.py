"""The strategy of Lloyd's iterations without noise."""

from __future__ import annotations

from flwr_dpkmeans.flower.strategy import PrivateKMeans


class Lloyd(PrivateKMeans):
    """Lloyd's algorithm without noise: not private.

    Parameters as in `PrivateKMeans`.
    """

    algorithm = "lloyd"
