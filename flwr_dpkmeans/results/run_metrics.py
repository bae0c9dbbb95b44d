"""Numbers of a run that follow from its plan and its releases."""

from __future__ import annotations

from typing import Any

from flwr_dpkmeans.algorithms.measure.evaluation_result import EvaluationResult
from flwr_dpkmeans.privacy.report import CLOSING_ROUNDS, PrivacyReport
from flwr_dpkmeans.results.clear_centres import Array


def metrics_of(
    report: PrivacyReport,
    counts: Array | None = None,
    movements: tuple[float, ...] | None = None,
    evaluation: EvaluationResult | None = None,
) -> dict[str, Any]:
    """List a run's cost and noise by round, with counts, movements and metrics if any.

    `counts`, (n_clusters,), have noise; `movements`, (n_iterations,), are in scaled
    units.
    """
    plain = report.to_dict()
    rounds = _rounds_of(report)
    if movements:
        _add_movements(rounds, movements)
    metrics: dict[str, Any] = {
        "epsilon": plain["epsilon"],
        "delta": plain["delta"],
        "is_private": plain["is_private"],
        "n_rounds": sum(1 for entry in rounds if entry["round"] > 0),
        "rounds": rounds,
    }
    if movements is not None:
        metrics["n_iterations"] = len(movements)
    if counts is not None:
        metrics["noisy_counts"] = [float(count) for count in counts]
    if evaluation is not None:
        metrics["evaluation"] = evaluation.to_dict()
    if report.provenance is not None:
        metrics["provenance"] = report.provenance.to_dict()
    return metrics


def _rounds_of(report: PrivacyReport) -> list[dict[str, Any]]:
    """One entry for each round, in their order."""
    rounds: dict[int, dict[str, Any]] = {}
    releases = report.to_dict()["releases"]
    for line, plain in zip(report.releases, releases, strict=True):
        first = {
            "round": line.round_index,
            "name": line.round_name,
            "epsilon": 0.0,
            "radius": line.radius,
        }
        entry = rounds.setdefault(line.round_index, first)
        entry["epsilon"] = plain["epsilon_so_far"]
        entry[f"noise_{line.array}"] = line.released_scale
    return [rounds[index] for index in sorted(rounds)]


def _add_movements(rounds: list[dict[str, Any]], movements: tuple[float, ...]) -> None:
    """Add to the last rounds that move centroids how far these moved.

    Steps before the first Lloyd round, and what closes the run, move nothing.
    """
    moving = [
        entry
        for entry in rounds
        if entry["round"] > 0 and entry["name"] not in CLOSING_ROUNDS
    ]
    last = moving[-len(movements) :]
    for entry, movement in zip(last, movements, strict=False):
        entry["movement"] = movement
