"""From an experiment's configuration (Hydra groups) to the run configuration of `flwr
run`.

Both engines run what `flwr_dpkmeans.flower.server_app` makes of the same keys, so an
unknown key or value is refused in the same words.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans import __version__
from flwr_dpkmeans.algorithms.lookup import clusterings
from flwr_dpkmeans.algorithms.one_place.not_federated import NOT_FEDERATED
from flwr_dpkmeans.algorithms.server.resolved_bounds import PRIVATE, is_private
from flwr_dpkmeans.baselines.central import require_central
from flwr_dpkmeans.data.bounds.stated_bounds import read_ranges
from flwr_dpkmeans.data.bundled import BUNDLED
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.errors import ConfigurationError, nearest
from flwr_dpkmeans.flower.run_config import strategy_from_run_config
from flwr_dpkmeans.flower.run_keys import table_of
from flwr_dpkmeans.options import read_config, task_kind
from flwr_dpkmeans.sums.checks.supported import require_supported
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.option_rules import Options
from flwr_dpkmeans.sums.settings import EvaluationKind
from simulations.experiments.datasets import RANGE, SPREAD
from simulations.experiments.federation import gives_server_points

Scalar = str | int | float | bool

ENGINES = ("inprocess", "direct", "ray")
METRICS = (
    "nicv",
    "nicv_optimum",
    "silhouette",
    "davies_bouldin",
    "calinski_harabasz",
    "dunn",
    "bcss",
    "empty_clusters",
    "centroid_error",
    "accuracy",
    "purity",
)
"""What `metrics` may list."""
NOT_PRIVATE = ("lloyd", "optimal", "k_fed")
"""Algorithms to which epsilon means nothing."""
_NOT_OF_THE_RUN = ("output", "workers", "data_dir", "other_code", "sweep", "variant")
"""Keys that change no result."""
_INTEGERS: Mapping[str, int] = MappingProxyType(
    {
        "seed": 0,
        "n_clients": 1,
        "sample_size": 2,
        "partition.seed": 0,
        "data.seed": 0,
        "data.n_points": 1,
        "data.n_features": 1,
        "data.rows_per_client": 1,
        "data.missing_components": 0,
    }
)
"""Keys that hold integers, where there are such keys, and the least of each."""
_TOO_LARGE = 2**63
_SOME_CLIENTS = 50
_MEASURES = 2
"""What metrics mean, which a journal's rows must not mix.

