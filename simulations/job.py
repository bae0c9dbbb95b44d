"""One run of a sweep: load, cluster, look at the result, return one row of the table."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.algorithms import NOT_FEDERATED
from flwr_dpkmeans.data.bounds import Bounds
from flwr_dpkmeans.errors import DPKMeansError
from flwr_dpkmeans.flower.engines import FittedFederation, fit_direct, fit_inprocess
from flwr_dpkmeans.flower.run_config import strategy_from_run_config
from flwr_dpkmeans.flower.units import in_squared_units
from flwr_dpkmeans.kmeans.metrics import cost_per_point
from flwr_dpkmeans.results.metrics import clustering_metrics, optimal_centroids
from simulations.configuration import NOT_PRIVATE, central_config, flat, job_key, require_valid, run_config_of
from simulations.datasets import DataSet, bounds_of, load_data_set, reference_box, server_points_of, split
from simulations.outcome import Outcome

Array = NDArray[np.float64]

OPTIMUM_STARTS = 10
"""k-means++ starts of the non-private optimum, beside the true means where they are known."""


def run_job(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run one configuration.

    Parameters
    ----------
    settings : mapping
        Resolved configuration.

    Returns
    -------
    dict
        A row: the configuration's leaves by dotted names, then what was found. Metrics look at the exact data and are
        not private. A failure is a row as well, with its reason.
    """
    row = flat(settings) | {"job": job_key(settings)}
    try:
        return result_row(settings, *run_settings(settings))
    except DPKMeansError as error:
        return row | {"status": "failed", "reason": f"{type(error).__name__}: {error}"}
    except Exception as error:
        logging.getLogger("simulations").debug("a run failed", exc_info=True)
        return row | {"status": "failed", "reason": f"unexpected {type(error).__name__}: {error}"}


def result_row(settings: Mapping[str, Any], outcome: Outcome, data: DataSet) -> dict[str, Any]:
    """The row of a finished run: the configuration's leaves, then what was found."""
    row = flat(settings) | {"job": job_key(settings), "status": "done", "reason": None}
    return row | measured(settings, outcome, data)


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
        What was clustered.

    Raises
    ------
    DPKMeansError
        One sentence.
    """
    require_valid(settings)
    data = load_data_set(settings)
    if settings["algorithm"]["name"] in NOT_FEDERATED:
        return _central(settings, data), data
    return _ENGINES[settings["engine"]["name"]](settings, data), data


def measured(settings: Mapping[str, Any], outcome: Outcome, data: DataSet) -> dict[str, Any]:
    """Result columns: what the run says of itself, and metrics on the exact data (not private).

    Parameters
    ----------
    settings : mapping
        Resolved configuration; ``metrics`` says what is wanted beside the cost.
    outcome : Outcome
        Of the run.
    data : DataSet
        What it clustered.

    Returns
    -------
    dict
    """
    scaler = reference_box(settings, data)
    points, centers = scaler.scale(data.points), scaler.scale(outcome.centers)
    private = settings["algorithm"]["name"] not in NOT_PRIVATE and math.isfinite(outcome.privacy.epsilon)
    columns: dict[str, Any] = {
        "epsilon": outcome.privacy.epsilon if private else None,
        "delta": outcome.privacy.delta if private else None,
        "n_iterations": outcome.n_iterations,
        "n_rows": len(points),
        "n_columns": points.shape[1],
        "n_found_clusters": len(centers),
        "seconds": outcome.seconds,
        "cost_per_point": cost_per_point(data.points, outcome.centers),
        "cost_curve": None if outcome.cost_curve is None else outcome.cost_curve.tolist(),
        **outcome.columns,
    }
    wanted = tuple(dict.fromkeys(("nicv", *settings["metrics"])))
    reference = None
    if {"nicv_optimum", "centroid_error"} & set(wanted):
        reference, optimum = _reference(_Key(settings, scaler, data))
        columns["nicv_optimum"] = optimum
    found = clustering_metrics(
        points,
        centers,
        labels=_known_labels(data, wanted),
        reference_centroids=reference,
        which=tuple(name for name in wanted if name != "nicv_optimum"),
        sample_size=int(settings["sample_size"]),
        rng=np.random.default_rng([int(settings["seed"]), 2]),
    )
    return columns | {name: getattr(found, name) for name in wanted if name != "nicv_optimum"}


def _known_labels(data: DataSet, wanted: Sequence[str]) -> NDArray[np.generic] | None:
    """Labels, only where a metric asks for them."""
    return data.labels if {"accuracy", "purity"} & set(wanted) else None


def _prepared(settings: Mapping[str, Any], data: DataSet) -> tuple[list[Array], Array | None, dict[str, Any]]:
    """Clients' rows, the server's points and the run configuration with what is public of the data."""
    server_points = server_points_of(settings, data)
    bounds = bounds_of(settings, data, server_points)
    parts = [data.points[rows] for rows in split(settings, data)]
    run_config: dict[str, Any] = run_config_of(settings)
    run_config["n-features"] = data.points.shape[1]
    if settings["privacy"]["unit"] == "record" and bounds != "private":
        run_config["n-examples"] = len(data.points)
    if bounds is not None:
        run_config["bounds"] = bounds
    return parts, server_points, run_config


def _in_process(settings: Mapping[str, Any], data: DataSet) -> Outcome:
    """Flower's messages in this process, or the same rounds without them."""
    parts, server_points, run_config = _prepared(settings, data)
    config = strategy_from_run_config(run_config, server_points=server_points).config
    direct = settings["engine"]["name"] == "direct"
    fit: Callable[..., FittedFederation] = fit_direct if direct else fit_inprocess
    start = time.perf_counter()
    found = fit(replace(config, masking=bool(settings["engine"]["masking"])), parts, server_points)
    seconds = time.perf_counter() - start
    curve = found.cost_curve
    if curve is not None:
        box = config.bounds if found.bounds is None else found.bounds
        curve = in_squared_units(curve, replace(config, bounds=box))
    return Outcome(found.centers, found.privacy, len(found.movements), seconds, curve)


