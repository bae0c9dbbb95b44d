"""One run of a sweep: load, cluster, look at the result, return a row of the table."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans import __version__
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.errors import DPKMeansError
from flwr_dpkmeans.kmeans.cost import cost_per_point
from simulations.experiments.clustering_metrics import (
    clustering_metrics,
    optimal_centroids,
)
from simulations.experiments.configuration import NOT_PRIVATE, flat, job_key
from simulations.experiments.datasets import DataSet
from simulations.experiments.engines import run_settings
from simulations.experiments.federation import n_clients_of, reference_box
from simulations.experiments.outcome import EVALUATED, Outcome

Array = NDArray[np.float64]
Run = Callable[[Mapping[str, Any]], tuple[Outcome, DataSet]]

OPTIMUM_STARTS = 10
"""k-means++ starts of the non-private optimum, beside the true means where they are
known.
"""
_FOUND_NUMBERS = (
    "n_iterations",
    "n_rows",
    "n_columns",
    "n_found_clusters",
    "seconds",
    "cost_per_point",
)


def run_job(settings: Mapping[str, Any], run: Run = run_settings) -> dict[str, Any]:
    """Run one configuration.

    Parameters
    ----------
    settings : mapping
        Resolved configuration.
    run : callable
        What it is run by, in the way of `run_settings`.

    Returns
    -------
    dict
        A row: the configuration's leaves by dotted names, then what was found. Metrics
        look at the exact data and are not private. A failure is a row as well, with its
        reason.
    """
    try:
        return result_row(settings, *run(settings))
    except DPKMeansError as error:
        return failed_row(settings, f"{type(error).__name__}: {error}")
    except Exception as error:
        logging.getLogger("simulations").debug("a run failed", exc_info=True)
        return failed_row(settings, f"unexpected {type(error).__name__}: {error}")


def result_row(
    settings: Mapping[str, Any], outcome: Outcome, data: DataSet
) -> dict[str, Any]:
    """The row of a finished run: the configuration's leaves, then what was found."""
    row = flat(settings) | {"job": job_key(settings), "status": "done", "reason": None}
    return row | measured(settings, outcome, data)


