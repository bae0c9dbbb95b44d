"""The files of a run as clients and the server write them, with the curve by which the run chose k."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.server_points import in_squared_units
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.results.writer import RunResult, metrics_of, report_files, result_files, write_folder
from flwr_dpkmeans.sums.task import Result, Run

ARRAYS_FILE = "result.npz"
CURVE_FILE = "cost_curve.png"


def write_arrays(folder: Path, result: Result, report: PrivacyReport) -> list[Path]:
    """Write the arrays of a task that is no clustering, with its report and metrics; returns absolute paths."""
    archive = io.BytesIO()
    arrays: dict[str, Any] = dict(result.arrays)
    np.savez(archive, **arrays)
    files = report_files(report, metrics_of(report, None, None))
    return write_folder(folder, {ARRAYS_FILE: archive.getvalue(), **files})


def write_run(folder: Path, result: RunResult, config: Run, scaled_costs: NDArray[np.float64] | None) -> list[Path]:
    """Write a run's result; if the run chose k, with the cost curve as a picture and as numbers.

    Parameters
    ----------
    folder : Path
        See `write_folder`.
    result : RunResult
        What to write.
    config : Run
        Whose bounds say what a distance is in the caller's units.
    scaled_costs : ndarray, (largest k,), or None
        Cost over the number of clusters, in squared scaled units; None if k was given.

    Returns
    -------
    list of Path
        Absolute paths.

    Raises
    ------
    LocalMisuseError
        If the folder cannot be written.
    """
    files = result_files(result)
    if scaled_costs is not None:
        from flwr_dpkmeans.results.picture import draw_cost_curve

        costs, chosen = in_squared_units(scaled_costs, config), len(result.centroids)
        metrics: dict[str, Any] = metrics_of(result.report, result.counts, result.movements, result.evaluation)
        metrics |= {"n_clusters": chosen, "costs": [float(cost) for cost in costs]}
        files |= report_files(result.report, metrics) | {CURVE_FILE: draw_cost_curve(costs, chosen, result.report)}
    return write_folder(folder, files)
