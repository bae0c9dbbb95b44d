"""Algorithms: each is a file of private-sum rounds and a line in the registry below."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from types import MappingProxyType
from typing import Any

from flwr_dpkmeans.algorithms import dplloyd, fastlloyd, feddp_kmeans, proxy_lloyd, server_starts
from flwr_dpkmeans.algorithms.lloyd_family import Public
from flwr_dpkmeans.config import DEFAULT_ALGORITHM, KMeansConfig, parse_config
from flwr_dpkmeans.errors import ConfigurationError, nearest
from flwr_dpkmeans.privacy.release import NoiseShape, PrivacyUnit
from flwr_dpkmeans.sums.round import Algorithm


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
    options : frozenset of str
        Fields of `KMeansConfig` that only some algorithms have, and this one has.
    """

    build: Callable[[Public], Algorithm]
    noise: NoiseShape
    units: tuple[PrivacyUnit, ...]
    needs_n_examples: bool
    title: str
    server_data: ServerData = ServerData.NONE
    trust: str = "oblivious"
    weighs_clients_alike: bool = False
    options: frozenset[str] = frozenset()

    def counts(self, unit: PrivacyUnit) -> bool:
        """Whether a run must know the number of rows; where clients are protected, their number is what counts."""
        return self.needs_n_examples and not (unit is PrivacyUnit.CLIENT and self.weighs_clients_alike)


_RECORD = (PrivacyUnit.RECORD,)
_BOTH = (PrivacyUnit.RECORD, PrivacyUnit.CLIENT)
_PACKED = frozenset(("max_iter", "packing", "post_processing"))
_CLIENT_LEVEL = frozenset(("examples_per_client", "client_sampling_rate"))
_SERVER_STARTS = _CLIENT_LEVEL | {"max_iter", "noise_kind", "budget_shares"}
_SERVER_STARTS |= {"data_radius", "means_bound", "indicators_bound"}
_WEIGHTED = _CLIENT_LEVEL | {"noise_kind", "budget_shares", "weight_threshold", "n_init", "server_prior"}
_WEIGHTED |= {"data_radius", "outer_product_bound", "weights_bound"}
_FEDERATED = frozenset(("max_silent", "masking"))
_OF_CLIENTS = ("examples_per_client", "weights_bound", "means_bound", "indicators_bound")
_OF_EVALUATIONS = ("n_classes", "evaluation_radius")

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
            options=_CLIENT_LEVEL | {"max_iter", "n_init"},
        ),
        "fastlloyd": AlgorithmEntry(
            fastlloyd.build,
            NoiseShape.GAUSSIAN,
            _RECORD,
            True,
            "FastLloyd (Diaa, Humphries, Kerschbaum 2025)",
            options=_PACKED | {"alpha", "schedule", "radius_clipping"},
        ),
        "glloyd": AlgorithmEntry(
            dplloyd.build_glloyd,
            NoiseShape.GAUSSIAN,
            _RECORD,
            True,
            "GLloyd: DP-Lloyd with Gaussian noise",
            options=_PACKED,
        ),
        "sulloyd": AlgorithmEntry(
            dplloyd.build_sulloyd,
            NoiseShape.LAPLACE,
            _RECORD,
            True,
            "SuLloyd: DP-Lloyd with Laplace noise (Su et al.)",
            options=_PACKED,
        ),
        "lloyd": AlgorithmEntry(
            dplloyd.build_lloyd,
            NoiseShape.NONE,
            _RECORD,
            False,
            "Lloyd: no noise, not private, for comparison",
            options=_PACKED,
        ),
        "feddp_kmeans": AlgorithmEntry(
            feddp_kmeans.build,
            NoiseShape.GAUSSIAN,
            _BOTH,
            False,
            "FedDP-KMeans (Scott, Lampert, Saulpic 2025): start from server data",
            ServerData.NEEDED,
            "distributed",
            options=_WEIGHTED | {"max_iter", "lloyd_share", "margin", "means_bound", "indicators_bound"},
        ),
        "feddp_choose_k": AlgorithmEntry(
            feddp_kmeans.build_choose_k,
            NoiseShape.GAUSSIAN,
            _BOTH,
            False,
            "FedDP-KMeans' first two steps: the cost curve over k",
            ServerData.NEEDED,
            "distributed",
            options=_WEIGHTED,
        ),
        "server_kmeans++": AlgorithmEntry(
            server_starts.build_server_kmeans_plus_plus,
            NoiseShape.GAUSSIAN,
            _BOTH,
            False,
            "k-means++ on server data, then DP-Lloyd",
            ServerData.NEEDED,
            "distributed",
            options=_SERVER_STARTS,
        ),
        "server_lloyd": AlgorithmEntry(
            server_starts.build_server_lloyd,
            NoiseShape.GAUSSIAN,
            _BOTH,
            False,
            "k-means of server data, then DP-Lloyd",
            ServerData.NEEDED,
            "distributed",
            options=_SERVER_STARTS | {"n_init"},
        ),
        "sphere_packing": AlgorithmEntry(
            server_starts.build_sphere_packing,
            NoiseShape.GAUSSIAN,
            _BOTH,
            False,
            "sphere packing, then DP-Lloyd on clipped sums",
            ServerData.BOUNDS,
            "distributed",
            options=_SERVER_STARTS | {"packing"},
        ),
    }
)


