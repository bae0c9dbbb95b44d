"""One run of a sweep: load, cluster, look at the result, return one row of the table."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.bounds import Bounds
from flwr_dpkmeans.errors import DPKMeansError
from flwr_dpkmeans.kmeans.metrics import cost_per_point
from flwr_dpkmeans.results.metrics import clustering_metrics, optimal_centroids
from simulations.configuration import NOT_PRIVATE, flat, job_key
from simulations.datasets import DataSet
from simulations.engines import run_settings
from simulations.federation import reference_box
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
