"""The strategy of ProxyLloyd."""

from __future__ import annotations

from flwr_dpkmeans.flower.strategy import PrivateKMeans


class ProxyLloyd(PrivateKMeans):
    """ProxyLloyd, this package's own default.

    Parameters as in `PrivateKMeans`, ``server_data`` optional.
    """

    algorithm = "proxy_lloyd"
