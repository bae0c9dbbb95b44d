"""From the groups `data` and `partition` of a configuration to points, labels, clients
and server points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.server.resolved_bounds import resolve_bounds
from flwr_dpkmeans.data.bundled import BUNDLED
from flwr_dpkmeans.data.files.dialect import Dialect
from flwr_dpkmeans.data.loading.server_table import load_server_table
from flwr_dpkmeans.data.loading.source import load_source
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.simulated.mixture import MIXTURE_BOUNDS, MixtureClients
from flwr_dpkmeans.data.simulated.partition import MIXTURE
from flwr_dpkmeans.errors import ConfigurationError, DataError, nearest
from simulations.sources.census import load_census
from simulations.sources.federated import FederatedData
from simulations.sources.mixture import draw_gaussian_mixture
from simulations.sources.stack_overflow import load_stack_overflow
from simulations.sources.synthetic import (
    LabelledPoints,
    draw_balanced_clusters,
    draw_g2,
    draw_max_cover_mixture,
    draw_separated_clusters,
)

Array = NDArray[np.float64]

FILE = "file"
RANGE = "range"
"""Spelling of bounds that are the rows' own range.

Not private, for figures of papers that scale so.
"""
OWN = "own"
"""Spelling of server points that come with the data.

Every algorithm that can use some gets them.
"""
HELD_OUT = "held_out"
"""Spelling of server points that are rows of the data, and uniform ones.

