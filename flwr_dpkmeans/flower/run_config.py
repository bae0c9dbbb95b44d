"""From Flower's run configuration, which holds scalars only, to a strategy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms import ServerData, algorithm_entry
from flwr_dpkmeans.data.bounds import Bounds
from flwr_dpkmeans.data.bundled import BUNDLED
from flwr_dpkmeans.data.declared import Schema
from flwr_dpkmeans.data.mixtures import MIXTURE, MIXTURE_BOUNDS
from flwr_dpkmeans.data.partition import COLUMN_KINDS, Partition, parse_sizes
from flwr_dpkmeans.data.server_data import load_server_table
from flwr_dpkmeans.data.tables import Table
from flwr_dpkmeans.errors import ConfigurationError, nearest
from flwr_dpkmeans.flower.app_data import mixture_of
from flwr_dpkmeans.flower.node import OutputFiles, is_simulated_server
from flwr_dpkmeans.flower.strategy import PrivateKMeans, Timeouts
from flwr_dpkmeans.log import LogOptions
from flwr_dpkmeans.options import CLIP_BOUNDS, DEFAULT_ALGORITHM, DEFAULT_MAX_CLUSTERS, EvaluationKind, task_kind

_STRATEGY_KEYS = (
    "algorithm",
    "epsilon",
    "unit",
    "noise",
    "alpha",
    "schedule",
    "packing",
    "min-clients",
    "max-retries",
    "count-share",
    "bounds-share",
    "evaluation",
    "evaluation-share",
    "n-classes",
    "radius-clipping",
    "noise-kind",
    "lloyd-share",
    "n-init",
    "margin",
    "weight-threshold",
    "server-prior",
    "examples-per-client",
    "client-sampling-rate",
    "allow-unnamed",
)
_ZERO_MEANS_AUTOMATIC = (
    "delta",
    "n-examples",
    "n-features",
    "max-iter",
    "max-epsilon",
    "evaluation-radius",
    *(name.replace("_", "-") for name in CLIP_BOUNDS),
)
_EMPTY_MEANS_AUTOMATIC = ("trust", "dropout", "post-processing", "budget-shares", "bounds-domain")
_NEGATIVE_MEANS_AUTOMATIC = ("random-state", "max-silent")
_APP_KEYS = (
    "data",
    "label-column",
    "columns",
    "header",
    "partition",
    "partition-seed",
    "partition-column",
    "partition-alpha",
    "partition-sizes",
    "mixture-rows-per-client",
    "server-data",
    "bounds",
    "n-clusters",
    "max-clusters",
    "num-clients",
    "output",
    "output-files",
    "join-timeout",
    "round-timeout",
    "run-timeout",
    "log-format",
    "verbose",
)
RUN_CONFIG_KEYS = frozenset(
    (*_STRATEGY_KEYS, *_ZERO_MEANS_AUTOMATIC, *_EMPTY_MEANS_AUTOMATIC, *_NEGATIVE_MEANS_AUTOMATIC, *_APP_KEYS)
)
"""Every key that a run configuration may have."""


def strategy_from_run_config(
    run_config: Mapping[str, Any], *, server_points: NDArray[np.float64] | None = None
) -> PrivateKMeans:
    """Build the strategy from Flower's run configuration.

    Parameters
    ----------
    run_config : mapping
        Hyphenated names of `flwr_dpkmeans.options.Run`; 0, "" or -1 stand for "automatic" as `pyproject.toml`
        says, since Flower's configuration holds scalars only. A file of server data is read here.
    server_points : ndarray, (n_server, n_features), optional
        The server's points where they are in memory already.

    Returns
    -------
    PrivateKMeans

    Raises
    ------
    ConfigurationError
        With the nearest valid key, or one sentence on the value.
    DataError
        If the server's data cannot be used.

    Examples
    --------
    >>> run_config = {"algorithm": "glloyd", "n-clusters": 3, "num-clients": 4, "bounds": "0,1", "data": "table.csv"}
    >>> strategy_from_run_config(run_config).config.trust
    'oblivious'
    """
    own = _task_options(run_config)
    for key in run_config:
        if key not in RUN_CONFIG_KEYS and "." not in key:
            raise ConfigurationError(f"there is no run-config key {key!r}: {nearest(key, RUN_CONFIG_KEYS)}")
    makes_clusters = "n_clusters" in task_kind(run_config.get("algorithm", DEFAULT_ALGORITHM)).own_fields()
    if makes_clusters and "n-clusters" not in run_config:
        raise ConfigurationError("the run configuration has no n-clusters: give it, such as n-clusters=10.")
    _require_source("data", str(run_config.get("data", "")))
    _require_source("server-data", str(run_config.get("server-data", "")))
    _require_partition(run_config)
    _require_output_files(run_config.get("output-files", OutputFiles.ALL.value))
    if run_config.get("evaluation") == EvaluationKind.EXACT.value and not is_simulated_server():
        raise ConfigurationError(
            "evaluation is 'exact', which releases sums without noise and exists in simulation only: choose "
            "evaluation='private'."
        )
    server_data = _server_data(run_config) if server_points is None else server_points
    values = _given_values(run_config) | {"n-clients": _n_clients(run_config)}
    options = own | {key.replace("-", "_"): value for key, value in (_known_schema(run_config) | values).items()}
    timeouts = Timeouts(
        joining=run_config.get("join-timeout", 120.0),
        round=run_config.get("round-timeout", 600.0),
        run=run_config.get("run-timeout", 86_400.0),
    )
    return PrivateKMeans(
        run_config["n-clusters"] if makes_clusters else None,
        bounds=_bounds(run_config, has_server_points=server_data is not None),
        server_data=server_data,
        max_clusters=run_config.get("max-clusters", DEFAULT_MAX_CLUSTERS),
        timeouts=timeouts,
        **options,
    )


def _task_options(run_config: Mapping[str, Any]) -> dict[str, Any]:
    """Options of tasks from other packages, whose keys begin with the task's name: ``signs.pull``."""
    found, chosen = {}, run_config.get("algorithm", DEFAULT_ALGORITHM)
    for key, value in run_config.items():
        name, dot, option = key.replace("-", "_").partition(".")
        if not dot:
            continue
        defaults = task_kind(name).option_class().defaults()
        if option not in defaults:
            raise ConfigurationError(f"there is no run-config key {key!r}: {nearest(option, defaults)}")
        if name == chosen:
            found[option] = value
        elif value != defaults[option]:
            raise ConfigurationError(f"{key} is {value!r}, but the algorithm is {chosen!r}: leave it out.")
    return found