2 measures centroids and rows where they are, unclipped.
"""
_UNSCALED = Bounds((-1.0,), (1.0,))


def run_config_of(settings: Mapping[str, Any]) -> dict[str, Scalar]:
    """Say in the keys of `flwr run` what an experiment's configuration says.

    Parameters
    ----------
    settings : mapping
        Resolved, with the groups ``algorithm``, ``trust``, ``privacy``, ``data`` and
        ``partition``.

    Returns
    -------
    dict
        Hyphenated keys, scalars only; what is null is left out and so automatic.
        Without ``data``, ``bounds`` and ``server-data``, which depend on the engine.

    Examples
    --------
    >>> groups = {
    ...     "algorithm": {"name": "glloyd", "max_iter": None},
    ...     "trust": {"name": "central"},
    ...     "privacy": {"epsilon": 0.5},
    ...     "data": {"n_clusters": 4},
    ...     "partition": {"kind": "iid", "seed": 3},
    ... }
    >>> settings = groups | {"n_clients": 2, "seed": 3, "evaluation": "none"}
    >>> run_config_of(settings)["n-clusters"]
    4
    """
    algorithm = dict(settings["algorithm"])
    name = algorithm.pop("name")
    values: dict[str, Any] = {"algorithm": name, **settings["privacy"]}
    # What needs all rows in one place is never run by Flower.
    options = {} if name in NOT_FEDERATED else algorithm
    values |= {_key_of(name, option): value for option, value in options.items()}
    if settings["privacy"].get("unit", "record") == "record":
        # Filled in from the data, for the unit that it says something to.
        values.pop("examples_per_client", None)
    values |= {
        "trust": settings["trust"]["name"],
        "n_clusters": settings["data"]["n_clusters"],
    }
    values |= {"num_clients": settings["n_clients"], "random_state": settings["seed"]}
    values |= {
        f"partition_{name}": value
        for name, value in settings["partition"].items()
        if name != "kind"
    }
    values["partition"] = settings["partition"]["kind"]
    if settings.get("evaluation", "none") != "none":
        values |= {
            "evaluation": settings["evaluation"],
            "evaluation_share": settings["evaluation_share"],
        }
    return {
        _hyphenated(name): _scalar(value)
        for name, value in values.items()
        if value is not None
    }


def _key_of(algorithm: str, option: str) -> str:
    """Where an option of the group ``algorithm`` stands in a run configuration.

    In its own table, or beside it.
    """
    described = (
        algorithm in clusterings()
        and option in clusterings()[algorithm].option_class().defaults()
    )
    return (
        f"{table_of(algorithm)}.{option}"
        if described and option != "max_iter"
        else option
    )


def require_valid(settings: Mapping[str, Any]) -> None:
    """Refuse a configuration that no run could have, before anything is run.

    Parameters
    ----------
    settings : mapping
        Resolved.

    Raises
    ------
    ConfigurationError
        One sentence, with the nearest valid name where there is one.
    """
    engine, name = settings["engine"], settings["algorithm"]["name"]
    _require_plain(settings)
    # Until the data are read, any number of clients will do for data that say it.
    settings = {**settings, "n_clients": settings["n_clients"] or _SOME_CLIENTS}
    if engine["name"] not in ENGINES:
        raise ConfigurationError(
            f"engine.name is {engine['name']!r}: {nearest(engine['name'], ENGINES)}"
        )
    if not engine["masking"] and engine["name"] != "direct":
        raise ConfigurationError(
            f"engine.masking is false, but engine {engine['name']!r} always masks:"
            " choose engine=direct for experiments without masks."
        )
    for metric in settings["metrics"]:
        if metric not in METRICS:
            raise ConfigurationError(
                f"metrics has {metric!r}: {nearest(metric, METRICS)}"
            )
    if name in NOT_FEDERATED:
        if settings["evaluation"] != "none":
            raise ConfigurationError(
                f"evaluation is {settings['evaluation']!r}, but {name!r} runs on all"
                " rows in one place, without rounds: leave it out and look at the"
                " metrics."
            )
        if engine["name"] == "ray":
            raise ConfigurationError(
                f"{name!r} needs all rows in one place and cannot run on Ray: use"
                " engine=inprocess."
            )
        if is_private(settings["data"]["bounds"]):
            raise ConfigurationError(
                f"data.bounds is 'private', but {name!r} has all rows in one place and"
                " finds none: give public bounds, or data.bounds=range."
            )
        central_config(settings, _UNSCALED)
    else:
        has_server_data = gives_server_points(settings)
        # Any points will do: only whether there are some decides here.
        points = np.zeros((1, 1)) if has_server_data else None
        config = federated_config(run_config_of(settings) | {"bounds": "-1,1"}, points)
        require_supported(config, has_server_data=has_server_data)


def federated_config(
    run_config: Mapping[str, Any], server_points: NDArray[np.float64] | None
) -> RunConfig:
    """Build the configuration that `flwr run` would build in a simulation.

    Parameters
    ----------
    run_config : mapping
        Hyphenated keys; bounds may be an object.
    server_points : ndarray, (m, d), or None
        The server's own.

    Returns
    -------
    RunConfig

    Raises
    ------
    ConfigurationError
        As `flwr_dpkmeans.flower.server_app.strategy_from_run_config`.
    """
    is_exact = run_config.get("evaluation") == EvaluationKind.EXACT.value
    if is_exact:
        # Outside Flower's own simulation that is refused; here all rows are the
        # caller's.
        run_config = {**run_config, "evaluation": EvaluationKind.PRIVATE.value}
    config = strategy_from_run_config(run_config, server_points=server_points).config
    if is_exact:
        return config.changed(evaluation=EvaluationKind.EXACT)
    return config


def _require_plain(settings: Mapping[str, Any]) -> None:
    """Refuse values of a wrong type or range that only simulations read."""
    for name, least in _INTEGERS.items():
        group, _, leaf = name.rpartition(".")
        inner = settings[group] if group else settings
        value = inner.get(leaf, least)
        if (name, value) == ("n_clients", None) and settings["data"][
            "source"
        ] in SPREAD:
            continue
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not least <= value < _TOO_LARGE
        ):
            raise ConfigurationError(
                f"{name} is {value!r}, but it must be an integer of at least {least}:"
                f" give {least}."
            )
    if not isinstance(settings["engine"]["masking"], bool):
        raise ConfigurationError(
            f"engine.masking is {settings['engine']['masking']!r}, but it must be true"
            " or false: give one."
        )
    if not isinstance(settings["metrics"], list | tuple):
        raise ConfigurationError(
            f"metrics is {settings['metrics']!r}, but it must be a list: give such as"
            " metrics=[nicv,silhouette]."
        )
    bounds = settings["data"]["bounds"]
    if bounds not in (None, RANGE, PRIVATE):
        read_ranges(bounds).matched(None)


def central_config(settings: Mapping[str, Any], bounds: Bounds) -> dict[str, Any]:
    """Options of `FederatedKMeans` for a baseline that needs all rows in one place.

    Parameters
    ----------
    settings : mapping
        Resolved.
    bounds : Bounds
        Of the data.

    Returns
    -------
    dict

    Raises
    ------
    ConfigurationError
        If an option is unknown or out of range, or the unit or trust model is none that
        such a baseline has.
    """
    privacy, algorithm = settings["privacy"], dict(settings["algorithm"])
    options = {
        "algorithm": algorithm.pop("name"),
        "random_state": settings["seed"],
        **algorithm,
    }
    options["trust"] = settings["trust"]["name"]
    options |= {
        name: privacy[name]
        for name in ("epsilon", "delta", "noise", "unit", "n_examples")
    }
    options |= {
        "n_clusters": settings["data"]["n_clusters"],
        "bounds": (bounds.lower, bounds.upper),
    }
    require_central(read_config(**options))
    task_options = {
        option: options.pop(option) for option in algorithm if option != "max_iter"
    }
    return options | {"algorithm": algorithm_value(options["algorithm"], task_options)}


def algorithm_value(name: str, options: Mapping[str, Any]) -> str | Options:
    """An algorithm with some options of its own, as an argument has it.

    Parameters
    ----------
    name : str
        The algorithm.
    options : mapping
        By name.

    Returns
    -------
    str or Options
        The name alone without options.
    """
    return task_kind(name).option_class()(**options) if options else name


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Leaves of a configuration by dotted names, lists as text, without what changes no
    result but the label.

    Examples
    --------
    >>> algorithm = {"name": "lloyd", "budget_shares": [0.5, 0.5]}
    >>> flat({"seed": 1, "algorithm": algorithm, "output": "x"})
    {'seed': 1, 'algorithm.name': 'lloyd', 'algorithm.budget_shares': '0.5 0.5'}
    """
    hidden = set(_NOT_OF_THE_RUN) - {"variant"}
    return dict(
        _leaves(
            {name: value for name, value in settings.items() if name not in hidden}, ""
        )
    )