NOT_FEDERATED: Mapping[str, frozenset[str]] = MappingProxyType(
    {"k_fed": frozenset(), "optimal": frozenset(("n_init",)), "max_cover": frozenset()}
)
"""Baselines that `FederatedKMeans` runs in one process (`baselines.central`), with the options that each has."""


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

    Raises
    ------
    ConfigurationError
        Also for an option that differs from its default and has no effect on this run.

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
    config = parse_config(**values)
    _require_own_options(config)
    return config


def options_of(name: str) -> frozenset[str]:
    """The options that an algorithm has, of those that not all have.

    Examples
    --------
    >>> sorted(options_of("glloyd") - options_of("proxy_lloyd"))
    ['packing', 'post_processing']
    """
    return NOT_FEDERATED[name] if name in NOT_FEDERATED else algorithm_entry(name).options | _FEDERATED


def own_options(values: Mapping[str, Any], name: str, compared: Iterable[str]) -> dict[str, Any]:
    """What one of several compared algorithms gets of options that are given to all: not those that only others have.

    Examples
    --------
    >>> own_options({"alpha": 0.6, "epsilon": 2.0}, "proxy_lloyd", ("proxy_lloyd", "fastlloyd"))
    {'epsilon': 2.0}
    """
    of_others = frozenset[str]().union(*map(options_of, compared)) - options_of(name)
    return {option: value for option, value in values.items() if option not in of_others}


def _require_own_options(config: KMeansConfig) -> None:
    """Refuse what was given and would be ignored: options of other algorithms, units, evaluations and bounds."""
    changed = {f.name: getattr(config, f.name) for f in fields(KMeansConfig) if getattr(config, f.name) != f.default}
    name, own = config.algorithm, options_of(config.algorithm)
    for option, value in changed.items():
        owners = [other for other in (*ALGORITHMS, *NOT_FEDERATED) if option in options_of(other)]
        if owners and option not in own:
            raise ConfigurationError(
                f"{option} is {_shown(value)}, but the algorithm is {name!r}, which has no such option: leave it out, "
                f"or choose {' or '.join(map(repr, owners))}."
            )
    counted = config.n_examples is None and name in ALGORITHMS and algorithm_entry(name).counts(config.unit)
    evaluated = config.evaluation.value
    for options, effective, reason, mend in (
        (_OF_CLIENTS, config.unit is PrivacyUnit.CLIENT, "unit is 'record'", "choose unit='client'"),
        (_OF_EVALUATIONS, evaluated != "none", "evaluation is 'none'", "choose evaluation='private'"),
        (("evaluation_share",), evaluated == "private", f"evaluation is {evaluated!r}", "choose evaluation='private'"),
        (("bounds_share",), config.private_bounds, "bounds are not 'private'", "give bounds='private'"),
        (("count_share",), counted, "the rows are not counted", "leave the number of rows to a private count"),
    ):
        for option in options:
            if option in changed and not effective:
                raise ConfigurationError(
                    f"{option} is {_shown(changed[option])}, but {reason}, so that it has no effect: leave it out, or "
                    f"{mend}."
                )


def _shown(value: Any) -> str:
    """A value as a caller would write it."""
    return repr(value.value if isinstance(value, Enum) else value)