No client then has these rows.
"""
_HELD_OUT_ROWS = 20
"""Rows for each cluster that are held out."""
_HELD_OUT_PART = 0.1
"""The largest part of all rows that is held out."""
SPREAD = ("census", "stack_overflow")
"""Sources whose rows belong to one client each: they say how many clients there are."""


@dataclass(frozen=True, eq=False)
class DataSet:
    """Points of an experiment, with what is known of them.

    Parameters
    ----------
    points : ndarray, (n, d)
        Of all clients, in the data's units, client after client where `sizes` are
        given.
    labels : ndarray, (n,), or None
        Classes, for metrics only.
    means : ndarray, (k, d), or None
        True centres of drawn clusters.
    server_points : ndarray, (m, d), or None
        The server's own, for algorithms that start from them.
    bounds : Bounds or None
        Public ones that come with the data.
    partition_values : ndarray, (n,), or None
        The column that rows are spread by.
    sizes : tuple of int or None
        Rows of each client, where the data are spread already.
    names : tuple of str
        Of the columns, where they have some.
    """

    points: Array
    labels: NDArray[np.generic] | None = None
    means: Array | None = None
    server_points: Array | None = None
    bounds: Bounds | None = None
    partition_values: NDArray[np.generic] | None = None
    sizes: tuple[int, ...] | None = None
    names: tuple[str, ...] = ()


def load_data_set(settings: Mapping[str, Any]) -> DataSet:
    """Load or draw the data of an experiment.

    Parameters
    ----------
    settings : mapping
        A resolved configuration: its groups ``data`` and ``partition``, and
        ``n_clients`` (None where the data say it).

    Returns
    -------
    DataSet
        The last few are kept in memory: do not change their arrays.

    Raises
    ------
    ConfigurationError, DataError
        One sentence.

    Examples
    --------
    >>> data = {"source": "iris", "label_column": "target", "server": None}
    >>> settings = {"data": data, "partition": {"column": None}, "n_clients": 2}
    >>> iris = load_data_set(settings)
    >>> iris.points.shape, iris.labels.shape
    ((150, 4), (150,))
    """
    column = settings["partition"]["column"] or ""
    return _loaded(_frozen(settings["data"]), str(column), settings["n_clients"])


def own_range(points: Array) -> Bounds:
    """Bounds that are the rows' own range (not private).

    A column of one value gets an extent.

    Examples
    --------
    >>> own_range(np.array([[0.0, 3.0], [2.0, 3.0]]))
    Bounds(lower=(0.0, 2.5), upper=(2.0, 3.5))
    """
    low = points.min(axis=0)
    high = points.max(axis=0)
    is_flat = high <= low
    lower = np.where(is_flat, low - 0.5, low)
    upper = np.where(is_flat, high + 0.5, high)
    return Bounds(tuple(lower.tolist()), tuple(upper.tolist()))


def require_source(data: Mapping[str, Any]) -> None:
    """Refuse a source that does not exist, before anything is run.

    Parameters
    ----------
    data : mapping
        The group ``data``.

    Raises
    ------
    ConfigurationError
        With the nearest name.
    DataError
        If there is no such file.
    """
    source = data["source"]
    sources = (*BUNDLED, *_DRAWN, *SPREAD, FILE, MIXTURE)
    if source not in sources:
        raise ConfigurationError(
            f"data.source is {source!r}: {nearest(source, sources)}"
        )
    if "path" in data and not Path(data["path"]).expanduser().exists():
        path = str(Path(data["path"]).absolute())
        raise DataError(
            f"the data file {path!r} does not exist: give"
            " its path with data.path=..., or the folder of all data files with"
            " data_dir=..."
        )
    server = data["server"]
    if server in (None, OWN, HELD_OUT, *BUNDLED):
        return
    if not Path(server).expanduser().exists():
        raise DataError(
            f"data.server is {str(server)!r}, and there is no such file: give the path"
            f" of one, a bundled name, data.server={OWN} or data.server={HELD_OUT}."
        )


def _frozen(data: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """A key for the cache: entries of the group, lists and mappings as tuples."""
    return tuple((name, _hashable(value)) for name, value in sorted(data.items()))


def _hashable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple((name, _hashable(part)) for name, part in value.items())
    return tuple(value) if isinstance(value, list) else value


@lru_cache(maxsize=2)
def _loaded(
    frozen: tuple[tuple[str, Any], ...],
    column: str,
    n_clients: int | None,
) -> DataSet:
    """Load once in a row of jobs."""
    data = dict(frozen)
    require_source(data)
    data_set = _read(data, column, n_clients)
    if data["server"] == HELD_OUT:
        return _held_out(data, data_set)
    return data_set


def _read(
    data: Mapping[str, Any],
    column: str,
    n_clients: int | None,
) -> DataSet:
    """The rows as their source gives them."""
    source = data["source"]
    if source == MIXTURE:
        return _mixture(data, int(n_clients or 0))
    if source in _DRAWN:
        drawn = _DRAWN[source](data)
        server_points = _server_points(data)
        return DataSet(drawn.points, drawn.labels, drawn.means, server_points)
    if source == "census":
        return _spread(_census(data))
    if source == "stack_overflow":
        return _spread(_stack_overflow(data))
    return _table(data, column)


def _table(data: Mapping[str, Any], column: str) -> DataSet:
    """Rows of a bundled data set or of a file."""
    source = str(data.get("path", data["source"]))
    label = data["label_column"] or ""
    described = BUNDLED.get(source)
    reading: dict[str, Any] = {"label_column": ""}
    if described is None:
        dialect = Dialect(**dict(data.get("file") or ()))
        reading = {"label_column": label, "dialect": dialect}
    table = load_source(
        source,
        partition_column=column,
        **reading,
    )
    labels = None
    if label:
        with_labels = load_source(
            source,
            partition_column=label,
            **reading,
        )
        labels = with_labels.partition_values
    return DataSet(
        table.points,
        labels,
        server_points=_server_points(data, table.names),
        bounds=None if described is None else described.bounds,
        partition_values=table.partition_values,
        names=table.names,
    )


def _server_points(
    data: Mapping[str, Any], names: tuple[str, ...] = ()
) -> Array | None:
    """The server's own points as the configuration names them.

    With columns in the order of the data's names.
    """
    if data["server"] in (None, OWN, HELD_OUT):
        return None
    table = load_server_table(data["server"])
    # Arrays without names are taken in their order: experiments write many.
    _, _, points = resolve_bounds(
        (-1.0, 1.0),
        table,
        names=names,
        allow_unnamed=True,
    )
    return points


def _mixture(data: Mapping[str, Any], n_clients: int) -> DataSet:
    """The drawn clients of FedDP-KMeans' experiments, as the Flower app draws them."""
    n_rows = int(data["rows_per_client"])
    mixture = MixtureClients(int(data["seed"]), n_rows)
    clients = [mixture.client_points(client) for client in range(n_clients)]
    server = _server_points(data)
    if server is None:
        rng = np.random.default_rng(mixture.seed)
        missing = int(data["missing_components"])
        server = draw_gaussian_mixture(
            rng,
            n_clients=1,
            points_per_client=0,
            missing_components=missing,
        ).server_points
    return DataSet(
        np.concatenate(clients),
        means=mixture.means(),
        server_points=server,
        bounds=MIXTURE_BOUNDS,
        sizes=(n_rows,) * n_clients,
    )


