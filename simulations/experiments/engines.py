"""How one configuration is run: in process, directly, on Ray, or, for some baselines,
on all rows in one place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.measure.evaluated_state import COST_CURVE
from flwr_dpkmeans.algorithms.one_place.not_federated import NOT_FEDERATED
from flwr_dpkmeans.algorithms.server.box_units import in_callers_units
from flwr_dpkmeans.algorithms.server.box_widths import squared_unit
from flwr_dpkmeans.algorithms.server.resolved_bounds import is_private
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.estimators.run_engines import ENGINES
from flwr_dpkmeans.sums.settings import EvaluationKind
from simulations.experiments.configuration import (
    NOT_PRIVATE,
    central_config,
    federated_config,
    require_valid,
    run_config_of,
)
from simulations.experiments.datasets import DataSet, load_data_set
from simulations.experiments.federation import (
    bounds_of,
    clustered,
    n_clients_of,
    reference_box,
    server_points_of,
    split,
)
from simulations.experiments.outcome import Outcome, evaluation_columns

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A configuration with its data.

    Parameters
    ----------
    settings : mapping
        Resolved.
    data : DataSet
        All rows.
    rows : list of ndarray
        Of each client.
    labels : ndarray, (n,), or None
        Classes counted from 0, if an evaluation is to see them.
    server_points : ndarray, (m, d), or None
        The server's own.
    bounds : Bounds, "private" or None
        None: they follow from the server's points.
    run_config : dict
        Keys of `flwr run`, with what is public of the data but without data, bounds and
        server data.
    """

    settings: Mapping[str, Any]
    data: DataSet
    rows: list[NDArray[np.int64]]
    labels: NDArray[np.int64] | None
    server_points: Array | None
    bounds: Bounds | str | None
    run_config: dict[str, Any]


def run_settings(settings: Mapping[str, Any]) -> tuple[Outcome, DataSet]:
    """Cluster as configured.

    Parameters
    ----------
    settings : mapping
        Resolved configuration.

    Returns
    -------
    Outcome
    DataSet
        What was clustered: without rows that no client has.

    Raises
    ------
    DPKMeansError
        One sentence.
    """
    require_valid(settings)
    data = load_data_set(settings)
    settings = {**settings, "n_clients": n_clients_of(settings, data)}
    data_clustered = clustered(settings, data)
    if settings["algorithm"]["name"] in NOT_FEDERATED:
        return _central(settings, data_clustered), data_clustered
    return _ENGINES[settings["engine"]["name"]](
        _prepared(settings, data, data_clustered)
    ), data_clustered


def _prepared(
    settings: Mapping[str, Any], data: DataSet, clustered_data: DataSet
) -> Prepared:
    """Split the rows, and say in the run configuration what is public of those that are
    kept.
    """
    server_points = server_points_of(settings, data)
    bounds = bounds_of(settings, clustered_data, server_points)
    run_config: dict[str, Any] = run_config_of(settings)
    run_config["n-features"] = data.points.shape[1]
    if settings["privacy"]["unit"] == "record" and not is_private(bounds):
        run_config["n-examples"] = len(clustered_data.points)
    labels = None
    if settings["evaluation"] != EvaluationKind.NONE.value and data.labels is not None:
        classes, labels = np.unique(data.labels, return_inverse=True)
        run_config["n-classes"] = len(classes)
    return Prepared(
        settings, data, split(settings, data), labels, server_points, bounds, run_config
    )


def _in_process(prepared: Prepared) -> Outcome:
    """Flower's messages in this process, or the same rounds without them."""
    settings, data, run_config = (
        prepared.settings,
        prepared.data,
        dict(prepared.run_config),
    )
    if prepared.bounds is not None:
        run_config["bounds"] = prepared.bounds
    config = federated_config(run_config, prepared.server_points)
    config = config.changed(masking=bool(settings["engine"]["masking"]))
    parts = [data.points[rows] for rows in prepared.rows]
    labels = (
        None
        if prepared.labels is None
        else [prepared.labels[rows] for rows in prepared.rows]
    )
    start = time.perf_counter()
    outcome = ENGINES[settings["engine"]["name"]](
        config, parts, prepared.server_points, labels
    )
    seconds = time.perf_counter() - start
    plan, state = outcome.plan, outcome.state
    curve = state.extras.get(COST_CURVE)
    if curve is not None:
        curve = curve * (squared_unit(plan.bounds) or 1.0)
    columns = (
        {}
        if outcome.evaluation is None
        else evaluation_columns(outcome.evaluation.to_dict())
    )
    return Outcome(
        in_callers_units(plan, state.centroids),
        outcome.privacy,
        len(state.movements),
        seconds,
        curve,
        columns,
    )


def _central(settings: Mapping[str, Any], data: DataSet) -> Outcome:
    """A baseline on all rows in one place."""
    # The other engines need no estimator, whose base class takes a second to import.
    from flwr_dpkmeans import FederatedKMeans

    exact = settings["algorithm"]["name"] in NOT_PRIVATE
    # What releases exact centroids clips nothing: its box may be the rows' own.
    bounds = reference_box(settings, data) if exact else bounds_of(settings, data, None)
    assert isinstance(bounds, Bounds)
    parts = [data.points[rows] for rows in split(settings, data)]
    model = FederatedKMeans(**central_config(settings, bounds))
    start = time.perf_counter()
    model.fit(parts)
    seconds = time.perf_counter() - start
    return Outcome(model.cluster_centers_, model.privacy_, model.n_iter_, seconds)


def _on_ray(prepared: Prepared) -> Outcome:
    """Flower's Ray simulation."""
    from simulations.experiments.ray_job import run_ray_job

    return run_ray_job(
        prepared.settings,
        prepared.data,
        prepared.run_config,
        bounds=prepared.bounds,
        server_points=prepared.server_points,
        labels=prepared.labels,
    )


_ENGINES: Mapping[str, Callable[[Prepared], Outcome]] = MappingProxyType(
    {"inprocess": _in_process, "direct": _in_process, "ray": _on_ray}
)
