"""Algorithms: each is a file of private-sum rounds and a line in the registry below."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any

from flwr_dpkmeans.algorithms import dplloyd, fastlloyd, feddp_kmeans, proxy_lloyd, server_starts
from flwr_dpkmeans.algorithms.lloyd_family import Public
from flwr_dpkmeans.config import DEFAULT_ALGORITHM, KMeansConfig, parse_config
from flwr_dpkmeans.errors import ConfigurationError, nearest
from flwr_dpkmeans.privacy.mechanisms import NoiseShape
from flwr_dpkmeans.privacy.sensitivity import PrivacyUnit
from flwr_dpkmeans.rounds.private_sum import Algorithm


class ServerData(Enum):
    """Whether an algorithm uses the server's own points: not, only bounds that follow from them, or the points too."""

    NONE = "none"
    BOUNDS = "bounds"
    OPTIONAL = "optional"
    NEEDED = "needed"


@dataclass(frozen=True)
class AlgorithmEntry:
    """One registered algorithm.

    Parameters
    ----------
    build : callable
        ``build(public) -> Algorithm``.
    noise : NoiseShape
        Its noise; NONE for a non-private baseline.
    units : tuple of PrivacyUnit
        Units of privacy that it supports.
    needs_n_examples : bool
        Whether its rounds depend on the number of rows, where one row is protected.
    title : str
        One line for logs and reports.
    server_data : ServerData
        Whether it uses the server's own points.
    trust : str
        Trust model unless another one is chosen; with server points that the clients need not see, ``distributed``.
    weighs_clients_alike : bool
        Whether at client level every client adds means over its rows, so that the number of clients is enough.
    """

    build: Callable[[Public], Algorithm]
    noise: NoiseShape
    units: tuple[PrivacyUnit, ...]
    needs_n_examples: bool
    title: str
    server_data: ServerData = ServerData.NONE
    trust: str = "oblivious"
    weighs_clients_alike: bool = False

    def counts(self, unit: PrivacyUnit) -> bool:
        """Whether a run must know the number of rows; where clients are protected, their number is what counts."""
        return self.needs_n_examples and not (unit is PrivacyUnit.CLIENT and self.weighs_clients_alike)


_RECORD = (PrivacyUnit.RECORD,)
_BOTH = (PrivacyUnit.RECORD, PrivacyUnit.CLIENT)

ALGORITHMS: Mapping[str, AlgorithmEntry] = MappingProxyType(
    {
        "proxy_lloyd": AlgorithmEntry(
            proxy_lloyd.build,
            NoiseShape.GAUSSIAN,
            _BOTH,
            True,
            "ProxyLloyd: a private start from weighted proxies, then shrunk Lloyd steps on clipped residuals",
            ServerData.OPTIONAL,
            weighs_clients_alike=True,
        ),
        "fastlloyd": AlgorithmEntry(
            fastlloyd.build, NoiseShape.GAUSSIAN, _RECORD, True, "FastLloyd (Diaa, Humphries, Kerschbaum 2025)"
        ),
        "glloyd": AlgorithmEntry(
            dplloyd.build_glloyd, NoiseShape.GAUSSIAN, _RECORD, True, "GLloyd: DP-Lloyd with Gaussian noise"
        ),
        "sulloyd": AlgorithmEntry(
            dplloyd.build_sulloyd, NoiseShape.LAPLACE, _RECORD, True, "SuLloyd: DP-Lloyd with Laplace noise (Su et al.)"
        ),
        "lloyd": AlgorithmEntry(
            dplloyd.build_lloyd, NoiseShape.NONE, _RECORD, False, "Lloyd: no noise, not private, for comparison"
        ),
        "feddp_kmeans": AlgorithmEntry(
            feddp_kmeans.build,
            NoiseShape.GAUSSIAN,
            _BOTH,
            False,
            "FedDP-KMeans (Scott, Lampert, Saulpic 2025): start from server data",
            ServerData.NEEDED,
            "distributed",
        ),
        "feddp_choose_k": AlgorithmEntry(
            feddp_kmeans.build_choose_k,
            NoiseShape.GAUSSIAN,
            _BOTH,
            False,
            "FedDP-KMeans' first two steps: the cost curve over k",
            ServerData.NEEDED,
            "distributed",
        ),
        "server_kmeans++": AlgorithmEntry(
            server_starts.build_server_kmeans_plus_plus,
            NoiseShape.GAUSSIAN,
            _BOTH,
            False,
            "k-means++ on server data, then DP-Lloyd",
            ServerData.NEEDED,
            "distributed",
        ),
        "server_lloyd": AlgorithmEntry(
            server_starts.build_server_lloyd,
            NoiseShape.GAUSSIAN,
            _BOTH,
            False,
            "k-means of server data, then DP-Lloyd",
            ServerData.NEEDED,
            "distributed",
        ),
        "sphere_packing": AlgorithmEntry(
            server_starts.build_sphere_packing,
            NoiseShape.GAUSSIAN,
            _BOTH,
            False,
            "sphere packing, then DP-Lloyd on clipped sums",
            ServerData.BOUNDS,
            "distributed",
        ),
    }
)