def server_log_options(run_config: Mapping[str, Any]) -> LogOptions:
    """Return how the server's lines are shown; nodes do not look here, they have a configuration of their own.

    Examples
    --------
    >>> server_log_options({"log-format": "json"}).format.value
    'json'
    """
    return LogOptions.of(run_config.get("log-format", ""), run_config.get("verbose", False))


def _given_values(run_config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that stand for fields of the configuration and are not automatic."""
    values = {key: run_config[key] for key in _STRATEGY_KEYS if key in run_config}
    for keys, automatic in (
        (_ZERO_MEANS_AUTOMATIC, 0),
        (_EMPTY_MEANS_AUTOMATIC, ""),
        (_NEGATIVE_MEANS_AUTOMATIC, -1),
    ):
        values |= {key: run_config[key] for key in keys if run_config.get(key, automatic) != automatic}
    return values


def _n_clients(run_config: Mapping[str, Any]) -> Any:
    """The cohort to wait for; only a simulation knows it by itself."""
    given = run_config.get("num-clients", 0)
    if given != 0:
        return given
    if not is_simulated_server():
        raise ConfigurationError(
            "num-clients is 0, but outside a simulation nobody knows how many clients are still to join: give the "
            "number that must take part, such as num-clients=3."
        )
    return None


def _simulated_source(run_config: Mapping[str, Any]) -> str:
    """What `data` names in a simulation; deployed nodes bring their own files, so nothing is known of them."""
    return str(run_config.get("data", "")) if is_simulated_server() else ""


def _known_schema(run_config: Mapping[str, Any]) -> dict[str, Any]:
    """What is public of the tables: names as given; a bundled data set's size and names are in its documentation."""
    names = Schema.of(run_config.get("columns", "")).columns
    return _known_sizes(run_config) | ({"feature-names": names} if names else {})


def _known_sizes(run_config: Mapping[str, Any]) -> dict[str, Any]:
    """What is documented of the simulated clients' tables."""
    source = _simulated_source(run_config)
    if source == MIXTURE:
        return {"n-features": mixture_of(run_config).n_features}
    if source in BUNDLED:
        described = BUNDLED[source]
        return {
            "n-examples": described.n_examples,
            "n-features": described.n_features,
            "feature-names": described.feature_names,
        }
    return {}


def _server_data(run_config: Mapping[str, Any]) -> Table | NDArray[np.float64] | None:
    """The server's own points: a file, a bundled data set, or those of the generated mixture."""
    source = str(run_config.get("server-data", ""))
    if not source and _simulated_source(run_config) == MIXTURE:
        entry = algorithm_entry(run_config.get("algorithm", DEFAULT_ALGORITHM))
        source = MIXTURE if entry.server_data is ServerData.NEEDED else ""
    if not source:
        return None
    if source == MIXTURE:
        return mixture_of(run_config).server_points()
    left_out = {str(run_config.get(key, "")) for key in ("label-column", "partition-column")}
    return load_server_table(source, ignored=left_out - {""})


def _bounds(run_config: Mapping[str, Any], *, has_server_points: bool) -> Any:
    """Bounds as given, or the documented ones of the data; None where neither are, or they follow from server data."""
    given, source = run_config.get("bounds", ""), _simulated_source(run_config)
    if given != "":
        return given
    if has_server_points:
        return None
    documented: dict[str, Bounds] = {name: described.bounds for name, described in BUNDLED.items()}
    documented[MIXTURE] = MIXTURE_BOUNDS
    return documented.get(source)


def _require_source(key: str, source: str) -> None:
    """Refuse a name that is neither known nor a path; whether the path exists is known where it is read."""
    names = (*BUNDLED, MIXTURE)
    if source and source not in names and not Path(source).suffix and not {"/", "\\"} & set(source):
        raise ConfigurationError(
            f"{key} is {source!r}, but it must be a bundled data set, 'mixture' or the path of a .csv, .npy, .npz or "
            f".parquet file: {nearest(source, names)}"
        )


def _require_output_files(given: Any) -> None:
    """Refuse a choice of result files that is not known."""
    kinds = [kind.value for kind in OutputFiles]
    if given not in kinds:
        raise ConfigurationError(f"output-files is {given!r}, which is not known here: {nearest(given, kinds)}")


def _require_partition(run_config: Mapping[str, Any]) -> None:
    """Refuse a split that no client could make, before anything is sent."""
    kinds = [kind.value for kind in Partition]
    kind = str(run_config.get("partition", Partition.IID.value))
    if kind not in kinds:
        raise ConfigurationError(f"partition is {kind!r}, which is not known here: {nearest(kind, kinds)}")
    if run_config.get("data") == MIXTURE and kind != Partition.IID.value:
        raise ConfigurationError(
            f"partition is {kind!r}, but the rows of the mixture are drawn for each client: leave partition='iid'."
        )
    if kind in COLUMN_KINDS and not run_config.get("partition-column", ""):
        raise ConfigurationError(
            f"partition is {kind!r}, but partition-column does not say by which column: name one of the file's "
            "columns, or 'target' for bundled data."
        )
    alpha = run_config.get("partition-alpha", 0.5)
    if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not 0.0 < alpha < float("inf"):
        raise ConfigurationError(
            f"partition-alpha is {alpha!r}, but it must be a finite number greater than 0: give 0.5."
        )
    if kind == Partition.FIXED_SIZES.value:
        parse_sizes(run_config.get("partition-sizes", ""))
