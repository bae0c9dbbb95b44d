"""Numbers of a run that follow from its plan and its releases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flwr_dpkmeans.algorithms.measure.evaluation_result import EvaluationResult
from flwr_dpkmeans.privacy.report import CLOSING_ROUNDS, PrivacyReport
from flwr_dpkmeans.results.cautions.clear_centres import Array

Entry = dict[str, Any]
"""Numbers by name, as JSON has them."""
Entries = list[Entry]


def metrics_of(
    report: PrivacyReport,
    counts: Array | None = None,
    movements: Sequence[float] | None = None,
    evaluation: EvaluationResult | None = None,
) -> Entry:
    """List a run's cost and noise by round, with counts, movements and metrics if any.

    `counts`, (n_clusters,), have noise; `movements`, (n_iterations,), are in scaled
    units.
    """
    plain = report.to_dict()
    rounds = _rounds_of(report)
    if movements:
        _add_movements(rounds, movements)
    numbered = _numbered(rounds)
    metrics: Entry = {
        "epsilon": plain["epsilon"],
        "delta": plain["delta"],
        "is_private": plain["is_private"],
        "n_rounds": len(numbered),
        "rounds": rounds,
    }
    if movements is not None:
        metrics["n_iterations"] = len(movements)
    if counts is not None:
        metrics["noisy_counts"] = list(map(float, counts))
    if evaluation is not None:
        metrics["evaluation"] = evaluation.to_dict()
    if report.provenance is not None:
        provenance = report.provenance
        metrics["provenance"] = provenance.to_dict()
    return metrics


def _rounds_of(report: PrivacyReport) -> Entries:
    """One entry for each round, in their order."""
    rounds: dict[int, Entry] = {}
    releases = report.to_dict()["releases"]
    for index, line in enumerate(report.releases):
        first = {
            "round": line.round_index,
            "name": line.round_name,
            "epsilon": 0.0,
            "radius": line.radius,
        }
        entry = rounds.setdefault(line.round_index, first)
        plain = releases[index]
        entry["epsilon"] = plain["epsilon_so_far"]
        noise = f"noise_{line.array}"
        entry[noise] = line.released_scale
    in_order = sorted(rounds)
    return [rounds[index] for index in in_order]


def _add_movements(rounds: Entries, movements: Sequence[float]) -> None:
    """Add to the last rounds that move centroids how far these moved.

    Steps before the first Lloyd round, and what closes the run, move nothing.
    """
    moving = []
    for entry in _numbered(rounds):
        if entry["name"] not in CLOSING_ROUNDS:
            moving.append(entry)
    n_moves = len(movements)
    last = moving[-n_moves:]
    for entry, movement in zip(last, movements, strict=False):
        entry["movement"] = movement


def _numbered(rounds: Entries) -> Entries:
    """Rounds of the algorithm, without those before its first one."""
    return [entry for entry in rounds if entry["round"] > 0]