def _central(settings: Mapping[str, Any], data: DataSet) -> Outcome:
    """A baseline on all rows in one place."""
    bounds = bounds_of(settings, data, None)
    if not isinstance(bounds, Bounds):
        bounds = reference_box(settings, data)
    parts = [data.points[rows] for rows in split(settings, data)]
    model = FederatedKMeans(**central_config(settings, bounds))
    start = time.perf_counter()
    model.fit(parts)
    seconds = time.perf_counter() - start
    return Outcome(model.cluster_centers_, model.privacy_, model.n_iter_, seconds)


def _on_ray(settings: Mapping[str, Any], data: DataSet) -> Outcome:
    """Flower's Ray simulation."""
    from simulations.ray_job import run_ray_job

    _, server_points, run_config = _prepared(settings, data)
    return run_ray_job(settings, data, run_config, server_points)


_ENGINES: Mapping[str, Callable[[Mapping[str, Any], DataSet], Outcome]] = MappingProxyType(
    {"inprocess": _in_process, "direct": _in_process, "ray": _on_ray}
)


class _Key:
    """Data and box by which an optimum is remembered."""

    def __init__(self, settings: Mapping[str, Any], scaler: Bounds, data: DataSet) -> None:
        self.n_clusters, self.scaler, self.data = settings["data"]["n_clusters"], scaler, data
        if not isinstance(self.n_clusters, int):
            self.n_clusters = 10 if data.means is None else len(data.means)

    def __hash__(self) -> int:
        return hash((self.n_clusters, self.scaler, id(self.data)))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Key)
            and (self.n_clusters, self.scaler) == (other.n_clusters, other.scaler)
            and self.data is other.data
        )


@lru_cache(maxsize=4)
def _reference(key: _Key) -> tuple[Array, float]:
    """The best non-private centroids in the scaled box, and their cost; once for all runs on the same data."""
    points = key.scaler.scale(key.data.points)
    means = key.data.means
    start = () if means is None or len(means) != key.n_clusters else (key.scaler.scale(means),)
    centroids = optimal_centroids(points, key.n_clusters, n_init=OPTIMUM_STARTS, seed=0, init=start)
    return centroids, cost_per_point(points, centroids)


def log_quietly() -> None:
    """Leave warnings of single runs out of a sweep's output: each row has its report's figures."""
    for name in ("flwr_dpkmeans", "flwr"):
        logging.getLogger(name).setLevel(logging.ERROR)
