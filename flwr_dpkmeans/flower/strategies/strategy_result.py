"""What a strategy returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flwr.app import MetricRecord
from flwr.serverapp.strategy import Result

from flwr_dpkmeans.algorithms.measure.evaluation_result import EvaluationResult
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.sums.statement import Step

_Metric = int | float | list[int] | list[float]


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


def result_type(
    dtype: np.dtype[np.generic],
    keeps_whole: bool,
) -> str:
    """The type that an array of a type comes back as.

    Small whole numbers may have a larger sum.
    """
    if dtype.kind == "f" and dtype.itemsize <= 4:
        return "float32"
    if dtype.kind != "f" and keeps_whole:
        return "int64"
    return "float64"


def step_metrics(step: Step) -> MetricRecord:
    """Metrics of one aggregation, as the result of a strategy lists them."""
    metrics: dict[str, _Metric] = {
        "epsilon": step.epsilon,
        "n-clients": step.n_clients,
        "attempt": step.attempt,
    }
    for name, scale in step.noise_scales:
        metrics[f"noise-{name}"] = scale
    if step.radius is not None:
        metrics["radius"] = step.radius
    if step.movement is not None:
        metrics["movement"] = step.movement
    return MetricRecord(metrics)