NOT_FEDERATED = ("k_fed", "optimal", "max_cover")
"""Baselines that `FederatedKMeans` runs in one process (`flwr_dpkmeans.central`)."""


def algorithm_entry(name: str) -> AlgorithmEntry:
    """Look an algorithm up by name; an unknown one is a `ConfigurationError` with the nearest valid name.

    Examples
    --------
    >>> algorithm_entry("lloyd").noise
    <NoiseShape.NONE: 'none'>
    """
    if name in NOT_FEDERATED:
        raise ConfigurationError(
            f"algorithm is {name!r}, which needs all rows in one place: run it as FederatedKMeans(algorithm={name!r}), "
            "or use 'feddp_kmeans' in a federation."
        )
    if name not in ALGORITHMS:
        known = nearest(name, (*ALGORITHMS, *NOT_FEDERATED))
        raise ConfigurationError(f"algorithm is {name!r}, which is not known: {known}")
    return ALGORITHMS[name]


def require_server_data(name: str, *, has_server_data: bool) -> None:
    """Refuse an algorithm that needs the server's own points and has none, or has some and needs none.

    Examples
    --------
    >>> require_server_data("feddp_kmeans", has_server_data=True)
    """
    use = algorithm_entry(name).server_data
    if not has_server_data and use is ServerData.NEEDED:
        raise ConfigurationError(
            f"{name!r} starts from the server's own points: give server_data, or use 'proxy_lloyd'."
        )
    if has_server_data and use is ServerData.NONE:
        raise ConfigurationError(
            f"server_data was given, but {name!r} starts without it: leave it out, or use 'proxy_lloyd'."
        )


def parse_run(*, has_server_data: bool = False, **values: Any) -> KMeansConfig:
    """Build a configuration as `parse_config` does; a trust model that is None or missing is the algorithm's own.

    Parameters
    ----------
    has_server_data : bool
        Whether the server brings points of its own: then the default trust model lets the server keep them.
    **values
        As `parse_config` takes them.

    Examples
    --------
    >>> parse_run(n_clusters=3, bounds=((0,), (1,)), algorithm="feddp_kmeans").trust
    'distributed'
    >>> parse_run(n_clusters=3, bounds=((0,), (1,))).trust
    'oblivious'
    """
    if values.get("trust") is None:
        name = values.get("algorithm", DEFAULT_ALGORITHM)
        if name in NOT_FEDERATED:
            values["trust"] = "central"
        elif not isinstance(name, str):
            values["trust"] = "oblivious"
        else:
            entry = algorithm_entry(name)
            public = has_server_data and entry.server_data is ServerData.OPTIONAL
            values["trust"] = "distributed" if public else entry.trust
    return parse_config(**values)
