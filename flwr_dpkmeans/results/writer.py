"""The four files of a run: centroids, privacy report, metrics and picture."""

from __future__ import annotations

import io
import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import LocalMisuseError
from flwr_dpkmeans.privacy.report import EVALUATION_ROUND, PrivacyReport
from flwr_dpkmeans.results.evaluation import EvaluationResult

CENTROIDS_FILE = "centroids.npz"
REPORT_FILE = "privacy_report.json"
METRICS_FILE = "metrics.json"
PICTURE_FILE = "summary.png"


@dataclass(frozen=True)
class RunResult:
    """A run's result where it may be known.

    Parameters
    ----------
    centroids : ndarray, (n_clusters, n_features)
        In the caller's units.
    counts : ndarray, (n_clusters,)
        Noisy counts of the last release.
    movements : tuple of float
        Largest step of a centroid in each iteration, in scaled units.
    report : PrivacyReport
        What the run guarantees.
    image_shape : tuple of int, optional
        Draw centroids as images of this shape.
    feature_names : tuple of str
        For the picture.
    scaled : ndarray, (n_clusters, n_features), optional
        Centroids in the box [-1, 1]^d, where rows belong to the nearest one and no feature outweighs the others by its
        unit.
    bounds : pair of tuples of float, optional
        The box that was scaled to [-1, 1]^d.
    evaluation : EvaluationResult, optional
        Metrics of the centroids.
    """

    centroids: NDArray[np.float64] = field(repr=False)
    counts: NDArray[np.float64] = field(repr=False)
    movements: tuple[float, ...] = field(repr=False)
    report: PrivacyReport
    image_shape: tuple[int, ...] | None = None
    feature_names: tuple[str, ...] = ()
    scaled: NDArray[np.float64] | None = field(default=None, repr=False)
    evaluation: EvaluationResult | None = None
    bounds: tuple[tuple[float, ...], tuple[float, ...]] | None = None


def write_results(folder: Path, result: RunResult) -> list[Path]:
    """Write all four files of a run.

    Parameters
    ----------
    folder : Path
        Made if it does not exist.
    result : RunResult
        What to write.

    Returns
    -------
    list of Path
        Absolute paths, in the order written.

    Raises
    ------
    LocalMisuseError
        If the folder cannot be written.
    """
    from flwr_dpkmeans.results.picture import draw_summary

    archive = io.BytesIO()
    arrays: dict[str, Any] = {} if result.scaled is None else {"scaled": result.scaled}
    if result.bounds is not None:
        arrays["bounds"] = np.array(result.bounds)
    np.savez(
        archive,
        centroids=result.centroids,
        counts=result.counts,
        feature_names=np.asarray(result.feature_names, dtype=np.str_),
        **arrays,
    )
    return [
        write_whole(folder / CENTROIDS_FILE, archive.getvalue()),
        *write_report(
            folder, result.report, metrics_of(result.report, result.counts, result.movements, result.evaluation)
        ),
        write_whole(folder / PICTURE_FILE, draw_summary(result)),
    ]


def write_report(folder: Path, report: PrivacyReport, metrics: dict[str, Any]) -> list[Path]:
    """Write the privacy report and the metrics, which every party may have."""
    return [
        write_whole(folder / REPORT_FILE, report.to_json().encode()),
        write_whole(folder / METRICS_FILE, (json.dumps(metrics, indent=2, allow_nan=False) + "\n").encode()),
    ]


def metrics_of(
    report: PrivacyReport,
    counts: NDArray[np.float64] | None,
    movements: tuple[float, ...] | None,
    evaluation: EvaluationResult | None = None,
) -> dict[str, Any]:
    """Numbers of a run that follow from the plan and the releases; counts, movements and metrics where known."""
    plain = report.to_dict()
    rounds: dict[int, dict[str, Any]] = {}
    for line in plain["releases"]:
        entry = rounds.setdefault(
            line["round_index"],
            {
                "round": line["round_index"],
                "name": line["round_name"],
                "epsilon": line["epsilon_so_far"],
                "radius": line["radius"],
            },
        )
        entry["epsilon"] = line["epsilon_so_far"]
        entry[f"noise_{line['array']}"] = line["noise_scale"]
    listed = [rounds[index] for index in sorted(rounds)]
    if movements:
        # Steps before the first Lloyd round, and an evaluation after the last, move nothing.
        moving = [entry for entry in listed if entry["round"] > 0 and entry["name"] != EVALUATION_ROUND]
        for entry, movement in zip(moving[-len(movements) :], movements, strict=False):
            entry["movement"] = movement
    metrics: dict[str, Any] = {
        "epsilon": plain["epsilon"],
        "delta": plain["delta"],
        "is_private": plain["is_private"],
        "n_rounds": sum(1 for e in listed if e["round"] > 0),
        "rounds": listed,
    }
    if movements is not None:
        metrics["n_iterations"] = len(movements)
    if counts is not None:
        metrics["noisy_counts"] = [float(count) for count in counts]
    if evaluation is not None:
        metrics["evaluation"] = evaluation.to_dict()
    return metrics


def write_whole(path: Path, content: bytes) -> Path:
    """Write a file that is either complete or absent: a temporary file beside it, synced, then renamed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise LocalMisuseError(
            f"the folder {path.parent.absolute()} cannot be written ({error.strerror}): choose another output folder."
        ) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise LocalMisuseError(
            f"the file {path.absolute()} cannot be written ({error.strerror}): free space or choose another output "
            "folder."
        ) from error
    return path.absolute()