def failed_row(settings: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """The row of a run that has no result."""
    return flat(settings) | {
        "job": job_key(settings),
        "status": "failed",
        "reason": reason,
    }


def rehearsed_row(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The row that a run is to have, with 1 for each number that it will find.

    What is drawn of it is known before.

    Examples
    --------
    >>> settings = {
    ...     "algorithm": {"name": "lloyd"},
    ...     "data": {"n_clusters": 3},
    ...     "privacy": {"epsilon": 1},
    ...     "metrics": ["dunn"],
    ...     "evaluation": "none",
    ...     "n_clients": 2,
    ... }
    >>> row = rehearsed_row(settings)
    >>> row["algorithm.name"], row["nicv"], row["dunn"], row["epsilon"]
    ('lloyd', 1.0, 1.0, None)
    """
    epsilon = float(settings["privacy"]["epsilon"])
    is_private = _is_private(settings, epsilon)
    chooses_k = settings["data"]["n_clusters"] == "auto"
    names = [*_FOUND_NUMBERS, "nicv", *settings["metrics"]]
    if settings["evaluation"] != "none":
        for name in EVALUATED:
            names += [f"evaluation_{name}", f"evaluation_{name}_noise"]
    texts = ("trust", "noise", "version", "flwr_version", "code", "job")
    return {
        **flat(settings),
        "status": "done",
        "reason": None,
        **dict.fromkeys(texts, ""),
        "epsilon": epsilon if is_private else None,
        "delta": 0.0 if is_private else None,
        **dict.fromkeys(names, 1.0),
        "n_clients": settings["n_clients"] or 1,
        "cost_curve": [1.0] if chooses_k else None,
    }


def _is_private(settings: Mapping[str, Any], epsilon: float) -> bool:
    """Whether a run's algorithm has noise, at an epsilon that is finite."""
    name = settings["algorithm"]["name"]
    return name not in NOT_PRIVATE and math.isfinite(epsilon)


def measured(
    settings: Mapping[str, Any], outcome: Outcome, data: DataSet
) -> dict[str, Any]:
    """Result columns: what the run says of itself, and metrics on the exact data.

    The metrics are not private.

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
    # Clipping here would hide what was released outside the box, and measure a
    # truncation that no run did.
    points = in_box_units(scaler, data.points)
    centers = in_box_units(scaler, outcome.centers)
    report = outcome.privacy
    is_private = _is_private(settings, report.epsilon)
    cost_curve = outcome.cost_curve
    columns: dict[str, Any] = {
        "epsilon": report.epsilon if is_private else None,
        "delta": report.delta if is_private else None,
        "n_clients": n_clients_of(settings, data),
        "trust": report.trust,
        "noise": report.noise,
        "version": __version__,
        "flwr_version": flwr_version(),
        "n_iterations": outcome.n_iterations,
        "n_rows": len(points),
        "n_columns": points.shape[1],
        "n_found_clusters": len(centers),
        "seconds": outcome.seconds,
        "cost_per_point": cost_per_point(data.points, outcome.centers),
        "cost_curve": None if cost_curve is None else cost_curve.tolist(),
        **outcome.columns,
    }
    wanted = tuple(dict.fromkeys(("nicv", *settings["metrics"])))
    reference = None
    if {"nicv_optimum", "centroid_error"} & set(wanted):
        reference, optimum = _reference(data, scaler, _n_clusters(settings, data))
        columns["nicv_optimum"] = optimum
    names = tuple(name for name in wanted if name != "nicv_optimum")
    metrics = clustering_metrics(
        points,
        centers,
        labels=_labels_for(data, names),
        reference_centroids=reference,
        which=names,
        sample_size=int(settings["sample_size"]),
        rng=np.random.default_rng([int(settings["seed"]), 2]),
    )
    return columns | {name: getattr(metrics, name) for name in names}


def _labels_for(data: DataSet, metrics: Sequence[str]) -> NDArray[np.generic] | None:
    """Labels, only where a metric asks for them."""
    return data.labels if {"accuracy", "purity"} & set(metrics) else None


def _n_clusters(settings: Mapping[str, Any], data: DataSet) -> int:
    """k of the optimum: as configured, or the true one where the run chooses."""
    n_clusters = settings["data"]["n_clusters"]
    if isinstance(n_clusters, int):
        return n_clusters
    return 10 if data.means is None else len(data.means)


def in_box_units(box: Bounds, values: Array) -> Array:
    """Map (n, d) values to the scale of [-1, 1] and clip nothing.

    What is compared with released values.
    """
    fitted = box.for_features(values.shape[1])
    lower = np.array(fitted.lower)
    upper = np.array(fitted.upper)
    return np.asarray((values - lower) / (upper - lower) * 2.0 - 1.0)


@lru_cache(maxsize=4)
def _reference(data: DataSet, scaler: Bounds, n_clusters: int) -> tuple[Array, float]:
    """The best non-private centroids on the scale of the box, and their cost.

    Once for all runs on the same data.
    """
    points = in_box_units(scaler, data.points)
    start: tuple[Array, ...] = ()
    if data.means is not None and len(data.means) == n_clusters:
        start = (in_box_units(scaler, data.means),)
    centroids = optimal_centroids(
        points, n_clusters, n_init=OPTIMUM_STARTS, seed=0, init=start
    )
    return centroids, cost_per_point(points, centroids)


@lru_cache(maxsize=1)
def flwr_version() -> str:
    """Of the Flower that is installed."""
    return version("flwr")


def log_quietly() -> None:
    """Leave warnings of single runs out of a sweep's output.

    Each row has its report's figures.
    """
    for name in ("flwr_dpkmeans", "flwr"):
        logging.getLogger(name).setLevel(logging.ERROR)