def job_key(settings: Mapping[str, Any]) -> str:
    """Name a job by everything that its result depends on, data files included.

    Parameters
    ----------
    settings : mapping
        Resolved.

    Returns
    -------
    str
        The same for the same result; epsilon counts only where there is privacy.
    """
    columns = {
        name: value for name, value in settings.items() if name not in _NOT_OF_THE_RUN
    }
    if columns["algorithm"]["name"] in NOT_PRIVATE:
        columns["privacy"] = {
            name: value
            for name, value in columns["privacy"].items()
            if name != "epsilon"
        }
    # Resources change no result, nor does the place of a data file whose content
    # counts.
    columns["engine"] = {
        name: columns["engine"].get(name) for name in ("name", "masking")
    }
    files = _files(columns["data"])
    if files:
        columns["data"] = {
            name: value for name, value in columns["data"].items() if name != "path"
        }
    named = (
        __version__,
        _MEASURES,
        _one_spelling(columns),
        [_fingerprint(path) for path in files],
    )
    return hashlib.sha256(
        json.dumps(named, sort_keys=True, default=str).encode()
    ).hexdigest()[:24]


def _one_spelling(value: Any) -> Any:
    """The same number in the same words: 1 and 1.0 are one epsilon."""
    if isinstance(value, Mapping):
        return {name: _one_spelling(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_one_spelling(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _leaves(value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Leaves of nested mappings."""
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _leaves(inner, f"{prefix}{name}.")
        elif isinstance(inner, list | tuple):
            yield prefix + name, " ".join(str(value_part) for value_part in inner)
        else:
            yield prefix + name, inner


def _hyphenated(name: str) -> str:
    """A key as run configurations spell it; names of tables keep their underscores."""
    table, dot, option = name.rpartition(".")
    return table + dot + option.replace("_", "-")


def _scalar(value: Any) -> Scalar:
    """A list as text with commas, as run configurations have it."""
    return (
        ",".join(repr(item) for item in value)
        if isinstance(value, list | tuple)
        else value
    )


def _files(data: Mapping[str, Any]) -> list[Path]:
    """Files that the group ``data`` names."""
    named = [data.get("path"), data["bounds"], data["server"]]
    paths = [
        Path(name).expanduser()
        for name in named
        if isinstance(name, str) and name not in BUNDLED
    ]
    inside = [
        inner for path in paths if path.is_dir() for inner in sorted(path.iterdir())
    ]
    return [path for path in (*paths, *inside) if path.is_file()]


@lru_cache(maxsize=64)
def _fingerprint(path: Path) -> str:
    """Hash of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