def _held_out(data: Mapping[str, Any], data_set: DataSet) -> DataSet:
    """Make some rows the server's own, with half as many uniform points.

    As in the mixture of FedDP-KMeans.
    """
    if data_set.sizes is not None:
        raise ConfigurationError(
            f"data.server is {HELD_OUT!r}, but the rows of {data['source']!r} belong to"
            f" clients: use data.server={OWN}."
        )
    rng = np.random.default_rng([_HELD_OUT_ROWS, int(data.get("seed", 0))])
    points = data_set.points
    n_clusters = data["n_clusters"] if isinstance(data["n_clusters"], int) else 10
    n_most = int(_HELD_OUT_PART * len(points))
    n_chosen = max(1, min(_HELD_OUT_ROWS * n_clusters, n_most))
    chosen = np.zeros(len(points), dtype=bool)
    chosen[rng.choice(len(points), n_chosen, replace=False)] = True
    box = own_range(points)
    uniform = rng.uniform(box.lower, box.upper, (n_chosen // 2, points.shape[1]))
    labels = data_set.labels
    if labels is not None:
        labels = labels[~chosen]
    partition_values = data_set.partition_values
    if partition_values is not None:
        partition_values = partition_values[~chosen]
    return replace(
        data_set,
        points=points[~chosen],
        labels=labels,
        partition_values=partition_values,
        server_points=np.concatenate([points[chosen], uniform]),
    )


def _spread(federated: FederatedData) -> DataSet:
    """Rows that belong to a client each, with the server's points."""
    return DataSet(
        np.concatenate(federated.clients),
        server_points=federated.server_points,
        sizes=tuple(len(rows) for rows in federated.clients),
    )


def _census(data: Mapping[str, Any]) -> FederatedData:
    """People of one kind of employment."""
    rng = np.random.default_rng(int(data["seed"]))
    return load_census(
        Path(data["path"]).expanduser(),
        int(data["employment"]),
        rng=rng,
        states=data["states"],
    )


def _stack_overflow(data: Mapping[str, Any]) -> FederatedData:
    """Questions with chosen tags."""
    rng = np.random.default_rng(int(data["seed"]))
    return load_stack_overflow(
        Path(data["path"]).expanduser(), tuple(data["tags"]), rng=rng
    )


def _draw_synth(data: Mapping[str, Any]) -> LabelledPoints:
    """Separated clusters."""
    return draw_separated_clusters(
        np.random.default_rng(int(data["seed"])),
        n_points=int(data["n_points"]),
        n_clusters=int(data["n_clusters"]),
        n_features=int(data["n_features"]),
        separation=data["separation"],
        sizes=data["sizes"],
        n_outliers=data["n_outliers"],
    )


def _draw_time_synth(data: Mapping[str, Any]) -> LabelledPoints:
    """Balanced clusters."""
    return draw_balanced_clusters(
        np.random.default_rng(int(data["seed"])),
        n_points=int(data["n_points"]),
        n_clusters=int(data["n_clusters"]),
        n_features=int(data["n_features"]),
    )


def _draw_g2(data: Mapping[str, Any]) -> LabelledPoints:
    """Two Gaussians."""
    rng = np.random.default_rng(int(data["seed"]))
    return draw_g2(
        rng,
        n_features=int(data["n_features"]),
        deviation=float(data["deviation"]),
    )


def _draw_max_cover(data: Mapping[str, Any]) -> LabelledPoints:
    """64 clipped Gaussians."""
    return draw_max_cover_mixture(
        np.random.default_rng(int(data["seed"])), n_points=int(data["n_points"])
    )


_DRAWN: Mapping[str, Callable[[Mapping[str, Any]], LabelledPoints]] = MappingProxyType(
    {
        "synth": _draw_synth,
        "time_synth": _draw_time_synth,
        "g2": _draw_g2,
        "max_cover": _draw_max_cover,
    }
)
