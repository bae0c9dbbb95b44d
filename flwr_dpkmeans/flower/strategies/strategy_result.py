"""What a strategy returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flwr.app import MetricRecord
from flwr.serverapp.strategy import Result

from flwr_dpkmeans.algorithms.measure.evaluation_result import EvaluationResult
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.sums.statement import Step


@dataclass
class KMeansResult(Result):
    """Flower's `Result` with the privacy report."""

    privacy: PrivacyReport | None = None
    """What the run guaranteed."""
    confirmed: tuple[int, ...] = ()
    """Nodes that confirmed having the result."""
    node_ids: tuple[int, ...] = ()
    """Nodes in the last aggregation."""
    steps: tuple[Step, ...] = ()
    """One for each aggregation."""
    evaluation: EvaluationResult | None = None
    """Metrics, if the run had an evaluation and the server may know it."""


def result_type(dtype: np.dtype[np.generic], keeps_whole: bool) -> str:
    """The type that an array of a type comes back as.

    Small whole numbers may have a larger sum.
    """
    if dtype.kind == "f":
        return "float32" if dtype.itemsize <= 4 else "float64"
    return "int64" if keeps_whole else "float64"


def step_metrics(step: Step) -> MetricRecord:
    """Metrics of one aggregation, as the result of a strategy lists them."""
    metrics: dict[str, int | float | list[int] | list[float]] = {
        "epsilon": step.epsilon,
        "n-clients": step.n_clients,
        "attempt": step.attempt,
    }
    metrics.update({f"noise-{name}": scale for name, scale in step.noise_scales})
    released = {"radius": step.radius, "movement": step.movement}
    return MetricRecord(
        metrics | {name: value for name, value in released.items() if value is not None}
    )
