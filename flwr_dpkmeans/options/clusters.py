"""A number of clusters that the algorithm may choose."""

from __future__ import annotations

from flwr_dpkmeans.algorithms.kmeans_task import DEFAULT_MAX_CLUSTERS
from flwr_dpkmeans.errors import (
    ConfigurationError,
)
from flwr_dpkmeans.sums.option_rules import require_integer


def resolve_n_clusters(n_clusters: object, max_clusters: object) -> dict[str, object]:
    """Turn ``"auto"`` into the fields that let the algorithm choose k."""
    if isinstance(n_clusters, str) and n_clusters == "auto":
        require_integer(
            "max_clusters",
            max_clusters,
            1,
            DEFAULT_MAX_CLUSTERS,
        )
        return {"n_clusters": max_clusters, "choose_n_clusters": True}
    if max_clusters != DEFAULT_MAX_CLUSTERS:
        raise ConfigurationError(
            f"max_clusters is {max_clusters!r}, but n_clusters is {n_clusters!r} and"
            " not 'auto', so that it has no effect: leave one of the two out."
        )
    if isinstance(n_clusters, str | float):
        number = float(n_clusters) if _is_number(n_clusters) else 10.0
        mend = f"give {number:g}" if number.is_integer() else "give 10"
        raise ConfigurationError(
            f"n_clusters is {n_clusters!r}, but it must be an integer or 'auto':"
            f" {mend}."
        )
    return {"n_clusters": n_clusters}


def _is_number(value: str | float) -> bool:
    return not isinstance(value, str) or value.isdecimal()
