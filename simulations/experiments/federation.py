"""How the data of an experiment become a federation.

Who holds which rows, the box, and the server's own points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.one_place.not_federated import (
    NOT_FEDERATED,
    algorithm_entry,
)
from flwr_dpkmeans.algorithms.server.resolved_bounds import PRIVATE, is_private
from flwr_dpkmeans.data.bounds.stated_bounds import read_ranges
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.simulated.partition import (
    Partition,
    parse_sizes,
    partition_indices,
)
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.sums.public_facts import ServerData
from simulations.experiments.datasets import HELD_OUT, OWN, RANGE, DataSet, own_range

Array = NDArray[np.float64]


def split(settings: Mapping[str, Any], data: DataSet) -> list[NDArray[np.int64]]:
    """Rows of each client.

    Parameters
    ----------
    settings : mapping
        As for `load_data_set`; its group ``partition`` says how.
    data : DataSet
        What is split.

    Returns
    -------
    list of ndarray of int64
        As the clients of a Flower run would choose their rows.

    Raises
    ------
    ConfigurationError, DataError
        If the rows cannot be split so.
    """
    n_clients, partition = n_clients_of(settings, data), settings["partition"]
    if data.sizes is not None:
        if len(data.sizes) != n_clients:
            raise ConfigurationError(
                f"n_clients is {n_clients}, but {settings['data']['source']!r} is"
                f" spread over {len(data.sizes)} clients already: give"
                f" n_clients={len(data.sizes)}."
            )
        return [
            np.arange(start, end)
            for start, end in pairwise(np.cumsum((0, *data.sizes)))
        ]
    text = partition["sizes"]
    if isinstance(text, list | tuple):
        text = ",".join(map(str, text))
    sizes = None
    if partition["kind"] == Partition.FIXED_SIZES:
        sizes = parse_sizes(text)
    return [
        partition_indices(
            len(data.points),
            n_clients,
            part,
            seed=int(partition["seed"]),
            kind=partition["kind"],
            column_values=data.partition_values,
            alpha=float(partition["alpha"]),
            sizes=sizes,
        )
        for part in range(n_clients)
    ]


def clustered(settings: Mapping[str, Any], data: DataSet) -> DataSet:
    """The rows that clients have, one client after the other.

    Sizes that add up to less leave rows out.

    Parameters
    ----------
    settings : mapping
        A resolved configuration.
    data : DataSet
        What it loads.

    Returns
    -------
    DataSet
        The same where no row is left out.
    """
    if data.sizes is not None or settings["partition"]["kind"] != Partition.FIXED_SIZES:
        return data
    parts = split(settings, data)
    rows = np.concatenate(parts)
    if len(rows) == len(data.points):
        return data
    labels = None if data.labels is None else data.labels[rows]
    sizes = tuple(len(part) for part in parts)
    return replace(
        data,
        points=data.points[rows],
        labels=labels,
        partition_values=None,
        sizes=sizes,
    )


def n_clients_of(settings: Mapping[str, Any], data: DataSet) -> int:
    """The number of clients: as configured, or as many as the data are spread over."""
    n_clients = settings["n_clients"]
    return int(n_clients) if n_clients is not None else len(data.sizes or ())


def gives_server_points(settings: Mapping[str, Any]) -> bool:
    """Whether a run gets points of the server's.

    Where it needs them, or can use them and is to, or a path says so.

    Parameters
    ----------
    settings : mapping
        A resolved configuration.

    Returns
    -------
    bool
    """
    name = settings["algorithm"]["name"]
    server = settings["data"]["server"]
    use = ServerData.NONE
    if name not in NOT_FEDERATED:
        use = algorithm_entry(name).server_data
    if server in (OWN, HELD_OUT):
        return use is not ServerData.NONE
    return server is not None or use is ServerData.NEEDED


def server_points_of(settings: Mapping[str, Any], data: DataSet) -> Array | None:
    """The server's points in one run: those that a path names, or the data's own where
    the algorithm uses some.

    Parameters
    ----------
    settings : mapping
        A resolved configuration.
    data : DataSet
        What it loads.

    Returns
    -------
    ndarray, (m, d), or None

    Raises
    ------
    ConfigurationError
        If the algorithm needs some and there are none.
    """
    name = settings["algorithm"]["name"]
    if not gives_server_points(settings):
        return None
    if data.server_points is None:
        raise ConfigurationError(
            f"{name!r} starts from the server's own points, but there are none: give"
            " data.server=FILE, or data=mixture."
        )
    return data.server_points


def bounds_of(
    settings: Mapping[str, Any], data: DataSet, server_points: Array | None
) -> Bounds | str | None:
    """Bounds as the configuration says: given, private, of the rows, or those that come
    with the data.

    Parameters
    ----------
    settings : mapping
        A resolved configuration.
    data : DataSet
        What it loads.
    server_points : ndarray, (m, d), or None
        What the run has of the server's.

    Returns
    -------
    Bounds, "private" or None
        None: they follow from the server's points.

    Raises
    ------
    ConfigurationError
        If none are given and none come with the data.
    """
    bounds = settings["data"]["bounds"]
    if is_private(bounds):
        return PRIVATE
    if bounds is not None:
        return reference_box(settings, data)
    if server_points is not None:
        return None
    if data.bounds is None:
        raise ConfigurationError(
            "data.bounds is null, but no public ones come with these data: give such as"
            " data.bounds=[0,100], private ones with data.bounds=private, or"
            " data.bounds=range for figures that nobody has to be protected in."
        )
    return reference_box(settings, data)


def reference_box(settings: Mapping[str, Any], data: DataSet) -> Bounds:
    """The box in which all methods on the same data are compared.

    Public bounds, or else the rows' own range.

    Parameters
    ----------
    settings : mapping
        A resolved configuration.
    data : DataSet
        What it loads.

    Returns
    -------
    Bounds
        The same for every method, also for one that finds bounds itself or takes them
        from the server's points.
    """
    bounds = settings["data"]["bounds"]
    width = data.points.shape[1]
    if bounds not in (None, RANGE, PRIVATE):
        if read_ranges(bounds).names and not data.names:
            raise ConfigurationError(
                f"data.bounds is {bounds!r}, whose rows have the names of columns, but"
                " the data have none: leave the names out of it."
            )
        return read_ranges(bounds).matched(data.names or None).for_features(width)
    if bounds == RANGE or data.bounds is None:
        return own_range(data.points)
    return data.bounds.for_features(width)
