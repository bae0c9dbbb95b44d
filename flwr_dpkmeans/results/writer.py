"""Files of a run, whole or not at all: centroids, privacy report, metrics and picture.

The model is beside them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_dpkmeans.log import placed_logger, where_raised
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.results.page import page, registry_record
from flwr_dpkmeans.results.profile import as_frame
from flwr_dpkmeans.results.rendering import HTML, MARKDOWN
from flwr_dpkmeans.results.run_metrics import metrics_of
from flwr_dpkmeans.results.run_result import RunResult
from flwr_dpkmeans.results.whole_files import write_folder, write_whole

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike, NDArray

_logger = placed_logger("flwr_dpkmeans.results")

MODEL_FILE = "model.json"
REPORT_FILE = "privacy_report.json"
METRICS_FILE = "metrics.json"
CENTROIDS_FILE = "centroids.npz"
ARRAYS_FILE = "result.npz"
PICTURE_FILE = "summary.png"
ROUNDS_FILE = "rounds.png"
CURVE_FILE = "cost_curve.png"
PROFILE_FILE = "profile.csv"
FEDERATED_PROFILE_FILE = "federated_profile.csv"
PAGE_FILE = "report.html"
TEXT_FILE = "report.md"
RECORD_FILE = "deployment.json"
"""A draft for the public registry of deployments of differential privacy."""


def result_files(
    result: RunResult, draw: Callable[[RunResult], bytes] | None = None
) -> dict[str, bytes]:
    """Contents of a run's files, by name.

    If it chose k, with the cost curve as a picture and as numbers. ``draw(result)``
    makes the summary; None: `draw_summary`.
    """
    from flwr_dpkmeans.results.picture import draw_summary
    from flwr_dpkmeans.results.pictures.cost_curve import draw_cost_curve
    from flwr_dpkmeans.results.pictures.rounds_picture import draw_rounds

    report = result.report
    model = result.model
    costs = result.costs
    arrays: dict[str, NDArray[np.generic] | np.str_] = {
        "centroids": model.centroids,
        "cluster_centers_error": model.cluster_centers_error,
        "counts": model.sizes,
        "feature_names": np.asarray(model.feature_names, dtype=np.str_),
        "scaled": model.scaled,
        "bounds": np.array([model.bounds.lower, model.bounds.upper]),
    }
    if model.gaps.columns:
        arrays["cell_means"] = model.cell_means
    if report.provenance is not None:
        origin = json.dumps(report.provenance.to_dict())
        arrays["provenance"] = np.str_(origin)
    metrics = metrics_of(
        report,
        model.sizes,
        result.movements,
        result.evaluation,
    )
    files = {
        MODEL_FILE: model.to_json(),
        CENTROIDS_FILE: _archive(arrays),
        PICTURE_FILE: _drawn(draw or draw_summary, result),
    }
    files[ROUNDS_FILE] = _drawn(draw_rounds, result)
    if costs is not None:
        n_clusters = len(model.scaled)
        metrics["n_clusters"] = n_clusters
        metrics["costs"] = [float(cost) for cost in costs]
        files[CURVE_FILE] = _drawn(
            draw_cost_curve,
            costs,
            n_clusters,
            report,
        )
    if result.profile is not None:
        files[PROFILE_FILE] = _csv_of(result.profile)
    if model.federated_profile:
        figures = as_frame(model.federated_profile)
        files[FEDERATED_PROFILE_FILE] = _csv_of(figures)
    files |= _report_files(
        report,
        metrics,
        result,
        files[PICTURE_FILE],
    )
    return {name: content for name, content in files.items() if content}


def add_profile(folder: Path, result: RunResult) -> list[Path]:
    """Add the party's own profile to the files and pages of a run that are there."""
    picture = folder / PICTURE_FILE
    drawn = picture.read_bytes() if picture.exists() else b""
    files = {
        PROFILE_FILE: _csv_of(result.profile),
        PAGE_FILE: page(
            HTML,
            result.report,
            result,
            drawn,
        ),
        TEXT_FILE: page(
            MARKDOWN,
            result.report,
            result,
            drawn,
        ),
    }
    return [write_whole(folder / name, content) for name, content in files.items()]


def _drawn(draw: Callable[..., bytes], *arguments: object) -> bytes:
    """A picture; none where it fails, which costs nobody the model."""
    try:
        return draw(*arguments)
    except Exception as error:
        _logger.warning("a picture was not drawn: %s", where_raised(error))
        return b""


def _csv_of(frame: pd.DataFrame) -> bytes:
    """A data frame as a text file."""
    text = str(frame.to_csv(index=False))
    return text.encode()


def _archive(arrays: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _report_files(
    report: PrivacyReport,
    metrics: Mapping[str, object],
    result: RunResult | None = None,
    picture: bytes = b"",
) -> dict[str, bytes]:
    """Files that every party may have.

    A run that is not private has no place in the registry.
    """
    metrics_text = json.dumps(metrics, indent=2, allow_nan=False)
    files = {
        REPORT_FILE: report.to_json().encode(),
        METRICS_FILE: f"{metrics_text}\n".encode(),
        PAGE_FILE: page(
            HTML,
            report,
            result,
            picture,
        ),
        TEXT_FILE: page(
            MARKDOWN,
            report,
            result,
            picture,
        ),
    }
    if report.is_private:
        files[RECORD_FILE] = registry_record(report, result)
    return files


def write_report(
    folder: Path,
    report: PrivacyReport,
    arrays: Mapping[str, ArrayLike] | None = None,
    names: Sequence[str] = (),
) -> list[Path]:
    """Write the report and its metrics, which every party may have.

    With the `arrays` of a task that is no clustering; principal components are drawn,
    with the `names` of the columns.
    """
    files = {}
    if arrays is not None:
        files[ARRAYS_FILE] = _archive(arrays)
    if arrays is not None and "components" in arrays:
        from flwr_dpkmeans.results.pictures.components_picture import draw_arrays

        drawn = _drawn(
            draw_arrays,
            arrays,
            names,
            report,
        )
        files |= {PICTURE_FILE: drawn} if drawn else {}
    metrics = metrics_of(report)
    files |= _report_files(report, metrics)
    return write_folder(folder, files)
